"""``schedules``: what is to run, and when; a document with a cron text is a schedule and its trigger.

A document with a rule of its own always makes its trigger, whatever other collections hold. Two fields are the tool's,
and are written where a row says more than the fields of the source can: ``toolTrigger`` holds columns of the trigger
that do not decide when it fires, ``toolEnabled`` says that the row is enabled where ``enabled`` is false because
nothing may fire (a paused schedule: the old application knows no status).
"""

from typing import Any, ClassVar
from uuid import UUID

import msgspec

from migrator import states
from migrator.records import Schedule, Trigger, attach_extra, remainder_of
from migrator.sources import aggregates, tenants
from migrator.sources.profile import Collection, Context, Decoded, Document, Note, Rejected, Rows
from migrator.sources.shapes import (
    Moment,
    Shape,
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
from migrator.sources.stellaops import cron, ids, names, selector
from migrator.sources.stellaops.columns import OwnFields
from migrator.values import identity, jsonb
from migrator.values.times import format_iso, to_bson

SOURCE = names.source(names.SCHEDULES)

TOOL_TRIGGER = "toolTrigger"
TOOL_ENABLED = "toolEnabled"


class OnlyIf(Shape):
    """When a run may be left out."""

    last_report_older_than_days: int | None = None
    policy_revision: str | None = None


class Notify(Shape):
    """Who hears of it."""

    on_new_findings: bool | None = None
    min_severity: names.Severity | None = None
    include_kev: bool | None = None
    include_quiet_findings: bool | None = None


class Limits(Shape):
    """How much at once."""

    max_jobs: int | None = None
    rate_per_second: int | None = None
    parallelism: int | None = None
    burst: int | None = None


class ScheduleDocument(Shape, kw_only=True):
    """A schedule as the source writes it; ``whenCron`` is the name in its documented index."""

    aliases: ClassVar = frozenset({"whenCron"})

    key: Any = msgspec.field(name="_id")
    schema_version: str | None = None
    id: Any = None
    tenant_id: str | None = None
    name: str
    enabled: bool | None = None
    cron_expression: str | None = None
    when_cron: str | None = None
    timezone: str | None = None
    mode: str | None = None
    selection: selector.Selector | None = None
    only_if: OnlyIf | None = None
    notify: Notify | None = None
    limits: Limits | None = None
    subscribers: list[str] | None = None
    created_at: Moment = None
    created_by: str | None = None
    updated_at: Moment = None
    updated_by: str | None = None
    deleted_at: Moment = None
    deleted_by: str | None = None
    tool_enabled: bool | None = None
    tool_trigger: dict[str, Any] | None = None


OWN = OwnFields(
    Schedule,
    (
        "description",
        "status",
        "handler_name",
        "handler_type",
        "queue",
        "payload",
        "priority",
        "max_retries",
        "retry_delay_ms",
        "retry_strategy",
        "retry_cap_ms",
        "retry_count",
        "on_exhausted",
        "timeout_ms",
        "max_concurrency",
        "tags",
        "metadata",
        "paused_at",
        "cancelled_at",
        "completed_at",
    ),
    words={
        "status": names.SCHEDULE_STATUSES,
        "handler_type": {word: word for word in states.HANDLER_TYPES},
        "retry_strategy": {word: word for word in states.RETRY_STRATEGIES},
        "on_exhausted": {word: word for word in states.EXHAUSTED_POLICIES},
    },
    least={
        "priority": 0,
        "max_retries": 0,
        "retry_delay_ms": 0,
        "retry_cap_ms": 0,
        "retry_count": 0,
        "timeout_ms": 0,
        "max_concurrency": 0,
    },
    most={"priority": 100},
)
"""What our own store adds to a schedule; the status only where it is not the one that ``enabled`` implies."""

OF_TRIGGER = OwnFields(
    Trigger,
    (
        "cron_dialect",
        "fire_count",
        "skip_if_overdue",
        "misfire_policy",
        "misfire_grace_ms",
        "enabled",
        "last_fire_at",
    ),
    words={"misfire_policy": {word: word for word in states.MISFIRE_POLICIES}},
)
"""What ``toolTrigger`` holds besides ``id``, the text of an id that is not the one computed from the schedule.

No next fire: the old application fires by the rule, and which slots it has fired nobody else knows.
"""

_NAMES = keys(ScheduleDocument)
_only_if, _notify, _limits = ordered_reader(OnlyIf), ordered_reader(Notify), ordered_reader(Limits)


def decode(document: Document, context: Context) -> Decoded:
    """Return the schedule of a document, and its trigger where its cron text can be evaluated."""
    found = read(document, ScheduleDocument)
    notes: list[Note] = []
    selection = found.selection
    tenant = tenants.tenant_of(
        found.tenant_id, context, notes, selector=None if selection is None else selection.tenant_id
    )
    source_id = identity.source_id(found.key)
    ids.compare_ids(found.key, found.id, notes)
    said = found.enabled is not False
    enabled = said or found.tool_enabled is True
    columns: dict[str, Any] = {
        "id": identity.row_id("schedules", tenant, names.SCHEDULES, source_id),
        "tenant_id": tenant,
        "source": SOURCE,
        "source_id": source_id,
        "name": indexed(found.name, "name"),
        "enabled": enabled,
        "status": _status(enabled=said),
        "mode": _mode(found.mode, notes),
        "selection": None
        if selection is None
        else selector.stored(document["selection"], selection, "selection", notes),
        "only_if": None if found.only_if is None else jsonb.encode(document["onlyIf"]),
        "notify": None if found.notify is None else jsonb.encode(document["notify"]),
        "limits": None if found.limits is None else jsonb.encode(document["limits"]),
        "subscribers": None
        if found.subscribers is None
        else tuple(plain(who, "subscribers[]") for who in found.subscribers),
        "schema_version": ids.version_of(found.schema_version, names.SCHEDULE_VERSION, notes),
        "created_at": found.created_at,
        "created_by": text(found.created_by, "createdBy"),
        "updated_at": found.updated_at,
        "updated_by": text(found.updated_by, "updatedBy"),
        "deleted_at": found.deleted_at,
        "deleted_by": text(found.deleted_by, "deletedBy"),
    }
    if not OWN.keys.isdisjoint(document):
        columns |= OWN.decode(document, tenant)
    if said and found.tool_enabled is True and columns["status"] not in states.SCHEDULE_FIRING:
        columns["status"] = _status(enabled=True)  # switched on again by the old application, which knows no status
    schedule = Schedule(**columns)
    trigger = None if context.of_store else _trigger(schedule, found, notes, said=said)
    return Decoded((schedule,) if trigger is None else (schedule, trigger), tuple(notes))


def _status(*, enabled: bool) -> str:
    """Return the status that an imported schedule has."""
    return "scheduled" if enabled else "paused"


def _mode(word: str | None, notes: list[Note]) -> str | None:
    if word is None:
        return None
    mode = choice(word, names.SCHEDULE_MODES, "mode")
    if mode != word:
        notes.append(Note("alias", "mode"))
    return mode


def trigger_id(schedule: Schedule) -> UUID:
    """Return the id of the trigger that a schedule's own rule makes, unless the document names another one."""
    return identity.row_id("triggers", schedule.tenant_id, names.SCHEDULES, str(schedule.source_id), keep_uuid=False)


def _trigger(schedule: Schedule, found: ScheduleDocument, notes: list[Note], *, said: bool) -> Trigger | None:
    """Return the trigger that the cron text makes; one that no engine can evaluate is noted, and stays remainder."""
    path = "cronExpression"
    line = found.cron_expression
    if line is None and found.when_cron is not None:
        path, line = "whenCron", found.when_cron
        notes.append(Note("alias", path))
    if line is None or not line.strip():
        return None
    zone = None if found.timezone is None else plain(found.timezone, "timezone")
    evaluable = cron.evaluate(plain(line, path), zone)
    if evaluable.fault:
        notes.append(Note(evaluable.fault, path if evaluable.fault == cron.UNEVALUABLE else "timezone"))
        return None
    if evaluable.mapped:
        notes.append(Note("mapped-zone", "timezone"))
    columns: dict[str, Any] = {
        "id": trigger_id(schedule),
        "cron_dialect": names.CRON_DIALECT,
        "enabled": schedule.enabled,
        "source_spec": jsonb.encode({path: line, "timezone": found.timezone}),
    }
    if found.tool_trigger is not None:
        columns |= _of_tool(found.tool_trigger, schedule)
        if said:
            columns["enabled"] = True  # who switched the schedule on wants it to fire
        if not cron.fires_alike(columns["cron_dialect"], line, evaluable.zone):
            columns["cron_dialect"] = names.CRON_DIALECT  # the line was changed by the old application
    return Trigger(
        tenant_id=schedule.tenant_id,
        source=SOURCE,
        source_id=schedule.source_id,
        schedule_id=schedule.id,
        kind="cron",
        cron_expression=line,
        timezone=evaluable.zone,
        **columns,
    )


def _of_tool(fields: Document, schedule: Schedule) -> dict[str, Any]:
    """Return the columns that the tool's own field names; a trigger born elsewhere has no spelling of the source."""
    try:
        columns = OF_TRIGGER.decode(fields, schedule.tenant_id)
    except Rejected as rejected:
        raise Rejected(rejected.reason, f"{TOOL_TRIGGER}.{rejected.path}", rejected.expected) from None
    text_of_id = fields.get("id")
    if text_of_id is not None:
        if type(text_of_id) is not str:
            raise Rejected("wrong-type", f"{TOOL_TRIGGER}.id", "string")
        columns |= {"id": ids.trigger_id(schedule.tenant_id, text_of_id), "source_spec": None}
    return columns


def is_carried(trigger: Trigger) -> bool:
    """Tell whether the fields of the source can say when this trigger fires: a cron line without bounds."""
    return (
        trigger.kind == "cron"
        and trigger.start_at is None
        and trigger.end_at is None
        and trigger.max_fires is None
        and cron.fires_alike(trigger.cron_dialect or "", trigger.cron_expression or "", trigger.timezone)
    )


def encode(rows: Rows) -> Document:
    """Return the document of a schedule and its trigger.

    It is enabled where the rows fire: the old application knows neither a status nor a trigger that is disabled. A
    trigger whose rule the fields of the source cannot say is left out.
    """
    row: Any = rows[0]
    key, own_id = ids.keys_of(row.source_id)
    trigger = _carried(rows)
    enabled = row.enabled and row.status in states.SCHEDULE_FIRING and (trigger is None or trigger.enabled)
    document = filled(
        _NAMES,
        (
            key,
            row.schema_version,
            own_id,
            row.tenant_id,
            row.name,
            enabled,
            None if trigger is None else trigger.cron_expression,
            None if trigger is None else trigger.timezone or _zone_of_born(row, trigger),
            row.mode,
            None if row.selection is None else selector.read_back(row.selection),
            None if row.only_if is None else _only_if(row.only_if),
            None if row.notify is None else _notify(row.notify),
            None if row.limits is None else _limits(row.limits),
            None if row.subscribers is None else list(row.subscribers),
            None if row.created_at is None else format_iso(row.created_at),
            row.created_by,
            None if row.updated_at is None else format_iso(row.updated_at),
            row.updated_by,
            None if row.deleted_at is None else to_bson(row.deleted_at),
            row.deleted_by,
            True if row.enabled and not enabled else None,
            None if trigger is None else _tool_fields(row, trigger),
        ),
    )
    own = OWN.encode(row)
    if own["status"] == _status(enabled=enabled):
        del own["status"]
    document.update(own)
    return document


def _carried(rows: Rows) -> Any:  # noqa: ANN401 - a trigger, or none
    """Return the trigger among the rows, where the document can say when it fires."""
    return next((row for row in rows[1:] if isinstance(row, Trigger) and is_carried(row)), None)


def _zone_of_born(schedule: Schedule, trigger: Trigger) -> str | None:
    """Return the zone of a trigger without one that was born elsewhere: documents of the source name one."""
    return None if trigger.id == trigger_id(schedule) else "UTC"


def _tool_fields(schedule: Schedule, trigger: Trigger) -> Document | None:
    """Return what the document says of the trigger in the tool's own field; none where there is nothing to say."""
    fields = OF_TRIGGER.encode(trigger)
    for key, value in (
        ("cronDialect", names.CRON_DIALECT),
        ("fireCount", 0),
        ("skipIfOverdue", False),
        ("enabled", schedule.enabled),
    ):
        if fields.get(key) == value:
            del fields[key]
    if trigger.id != trigger_id(schedule):
        fields = {"id": ids.trigger_text(trigger.id), **fields}
    return fields or None


COLLECTION = Collection(
    name=names.SCHEDULES,
    tables=(Schedule, Trigger),
    decode=decode,
    encode=encode,
    tenant_expression=aggregates.tenant("$selection.tenantId"),
    measures=(
        aggregates.flag("enabled", {"$cond": [{"$eq": ["$toolEnabled", True]}, True, "$enabled"]}, default=True),
        aggregates.states("mode", "$mode", {"analysisonly": "analysis-only", "contentrefresh": "content-refresh"}),
        aggregates.span("createdAt", "created_at"),
        aggregates.span("updatedAt", "updated_at"),
        aggregates.span("deletedAt", "deleted_at"),
    ),
    attach=attach_extra,
    remainder=remainder_of,
    known=known_paths(ScheduleDocument) | OWN.keys | {f"{TOOL_TRIGGER}.{key}" for key in OF_TRIGGER.keys | {"id"}},
)
