"""Names: a schedule is made or changed by its name, found by it, and gives it to the next one when it has ended."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from migrator.errors import ConflictError, UsageError
from migrator.scheduler.client import Scheduler
from migrator.scheduler.models import Job, ScheduleRequest
from migrator.verify.behaviour.harness import DAY, DONE, FAILED, HOUR, MINUTE, Harness
from tests.contract.facade.stored import everything, status_of, stored
from tests.contract.facade.test_races import together
from tests.contract.rows import NOW, SECOND, schedule


def nightly(**more: Any) -> ScheduleRequest:  # noqa: ANN401 - the fields of a request
    return ScheduleRequest(
        **{"name": "nightly", "handler_name": "work", "cron": "30 2 * * *", "created_by": "deploy"} | more
    )


def ensure(harness: Harness, **more: Any) -> Job:  # noqa: ANN401 - as above
    return harness.facade.ensure(nightly(**more), now=harness.now)


def changes_of(harness: Harness, job: Job) -> list[bytes]:
    """Return the metadata of audit entries, which names the changed fields."""
    with harness.session() as session:
        entries = [one for one in session.audit.list(1000) if one.schedule_id == job.id]
    return sorted(one.metadata or b"" for one in entries if one.action == "scheduler:job.updated")


FULL: dict[str, Any] = {
    "payload": {"days": 3, "rate": 1.0, "path": ["a", None, True]},
    "tags": ("x", "y"),
    "metadata": {"team": "data"},
    "description": "what it does",
    "queue": "slow",
    "priority": "high",
    "timeout": 7 * SECOND,
    "retry_delay": 2 * SECOND,
    "misfire_grace": HOUR,
    "max_concurrency": None,
    "misfire_policy": "skip",
    "max_fires": 9,
    "start_at": NOW + HOUR,
    "end_at": NOW + 90 * DAY,
    "timezone": "Europe/Berlin",
}


@pytest.mark.parametrize("given", [{}, FULL, {"cron": None, "interval": HOUR}], ids=["least", "most", "interval"])
def test_what_is_ensured_again_is_not_written(harness: Harness, given: dict[str, Any]) -> None:
    made = ensure(harness, **given)
    assert (made.schedule.created_by, made.schedule.status) == ("deploy", "scheduled")
    before = everything(harness)
    harness.advance(MINUTE)
    assert ensure(harness, **given) == made
    assert everything(harness) == before


def test_what_is_ensured_otherwise_is_changed_and_keeps_its_runs_and_its_phase(harness: Harness) -> None:
    first = ensure(harness)
    run = harness.facade.trigger_now(first.id, now=NOW)
    harness.advance(HOUR)
    job = ensure(harness, payload={"days": 4}, description="new", misfire_policy="fire_all")
    assert (job.id, job.next_fire_at) == (first.id, first.next_fire_at)
    assert (job.schedule.payload, job.schedule.description) == (b'{"days":4}', "new")
    assert job.triggers[0].misfire_policy == "fire_all"
    assert [one.id for one in harness.runs(job)] == [run.id]
    assert changes_of(harness, job) == [
        b'{"changed":"bounds","kind":"cron"}',
        b'{"changed":"description,payload"}',
    ]
    job = ensure(harness, cron="30 3 * * *", payload={"days": 4}, description="new", misfire_policy="fire_all")
    assert first.next_fire_at is not None
    assert job.next_fire_at == first.next_fire_at + HOUR
    assert job.triggers[0].id == first.triggers[0].id
    job = ensure(harness)
    assert (job.schedule.payload, job.schedule.description, job.triggers[0].misfire_policy) == (None, None, None)
    assert job.next_fire_at == first.next_fire_at
    assert stored(harness, job) == job


def test_what_a_person_has_paused_or_disabled_stays_so(harness: Harness) -> None:
    job = ensure(harness)
    harness.facade.toggle(job.id, enabled=False, now=NOW)
    harness.facade.pause(job.id, now=NOW)
    again = ensure(harness, cron="0 4 * * *", priority=70)
    assert (again.schedule.status, again.schedule.enabled, again.schedule.priority) == ("paused", False, 70)


def test_one_that_has_ended_by_its_bounds_begins_again_with_others(harness: Harness) -> None:
    job = ensure(harness, end_at=NOW + 2 * DAY)
    harness.run_until(NOW + 3 * DAY, HOUR)
    assert status_of(harness, job) == "completed"
    assert ensure(harness, end_at=NOW + 2 * DAY).schedule.status == "completed"
    again = ensure(harness, end_at=None)
    assert (again.id, again.schedule.status) == (job.id, "scheduled")
    assert again.next_fire_at is not None


def test_what_cannot_be_ensured_changes_nothing(harness: Harness) -> None:
    ensure(harness)
    harness.once(name="once")
    harness.facade.on_event("arrived", "work", name="listener", now=NOW)
    before = everything(harness)
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"name": None}, UsageError, "name is missing"),
        ({"name": "once"}, UsageError, "its triggers: one_time"),
        ({"name": "listener"}, UsageError, "its triggers: event"),
        ({"id": uuid4()}, ConflictError, "the name 'nightly' is taken by schedule "),
        ({"cron": None}, UsageError, "a cron line or an interval"),
        ({"cron": "0 0 30 2 *"}, UsageError, "never fire|day"),
        ({"payload": {"at": [NOW]}}, UsageError, r"^payload\.at\[0\] is no JSON value: of the type datetime$"),
        ({"timeout": timedelta(0)}, UsageError, "timeout must be"),
        ({"end_at": NOW - HOUR}, UsageError, "it would never fire again"),
    ]
    for given, error, words in refused:
        with pytest.raises(error, match=words):
            pytest.fail(f"{given} was taken: {ensure(harness, **given)}")
        assert everything(harness) == before, given


def test_several_processes_that_ensure_one_schedule_make_one(harness: Harness) -> None:
    identity = uuid4()
    answers = together(*[lambda: ensure(harness)] * 3, *[lambda: ensure(harness, name="other", id=identity)] * 3)
    assert answers == ["done"] * 6
    assert harness.facade.list(now=NOW).total == 2


@pytest.mark.parametrize("call", ["ensure", "schedule"])
def test_an_id_that_another_session_takes_at_this_moment_gets_no_second_trigger(harness: Harness, call: str) -> None:
    """The other session commits after this one has looked for the id, and before this one writes."""
    request = nightly(id=uuid4())
    patience = 0.1 if harness.backend == "memory" else 60  # which has one session at a time: the other one waits
    others: list[Future[Job]] = []
    with ThreadPoolExecutor(1) as pool:

        def new_id() -> UUID:
            if not others:
                others.append(pool.submit(harness.facade.ensure, request, now=harness.now))
                wait(others, patience)
            return uuid4()

        facade = Scheduler(harness.store, harness.tenant, new_id=new_id)
        if call == "ensure" or harness.backend == "memory":
            assert getattr(facade, call)(request, now=harness.now).id == request.id
        else:
            with pytest.raises(ConflictError, match="taken"):
                facade.schedule(request, now=harness.now)
        assert others.pop().result().id == request.id
    (job,) = harness.facade.list(now=NOW).jobs
    assert (job.id, len(job.triggers)) == (request.id, 1)


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
def test_a_one_off_job_that_has_ended_gives_its_name_to_the_next(harness: Harness, ending: str) -> None:
    first = harness.once(name="import 7", max_retries=0)
    with pytest.raises(ConflictError, match=f"^the name 'import 7' is taken by schedule {first.id}$"):
        harness.once(name="import 7")
    if ending == "cancelled":
        harness.facade.cancel(first.id, now=harness.now)
    else:
        harness.executor.outcome = lambda _: FAILED if ending == "failed" else DONE
        harness.run_once()
    assert status_of(harness, first) == ending
    second = harness.once(name="import 7")
    assert (second.schedule.name, second.id != first.id) == ("import 7", True)
    assert harness.facade.get(first.id, now=harness.now) is None
    if ending != "cancelled":
        assert len(harness.facade.history(first.id, now=harness.now).executions) == 1
    found = harness.facade.get_by_name("import 7", now=harness.now)
    assert found is not None
    assert found.id == second.id
    deleted = [event for event in harness.events if event.name == "scheduler:job.deleted"]
    assert [(event.schedule_id, event.message) for event in deleted] == [
        (first.id, "its name was given to another schedule")
    ]


def test_a_schedule_that_can_begin_again_keeps_its_name(harness: Harness) -> None:
    harness.cron(name="taken", max_fires=1)
    other = harness.cron(name="other")
    harness.run_until(harness.now + 10 * MINUTE)
    writes: list[Callable[[], Job]] = [
        lambda: harness.cron(name="taken"),
        lambda: harness.facade.update(other.id, name="taken", now=harness.now),
        lambda: harness.facade.on_event("arrived", "work", name="taken", now=harness.now),
    ]
    for write in writes:
        with pytest.raises(ConflictError, match=r"^the name 'taken' is taken by schedule "):
            write()
    cancelled = harness.cron(name="free")
    harness.facade.cancel(cancelled.id, now=harness.now)
    assert harness.facade.update(other.id, name="free", now=harness.now).schedule.name == "free"


def test_one_that_was_cancelled_is_made_anew_when_it_is_ensured(harness: Harness) -> None:
    first = ensure(harness)
    harness.facade.cancel(first.id, now=NOW)
    assert ensure(harness).id != first.id


def test_a_one_off_job_needs_no_name(harness: Harness) -> None:
    one, two = harness.once(name=None), harness.once(name=None)
    assert [one.schedule.name, two.schedule.name] == [f"work:{one.id}", f"work:{two.id}"]
    with pytest.raises(UsageError, match="name is missing"):
        harness.cron(name=None)


def test_a_schedule_is_found_by_its_name(harness: Harness, plant: Callable[..., None]) -> None:
    assert harness.facade.get_by_name("nightly", now=NOW) is None
    shared = schedule("*", name=f"nightly {harness.tenant}", created_at=NOW, updated_at=NOW)
    plant(shared)
    found = harness.facade.get_by_name(shared.name, now=NOW)
    assert found is not None
    assert found.id == shared.id
    own = harness.cron(name=shared.name)
    assert harness.facade.get_by_name(shared.name, now=NOW) == own
    harness.facade.unschedule(own.id, now=NOW)
    found = harness.facade.get_by_name(shared.name, now=NOW)
    assert found is not None
    assert found.id == shared.id


def test_a_schedule_that_was_copied_is_found_and_changed_by_its_name(
    harness: Harness, plant: Callable[..., None]
) -> None:
    made = ensure(harness)
    with harness.session() as session:
        session.schedules.soft_delete(made.id, "me")
    copied = schedule(harness.tenant, name="nightly", created_at=NOW, updated_at=NOW)
    if harness.backend != "mongo":
        copied = msgspec.structs.replace(copied, source="elsewhere/jobs", source_id="1")
    of_copied = msgspec.structs.replace(
        made.triggers[0], id=uuid4(), schedule_id=copied.id, enabled=True, source=None, source_id=None
    )
    plant(copied, of_copied)
    job = ensure(harness, priority=80)
    assert (job.id, job.schedule.priority, job.schedule.source) == (copied.id, 80, stored(harness, job).schedule.source)
    assert harness.facade.list(now=NOW).total == 1
