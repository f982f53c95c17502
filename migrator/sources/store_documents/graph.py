"""``graph_jobs`` and ``graph_job_events``: the document is the payload, the columns are derived from it.

Our own store is given columns and a payload that need not be a document of the source. A payload that is not one (it
has no ``_id``) is written in our own shape, the columns as fields beside the payload: ``{_id, tenantId, type, status,
createdAt, updatedAt, correlationId, payload}`` and ``{_id, jobId, tenantId, status, createdAt, payload}``: words
instead of codes, BSON dates. The ``_id`` of an event is its number, from 2^62 on as those that are computed from the
source's.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from migrator import states
from migrator.records import REMAINDER_KEY, GraphJob, GraphJobEvent
from migrator.sources import aggregates, tenants
from migrator.sources.mapping.converters.base import value_at
from migrator.sources.profile import (
    Collection,
    Context,
    Decoded,
    Document,
    Measure,
    Note,
    Reference,
    Rejected,
    Rows,
)
from migrator.sources.shapes import (
    Moment,
    Shape,
    choice,
    instant,
    known_paths,
    ordered_reader,
    plain,
    read,
    required,
    text,
    unknown_value,
)
from migrator.sources.store_documents import ids, names
from migrator.values import identity, jsonb
from migrator.values.times import to_bson

JOB_FIELDS = frozenset({"type", "updatedAt", "payload", "payload.*", "payload.attempts"})
EVENT_FIELDS = frozenset({"jobId", "status", "createdAt"})
"""Fields that the source's documents do not have."""

FIRST_NUMBER = 1 << 62
_OWN_STATUS = {code: word for word, code in states.GRAPH_JOB_CODES.items()}
_OWN_TYPE = {code: word for word, code in states.GRAPH_JOB_TYPES.items()}


def is_own_job(document: Document) -> bool:
    """Tell our own documents from the source's, which have none of three fields; one alone may be a stranger's."""
    return sum(field in document for field in ("type", "updatedAt", "payload")) > 1


def is_own_event(document: Document) -> bool:
    """Tell our own documents from the source's, whose ``_id`` is no such number."""
    key = document.get("_id")
    return isinstance(key, int) and key >= FIRST_NUMBER


def either(job: Any, source_s: Any) -> Any:  # noqa: ANN401 - MongoDB expressions
    """Return the expression that is ``job`` for our own jobs and ``source_s`` for the source's."""
    own = [{"$ne": [{"$type": field}, "missing"]} for field in ("$payload", "$type")]
    return {"$cond": [{"$and": own}, job, source_s]}


def either_event(event: Any, source_s: Any) -> Any:  # noqa: ANN401 - MongoDB expressions
    """Return the expression that is ``event`` for our own events and ``source_s`` for the source's."""
    own = [{"$isNumber": "$_id"}, {"$gte": ["$_id", FIRST_NUMBER]}]
    return {"$cond": [{"$and": own}, event, source_s]}


def decode_own_job(document: Document, context: Context) -> Decoded:
    """Return the row of a job."""
    notes: list[Note] = []
    tenant = tenants.tenant_of(_text(document, "tenantId"), context, notes)
    correlation = document.get("correlationId")
    row = GraphJob(
        id=ids.graph_job_id(tenant, _text(document, "_id")),
        tenant_id=tenant,
        type=choice(_text(document, "type"), names.GRAPH_TYPES, "type"),
        status=choice(_text(document, "status"), names.GRAPH_STATUSES, "status"),
        payload=_payload(document),
        created_at=instant(document.get("createdAt"), "createdAt"),
        updated_at=instant(document.get("updatedAt"), "updatedAt"),
        correlation_id=None if correlation is None else text(_text(document, "correlationId"), "correlationId"),
    )
    return Decoded((row,), tuple(notes))


