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
from migrator.values import jsonb
from migrator.verify.behaviour.harness import DONE, FAILED, HOUR, MINUTE, Harness
from tests.contract.facade.stored import status_of
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


def trail(harness: Harness) -> list[AuditEntry]:
    with harness.store.session(harness.tenant, now=harness.now) as session:
        return [*session.audit.list(100)][::-1]


@pytest.mark.proves("2-X12")
def test_a_life_is_told_in_order_to_the_trail_and_to_whoever_listens(harness: Harness) -> None:
    job = harness.recurring(max_retries=1)
    steps: list[Callable[[], Any]] = [
        lambda: harness.facade.pause(job.id, by="ann", now=harness.now),
        lambda: harness.facade.resume(job.id, by="ann", now=harness.now),
        lambda: harness.facade.reschedule(job.id, interval=HOUR, by="ann", now=harness.now),
        lambda: harness.facade.update(job.id, priority=1, by="ann", now=harness.now),
        lambda: harness.facade.cancel(job.id, by="ann", reason="enough", now=harness.now),
        lambda: harness.facade.unschedule(job.id, by="ann", now=harness.now),
    ]
    for step in steps:
        harness.advance(SECOND)
        step()
    names = ["created", "paused", "resumed", "updated", "updated", "cancelled", "deleted"]
    assert [event.name for event in harness.events] == [f"scheduler:job.{name}" for name in names]
    assert {event.schedule_id for event in harness.events} == {job.id}
    assert [(entry.action, entry.occurred_at) for entry in trail(harness)] == [
        (event.name, event.at) for event in harness.events
    ]
    cancelled = trail(harness)[5]
    assert (cancelled.category, cancelled.message, cancelled.schedule_id) == ("scheduler", "enough", job.id)
    assert jsonb.decode(cancelled.actor or b"") == {"actorId": "ann", "kind": "user"}


@pytest.mark.proves("2-X12")
def test_the_ten_names_are_those_of_the_source_and_all_are_told(harness: Harness) -> None:
    assert list(lifecycle.NAMES) == PORT_EVENTS
    worker_heard: list[Event] = []
    harness.worker._recorder._sink = worker_heard.append
    job = harness.recurring(max_retries=1)
    harness.executor.outcome = lambda claim: FAILED if (claim.run.attempt or 1) == 1 else None
    harness.advance(MINUTE)
    harness.run_once()  # dispatched, failed, to be retried
    harness.executor.outcome = lambda _: DONE
    harness.advance(MINUTE)
    harness.run_once()
    harness.facade.pause(job.id, now=harness.now)
    harness.facade.resume(job.id, now=harness.now)
    harness.facade.toggle(job.id, enabled=False, now=harness.now)
    harness.facade.cancel(job.id, now=harness.now)
    harness.facade.unschedule(job.id, now=harness.now)
    told = {event.name for event in (*harness.events, *worker_heard)}
    assert told == set(PORT_EVENTS)
    assert [event.name for event in worker_heard][:3] == [
        "scheduler:job.dispatch",
        "scheduler:job.execution.failed",
        "scheduler:job.execution.retry_scheduled",
    ]


def test_a_refused_call_tells_nothing(harness: Harness) -> None:
    job = harness.recurring()
    harness.events.clear()
    for call in (harness.facade.resume, harness.facade.retry_schedule):
        with suppress(MigratorError):
            call(job.id, now=NOW)
    with suppress(MigratorError):
        harness.cron(cron="nonsense")
    assert harness.events == []
    assert len(trail(harness)) == 1


def test_a_run_that_was_asked_for_stands_in_the_trail_with_who_asked(harness: Harness) -> None:
    job = harness.recurring()
    run = harness.facade.trigger_now(job.id, by="ann", now=NOW + SECOND)
    entry = trail(harness)[-1]
    assert (entry.action, entry.run_id, entry.schedule_id) == ("scheduler:run.queued", run.id, job.id)
    assert (entry.correlation_id, jsonb.decode(entry.actor or b"")) == (
        run.trace_id,
        {"actorId": "ann", "kind": "user"},
    )


def test_a_listener_that_fails_changes_nothing(harness: Harness, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(event: Event) -> None:
        raise KeyError(event.name)

    facade = Scheduler(harness.store, harness.tenant, sink=fails)
    job = harness.recurring()
    assert facade.pause(job.id, now=NOW).schedule.status == "paused"
    assert status_of(harness, job) == "paused"
    assert "a listener to lifecycle events failed" in capsys.readouterr().err


def test_events_are_told_after_the_commit(harness: Harness) -> None:
    seen: list[str] = []

    def look(event: Event) -> None:
        assert event.schedule_id is not None
        found = harness.facade.get(event.schedule_id, now=NOW)
        seen.append("gone" if found is None else found.schedule.status)

    facade = Scheduler(harness.store, harness.tenant, sink=look)
    job = harness.recurring()
    facade.pause(job.id, now=NOW)
    facade.unschedule(job.id, now=NOW)
    assert seen == ["paused", "gone"]
