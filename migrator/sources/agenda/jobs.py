"""Job documents: each becomes a schedule, the trigger that makes it fire, and the run that it tells of.

Times say what state a job is in; nothing here looks at the clock: of Agenda's own ``computeJobState`` only the parts
that compare a job with itself. A trigger follows from ``repeatInterval``, else ``repeatAt``, else ``nextRunAt`` alone,
as Agenda itself decides. The run is the one in progress, else the last one. ``encode`` writes the document the way the
library that made it writes.
"""

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
from bson.objectid import ObjectId

from migrator import cron
from migrator.cron.agenda import interval_ms
from migrator.records import Record, Run, Schedule, Trigger
from migrator.sources.agenda import names, variants
from migrator.sources.agenda.names import BACKOFFS, JOB_TYPES
from migrator.sources.agenda.origin import Origin, label, origin_of
from migrator.sources.agenda.shapes import Job, bound, refuse_code, whole
from migrator.sources.profile import Context, Decoded, Document, Note, Rejected, Rows
from migrator.sources.shapes import choice, indexed, read
from migrator.values import identity, jsonb
from migrator.values.times import format_iso, parse_iso, to_bson

LOCK_LIFETIME: Final = timedelta(minutes=10)
"""Agenda's default; a job's own lifetime stands in the program, not in the document."""


