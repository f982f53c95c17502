"""Two sessions at once on PostgreSQL: who waits, who is refused, and what both see afterwards."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

import msgspec
import pytest

from migrator.errors import ConflictError
from migrator.store.postgres.store import PostgresSession, PostgresStore
from migrator.store.protocols import RunQuery
from tests.schema_rows import connect, insert
from tests.store_postgres import NOW, graph_job, opened, policy_job, run, schedule, trigger

T = TypeVar("T")
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def wait_for_waiters(dsn: str, count: int = 1) -> None:
    """Return when so many sessions wait for a lock; the test's own timeout ends it otherwise."""
    with connect(dsn) as connection:
        while (connection.execute(WAITING).fetchone() or (0,))[0] < count:
            pass


def in_session(store: PostgresStore, call: Callable[[PostgresSession], T]) -> T:
    with store.session("a", now=NOW) as session:
        return call(session)


@pytest.mark.proves("3-R3")
@pytest.mark.parametrize("committed", [True, False])
def test_runs_of_one_schedule_are_numbered_one_after_the_other(*, committed: bool, scheduler_dsn: str) -> None:
    one = schedule()
    with opened(scheduler_dsn) as store, ThreadPoolExecutor(1) as threads:
        in_session(store, lambda session: session.schedules.upsert(one))
        later: Future[int | None]
        try:
            with store.session("a", now=NOW) as session:
                assert session.runs.create(run(schedule_id=one.id)).run_number == 1
                later = threads.submit(
                    in_session, store, lambda other: other.runs.create(run(schedule_id=one.id)).run_number
                )
                wait_for_waiters(scheduler_dsn)
                if not committed:
                    raise KeyError  # noqa: TRY301 - how a session is given up
        except KeyError:
            pass
        assert later.result() == (2 if committed else 1)


@pytest.mark.proves("3-R3")
def test_numbers_go_on_after_migrated_runs_and_after_their_removal(scheduler_dsn: str) -> None:
    one = schedule()
    with opened(scheduler_dsn) as store:
        in_session(store, lambda session: session.schedules.upsert(one))
        with connect(scheduler_dsn) as connection:
            insert(connection, "runs", "a", schedule_id=one.id, run_number=41, state="completed", source="agenda/jobs")
        made = in_session(store, lambda session: session.runs.create(run(schedule_id=one.id, state="completed")))
        assert made.run_number == 42
        with store.session("a", now=NOW + timedelta(days=1)) as session:
            gone = session.runs.beyond(0, session.now, 10)
            assert session.runs.remove([row.id for row in gone]) >= 1
            assert session.run_summaries.recompute(one.id).counters is not None
            assert session.runs.create(run(schedule_id=one.id)).run_number == 43
        with connect(scheduler_dsn) as connection:  # a copy that goes on while the application already runs
            insert(connection, "runs", "a", schedule_id=one.id, run_number=60, state="completed", source="agenda/jobs")
        assert in_session(store, lambda session: session.runs.create(run(schedule_id=one.id))).run_number == 61


@pytest.mark.proves("1-R3", "0-T2.4.2")
def test_of_many_that_replace_a_job_one_succeeds(scheduler_dsn: str) -> None:
    job, one = graph_job(), run()
    running = msgspec.structs.replace(job, status=1)
    with opened(scheduler_dsn, pool_size=8) as store, ThreadPoolExecutor(8) as threads:
        in_session(store, lambda session: session.graph_jobs.insert(job))
        in_session(store, lambda session: session.runs.create(one))
        taken = [
            threads.submit(in_session, store, lambda session: session.graph_jobs.try_replace(running, "pending"))
            for _ in range(8)
        ]
        assert sorted(future.result() for future in taken) == [False] * 7 + [True]
        assert len(in_session(store, lambda session: session.graph_jobs.events(job.id))) == 1
        ends = [
            threads.submit(
                in_session,
                store,
                lambda session, state=state: session.runs.update(msgspec.structs.replace(one, state=state), "queued"),
            )
            for state in ["running", "cancelled", "error", "skipped"] * 2
        ]
        assert sorted(future.result() for future in ends) == [False] * 7 + [True]


def test_the_second_of_two_runs_for_one_slot_waits_and_is_refused(scheduler_dsn: str) -> None:
    one = schedule()
    cause = trigger(one)

    def fire(session: PostgresSession) -> None:
        with pytest.raises(ConflictError, match="the slot of the trigger is taken"):
            session.runs.create(run(trigger_id=cause.id, scheduled_at=NOW))
        session.schedules.upsert(schedule(name="after the refusal"))

    with opened(scheduler_dsn) as store, ThreadPoolExecutor(1) as threads:
        in_session(store, lambda session: (session.schedules.upsert(one), session.triggers.upsert(cause)))
        with store.session("a", now=NOW) as session:
            session.runs.create(run(trigger_id=cause.id, scheduled_at=NOW))
            second = threads.submit(in_session, store, fire)
            wait_for_waiters(scheduler_dsn)
        second.result()
        with store.session("a") as session:
            assert len(session.runs.list(RunQuery()).runs) == 1
            assert session.schedules.by_name("after the refusal") is not None


