"""``schedules``: what is to run, and when; a document with a cron text is a schedule and its trigger.

A document with a rule of its own always makes its trigger, whatever other collections hold. Two fields are the tool's,
and are written where a row says more than the fields of the source can: ``toolTrigger`` holds columns of the trigger
that do not decide when it fires, ``toolEnabled`` says that the row is enabled where ``enabled`` is false because
nothing may fire (a paused schedule: the old application knows no status).
"""

from collections.abc import Mapping
from typing import Any, Final

from migrator import states
from migrator.records import Schedule, Trigger
from migrator.sources import aggregates
from migrator.sources.mapping import converters
from migrator.sources.mapping.excerpts import Held
from migrator.sources.mapping.language import Excerpt, Field, Mapped, Reading
from migrator.sources.profile import Context, Document, Note, Rejected, Rows
from migrator.sources.shapes import Shape, plain
from migrator.sources.store_documents import cron, ids, names
from migrator.sources.store_documents.fields import ID, field, json, own, text, time, version
from migrator.sources.store_documents.selector import Selector
from migrator.values import jsonb

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


class ScheduleLimits(Shape):
    """How much at once."""

    max_jobs: int | None = None
    rate_per_second: int | None = None
    parallelism: int | None = None
    burst: int | None = None


_OF_TRIGGER: Final = own(
    "triggers",
    (
        "cronDialect",
        "fireCount",
        "skipIfOverdue",
        "misfirePolicy",
        "misfireGraceMs",
        "enabled",
        "lastFireAt",
    ),
)
"""What ``toolTrigger`` holds besides ``id``, the text of an id that is not the one computed from the schedule.

No next fire: the old application fires by the rule, and which slots it has fired nobody else knows.
"""
_TOOL_READERS: Final = tuple(
    (one.path, one.columns[0].partition(".")[2], converters.reader(one, one.columns[0])) for one in _OF_TRIGGER
)
_TOOL_WRITERS: Final = tuple(
    (one.path, one.columns[0].partition(".")[2], converters.writer(one)) for one in _OF_TRIGGER
)


def _status(*, enabled: bool) -> str:
    """Return the status that an imported schedule has."""
    return "scheduled" if enabled else "paused"


def _derive(document: Document, reading: Reading, context: Context) -> None:
    """Fill the state of a schedule, and its trigger where its cron text can be evaluated."""
    columns = reading.columns[Schedule.table]
    enabled, again = document.get("enabled") is not False, document.get(TOOL_ENABLED) is True
    columns["enabled"] = enabled or again
    status = columns.setdefault("status", _status(enabled=enabled))
    if enabled and again and status not in states.SCHEDULE_FIRING:
        columns["status"] = _status(enabled=True)  # enabled again by the old application, which knows no status
    if not context.of_store:
        _derive_trigger(document, reading, enabled=enabled)


def _derive_trigger(document: Document, reading: Reading, *, enabled: bool) -> None:
    """Fill the trigger that the cron text makes; one that no engine can evaluate is noted, and stays remainder."""
    path, notes = "cronExpression", reading.notes
    line, zone = document.get(path), document.get("timezone")
    if line is None and document.get("whenCron") is not None:
        path, line = "whenCron", document["whenCron"]
        notes.append(Note("alias", path))
    if line is None or not line.strip():
        return
    stated = None if zone is None else plain(zone, "timezone")
    evaluable = cron.evaluate(plain(line, path), stated)
    if evaluable.fault:
        notes.append(Note(evaluable.fault, path if evaluable.fault == cron.UNEVALUABLE else "timezone"))
        return
    if evaluable.mapped:
        notes.append(Note("mapped-zone", "timezone"))
    columns = reading.columns[Trigger.table]
    columns |= {
        "cron_expression": line,
        "cron_dialect": names.CRON_DIALECT,
        "timezone": evaluable.zone,
        "enabled": reading.columns[Schedule.table]["enabled"],
        "source_spec": jsonb.encode({path: line, "timezone": zone}),
    }
    if document.get(TOOL_TRIGGER) is not None:
        columns |= _of_tool(document[TOOL_TRIGGER], reading)
        if enabled:
            columns["enabled"] = True  # who enabled the schedule wants it to fire
        if not cron.fires_alike(columns["cron_dialect"], line, evaluable.zone):
            columns["cron_dialect"] = names.CRON_DIALECT  # the line was changed by the old application


def _of_tool(fields: Document, reading: Reading) -> dict[str, Any]:
    """Return the columns that the tool's own field names; one created elsewhere has no spelling of the source."""
    columns: dict[str, Any] = {}
    try:
        for key, column, convert in _TOOL_READERS:
            if fields.get(key) is not None and convert is not None:
                columns[column] = convert(fields[key], reading)
    except Rejected as rejected:
        raise Rejected(rejected.reason, f"{TOOL_TRIGGER}.{rejected.path}", rejected.expected) from None
    text_of_id = fields.get("id")
    if text_of_id is not None:
        if type(text_of_id) is not str:
            raise Rejected("wrong-type", f"{TOOL_TRIGGER}.id", "string")
        columns |= {"id": ids.trigger_id(reading.tenant, text_of_id), "source_spec": None}
    return columns


def is_carried(trigger: Trigger) -> bool:
    """Whether the fields of the source can say when this trigger fires: a cron line without bounds."""
    return _is_carried(trigger)


