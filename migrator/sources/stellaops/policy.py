"""``policy_runs`` (status documents, in two spellings) and ``policy_jobs`` (work items): two sources of one table.

Both stay rows of their own. ``policy_runs`` is the first named of the two, so its ids keep their UUIDs; of work items
only those that our own store makes do, whose ids have a prefix that the source does not use. Of a status document
determinismHash, errorCode, traceId and explainUri have no column.

The snake_case documents of ``policy_runs`` are an older writer's spelling of the same thing. Their row is that of any
policy run, its jsonb in camelCase; a schema version of our own says which spelling the document had, so that a clean
one leaves no remainder.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from migrator.records import PolicyJob, attach_extra, remainder_of
from migrator.sources import aggregates, tenants
from migrator.sources.profile import Collection, Context, Decoded, Document, Note, Rows
from migrator.sources.shapes import (
    Int32,
    Moment,
    Shape,
    arranger,
    choice,
    filled,
    indexed,
    keys,
    known_paths,
    ordered_reader,
    plain,
    read,
    text,
)
from migrator.sources.stellaops import ids, names
from migrator.sources.stellaops.columns import OwnFields
from migrator.values import identity, jsonb
from migrator.values.times import format_iso


class Inputs(Shape):
    """What a policy run works on; values of the environment may be any JSON."""

    sbom_set: list[str] | None = None
    advisory_cursor: Moment = None
    vex_cursor: Moment = None
    environment: dict[str, Any] | None = None
    capture_explain: bool | None = None


class Stats(Shape):
    """Counters of a policy run."""

    components: int | None = None
    rules_fired: int | None = None
    findings_written: int | None = None
    vex_overrides: int | None = None
    quieted: int | None = None
    duration_seconds: float | None = None


class StatusDocument(Shape, kw_only=True):
    """A document of ``policy_runs`` in camelCase."""

    key: Any = msgspec.field(name="_id")
    schema_version: str | None = None
    run_id: str | None = None
    tenant_id: str | None = None
    policy_id: str
    policy_version: Int32 | None = None
    mode: str | None = None
    status: str
    priority: str | None = None
    queued_at: Moment = None
    started_at: Moment = None
    finished_at: Moment = None
    error: str | None = None
    attempts: Int32 | None = None
    requested_by: str | None = None
    correlation_id: str | None = None
    metadata: dict[str, str] | None = None
    stats: Stats | None = None
    inputs: Inputs | None = None
    cancellation_requested: bool | None = None
    cancellation_requested_at: Moment = None
    cancellation_reason: str | None = None


class JobDocument(Shape, kw_only=True):
    """A document of ``policy_jobs``."""

    key: Any = msgspec.field(name="_id")
    schema_version: str | None = None
    id: Any = None
    tenant_id: str | None = None
    policy_id: str
    policy_version: Int32 | None = None
    mode: str | None = None
    priority: str | None = None
    priority_rank: Int32 | None = None
    run_id: str | None = None
    requested_by: str | None = None
    correlation_id: str | None = None
    metadata: dict[str, str] | None = None
    inputs: Inputs | None = None
    queued_at: Moment = None
    status: str
    attempt_count: Int32 | None = None
    last_attempt_at: Moment = None
    last_error: str | None = None
    created_at: Moment = None
    updated_at: Moment = None
    available_at: Moment = None
    submitted_at: Moment = None
    completed_at: Moment = None
    lease_owner: str | None = None
    lease_expires_at: Moment = None
    cancellation_requested: bool | None = None
    cancellation_requested_at: Moment = None
    cancellation_reason: str | None = None
    cancelled_at: Moment = None


class SnakeInputs(Shape, rename=None):
    """Inputs of the snake_case document."""

    sbom_set: list[str] | None = None
    advisory_cursor: Moment = None
    vex_cursor: Moment = None
    env: dict[str, Any] | None = None


class SnakeStats(Shape, rename=None):
    """Counters of the snake_case document."""

    components: int | None = None
    rules_fired: int | None = None
    findings_written: int | None = None
    vex_overrides: int | None = None
    quieted: int | None = None
    duration_seconds: float | None = None


class SnakeDocument(Shape, rename=None, kw_only=True):
    """A document of ``policy_runs`` in snake_case; its tenant is spelled in three ways, and documented in none."""

    aliases: ClassVar = frozenset({"tenant_id", "tenantId"})

    key: Any = msgspec.field(name="_id")
    tenant: str | None = None
    tenant_id: str | None = None
    tenant_id_camel: str | None = msgspec.field(name="tenantId", default=None)
    policy_id: str
    policy_version: Int32 | None = None
    mode: str | None = None
    status: str
    inputs: SnakeInputs | None = None
    stats: SnakeStats | None = None


_TO_CAMEL = {
    "sbom_set": "sbomSet",
    "advisory_cursor": "advisoryCursor",
    "vex_cursor": "vexCursor",
    "env": "environment",
    "rules_fired": "rulesFired",
    "findings_written": "findingsWritten",
    "vex_overrides": "vexOverrides",
    "duration_seconds": "durationSeconds",
}
_TO_SNAKE = {camel: snake for snake, camel in _TO_CAMEL.items()}

_SNAKE_ONLY = frozenset({"policy_id", "policy_version", "tenant", "tenant_id"})

_SNAKE_NAMES = keys(SnakeDocument)
_snake_inputs, _snake_stats = arranger(SnakeInputs), arranger(SnakeStats)


def is_snake(document: Document) -> bool:
    """Tell whether a document of ``policy_runs`` is spelled with underscores."""
    return "policyId" not in document and not _SNAKE_ONLY.isdisjoint(document)


def decode_snake(document: Document, context: Context) -> Decoded:
    """Return the row; the document's ``_id`` is the name of the run."""
    found = read(document, SnakeDocument)
    notes: list[Note] = []
    tenant = tenants.tenant_of(
        tenants.first_said(found.tenant, found.tenant_id, found.tenant_id_camel), context, notes, path="tenant"
    )
    source_id = identity.source_id(found.key)
    status = choice(found.status, names.POLICY_STATUSES, "status")
    if status != found.status:
        notes.append(Note("alias", "status"))
    row = PolicyJob(
        id=identity.row_id("policy_jobs", tenant, names.POLICY_RUNS, source_id),
        tenant_id=tenant,
        source=names.source(names.POLICY_RUNS),
        source_id=source_id,
        policy_id=plain(found.policy_id, "policy_id"),
        policy_version=found.policy_version,
        mode=None if found.mode is None else choice(found.mode, names.POLICY_MODES, "mode"),
        status=status,
        run_id=indexed(found.key, "_id") if type(found.key) is str else None,
        inputs=None if found.inputs is None else jsonb.encode(_renamed(document["inputs"], _TO_CAMEL)),
        stats=None if found.stats is None else jsonb.encode(_renamed(document["stats"], _TO_CAMEL)),
        schema_version=names.POLICY_SNAKE_VERSION,
    )
    return Decoded((row,), tuple(notes))


