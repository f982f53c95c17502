"""Bad input: an error that names the thing, and nothing changed."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from migrator.cron import CronError, ZoneError
from migrator.errors import NotFoundError, UsageError
from migrator.scheduler.client import Scheduler
from migrator.scheduler.models import Action, EventRequest, Patch, Timing
from tests.contract.facade.yard import HOUR, MINUTE, Yard
from tests.contract.rows import NOW, event_trigger, fresh, schedule, trigger

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - that is what is wrong with it

Call = Callable[[Yard], Any]


def endless() -> list[Any]:
    """Return a list that holds itself."""
    found: list[Any] = []
    found.append(found)
    return found


REFUSED: dict[str, tuple[Call, type[Exception], str]] = {
    "bad cron": (lambda yard: yard.cron(cron="61 * * * *"), CronError, "minute"),
    "no cron": (lambda yard: yard.cron(cron=""), CronError, "cron"),
    "unknown dialect": (lambda yard: yard.cron(dialect="quartz"), CronError, "dialect"),
    "unknown zone": (lambda yard: yard.cron(timezone="Mars/Olympus"), ZoneError, "time zone"),
    "a line that never fires": (
        lambda yard: yard.cron(cron="0 0 31 2 *", dialect="croner"),
        UsageError,
        "never fire|day",
    ),
    "interval 0": (lambda yard: yard.recurring(Timing(interval=timedelta(0))), UsageError, "interval must be above"),
    "negative interval": (lambda yard: yard.recurring(Timing(interval=-MINUTE)), UsageError, "interval must be above"),
    "interval below a millisecond": (
        lambda yard: yard.recurring(Timing(interval=timedelta(microseconds=10))),
        UsageError,
        "at least one millisecond",
    ),
    "no timing": (lambda yard: yard.recurring(Timing()), UsageError, "a cron line or an interval"),
    "two timings": (
        lambda yard: yard.recurring(Timing(cron="* * * * *", interval=HOUR)),
        UsageError,
        "a cron line or an interval",
    ),
    "end before start": (
        lambda yard: yard.recurring(start_at=NOW + HOUR, end_at=NOW + MINUTE),
        UsageError,
        "end_at must come after start_at",
    ),
    "end that is past": (lambda yard: yard.recurring(end_at=NOW), UsageError, "end_at must come after"),
    "bounds without a slot": (
        lambda yard: yard.recurring(Timing(cron="0 0 1 1 *"), end_at=NOW + HOUR),
        UsageError,
        "never fire",
    ),
    "no executions": (lambda yard: yard.recurring(max_fires=0), UsageError, "max_fires must be"),
    "unknown misfire policy": (lambda yard: yard.recurring(misfire_policy="hope"), UsageError, "misfire_policy"),
    "negative grace": (lambda yard: yard.recurring(misfire_grace_ms=-1), UsageError, "misfire_grace_ms must be"),
    "unknown anchor": (
        lambda yard: yard.recurring(Timing(interval=HOUR, anchor=cast("Any", "sea"))),
        UsageError,
        "anchor",
    ),
    "time that is past": (lambda yard: yard.once(run_at=NOW), UsageError, "run_at must lie ahead"),
    "time without zone": (lambda yard: yard.once(run_at=NAIVE), UsageError, "run_at names no time zone"),
    "start without zone": (lambda yard: yard.recurring(start_at=NAIVE), UsageError, "start_at names no time zone"),
    "handler missing": (lambda yard: yard.cron(handler_name=" "), UsageError, "handler_name must not be blank"),
    "no handler": (lambda yard: yard.cron(handler_name=None), UsageError, "handler_name is missing"),
    "unknown type of handler": (lambda yard: yard.cron(handler_type="spell"), UsageError, "handler_type"),
    "blank name": (lambda yard: yard.cron(name=""), UsageError, "name must not be blank"),
    "nobody": (lambda yard: yard.cron(created_by=""), UsageError, "created_by must not be blank"),
    "priority 101": (lambda yard: yard.cron(priority=101), UsageError, "priority must be"),
    "priority -1": (lambda yard: yard.cron(priority=-1), UsageError, "priority must be"),
    "priority true": (lambda yard: yard.cron(priority=True), UsageError, "priority must be"),
    "priority urgent": (lambda yard: yard.cron(priority="urgent"), UsageError, "unknown priority"),
    "negative retries": (lambda yard: yard.cron(max_retries=-1), UsageError, "max_retries must be"),
    "endless retries": (lambda yard: yard.cron(max_retries=2**31), UsageError, "max_retries must be"),
    "negative delay": (lambda yard: yard.cron(retry_delay_ms=-1), UsageError, "retry_delay_ms must be"),
    "unknown strategy": (lambda yard: yard.cron(retry_strategy="panic"), UsageError, "retry_strategy"),
    "unknown exhaustion": (lambda yard: yard.cron(on_exhausted="sleep"), UsageError, "on_exhausted"),
    "timeout 0": (lambda yard: yard.cron(timeout_ms=0), UsageError, "timeout_ms must be"),
    "concurrency 0": (lambda yard: yard.cron(max_concurrency=0), UsageError, "max_concurrency must be"),
    "blank tag": (lambda yard: yard.cron(tags=("a", " ")), UsageError, "a tag must not be blank"),
    "payload that is no JSON": (lambda yard: yard.cron(payload={"a": object()}), UsageError, "no JSON value"),
    "payload that is no number": (lambda yard: yard.cron(payload=[float("nan")]), UsageError, "no JSON value"),
    "payload with NUL": (lambda yard: yard.cron(payload="a\0"), UsageError, "no JSON value"),
    "payload without end": (lambda yard: yard.cron(payload=endless()), UsageError, "no JSON value"),
    "name with NUL": (lambda yard: yard.cron(name="a\0b"), UsageError, "NUL"),
    "blank event": (lambda yard: yard.facade.on_event(" ", "work", now=NOW), UsageError, "event must not be blank"),
    "event without handler": (lambda yard: yard.facade.on_event("push", "", now=NOW), UsageError, "must not be blank"),
    "unknown action": (
        lambda yard: yard.facade.on_event(
            "push", "work", EventRequest(action=Action(type=cast("Any", "webhook"))), now=NOW
        ),
        UsageError,
        "action names none of",
    ),
    "delivery without event": (
        lambda yard: yard.facade.trigger_event("", now=NOW),
        UsageError,
        "event must not be blank",
    ),
    "delivery with a blank id": (
        lambda yard: yard.facade.trigger_event("push", event_id="", now=NOW),
        UsageError,
        "event_id must not be blank",
    ),
    "time of a call without zone": (lambda yard: yard.facade.list(now=NAIVE), UsageError, "time zone"),
}


@pytest.mark.proves("2-F1", "2-F2")
def test_what_cannot_be_is_refused_by_name_and_changes_nothing(yard: Yard) -> None:
    yard.recurring()
    before = yard.everything()
    for what, (call, error, words) in REFUSED.items():
        with pytest.raises(error, match=words):
            pytest.fail(f"{what} was taken: {call(yard)}")
        assert yard.everything() == before, what
    assert [event.name for event in yard.heard] == ["scheduler:job.created"]


EACH: dict[str, Callable[[Scheduler, UUID], Any]] = {
    "reschedule": lambda facade, job: facade.reschedule(job, Timing(interval=HOUR), now=NOW),
    "unschedule": lambda facade, job: facade.unschedule(job, now=NOW),
    "pause": lambda facade, job: facade.pause(job, now=NOW),
    "resume": lambda facade, job: facade.resume(job, now=NOW),
    "cancel": lambda facade, job: facade.cancel(job, now=NOW),
    "toggle": lambda facade, job: facade.toggle(job, enabled=False, now=NOW),
    "update": lambda facade, job: facade.update(job, Patch(priority=1), now=NOW),
    "trigger_now": lambda facade, job: facade.trigger_now(job, now=NOW),
    "retry_schedule": lambda facade, job: facade.retry_schedule(job, now=NOW),
    "history": lambda facade, job: facade.history(job, now=NOW),
    "stats": lambda facade, job: facade.stats(job, now=NOW),
}


@pytest.mark.proves("0-X2")
@pytest.mark.parametrize("method", EACH)
def test_an_unknown_id_and_another_tenants_id_are_the_same(yard: Yard, method: str) -> None:
    job = yard.recurring()
    stranger = Scheduler(yard.store, fresh())
    before = yard.everything()
    with pytest.raises(NotFoundError, match="no schedule"):
        EACH[method](yard.facade, uuid4())
    with pytest.raises(NotFoundError, match=f"no schedule {job.id}"):
        EACH[method](stranger, job.id)
    assert yard.everything() == before


@pytest.mark.proves("2-P1")
@pytest.mark.parametrize("method", [name for name in EACH if name not in {"history", "stats"}])
def test_a_schedule_of_all_tenants_is_changed_by_none(
    yard: Yard, method: str, plant: Callable[..., None], look: Callable[..., Any]
) -> None:
    of_all = schedule("*", name=fresh(), handler_name="all")
    plant(of_all, trigger(of_all), event_trigger(of_all, fresh()))
    stored = look(type(of_all), of_all.id)
    assert yard.facade.get(of_all.id, now=NOW) is not None
    with pytest.raises(UsageError, match="belongs to all tenants"):
        EACH[method](yard.facade, of_all.id)
    assert look(type(of_all), of_all.id) == stored


PATCHES: dict[str, tuple[Patch, str]] = {
    "blank name": (Patch(name=" "), "name must not be blank"),
    "no name": (Patch(name=cast("Any", None)), "name is missing"),
    "priority": (Patch(priority=300), "priority must be"),
    "retries": (Patch(max_retries=-1), "max_retries must be"),
    "handler": (Patch(handler_name=""), "handler_name must not be blank"),
    "timeout": (Patch(timeout_ms=0), "timeout_ms must be"),
    "payload": (Patch(payload=object()), "no JSON value"),
}


def test_an_edit_that_cannot_be_changes_nothing(yard: Yard) -> None:
    job = yard.recurring()
    before = yard.everything()
    for what, (patch, words) in PATCHES.items():
        with pytest.raises(UsageError, match=words):
            pytest.fail(f"{what} was taken: {yard.facade.update(job.id, patch, now=NOW)}")
        assert yard.everything() == before, what


@pytest.mark.parametrize(
    ("timing", "error"),
    [
        (Timing(cron="nonsense"), CronError),
        (Timing(cron="* * * * *", timezone="Mars/Olympus"), ZoneError),
        (Timing(interval=timedelta(0)), UsageError),
        (Timing(), UsageError),
    ],
)
def test_another_timing_that_cannot_be_changes_nothing(yard: Yard, timing: Timing, error: type[Exception]) -> None:
    job = yard.recurring()
    before = yard.everything()
    with pytest.raises(error):
        yard.facade.reschedule(job.id, timing, now=NOW)
    assert yard.everything() == before


@pytest.mark.parametrize("wrong", ["", "a\0b"])
def test_a_facade_without_a_tenant_does_nothing(yard: Yard, wrong: str) -> None:
    nobody = Scheduler(yard.store, wrong)
    with pytest.raises(UsageError, match="needs a tenant"):
        nobody.list(now=NOW)
    with pytest.raises(UsageError, match="needs a tenant"):
        nobody.purge()


def test_nobody_writes_for_all_tenants(yard: Yard) -> None:
    of_all = Yard(yard.store, "*")
    with pytest.raises(UsageError, match=r"tenant \*"):
        of_all.recurring()
    with pytest.raises(UsageError, match=r"\* is not purged"):
        of_all.facade.purge()


def test_a_clock_that_goes_back_fires_nothing_twice(yard: Yard) -> None:
    job = yard.recurring()
    yard.later(MINUTE)
    assert yard.turn() == 1
    yard.now = NOW
    assert yard.turn() == 0
    yard.run_until(NOW + 2 * MINUTE, MINUTE)
    assert [run.scheduled_at for run in yard.runs(job)] == [NOW + MINUTE, NOW + 2 * MINUTE]
