"""Bad input: an error that names the thing, and nothing changed."""

from collections.abc import Callable
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from migrator.cron import CronError, ZoneError
from migrator.errors import NotFoundError, UsageError
from migrator.scheduler.client import Scheduler
from migrator.store.protocols import ScheduleQuery, Store
from migrator.verify.behaviour.harness import HOUR, MINUTE, Clock, Harness
from tests.contract.facade.stored import everything
from tests.contract.rows import NOW, event_trigger, fresh, schedule, trigger

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - that is what is wrong with it

Call = Callable[[Harness], Any]


def endless() -> list[Any]:
    """Return a list that holds itself."""
    found: list[Any] = []
    found.append(found)
    return found


REFUSED: dict[str, tuple[Call, type[Exception], str]] = {
    "bad cron": (lambda harness: harness.cron(cron="61 * * * *"), CronError, "minute"),
    "no cron": (lambda harness: harness.cron(cron=""), CronError, "cron"),
    "unknown dialect": (lambda harness: harness.cron(dialect="unknown"), CronError, "dialect"),
    "unknown zone": (lambda harness: harness.cron(timezone="Mars/Olympus"), ZoneError, "time zone"),
    "a line that never fires": (
        lambda harness: harness.cron(cron="0 0 31 2 *", dialect="croner"),
        UsageError,
        "never fire|day",
    ),
    "interval 0": (
        lambda harness: harness.recurring(interval=timedelta(0)),
        UsageError,
        "interval must be above",
    ),
    "negative interval": (
        lambda harness: harness.recurring(interval=-MINUTE),
        UsageError,
        "interval must be above",
    ),
    "interval below a millisecond": (
        lambda harness: harness.recurring(interval=timedelta(microseconds=10)),
        UsageError,
        "at least one millisecond",
    ),
    "no timing": (lambda harness: harness.recurring(interval=None), UsageError, "a cron line or an interval"),
    "two timings": (
        lambda harness: harness.recurring(cron="* * * * *", interval=HOUR),
        UsageError,
        "a cron line or an interval",
    ),
    "end before start": (
        lambda harness: harness.recurring(start_at=NOW + HOUR, end_at=NOW + MINUTE),
        UsageError,
        "end_at must come after start_at",
    ),
    "end that is past": (lambda harness: harness.recurring(end_at=NOW), UsageError, "end_at must come after"),
    "bounds without a slot": (
        lambda harness: harness.recurring(cron="0 0 1 1 *", end_at=NOW + HOUR),
        UsageError,
        "never fire",
    ),
    "no executions": (lambda harness: harness.recurring(max_fires=0), UsageError, "max_fires must be"),
    "unknown misfire policy": (lambda harness: harness.recurring(misfire_policy="hope"), UsageError, "misfire_policy"),
    "negative grace": (
        lambda harness: harness.recurring(misfire_grace=timedelta(milliseconds=-1)),
        UsageError,
        "misfire_grace must be",
    ),
    "unknown anchor": (
        lambda harness: harness.recurring(interval=HOUR, anchor=cast("Any", "sea")),
        UsageError,
        "anchor",
    ),
    "time that is past": (lambda harness: harness.once(run_at=NOW), UsageError, "run_at must lie ahead"),
    "time without zone": (lambda harness: harness.once(run_at=NAIVE), UsageError, "run_at names no time zone"),
    "start without zone": (
        lambda harness: harness.recurring(start_at=NAIVE),
        UsageError,
        "start_at names no time zone",
    ),
    "handler missing": (lambda harness: harness.cron(handler_name=" "), UsageError, "handler_name must not be blank"),
    "no handler": (lambda harness: harness.cron(handler_name=None), UsageError, "handler_name is missing"),
    "unknown type of handler": (lambda harness: harness.cron(handler_type="spell"), UsageError, "handler_type"),
    "blank name": (lambda harness: harness.cron(name=""), UsageError, "name must not be blank"),
    "nobody": (lambda harness: harness.cron(created_by=""), UsageError, "created_by must not be blank"),
    "priority 101": (lambda harness: harness.cron(priority=101), UsageError, "priority must be"),
    "priority -1": (lambda harness: harness.cron(priority=-1), UsageError, "priority must be"),
    "priority true": (lambda harness: harness.cron(priority=True), UsageError, "priority must be"),
    "priority urgent": (lambda harness: harness.cron(priority="urgent"), UsageError, "unknown priority"),
    "negative retries": (lambda harness: harness.cron(max_retries=-1), UsageError, "max_retries must be"),
    "endless retries": (lambda harness: harness.cron(max_retries=2**31), UsageError, "max_retries must be"),
    "negative delay": (
        lambda harness: harness.cron(retry_delay=timedelta(milliseconds=-1)),
        UsageError,
        "retry_delay must be",
    ),
    "unknown strategy": (lambda harness: harness.cron(retry_strategy="panic"), UsageError, "retry_strategy"),
    "unknown exhaustion": (lambda harness: harness.cron(on_exhausted="sleep"), UsageError, "on_exhausted"),
    "timeout 0": (lambda harness: harness.cron(timeout=timedelta(0)), UsageError, "timeout must be"),
    "concurrency 0": (lambda harness: harness.cron(max_concurrency=0), UsageError, "max_concurrency must be"),
    "blank tag": (lambda harness: harness.cron(tags=("a", " ")), UsageError, "a tag must not be blank"),
    "tags that are one text": (
        lambda harness: harness.cron(tags="night"),
        UsageError,
        "tags must be a sequence of texts",
    ),
    "an id that is a text": (lambda harness: harness.cron(id=str(uuid4())), UsageError, "^id must be a UUID, not str"),
    "queues that are one text": (
        lambda harness: harness.facade.claim("w", queues="copies", now=NOW),
        UsageError,
        "queues must be a sequence of texts",
    ),
    "filter that is one text": (
        lambda harness: harness.facade.list(ScheduleQuery(tags_any=cast("Any", "night")), now=NOW),
        UsageError,
        "tags_any must be a sequence of texts",
    ),
    "payload that is no JSON": (
        lambda harness: harness.cron(payload={"a": object()}),
        UsageError,
        r"^payload\.a is no JSON",
    ),
    "payload that is no number": (
        lambda harness: harness.cron(payload=[float("nan")]),
        UsageError,
        r"^payload\[0\] is no",
    ),
    "payload with NUL": (lambda harness: harness.cron(payload="a\0"), UsageError, "no JSON value"),
    "payload without end": (lambda harness: harness.cron(payload=endless()), UsageError, "no JSON value"),
    "name with NUL": (lambda harness: harness.cron(name="a\0b"), UsageError, "NUL"),
    "blank event": (
        lambda harness: harness.facade.on_event(" ", "work", now=NOW),
        UsageError,
        "event must not be blank",
    ),
    "once, with a cron line": (lambda harness: harness.once(cron="* * * * *"), UsageError, "fires once has no cron"),
    "once, with an end": (lambda harness: harness.once(end_at=NOW + HOUR), UsageError, "fires once has no end_at"),
    "event without handler": (
        lambda harness: harness.facade.on_event("push", "", now=NOW),
        UsageError,
        "must not be blank",
    ),
    "unknown action": (
        lambda harness: harness.facade.on_event("push", "work", handler_type="webhook", now=NOW),
        UsageError,
        "handler_type",
    ),
    "delivery without event": (
        lambda harness: harness.facade.trigger_event("", now=NOW),
        UsageError,
        "event must not be blank",
    ),
    "delivery with a blank id": (
        lambda harness: harness.facade.trigger_event("push", event_id="", now=NOW),
        UsageError,
        "event_id must not be blank",
    ),
    "time of a call without zone": (lambda harness: harness.facade.list(now=NAIVE), UsageError, "time zone"),
}


