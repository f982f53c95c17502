"""The thirteen records: one frozen struct per table of the schema ``scheduler``, and the place of a remainder in them.

A record is a row: its fields are the table's columns, in the table's order. The annotations carry the column type, so
that a row can be serialized from the declaration alone. Records know neither database.

The remainder is what no column holds of a document: the JSON text that ``values.remainder.difference`` writes. It is
stored in ``extra`` of the document's first row. Graph jobs and their events have no ``extra``: their remainder is
stored under one reserved key inside ``payload``. A source document may have a key named like the reserved one. No
escape is needed: ``encode`` of a profile never writes the reserved key, so the document's own key is in the remainder.
"""

from datetime import datetime, timedelta
from typing import Annotated, ClassVar
from uuid import UUID

import msgspec

from migrator.durations import length_of

__all__ = [
    "ALL",
    "AuditEntry",
    "ExecutionLog",
    "GraphJob",
    "GraphJobEvent",
    "Handler",
    "ImpactSnapshot",
    "Lock",
    "PolicyJob",
    "Record",
    "Run",
    "RunSummary",
    "Schedule",
    "Trigger",
    "WorkerRecord",
    "columns_of",
]

Small = Annotated[int, "int2"]
Int = Annotated[int, "int4"]
Big = Annotated[int, "int8"]
Text = Annotated[str, "text"]
TextList = Annotated[tuple[str, ...], "text[]"]
Flag = Annotated[bool, "bool"]
Time = Annotated[datetime, "timestamptz"]
"""An instant: aware, UTC, microseconds."""
Uuid = Annotated[UUID, "uuid"]
Double = Annotated[float, "float8"]
Bytes = Annotated[bytes, "bytea"]
Jsonb = Annotated[bytes, "jsonb"]
"""JSON text in UTF-8 as ``values.jsonb.encode`` writes it (keys sorted, no white space)."""

EMPTY: bytes = b"{}"
"""The remainder of a clean document."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ``table`` in the schema ``scheduler``, or of a native target: then ``table`` is ``target/table``."""

    table: ClassVar[str]
    kept_by_the_store: ClassVar[tuple[str, ...]] = ()
    """Columns of the table that follow from another row, the schedule: the store writes them, no record has them."""


class SourcedRecord(Record, frozen=True, kw_only=True):
    """A row that says where it came from; ``source`` and ``source_id`` are null for rows created here."""

    id: Uuid
    tenant_id: Text
    source: Text | None = None
    source_id: Text | None = None


class Handler(SourcedRecord, frozen=True, kw_only=True):
    """A handler by name; its body is the application's."""

    table: ClassVar[str] = "handlers"

    name: Text
    """Unique per tenant."""
    handler_path: Text | None = None
    handler_type: Text
    queue: Text | None = None
    default_timeout_ms: Big | None = None
    is_active: Flag = True
    is_system: Flag = False
    """Its deletion is refused."""
    idempotent: Flag = False
    """A second run of one slot does no harm."""
    extra: Jsonb = EMPTY

    @property
    def default_timeout(self) -> timedelta | None:
        """Return ``default_timeout_ms`` as a length of time."""
        return length_of(self.default_timeout_ms)


class Schedule(SourcedRecord, frozen=True, kw_only=True):
    """A schedule: what runs, how it is retried, who made it.

    Columns that a source may leave out are null rather than a default, so that absent and stated stay two things.
    """

    table: ClassVar[str] = "schedules"

    name: Text
    """Unique among a tenant's rows created here and not deleted; source data may repeat it."""
    description: Text | None = None
    enabled: Flag = True
    status: Text
    """A member of ``states.SCHEDULE``."""
    mode: Text | None = None
    selection: Jsonb | None = None
    only_if: Jsonb | None = None
    notify: Jsonb | None = None
    limits: Jsonb | None = None
    subscribers: TextList | None = None
    handler_name: Text | None = None
    handler_type: Text | None = None
    queue: Text | None = None
    payload: Jsonb | None = None
    priority: Small | None = None
    """0 to 100, higher first; null counts as 50."""
    max_retries: Int | None = None
    """Retries after the first attempt; null is none."""
    retry_delay_ms: Big | None = None
    retry_strategy: Text | None = None
    retry_cap_ms: Big | None = None
    """Longest delay of an exponential series; null where the source names none. Rows created here get 3 600 000."""
    retry_count: Int | None = None
    on_exhausted: Text | None = None
    timeout_ms: Big | None = None
    max_concurrency: Int | None = None
    """Runs at the same time; null means that they may overlap without limit."""
    tags: TextList | None = None
    metadata: Jsonb | None = None
    schema_version: Text | None = None
    created_at: Time | None = None
    created_by: Text | None = None
    updated_at: Time | None = None
    updated_by: Text | None = None
    paused_at: Time | None = None
    cancelled_at: Time | None = None
    completed_at: Time | None = None
    deleted_at: Time | None = None
    """Set: softly deleted; lists, gets and due queries leave it out."""
    deleted_by: Text | None = None
    extra: Jsonb = EMPTY

    @property
    def retry_delay(self) -> timedelta | None:
        """Return ``retry_delay_ms`` as a length of time."""
        return length_of(self.retry_delay_ms)

    @property
    def retry_cap(self) -> timedelta | None:
        """Return ``retry_cap_ms`` as a length of time."""
        return length_of(self.retry_cap_ms)

    @property
    def timeout(self) -> timedelta | None:
        """Return ``timeout_ms`` as a length of time."""
        return length_of(self.timeout_ms)


