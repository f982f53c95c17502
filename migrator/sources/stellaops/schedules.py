"""``schedules``: what is to run, and when; a document with a cron text is a schedule and its trigger."""

from typing import Any, ClassVar

import msgspec

from migrator import states
from migrator.records.residue import attach_extra, residue_of
from migrator.records.schedule import Schedule
from migrator.records.trigger import Trigger
from migrator.sources.order import reader
from migrator.sources.profile import Collection, Context, Decoded, Document, Note, Rows
from migrator.sources.shapes import Moment, Shape, choice, filled, indexed, keys, known_paths, plain, read, text
from migrator.sources.stellaops import cron, ids, measures, names, selector
from migrator.sources.stellaops.columns import OwnFields
from migrator.values import identity, jsonb
from migrator.values.times import format_iso, to_bson

SOURCE = names.source(names.SCHEDULES)


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

_NAMES = keys(ScheduleDocument)
_only_if, _notify, _limits = reader(OnlyIf), reader(Notify), reader(Limits)


def decode(document: Document, context: Context) -> Decoded:
    """Return the schedule of a document, and its trigger where its cron text can be evaluated."""
    found = read(document, ScheduleDocument)
    notes: list[Note] = []
    selection = found.selection
    tenant = ids.tenant_of(found.tenant_id, context, notes, selector=None if selection is None else selection.tenant_id)
    source_id = identity.source_id(found.key)
    ids.compare_ids(found.key, found.id, notes)
    enabled = found.enabled is not False
    columns: dict[str, Any] = {
        "id": identity.row_id("schedules", tenant, names.SCHEDULES, source_id),
        "tenant_id": tenant,
        "source": SOURCE,
        "source_id": source_id,
        "name": indexed(found.name, "name"),
        "enabled": enabled,
        "status": _status(enabled=enabled),
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
    schedule = Schedule(**columns)
    trigger = None if context.has_triggers else _trigger(schedule, found, notes)
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


def _trigger(schedule: Schedule, found: ScheduleDocument, notes: list[Note]) -> Trigger | None:
    """Return the trigger that the cron text makes; one that no engine can evaluate is noted, and stays residue."""
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
    return Trigger(
        id=identity.row_id("triggers", schedule.tenant_id, names.SCHEDULES, str(schedule.source_id), keep_uuid=False),
        tenant_id=schedule.tenant_id,
        source=SOURCE,
        source_id=schedule.source_id,
        schedule_id=schedule.id,
        kind="cron",
        cron_expression=line,
        cron_dialect=names.CRON_DIALECT,
        timezone=evaluable.zone,
        enabled=schedule.enabled,
        source_spec=jsonb.encode({path: line, "timezone": found.timezone}),
    )


def encode(rows: Rows) -> Document:
    """Return the document of a schedule and its trigger."""
    row: Any = rows[0]
    key, own_id = ids.keys_of(row.source_id)
    trigger: Any = rows[1] if len(rows) > 1 else None
    document = filled(
        _NAMES,
        (
            key,
            row.schema_version,
            own_id,
            row.tenant_id,
            row.name,
            row.enabled,
            None if trigger is None else trigger.cron_expression,
            None if trigger is None else trigger.timezone,
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
        ),
    )
    own = OWN.encode(row)
    if own["status"] == _status(enabled=row.enabled):
        del own["status"]
    document.update(own)
    return document


COLLECTION = Collection(
    name=names.SCHEDULES,
    tables=(Schedule, Trigger),
    decode=decode,
    encode=encode,
    tenant_expression=measures.tenant("$selection.tenantId"),
    measures=(
        measures.flag("enabled", "$enabled", default=True),
        measures.states("mode", "$mode", {"analysisonly": "analysis-only", "contentrefresh": "content-refresh"}),
        measures.span("createdAt", "created_at"),
        measures.span("updatedAt", "updated_at"),
        measures.span("deletedAt", "deleted_at"),
    ),
    attach=attach_extra,
    residue=residue_of,
    known=known_paths(ScheduleDocument) | OWN.keys,
)
