"""``policy_runs`` (status documents, in two spellings) and ``policy_jobs`` (work items): two sources of one table.

Both stay rows of their own. ``policy_runs`` is the first named of the two, so its ids keep their UUIDs; of work items
only those that our own store makes do, whose ids have a prefix that the source does not use. Of a status document
determinismHash, errorCode, traceId and explainUri have no column.
"""

from typing import Any

from migrator.records import PolicyJob, attach_extra, remainder_of
from migrator.sources.order import reader
from migrator.sources.profile import Collection, Context, Decoded, Document, Note, Rows
from migrator.sources.shapes import choice, filled, indexed, keys, known_paths, plain, read, text
from migrator.sources.stellaops import ids, measures, names, policy_snake
from migrator.sources.stellaops.columns import OwnFields
from migrator.sources.stellaops.policy_shapes import Inputs, JobDocument, SnakeDocument, Stats, StatusDocument
from migrator.values import identity, jsonb
from migrator.values.times import format_iso

RUNS_SOURCE = names.source(names.POLICY_RUNS)
JOBS_SOURCE = names.source(names.POLICY_JOBS)

_STATUS_NAMES, _JOB_NAMES = keys(StatusDocument), keys(JobDocument)
_inputs, _stats = reader(Inputs), reader(Stats)

OWN = OwnFields(PolicyJob, ("stats", "started_at"))
"""What our own store adds to a work item, so that one document can hold every column."""


def decode_run(document: Document, context: Context) -> Decoded:
    """Return the row of a status document, of either spelling."""
    if policy_snake.is_snake(document):
        return policy_snake.decode(document, context)
    found = read(document, StatusDocument)
    notes: list[Note] = []
    ids.compare_ids(found.key, found.run_id, notes, "runId")
    columns = common(found, document, context, notes, version=names.POLICY_STATUS_VERSION)
    columns |= {
        "id": identity.row_id("policy_jobs", columns["tenant_id"], names.POLICY_RUNS, columns["source_id"]),
        "source": RUNS_SOURCE,
        "stats": None if found.stats is None else jsonb.encode(document["stats"]),
        "last_error": text(found.error, "error"),
        "attempt_count": found.attempts,
        "started_at": found.started_at,
        "finished_at": found.finished_at,
    }
    row = PolicyJob(**columns)
    if row.started_at is not None and row.finished_at is not None and row.finished_at < row.started_at:
        notes.append(Note("finished-before-started", "finishedAt"))
    return Decoded((row,), tuple(notes))


def decode_job(document: Document, context: Context) -> Decoded:
    """Return the row of a work item."""
    found = read(document, JobDocument)
    notes: list[Note] = []
    ids.compare_ids(found.key, found.id, notes)
    columns = common(found, document, context, notes, version=names.POLICY_JOB_VERSION)
    tenant, source_id = columns["tenant_id"], columns["source_id"]
    is_own = source_id.startswith(names.POLICY_ITEM_PREFIX)
    columns |= {
        "id": identity.row_id("policy_jobs", tenant, names.POLICY_JOBS, source_id, keep_uuid=is_own),
        "source": JOBS_SOURCE,
        "attempt_count": found.attempt_count,
        "last_attempt_at": found.last_attempt_at,
        "last_error": text(found.last_error, "lastError"),
        "available_at": found.available_at,
        "priority_rank": found.priority_rank,
        "lease_owner": text(found.lease_owner, "leaseOwner"),
        "lease_expires_at": found.lease_expires_at,
        "submitted_at": found.submitted_at,
        "finished_at": found.completed_at,
        "cancelled_at": found.cancelled_at,
        "created_at": found.created_at,
        "updated_at": found.updated_at,
    }
    if is_own:
        columns |= OWN.decode(document, tenant)
    return Decoded((PolicyJob(**columns),), tuple(notes))


def common(
    found: StatusDocument | JobDocument, document: Document, context: Context, notes: list[Note], *, version: str
) -> dict[str, Any]:
    """Return the columns that status documents and work items share."""
    status = choice(found.status, names.POLICY_STATUSES, "status")
    run_id = text(found.run_id, "runId")
    if status != found.status:
        notes.append(Note("alias", "status"))
    return {
        "tenant_id": ids.tenant_of(found.tenant_id, context, notes),
        "source_id": identity.source_id(found.key),
        "policy_id": plain(found.policy_id, "policyId"),
        "policy_version": found.policy_version,
        "mode": None if found.mode is None else choice(found.mode, names.POLICY_MODES, "mode"),
        "priority": None if found.priority is None else choice(found.priority, names.POLICY_PRIORITIES, "priority"),
        "status": status,
        "run_id": run_id and indexed(run_id, "runId"),
        "inputs": None if found.inputs is None else jsonb.encode(document["inputs"]),
        "metadata": None if found.metadata is None else jsonb.encode(document["metadata"]),
        "requested_by": text(found.requested_by, "requestedBy"),
        "correlation_id": text(found.correlation_id, "correlationId"),
        "queued_at": found.queued_at,
        "cancellation_requested": found.cancellation_requested,
        "cancellation_requested_at": found.cancellation_requested_at,
        "cancellation_reason": text(found.cancellation_reason, "cancellationReason"),
        "schema_version": ids.version_of(found.schema_version, version, notes),
    }


