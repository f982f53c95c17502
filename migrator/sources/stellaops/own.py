"""``triggers``, ``workers``, ``execution_logs`` and ``handlers``: collections that only our own store writes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from migrator import states
from migrator.records import (
    ExecutionLog,
    Handler,
    Run,
    Schedule,
    SourcedRecord,
    Trigger,
    WorkerRecord,
    attach_extra,
    remainder_of,
)
from migrator.sources import aggregates, tenants
from migrator.sources.profile import (
    Collection,
    Context,
    Decoded,
    Document,
    Note,
    Rejected,
    Rows,
    Skipped,
)
from migrator.sources.shapes import required
from migrator.sources.stellaops import cron, ids, names
from migrator.sources.stellaops.columns import OwnFields
from migrator.sources.stellaops.ids import by_field
from migrator.values import identity

_Check = Callable[[dict[str, Any]], None]

COPY_OF: Final = "copyOf"
"""The field that marks a trigger which our store keeps for the rule of a schedule document: ``schedules``."""
FIRING: Final = "firing"
"""The field in which a process that fires a trigger says so (``by``, ``until``), for a few seconds."""
SCHEDULE_PRIORITY: Final = "schedulePriority"
"""The field in which our store keeps the schedule's priority with triggers and runs: it follows from the schedule."""
_BOUNDS: Final = ("startAt", "endAt", "maxFires")
COPIED_RULE: Final = "copy of a schedule's rule"
"""Why such a document is skipped."""


def _words(members: tuple[str, ...]) -> Mapping[str, str]:
    return MappingProxyType({word: word for word in members})


class OwnCollection:
    """Decodes and encodes the documents of one collection in our own shape.

    ``_id`` and ``tenantId`` come first, then the columns. What a column holds by default is left out of the document.
    """

    def __init__(
        self,
        name: str,
        record: type[SourcedRecord],
        fields: OwnFields,
        *,
        needed: tuple[str, ...],
        defaults: Mapping[str, Any] | None = None,
        check: _Check | None = None,
    ) -> None:
        """``needed`` are field names without which there is no row; ``defaults`` are field values that go unsaid."""
        self.name = name
        self._record, self._fields = record, fields
        self._needed, self._defaults, self._check = needed, defaults or {}, check

    def decode(self, document: Document, context: Context) -> Decoded:
        """Return the row of a document."""
        if "_id" not in document:
            raise Rejected("missing-field", "_id", "a value")
        notes: list[Note] = []
        tenant = document.get("tenantId")
        if tenant is not None and type(tenant) is not str:
            raise Rejected("wrong-type", "tenantId", "string")
        tenant = tenants.tenant_of(tenant, context, notes)
        for key in self._needed:
            required(document.get(key), key)
        columns = self._fields.decode(document, tenant)
        if self._check is not None:
            self._check(columns)
        source_id = identity.source_id(document["_id"])
        row = self._record(
            id=identity.row_id(self._record.table, tenant, self.name, source_id),
            tenant_id=tenant,
            source=names.source(self.name),
            source_id=source_id,
            **columns,
        )
        return Decoded((row,), tuple(notes))

    def encode(self, rows: Rows) -> Document:
        """Return the document of a row."""
        row: Any = rows[0]
        fields = self._fields.encode(row)
        for key, value in self._defaults.items():
            if fields.get(key) == value:
                del fields[key]
        return {"_id": identity.parse_source_id(row.source_id), "tenantId": row.tenant_id, **fields}

    @property
    def known(self) -> frozenset[str]:
        """The field names."""
        return self._fields.keys | {"_id", "tenantId"}


_OF_KIND = {
    "cron": {"cron_expression", "cron_dialect"},
    "interval": {"interval_ms", "anchor"},
    "one_time": {"run_at"},
    "event": {"event_name"},
}


def _check_trigger(columns: dict[str, Any]) -> None:
    """Hold a trigger to what its table demands, so that it cannot fail there and take its chunk along."""
    kind = columns["kind"]
    if kind == "cron":
        columns.setdefault("cron_dialect", names.CRON_DIALECT)
    for name, of_kind in _OF_KIND.items():
        for column in of_kind:
            if (column in columns) != (name == kind):
                raise Rejected("wrong-kind", "kind", "exactly the fields of its kind")
    if kind == "event" and (columns.get("timezone") or columns.get("next_fire_at")):
        raise Rejected("wrong-kind", "kind", "an event without timezone and nextFireAt")
    start, end = columns.get("start_at"), columns.get("end_at")
    if start is not None and end is not None and end <= start:
        raise Rejected("out-of-range", "endAt", "a time after startAt")


_TRIGGERS = OwnCollection(
    names.TRIGGERS,
    Trigger,
    OwnFields(
        Trigger,
        (
            "schedule_id",
            "kind",
            "cron_expression",
            "cron_dialect",
            "timezone",
            "interval_ms",
            "anchor",
            "run_at",
            "event_name",
            "start_at",
            "end_at",
            "max_fires",
            "fire_count",
            "skip_if_overdue",
            "misfire_policy",
            "misfire_grace_ms",
            "enabled",
            "next_fire_at",
            "last_fire_at",
            "derived",
            "source_spec",
        ),
        words={
            "kind": _words(states.TRIGGER_KINDS),
            "anchor": _words(states.TRIGGER_ANCHORS),
            "misfire_policy": _words(states.MISFIRE_POLICIES),
        },
        least={"interval_ms": 1},
    ),
    needed=("scheduleId", "kind"),
    defaults={"cronDialect": names.CRON_DIALECT, "fireCount": 0, "skipIfOverdue": False, "derived": False},
    check=_check_trigger,
)

