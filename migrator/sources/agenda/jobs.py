"""Job documents: each becomes a schedule, the trigger that makes it fire, and the run that it tells of.

Times say what state a job is in; nothing here looks at the clock: of Agenda's own ``computeJobState`` only the parts
that compare a job with itself. A trigger follows from ``repeatInterval``, else ``repeatAt``, else ``nextRunAt`` alone,
as Agenda itself decides. The run is the one in progress, else the last one. ``respell`` writes the document the way the
library that made it writes.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

from bson.code import Code
from bson.objectid import ObjectId

from migrator import cron, states
from migrator.constraints import most_of
from migrator.cron.agenda import interval_ms
from migrator.records import Run, Schedule, Trigger
from migrator.sources.agenda import variants
from migrator.sources.mapping.language import Reading
from migrator.sources.profile import Context, Document, Note, Rejected, Rows
from migrator.sources.shapes import Shape, choice, indexed, optional_instant
from migrator.values import identity, jsonb
from migrator.values.times import format_iso, parse_iso, to_bson

CRON_DIALECT: Final = "agenda"
"""The library cron-parser: five or six fields."""
AT_DIALECT: Final = "agenda-at"
"""The library date.js: a time of day in words (``3:30pm``)."""
LOCK_LIFETIME: Final = timedelta(minutes=10)
"""Agenda's default; a job's own lifetime stands in the program, not in the document."""
CLAIMED: Final = jsonb.encode({"claimed": True})
"""``metadata`` of a run whose instance has taken the lock and not begun."""

TIMES: Final = ("nextRunAt", "lockedAt", "lastRunAt", "lastFinishedAt", "failedAt")
_TEXTS: Final = ("type", "failReason", "repeatTimezone", "repeatAt", "repeatInterval", "skipDays")
_SPEC: Final = ("repeatInterval", "repeatAt", "skipDays")
_DATES: Final = ("debounceStartedAt", "failedAt", "lastRunAt", "lastFinishedAt")
"""Facts that are text in jsonb and dates in the document."""
_COUNTS: Final = ("fork", "runCount", "finishedCount", "failCount")
_WRITTEN: Final = frozenset({"type", *_COUNTS, "failReason", "progress", *_DATES})
"""Facts that are written under their own names."""
_JOB_TYPES: Final = {word: word for word in ("normal", "single", "once")}
"""``once`` is what a job gets that a program makes without the library's own functions (4, 5, Pulse)."""
_BACKOFFS: Final = {word: word for word in states.RETRY_STRATEGIES}

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_LABEL: Final = 100
"""Characters; the name of a schedule is indexed."""
_LIMIT: Final = 2**63
_MAX_ATTEMPT: Final = most_of("runs.attempt")
_ALL_DIGITS: Final = re.compile(r"\s*[0-9]+(?:\.[0-9]+)?\s*", re.ASCII)


class Backoff(Shape):
    """How Pulse delays a retry; ``delay`` in milliseconds."""

    type: str
    delay: int | float


class Moments(NamedTuple):
    """The times of a job's last run, aware and in UTC; None where absent or null."""

    next_run: datetime | None
    locked: datetime | None
    started: datetime | None
    finished: datetime | None
    failed: datetime | None

    @property
    def ended(self) -> bool:
        """The last run that began has finished."""
        return self.started is not None and self.finished is not None and self.finished >= self.started

    @property
    def claimed(self) -> bool:
        """An instance holds the lock for a run that it has not begun."""
        return self.locked is not None and (self.started is None or self.ended)

    @property
    def last_failed(self) -> bool:
        """Whatever finished last was a failure; a failure sets both times to the same instant."""
        return self.failed is not None and (self.finished is None or self.failed >= self.finished)

    @property
    def run_state(self) -> str | None:
        """The state of the last run; None if there was none.

        One that began, holds no lock and never finished was cut off when its process stopped, which gives the lock
        back.
        """
        if self.locked is not None:
            return "running"
        if not self.ended:
            return None if self.started is None else "cancelled"
        return "error" if self.last_failed else "completed"

    def schedule_status(self, *, disabled: bool, can_fire: bool) -> str:
        """Return the schedule's state: running while locked, paused when disabled, scheduled while it will fire."""
        if self.locked is not None:
            return "running"
        if disabled:
            return "paused"
        if self.next_run is not None:
            return "scheduled" if can_fire else "pending"
        return "failed" if self.last_failed else "completed"


