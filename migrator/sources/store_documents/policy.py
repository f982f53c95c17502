"""``policy_runs`` (status documents, in two spellings) and ``policy_jobs`` (work items): two sources of one table.

Both stay rows of their own. ``policy_runs`` is the first named of the two, so its ids keep their UUIDs; of work items
only those that our own store makes do, whose ids have a prefix that the source does not use. Of a status document
determinismHash, errorCode, traceId and explainUri have no column.

The snake_case documents of ``policy_runs`` are an older writer's spelling of the same thing. Their row is that of any
policy run, its jsonb in camelCase; a schema version of our own says which spelling the document had, so that a clean
one leaves no remainder.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from migrator.records import PolicyJob
from migrator.sources import aggregates
from migrator.sources.mapping.language import Field, Mapped, Reading, When
from migrator.sources.profile import Context, Document, Note, Rows
from migrator.sources.shapes import Int32, Moment, Shape, arranger, indexed
from migrator.sources.store_documents import names
from migrator.sources.store_documents.fields import ID, TENANT, field, json, own, text, time, version
from migrator.values import jsonb


class Inputs(Shape):
    """What a policy run works on; values of the environment may be any JSON."""

    sbom_set: list[str] | None = None
    advisory_cursor: Moment = None
    vex_cursor: Moment = None
    environment: dict[str, Any] | None = None
    capture_explain: bool | None = None


class PolicyStats(Shape):
    """Counters of a policy run."""

    components: int | None = None
    rules_fired: int | None = None
    findings_written: int | None = None
    vex_overrides: int | None = None
    quieted: int | None = None
    duration_seconds: float | None = None


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


_TO_CAMEL: Final = {
    "sbom_set": "sbomSet",
    "advisory_cursor": "advisoryCursor",
    "vex_cursor": "vexCursor",
    "env": "environment",
    "rules_fired": "rulesFired",
    "findings_written": "findingsWritten",
    "vex_overrides": "vexOverrides",
    "duration_seconds": "durationSeconds",
}
_TO_SNAKE: Final = {camel: snake for snake, camel in _TO_CAMEL.items()}
_SNAKE_ONLY: Final = frozenset({"policy_id", "policy_version", "tenant", "tenant_id"})


_arrange_inputs, _arrange_stats = arranger(SnakeInputs), arranger(SnakeStats)


def _is_snake(document: Document) -> bool:
    """Whether a document of ``policy_runs`` is spelled with underscores."""
    return "policyId" not in document and not _SNAKE_ONLY.isdisjoint(document)


def _derive_snake(document: Document, reading: Reading, _context: Context) -> None:
    """Fill the name of the run, which is the document's ``_id``, and what is respelled."""
    key = document["_id"]
    columns = reading.columns[PolicyJob.table]
    if type(key) is str:
        columns["run_id"] = indexed(key, "_id")
    for name in ("inputs", "stats"):
        if document.get(name) is not None:
            columns[name] = jsonb.encode(_renamed(document[name], _TO_CAMEL))


def _renamed(value: Mapping[str, Any], table: Mapping[str, str]) -> dict[str, Any]:
    """Return the members under their other names; where two would meet, the spelling that is documented wins."""
    renamed = {key: member for key, member in value.items() if key not in table}
    renamed.update((table[key], member) for key, member in value.items() if key in table)
    return renamed


def _snake(column: str, arrange: Callable[[Any], Any], rows: Rows) -> Any:  # noqa: ANN401 - a document, or none
    held = getattr(rows[0], column)
    return None if held is None else arrange(_renamed(jsonb.decode(held), _TO_SNAKE))


def _derive_run(document: Document, reading: Reading, _context: Context) -> None:
    run_id, columns = document.get("runId"), reading.columns[PolicyJob.table]
    if run_id is not None and run_id != document["_id"]:
        reading.notes.append(Note("id-mismatch", "runId"))
    started, finished = columns.get("started_at"), columns.get("finished_at")
    if started is not None and finished is not None and finished < started:
        reading.notes.append(Note("finished-before-started", "finishedAt"))


_STATUS: Final = field("policy_jobs.status", "words", words=names.POLICY_STATUSES, required=True)
_MODE: Final = field("policy_jobs.mode", "words", words=names.POLICY_MODES)
_PRIORITY: Final = field("policy_jobs.priority", "words", words=names.POLICY_PRIORITIES)
_POLICY_ID: Final = field("policy_jobs.policyId", "text", required=True)
_POLICY_VERSION: Final = field("policy_jobs.policyVersion", "number", shape=Int32)
_RUN_ID: Final = text("policy_jobs.runId")
_REQUESTED_BY: Final = text("policy_jobs.requestedBy")
_CORRELATION_ID: Final = text("policy_jobs.correlationId")
_METADATA: Final = json("policy_jobs.metadata", dict[str, str])
_INPUTS: Final = json("policy_jobs.inputs", Inputs)
_QUEUED_AT: Final = time("policy_jobs.queuedAt")
_CANCELLATION: Final = (
    field("policy_jobs.cancellationRequested", "flag"),
    time("policy_jobs.cancellationRequestedAt"),
    text("policy_jobs.cancellationReason"),
)

