"""The next fires of documents as the tool computes them, of the trigger that it makes for the schema ``scheduler``.

A library is asked for the fires of the documents too. A fault of its rules would be the same on both sides. Here
pickles are read as data, and ``migrator.cron`` evaluates cron lines.

A document that makes no such trigger has no fires here: a calendar interval, a combination with an interval or a date,
an interval that is no whole number of milliseconds.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import count, islice, takewhile
from typing import Any, Final

import msgspec

from migrator import cron
from migrator.parity.firing_rules import FiringRule, decoded_rule
from migrator.sources import described_profile
from migrator.sources.apscheduler4 import payloads
from migrator.sources.profile import Context, Document, Rejected, Skipped
from migrator.sources.tenants import NO_TENANT
from migrator.targets.library import Line
from migrator.targets.quartz_documents import Window

_SECOND: Final = timedelta(seconds=1)
_SET_BACK: Final = timedelta(hours=3)
"""More than a clock is set forward or back."""
_CUT: Final = "empty-window"
"""The note about bounds that the trigger of the tool has not."""


class _Way(msgspec.Struct, frozen=True, kw_only=True):
    """How the fires of a source's documents are computed."""

    collection: str
    entry: Callable[[Document], str]
    """Returns the id by which the library lists the entry of a document in PostgreSQL."""
    fires: Callable[[Document, FiringRule, Window, int], list[datetime] | None]
    """Returns the first fires in a window; None where the rule says too little."""


def document_fires(
    source: str,
    zone: str | None,
    documents: Callable[[str], Iterator[Document]],
    windows: Sequence[Window],
    limit: int,
) -> Iterator[Line]:
    """Yield the fires of the documents of a source in each window, as ``fires`` of a probe.

    ``zone``: that of cron lines which name none. Nothing is yielded of a source whose documents are not read here.
    """
    way = _WAYS.get(source)
    if way is None:
        return
    collection = described_profile(source).by_name()[way.collection]
    context = Context(as_of=windows[0][0], default_tenant=NO_TENANT, zone=zone)
    for document in documents(way.collection):
        try:
            decoded = collection.decode(document, context)
            rule = decoded_rule(decoded.rows)
            if rule is None or any(note.kind == _CUT for note in decoded.notes):
                continue
            in_windows = [(window, way.fires(document, rule, window, limit)) for window in windows]
        except (Rejected, Skipped):
            continue
        for window, fires in in_windows:
            if fires is not None:
                listed = [fire.isoformat(timespec="microseconds") for fire in fires]
                yield {"kind": "fires", "id": way.entry(document), "window": [*window], "fires": listed}


def _bounded(fires: Iterator[datetime], rule: FiringRule, window: Window, limit: int) -> list[datetime]:
    """Return the fires in a window, up to the last one that the rule allows."""
    begin, end = window
    last = rule.end_at
    within = takewhile(lambda fire: fire < end and (last is None or fire <= last), fires)
    return [*islice((fire for fire in within if fire >= begin), limit)]


def _of_line(rule: FiringRule, after: datetime, window: Window, limit: int) -> list[datetime]:
    """Return the fires of a cron line after an instant."""
    fires = cron.next_fires(rule.dialect or "", rule.expression or "", rule.zone, after, limit)
    return _bounded(iter(fires), rule, window, limit)


@lru_cache(maxsize=4_096)
def _apscheduler(rule: FiringRule, window: Window, limit: int) -> list[datetime] | None:
    """Return the fires of a rule of APScheduler 3, which searches from the later of begin and start on."""
    begin = window[0]
    first = begin if rule.start_at is None else max(begin, rule.start_at)
    if rule.kind == "cron":
        whole = first if not first.microsecond else first.replace(microsecond=0) + _SECOND
        return _of_line(rule, whole - _SECOND, window, limit)
    if rule.kind == "one_time":
        return [] if rule.run_at is None else _bounded(iter((rule.run_at,)), rule, window, limit)
    if rule.start_at is None or rule.interval_ms is None:
        return None
    return _bounded(_stepped(rule.start_at, rule.interval_ms / 1_000, begin), rule, window, limit)


def _stepped(start: datetime, step: float, begin: datetime) -> Iterator[datetime]:
    """Yield instants a number of seconds apart, from ``begin`` on, in doubles as the library counts them."""
    number = max(0, math.ceil((begin.timestamp() - start.timestamp()) / step))
    fire = datetime.fromtimestamp(start.timestamp() + step * number, UTC)
    while True:
        yield fire
        fire = datetime.fromtimestamp(fire.timestamp() + step, UTC)


def _of_schedule(document: Document, rule: FiringRule, window: Window, limit: int) -> list[datetime] | None:
    """Return the fires of a schedule of APScheduler 4: those after the last fire that its trigger remembers.

    It adds an interval to what the clock of the zone shows, so that a day of 23 hours counts as one of 24.
    """
    place = payloads.place_of(document)
    if place is None:
        return None
    if rule.kind == "one_time":
        fires = () if place.is_over or rule.run_at is None else (rule.run_at,)
        return _bounded(iter(fires), rule, window, limit)
    if place.last is None or (rule.kind == "cron" and place.last.microsecond):
        return None
    if rule.kind == "cron":
        return _of_line(rule, max(place.last.astimezone(UTC), window[0] - _SECOND), window, limit)
    step = timedelta(milliseconds=rule.interval_ms or 0)
    return None if step < _SECOND else _bounded(_on_the_clock(place.last, step, window[0]), rule, window, limit)


def _on_the_clock(last: datetime, step: timedelta, begin: datetime) -> Iterator[datetime]:
    """Yield the instants a number of steps after ``last`` by the clock of its zone, from before ``begin`` on."""
    elapsed = begin.astimezone(last.tzinfo) - last  # by that clock too
    first = max(1, (elapsed - _SET_BACK) // step)
    return ((last + step * number).astimezone(UTC) for number in count(first))


@lru_cache(maxsize=4_096)
def _beat(rule: FiringRule, window: Window, limit: int) -> list[datetime] | None:
    """Return the fires of a task as if it had run when the window begins, and again at each fire."""
    begin = window[0]
    unbounded = msgspec.structs.replace(rule, start_at=None, end_at=None)  # beat heeds them, and its schedules do not
    if rule.kind == "cron":
        return _of_line(unbounded, begin, window, limit)
    step = timedelta(milliseconds=rule.interval_ms or 1)
    return _bounded((begin + step * number for number in range(1, limit + 1)), unbounded, window, limit)


_WAYS: Final[Mapping[str, _Way]] = {
    "apscheduler": _Way(
        collection="jobs",
        entry=lambda document: str(document["_id"]),
        fires=lambda _, rule, window, limit: _apscheduler(rule, window, limit),
    ),
    "apscheduler4": _Way(
        collection="schedules", entry=lambda document: f"schedule {document['_id']}", fires=_of_schedule
    ),
    "celerybeat": _Way(
        collection="schedules",
        entry=lambda document: str(document["name"]),
        fires=lambda _, rule, window, limit: _beat(rule, window, limit),
    ),
}
"""Source → how the fires of its documents are computed."""


def zone_of(options: Mapping[str, Any]) -> str | None:
    """Return the zone of cron lines that name none, which the user of a target was asked for; None if not."""
    zone = options.get("timezone")
    return zone if isinstance(zone, str) else None
