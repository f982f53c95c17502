"""Every kind of change that the public client can make, by a name: of schedules that were copied, and of new ones.

A schedule is changed by the change that its own name states, so a scene with one document for each name has them all.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from migrator import Scheduler, ScheduleRequest

AHEAD: Final = datetime(2098, 3, 1, 12, tzinfo=UTC)
HANDLER: Final = "demo.task"
ONCE: Final = "demo.once"
"""Handler of the schedules that are to end by themselves."""

Timing = dict[str, Any]
Change = Callable[[Scheduler, UUID], object]


def rules(dialect: str, zone: str) -> dict[str, Timing]:
    """Return timings for ``reschedule`` and ``ScheduleRequest``: ``dialect`` and ``zone`` are the source's own."""
    return {
        "own line": {"cron": "15 4 * * *", "dialect": dialect, "timezone": zone},
        "own line of a night": {"cron": "30 2 * * 1-5", "dialect": dialect, "timezone": zone},
        "own line elsewhere": {"cron": "30 2 * * *", "dialect": dialect, "timezone": "Asia/Tokyo"},
        "line": {"cron": "30 2 * * *"},
        "line in Berlin": {"cron": "30 2 * * *", "timezone": "Europe/Berlin"},
        "line in Vienna": {"cron": "30 2 * * *", "timezone": "Europe/Vienna"},
        "line of two days": {"cron": "0 0 13 * 5", "timezone": zone},
        "line of steps": {"cron": "*/20 8-18/2 * 1,6 *", "timezone": zone},
        "line of seconds": {"cron": "*/20 15 4 * * *", "dialect": "cronos", "timezone": zone},
        "line of fields": {"cron": "0 3 last * *", "dialect": "apscheduler", "timezone": zone},
        "90 minutes": {"interval": timedelta(minutes=90)},
        "100 days": {"interval": timedelta(days=100)},
        "1.5 seconds": {"interval": timedelta(milliseconds=1_500)},
        "3000 days": {"interval": timedelta(days=3_000)},
        "completion": {"interval": timedelta(hours=1), "anchor": "completion"},
    }


STATES: Final[Mapping[str, Change]] = {
    "": lambda _client, _key: None,
    "paused": lambda client, key: client.pause(key),
    "resumed": lambda client, key: (client.pause(key), client.resume(key)),
    "off": lambda client, key: client.toggle(key, enabled=False),
    "on": lambda client, key: (client.toggle(key, enabled=False), client.toggle(key, enabled=True)),
    "cancelled": lambda client, key: client.cancel(key),
    "deleted": lambda client, key: client.unschedule(key),
}
"""What can be done with a schedule, whatever its rule."""
UPDATES: Final[Mapping[str, Mapping[str, Any]]] = {
    "name": {"name": "of another name"},
    "odd name": {"name": "$a.b é"},
    "description": {"description": "of two\nlines"},
    "handler": {"handler_name": "demo.other"},
    "handler type": {"handler_type": "workflow"},
    "queue": {"queue": "slow"},
    "no payload": {"payload": None},
    "text": {"payload": "a text"},
    "number": {"payload": 7},
    "list": {"payload": [1, {"a": None}]},
    "object": {"payload": {"a": {"b.c": 1, "$d": [2]}}},
    "arguments": {"payload": {"args": [1], "kwargs": {"a": 1}}},
    "text as arguments": {"payload": {"args": "text", "kwargs": [1]}},
    "odd arguments": {"payload": {"args": [1], "kwargs": {"a.b": {"$c": 1}}, "more": 1}},
    "priority": {"priority": 99},
    "no priority": {"priority": None},
    "timeout": {"timeout": timedelta(milliseconds=1_500)},
    "retries": {
        "max_retries": 0,
        "retry_delay": timedelta(milliseconds=1),
        "retry_strategy": "fixed",
        "on_exhausted": "stop",
    },
    "concurrency": {"max_concurrency": None},
    "tags": {"tags": ("a", "b")},
    "no tags": {"tags": ()},
    "metadata": {"metadata": {"owner": "ops", "deep": {"a": [1]}}},
    "metadata of fields": {
        "metadata": {"exchange": 5, "routing_key": ["a"], "run_immediately": "yes"}
        | {"type": "other", "failCount": "many", "failReason": 7, "lastModifiedBy": {"a": 1}, "progress": "much"}
    },
}
"""What ``update`` takes."""