def _is_carried(trigger: Any) -> bool:  # noqa: ANN401 - a trigger, or its declared columns
    return (
        trigger.kind == "cron"
        and trigger.start_at is None
        and trigger.end_at is None
        and trigger.max_fires is None
        and cron.fires_alike(trigger.cron_dialect or "", trigger.cron_expression or "", trigger.timezone)
    )


def _respell(held: Mapping[str, Held]) -> Document:
    """Return the fields that follow from the rows together.

    The schedule is enabled where the rows fire: the old application knows neither a status nor a trigger that is
    disabled. A trigger whose rule the fields of the source cannot say is left out.
    """
    row, trigger = held[Schedule.table], held.get(Trigger.table)
    if trigger is not None and not _is_carried(trigger):
        trigger = None
    enabled = row.enabled and row.status in states.SCHEDULE_FIRING and (trigger is None or trigger.enabled)
    fields: Document = {
        "enabled": enabled,
        "cronExpression": None,
        "whenCron": None,
        "timezone": None,
        TOOL_ENABLED: True if row.enabled and not enabled else None,
        TOOL_TRIGGER: None,
    }
    if row.status == _status(enabled=enabled):
        fields["status"] = None
    if trigger is not None:
        # Documents of the source name a zone: a trigger that was created elsewhere without one is given UTC.
        fields["timezone"] = trigger.timezone or (None if trigger.id is None else "UTC")
        fields["cronExpression"] = trigger.cron_expression
        fields[TOOL_TRIGGER] = _tool_fields(row, trigger)
    return fields


def _tool_fields(schedule: Held, trigger: Held) -> Document | None:
    """Return the tool's own field of a document, about its trigger; none where there is nothing to say."""
    unsaid = {
        "cronDialect": names.CRON_DIALECT,
        "fireCount": 0,
        "skipIfOverdue": False,
        "enabled": schedule.enabled,
    }
    fields: Document = {} if trigger.id is None else {"id": ids.trigger_text(trigger.id)}
    for key, column, write in _TOOL_WRITERS:
        value = getattr(trigger, column)
        if value is not None and (key not in unsaid or value != unsaid[key]):
            fields[key] = value if write is None else write(value)
    return fields or None


def _with_respell(rows: Rows) -> Rows:
    """Hold the place of a field that ``_respell`` writes."""
    return rows


SCHEDULES = Mapped(
    name=names.SCHEDULES,
    tables=("schedules", "triggers"),
    fields=(
        version("schedules", names.SCHEDULE_VERSION),
        ID,
        Field(path="tenantId", converter="tenant", also=("selection.tenantId",), finding="tenant-from-selector"),
        field("schedules.name", "text", required=True),
        Field(path="enabled", converter="flag", write=_with_respell),
        Field(path="cronExpression", converter="text", write=_with_respell),
        # The name in the documented index; never written.
        Field(path="whenCron", converter="text"),
        Field(path="timezone", converter="text", write=_with_respell),
        field("schedules.mode", "words", words=names.SCHEDULE_MODES),
        json("schedules.selection", Selector, respelled={"scope": names.SCOPES}),
        json("schedules.onlyIf", OnlyIf),
        json("schedules.notify", Notify),
        json("schedules.limits", ScheduleLimits),
        field("schedules.subscribers", "texts"),
        time("schedules.createdAt"),
        text("schedules.createdBy"),
        time("schedules.updatedAt"),
        text("schedules.updatedBy"),
        time("schedules.deletedAt", encoding="date"),
        text("schedules.deletedBy"),
        Field(path=TOOL_ENABLED, converter="flag", write=_with_respell),
        Field(path=TOOL_TRIGGER, converter="json", shape=dict[str, Any], write=_with_respell),
    ),
    # What our own store adds; the status only where it is not the one that ``enabled`` implies.
    rare_fields=own(
        "schedules",
        (
            "description",
            "status",
            "handlerName",
            "handlerType",
            "queue",
            "payload",
            "priority",
            "maxRetries",
            "retryDelayMs",
            "retryStrategy",
            "retryCapMs",
            "retryCount",
            "onExhausted",
            "timeoutMs",
            "maxConcurrency",
            "tags",
            "metadata",
            "pausedAt",
            "cancelledAt",
            "completedAt",
        ),
        spellings={"status": names.SCHEDULE_STATUSES},
    ),
    derive=_derive,
    respell_held=_respell,
    excerpt=Excerpt(
        fields=frozenset({"enabled", "cronExpression", "whenCron", "timezone", "status", TOOL_ENABLED, TOOL_TRIGGER}),
        columns=(
            *("schedules.enabled", "schedules.status", "triggers.id", "triggers.cron_expression", "triggers.timezone"),
            *("triggers.source_spec", "triggers.kind", "triggers.start_at", "triggers.end_at", "triggers.max_fires"),
            *(one.columns[0] for one in _OF_TRIGGER),
        ),
    ),
    derived_paths=tuple(f"{TOOL_TRIGGER}.{path}" for path in ("id", *(one.path for one in _OF_TRIGGER))),
    measures=(
        aggregates.flag("enabled", {"$cond": [{"$eq": ["$toolEnabled", True]}, True, "$enabled"]}, default=True),
        aggregates.states("mode", "$mode", {"analysisonly": "analysis-only", "contentrefresh": "content-refresh"}),
        aggregates.span("createdAt", "created_at"),
        aggregates.span("updatedAt", "updated_at"),
        aggregates.span("deletedAt", "deleted_at"),
    ),
)
