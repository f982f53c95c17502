"""What the two libraries of periodic tasks have in common, and celerybeat-mongo, from which their tasks come.

``entries`` lets a library read every task, also one that is disabled; the sessions are read only. ``fires`` computes
with the schedule that the library has made of a task. ``work`` lets two beats tick, one after the other, at one time,
and prints what they send; nothing is sent to a broker. ``options.timezone``: the setting of the application.
"""

from __future__ import annotations

import importlib
import types
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Callable, Iterator

from . import stand_ins, stores
from .dialogue import Lines, bounded

MONGO_TASKS = "schedules"
BEATS = 2
"""That tick at one time, as after a restart: what the first one has sent, the second one does not send again."""
SHORT = timedelta(milliseconds=5)
"""After a fire of a crontab, at which the same one is not the next."""

Read = Callable[[], "tuple[dict[str, Any], Any]"]
"""Returns the fields of a task, and its schedule."""


def application(request: dict[str, Any], **settings: Any) -> Any:
    """Return an application of Celery that sends nothing to a broker."""
    app = importlib.import_module("celery").Celery("probe", broker="memory://", set_as_current=True, fixups=[])
    app.conf.update(timezone=request.get("options", {}).get("timezone", "UTC"), result_expires=None, **settings)
    app.set_current()
    return app


def mongo_tasks(request: dict[str, Any]) -> Iterator[tuple[str, Read]]:
    """Yield the name of each task of celerybeat-mongo, with the function that reads it."""
    place = request["store"]
    application(
        request,
        mongodb_scheduler_db=place["database"],
        mongodb_scheduler_url=place["uri"],
        mongodb_scheduler_collection=stores.named(place, MONGO_TASKS),
    )
    library = importlib.import_module("celerybeatmongo.schedulers")
    importlib.import_module("mongoengine").connect(place["database"], host=place["uri"])

    def read(task: Any) -> tuple[dict[str, Any], Any]:
        last = task.last_run_at
        entry = library.MongoScheduleEntry(task)
        return fields_of(task, entry.args, entry.kwargs, last), entry.schedule

    for task in library.PeriodicTask.objects.order_by("name"):
        yield task.name, partial(read, task)


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


def entries(tasks: Iterator[tuple[str, Read]], lines: Lines) -> None:
    """Print each task with its schedule."""
    for name, read in tasks:
        try:
            fields, schedule = read()
            lines.put("entry", id=name, fields=fields, schedule=_described(schedule))
        except Exception as error:  # noqa: BLE001 - of one task
            lines.fail(name, error)


def _described(schedule: Any) -> dict[str, Any]:
    if hasattr(schedule, "_orig_minute"):
        parts = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
        return {name: str(getattr(schedule, f"_orig_{name}")) for name in parts} | {"zone": str(schedule.tz)}
    return {"every": schedule.run_every.total_seconds()}


def fires(tasks: Iterator[tuple[str, Read]], request: dict[str, Any], lines: Lines) -> None:
    """Print the next fires of each task, as if it had run at each."""
    for name, read in tasks:
        try:
            _, schedule = read()
            for window in request["windows"]:
                with bounded(request["entry_seconds"]):
                    listed = _fires(schedule, window, request["limit"])
                lines.put("fires", id=name, window=window, fires=listed)
        except Exception as error:  # noqa: BLE001 - of one task
            lines.fail(name, error)


def _fires(schedule: Any, window: Any, limit: int) -> list[str | None]:
    is_crontab = hasattr(schedule, "_orig_minute")
    last, end = (stores.instant(text) for text in window)
    listed: list[datetime] = []
    while len(listed) < limit:
        schedule.nowfun = lambda at=last: at
        fire = last + schedule.remaining_estimate(last)
        if fire >= end:
            break
        listed.append(fire)
        last = fire + SHORT if is_crontab else fire
    return [stores.in_utc(fire) for fire in listed]


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
        found = importlib.import_module(name)
        setattr(found, attribute, module if isinstance(getattr(found, attribute), types.ModuleType) else Shown)


class _EveryDatetime(type):
    """Classes of which every ``datetime`` is an instance, as of the class whose place they take."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, datetime)


def work(scheduler: Any, make: Callable[[Any], Any], lines: Lines, tasks: int) -> None:
    """Let beats tick until nothing is due, and print what each sends; ``make`` starts one of a class."""
    for number in range(BEATS):

        class Noting(scheduler):  # type: ignore[misc]  # the library has no types
            """Beat, which notes what it would send."""

            def send_task(self, name: str, args: Any, kwargs: Any, *, beat: int = number, **options: Any) -> Any:
                told = {key: options.get(key) for key in ("queue", "exchange", "routing_key")}
                entry = options.get("periodic_task_name") or options["headers"]["periodic_task_name"]
                plain = {"args": stand_ins.plain(args), "kwargs": stand_ins.plain(kwargs)}
                expires = options.get("expires")
                lines.put("sent", id=entry, beat=beat, task=name, expires=_in_utc(expires), **told, **plain)
                return types.SimpleNamespace(id="")

        beat = make(Noting)
        for _ in range(tasks * 3 + 10):
            beat.tick()
        beat.sync()
