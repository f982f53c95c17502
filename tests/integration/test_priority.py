"""``priority`` of triggers and open runs is the schedule's, whoever writes: the database keeps it."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from migrator.connections.postgres import Connection
from migrator.schema import revisions
from tests.integration.test_postgres_store_concurrency import wait_for_waiters
from tests.schema_rows import connect, insert
from tests.store_postgres import NOW, opened, run, schedule, trigger


def priority_of(connection: Connection, table: str, identity: Any) -> int:  # noqa: ANN401 - a row's id
    row = connection.execute(f"SELECT priority FROM scheduler.{table} WHERE id = %s".encode(), (identity,)).fetchone()
    assert row is not None
    return int(row[0])


def change(connection: Connection, schedule_id: UUID, priority: int | None) -> None:
    connection.execute("UPDATE scheduler.schedules SET priority = %s WHERE id = %s", (priority, schedule_id))


@pytest.mark.proves("2-X6")
@pytest.mark.parametrize(("stated", "stored"), [(None, 50), (0, 0), (50, 50), (100, 100)])
def test_a_new_row_takes_the_priority_of_its_schedule(stated: int | None, stored: int, any_scheduler_dsn: str) -> None:
    with connect(any_scheduler_dsn) as connection:
        of = insert(connection, "schedules", priority=stated)
        assert priority_of(connection, "triggers", insert(connection, "triggers", schedule_id=of)) == stored
        for state in ("planning", "queued"):
            made = insert(connection, "runs", schedule_id=of, state=state)
            assert priority_of(connection, "runs", made) == stored
        ended = insert(connection, "runs", schedule_id=of, state="completed")
        assert priority_of(connection, "runs", ended) == 50, "nothing reads it"
        assert priority_of(connection, "runs", insert(connection, "runs")) == 50, "a run without a schedule"


@pytest.mark.proves("2-X6")
def test_a_run_takes_the_priority_of_the_schedule_of_its_tenant(scheduler_dsn: str) -> None:
    with connect(scheduler_dsn) as connection:
        of = insert(connection, "schedules", "*", priority=90)
        insert(connection, "schedules", "a", id=of, priority=10)
        own = insert(connection, "runs", "a", schedule_id=of)
        shared = insert(connection, "runs", "a", schedule_id=of, global_schedule=True)
        assert (priority_of(connection, "runs", own), priority_of(connection, "runs", shared)) == (10, 90)
        connection.execute("UPDATE scheduler.schedules SET priority = 91 WHERE id = %s AND tenant_id = '*'", (of,))
        assert (priority_of(connection, "runs", own), priority_of(connection, "runs", shared)) == (10, 91)
        connection.execute("UPDATE scheduler.runs SET global_schedule = true WHERE id = %s", (own,))
        assert priority_of(connection, "runs", own) == 91


@pytest.mark.proves("2-X6")
def test_a_change_of_the_schedule_reaches_its_triggers_and_open_runs_alone(any_scheduler_dsn: str) -> None:
    with connect(any_scheduler_dsn) as connection:
        one, other = insert(connection, "schedules"), insert(connection, "schedules")
        fires, theirs = (
            insert(connection, "triggers", schedule_id=one),
            insert(connection, "triggers", schedule_id=other),
        )
        queued = insert(connection, "runs", schedule_id=one)
        planned = insert(connection, "runs", schedule_id=one, state="planning")
        running = insert(connection, "runs", schedule_id=one, state="running")
        change(connection, one, 75)
        assert priority_of(connection, "triggers", fires) == 75
        assert [priority_of(connection, "runs", row) for row in (queued, planned, running)] == [75, 75, 50]
        assert priority_of(connection, "triggers", theirs) == 50
        connection.execute("UPDATE scheduler.runs SET state = 'queued' WHERE id = %s", (running,))
        assert priority_of(connection, "runs", running) == 75, "a run that is given back"
        change(connection, one, None)
        assert priority_of(connection, "triggers", fires) == 50
        assert {priority_of(connection, "runs", row) for row in (queued, planned, running)} == {50}


@pytest.mark.proves("2-X6")
def test_the_application_changes_it_under_its_own_rights(scheduler_dsn: str) -> None:
    of = schedule(priority=20)
    with opened(scheduler_dsn) as store, connect(scheduler_dsn) as connection:
        with store.session("a", now=NOW) as session:
            session.schedules.upsert(of)
            fires = session.triggers.upsert(trigger(of))
            waits = session.runs.create(run(schedule_id=of.id, state="queued"))
        assert priority_of(connection, "triggers", fires.id) == priority_of(connection, "runs", waits.id) == 20
        with store.session("a", now=NOW) as session:
            session.schedules.change(of.id, priority=80)
        assert priority_of(connection, "triggers", fires.id) == priority_of(connection, "runs", waits.id) == 80


@pytest.mark.proves("2-X6")
def test_a_run_that_is_made_while_the_priority_changes_has_the_new_one(any_scheduler_dsn: str) -> None:
    with connect(any_scheduler_dsn) as one, connect(any_scheduler_dsn) as other, ThreadPoolExecutor(1) as threads:
        of = insert(one, "schedules")
        with one.transaction():
            change(one, of, 75)
            making = threads.submit(insert, other, "runs", schedule_id=of)
            wait_for_waiters(any_scheduler_dsn)
        assert priority_of(one, "runs", making.result()) == 75


@pytest.mark.proves("2-X6")
def test_a_change_waits_for_a_run_that_is_being_made(any_scheduler_dsn: str) -> None:
    with connect(any_scheduler_dsn) as one, connect(any_scheduler_dsn) as other, ThreadPoolExecutor(1) as threads:
        of = insert(one, "schedules")
        with one.transaction():
            made = insert(one, "runs", schedule_id=of)
            changing = threads.submit(change, other, of, 75)
            wait_for_waiters(any_scheduler_dsn)
        changing.result()
        assert priority_of(one, "runs", made) == 75


@pytest.mark.proves("0-T2.2.1")
def test_the_revision_fills_the_columns_from_the_schedules(scheduler_dsn: str) -> None:
    revisions.downgrade(scheduler_dsn, "scheduler@0006")
    with connect(scheduler_dsn) as connection:
        stated, silent = insert(connection, "schedules", priority=75), insert(connection, "schedules")
        rows = [
            (table, insert(connection, table, schedule_id=of), priority)
            for table in ("triggers", "runs")
            for of, priority in ((stated, 75), (silent, 50))
        ]
        ended = insert(connection, "runs", schedule_id=stated, state="completed")
    revisions.upgrade(scheduler_dsn)
    with connect(scheduler_dsn) as connection:
        assert [priority_of(connection, table, row) for table, row, _ in rows] == [priority for *_, priority in rows]
        assert priority_of(connection, "runs", ended) == 50