def _renamed(value: Mapping[str, Any], table: Mapping[str, str]) -> dict[str, Any]:
    """Return the members under their other names; where two would meet, the spelling that is documented wins."""
    renamed = {key: member for key, member in value.items() if key not in table}
    renamed.update((table[key], member) for key, member in value.items() if key in table)
    return renamed


def encode_snake(rows: Rows) -> Document:
    """Return the document of a row."""
    row: Any = rows[0]
    return filled(
        _SNAKE_NAMES,
        (
            identity.parse_source_id(row.source_id),
            row.tenant_id,
            row.policy_id,
            row.policy_version,
            row.mode,
            row.status,
            None if row.inputs is None else _snake_inputs(_renamed(jsonb.decode(row.inputs), _TO_SNAKE)),
            None if row.stats is None else _snake_stats(_renamed(jsonb.decode(row.stats), _TO_SNAKE)),
        ),
    )


RUNS_SOURCE = names.source(names.POLICY_RUNS)
JOBS_SOURCE = names.source(names.POLICY_JOBS)

_STATUS_NAMES, _JOB_NAMES = keys(StatusDocument), keys(JobDocument)
_inputs, _stats = ordered_reader(Inputs), ordered_reader(Stats)

OWN = OwnFields(PolicyJob, ("stats", "started_at"))
"""What our own store adds to a work item, so that one document can hold every column."""


def decode_run(document: Document, context: Context) -> Decoded:
    """Return the row of a status document, of either spelling."""
    if is_snake(document):
        return decode_snake(document, context)
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
        "tenant_id": tenants.tenant_of(found.tenant_id, context, notes),
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
        return encode_snake(rows)
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
    tenant_expression=aggregates.tenant("$tenant", "$tenant_id"),
    measures=(
        aggregates.states("status", "$status", _SPELLINGS),
        aggregates.states("mode", "$mode"),
        aggregates.states("priority", "$priority"),
        aggregates.total("stats.components", "stats"),
        aggregates.total("stats.rulesFired", "stats", field={"$ifNull": ["$stats.rulesFired", "$stats.rules_fired"]}),
        aggregates.total(
            "stats.findingsWritten",
            "stats",
            field={"$ifNull": ["$stats.findingsWritten", "$stats.findings_written"]},
        ),
        aggregates.plain_total("attempts", "attempt_count"),
        aggregates.span("queuedAt", "queued_at"),
        aggregates.span("startedAt", "started_at"),
        aggregates.span("finishedAt", "finished_at"),
    ),
    attach=attach_extra,
    remainder=remainder_of,
    unique=(("tenant_id", "source", "run_id"),),
    known=known_paths(StatusDocument) | known_paths(SnakeDocument),
)

JOBS = Collection(
    name=names.POLICY_JOBS,
    tables=(PolicyJob,),
    decode=decode_job,
    encode=encode_job,
    tenant_expression=aggregates.tenant(),
    measures=(
        aggregates.states("status", "$status", _SPELLINGS),
        aggregates.states("mode", "$mode"),
        aggregates.states("priority", "$priority"),
        aggregates.plain_total("attemptCount", "attempt_count"),
        aggregates.plain_total("priorityRank", "priority_rank"),
        aggregates.span("createdAt", "created_at"),
        aggregates.span("updatedAt", "updated_at"),
        aggregates.span("availableAt", "available_at"),
        aggregates.span("completedAt", "finished_at"),
    ),
    attach=attach_extra,
    remainder=remainder_of,
    unique=(("tenant_id", "source", "run_id"),),
    known=known_paths(JobDocument) | OWN.keys,
)
