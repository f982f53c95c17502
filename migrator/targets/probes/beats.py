"""What the two libraries of periodic tasks have in common, and celerybeat-mongo, from which their tasks come.

``entries`` lets a library read every task, also one that is disabled; the sessions are read only. ``fires`` computes
with the schedule that the library has made of a task. ``work`` lets two beats tick, one after the other, at one time,
and prints what they send; nothing is sent to a broker. ``options.timezone``: the setting of the application;
``options.host_timezone``: the zone of the host on which celerybeat-mongo ran.

A task of MongoDB has ``document``, the source id of its document: its name is what the libraries know it by.
"""

from __future__ import annotations

import importlib
import types
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Callable, Iterator, NamedTuple

from . import stand_ins, stores
from .dialogue import Lines, bounded

MONGO_TASKS = "schedules"
BEATS = 2
"""That tick at one time, as after a restart: what the first one has sent, the second one does not send again."""
SHORT = timedelta(milliseconds=5)
"""After a fire of a crontab, at which the same one is not the next."""


class Task(NamedTuple):
    """A task as a library has read it."""

    fields: dict[str, Any]
    schedule: Any
    due: datetime | None = None
    """When it is sent next if it is enabled; None: not before beat has run for a while, or not told."""


class Found(NamedTuple):
    """A task before it is read."""

    name: str
    read: Callable[[], Task]
    document: str | None = None
    """The source id of its document; None: it is a row."""

    @property
    def members(self) -> dict[str, Any]:
        """What its lines have besides."""
        return {} if self.document is None else {"document": self.document}


def application(request: dict[str, Any], **settings: Any) -> Any:
    """Return an application of Celery that sends nothing to a broker."""
    app = importlib.import_module("celery").Celery("probe", broker="memory://", set_as_current=True, fixups=[])
    app.conf.update(timezone=request.get("options", {}).get("timezone", "UTC"), result_expires=None, **settings)
    app.set_current()
    return app


def mongo_tasks(request: dict[str, Any]) -> Iterator[Found]:
    """Yield each task of celerybeat-mongo, which reads one document at a time: its own listing would make an index."""
    place = request["store"]
    application(request, mongodb_scheduler_collection=stores.named(place, MONGO_TASKS))
    library = importlib.import_module("celerybeatmongo.schedulers")
    zone = importlib.import_module("zoneinfo").ZoneInfo(request.get("options", {}).get("host_timezone", "UTC"))

    def read(document: Any) -> Task:
        task = library.PeriodicTask._from_son(document)
        last = task.last_run_at
        entry = library.MongoScheduleEntry(task)
        return Task(fields_of(task, entry.args, entry.kwargs, last) | _wishes(task, zone), entry.schedule)

    documents = stores.mongo_client(place)[place["database"]][stores.named(place, MONGO_TASKS)]
    for document in documents.find().sort("name"):
        yield Found(document.get("name"), partial(read, document), _source_id(document["_id"]))


def _source_id(key: Any) -> str:
    """Return the text by which ``migrator`` names a document."""
    if type(key) is str and "\0" not in key and not key.startswith("{"):
        return key
    json_util = importlib.import_module("bson.json_util")
    return f'{{"_id": {json_util.dumps(key, json_options=json_util.CANONICAL_JSON_OPTIONS)}}}'


def _wishes(task: Any, zone: Any) -> dict[str, Any]:
    """Return the fields of the libraries that celerybeat-mongo has under others: ``MongoScheduleEntry.is_due``."""
    most, count = task.max_run_count or 0, task.total_run_count or 0
    return {
        "enabled": bool(task.enabled and not (most and count >= most)),
        "once": most == 1,
        "start": stores.in_utc(_first_at(task.start_after, zone)) if task.start_after else None,
        "priority": None,
        "headers": {},
        "expire_seconds": None,
    }


def _first_at(local: datetime, zone: Any) -> datetime:
    """Return the first instant at which the clock of a zone shows a time, or a later one if it leaves that out."""
    upper = local.replace(tzinfo=zone).astimezone(stores.UTC)
    if _shown(upper, zone) == local:
        return upper
    lower = upper - timedelta(days=1)
    while upper - lower > timedelta(microseconds=1):
        middle = lower + (upper - lower) / 2
        lower, upper = (lower, middle) if _shown(middle, zone) >= local else (middle, upper)
    return upper


def _shown(time: datetime, zone: Any) -> datetime:
    return time.astimezone(zone).replace(tzinfo=None)


def of_row(model: Any, make: Callable[[Any], Any], *, waits: bool) -> Task:
    """Return a task of PostgreSQL; ``make`` makes the library's entry of its model.

    ``waits``: one that has never run waits for its next time from the start of beat on.
    """
    last = model.last_run_at
    entry = make(model)
    fields = fields_of(model, entry.args, entry.kwargs, last) | {
        "start": stores.in_utc(model.start_time),
        "once": model.one_off,
        "priority": model.priority,
        "headers": importlib.import_module("json").loads(model.headers or "{}"),
        "expire_seconds": model.expire_seconds,
    }
    never = last is None and waits and model.start_time is None
    return Task(fields, entry.schedule, None if never else _due(entry, model.start_time))


def _due(entry: Any, start: datetime | None) -> datetime | None:
    last = entry.last_run_at if entry.last_run_at.tzinfo else entry.last_run_at.replace(tzinfo=stores.UTC)
    try:
        fire = _next(entry.schedule, last.astimezone(stores.UTC))
    except Exception:  # noqa: BLE001 - of one task: beat cannot tell either, and does not send it
        return None
    return fire if start is None else max(fire, start)


