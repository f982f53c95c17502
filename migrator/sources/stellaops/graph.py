"""``graph_jobs`` and ``graph_job_events``: the document is the payload, the columns are derived from it.

Our own store is given columns and a payload that need not be a document of the source. What is none (it has no ``_id``)
it writes in a shape of its own (``graph_own``).
"""

from collections.abc import Callable
from typing import Any

import msgspec

from migrator.records import REMAINDER_KEY, GraphJob, GraphJobEvent, attach_payload, remainder_of_payload
from migrator.sources.order import reader
from migrator.sources.profile import (
    Collection,
    Context,
    Decoded,
    Document,
    Measure,
    Note,
    Rejected,
    Rows,
)
from migrator.sources.shapes import Moment, Shape, known_paths, read, required, text, unknown_value
from migrator.sources.stellaops import graph_own, ids, measures, names
from migrator.sources.stellaops.references import by_field
from migrator.values import identity, jsonb

EVENTS_SOURCE = names.source(names.GRAPH_JOB_EVENTS)


class Job(Shape, kw_only=True):
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
    job: Job
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


_job, _event = reader(Job), reader(EventDocument)


def decode_job(document: Document, context: Context) -> Decoded:
    """Return the row of a job; its payload is the document as plain JSON."""
    if "_id" not in document:
        raise Rejected("missing-field", "_id", "a value")
    if graph_own.is_job(document):
        return graph_own.decode_job(document, context)
    found = read(document, Job)
    notes: list[Note] = []
    tenant = ids.tenant_of(found.tenant_id, context, notes)
    source_id = identity.source_id(found.key)
    ids.compare_ids(found.key, found.id, notes)
    kind = _kind(found, source_id)
    version = names.GRAPH_BUILD_VERSION if kind == "build" else names.GRAPH_OVERLAY_VERSION
    ids.version_of(found.schema_version, version, notes)
    created = required(found.created_at, "createdAt")
    started, completed = (
        found.started_at,
        found.completed_at,
    )
    if started is not None and completed is not None and completed < started:
        notes.append(Note("finished-before-started", "completedAt"))
    row = GraphJob(
        id=identity.row_id("graph_jobs", tenant, names.GRAPH_JOBS, source_id),
        tenant_id=tenant,
        type=names.GRAPH_TYPES[kind],
        status=names.GRAPH_STATUSES[found.status],
        payload=jsonb.encode(document),
        created_at=created,
        updated_at=completed or started or created,
        correlation_id=text(found.correlation_id, "correlationId"),
    )
    return Decoded((row,), tuple(notes))


def _kind(found: Job, source_id: str) -> str:
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
    if graph_own.is_event(document):
        return graph_own.decode_event(document, context)
    found = read(document, EventDocument)
    notes: list[Note] = []
    tenant = ids.tenant_of(ids.first_said(found.tenant, found.tenant_id), context, notes, path="tenant")
    job = found.payload.job.id
    if not isinstance(job, str):
        reason = "missing-field" if job is None else "wrong-type"
        raise Rejected(reason, "payload.job.id", "the id of a graph job")
    row = GraphJobEvent(
        id=identity.event_id(tenant, EVENTS_SOURCE, found.key),
        job_id=ids.graph_job_id(tenant, job),
        tenant_id=tenant,
        status=names.GRAPH_STATUSES[found.payload.status],
        payload=jsonb.encode(document),
        created_at=required(found.ts, "ts"),
    )
    return Decoded((row,), tuple(notes))


def encode_job(rows: Rows) -> Document:
    """Return the document of a job."""
    document = _document(rows, _job)
    return document if _is_source_s(document) else graph_own.encode_job(rows)


def encode_event(rows: Rows) -> Document:
    """Return the document of an event."""
    document = _document(rows, _event)
    return document if _is_source_s(document) else graph_own.encode_event(rows)


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
    tenant_expression=measures.tenant(),
    measures=(
        measures.coded("status", "$status", {"cancelled": "canceled"}, _CODES),
        Measure(
            name="type",
            kind="group",
            expression=graph_own.either("$type", _KIND),
            sql="CASE type WHEN 0 THEN 'build' WHEN 1 THEN 'overlay' END",
        ),
        measures.total("payload.attempts", "payload", field=graph_own.either("$payload.attempts", "$attempts")),
        measures.span("createdAt", "created_at"),
        measures.span("updatedAt", "updated_at", field=graph_own.either("$updatedAt", _CHANGED)),
    ),
    attach=attach_payload,
    residue=remainder_of_payload,
    known=known_paths(Job) | graph_own.JOB_FIELDS,
)

_EVENT_STATUS = graph_own.either_event("$status", "$payload.status")

EVENTS = Collection(
    name=names.GRAPH_JOB_EVENTS,
    tables=(GraphJobEvent,),
    decode=decode_event,
    encode=encode_event,
    references=(
        by_field(GraphJobEvent, "job_id", GraphJob, "payload.job.id", unless=graph_own.is_event, required=True),
    ),
    after=(names.GRAPH_JOBS,),
    tenant_expression=measures.tenant("$tenantId", field="$tenant"),
    measures=(
        measures.coded("status", _EVENT_STATUS, {"cancelled": "canceled"}, _CODES),
        measures.span("ts", "created_at", field=graph_own.either_event("$createdAt", "$ts")),
    ),
    attach=attach_payload,
    residue=remainder_of_payload,
    known=known_paths(EventDocument) | graph_own.EVENT_FIELDS,
)
