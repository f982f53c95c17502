"""``triggers``, ``workers``, ``execution_logs`` and ``handlers``: collections that only our own store writes.

``_id`` and ``tenantId`` come first, then the columns. What a column holds by default is left out of the document.
"""

from typing import Any, Final

from migrator.records import Trigger
from migrator.sources import aggregates
from migrator.sources.mapping.language import Field, Mapped, Reading
from migrator.sources.profile import Context, Document, Rejected, Rows, Skipped
from migrator.sources.store_documents import cron, names
from migrator.sources.store_documents.fields import own
from migrator.values import identity

COPY_OF: Final = "copyOf"
"""The field that marks a trigger which our store keeps for the rule of a schedule document: ``schedules``."""
FIRING: Final = "firing"
"""The field in which a process that fires a trigger says so (``by``, ``until``), for a few seconds."""
_BOUNDS: Final = ("startAt", "endAt", "maxFires")
COPIED_RULE: Final = "copy of a schedule's rule"
"""Why such a document is skipped."""

_TENANT: Final = Field(path="tenantId", converter="tenant", shape=Any)
_NEEDED: Final = {"required": True}
_FALSE: Final = {"default": False}

_OF_KIND = {
    "cron": {"cron_expression", "cron_dialect"},
    "interval": {"interval_ms", "anchor"},
    "one_time": {"run_at"},
    "event": {"event_name"},
}


def _admit(document: Document, context: Context) -> None:
    """Leave out a trigger that our store keeps for the rule of a schedule document.

    The schedule makes that trigger itself, and says alone when it fires.
    """
    if not context.of_store and is_copy(document):
        raise Skipped(COPIED_RULE)


def _derive(_document: Document, reading: Reading, _context: Context) -> None:
    """Hold a trigger to what its table demands, so that it cannot fail there and take its chunk along."""
    columns = reading.columns[Trigger.table]
    kind = columns.get("kind")
    if kind is None:
        raise Rejected("missing-field", "kind", "a value")
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


def is_copy(document: Document) -> bool:
    """Whether a document is our store's own copy of a schedule's rule: it is marked, or has the id of it.

    The id alone is no mark where the document says what a schedule document could not, and so stands by itself.
    """
    if document.get(COPY_OF) == names.SCHEDULES:
        return True
    texts = [document.get(name) for name in ("_id", "tenantId", "scheduleId", "cronExpression")]
    if document.get("kind") != "cron" or not all(type(text) is str for text in texts):
        return False
    key, tenant, schedule, line = map(str, texts)
    made = identity.row_id(Trigger.table, tenant, names.SCHEDULES, identity.source_id(schedule), keep_uuid=False)
    if key != names.TRIGGER_PREFIX + identity.hex_of(made) or any(document.get(name) is not None for name in _BOUNDS):
        return False
    dialect, zone = document.get("cronDialect", names.CRON_DIALECT), document.get("timezone")
    return type(dialect) is str and (zone is None or type(zone) is str) and cron.fires_alike(dialect, line, zone)


def _dialect(rows: Rows) -> str | None:
    """Return the dialect of a trigger where it is not the source's own."""
    row: Any = rows[0]
    return None if row.cron_dialect == names.CRON_DIALECT else row.cron_dialect


TRIGGERS = Mapped(
    name=names.TRIGGERS,
    tables=("triggers",),
    fields=(
        _TENANT,
        *own(
            "triggers",
            (
                "scheduleId",
                "kind",
                "cronExpression",
                "cronDialect",
                "timezone",
                "intervalMs",
                "anchor",
                "runAt",
                "eventName",
                "startAt",
                "endAt",
                "maxFires",
                "fireCount",
                "skipIfOverdue",
                "misfirePolicy",
                "misfireGraceMs",
                "enabled",
                "nextFireAt",
                "lastFireAt",
                "derived",
                "sourceSpec",
            ),
            {
                "scheduleId": _NEEDED,
                "kind": _NEEDED,
                "cronDialect": {"write": _dialect},
                "fireCount": {"default": 0},
                "skipIfOverdue": _FALSE,
                "derived": _FALSE,
            },
        ),
    ),
    admit=_admit,
    derive=_derive,
    derived_paths=(COPY_OF, f"{FIRING}.by", f"{FIRING}.until"),
    ignored_fields={names.SCHEDULE_PRIORITY: int, FIRING: dict},
    measures=(
        aggregates.states("kind", "$kind"),
        aggregates.flag("enabled", "$enabled", default=True),
        aggregates.plain_total("fireCount", "fire_count"),
        aggregates.span("nextFireAt", "next_fire_at"),
    ),
)

WORKERS = Mapped(
    name=names.WORKERS,
    tables=("workers",),
    fields=(
        _TENANT,
        *own(
            "workers",
            (
                "kind",
                "hostname",
                "pid",
                "version",
                "queues",
                "capacity",
                "status",
                "registeredAt",
                "lastHeartbeatAt",
                "metadata",
            ),
            {"kind": _NEEDED, "status": _NEEDED},
        ),
    ),
    measures=(
        aggregates.states("status", "$status"),
        aggregates.plain_total("capacity", "capacity"),
        aggregates.span("lastHeartbeatAt", "last_heartbeat_at"),
    ),
)

EXECUTION_LOGS = Mapped(
    name=names.EXECUTION_LOGS,
    tables=("execution_logs",),
    fields=(
        _TENANT,
        *own(
            "execution_logs",
            ("runId", "scheduleId", "loggedAt", "level", "message", "context"),
            {"scheduleId": {"loose": True}, "loggedAt": _NEEDED, "level": _NEEDED},
        ),
    ),
    measures=(aggregates.states("level", "$level"), aggregates.span("loggedAt", "logged_at")),
)

HANDLERS = Mapped(
    name=names.HANDLERS,
    tables=("handlers",),
    fields=(
        _TENANT,
        *own(
            "handlers",
            (
                "name",
                "handlerPath",
                "handlerType",
                "queue",
                "defaultTimeoutMs",
                "isActive",
                "isSystem",
                "idempotent",
            ),
            {"name": _NEEDED, "handlerType": _NEEDED, "isSystem": _FALSE, "idempotent": _FALSE},
        ),
    ),
    measures=(
        aggregates.states("handler_type", "$handlerType"),
        aggregates.flag("is_active", "$isActive", default=True),
    ),
)
