"""What the facade tells of: the audit trail, and whoever listens, in the order in which it happened."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from migrator.errors import MigratorError
from migrator.records import AuditEntry
from migrator.scheduler import lifecycle
from migrator.scheduler.client import Scheduler
from migrator.scheduler.lifecycle import Event
from migrator.scheduler.models import Patch, Timing
from migrator.values import jsonb
from tests.contract.facade.yard import DONE, FAILS, HOUR, MINUTE, Yard
from tests.contract.rows import NOW, SECOND

PORT_EVENTS = [
    "scheduler:job.created",
    "scheduler:job.updated",
    "scheduler:job.deleted",
    "scheduler:job.paused",
    "scheduler:job.resumed",
    "scheduler:job.cancelled",
    "scheduler:job.dispatch",
    "scheduler:job.execution.success",
    "scheduler:job.execution.failed",
    "scheduler:job.execution.retry_scheduled",
]
"""The orchestrator's ``SCHEDULER_EVENTS``, written out here a second time."""


def trail(yard: Yard) -> list[AuditEntry]:
    with yard.store.session(yard.tenant, now=yard.now) as session:
        return [*session.audit.list(100)][::-1]


@pytest.mark.proves("2-X12")
def test_a_life_is_told_in_order_to_the_trail_and_to_whoever_listens(yard: Yard) -> None:
    job = yard.recurring(max_retries=1)
    steps: list[Callable[[], Any]] = [
        lambda: yard.facade.pause(job.id, by="ann", now=yard.now),
        lambda: yard.facade.resume(job.id, by="ann", now=yard.now),
        lambda: yard.facade.reschedule(job.id, Timing(interval=HOUR), by="ann", now=yard.now),
        lambda: yard.facade.update(job.id, Patch(priority=1), by="ann", now=yard.now),
        lambda: yard.facade.cancel(job.id, by="ann", reason="enough", now=yard.now),
        lambda: yard.facade.unschedule(job.id, by="ann", now=yard.now),
    ]
    for step in steps:
        yard.later(SECOND)
        step()
    names = ["created", "paused", "resumed", "updated", "updated", "cancelled", "deleted"]
    assert [event.name for event in yard.heard] == [f"scheduler:job.{name}" for name in names]
    assert {event.schedule_id for event in yard.heard} == {job.id}
    assert [(entry.action, entry.occurred_at) for entry in trail(yard)] == [
        (event.name, event.at) for event in yard.heard
    ]
    cancelled = trail(yard)[5]
    assert (cancelled.category, cancelled.message, cancelled.schedule_id) == ("scheduler", "enough", job.id)
    assert jsonb.decode(cancelled.actor or b"") == {"actorId": "ann", "kind": "user"}


@pytest.mark.proves("2-X12")
def test_the_ten_names_are_those_of_the_source_and_all_are_told(yard: Yard) -> None:
    assert list(lifecycle.NAMES) == PORT_EVENTS
    worker_heard: list[Event] = []
    yard.worker._recorder._sink = worker_heard.append
    job = yard.recurring(max_retries=1)
    yard.hand.outcome = lambda claim: FAILS if (claim.run.attempt or 1) == 1 else None
    yard.later(MINUTE)
    yard.turn()  # dispatched, failed, to be retried
    yard.hand.outcome = lambda _: DONE
    yard.later(MINUTE)
    yard.turn()
    yard.facade.pause(job.id, now=yard.now)
    yard.facade.resume(job.id, now=yard.now)
    yard.facade.toggle(job.id, enabled=False, now=yard.now)
    yard.facade.cancel(job.id, now=yard.now)
    yard.facade.unschedule(job.id, now=yard.now)
    told = {event.name for event in (*yard.heard, *worker_heard)}
    assert told == set(PORT_EVENTS)
    assert [event.name for event in worker_heard][:3] == [
        "scheduler:job.dispatch",
        "scheduler:job.execution.failed",
        "scheduler:job.execution.retry_scheduled",
    ]


def test_a_refused_call_tells_nothing(yard: Yard) -> None:
    job = yard.recurring()
    yard.heard.clear()
    for call in (yard.facade.resume, yard.facade.retry_schedule):
        with suppress(MigratorError):
            call(job.id, now=NOW)
    with suppress(MigratorError):
        yard.cron(cron="nonsense")
    assert yard.heard == []
    assert len(trail(yard)) == 1


def test_a_run_that_was_asked_for_stands_in_the_trail_with_who_asked(yard: Yard) -> None:
    job = yard.recurring()
    run = yard.facade.trigger_now(job.id, by="ann", now=NOW + SECOND)
    entry = trail(yard)[-1]
    assert (entry.action, entry.run_id, entry.schedule_id) == ("scheduler:run.queued", run.id, job.id)
    assert (entry.correlation_id, jsonb.decode(entry.actor or b"")) == (
        run.trace_id,
        {"actorId": "ann", "kind": "user"},
    )


def test_a_listener_that_fails_changes_nothing(yard: Yard, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(event: Event) -> None:
        raise KeyError(event.name)

    facade = Scheduler(yard.store, yard.tenant, sink=fails)
    job = yard.recurring()
    assert facade.pause(job.id, now=NOW).schedule.status == "paused"
    assert yard.status(job) == "paused"
    assert "a listener to lifecycle events failed" in capsys.readouterr().err


def test_events_are_told_after_the_commit(yard: Yard) -> None:
    seen: list[str] = []

    def look(event: Event) -> None:
        assert event.schedule_id is not None
        found = yard.facade.get(event.schedule_id, now=NOW)
        seen.append("gone" if found is None else found.schedule.status)

    facade = Scheduler(yard.store, yard.tenant, sink=look)
    job = yard.recurring()
    facade.pause(job.id, now=NOW)
    facade.unschedule(job.id, now=NOW)
    assert seen == ["paused", "gone"]
