"""Rows that no CHECK kept out, since somebody dropped it: each costs itself alone, and is named in the log."""

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from migrator.connections.postgres import Connection
from migrator.errors import UsageError
from migrator.records import Run
from migrator.scheduler import firing
from migrator.scheduler.leadership import Leadership
from migrator.scheduler.sweeper import Sweeper
from migrator.store.postgres.store import PostgresStore
from migrator.store.protocols import ScheduleQuery
from tests.schema_rows import connect
from tests.store_postgres import opened, run, schedule, trigger

LEASE = timedelta(minutes=5)
LARGEST = {"int4": 2**31 - 1, "int8": 2**63 - 1}
TIMES = ("infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "20000-01-01 00:00:00+00")


@pytest.fixture
def target(scheduler_dsn: str) -> Iterator[Connection]:
    with connect(scheduler_dsn) as connection:
        for table in ("schedules", "triggers", "runs"):
            for name in ("times", "counters"):
                connection.execute(f"ALTER TABLE scheduler.{table} DROP CONSTRAINT ck_{table}_{name}".encode())
        yield connection


@pytest.fixture
def store(scheduler_dsn: str) -> Iterator[PostgresStore]:
    with opened(scheduler_dsn) as found:
        yield found


def set_column(target: Connection, table: str, identity: UUID, column: str, value: object) -> None:
    target.execute(f"UPDATE scheduler.{table} SET {column} = %s WHERE id = %s".encode(), (value, identity))


def a_due_trigger(store: PostgresStore, tenant: str) -> tuple[UUID, UUID]:
    """Return the ids of a schedule and of its trigger, which is due."""
    of = schedule(tenant, enabled=True)
    cause = trigger(of, enabled=True, next_fire_at=store.now())
    with store.session(tenant) as session:
        session.schedules.upsert(of)
        session.triggers.upsert(cause)
    return of.id, cause.id


def a_queued_run(store: PostgresStore, tenant: str) -> Run:
    of = schedule(tenant, enabled=True)
    with store.session(tenant) as session:
        session.schedules.upsert(of)
        return session.runs.create(run(tenant, schedule_id=of.id, created_at=store.now()))


def named(capsys: pytest.CaptureFixture[str], identity: UUID) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if str(identity) in line]


@pytest.mark.proves("6-N4")
@pytest.mark.parametrize("value", TIMES)
def test_triggers_with_times_that_nobody_can_read(
    value: str, target: Connection, store: PostgresStore, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = [a_due_trigger(store, "a") for _ in range(3)], a_due_trigger(store, "b")
    set_column(target, "triggers", bad[0][1], "last_fire_at", value)
    set_column(target, "triggers", bad[1][1], "start_at", value)
    set_column(target, "schedules", bad[2][0], "created_at", value)
    made = store.queue.fire_due(firing.plan, 10)
    assert [(one.tenant_id, one.schedule_id) for one in made] == [("b", good[0])]
    lines = capsys.readouterr().err
    assert all(lines.count(str(cause)) == 1 for _, cause in bad)
    with pytest.raises(UsageError):
        store.queue.fire_due(firing.plan, 10)
    assert "costs no other" not in capsys.readouterr().err, "they were named already"
    with store.session("a") as session:
        assert {one.id for one in session.schedules.list(ScheduleQuery())} == {bad[0][0], bad[1][0]}
    assert target.execute("SELECT count(*) FROM scheduler.runs").fetchone() == (1,)


@pytest.mark.parametrize("value", TIMES)
def test_runs_with_times_that_nobody_can_read(
    value: str, target: Connection, store: PostgresStore, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = a_queued_run(store, "a"), a_queued_run(store, "b")
    set_column(target, "runs", bad.id, "finished_at", value)
    worker = str(uuid4())
    assert [claim.run.id for claim in store.queue.claim(worker, 10, LEASE)] == [good.id]
    assert len(named(capsys, bad.id)) == 1
    assert list(store.queue.claim(worker, 10, LEASE)) == []
    found = target.execute("SELECT state, worker_id FROM scheduler.runs WHERE id = %s", (bad.id,)).fetchone()
    assert found == ("queued", None)


def test_a_run_whose_fence_cannot_grow(
    target: Connection, store: PostgresStore, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = a_queued_run(store, "a"), a_queued_run(store, "b")
    set_column(target, "runs", bad.id, "fence", LARGEST["int8"])
    assert [claim.run.id for claim in store.queue.claim(str(uuid4()), 10, LEASE)] == [good.id]
    assert len(named(capsys, bad.id)) == 1


def test_counters_at_their_largest(target: Connection, store: PostgresStore) -> None:
    """They stay where they are: neither overflows, nor keeps a schedule from firing."""
    (of, cause), full = a_due_trigger(store, "a"), a_queued_run(store, "a")
    set_column(target, "triggers", cause, "fire_count", LARGEST["int8"] - 1)
    target.execute(
        "UPDATE scheduler.runs SET run_number = %s, attempt = %s, schedule_id = %s WHERE id = %s",
        (LARGEST["int4"] - 1, LARGEST["int4"] - 1, of, full.id),
    )
    (made,) = store.queue.fire_due(firing.plan, 10)
    assert made.run_number is None
    with store.session("a") as session:
        (after,) = session.triggers.of_schedule(of)
    assert after.fire_count == LARGEST["int8"] - 1


@pytest.mark.proves("6-N4")
def test_the_sweep_goes_on_after_rows_that_nobody_can_read(
    target: Connection, store: PostgresStore, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = a_queued_run(store, "a"), a_queued_run(store, "b")
    claims = store.queue.claim(str(uuid4()), 10, LEASE)
    assert len(claims) == 2
    target.execute("UPDATE scheduler.runs SET lease_expires_at = now() - interval '1 hour'")
    set_column(target, "runs", bad.id, "scheduled_at", "infinity")
    ended, cancelled = a_due_trigger(store, "a"), a_due_trigger(store, "b")
    target.execute("UPDATE scheduler.schedules SET status = 'running' WHERE id = ANY(%s)", ([ended[0], cancelled[0]],))
    target.execute("UPDATE scheduler.triggers SET next_fire_at = NULL")
    set_column(target, "schedules", ended[0], "paused_at", "-infinity")
    leadership = Leadership(store, ttl=timedelta(minutes=1), holder="me")
    assert leadership.acquire() is not None
    swept = Sweeper(store, leadership, dead_after=timedelta(minutes=1), scope=None).sweep()
    assert (swept.ended, swept.completed) == (1, 1)
    assert target.execute("SELECT state FROM scheduler.runs WHERE id = %s", (good.id,)).fetchone() == ("error",)
    assert str(bad.id) in capsys.readouterr().err
    leadership.release()
