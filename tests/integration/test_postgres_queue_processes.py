"""The queue between processes: nothing twice, nothing lost, never more than may run; also when one is cut off."""

import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from multiprocessing.connection import Connection as Pipe
from uuid import UUID

import msgspec
import psycopg
import pytest

from migrator.errors import UnreachableError
from migrator.records import Run, Schedule, Trigger
from migrator.store.postgres.store import PostgresStore
from migrator.store.queue import Claim, Finish, Fire
from tests.integration.test_postgres_store_concurrency import wait_for_waiters
from tests.schema_rows import connect
from tests.store_postgres import NOW, opened, run, schedule, trigger
from tests.store_processes import children

PROCESSES, JOBS = 10, 1_000
LEASE = timedelta(minutes=5)
LIMIT = 3

FILL = """
INSERT INTO scheduler.runs (id, tenant_id, schedule_id, state, available_at, created_at)
SELECT gen_random_uuid(), 'a', %s, 'queued', %s + n * interval '1 millisecond', %s FROM generate_series(1, %s) AS n
"""
RUNNING = "SELECT count(*) FROM scheduler.runs WHERE state = 'running' AND schedule_id = %s"
Winners = list[tuple[UUID, int]]


def completed(claim: Claim, worker: str) -> Finish:
    row = claim.run
    return Finish(run_id=row.id, tenant_id=row.tenant_id, worker_id=worker, fence=claim.fence, state="completed")


def waiting(dsn: str, of: Schedule, count: int) -> None:
    with opened(dsn) as store, store.session("a", now=NOW) as session:
        session.schedules.upsert(of)
    with connect(dsn) as connection:
        connection.execute(FILL, (of.id, NOW, NOW, count))


def take_all(store: PostgresStore, _pipe: Pipe, number: int, batch: int) -> Winners:
    """Claim and finish until nothing is left; return what was ended here."""
    worker, ended = f"worker {number}", Winners()
    left = "SELECT 1 FROM scheduler.runs WHERE state = 'queued' LIMIT 1"
    with connect(store.settings.postgres.dsn or "") as connection:
        while connection.execute(left).fetchone() is not None:
            claims = store.queue.claim(worker, batch, LEASE)
            if claims:
                limit = (claims[0].schedule or schedule()).max_concurrency
                running = (connection.execute(RUNNING, (claims[0].run.schedule_id,)).fetchone() or (0,))[0]
                assert limit is None or running <= limit
            kept = set(store.queue.finish([completed(claim, worker) for claim in claims]))
            ended += [(claim.run.id, claim.fence) for claim in claims if claim.run.id in kept]
    return ended


@pytest.mark.proves("3-B2", "2-X6", "3-C2", "4-J4", "3-P5", "3-T4")
def test_of_ten_processes_one_has_each_job(any_scheduler_dsn: str) -> None:
    waiting(any_scheduler_dsn, schedule(), JOBS)
    with children(PROCESSES, take_all, any_scheduler_dsn, 7) as born:
        ended = [each for child in born for each in child.hears()]
    assert len(ended) == len({identity for identity, _ in ended}) == JOBS
    assert {fence for _, fence in ended} == {1}


@pytest.mark.proves("2-X7")
def test_never_more_runs_than_a_schedule_may_have(any_scheduler_dsn: str) -> None:
    waiting(any_scheduler_dsn, schedule(max_concurrency=LIMIT), 60)
    with children(4, take_all, any_scheduler_dsn, 2) as born:
        ended = [each for child in born for each in child.hears()]
    assert len({identity for identity, _ in ended}) == len(ended) == 60


LOGGED = """
INSERT INTO scheduler.execution_logs (id, tenant_id, run_id, logged_at, level)
VALUES (gen_random_uuid(), 'a', %s, %s, 'info')
"""
FIRED = """
INSERT INTO scheduler.runs (id, tenant_id, schedule_id, trigger_id, state, created_at)
VALUES (gen_random_uuid(), 'a', %s, %s, 'queued', %s)
"""


def test_a_run_is_claimed_while_a_line_of_its_log_is_written(any_scheduler_dsn: str) -> None:
    waiting(any_scheduler_dsn, schedule(), 1)
    with opened(any_scheduler_dsn) as store, connect(any_scheduler_dsn) as connection, connection.transaction():
        ((identity,),) = connection.execute("SELECT id FROM scheduler.runs").fetchall()
        connection.execute(LOGGED, (identity, NOW))
        assert [claim.run.id for claim in store.queue.claim("worker", 1, LEASE)] == [identity]