def derive(document: Document, reading: Reading, _context: Context, *, collection: str, keep_uuid: bool) -> None:
    """Fill the columns of a job: its schedule's, then its trigger's and its run's where it has them.

    Raises ``Rejected`` for code, an unknown word, and a number or a date that no column holds.
    """
    for name in _TEXTS:
        if isinstance(document.get(name), Code):
            raise Rejected("wrong-type", name, "text, not code")
    moments = Moments(*[optional_instant(document.get(name), name) for name in TIMES])
    variant = variants.recognise(document)
    trigger = _trigger(document, moments, variant, reading.notes)
    run = _run(document, moments, trigger)
    disabled = document.get("disabled") is True
    status = moments.schedule_status(disabled=disabled, can_fire=trigger is not None)
    facts = _facts(document, moments, run, variant)
    backoff = document.get("backoff")
    name, label = document["name"], _label(document["_id"], reading.tenant, collection, keep_uuid=keep_uuid)
    reading.columns["schedules"] |= {
        "name": f"{indexed(name, 'name')}:{label}",
        "enabled": not disabled,
        "status": status,
        "payload": jsonb.encode(document["data"]) if "data" in document else None,
        "priority": _priority(document.get("priority"), reading.notes),
        "retry_delay_ms": None if backoff is None else _whole(backoff["delay"], "backoff.delay"),
        "retry_strategy": None if backoff is None else choice(backoff["type"], _BACKOFFS, "backoff.type"),
        "metadata": jsonb.encode(facts) if facts else None,
        "schema_version": variant,
        "completed_at": moments.finished if status == "completed" else None,
    }
    if trigger is not None:
        reading.columns["triggers"] |= trigger
    if run is not None:
        reading.columns["runs"] |= run


def _label(key: object, tenant: str, collection: str, *, keep_uuid: bool) -> str:
    """Return an ``_id`` as people read it: the hex digits of an ObjectId, and the row's own id for a long text."""
    if isinstance(key, ObjectId):
        return str(key)
    text = identity.source_id(key)
    if len(text) <= _LONGEST_LABEL:
        return text
    return str(identity.row_id("schedules", tenant, collection, text, keep_uuid=keep_uuid))


def _whole(value: float, path: str) -> int:
    """Return a count of 64 bits; a double loses its fraction (the remainder keeps it)."""
    if not math.isfinite(value) or not -_LIMIT <= value < _LIMIT:
        raise Rejected("out-of-range", path, "a number of 64 bits")
    return int(value)


def _priority(value: float | None, notes: list[Note]) -> int:
    """Return Agenda's priority (lowest -20, normal 0, highest 20) on the target's scale: 50 + 2p, from 0 to 100."""
    if type(value) is float and not math.isfinite(value):
        raise Rejected("wrong-type", "priority", "a finite number")
    scaled = math.floor(50 + 2 * (value or 0))
    if not 0 <= scaled <= 100:  # noqa: PLR2004 - the bounds of the column
        notes.append(Note("clamped-priority", "priority"))
    return max(0, min(100, scaled))


def _trigger(job: Document, moments: Moments, variant: str, notes: list[Note]) -> dict[str, Any] | None:
    """Return the trigger's columns, or None for a job that fires no more and for one that cannot be evaluated."""
    start, end = (_bound(job.get(name), name) for name in ("startDate", "endDate"))
    cause = _cause(job, moments, variant, notes)
    if cause is None:
        return None
    is_empty = start is not None and end is not None and end <= start
    if is_empty:
        notes.append(Note("empty-window", "endDate"))
        start = end = None
    spec = {name: job[name] for name in _SPEC if job.get(name) is not None}
    return {
        **cause,
        "start_at": start,
        "end_at": end,
        # A job whose window is empty never runs; without its dates the trigger would.
        "enabled": job.get("disabled") is not True and not is_empty,
        "last_fire_at": moments.started,
        "source_spec": jsonb.encode(spec) if spec else None,
    }


def _bound(value: object, path: str) -> datetime | None:
    """Return a start or end date, which may also be a number of milliseconds since 1970 (Agenda 4 and 5, Pulse)."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return _EPOCH + timedelta(milliseconds=value)
        except (OverflowError, ValueError):
            raise Rejected("bad-date", path, "a time in the years 1 to 9999") from None
    return optional_instant(value, path)


def _cause(job: Document, moments: Moments, variant: str, notes: list[Note]) -> dict[str, Any] | None:
    """Return the columns of the trigger's kind."""
    interval, at, zone_name = job.get("repeatInterval"), job.get("repeatAt"), job.get("repeatTimezone")
    if not interval and not at:
        if moments.next_run is None:
            return None
        # The slot of a job that is locked has been taken: the run that took it is loaded beside it.
        due = None if moments.claimed else moments.next_run
        return {"kind": "one_time", "run_at": moments.next_run, "next_fire_at": due}
    zone = None
    if zone_name:
        try:
            resolved, is_mapped = cron.zone(zone_name)
        except cron.ZoneError:
            notes.append(Note("unknown-zone", "repeatTimezone"))
            return None
        zone = resolved.key
        if is_mapped:
            notes.append(Note("mapped-zone", "repeatTimezone"))
    kind, fault = _repeating(interval, variant) if interval else (_cron(str(at), AT_DIALECT), "unevaluable-cron")
    if kind is None:
        notes.append(Note(fault, "repeatInterval" if interval else "repeatAt"))
        return None
    return {**kind, "timezone": zone, "next_fire_at": moments.next_run}