class Trigger(SourcedRecord, frozen=True, kw_only=True):
    """One cause that makes a schedule fire; exactly the columns of its ``kind`` are set (a CHECK says so).

    cron: ``cron_expression`` and ``cron_dialect`` · interval: ``interval_ms`` and ``anchor`` · one_time: ``run_at`` ·
    event: ``event_name``, and never ``timezone`` or ``next_fire_at``.
    """

    table: ClassVar[str] = "triggers"
    kept_by_the_store: ClassVar[tuple[str, ...]] = ("priority",)

    schedule_id: Uuid
    kind: Text
    cron_expression: Text | None = None
    cron_dialect: Text | None = None
    timezone: Text | None = None
    """IANA name; null where the source names none."""
    interval_ms: Big | None = None
    anchor: Text | None = None
    """``completion`` (counted from the end of the last run) or ``fixed_rate``."""
    run_at: Time | None = None
    event_name: Text | None = None
    start_at: Time | None = None
    end_at: Time | None = None
    max_fires: Big | None = None
    fire_count: Big = 0
    skip_if_overdue: Flag = False
    misfire_policy: Text | None = None
    misfire_grace_ms: Big | None = None
    enabled: Flag = True
    next_fire_at: Time | None = None
    last_fire_at: Time | None = None
    derived: Flag = False
    """Made in a closing pass from many documents; not encoded back."""
    source_spec: Jsonb | None = None
    """The original expression verbatim."""
    extra: Jsonb = EMPTY

    @property
    def interval(self) -> timedelta | None:
        """Return ``interval_ms`` as a length of time."""
        return length_of(self.interval_ms)

    @property
    def misfire_grace(self) -> timedelta | None:
        """Return ``misfire_grace_ms`` as a length of time."""
        return length_of(self.misfire_grace_ms)


class Run(SourcedRecord, frozen=True, kw_only=True):
    """An execution, from planning to its terminal state; a retry is a row of its own with ``retry_of``.

    A row that names a trigger and a slot must also number its ``attempt`` (a CHECK says so): that no execution is
    doubled rests on the three together.
    """

    table: ClassVar[str] = "runs"
    kept_by_the_store: ClassVar[tuple[str, ...]] = ("priority", "global_schedule")

    schedule_id: Uuid | None = None
    trigger_id: Uuid | None = None
    run_number: Int | None = None
    attempt: Int | None = None
    """1 for the first; null only where trigger or slot is null."""
    retry_of: Uuid | None = None
    """The run that this one repeats; filled in a closing pass."""
    cause: Text | None = None
    """Why it ran: open text with a known list (``states.RUN_CAUSES``)."""
    state: Text
    """A member of ``states.RUN``."""
    scheduled_at: Time | None = None
    """The slot."""
    available_at: Time | None = None
    """Not before; carries the delay of a retry."""
    created_at: Time
    started_at: Time | None = None
    finished_at: Time | None = None
    duration_ms: Big | None = None
    """Finished less started, never negative; null where the source's dates contradict each other."""
    worker_id: Text | None = None
    fence: Big | None = None
    lease_expires_at: Time | None = None
    external_task_id: Text | None = None
    stats: Jsonb | None = None
    reason: Jsonb | None = None
    deltas: Jsonb | None = None
    result: Jsonb | None = None
    error: Text | None = None
    error_detail: Text | None = None
    trace_id: Text | None = None
    span_id: Text | None = None
    parent_span_id: Text | None = None
    triggered_by: Text | None = None
    dedupe_key: Text | None = None
    """Unique per trigger: a second delivery of one event makes no second run."""
    metadata: Jsonb | None = None
    schema_version: Text | None = None
    updated_at: Time | None = None
    extra: Jsonb = EMPTY

    @property
    def duration(self) -> timedelta | None:
        """Return ``duration_ms`` as a length of time."""
        return length_of(self.duration_ms)