def of_documents(dialect: str, zone: str) -> dict[str, Change]:
    """Return name → change of a schedule that was copied, in the order in which they are made: the last run waits."""
    timings = rules(dialect, zone)
    found = {f"copied {state}": change for state, change in STATES.items()}
    found |= {f"rule {name}": _reschedule(timing) for name, timing in timings.items()}
    for state, change in STATES.items():
        for name in ("own line", "own line elsewhere", "90 minutes", "line of seconds"):
            if state:
                found[f"rule {name}, {state}"] = _both(_reschedule(timings[name]), change)
    for name in ("own line", "own line elsewhere"):
        found[f"paused, rule {name}"] = _both(STATES["paused"], _reschedule(timings[name]))
        found[f"rule {name} and back"] = _both(
            _reschedule(timings["own line elsewhere"]), _reschedule(timings["own line"])
        )
    found |= {f"update {name}": _update(fields) for name, fields in UPDATES.items()}
    found |= {
        "run is cancelled": lambda client, key: (client.trigger_now(key), client.cancel(key)),
        "run failed": lambda client, key: _run(client, key, "error"),
        "run ended": lambda client, key: _run(client, key, "completed"),
        "run goes on": lambda client, key: _run(client, key, None),
        "run waits": lambda client, key: client.trigger_now(key),
    }
    return found


def make_new(client: Scheduler, dialect: str, zone: str) -> None:
    """Make schedules of every kind, in every state."""

    def request(label: str, **more: Any) -> ScheduleRequest:  # noqa: ANN401 - as ScheduleRequest takes
        return ScheduleRequest(**{"name": f"new {label}", "handler_name": HANDLER, "created_by": "tests"} | more)

    timings = rules(dialect, zone)
    for name, timing in timings.items():
        client.schedule(request(name, **timing))
    ended = {"start_at": AHEAD, "end_at": AHEAD + timedelta(days=9), "max_fires": 3}
    client.schedule(request("of bounds", **timings["own line"], **ended))
    client.schedule(request("not enabled", **timings["own line"], enabled=False))
    for name, fields in UPDATES.items():
        client.schedule(request(f"with {name}", **timings["own line"], **{**fields, "name": f"new with {name}"}))
    kinds: dict[str, Callable[[str], UUID]] = {
        "own line": lambda name: client.schedule(request(name, **timings["own line"])).id,
        "line elsewhere": lambda name: client.schedule(request(name, **timings["own line elsewhere"])).id,
        "interval": lambda name: client.schedule(request(name, **timings["90 minutes"])).id,
        "once": lambda name: client.schedule_once(request(name), AHEAD).id,
        "event": lambda name: client.on_event(f"event {name}", HANDLER, name=f"new {name}").id,
    }
    for kind, make in kinds.items():
        for state, change in STATES.items():
            change(client, make(f"{kind}, {state}"))
    client.schedule(request("that ends", interval=timedelta(minutes=1), max_fires=1, handler_name=ONCE))
    client.schedule_once(request("once and over", handler_name=ONCE))


def _reschedule(timing: Timing) -> Change:
    return lambda client, key: client.reschedule(key, **timing)


def _update(fields: Mapping[str, Any]) -> Change:
    return lambda client, key: client.update(key, **fields)


def _both(first: Change, then: Change) -> Change:
    return lambda client, key: (first(client, key), then(client, key))


def _run(client: Scheduler, key: UUID, state: Any) -> None:  # noqa: ANN401 - a state that ends a run, or None
    queued = client.trigger_now(key)
    [claim] = [one for one in client.claim("worker", limit=100) if one.run.id == queued.id]
    if state is not None:
        assert client.finish(claim, state, error="refused" if state == "error" else None)