GATE = """
CREATE FUNCTION public.pass_gate() RETURNS boolean LANGUAGE sql VOLATILE AS
    'SELECT pg_advisory_xact_lock_shared(99) IS NOT NULL';
CREATE POLICY gate ON scheduler.schedules AS RESTRICTIVE TO scheduler_dispatcher USING (public.pass_gate());
"""
"""Makes a dispatcher wait between seeing the queue and locking a schedule, while somebody holds the lock 99."""

QUICKER = """
UPDATE scheduler.runs SET state = 'running', fence = 1 WHERE id = %(id)s;
UPDATE scheduler.schedules SET status = status;
"""
"""What a claim does that began before the first run came."""


@pytest.mark.proves("2-X7")
def test_two_claims_that_saw_another_queue_do_not_take_more_than_the_limit_between_them(any_scheduler_dsn: str) -> None:
    of = schedule(max_concurrency=1)
    waiting(any_scheduler_dsn, of, 2)
    with opened(any_scheduler_dsn) as store, connect(any_scheduler_dsn) as connection, ThreadPoolExecutor(1) as threads:
        connection.execute(GATE.encode())
        later = connection.execute("SELECT id FROM scheduler.runs ORDER BY available_at DESC LIMIT 1").fetchone()
        connection.execute("SELECT pg_advisory_lock(99)")
        claim = threads.submit(store.queue.claim, "slow", 2, LEASE)
        wait_for_waiters(any_scheduler_dsn)
        with psycopg.ClientCursor(connection) as cursor:
            cursor.execute(QUICKER, {"id": later and later[0]})
        connection.execute("SELECT pg_advisory_unlock(99)")
        assert claim.result() == []
        assert connection.execute(RUNNING, (of.id,)).fetchone() == (1,)


def plan(schedule: Schedule, trigger: Trigger, live_runs: int, now: datetime) -> Fire:
    del live_runs, now
    slot = {"trigger_id": trigger.id, "scheduled_at": trigger.next_fire_at, "attempt": 1}
    made = run(schedule.tenant_id, schedule_id=schedule.id, **slot)
    fired = msgspec.structs.replace(trigger, next_fire_at=None, fire_count=trigger.fire_count + 1)
    return Fire(runs=(made,), trigger=fired)


def fire_all(store: PostgresStore, _pipe: Pipe, _number: int) -> list[UUID]:
    fired: list[UUID] = []
    due = "SELECT 1 FROM scheduler.triggers WHERE next_fire_at IS NOT NULL LIMIT 1"
    with connect(store.settings.postgres.dsn or "") as connection:
        while connection.execute(due).fetchone() is not None:
            fired += [made.trigger_id for made in store.queue.fire_due(plan, 10) if made.trigger_id is not None]
    return fired


def test_a_trigger_fires_while_a_run_of_it_is_written(any_scheduler_dsn: str) -> None:
    of = schedule()
    with opened(any_scheduler_dsn) as store, connect(any_scheduler_dsn) as connection:
        with store.session("a", now=NOW) as session:
            session.schedules.upsert(of)
            due = session.triggers.upsert(trigger(of))
        with connection.transaction():
            connection.execute(FIRED, (of.id, due.id, NOW))
            assert [made.trigger_id for made in store.queue.fire_due(plan, 10)] == [due.id]


@pytest.mark.proves("4-J4", "2-X6", "3-P5")
def test_of_four_processes_one_fires_each_slot(scheduler_dsn: str) -> None:
    of = [schedule() for _ in range(20)]
    with opened(scheduler_dsn) as store, store.session("a", now=NOW) as session:
        for each in of:
            session.schedules.upsert(each)
            for _ in range(8):
                session.triggers.upsert(trigger(each))
    with children(4, fire_all, scheduler_dsn) as born:
        fired = [each for child in born for each in child.hears()]
    assert len(fired) == len(set(fired)) == 160
    with connect(scheduler_dsn) as connection:
        rows = connection.execute("SELECT run_number FROM scheduler.runs ORDER BY run_number").fetchall()
        counts = connection.execute("SELECT DISTINCT fire_count FROM scheduler.triggers").fetchall()
    assert [number for (number,) in rows] == [number for number in range(1, 9) for _ in range(20)]
    assert counts == [(1,)]


def claim_and_hang(store: PostgresStore, pipe: Pipe, _number: int) -> None:
    pipe.send([claim.run.id for claim in store.queue.claim("dead", 5, timedelta(seconds=30), NOW)])
    pipe.recv()


