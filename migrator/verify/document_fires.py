"""The next fires of documents as the tool computes them, without the library of their application.

A library is asked for the fires of the documents too, where it reads them. A fault of its rules would be the same on
both sides. Here documents are read as data, and ``migrator.cron`` evaluates cron lines. ``document_fires`` computes as
the probe of the library is asked to (``fires`` in ``migrator/targets/probes``), and returns the lines that it prints.

A document whose rule says too little, or something that is not evaluated here, has no line.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import count, islice, takewhile
from typing import Any, Final, TypeAlias

import msgspec

from migrator import cron
from migrator.cron import CronError, agenda
from migrator.parity.firing_rules import FiringRule, decoded_rule
from migrator.sources import described_profile
from migrator.sources.profile import Context, Document, Rejected, Skipped
from migrator.sources.tenants import NO_TENANT
from migrator.targets import quartz_documents
from migrator.targets.library import Line
from migrator.targets.library_rules import RULES
from migrator.targets.quartz_documents import Window
from migrator.verify import apscheduler_fires
from migrator.verify.apscheduler_fires import UncomputableError

Documents: TypeAlias = Callable[[str], Iterator[Document]]
"""Collection, by its name in the profile → its documents that have rows."""
Fires: TypeAlias = Callable[[Document, Sequence[Window], int], list[list[datetime]]]
"""(document, windows, limit) → the first fires in each window, aware."""

_MILLISECOND: Final = timedelta(milliseconds=1)
_DAY: Final = timedelta(days=1)
_WEEK: Final = 7


def document_fires(
    source: str, zone: str | None, documents: Documents, windows: Sequence[Window], limit: int
) -> Iterator[Line]:
    """Yield the fires of the documents of a source in each window, as ``fires`` of a probe.

    ``zone``: that of cron lines which name none. Nothing is yielded of a source whose documents are not read here.
    """
    match source:
        case "apscheduler":
            fires = apscheduler_fires.job_fires
            yield from _lines(documents("jobs"), fires, _text_of_id, _in_microseconds, windows, limit)
        case "apscheduler4":
            fires = apscheduler_fires.schedule_fires
            yield from _lines(documents("schedules"), fires, _id_of_schedule, _in_microseconds, windows, limit)
        case "agenda":
            for name in ("agendaJobs", "pulseJobs"):
                yield from _lines(documents(name), _agenda_fires, _uuid_of_id, _in_milliseconds, windows, limit)
        case "celerybeat":
            fires = partial(_beat_fires, zone)
            yield from _lines(documents("schedules"), fires, _name_of_task, _in_microseconds, windows, limit)
        case "quartz":
            yield from quartz_documents.fires_of(documents, windows, limit)


def _lines(
    documents: Iterator[Document],
    fires_of: Fires,
    entry: Callable[[Document], str],
    text: Callable[[datetime], str],
    windows: Sequence[Window],
    limit: int,
) -> Iterator[Line]:
    """Yield the lines of documents; ``entry`` gives the id by which the library lists one in PostgreSQL."""
    for document in documents:
        try:
            listed = fires_of(document, windows, limit)
        except (Rejected, Skipped, CronError, UncomputableError, ValueError, OverflowError):
            continue
        for window, fires in zip(windows, listed, strict=True):
            yield {"kind": "fires", "id": entry(document), "window": [*window], "fires": [*map(text, fires)]}


def _text_of_id(document: Document) -> str:
    return str(document["_id"])


def _id_of_schedule(document: Document) -> str:
    return f"schedule {document['_id']}"


def _uuid_of_id(document: Document) -> str:
    return RULES["agenda"].key(str(document["_id"]))


def _name_of_task(document: Document) -> str:
    return str(document["name"])


def _in_microseconds(fire: datetime) -> str:
    return fire.astimezone(UTC).isoformat(timespec="microseconds")


def _in_milliseconds(fire: datetime) -> str:
    """Return a time as JavaScript writes it."""
    return fire.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


# Agenda, of the release that has a backend for PostgreSQL, which reads the documents of all releases


class _Recurrence(msgspec.Struct, frozen=True):
    """When a job of Agenda recurs."""

    interval: str
    """Words, milliseconds or a cron line."""
    zone: str | None
    start: datetime | None
    end: datetime | None
    skipped: frozenset[int]
    """Days of the week, from 0 for Sunday."""


def _agenda_fires(document: Document, windows: Sequence[Window], limit: int) -> list[list[datetime]]:
    interval, at = document.get("repeatInterval"), document.get("repeatAt")
    if not interval and at:
        raise UncomputableError  # read by the clock of the moment at which it is asked
    if not interval:
        due = _date_of(document.get("nextRunAt"))
        return [[due] if due is not None and begin <= due <= end else [] for begin, end in windows]
    days = document.get("skipDays") or []
    if not isinstance(interval, str | int | float) or not isinstance(days, list):
        raise UncomputableError
    if not all(isinstance(day, int | float) for day in days) or len({*days}) < len(days):
        raise UncomputableError  # the library counts them, and a text is one that contains digits
    recurrence = _Recurrence(
        interval=str(interval),
        zone=document.get("repeatTimezone") or None,
        start=_date_of(document.get("startDate")),
        end=_date_of(document.get("endDate")),
        skipped=frozenset(days),
    )
    return [_recurrent(recurrence, window, limit) for window in windows]


def _date_of(value: object) -> datetime | None:
    if value is not None and not isinstance(value, datetime):
        raise UncomputableError  # a number, or a date that Python has not
    return None if value is None else value.replace(tzinfo=UTC)


@lru_cache(maxsize=4_096)
def _recurrent(recurrence: _Recurrence, window: Window, limit: int) -> list[datetime]:
    """Return the fires of a job that has run when the window begins, and again at each fire, up to its end.

    A fire that the bounds or the days to skip have moved is what the next one is counted from.
    """
    last, end = window
    fires: list[datetime] = []
    following = _unbounded(recurrence, last)
    while len(fires) < limit and (fire := next(following, None)) is not None:
        moved = _moved(recurrence, fire)
        if moved is None or moved > end:
            break
        fires.append(moved)
        if moved != fire:
            following = _unbounded(recurrence, moved)
    return fires


def _unbounded(recurrence: _Recurrence, last: datetime) -> Iterator[datetime]:
    """Yield the fires after one, without bounds."""
    text = recurrence.interval
    length = agenda.interval_ms(float(text) if _is_number(text) else text)
    if length is None:
        return cron.fires_after("agenda", text, recurrence.zone, last)
    if length <= 0:
        raise UncomputableError  # the library computes no fire that is later
    return (last + length * number * _MILLISECOND for number in count(1))


def _moved(recurrence: _Recurrence, fire: datetime) -> datetime | None:
    """Return a fire within the bounds of a job, on a day that it does not skip; None: the job has ended."""
    if recurrence.start is not None and fire < recurrence.start:
        fire = recurrence.start
    if recurrence.skipped:
        place = cron.zone(recurrence.zone or "UTC")[0]
        shown = fire.astimezone(place)
        for _ in range(_WEEK):
            if shown.isoweekday() % _WEEK not in recurrence.skipped:
                break
            shown = (shown + _DAY).replace(fold=0).astimezone(UTC).astimezone(place)
        else:
            return None
        fire = shown.astimezone(UTC)
    return None if recurrence.end is not None and fire > recurrence.end else fire


_is_number = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII).fullmatch
"""Whether Agenda takes a text for a number of milliseconds."""


# celerybeat-mongo


def _beat_fires(zone: str | None, document: Document, windows: Sequence[Window], limit: int) -> list[list[datetime]]:
    """Return the fires of a task as if it had run when a window begins, and again at each fire."""
    collection = described_profile("celerybeat").by_name()["schedules"]
    context = Context(as_of=windows[0][0], default_tenant=NO_TENANT, zone=zone)
    rule = decoded_rule(collection.decode(document, context).rows)
    if rule is None:
        raise UncomputableError
    return [_of_rule(rule, window, limit) for window in windows]


@lru_cache(maxsize=4_096)
def _of_rule(rule: FiringRule, window: Window, limit: int) -> list[datetime]:
    """Return the fires of a rule without its bounds: beat heeds them, and its schedules do not."""
    begin, end = window
    if rule.kind == "cron":
        fires = cron.fires_after(rule.dialect or "", rule.expression or "", rule.zone, begin)
    else:
        step = timedelta(milliseconds=rule.interval_ms or 1)
        fires = (begin + step * number for number in range(1, limit + 1))
    return [*islice(takewhile(lambda fire: fire < end, fires), limit)]


def zone_of(options: Mapping[str, Any]) -> str | None:
    """Return the zone of cron lines that name none, which the user of a target was asked for; None if not."""
    zone = options.get("timezone")
    return zone if isinstance(zone, str) else None