_STATUS_DOCUMENT: Final = Mapped(
    name=names.POLICY_RUNS,
    applies=lambda document: not _is_snake(document),
    tables=("policy_jobs",),
    fields=(
        version("policy_jobs", names.POLICY_STATUS_VERSION),
        _RUN_ID,
        TENANT,
        _POLICY_ID,
        _POLICY_VERSION,
        _MODE,
        _STATUS,
        _PRIORITY,
        _QUEUED_AT,
        time("policy_jobs.startedAt"),
        time("policy_jobs.finishedAt"),
        text("policy_jobs.last_error", "error"),
        field("policy_jobs.attempt_count", "number", "attempts", shape=Int32),
        _REQUESTED_BY,
        _CORRELATION_ID,
        _METADATA,
        json("policy_jobs.stats", PolicyStats),
        _INPUTS,
        *_CANCELLATION,
    ),
    derive=_derive_run,
)

_SNAKE_DOCUMENT: Final = Mapped(
    name=names.POLICY_RUNS,
    tables=("policy_jobs",),
    fields=(
        # The tenant is spelled in three ways, and documented in none.
        Field(path="tenant", converter="tenant", also=("tenant_id", "tenantId"), finding=""),
        field("policy_jobs.policy_id", "text", "policy_id", required=True),
        field("policy_jobs.policy_version", "number", "policy_version", shape=Int32),
        _MODE,
        _STATUS,
        Field(
            path="inputs", converter="json", shape=SnakeInputs, write=partial(_snake, "inputs", arranger(SnakeInputs))
        ),
        Field(path="stats", converter="json", shape=SnakeStats, write=partial(_snake, "stats", arranger(SnakeStats))),
    ),
    constants={"policy_jobs.schema_version": names.POLICY_SNAKE_VERSION},
    derive=_derive_snake,
)

_WORK_ITEM: Final = Mapped(
    name=names.POLICY_JOBS,
    tables=("policy_jobs",),
    fields=(
        version("policy_jobs", names.POLICY_JOB_VERSION),
        ID,
        TENANT,
        _POLICY_ID,
        _POLICY_VERSION,
        _MODE,
        _PRIORITY,
        field("policy_jobs.priorityRank", "number", shape=Int32),
        _RUN_ID,
        _REQUESTED_BY,
        _CORRELATION_ID,
        _METADATA,
        _INPUTS,
        _QUEUED_AT,
        _STATUS,
        field("policy_jobs.attemptCount", "number", shape=Int32),
        time("policy_jobs.lastAttemptAt"),
        text("policy_jobs.lastError"),
        time("policy_jobs.createdAt"),
        time("policy_jobs.updatedAt"),
        time("policy_jobs.availableAt"),
        time("policy_jobs.submittedAt"),
        time("policy_jobs.finished_at", "completedAt"),
        text("policy_jobs.leaseOwner"),
        time("policy_jobs.leaseExpiresAt"),
        *_CANCELLATION,
        time("policy_jobs.cancelledAt"),
    ),
    keeps_uuids=False,
)
_OWN_WORK_ITEM: Final = msgspec.structs.replace(
    _WORK_ITEM,
    when=When(path="_id", begins=names.POLICY_ITEM_PREFIX),
    rare_fields=own("policy_jobs", ("stats", "startedAt")),
    keeps_uuids=True,
)

_STATES: Final = (
    aggregates.states("status", "$status", {"cancelled": "canceled"}),
    aggregates.states("mode", "$mode"),
    aggregates.states("priority", "$priority"),
)

POLICY_RUNS = Mapped(
    name=names.POLICY_RUNS,
    kinds={"camelCase": _STATUS_DOCUMENT, "snake_case": _SNAKE_DOCUMENT},
    measures=(
        *_STATES,
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
)

POLICY_JOBS = Mapped(
    name=names.POLICY_JOBS,
    kinds={"own": _OWN_WORK_ITEM, "source": _WORK_ITEM},
    measures=(
        *_STATES,
        aggregates.plain_total("attemptCount", "attempt_count"),
        aggregates.plain_total("priorityRank", "priority_rank"),
        aggregates.span("createdAt", "created_at"),
        aggregates.span("updatedAt", "updated_at"),
        aggregates.span("availableAt", "available_at"),
        aggregates.span("completedAt", "finished_at"),
    ),
)