@pytest.mark.proves("0-T2.9.3", "3-B12")
def test_what_a_killed_worker_held_is_ended_once_and_a_live_one_s_is_left(scheduler_dsn: str) -> None:
    waiting(scheduler_dsn, schedule(), 10)
    with opened(scheduler_dsn) as store:
        with children(1, claim_and_hang, scheduler_dsn) as born:
            held = born[0].hears()
            born[0].signal(signal.SIGKILL)
        later = NOW + timedelta(seconds=30)
        alive = store.queue.claim("alive", 5, LEASE, NOW + timedelta(seconds=10))
        over = store.queue.expired(100, later)
        assert {claim.run.id for claim in over} == set(held)
        ends = [msgspec.structs.replace(completed(claim, "dead"), state="error") for claim in over]
        with ThreadPoolExecutor(4) as threads:
            reclaimed = [
                each for some in threads.map(lambda _: store.queue.expire(ends, later), range(4)) for each in some
            ]
        assert sorted(reclaimed) == sorted(held)
        assert store.queue.finish([completed(claim, "dead") for claim in over], later) == []
        assert len(store.queue.finish([completed(claim, "alive") for claim in alive], later)) == len(alive) == 5


DISPATCHERS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'migrator dispatcher' AND datname = current_database()"
)
END_THEM = f"SELECT pg_terminate_backend(pid, 60000) FROM ({DISPATCHERS}) AS them"


@pytest.mark.proves("3-B2", "2-X3")
def test_a_connection_that_ended_while_it_lay_idle_is_replaced(any_scheduler_dsn: str) -> None:
    waiting(any_scheduler_dsn, schedule(), 3)
    with opened(any_scheduler_dsn) as store, connect(any_scheduler_dsn) as connection:
        (first,) = store.queue.claim("w", 1, LEASE)
        assert set(connection.execute(END_THEM)) == {(True,)}
        (second,) = store.queue.claim("w", 1, LEASE)
        assert set(connection.execute(END_THEM)) == {(True,)}
        assert len(store.queue.finish([completed(first, "w"), completed(second, "w")])) == 2


@pytest.mark.proves("3-B2", "2-X3")
def test_a_claim_that_loses_its_connection_has_taken_nothing(scheduler_dsn: str) -> None:
    waiting(scheduler_dsn, schedule(), 3)
    with opened(scheduler_dsn) as store, connect(scheduler_dsn) as connection, ThreadPoolExecutor(1) as threads:
        with connection.transaction():
            connection.execute("LOCK TABLE scheduler.runs")  # in the middle of the claim it is made to wait
            claim = threads.submit(store.queue.claim, "w", 3, LEASE)
            wait_for_waiters(scheduler_dsn)
            with connect(scheduler_dsn) as other:
                assert set(other.execute(END_THEM)) == {(True,)}
            with pytest.raises(UnreachableError):
                claim.result()
        states = connection.execute("SELECT DISTINCT state, worker_id, fence FROM scheduler.runs").fetchall()
        assert states == [("queued", None, None)]
        assert len(store.queue.claim("w", 3, LEASE)) == 3


@pytest.mark.proves("4-J5")
def test_connections_are_bounded_however_many_threads_there_are(scheduler_dsn: str) -> None:
    waiting(scheduler_dsn, schedule(), 64)
    with opened(scheduler_dsn, pool_size=3) as store, ThreadPoolExecutor(16) as threads:
        claims = list(threads.map(lambda number: store.queue.claim(f"w{number}", 2, LEASE), range(32)))
        assert sum(map(len, claims)) == 64
        with connect(scheduler_dsn) as connection:
            assert len(connection.execute(DISPATCHERS).fetchall()) <= 3


def test_two_that_fire_what_shares_a_schedule_do_not_wait_for_each_other_for_good(scheduler_dsn: str) -> None:
    """Run numbers of several schedules are taken in one order: else two calls would lock them crosswise."""
    of = sorted((schedule() for _ in range(6)), key=lambda each: each.id)
    with opened(scheduler_dsn) as store, ThreadPoolExecutor(4) as threads:
        with store.session("a", now=NOW) as session:
            for each in of:
                session.schedules.upsert(each)
            for index in range(60):
                session.triggers.upsert(trigger(of[index % 6 if index % 2 else -index % 6]))
        runs: list[Run] = [
            made for some in threads.map(lambda _: store.queue.fire_due(plan, 15), range(8)) for made in some
        ]
        assert len({made.trigger_id for made in runs}) == len(runs) == 60
