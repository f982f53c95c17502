"""Events: who hears of them, once each, in which order, and what they lead to."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest

from migrator.errors import ConflictError, UsageError
from migrator.scheduler.client import Scheduler
from migrator.scheduler.completion import Outcome
from migrator.scheduler.executor import InProcessExecutor
from migrator.scheduler.handlers import Context, Registry, call_handler, job_creator
from migrator.scheduler.models import Job, ScheduleRequest
from migrator.scheduler.worker import WorkerCore, WorkerOptions
from migrator.values import jsonb
from migrator.verify.behaviour.harness import DONE, FAILED_FOR_GOOD, MINUTE, Harness
from tests.contract.facade.stored import Elsewhere, status_of
from tests.contract.rows import NOW, event_trigger, fresh, schedule

EVENT = "build.done"


@pytest.mark.proves("2-F6", "2-F7")
def test_each_handler_of_an_event_gets_a_run_with_the_payload(harness: Harness) -> None:
    hears = harness.facade.on_event(EVENT, "deploy", now=NOW)
    other = harness.facade.on_event("build.begun", "note", now=NOW)
    assert (hears.schedule.name, hears.schedule.status, hears.next_fire_at) == ("build.done:deploy", "scheduled", None)
    done = harness.facade.trigger_event(EVENT, {"image": "a"}, event_id="e1", by="ci", now=NOW)
    (run,) = done.runs
    assert (run.schedule_id, run.cause, run.triggered_by, run.state) == (hears.id, "event", "ci", "queued")
    assert jsonb.decode(run.metadata or b"") == {"event": EVENT, "eventId": "e1", "payload": {"image": "a"}}
    assert harness.run_once() == 1
    assert [one.state for one in harness.runs(hears)] == ["completed"]
    assert harness.runs(other) == []


@pytest.mark.proves("2-F7")
def test_deliveries_at_the_same_moment_make_one_run(harness: Harness) -> None:
    hears = [harness.facade.on_event(EVENT, name, now=NOW) for name in "ab"]

    def deliver(_: int) -> int:
        return len(harness.facade.trigger_event(EVENT, 1, event_id="e1", now=NOW).runs)

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(deliver, range(8)))
    assert sum(made) == 2
    assert [len(harness.runs(job)) for job in hears] == [1, 1]


@pytest.mark.proves("2-F6", "2-P1")
def test_a_global_handler_hears_the_events_of_every_tenant_each_once(
    harness: Harness, plant: Callable[..., None]
) -> None:
    event = fresh()
    of_all = schedule("*", name=fresh(), handler_name="all", priority=90)
    plant(of_all, event_trigger(of_all, event))
    mine = harness.facade.on_event(event, "mine", now=NOW)
    beside = Scheduler(harness.store, fresh())
    done = harness.facade.trigger_event(event, event_id="e1", now=NOW)
    assert [(run.schedule_id, run.tenant_id) for run in done.runs] == [
        (of_all.id, harness.tenant),
        (mine.id, harness.tenant),
    ]
    theirs = beside.trigger_event(event, event_id="e1", now=NOW)  # the same id, another tenant's event
    assert [(run.schedule_id, run.tenant_id) for run in theirs.runs] == [(of_all.id, beside.tenant)]
    assert harness.facade.trigger_event(event, event_id="e1", now=NOW).repeated == 2


@pytest.mark.proves("2-F6c")
def test_the_counts_of_a_handler_are_counts_over_its_runs(harness: Harness) -> None:
    hears = harness.facade.on_event(EVENT, "deploy", max_retries=0, now=NOW)
    outcomes = [DONE, FAILED_FOR_GOOD, DONE, Outcome(state="timeout", error="too slow", final=True)]
    for outcome in outcomes:
        harness.executor.outcome = lambda _, outcome=outcome: outcome  # type: ignore[misc] # bound at once
        harness.advance(MINUTE)
        harness.facade.trigger_event(EVENT, now=harness.now)
        harness.run_once()
    counts = Counter(run.state for run in harness.runs(hears))
    found = harness.facade.stats(hears.id, now=harness.now)
    assert (found.total, found.successful, found.failed, found.timeout) == (4, 2, 1, 1)
    assert {state: count for state, count in found.by_state.items() if count} == dict(counts)
    assert found.last_triggered_at == harness.now


OUTSIDE = {"workflow": "trigger_workflow", "agent": "dispatch_agent"}
"""Type of handler, and the action of ``orchestrator`` that leads to it."""


@pytest.mark.proves("2-F6b", "2-X4")
@pytest.mark.parametrize("kind", OUTSIDE)
def test_a_workflow_or_an_agent_is_asked_elsewhere(harness: Harness, kind: str) -> None:
    payload = {"action_type": OUTSIDE[kind], "action_config": {"flow": "x"}}
    hears = harness.facade.on_event(EVENT, "ship", handler_type=kind, payload=payload, now=NOW)
    assert hears.schedule.handler_type == kind
    registry, elsewhere = Registry(), Elsewhere()
    registry.send_with(kind, elsewhere)
    worker = WorkerCore(
        harness.store,
        InProcessExecutor(registry),
        WorkerOptions(worker_id=uuid4(), tenants=(harness.tenant,)),
        clock=lambda: harness.now,
    )
    (run,) = harness.facade.trigger_event(EVENT, {"tag": 1}, event_id="e1", now=NOW).runs
    worker.claim()
    (asked,) = elsewhere.asked
    assert (asked.run_id, asked.handler_name, asked.handler_type) == (run.id, "ship", kind)
    assert asked.arguments == payload
    assert asked.asked == {"event": EVENT, "eventId": "e1", "payload": {"tag": 1}}
    assert harness.runs(hears)[0].external_task_id == "task-1"


class At(Scheduler):
    """A facade at the tests' time."""

    def schedule_once(
        self, request: ScheduleRequest, run_at: datetime | None = None, *, now: datetime | None = None
    ) -> Job:
        return super().schedule_once(request, run_at, now=now or NOW)


