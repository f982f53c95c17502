"""What Quartz would say of documents of quartz-mongodb, in the lines that its probe prints of the tables.

The library has no store in MongoDB. So the rule of a document is read here with code of its own, and not by the mapping
that made the rows: cron lines by the engine of ``migrator.cron``, the other triggers as their classes compute.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, count, islice, takewhile
from typing import Any, Final, TypeAlias

from migrator.cron import next_fires
from migrator.targets.library import Line

Document: TypeAlias = Mapping[str, Any]
Documents: TypeAlias = Callable[[str], Iterable[Document]]
"""Collection, by its name in the profile → its documents that have rows."""
Window: TypeAlias = tuple[datetime, datetime]

STATES: Final = {
    "waiting": "NORMAL",
    "blocked": "NORMAL",  # by a run of a scheduler that does not run here
    "paused": "PAUSED",
    "pausedBlocked": "PAUSED",
    "complete": "COMPLETE",
    "error": "ERROR",
    "deleted": "NONE",
}
_SECONDS: Final = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400, "WEEK": 604_800}
_MONTHS: Final = {"MONTH": 1, "YEAR": 12}
_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)


def entries_of(documents: Documents) -> Iterator[Line]:
    """Return a line for each job, trigger, calendar and paused group."""
    names = {}
    for job in documents("quartz_jobs"):
        names[job["_id"]] = name = _name(job)
        fields = {
            "durable": job.get("durability") is True,
            "recovery": job.get("requestsRecovery") is True,
            "description": str(job.get("jobDescription") or "null"),
        }
        yield _entry(f"job:{name}", None, fields)
    for trigger in documents("quartz_triggers"):
        yield _entry(f"trigger:{_name(trigger)}", trigger.get("nextFireTime"), _fields(trigger, names))
    for calendar in documents("quartz_calendars"):
        yield _entry(f"calendar:{calendar['name']}", None, {})
    for group in documents("quartz_paused_trigger_groups"):
        yield _entry(f"paused:{group['keyGroup']}", None, {})


def _name(document: Document) -> str:
    return f"{document['keyGroup']}.{document['keyName']}"


def _entry(key: str, due: datetime | None, fields: Line) -> Line:
    return {"kind": "entry", "id": key, "due": _text(due), "fields": fields}


def _text(time: datetime | None) -> str | None:
    """Return an instant as Java writes it; dates of a document are naive, in UTC."""
    if time is None:
        return None
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds").removesuffix(".000") + "Z"


def _kind(trigger: Document) -> str:
    return str(trigger["class"]).rpartition(".")[2].removesuffix("TriggerImpl")


def _fields(trigger: Document, jobs: Mapping[Any, str]) -> Line:
    kind = _kind(trigger)
    fields = {
        "class": f"{kind}TriggerImpl",
        "job": jobs.get(trigger["jobId"]),
        "state": STATES.get(trigger["state"], trigger["state"]),
        "priority": trigger["priority"],
        "misfire": trigger["misfireInstruction"],
        "description": trigger.get("description"),
        "start": _text(_start(trigger)),
        "end": _text(trigger.get("endTime")),
        "previous": _text(trigger.get("previousFireTime")),
        "calendar": trigger.get("calendarName"),
    }
    if kind == "Cron":
        return fields | {"line": trigger["cronExpression"].upper(), "zone": trigger["timezone"]}
    fields["interval"] = trigger["repeatInterval"]
    if kind == "Simple":
        return fields | {"count": trigger["repeatCount"], "times": trigger["timesTriggered"]}
    fields["unit"] = trigger["repeatIntervalUnit"]
    if kind == "CalendarInterval":
        return fields | {"times": trigger["timesTriggered"]}
    days = ", ".join(str(day) for day in sorted(trigger["daysOfWeek"]))
    span = {"from": _clock(trigger["startTimeOfDay"]), "to": _clock(trigger["endTimeOfDay"])}
    return fields | {"days": f"[{days}]", **span}


def _start(trigger: Document) -> datetime:
    start: datetime = trigger["startTime"]
    return start.replace(microsecond=0) if _kind(trigger) == "Cron" else start


def _clock(time: Document) -> str:
    return f"{time['hour']}:{time['minute']}:{time['second']}"


def fires_of(documents: Documents, windows: Sequence[Window], limit: int) -> Iterator[Line]:
    """Return the fires of each trigger in each window, as ``fires`` of the probe.

    Left out: a trigger with a calendar, which is a serialized object of Java, and a daily one with an end.
    """
    for trigger in documents("quartz_triggers"):
        rule = _RULES[_kind(trigger)]
        if trigger.get("calendarName") is not None or (rule is _daily and trigger.get("endTime") is not None):
            continue
        for begin, end in windows:
            within = takewhile(lambda time, end=end: time < end, rule(trigger, begin))  # type: ignore[misc]  # of a window
            fires = [_text(time) for time in islice(within, limit)]
            yield {"kind": "fires", "id": f"trigger:{_name(trigger)}", "window": [begin, end], "fires": fires}


def _aware(time: datetime | None) -> datetime:
    return datetime.max.replace(tzinfo=UTC) if time is None else time.replace(tzinfo=UTC)


def _cron(trigger: Document, begin: datetime) -> Iterator[datetime]:
    last, time = _aware(trigger.get("endTime")), max(begin, _aware(_start(trigger))) - _SECOND
    while fires := next_fires("quartz", trigger["cronExpression"], trigger["timezone"], time, 100):
        yield from takewhile(lambda fire: fire <= last, fires)
        if (time := fires[-1]) > last:
            return


def _stepped(trigger: Document, begin: datetime, step: timedelta, most: int = -1) -> Iterator[datetime]:
    """Return the times from the start on, a step apart, before the end; ``most``: so many after the first."""
    start, end = _aware(_start(trigger)), _aware(trigger.get("endTime"))
    if not step:
        return (time for time in (start,) if begin <= time < end)
    first = max(0, -((start - begin) // step))
    numbers = count(first) if most < 0 else range(first, most + 1)
    return takewhile(lambda time: time < end, (start + number * step for number in numbers))


def _simple(trigger: Document, begin: datetime) -> Iterator[datetime]:
    most = trigger["repeatCount"]
    if trigger["timesTriggered"] > most >= 0:
        return iter(())
    return _stepped(trigger, begin, timedelta(milliseconds=trigger["repeatInterval"]), most)


def _calendar(trigger: Document, begin: datetime) -> Iterator[datetime]:
    unit, interval = trigger["repeatIntervalUnit"], trigger["repeatInterval"]
    if unit in _SECONDS:
        yield from _stepped(trigger, begin, timedelta(seconds=_SECONDS[unit] * interval))
        return
    time, end = _aware(_start(trigger)), _aware(trigger.get("endTime"))
    while time < end:
        if time >= begin:
            yield time
        time = _months_later(time, _MONTHS[unit] * interval)


def _months_later(time: datetime, months: int) -> datetime:
    """Return the same day of a later month, or the last one that it has, as Java's calendar counts."""
    years, month = divmod(time.month - 1 + months, 12)
    first = time.replace(year=time.year + years, month=month + 1, day=1)
    last = (first.replace(day=28) + 4 * _DAY).replace(day=1) - _DAY
    return first.replace(day=min(time.day, last.day))