class ExecutionLog(SourcedRecord, frozen=True, kw_only=True):
    """A log line; kept with a null ``run_id`` when its run is gone."""

    table: ClassVar[str] = "execution_logs"

    run_id: Uuid | None = None
    schedule_id: Uuid | None = None
    """No foreign key: the line outlives the schedule."""
    logged_at: Time
    level: Text
    """A member of ``states.LOG_LEVELS``."""
    message: Text | None = None
    context: Jsonb | None = None
    extra: Jsonb = EMPTY


class ImpactSnapshot(SourcedRecord, frozen=True, kw_only=True):
    """A selector and the images it matched; up to 16 MB a row."""

    table: ClassVar[str] = "impact_snapshots"

    run_id: Uuid | None = None
    snapshot_id: Text | None = None
    selector: Jsonb | None = None
    images: Jsonb | None = None
    usage_only: Flag | None = None
    total: Big | None = None
    generated_at: Time | None = None
    schema_version: Text | None = None
    extra: Jsonb = EMPTY


class GraphJob(Record, frozen=True, kw_only=True):
    """A build or overlay job; its document is ``payload``, its remainder is under one reserved key inside it."""

    table: ClassVar[str] = "graph_jobs"

    id: Uuid
    tenant_id: Text
    type: Small
    """0 build, 1 overlay (``states.GRAPH_JOB_TYPES``)."""
    status: Small
    """A code of ``states.GRAPH_JOB_CODES``."""
    payload: Jsonb
    created_at: Time
    updated_at: Time
    """Migrated: completedAt, else startedAt, else createdAt."""
    correlation_id: Text | None = None


class GraphJobEvent(Record, frozen=True, kw_only=True):
    """A status change of a graph job, written in the transaction of that change."""

    table: ClassVar[str] = "graph_job_events"

    id: Big
    """Migrated rows: 2^62 + 62 bits of SHA-256 (``values.identity.event_id``); new rows: the sequence."""
    job_id: Uuid
    tenant_id: Text
    status: Small
    """A code of ``states.GRAPH_JOB_CODES``."""
    payload: Jsonb
    created_at: Time


class PolicyJob(SourcedRecord, frozen=True, kw_only=True):
    """A policy run; the status document and the work item of one run are two rows, told apart by ``source``."""

    table: ClassVar[str] = "policy_jobs"

    policy_id: Text
    policy_version: Int | None = None
    mode: Text | None = None
    priority: Text | None = None
    status: Text
    """A member of ``states.POLICY_JOB``."""
    run_id: Text | None = None
    """The source's own name of the run (text, no reference); unique per tenant and source."""
    inputs: Jsonb | None = None
    stats: Jsonb | None = None
    metadata: Jsonb | None = None
    requested_by: Text | None = None
    correlation_id: Text | None = None
    attempt_count: Int | None = None
    last_attempt_at: Time | None = None
    last_error: Text | None = None
    available_at: Time | None = None
    priority_rank: Int | None = None
    lease_owner: Text | None = None
    lease_expires_at: Time | None = None
    queued_at: Time | None = None
    started_at: Time | None = None
    submitted_at: Time | None = None
    finished_at: Time | None = None
    """Also the work item's completedAt."""
    cancelled_at: Time | None = None
    cancellation_requested: Flag | None = None
    cancellation_requested_at: Time | None = None
    cancellation_reason: Text | None = None
    schema_version: Text | None = None
    created_at: Time | None = None
    updated_at: Time | None = None
    extra: Jsonb = EMPTY


class RunSummary(SourcedRecord, frozen=True, kw_only=True):
    """Counters and the latest runs of one schedule; always recomputable from ``runs``."""

    table: ClassVar[str] = "run_summaries"

    schedule_id: Uuid | None = None
    """One row per tenant and schedule. No foreign key; null for a migrated summary whose schedule is not stored."""
    updated_at: Time | None = None
    last_run: Jsonb | None = None
    recent: Jsonb | None = None
    """Bounded, newest first."""
    counters: Jsonb | None = None
    extra: Jsonb = EMPTY


