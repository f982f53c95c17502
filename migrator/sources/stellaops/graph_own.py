"""Graph jobs and events in our own shape: the columns as fields, the payload beside them.

``{_id, tenantId, type, status, createdAt, updatedAt, correlationId, payload}`` and
``{_id, jobId, tenantId, status, createdAt, payload}``: words instead of codes, BSON dates. The ``_id`` of an event is
its number, from 2^62 on as those that are computed from the source's.
"""

from typing import Any

from migrator import states
from migrator.records import REMAINDER_KEY, GraphJob, GraphJobEvent
from migrator.sources.profile import Context, Decoded, Document, Note, Rejected, Rows
from migrator.sources.shapes import choice, instant, plain, required, text
from migrator.sources.stellaops import ids, names
from migrator.values import jsonb
from migrator.values.times import to_bson

JOB_FIELDS = frozenset({"type", "updatedAt", "payload", "payload.*", "payload.attempts"})
EVENT_FIELDS = frozenset({"jobId", "status", "createdAt"})
"""Fields that the source's documents do not have."""

FIRST_NUMBER = 1 << 62
_STATUS = {code: word for word, code in states.GRAPH_JOB_CODES.items()}
_TYPE = {code: word for word, code in states.GRAPH_JOB_TYPES.items()}


def is_job(document: Document) -> bool:
    """Tell our own documents from the source's, which have none of three fields; one alone may be a stranger's."""
    return sum(field in document for field in ("type", "updatedAt", "payload")) > 1


def is_event(document: Document) -> bool:
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


def decode_job(document: Document, context: Context) -> Decoded:
    """Return the row of a job."""
    notes: list[Note] = []
    tenant = ids.tenant_of(_text(document, "tenantId"), context, notes)
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


def decode_event(document: Document, context: Context) -> Decoded:
    """Return the row of an event."""
    notes: list[Note] = []
    tenant = ids.tenant_of(_text(document, "tenantId"), context, notes)
    row = GraphJobEvent(
        id=int(document["_id"]),
        job_id=ids.graph_job_id(tenant, _text(document, "jobId")),
        tenant_id=tenant,
        status=choice(_text(document, "status"), names.GRAPH_STATUSES, "status"),
        payload=_payload(document),
        created_at=instant(document.get("createdAt"), "createdAt"),
    )
    return Decoded((row,), tuple(notes))


def encode_job(rows: Rows) -> Document:
    """Return the document of a job."""
    row: Any = rows[0]
    prefix = names.GRAPH_BUILD_PREFIX if _TYPE[row.type] == "build" else names.GRAPH_OVERLAY_PREFIX
    document: Document = {
        "_id": f"{prefix}{row.id.hex}",
        "tenantId": row.tenant_id,
        "type": _TYPE[row.type],
        "status": _STATUS[row.status],
        "createdAt": to_bson(row.created_at),
        "updatedAt": to_bson(row.updated_at),
    }
    if row.correlation_id is not None:
        document["correlationId"] = row.correlation_id
    return document | {"payload": _without_residue(row.payload)}


def encode_event(rows: Rows) -> Document:
    """Return the document of an event; the type of its job is not known here, so its id has the prefix of builds."""
    row: Any = rows[0]
    return {
        "_id": row.id,
        "jobId": f"{names.GRAPH_BUILD_PREFIX}{row.job_id.hex}",
        "tenantId": row.tenant_id,
        "status": _STATUS[row.status],
        "createdAt": to_bson(row.created_at),
        "payload": _without_residue(row.payload),
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


def _without_residue(text_: bytes) -> Any:  # noqa: ANN401 - any JSON
    payload = jsonb.decode(text_)
    if isinstance(payload, dict):
        payload.pop(REMAINDER_KEY, None)
    return payload


def _text(document: Document, key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise Rejected("missing-field" if value is None else "wrong-type", key, "text")
    return plain(value, key)