def _daily(trigger: Document, begin: datetime) -> Iterator[datetime]:
    start = max(begin, _aware(_start(trigger)))
    step = timedelta(seconds=_SECONDS[trigger["repeatIntervalUnit"]] * trigger["repeatInterval"])
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    days = (day for day in (midnight + number * _DAY for number in count()) if _weekday(day) in trigger["daysOfWeek"])
    times = chain.from_iterable(_of_day(trigger, day, step) for day in days)
    return (time for time in times if time >= start)


def _weekday(day: datetime) -> int:
    """Return the day of the week as Java counts: Sunday is 1."""
    return day.isoweekday() % 7 + 1


def _of_day(trigger: Document, day: datetime, step: timedelta) -> Iterator[datetime]:
    first, last = (day + _since_midnight(trigger[name]) for name in ("startTimeOfDay", "endTimeOfDay"))
    return takewhile(lambda time: time <= last, (first + number * step for number in count()))


def _since_midnight(time: Document) -> timedelta:
    return timedelta(hours=time["hour"], minutes=time["minute"], seconds=time["second"])


_RULES: Final[Mapping[str, Callable[[Document, datetime], Iterator[datetime]]]] = {
    "Cron": _cron,
    "Simple": _simple,
    "CalendarInterval": _calendar,
    "DailyTimeInterval": _daily,
}