@pytest.mark.proves("2-F1", "2-F2")
def test_what_cannot_be_is_refused_by_name_and_changes_nothing(harness: Harness) -> None:
    harness.recurring()
    before = everything(harness)
    for what, (call, error, words) in REFUSED.items():
        with pytest.raises(error, match=words):
            pytest.fail(f"{what} was taken: {call(harness)}")
        assert everything(harness) == before, what
    assert [event.name for event in harness.events] == ["scheduler:job.created"]


EACH: dict[str, Callable[[Scheduler, UUID], Any]] = {
    "reschedule": lambda facade, job: facade.reschedule(job, interval=HOUR, now=NOW),
    "unschedule": lambda facade, job: facade.unschedule(job, now=NOW),
    "pause": lambda facade, job: facade.pause(job, now=NOW),
    "resume": lambda facade, job: facade.resume(job, now=NOW),
    "cancel": lambda facade, job: facade.cancel(job, now=NOW),
    "toggle": lambda facade, job: facade.toggle(job, enabled=False, now=NOW),
    "update": lambda facade, job: facade.update(job, priority=1, now=NOW),
    "trigger_now": lambda facade, job: facade.trigger_now(job, now=NOW),
    "retry_schedule": lambda facade, job: facade.retry_schedule(job, now=NOW),
    "history": lambda facade, job: facade.history(job, now=NOW),
    "stats": lambda facade, job: facade.stats(job, now=NOW),
}


@pytest.mark.proves("0-X2")
@pytest.mark.parametrize("method", EACH)
def test_an_unknown_id_and_another_tenants_id_are_the_same(harness: Harness, method: str) -> None:
    job = harness.recurring()
    stranger = Scheduler(harness.store, fresh())
    before = everything(harness)
    with pytest.raises(NotFoundError, match="no schedule"):
        EACH[method](harness.facade, uuid4())
    with pytest.raises(NotFoundError, match=f"no schedule {job.id}"):
        EACH[method](stranger, job.id)
    assert everything(harness) == before