def test_jobs_that_another_session_takes_are_passed_over_not_waited_for(scheduler_dsn: str) -> None:
    jobs = [policy_job(priority_rank=rank) for rank in (3, 2, 1)]
    with opened(scheduler_dsn) as store:
        for job in jobs:
            in_session(store, lambda session, job=job: session.policy_jobs.insert(job))  # type: ignore[misc] # as above
        minute = timedelta(minutes=1)
        with store.session("a", now=NOW) as one, store.session("a", now=NOW) as other:
            assert [job.id for job in one.policy_jobs.lease("one", 2, minute)] == [jobs[0].id, jobs[1].id]
            assert [job.id for job in other.policy_jobs.lease("other", 2, minute)] == [jobs[2].id]
        assert in_session(store, lambda session: session.policy_jobs.lease("third", 2, minute)) == []


@pytest.mark.proves("0-T2.4.3")
def test_pages_hold_every_run_once_while_others_are_made(scheduler_dsn: str) -> None:
    with opened(scheduler_dsn) as store:
        # Several runs share each instant, so that a page ends in the middle of one.
        runs = [run(created_at=NOW + timedelta(seconds=number // 5)) for number in range(50)]
        for one in runs:
            in_session(store, lambda session, one=one: session.runs.create(one))  # type: ignore[misc] # as above
        seen, cursor = [], None
        while True:
            page = in_session(store, lambda session, at=cursor: session.runs.list(RunQuery(cursor=at, limit=7)))  # type: ignore[misc] # as above
            seen += [one.id for one in page.runs]
            cursor = page.cursor
            if cursor is None:
                break
            in_session(store, lambda session: session.runs.create(run(created_at=NOW + timedelta(hours=1))))
        assert seen == [one.id for one in sorted(runs, key=lambda one: (-one.created_at.timestamp(), one.id))]


def test_an_edit_keeps_the_microseconds_of_a_migrated_row(scheduler_dsn: str) -> None:
    with connect(scheduler_dsn) as connection:
        exact = NOW + timedelta(microseconds=123_456)
        moved = insert(connection, "schedules", "a", source="x/y", source_id="7", created_at=exact, paused_at=exact)
    with opened(scheduler_dsn) as store:
        with store.session("a", now=NOW) as session:
            stored = session.schedules.get(moved)
            assert stored is not None
            edited = session.schedules.upsert(msgspec.structs.replace(stored, description="edited", source=None))
            assert (edited.created_at, edited.paused_at, edited.source, edited.source_id) == (exact, exact, "x/y", "7")
        cut = msgspec.structs.replace(stored, paused_at=exact.replace(microsecond=123_000))
        with store.session("a", now=NOW) as session:
            assert session.schedules.upsert(cut).paused_at == exact  # what a backend of milliseconds would give back
            assert session.schedules.upsert(msgspec.structs.replace(stored, paused_at=NOW)).paused_at == NOW


def test_events_come_in_the_order_they_were_appended_the_migrated_ones_first(scheduler_dsn: str) -> None:
    job = graph_job()
    with opened(scheduler_dsn) as store:
        in_session(store, lambda session: session.graph_jobs.insert(job))
        with connect(scheduler_dsn) as connection:
            for number, minute in ((2**62 + 9, 1), (2**62 + 3, 2)):
                at = NOW - timedelta(minutes=minute)
                insert(connection, "graph_job_events", "a", id=number, job_id=job.id, created_at=at)
        for status, expected in ((1, "pending"), (2, "running")):
            changed = msgspec.structs.replace(job, status=status)
            assert in_session(store, lambda s, c=changed, e=expected: s.graph_jobs.try_replace(c, e))  # type: ignore[misc] # as above
        events = in_session(store, lambda session: session.graph_jobs.events(job.id))
        assert [event.id for event in events[:2]] == [2**62 + 3, 2**62 + 9]
        assert [event.status for event in events[2:]] == [1, 2]


def test_of_a_policy_run_s_rows_the_one_born_here_answers(scheduler_dsn: str) -> None:
    with connect(scheduler_dsn) as connection:
        work = insert(connection, "policy_jobs", "a", run_id="r", source="stellaops/policy_jobs")
        insert(connection, "policy_jobs", "a", run_id="r", source="stellaops/policy_runs")
    with opened(scheduler_dsn) as store, store.session("a", now=NOW) as session:
        found = session.policy_jobs.by_run_id("r")
        assert found is not None
        assert found.id == work
        born = policy_job(run_id="r")
        session.policy_jobs.insert(born)
        found = session.policy_jobs.by_run_id("r")
        assert found is not None
        assert found.id == born.id
        with pytest.raises(ConflictError, match="run id"):
            session.policy_jobs.insert(policy_job(run_id="r"))
