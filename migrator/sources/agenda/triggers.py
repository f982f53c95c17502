"""What makes a job fire: ``repeatInterval``, else ``repeatAt``, else ``nextRunAt`` alone, as Agenda itself decides."""

import re
from typing import Any, Final
from uuid import UUID

from migrator import cron
from migrator.cron.human import interval_ms
from migrator.records import Trigger
from migrator.sources.agenda import names, variants
from migrator.sources.agenda.moments import Moments
from migrator.sources.agenda.origin import Origin
from migrator.sources.agenda.shapes import Job, bound
from migrator.sources.profile import Note
from migrator.values import jsonb

_ALL_DIGITS: Final = re.compile(r"\s*[0-9]+(?:\.[0-9]+)?\s*", re.ASCII)


def trigger_of(
    job: Job, moments: Moments, origin: Origin, schedule_id: UUID, variant: str, notes: list[Note]
) -> Trigger | None:
    """Return the trigger, or None for a job that fires no more and for one whose expression cannot be evaluated."""
    start, end = bound(job.start_date, "startDate"), bound(job.end_date, "endDate")
    cause = _cause(job, moments, variant, notes)
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


def _cause(job: Job, moments: Moments, variant: str, notes: list[Note]) -> dict[str, Any] | None:
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