class Moments(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a job's last run, aware and in UTC; None where absent or null."""

    next_run: datetime | None
    locked: datetime | None
    started: datetime | None
    finished: datetime | None
    failed: datetime | None

    @property
    def ran(self) -> bool:
        """There is something to tell about a run."""
        return self.started is not None or self.locked is not None

    @property
    def ended(self) -> bool:
        """The last run that began has finished."""
        if self.started is None or self.finished is None:
            return False
        return self.finished >= self.started

    @property
    def claimed(self) -> bool:
        """An instance holds the lock for a run that it has not begun."""
        return self.locked is not None and (self.started is None or self.ended)

    @property
    def last_failed(self) -> bool:
        """Whatever finished last was a failure; a failure sets both times to the same instant."""
        return self.failed is not None and (self.finished is None or self.failed >= self.finished)


def moments_of(job: Job) -> Moments:
    """Return the times of a job."""
    return Moments(
        next_run=job.next_run_at,
        locked=job.locked_at,
        started=job.last_run_at,
        finished=job.last_finished_at,
        failed=job.failed_at,
    )


def lease_end(locked: datetime) -> datetime:
    """Return when a lock of the default lifetime expires; raises ``Rejected`` past the last year."""
    try:
        return locked + LOCK_LIFETIME
    except OverflowError:
        raise Rejected("bad-date", "lockedAt", "a time in the years 1 to 9999") from None


def schedule_status(moments: Moments, *, disabled: bool, can_fire: bool) -> str:
    """Return the schedule's state: running while locked, paused when disabled, scheduled while a trigger will fire."""
    if moments.locked is not None:
        return "running"
    if disabled:
        return "paused"
    if moments.next_run is not None:
        return "scheduled" if can_fire else "pending"
    return "failed" if moments.last_failed else "completed"


def run_state(moments: Moments) -> str:
    """Return the state of the last run.

    One that began, holds no lock and never finished was cut off when its process stopped, which gives the lock back.
    """
    if moments.locked is not None:
        return "running"
    if not moments.ended:
        return "cancelled"
    return "error" if moments.last_failed else "completed"


_ALL_DIGITS: Final = re.compile(r"\s*[0-9]+(?:\.[0-9]+)?\s*", re.ASCII)


def trigger_of(
    job: Job, moments: Moments, origin: Origin, schedule_id: UUID, variant: str, notes: list[Note]
) -> Trigger | None:
    """Return the trigger, or None for a job that fires no more and for one whose expression cannot be evaluated."""
    start, end = bound(job.start_date, "startDate"), bound(job.end_date, "endDate")
    cause = _trigger_columns(job, moments, variant, notes)
    if cause is None:
        return None
    empty_window = start is not None and end is not None and end <= start
    if empty_window:
        notes.append(Note("empty-window", "endDate"))
        start = end = None
    spec = _spec(job)
    return Trigger(
        id=origin.key("triggers"),
        tenant_id=origin.tenant_id,
        source=origin.source,
        source_id=origin.source_id,
        schedule_id=schedule_id,
        start_at=start,
        end_at=end,
        # A job whose window is empty never runs; without its dates the trigger would.
        enabled=job.disabled is not True and not empty_window,
        last_fire_at=moments.started,
        source_spec=jsonb.encode(spec) if spec else None,
        **cause,
    )


def _trigger_columns(job: Job, moments: Moments, variant: str, notes: list[Note]) -> dict[str, Any] | None:
    """Return the columns of the trigger's kind."""
    if not job.repeat_interval and not job.repeat_at:
        if moments.next_run is None:
            return None
        # The slot of a job that is locked has been taken: the run that took it is loaded beside it.
        due = None if moments.claimed else moments.next_run
        return {"kind": "one_time", "run_at": moments.next_run, "next_fire_at": due}
    zone, mapped = None, False
    if job.repeat_timezone:
        try:
            found, mapped = cron.zone(job.repeat_timezone)
        except cron.ZoneError:
            notes.append(Note("unknown-zone", "repeatTimezone"))
            return None
        zone = found.key
    if mapped:
        notes.append(Note("mapped-zone", "repeatTimezone"))
    if job.repeat_interval:
        kind = _repeating(job.repeat_interval, variant, notes)
    else:
        kind = _cron(str(job.repeat_at), names.AT_DIALECT)
        if kind is None:
            notes.append(Note("unevaluable-cron", "repeatAt"))
    return None if kind is None else {**kind, "timezone": zone, "next_fire_at": moments.next_run}


def _repeating(given: str | float, variant: str, notes: list[Note]) -> dict[str, Any] | None:
    """Read an interval: a number of milliseconds, words, or a cron line.

    Agenda 4 and 5 and Pulse try it as a cron line before they try it as words; the others let the words win.
    """
    if isinstance(given, str) and not _is_milliseconds(given, variant):
        if variant in (variants.AGENDA_4, variants.PULSE):
            line = _cron(given, names.CRON_DIALECT)
            if line is not None:
                return line
        milliseconds = interval_ms(given)
        if milliseconds is None:
            line = _cron(given, names.CRON_DIALECT)
            if line is None:
                notes.append(Note("unevaluable-cron", "repeatInterval"))
            return line
    else:
        milliseconds = interval_ms(float(given))
    if milliseconds is None or milliseconds < 1:
        notes.append(Note("unusable-interval", "repeatInterval"))
        return None
    return {"kind": "interval", "interval_ms": milliseconds, "anchor": "fixed_rate"}


def _is_milliseconds(interval: str, variant: str) -> bool:
    """Tell whether a text of digits is a number of milliseconds, as Agenda 6 reads it; older ones refuse it."""
    return variant == variants.AGENDA_6 and _ALL_DIGITS.fullmatch(interval) is not None


def _cron(text: str, dialect: str) -> dict[str, Any] | None:
    try:
        cron.validate(dialect, text, None)
    except cron.CronError:
        return None
    return {"kind": "cron", "cron_expression": text, "cron_dialect": dialect}


def _spec(job: Job) -> dict[str, Any]:
    """Return the expression as the source spells it; days to skip have no column."""
    spec = {"repeatInterval": job.repeat_interval, "repeatAt": job.repeat_at, "skipDays": job.skip_days}
    return {name: value for name, value in spec.items() if value is not None}


_MILLISECOND: Final = timedelta(milliseconds=1)
_MAX_ATTEMPT: Final = 2**31 - 1
CLAIMED: Final = jsonb.encode({"claimed": True})
"""``metadata`` of a run whose instance has taken the lock and not begun."""


def run_of(
    job: Job, document: Document, moments: Moments, origin: Origin, schedule_id: UUID, trigger: Trigger | None
) -> Run | None:
    """Return the run, or None for a job that neither ran nor is locked."""
    begun = moments.locked if moments.claimed else moments.started
    if begun is None:
        return None
    state = run_state(moments)
    finished = moments.finished if state in ("completed", "error") else None
    slot = moments.next_run if moments.claimed and trigger is not None else None
    return Run(
        id=origin.key("runs"),
        tenant_id=origin.tenant_id,
        source=origin.source,
        source_id=origin.source_id,
        schedule_id=schedule_id,
        trigger_id=None if trigger is None else trigger.id,
        attempt=1 if slot is not None else _attempt(job, state),
        cause=_run_cause(job, trigger),
        state=state,
        scheduled_at=slot,
        created_at=begun,
        started_at=begun,
        finished_at=finished,
        duration_ms=None if finished is None else (finished - begun) // _MILLISECOND,
        worker_id=job.last_modified_by,
        lease_expires_at=None if moments.locked is None else lease_end(moments.locked),
        stats=None if job.progress is None else jsonb.encode({"progress": job.progress}),
        result=jsonb.encode(job.result) if state != "running" and "result" in document else None,
        error=job.fail_reason if state == "error" else None,
        metadata=CLAIMED if moments.claimed else None,
    )


def _run_cause(job: Job, trigger: Trigger | None) -> str:
    """Say why it ran; what does not repeat was asked for by the program."""
    if trigger is not None and trigger.kind != "one_time":
        return trigger.kind
    return "interval" if job.repeat_interval or job.repeat_at else "api"


def _attempt(job: Job, state: str) -> int | None:
    """Return the number of the attempt, by the failures of a job that runs once; a repeating one counts all of them."""
    if job.repeat_interval or job.repeat_at or not isinstance(job.fail_count or 0, int):
        return None
    failures = int(job.fail_count or 0)
    attempt = failures if state == "error" else failures + 1
    return attempt if 0 < attempt <= _MAX_ATTEMPT else None


_MIDDLE: Final = 50
_TOP: Final = 100


def decode(document: Document, context: Context, *, collection: str, keep_uuid: bool) -> Decoded:
    """Return the rows of a job: its schedule, then its trigger and its run where it has them.

    Raises ``Rejected`` for a wrong type, an unknown word, a date that is none, and without a tenant.
    """
    refuse_code(document)
    job = read(document, Job)
    origin = origin_of(job.key, context, collection, keep_uuid=keep_uuid)
    notes: list[Note] = []
    moments = moments_of(job)
    variant = variants.recognise(document)
    key = origin.key("schedules")
    trigger = trigger_of(job, moments, origin, key, variant, notes)
    run = run_of(job, document, moments, origin, key, trigger)
    disabled = job.disabled is True
    status = schedule_status(moments, disabled=disabled, can_fire=trigger is not None)
    facts = _facts(job, document, moments, run, variant)
    schedule = Schedule(
        id=key,
        tenant_id=origin.tenant_id,
        source=origin.source,
        source_id=origin.source_id,
        name=f"{indexed(job.name, 'name')}:{label(job.key, origin)}",
        enabled=not disabled,
        status=status,
        handler_name=job.name,
        handler_type="function",
        payload=jsonb.encode(job.data) if "data" in document else None,
        priority=_priority(job.priority, notes),
        max_retries=job.attempts,
        retry_delay_ms=None if job.backoff is None else whole(job.backoff.delay, "backoff.delay"),
        retry_strategy=None if job.backoff is None else choice(job.backoff.type, BACKOFFS, "backoff.type"),
        metadata=jsonb.encode(facts) if facts else None,
        schema_version=variant,
        created_at=_created(job.key),
        updated_by=job.last_modified_by,
        completed_at=moments.finished if status == "completed" else None,
    )
    rows: tuple[Record | None, ...] = (schedule, trigger, run)
    return Decoded(tuple(row for row in rows if row is not None), tuple(notes))


def _priority(value: float | None, notes: list[Note]) -> int:
    """Return Agenda's priority (lowest -20, normal 0, highest 20) on the target's scale: 50 + 2p, from 0 to 100."""
    if value is None:
        return _MIDDLE
    if not math.isfinite(value):
        raise Rejected("wrong-type", "priority", "a finite number")
    scaled = math.floor(_MIDDLE + 2 * value)
    if not 0 <= scaled <= _TOP:
        notes.append(Note("clamped-priority", "priority"))
    return max(0, min(_TOP, scaled))


def _created(key: object) -> datetime | None:
    """Return when the id was made, the only trace of when the job was."""
    return key.generation_time.astimezone(UTC) if isinstance(key, ObjectId) else None


def _facts(job: Job, document: Document, moments: Moments, run: Run | None, variant: str) -> dict[str, Any]:
    """Return what has no column of its own, under the source's names: facts of the job, and of an older run.

    ``encode`` writes them back; a time is text here and a date there.
    """
    failed = run is not None and run.state == "error"
    implied = failed and moments.failed == moments.finished
    facts: dict[str, Any] = {
        "type": None if job.type is None else choice(job.type, JOB_TYPES, "type"),
        "unique": variants.is_unique(document) or None,
        "skipImmediate": variants.put_off(document, variant) or None,
        "shouldSaveResult": job.should_save_result or None,
        "fork": job.fork,
        "debounceStartedAt": _text(job.debounce_started_at),
        "runCount": job.run_count,
        "finishedCount": job.finished_count,
        "failCount": job.fail_count,
        "failReason": None if failed else job.fail_reason,
        "failedAt": None if implied else _text(moments.failed),
        "lastRunAt": _text(moments.started) if moments.claimed else None,
        "lastFinishedAt": _text(moments.finished) if run is None or run.finished_at is None else None,
        "progress": job.progress if run is None else None,
    }
    facts = {name: value for name, value in facts.items() if value is not None}
    if "result" in document and (run is None or run.state == "running"):
        facts["result"] = job.result
    return facts


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else format_iso(moment)


_DATES: Final = ("debounceStartedAt", "failedAt", "lastRunAt", "lastFinishedAt")
"""Facts that are text in jsonb and dates in the document."""
_PLAIN: Final = ("type", "fork", "runCount", "finishedCount", "failCount", "failReason", "progress")
_SPEC: Final = ("repeatInterval", "repeatAt", "skipDays")


def encode(rows: Rows) -> Document:
    """Return the job document as far as the rows carry it."""
    schedule = next(row for row in rows if isinstance(row, Schedule))
    trigger = next((row for row in rows if isinstance(row, Trigger)), None)
    run = next((row for row in rows if isinstance(row, Run)), None)
    facts: dict[str, Any] = {} if schedule.metadata is None else jsonb.decode(schedule.metadata)
    fields = _definition(schedule)
    fields.update(_remembered(facts))
    if trigger is not None:
        fields.update(_firing(trigger))
    if run is not None:
        fields.update(_running(run, facts))
    fields = {name: value for name, value in fields.items() if value is not None}
    variant = variants.BY_NAME[schedule.schema_version or variants.HOKIFY]
    _complete(fields, variant, facts, repeats=trigger is not None and _repeats(trigger))
    _add_nullable(fields, schedule, run, facts)
    order = variants.order(variant.name, _form(facts), _set_first(fields, variant), never_run="skipImmediate" in facts)
    document: Document = {"_id": identity.parse_source_id(str(schedule.source_id))}
    document.update((name, fields[name]) for name in order if name in fields)
    return document


def _definition(schedule: Schedule) -> Document:
    """Return what the schedule's own columns carry."""
    return {
        "name": schedule.handler_name,
        "priority": None if schedule.priority is None else (schedule.priority - 50) // 2,
        "lastModifiedBy": schedule.updated_by,
        "disabled": None if schedule.enabled else True,
        "attempts": schedule.max_retries,
        "backoff": None
        if schedule.retry_strategy is None
        else {"type": schedule.retry_strategy, "delay": schedule.retry_delay_ms},
    }


def _remembered(facts: dict[str, Any]) -> Document:
    """Return what the schedule's metadata carries."""
    fields: Document = {name: facts[name] for name in _PLAIN if name in facts}
    fields.update((name, to_bson(parse_iso(facts[name]))) for name in _DATES if name in facts)
    return fields


def _firing(trigger: Trigger) -> Document:
    """Return what the trigger carries."""
    spec = {} if trigger.source_spec is None else jsonb.decode(trigger.source_spec)
    due = trigger.run_at if trigger.kind == "one_time" else trigger.next_fire_at
    return {
        **{name: spec.get(name) for name in _SPEC},
        "nextRunAt": None if due is None else to_bson(due),
        "repeatTimezone": trigger.timezone,
        "startDate": None if trigger.start_at is None else to_bson(trigger.start_at),
        "endDate": None if trigger.end_at is None else to_bson(trigger.end_at),
    }


def _running(run: Run, facts: dict[str, Any]) -> Document:
    """Return what the run carries; an instance that has only taken the lock has not begun it."""
    fields: Document = {}
    claimed = run.metadata is not None and "claimed" in jsonb.decode(run.metadata)
    if run.started_at is not None and not claimed:
        fields["lastRunAt"] = to_bson(run.started_at)
    if run.lease_expires_at is not None:
        fields["lockedAt"] = to_bson(run.lease_expires_at - LOCK_LIFETIME)
    if run.finished_at is not None:
        fields["lastFinishedAt"] = to_bson(run.finished_at)
        if run.state == "error":
            fields["failReason"] = run.error
            if "failedAt" not in facts:
                fields["failedAt"] = fields["lastFinishedAt"]
    if run.stats is not None:
        fields["progress"] = jsonb.decode(run.stats).get("progress")
    return fields


def _complete(fields: Document, variant: variants.Variant, facts: dict[str, Any], *, repeats: bool) -> None:
    """Add the fields that the library writes even where there is nothing to say."""
    if variant.saves_result:
        fields["shouldSaveResult"] = facts.get("shouldSaveResult", False)
    for name in variant.always:
        fields.setdefault(name, None)
    if repeats:
        for name in variant.repeating:
            fields.setdefault(name, None)
    if "lastRunAt" in fields and fields["lastRunAt"] is not None:
        for name in variant.started:
            fields.setdefault(name, None)
    if "skipImmediate" in facts:
        fields.setdefault("lastRunAt", None)


def _add_nullable(fields: Document, schedule: Schedule, run: Run | None, facts: dict[str, Any]) -> None:
    """Add what may hold anything, null included: what the program gave and what it returned."""
    if schedule.payload is not None:
        fields["data"] = jsonb.decode(schedule.payload)
    if run is not None and run.result is not None:
        fields["result"] = jsonb.decode(run.result)
    elif "result" in facts:
        fields["result"] = facts["result"]


def _repeats(trigger: Trigger) -> bool:
    return trigger.kind != "one_time" and trigger.cron_dialect != names.AT_DIALECT


def _form(facts: dict[str, Any]) -> variants.Form:
    if facts.get("type") == "single":
        return "single"
    return "unique" if "unique" in facts else "created"


def _set_first(fields: Document, variant: variants.Variant) -> tuple[str, ...]:
    """Return what a program sets on a job before it saves it, where that decides the order."""
    if not variant.completes:
        return ()
    repeat = ("repeatInterval", "repeatTimezone") if fields.get("repeatInterval") is not None else ()
    single = tuple(name for name in ("repeatAt", "disabled") if fields.get(name) is not None)
    return (*repeat, *single)