def decode_own_event(document: Document, context: Context) -> Decoded:
    """Return the row of an event."""
    notes: list[Note] = []
    tenant = tenants.tenant_of(_text(document, "tenantId"), context, notes)
    row = GraphJobEvent(
        id=int(document["_id"]),
        job_id=ids.graph_job_id(tenant, _text(document, "jobId")),
        tenant_id=tenant,
        status=choice(_text(document, "status"), names.GRAPH_STATUSES, "status"),
        payload=_payload(document),
        created_at=instant(document.get("createdAt"), "createdAt"),
    )
    return Decoded((row,), tuple(notes))


def encode_own_job(rows: Rows) -> Document:
    """Return the document of a job."""
    row: Any = rows[0]
    prefix = names.GRAPH_BUILD_PREFIX if _OWN_TYPE[row.type] == "build" else names.GRAPH_OVERLAY_PREFIX
    document: Document = {
        "_id": f"{prefix}{row.id.hex}",
        "tenantId": row.tenant_id,
        "type": _OWN_TYPE[row.type],
        "status": _OWN_STATUS[row.status],
        "createdAt": to_bson(row.created_at),
        "updatedAt": to_bson(row.updated_at),
    }
    if row.correlation_id is not None:
        document["correlationId"] = row.correlation_id
    return document | {"payload": _without_remainder(row.payload)}


def encode_own_event(rows: Rows) -> Document:
    """Return the document of an event; the type of its job is not known here, so its id has the prefix of builds."""
    row: Any = rows[0]
    return {
        "_id": row.id,
        "jobId": f"{names.GRAPH_BUILD_PREFIX}{row.job_id.hex}",
        "tenantId": row.tenant_id,
        "status": _OWN_STATUS[row.status],
        "createdAt": to_bson(row.created_at),
        "payload": _without_remainder(row.payload),
    }


def _payload(document: Document) -> bytes:
    payload = required(document.get("payload"), "payload")
    if not isinstance(payload, dict):
        raise Rejected("wrong-type", "payload", "a document")
    if "_id" in payload:
        raise Rejected("unknown-value", "payload", "no document of the source inside one of ours")
    attempts = payload.get("attempts")
    if attempts is not None and (not isinstance(attempts, int) or isinstance(attempts, bool)):
        raise Rejected("wrong-type", "payload.attempts", "int, as in the source's documents")
    return jsonb.encode(payload)


def _without_remainder(text_: bytes) -> Any:  # noqa: ANN401 - any JSON
    payload = jsonb.decode(text_)
    if isinstance(payload, dict):
        payload.pop(REMAINDER_KEY, None)
    return payload