def _repeating(given: str | float, variant: str) -> tuple[dict[str, Any] | None, str]:
    """Read an interval: a number of milliseconds, words, or a cron line; return what is wrong with it besides.

    Agenda 4 and 5 and Pulse try it as a cron line before they try it as words; the others let the words win. A text
    of digits is a number of milliseconds to Agenda 6; older ones refuse it.
    """
    if isinstance(given, str) and not (variant == variants.AGENDA_6 and _ALL_DIGITS.fullmatch(given)):
        if variant in (variants.AGENDA_4, variants.PULSE):
            line = _cron(given, CRON_DIALECT)
            if line is not None:
                return line, ""
        milliseconds = interval_ms(given)
        if milliseconds is None:
            return _cron(given, CRON_DIALECT), "unevaluable-cron"
    else:
        milliseconds = interval_ms(float(given))
    if milliseconds is None or milliseconds < 1:
        return None, "unusable-interval"
    return {"kind": "interval", "interval_ms": milliseconds, "anchor": "fixed_rate"}, ""


def _cron(text: str, dialect: str) -> dict[str, Any] | None:
    if not _is_line(text, dialect):
        return None
    return {"kind": "cron", "cron_expression": text, "cron_dialect": dialect}


@lru_cache(maxsize=4_096)
def _is_line(text: str, dialect: str) -> bool:
    """Whether a dialect can evaluate a line; cached, since jobs repeat a few lines."""
    try:
        cron.validate(dialect, text, None)
    except cron.CronError:
        return False
    return True