def fields_of(model: Any, args: Any, kwargs: Any, last: Any) -> dict[str, Any]:
    """Return the fields of a task that both sides have; times as the library compares them, in UTC."""
    texts = {name: getattr(model, name) for name in ("task", "queue", "exchange", "routing_key")}
    return {
        **texts,
        "args": stand_ins.plain(_bare(args)),
        "kwargs": stand_ins.plain(_bare(kwargs)),
        "description": model.description or None,
        "enabled": bool(model.enabled),
        "total_run_count": model.total_run_count,
        "expires": _in_utc(model.expires),
        "last_run_at": _in_utc(last),
    }


def _bare(value: Any) -> Any:
    """Return lists, objects and numbers without the classes that MongoEngine and the driver give them."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, dict):
        return {name: _bare(inner) for name, inner in value.items()}
    return [_bare(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _in_utc(time: Any) -> str | None:
    """Return a time; one without a zone is in UTC, as Celery takes it."""
    return None if time is None else stores.in_utc(time if time.tzinfo else time.replace(tzinfo=stores.UTC))


def entries(tasks: Iterator[Found], lines: Lines) -> None:
    """Print each task with its schedule."""
    for stored in tasks:
        try:
            task = stored.read()
            due, schedule = stores.in_utc(task.due), _described(task.schedule)
            lines.put("entry", id=stored.name, due=due, fields=task.fields, schedule=schedule, **stored.members)
        except Exception as error:  # noqa: BLE001 - of one task
            lines.fail(stored.name, error, **stored.members)


def _described(schedule: Any) -> dict[str, Any]:
    if hasattr(schedule, "_orig_minute"):
        parts = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
        return {name: str(getattr(schedule, f"_orig_{name}")) for name in parts} | {"zone": str(schedule.tz)}
    return {"every": schedule.run_every.total_seconds()}


def fires(tasks: Iterator[Found], request: dict[str, Any], lines: Lines) -> None:
    """Print the next fires of each task, as if it had run at each."""
    for stored in tasks:
        try:
            schedule = stored.read().schedule
            for window in request["windows"]:
                with bounded(request["entry_seconds"]):
                    listed = _fires(schedule, window, request["limit"])
                lines.put("fires", id=stored.name, window=window, fires=listed, **stored.members)
        except Exception as error:  # noqa: BLE001 - of one task
            lines.fail(stored.name, error, **stored.members)


def _fires(schedule: Any, window: Any, limit: int) -> list[str | None]:
    is_crontab = hasattr(schedule, "_orig_minute")
    last, end = (stores.instant(text) for text in window)
    listed: list[datetime] = []
    while len(listed) < limit:
        fire = _next(schedule, last)
        if fire >= end:
            break
        listed.append(fire)
        last = fire + SHORT if is_crontab else fire
    return [stores.in_utc(fire) for fire in listed]


def _next(schedule: Any, last: datetime) -> datetime:
    """Return the fire after an instant, as if the task had run then."""
    schedule.nowfun = lambda: last
    fire: datetime = last + schedule.remaining_estimate(last)
    return fire


def shift(now: datetime, *places: tuple[str, str]) -> None:
    """Let the clock of modules show a time: each has ``datetime``, the class or the module, under a name."""

    class Shown(datetime, metaclass=_EveryDatetime):
        """In the place of ``datetime``, with a clock that shows the time."""

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return now.astimezone(tz) if tz is not None else now.astimezone().replace(tzinfo=None)

        @classmethod
        def utcnow(cls) -> Any:
            return now.astimezone(stores.UTC).replace(tzinfo=None)

    module = types.SimpleNamespace(**{**vars(importlib.import_module("datetime")), "datetime": Shown})
    for name, attribute in places:
        place = importlib.import_module(name)
        setattr(place, attribute, module if isinstance(getattr(place, attribute), types.ModuleType) else Shown)


class _EveryDatetime(type):
    """Classes of which every ``datetime`` is an instance, as of the class whose place they take."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, datetime)


def work(scheduler: Any, make: Callable[[Any], Any], lines: Lines, tasks: int, now: datetime) -> None:
    """Let beats tick until nothing is due, and print what each sends; ``make`` starts one of a class."""
    at = stores.in_utc(now)
    for number in range(BEATS):

        class Noting(scheduler):  # type: ignore[misc]  # the library has no types
            """Beat, which notes what it would send."""

            def adjust(self, n: Any, drift: float = 0.0) -> Any:
                """Return when to look again: with beat's own drift a clock that stands still gets to no other task."""
                return n + drift if n else n

            def send_task(self, name: str, args: Any, kwargs: Any, *, beat: int = number, **options: Any) -> Any:
                told = {key: options.get(key) for key in ("queue", "exchange", "routing_key")}
                entry = options.get("periodic_task_name") or options["headers"]["periodic_task_name"]
                plain = {"args": stand_ins.plain(args), "kwargs": stand_ins.plain(kwargs)}
                expires = options.get("expires")
                sent = {"task": name, "expires": _in_utc(expires), **told, **plain}
                lines.put("execution", id=entry, at=at, beat=beat, **sent)
                return types.SimpleNamespace(id="")

        beat = make(Noting)
        for _ in range(tasks * 3 + 10):
            beat.tick()
        beat.sync()