def _time(value: Any) -> str | None:  # noqa: ANN401 - a column of a row
    return None if value is None else format_iso(value)


def encode_run(rows: Rows) -> Document:
    """Return the status document of a row, in the spelling it had."""
    row: Any = rows[0]
    if row.schema_version == names.POLICY_SNAKE_VERSION:
        return policy_snake.encode(rows)
    return filled(
        _STATUS_NAMES,
        (
            identity.parse_source_id(row.source_id),
            row.schema_version,
            row.run_id,
            row.tenant_id,
            row.policy_id,
            row.policy_version,
            row.mode,
            row.status,
            row.priority,
            _time(row.queued_at),
            _time(row.started_at),
            _time(row.finished_at),
            row.last_error,
            row.attempt_count,
            row.requested_by,
            row.correlation_id,
            None if row.metadata is None else jsonb.decode(row.metadata),
            None if row.stats is None else _stats(row.stats),
            None if row.inputs is None else _inputs(row.inputs),
            row.cancellation_requested,
            _time(row.cancellation_requested_at),
            row.cancellation_reason,
        ),
    )


def encode_job(rows: Rows) -> Document:
    """Return the work item of a row."""
    row: Any = rows[0]
    key, own_id = ids.keys_of(row.source_id)
    document = filled(
        _JOB_NAMES,
        (
            key,
            row.schema_version,
            own_id,
            row.tenant_id,
            row.policy_id,
            row.policy_version,
            row.mode,
            row.priority,
            row.priority_rank,
            row.run_id,
            row.requested_by,
            row.correlation_id,
            None if row.metadata is None else jsonb.decode(row.metadata),
            None if row.inputs is None else _inputs(row.inputs),
            _time(row.queued_at),
            row.status,
            row.attempt_count,
            _time(row.last_attempt_at),
            row.last_error,
            _time(row.created_at),
            _time(row.updated_at),
            _time(row.available_at),
            _time(row.submitted_at),
            _time(row.finished_at),
            row.lease_owner,
            _time(row.lease_expires_at),
            row.cancellation_requested,
            _time(row.cancellation_requested_at),
            row.cancellation_reason,
            _time(row.cancelled_at),
        ),
    )
    if row.source_id.startswith(names.POLICY_ITEM_PREFIX):
        document.update(OWN.encode(row))
    return document


_SPELLINGS = {"cancelled": "canceled"}

RUNS = Collection(
    name=names.POLICY_RUNS,
    tables=(PolicyJob,),
    decode=decode_run,
    encode=encode_run,
    tenant_expression=measures.tenant("$tenant", "$tenant_id"),
    measures=(
        measures.states("status", "$status", _SPELLINGS),
        measures.states("mode", "$mode"),
        measures.states("priority", "$priority"),
        measures.total("stats.components", "stats"),
        measures.total("stats.rulesFired", "stats", field={"$ifNull": ["$stats.rulesFired", "$stats.rules_fired"]}),
        measures.total(
            "stats.findingsWritten",
            "stats",
            field={"$ifNull": ["$stats.findingsWritten", "$stats.findings_written"]},
        ),
        measures.plain_total("attempts", "attempt_count"),
        measures.span("queuedAt", "queued_at"),
        measures.span("startedAt", "started_at"),
        measures.span("finishedAt", "finished_at"),
    ),
    attach=attach_extra,
    residue=remainder_of,
    unique=(("tenant_id", "source", "run_id"),),
    known=known_paths(StatusDocument) | known_paths(SnakeDocument),
)

JOBS = Collection(
    name=names.POLICY_JOBS,
    tables=(PolicyJob,),
    decode=decode_job,
    encode=encode_job,
    tenant_expression=measures.tenant(),
    measures=(
        measures.states("status", "$status", _SPELLINGS),
        measures.states("mode", "$mode"),
        measures.states("priority", "$priority"),
        measures.plain_total("attemptCount", "attempt_count"),
        measures.plain_total("priorityRank", "priority_rank"),
        measures.span("createdAt", "created_at"),
        measures.span("updatedAt", "updated_at"),
        measures.span("availableAt", "available_at"),
        measures.span("completedAt", "finished_at"),
    ),
    attach=attach_extra,
    residue=remainder_of,
    unique=(("tenant_id", "source", "run_id"),),
    known=known_paths(JobDocument) | OWN.keys,
)