def _text(document: Document, key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise Rejected("missing-field" if value is None else "wrong-type", key, "text")
    return plain(value, key)


EVENTS_SOURCE = names.source(names.GRAPH_JOB_EVENTS)


class GraphJobDocument(Shape, kw_only=True):
    """A build or an overlay job; their fields agree in order, so one declaration serves both."""

    key: Any = msgspec.field(name="_id", default=None)
    schema_version: str | None = None
    id: Any = None
    tenant_id: str | None = None
    sbom_id: str | None = None
    sbom_version_id: str | None = None
    sbom_digest: str | None = None
    graph_snapshot_id: str | None = None
    build_job_id: str | None = None
    overlay_kind: names.OverlayKind | None = None
    overlay_key: str | None = None
    subjects: list[str] | None = None
    status: names.GraphStatus
    trigger: names.GraphTrigger | None = None
    attempts: int | None = None
    cartographer_job_id: str | None = None
    correlation_id: str | None = None
    created_at: Moment = None
    started_at: Moment = None
    completed_at: Moment = None
    error: str | None = None
    metadata: dict[str, str] | None = None


class EventBody(Shape, kw_only=True):
    """What happened to which job."""

    job_type: names.GraphType | None = None
    job: GraphJobDocument
    status: names.GraphStatus
    occurred_at: Moment = None
    result_uri: str | None = None


class EventDocument(Shape, kw_only=True):
    """The documented completion envelope."""

    key: Any = msgspec.field(name="_id")
    event_id: str | None = None
    kind: str | None = None
    tenant: str | None = None
    tenant_id: str | None = None
    ts: Moment
    payload: EventBody
    attributes: dict[str, str] | None = None


_job, _event = ordered_reader(GraphJobDocument), ordered_reader(EventDocument)


def decode_job(document: Document, context: Context) -> Decoded:
    """Return the row of a job; its payload is the document as plain JSON."""
    if "_id" not in document:
        raise Rejected("missing-field", "_id", "a value")
    if is_own_job(document):
        return decode_own_job(document, context)
    job = read(document, GraphJobDocument)
    notes: list[Note] = []
    tenant = tenants.tenant_of(job.tenant_id, context, notes)
    source_id = identity.source_id(job.key)
    ids.compare_ids(job.key, job.id, notes)
    kind = _kind(job, source_id)
    version = names.GRAPH_BUILD_VERSION if kind == "build" else names.GRAPH_OVERLAY_VERSION
    ids.version_of(job.schema_version, version, notes)
    created = required(job.created_at, "createdAt")
    started, completed = (
        job.started_at,
        job.completed_at,
    )
    if started is not None and completed is not None and completed < started:
        notes.append(Note("finished-before-started", "completedAt"))
    row = GraphJob(
        id=identity.row_id("graph_jobs", tenant, names.GRAPH_JOBS, source_id),
        tenant_id=tenant,
        type=names.GRAPH_TYPES[kind],
        status=names.GRAPH_STATUSES[job.status],
        payload=jsonb.encode(document),
        created_at=created,
        updated_at=completed or started or created,
        correlation_id=text(job.correlation_id, "correlationId"),
    )
    return Decoded((row,), tuple(notes))


def _kind(found: GraphJobDocument, source_id: str) -> str:
    """Tell a build from an overlay: by what only one of them has, then by its version, then by its id."""
    overlay, build = found.overlay_kind or found.overlay_key, found.sbom_id or found.sbom_version_id
    version = found.schema_version or ""
    if overlay or version.startswith("scheduler.graph-overlay-job@"):
        return "overlay"
    if build or version.startswith("scheduler.graph-build-job@"):
        return "build"
    if source_id.startswith(names.GRAPH_OVERLAY_PREFIX):
        return "overlay"
    if source_id.startswith(names.GRAPH_BUILD_PREFIX):
        return "build"
    raise unknown_value("", ("a build job", "an overlay job"))


def decode_event(document: Document, context: Context) -> Decoded:
    """Return the row of an event; it refers to the job inside it."""
    if "_id" not in document:
        raise Rejected("missing-field", "_id", "a value")
    if is_own_event(document):
        return decode_own_event(document, context)
    event = read(document, EventDocument)
    notes: list[Note] = []
    tenant = tenants.tenant_of(tenants.first_said(event.tenant, event.tenant_id), context, notes, path="tenant")
    job = event.payload.job.id
    if not isinstance(job, str):
        reason = "missing-field" if job is None else "wrong-type"
        raise Rejected(reason, "payload.job.id", "the id of a graph job")
    row = GraphJobEvent(
        id=identity.event_id(tenant, EVENTS_SOURCE, event.key),
        job_id=ids.graph_job_id(tenant, job),
        tenant_id=tenant,
        status=names.GRAPH_STATUSES[event.payload.status],
        payload=jsonb.encode(document),
        created_at=required(event.ts, "ts"),
    )
    return Decoded((row,), tuple(notes))


def encode_job(rows: Rows) -> Document:
    """Return the document of a job."""
    document = _document(rows, _job)
    return document if _is_source_s(document) else encode_own_job(rows)


def encode_event(rows: Rows) -> Document:
    """Return the document of an event."""
    document = _document(rows, _event)
    return document if _is_source_s(document) else encode_own_event(rows)


def _is_source_s(document: object) -> bool:
    return isinstance(document, dict) and "_id" in document


def _document(rows: Rows, read_back: Callable[[bytes], Any]) -> Document:
    row: Any = rows[0]
    document: Document = read_back(row.payload)
    if isinstance(document, dict):
        document.pop(REMAINDER_KEY, None)
    return document


_CODES = {0: "queued", 1: "running", 2: "completed", 3: "failed", 4: "canceled", 5: "pending"}


def _begins(field: str, beginning: str) -> Any:  # noqa: ANN401 - a MongoDB expression
    """Return the expression of whether a text begins so; ``$regexMatch`` refuses a text with NUL."""
    usable = {"$cond": [{"$eq": [{"$type": field}, "string"]}, field, ""]}
    return {"$eq": [{"$indexOfCP": [usable, beginning]}, 0]}


def _said(field: str) -> Any:  # noqa: ANN401 - as above
    return {"$gt": [{"$ifNull": [field, ""]}, ""]}


_OF_OVERLAY = {
    "$or": [_said("$overlayKind"), _said("$overlayKey"), _begins("$schemaVersion", "scheduler.graph-overlay-job@")]
}
_OF_BUILD = {
    "$or": [_said("$sbomId"), _said("$sbomVersionId"), _begins("$schemaVersion", "scheduler.graph-build-job@")]
}
_KIND = {
    "$switch": {
        "branches": [
            {"case": _OF_OVERLAY, "then": "overlay"},
            {"case": _OF_BUILD, "then": "build"},
            {"case": _begins("$_id", names.GRAPH_OVERLAY_PREFIX), "then": "overlay"},
        ],
        "default": "build",
    }
}
"""What a job is, by the rule of ``docs/sources-stellaops.md``, read from the document a second time."""

_CHANGED = {"$ifNull": ["$completedAt", "$startedAt", "$createdAt"]}

JOBS = Collection(
    name=names.GRAPH_JOBS,
    tables=(GraphJob,),
    decode=decode_job,
    encode=encode_job,
    tenant_expression=aggregates.tenant(),
    measures=(
        aggregates.coded("status", "$status", {"cancelled": "canceled"}, _CODES),
        Measure(
            name="type",
            kind="group",
            expression=either("$type", _KIND),
            sql="CASE type WHEN 0 THEN 'build' WHEN 1 THEN 'overlay' END",
        ),
        aggregates.total("payload.attempts", "payload", field=either("$payload.attempts", "$attempts")),
        aggregates.span("createdAt", "created_at"),
        aggregates.span("updatedAt", "updated_at", field=either("$updatedAt", _CHANGED)),
    ),
    known=known_paths(GraphJobDocument) | JOB_FIELDS,
)

_EVENT_STATUS = either_event("$status", "$payload.status")


def _job_of_event(document: Document) -> str | None:
    """Return the source id of the job that an event of the source names; our own name the row by its id alone."""
    job = None if is_own_event(document) else value_at(document, ("payload", "job", "id"))
    return identity.source_id(job) if isinstance(job, str) else None


EVENTS = Collection(
    name=names.GRAPH_JOB_EVENTS,
    tables=(GraphJobEvent,),
    decode=decode_event,
    encode=encode_event,
    references=(
        Reference(GraphJobEvent, "job_id", GraphJob, required=True, collection=names.GRAPH_JOBS, named=_job_of_event),
    ),
    after=(names.GRAPH_JOBS,),
    tenant_expression=aggregates.tenant("$tenantId", field="$tenant"),
    measures=(
        aggregates.coded("status", _EVENT_STATUS, {"cancelled": "canceled"}, _CODES),
        aggregates.span("ts", "created_at", field=either_event("$createdAt", "$ts")),
    ),
    known=known_paths(EventDocument) | EVENT_FIELDS,
)