class WorkerRecord(SourcedRecord, frozen=True, kw_only=True):
    """A worker or scheduler process, under the tenant ``*``; who leads is derived from ``locks``."""

    table: ClassVar[str] = "workers"

    kind: Text
    hostname: Text | None = None
    pid: Int | None = None
    version: Text | None = None
    queues: TextList | None = None
    capacity: Int | None = None
    status: Text
    """A member of ``states.WORKER_STATUSES``."""
    registered_at: Time | None = None
    last_heartbeat_at: Time | None = None
    metadata: Jsonb | None = None
    extra: Jsonb = EMPTY


class Lock(SourcedRecord, frozen=True, kw_only=True):
    """A lease; the row outlives the lock, so that ``fence`` keeps rising."""

    table: ClassVar[str] = "locks"

    key: Text
    """``<tenant>/<resource>``, the tenant ``*`` for global ones; unique."""
    lock_id: Big
    """``values.identity.lock_id(key)``: the key of the advisory lock, the same in every process."""
    owner: Uuid | None = None
    """One per acquire; null when free, and for migrated locks, whose owner text is ``holder``."""
    holder: Text | None = None
    fence: Big = 0
    acquired_at: Time | None = None
    expires_at: Time | None = None
    """Null: without expiry, thus live."""
    metadata: Jsonb | None = None
    extra: Jsonb = EMPTY


class AuditEntry(SourcedRecord, frozen=True, kw_only=True):
    """An entry of the audit trail: append only, without foreign keys, since it outlives what it tells of."""

    table: ClassVar[str] = "audit"

    category: Text
    action: Text
    occurred_at: Time
    actor: Jsonb | None = None
    entity_id: Text | None = None
    """The source's text, whatever kind of thing it names."""
    schedule_id: Uuid | None = None
    run_id: Uuid | None = None
    correlation_id: Text | None = None
    message: Text | None = None
    metadata: Jsonb | None = None
    extra: Jsonb = EMPTY


ALL: tuple[type[Record], ...] = (
    Handler,
    Schedule,
    Trigger,
    Run,
    ExecutionLog,
    ImpactSnapshot,
    GraphJob,
    GraphJobEvent,
    PolicyJob,
    RunSummary,
    WorkerRecord,
    Lock,
    AuditEntry,
)
"""Every record, parents before the rows that refer to them."""


REMAINDER_KEY = "$remainder"
"""The top-level key of a payload that holds its remainder; a profile's ``encode`` must leave it out of the document."""


def columns_of(record: type[Record]) -> tuple[str, ...]:
    """Return the columns of the record's table that are written: all but those that the server computes."""
    return record.__struct_fields__ + record.kept_by_the_store


class _Reserved(msgspec.Struct):
    """Only the remainder of a payload; everything else is passed over."""

    remainder: msgspec.Raw = msgspec.field(name=REMAINDER_KEY, default_factory=msgspec.Raw)


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RESERVED = msgspec.json.Decoder(_Reserved)
_SORTED = msgspec.json.Encoder(order="deterministic")


def attach_extra(rows: tuple[Record, ...], remainder: bytes) -> tuple[Record, ...]:
    """Return the rows with ``remainder`` in ``extra`` of the first one."""
    return (msgspec.structs.replace(rows[0], extra=remainder), *rows[1:])


def remainder_of(rows: tuple[Record, ...]) -> bytes:
    """Return the remainder in ``extra`` of the first row."""
    remainder: bytes = rows[0].extra  # type: ignore[attr-defined] # only records that have it come here
    return remainder


def attach_payload(rows: tuple[Record, ...], remainder: bytes) -> tuple[Record, ...]:
    """Return the rows with ``remainder`` under the reserved key of the first one's ``payload``.

    An empty remainder removes the key. The other members keep their text byte for byte, so that a
    payload compares equal however its remainder got there.
    """
    payload: bytes = rows[0].payload  # type: ignore[attr-defined] # only records that have it come here
    members = _MEMBERS.decode(payload)
    members.pop(REMAINDER_KEY, None)
    if remainder != EMPTY:
        members[REMAINDER_KEY] = msgspec.Raw(remainder)
    return (msgspec.structs.replace(rows[0], payload=_SORTED.encode(members)), *rows[1:])


def remainder_of_payload(rows: tuple[Record, ...]) -> bytes:
    """Return the remainder under the reserved key of the first row's ``payload``, or that of a clean document."""
    payload: bytes = rows[0].payload  # type: ignore[attr-defined] # only records that have it come here
    return bytes(_RESERVED.decode(payload).remainder) or EMPTY