RUNS: dict[str, Callable[[Scheduler, UUID], Any]] = {
    "retry": lambda facade, run: facade.retry(run, now=NOW),
    "complete": lambda facade, run: facade.complete(run, now=NOW),
    "heartbeat": lambda facade, run: facade.heartbeat(run, now=NOW),
    "get_execution": lambda facade, run: facade.get_execution(run, now=NOW),
    "get": lambda facade, job: facade.get(job, now=NOW),
}


@pytest.mark.parametrize("method", [*EACH, *RUNS])
def test_the_text_of_an_id_is_refused_on_every_backend(harness: Harness, method: str) -> None:
    job = harness.recurring()
    before = everything(harness)
    for text in (str(job.id), "no id"):
        with pytest.raises(UsageError, match="_id must be a UUID, not str") as refused:
            (EACH | RUNS)[method](harness.facade, cast("UUID", text))
        assert text not in str(refused.value)
    assert everything(harness) == before


@pytest.mark.proves("2-P1")
@pytest.mark.parametrize("method", [name for name in EACH if name not in {"history", "stats"}])
def test_a_schedule_of_all_tenants_is_changed_by_none(
    harness: Harness, method: str, plant: Callable[..., None], look: Callable[..., Any]
) -> None:
    of_all = schedule("*", name=fresh(), handler_name="all")
    plant(of_all, trigger(of_all), event_trigger(of_all, fresh()))
    stored = look(type(of_all), of_all.id)
    assert harness.facade.get(of_all.id, now=NOW) is not None
    with pytest.raises(UsageError, match="belongs to all tenants"):
        EACH[method](harness.facade, of_all.id)
    assert look(type(of_all), of_all.id) == stored


CHANGES: dict[str, tuple[Any, str]] = {
    "blank name": ({"name": " "}, "name must not be blank"),
    "no name": ({"name": None}, "name is missing"),
    "priority": ({"priority": 300}, "priority must be"),
    "retries": ({"max_retries": -1}, "max_retries must be"),
    "handler": ({"handler_name": ""}, "handler_name must not be blank"),
    "timeout": ({"timeout": timedelta(0)}, "timeout must be"),
    "payload": ({"payload": object()}, "no JSON value"),
    "no field of a schedule": ({"cron": "* * * * *"}, "cron is nothing that is updated"),
}


def test_an_edit_that_cannot_be_changes_nothing(harness: Harness) -> None:
    job = harness.recurring()
    before = everything(harness)
    for what, (changes, words) in CHANGES.items():
        with pytest.raises(UsageError, match=words):
            pytest.fail(f"{what} was taken: {harness.facade.update(job.id, now=NOW, **changes)}")
        assert everything(harness) == before, what


@pytest.mark.parametrize(
    ("timing", "error"),
    [
        ({"cron": "nonsense"}, CronError),
        ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, ZoneError),
        ({"interval": timedelta(0)}, UsageError),
        ({}, UsageError),
    ],
)
def test_another_timing_that_cannot_be_changes_nothing(
    harness: Harness, timing: dict[str, Any], error: type[Exception]
) -> None:
    job = harness.recurring()
    before = everything(harness)
    with pytest.raises(error):
        harness.facade.reschedule(job.id, **timing, now=NOW)
    assert everything(harness) == before


@pytest.mark.parametrize("wrong", ["", "a\0b"])
def test_a_facade_without_a_tenant_does_nothing(harness: Harness, wrong: str) -> None:
    nobody = Scheduler(harness.store, wrong)
    with pytest.raises(UsageError, match="needs a tenant"):
        nobody.list(now=NOW)
    with pytest.raises(UsageError, match="needs a tenant"):
        nobody.purge()


def test_nobody_writes_for_all_tenants(harness: Harness) -> None:
    of_all = Harness(harness.store, ("*", harness.tenant), clock=Clock(NOW))
    with pytest.raises(UsageError, match=r"tenant \*"):
        of_all.recurring()
    with pytest.raises(UsageError, match=r"\* is not purged"):
        of_all.facade.purge()


def test_a_clock_that_goes_back_fires_nothing_twice(harness: Harness) -> None:
    job = harness.recurring()
    harness.advance(MINUTE)
    assert harness.run_once() == 1
    harness.now = NOW
    assert harness.run_once() == 0
    harness.run_until(NOW + 2 * MINUTE, MINUTE)
    assert [run.scheduled_at for run in harness.runs(job)] == [NOW + MINUTE, NOW + 2 * MINUTE]


def test_only_postgresql_takes_part_in_a_transaction_of_the_application(at_work: Store, tenant: str) -> None:
    scheduler = Scheduler(at_work, tenant)
    connection: Any = SimpleNamespace(pgconn=None)
    with pytest.raises(UsageError) as refused:
        scheduler.using(connection)
    on_postgres = "connection must be a connection of psycopg 3, not types.SimpleNamespace"
    elsewhere = f"the data is in {at_work.backend}, and only a client on PostgreSQL takes part"
    assert str(refused.value).startswith(on_postgres if at_work.backend == "postgres" else elsewhere)
    with pytest.raises(UsageError, match="connection must be a connection of psycopg 3, not object"):
        scheduler.using(cast("Any", object()))