def _run(job: Document, moments: Moments, trigger: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the run's columns, or None for a job that neither ran nor is locked."""
    state = moments.run_state
    if state is None:
        return None
    begun = moments.locked if moments.claimed else moments.started
    slot = moments.next_run if moments.claimed and trigger is not None else None
    return {
        "attempt": 1 if slot is not None else _attempt(job, state),
        "cause": _run_cause(job, trigger),
        "state": state,
        "scheduled_at": slot,
        "created_at": begun,
        "started_at": begun,
        "finished_at": moments.finished if state in ("completed", "error") else None,
        "lease_expires_at": None if moments.locked is None else _lease_end(moments.locked),
        "stats": None if job.get("progress") is None else jsonb.encode({"progress": job["progress"]}),
        "result": jsonb.encode(job["result"]) if state != "running" and "result" in job else None,
        "error": job.get("failReason") if state == "error" else None,
        "metadata": CLAIMED if moments.claimed else None,
    }


def _lease_end(locked: datetime) -> datetime:
    """Return when a lock of the default lifetime expires."""
    try:
        return locked + LOCK_LIFETIME
    except OverflowError:
        raise Rejected("bad-date", "lockedAt", "a time in the years 1 to 9999") from None


def _repeats(job: Document) -> bool:
    return bool(job.get("repeatInterval") or job.get("repeatAt"))


def _run_cause(job: Document, trigger: Mapping[str, Any] | None) -> str:
    """Say why it ran; what does not repeat was asked for by the program."""
    if trigger is not None and trigger["kind"] != "one_time":
        return str(trigger["kind"])
    return "interval" if _repeats(job) else "api"


def _attempt(job: Document, state: str) -> int | None:
    """Return the number of the attempt, by the failures of a job that runs once; a repeating one counts all of them."""
    failures = job.get("failCount") or 0
    if _repeats(job) or not isinstance(failures, int):
        return None
    attempt = int(failures) if state == "error" else failures + 1
    return attempt if 0 < attempt <= _MAX_ATTEMPT else None


def _facts(job: Document, moments: Moments, run: Mapping[str, Any] | None, variant: str) -> dict[str, Any]:
    """Return the members without a column, under the source's names: facts of the job, and of an older run.

    ``respell`` writes them back; a time is text here and a date there.
    """
    facts: dict[str, Any] = {}
    kind = job.get("type")
    if kind is not None:
        facts["type"] = choice(kind, _JOB_TYPES, "type")
    if variants.is_unique(job):
        facts["unique"] = True
    if variants.put_off(job, variant):
        facts["skipImmediate"] = True
    if job.get("shouldSaveResult"):
        facts["shouldSaveResult"] = True
    for name in _COUNTS if run is not None else (*_COUNTS, "progress"):
        value = job.get(name)
        if value is not None:
            facts[name] = value
    if job.get("failReason") is not None and (run is None or run["state"] != "error"):
        facts["failReason"] = job["failReason"]
    if "result" in job and (run is None or run["state"] == "running"):
        facts["result"] = job["result"]
    _add_times(facts, job, moments, run)
    return facts


def _add_times(facts: dict[str, Any], job: Document, moments: Moments, run: Mapping[str, Any] | None) -> None:
    """Add the times that have no column of their own."""
    debounced = optional_instant(job.get("debounceStartedAt"), "debounceStartedAt")
    if debounced is not None:
        facts["debounceStartedAt"] = format_iso(debounced)
    failed = run is not None and run["state"] == "error"
    if moments.failed is not None and not (failed and moments.failed == moments.finished):
        facts["failedAt"] = format_iso(moments.failed)
    if moments.claimed and moments.started is not None:
        facts["lastRunAt"] = format_iso(moments.started)
    if moments.finished is not None and (run is None or run["finished_at"] is None):
        facts["lastFinishedAt"] = format_iso(moments.finished)


def respell(rows: Rows, document: Document) -> None:
    """Write into the document what ``derive`` read, in the order of the library that made it."""
    by_type: dict[type, Any] = {type(row): row for row in rows}
    schedule: Schedule = by_type[Schedule]
    trigger: Trigger | None = by_type.get(Trigger)
    run: Run | None = by_type.get(Run)
    facts: dict[str, Any] = {} if schedule.metadata is None else jsonb.decode(schedule.metadata)
    key, fields = document["_id"], document.copy()
    _define(fields, schedule, facts)
    if trigger is not None:
        _fire(fields, trigger)
    if run is not None:
        _run_fields(fields, run, facts)
    variant = variants.BY_NAME[schedule.schema_version or variants.HOKIFY]
    repeats = trigger is not None and trigger.kind != "one_time" and trigger.cron_dialect != AT_DIALECT
    fields = variants.completed(fields, variant, facts, repeats=repeats)
    if schedule.payload is not None:
        fields["data"] = jsonb.decode(schedule.payload)
    if run is not None and run.result is not None:
        fields["result"] = jsonb.decode(run.result)
    elif "result" in facts:
        fields["result"] = facts["result"]
    document.clear()
    document["_id"] = key
    for name in variants.order(variant, facts, fields):
        if name in fields:
            document[name] = fields[name]


def _define(fields: Document, schedule: Schedule, facts: Mapping[str, Any]) -> None:
    """Add what the schedule's own columns and its metadata carry."""
    if schedule.priority is not None:
        fields["priority"] = (schedule.priority - 50) // 2
    if not schedule.enabled:
        fields["disabled"] = True
    if schedule.retry_strategy is not None:
        fields["backoff"] = {"type": schedule.retry_strategy, "delay": schedule.retry_delay_ms}
    for name, value in facts.items():
        if value is not None and name in _WRITTEN:
            fields[name] = to_bson(parse_iso(value)) if name in _DATES else value


def _fire(fields: Document, trigger: Trigger) -> None:
    """Add what the trigger carries."""
    if trigger.source_spec is not None:
        spec = jsonb.decode(trigger.source_spec)
        for name in _SPEC:
            if spec.get(name) is not None:
                fields[name] = spec[name]
    due = trigger.run_at if trigger.kind == "one_time" else trigger.next_fire_at
    if due is not None:
        fields["nextRunAt"] = to_bson(due)
    if trigger.timezone is not None:
        fields["repeatTimezone"] = trigger.timezone
    if trigger.start_at is not None:
        fields["startDate"] = to_bson(trigger.start_at)
    if trigger.end_at is not None:
        fields["endDate"] = to_bson(trigger.end_at)


def _run_fields(fields: Document, run: Run, facts: Mapping[str, Any]) -> None:
    """Add what the run carries; an instance that has only taken the lock has not begun it."""
    if run.started_at is not None and (run.metadata is None or "claimed" not in jsonb.decode(run.metadata)):
        fields["lastRunAt"] = to_bson(run.started_at)
    if run.lease_expires_at is not None:
        fields["lockedAt"] = to_bson(run.lease_expires_at - LOCK_LIFETIME)
    if run.finished_at is not None:
        fields["lastFinishedAt"] = to_bson(run.finished_at)
        if run.state == "error":
            if run.error is not None:
                fields["failReason"] = run.error
            if "failedAt" not in facts:
                fields["failedAt"] = fields["lastFinishedAt"]
    if run.stats is not None:
        progress = jsonb.decode(run.stats).get("progress")
        if progress is not None:
            fields["progress"] = progress