_WORKERS = OwnCollection(
    names.WORKERS,
    WorkerRecord,
    OwnFields(
        WorkerRecord,
        (
            "kind",
            "hostname",
            "pid",
            "version",
            "queues",
            "capacity",
            "status",
            "registered_at",
            "last_heartbeat_at",
            "metadata",
        ),
        words={"kind": _words(states.WORKER_KINDS), "status": _words(states.WORKER_STATUSES)},
    ),
    needed=("kind", "status"),
)

_EXECUTION_LOGS = OwnCollection(
    names.EXECUTION_LOGS,
    ExecutionLog,
    OwnFields(
        ExecutionLog,
        ("run_id", "schedule_id", "logged_at", "level", "message", "context"),
        words={"level": _words(states.LOG_LEVELS)},
    ),
    needed=("loggedAt", "level"),
)

_HANDLERS = OwnCollection(
    names.HANDLERS,
    Handler,
    OwnFields(
        Handler,
        (
            "name",
            "handler_path",
            "handler_type",
            "queue",
            "default_timeout_ms",
            "is_active",
            "is_system",
            "idempotent",
        ),
        words={"handler_type": _words(states.HANDLER_TYPES)},
    ),
    needed=("name", "handlerType"),
    defaults={"isSystem": False, "idempotent": False},
)


def decode_trigger(document: Document, context: Context) -> Decoded:
    """Return the trigger of a document.

    Raises ``Skipped`` for one that our own store keeps for the rule of a schedule document: the schedule makes that
    trigger itself, and says alone when it fires.
    """
    if not context.of_store and is_copy(document):
        raise Skipped(COPIED_RULE)
    return _TRIGGERS.decode(document, context)


def is_copy(document: Document) -> bool:
    """Tell whether a document is our store's own copy of a schedule's rule: it is marked, or has the id of it.

    The id alone is no mark where the document says what a schedule document could not, and so stands by itself.
    """
    if document.get(COPY_OF) == names.SCHEDULES:
        return True
    texts = [document.get(name) for name in ("_id", "tenantId", "scheduleId", "cronExpression")]
    if document.get("kind") != "cron" or not all(type(text) is str for text in texts):
        return False
    key, tenant, schedule, line = map(str, texts)
    made = identity.row_id(Trigger.table, tenant, names.SCHEDULES, identity.source_id(schedule), keep_uuid=False)
    if key != ids.trigger_text(made) or any(document.get(name) is not None for name in _BOUNDS):
        return False
    dialect, zone = document.get("cronDialect", names.CRON_DIALECT), document.get("timezone")
    return type(dialect) is str and (zone is None or type(zone) is str) and cron.fires_alike(dialect, line, zone)


TRIGGERS = Collection(
    name=names.TRIGGERS,
    tables=(Trigger,),
    decode=decode_trigger,
    encode=_TRIGGERS.encode,
    references=(by_field(Trigger, "schedule_id", Schedule, "scheduleId", required=True),),
    after=(names.SCHEDULES,),
    tenant_expression=aggregates.tenant(),
    measures=(
        aggregates.states("kind", "$kind"),
        aggregates.flag("enabled", "$enabled", default=True),
        aggregates.plain_total("fireCount", "fire_count"),
        aggregates.span("nextFireAt", "next_fire_at"),
    ),
    attach=attach_extra,
    remainder=remainder_of,
    reference_paths=frozenset({"scheduleId"}),
    known=_TRIGGERS.known | {COPY_OF, SCHEDULE_PRIORITY, FIRING, f"{FIRING}.by", f"{FIRING}.until"},
    derived=MappingProxyType({SCHEDULE_PRIORITY: int, FIRING: dict}),
)

WORKERS = Collection(
    name=names.WORKERS,
    tables=(WorkerRecord,),
    decode=_WORKERS.decode,
    encode=_WORKERS.encode,
    tenant_expression=aggregates.tenant(),
    measures=(
        aggregates.states("status", "$status"),
        aggregates.plain_total("capacity", "capacity"),
        aggregates.span("lastHeartbeatAt", "last_heartbeat_at"),
    ),
    attach=attach_extra,
    remainder=remainder_of,
    known=_WORKERS.known,
)

EXECUTION_LOGS = Collection(
    name=names.EXECUTION_LOGS,
    tables=(ExecutionLog,),
    decode=_EXECUTION_LOGS.decode,
    encode=_EXECUTION_LOGS.encode,
    references=(by_field(ExecutionLog, "run_id", Run, "runId"),),
    after=(names.RUNS,),
    tenant_expression=aggregates.tenant(),
    measures=(aggregates.states("level", "$level"), aggregates.span("loggedAt", "logged_at")),
    attach=attach_extra,
    remainder=remainder_of,
    reference_paths=frozenset({"runId", "scheduleId"}),
    known=_EXECUTION_LOGS.known,
)

HANDLERS = Collection(
    name=names.HANDLERS,
    tables=(Handler,),
    decode=_HANDLERS.decode,
    encode=_HANDLERS.encode,
    tenant_expression=aggregates.tenant(),
    measures=(
        aggregates.states("handler_type", "$handlerType"),
        aggregates.flag("is_active", "$isActive", default=True),
    ),
    attach=attach_extra,
    remainder=remainder_of,
    unique=(("tenant_id", "name"),),
    known=_HANDLERS.known,
)