@pytest.mark.proves("2-F6b", "2-F2")
def test_create_job_makes_a_job_that_runs(harness: Harness) -> None:
    config = {
        "handler_name": "publish",
        "name": "of the event",
        "payload": {"a": 1},
        "priority": "high",
        "timeout_ms": 9000,
    }
    payload = {"action_type": "create_job", "action_config": config}
    harness.facade.on_event(EVENT, "make", handler_type="job_creator", payload=payload, now=NOW)
    harness.facade.trigger_event(EVENT, {"tag": 1}, event_id="e1", now=NOW)
    (claim,) = harness.store.queue.claim("w", 5, timedelta(minutes=1), NOW, tenants=[harness.tenant])
    registry = Registry()
    registry.create_jobs("make", lambda tenant: At(harness.store, tenant))
    create = registry.function(claim.schedule)
    assert callable(create)
    context = Context(claim.run, claim.schedule, lambda *_: None)
    made = call_handler(create, claim.arguments, context)
    assert call_handler(create, claim.arguments, context) == made  # delivered twice: one job
    job = harness.facade.get(UUID(made), now=NOW)
    assert job is not None
    assert (job.schedule.name, job.schedule.handler_name, job.schedule.priority) == ("of the event", "publish", 75)
    assert job.schedule.timeout_ms == 9000
    assert jsonb.decode(job.schedule.metadata or b"")["eventId"] == "e1"
    harness.run_once()
    assert [one.schedule.handler_name for one in harness.executor.taken if one.schedule is not None] == ["publish"]
    assert status_of(harness, job) == "completed"


def test_a_config_that_names_no_handler_makes_the_run_fail(harness: Harness) -> None:
    create = job_creator(lambda _: harness.facade)
    with pytest.raises(UsageError, match="names no handler_name"):
        create(action_config={}, context=None)
    with pytest.raises(UsageError, match="not create_job"):
        create(action_config={}, context=None, action_type="webhook")


@pytest.mark.proves("2-F6")
def test_a_handler_registered_twice_is_told_so(harness: Harness) -> None:
    harness.facade.on_event(EVENT, "deploy", now=NOW)
    with pytest.raises(ConflictError, match="name"):
        harness.facade.on_event(EVENT, "deploy", now=NOW)
    assert harness.facade.on_event(EVENT, "deploy", name="once more", now=NOW).schedule.name == "once more"
