"""``Scheduler.using``: schedules and runs in a transaction that an application has begun on a connection of its own."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text

from migrator import (
    AsyncScheduler,
    BackendMovedError,
    ConflictError,
    LockedError,
    MigratorError,
    OvertakenError,
    RefusedError,
    Scheduler,
    ScheduleRequest,
    Store,
    UnreachableError,
    UsageError,
    open_store,
)
from migrator.scheduler.lifecycle import JOB_CREATED, Event
from migrator.store.epoch import Epoch
from migrator.store.postgres import epoch
from migrator.store.postgres.wakeups import CHANNEL, listening
from migrator.testing.servers.postgres import PostgresServer
from tests.conftest import fresh_name
from tests.scheduler_processes import PATIENCE
from tests.schema_rows import connect
from tests.store_postgres import settings

TENANT = "acme"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "client.md"
STATE = """
SELECT current_user, current_setting('role') AS role, current_setting('search_path') AS path,
    current_setting('TimeZone') AS zone, current_setting('lock_timeout') AS lock,
    current_setting('app.tenant_id', true) AS tenant, current_setting('DateStyle') AS style
"""


def mail(name: str = "mail 1", **changes: Any) -> ScheduleRequest:  # noqa: ANN401 - the fields of a request
    return ScheduleRequest(**{"name": name, "handler_name": "mail", "created_by": "shop", **changes})


@pytest.fixture
def store(scheduler_dsn: str) -> Iterator[Store]:
    with open_store(settings(scheduler_dsn)) as opened:
        yield opened


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def scheduler(store: Store, events: list[Event]) -> Scheduler:
    return Scheduler(store, TENANT, sink=events.append)


@pytest.fixture
def dsn(postgres_server: PostgresServer, scheduler_dsn: str) -> Iterator[str]:
    """The DSN of an application's user, who may act as the service, and owns a table of orders."""
    user = f"shop_{fresh_name()}"
    with connect(scheduler_dsn) as connection:
        connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'".encode())
        connection.execute(f"GRANT scheduler_service TO {user}".encode())
        connection.execute("CREATE SCHEMA shop; CREATE TABLE shop.orders (id int PRIMARY KEY)")
        connection.execute(f"GRANT ALL ON SCHEMA shop TO {user}; GRANT ALL ON shop.orders TO {user}".encode())
    yield postgres_server.dsn(scheduler_dsn.rpartition("/")[2], user=user, password="secret")
    with connect(scheduler_dsn) as connection:
        connection.execute(f"DROP OWNED BY {user}; DROP ROLE {user}".encode())


def test_a_process_is_woken_when_the_application_commits_and_not_by_what_it_rolls_back(
    scheduler: Scheduler, application: psycopg.Connection[Any], scheduler_dsn: str
) -> None:
    with listening(settings(scheduler_dsn)) as listener:
        for ending in (application.rollback, application.commit):
            scheduler.using(application).schedule_once(mail())
            scheduler.using(application).schedule_once(mail("mail 2"))
            ending()
        # what was rolled back would have been told first; equal notifications of one transaction are one
        with connect(scheduler_dsn) as connection:
            connection.execute(f"NOTIFY {CHANNEL}, 'last'".encode())
            connection.commit()
        told = []
        while "last" not in told:
            told += [one.payload for one in listener.notifies(timeout=60, stop_after=1)]
    assert told == ["", "last"]


@pytest.fixture
def application(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn) as connection:
        yield connection
        if not connection.closed:
            connection.rollback()


def order(connection: psycopg.Connection[Any], number: int = 1) -> None:
    connection.execute("INSERT INTO shop.orders VALUES (%s)", (number,))


def stored(scheduler_dsn: str) -> tuple[int, int, int, int, int]:
    """Return how many orders, schedules, triggers, runs and entries of the audit trail are committed."""
    tables = ("shop.orders", "scheduler.schedules", "scheduler.triggers", "scheduler.runs", "scheduler.audit")
    with connect(scheduler_dsn) as connection:
        found = [connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() for table in tables]
    first, second, third, fourth, fifth = (int(row[0]) for row in found if row)
    return first, second, third, fourth, fifth


def test_the_run_exists_if_and_only_if_the_row_of_the_application_does(
    scheduler: Scheduler, application: psycopg.Connection[Any], scheduler_dsn: str
) -> None:
    for ending, expected in ((application.rollback, (0, 0, 0, 0, 0)), (application.commit, (1, 1, 1, 1, 2))):
        order(application)
        client = scheduler.using(application)
        job = client.schedule_once(mail())
        run = client.trigger_now(job.id, by="shop")
        seen = client.get(job.id)
        assert seen is not None
        assert seen.schedule.name == "mail 1"
        assert scheduler.get(job.id) is None, "nobody else sees it before the commit"
        assert stored(scheduler_dsn) == (0, 0, 0, 0, 0)
        ending()
        assert stored(scheduler_dsn) == expected
    assert [one.run.id for one in scheduler.history(job.id).executions] == [run.id]
    [claim] = scheduler.claim("shop-1")
    assert claim.run.id == run.id


def test_the_program_of_the_page_writes_the_order_and_its_run_together(
    dsn: str, scheduler_dsn: str, tmp_path: Path
) -> None:
    section = PAGE.read_text().partition("## In the application's own transaction\n")[2].partition("\n## ")[0]
    program, sqlalchemy = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    with connect(scheduler_dsn) as owner:
        owner.execute("CREATE TABLE orders (id serial PRIMARY KEY, customer text); GRANT ALL ON orders TO PUBLIC")
        owner.execute("GRANT ALL ON SEQUENCE orders_id_seq TO PUBLIC")
    config = f'[postgres]\ndsn = "{dsn}"\n[persistence]\nscheduler = "postgres"\n'
    (tmp_path / "config.toml").write_text(config)
    (tmp_path / "config.toml").chmod(0o600)
    for block in (program, sqlalchemy):
        command = [sys.executable, "-c", block, dsn]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
    with connect(scheduler_dsn) as owner:
        rows = owner.execute("SELECT customer FROM orders").fetchall()
        names = owner.execute("SELECT name, payload ->> 'order' FROM scheduler.schedules ORDER BY 2").fetchall()
    assert rows == [("ann",), ("bob",)]
    assert names == [("mail for order 1", "1"), ("mail for order 2", "2")]


def test_the_call_may_begin_the_transaction_and_the_next_statement_of_the_application_joins_it(
    scheduler: Scheduler, application: psycopg.Connection[Any], scheduler_dsn: str
) -> None:
    application.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    scheduler.using(application).schedule_once(mail())
    row = application.execute("SHOW transaction_isolation").fetchone()
    assert row == ("repeatable read",)
    order(application)
    application.rollback()
    assert stored(scheduler_dsn) == (0, 0, 0, 0, 0)


def test_the_settings_of_the_application_are_put_back_after_each_call(
    scheduler: Scheduler, dsn: str, scheduler_dsn: str
) -> None:
    with psycopg.connect(dsn, row_factory=dict_row, prepare_threshold=0) as connection:
        connection.execute(
            "SELECT set_config('search_path', 'shop', false), set_config('TimeZone', 'Asia/Tokyo', false)"
        )
        connection.commit()
        notices: list[str | None] = []
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        with connection.transaction():
            before = connection.execute(STATE).fetchone()
            client = scheduler.using(connection)
            client.schedule_once(mail())
            assert connection.execute(STATE).fetchone() == {**(before or {}), "tenant": ""}
            with pytest.raises(ConflictError):
                client.schedule_once(mail())
            assert connection.execute(STATE).fetchone() == {**(before or {}), "tenant": ""}
            connection.execute("INSERT INTO orders VALUES (%s)", (1,))
            connection.execute("DO $$ BEGIN RAISE NOTICE 'heard'; END $$")
        assert notices == ["heard"]
        connection.execute("SET ROLE scheduler_service")
        connection.commit()
        client.schedule_once(mail("another"))
        role = connection.execute("SELECT current_user AS now").fetchone()
        assert role == {"now": "scheduler_service"}
        connection.commit()
    assert stored(scheduler_dsn)[:2] == (1, 2)


def test_a_refused_call_undoes_only_itself(
    scheduler: Scheduler, application: psycopg.Connection[Any], scheduler_dsn: str
) -> None:
    order(application)
    client = scheduler.using(application)
    client.schedule_once(mail())
    with pytest.raises(ConflictError):
        client.schedule_once(mail())
    with pytest.raises(UsageError):
        client.schedule(mail("never", cron="0 0 30 2 *"))
    application.commit()
    assert stored(scheduler_dsn) == (1, 1, 1, 0, 1)


def test_listeners_are_called_when_the_application_says_that_it_has_committed(
    scheduler: Scheduler, application: psycopg.Connection[Any], events: list[Event]
) -> None:
    client = scheduler.using(application)
    job = client.schedule_once(mail())
    application.commit()
    assert events == []
    client.publish()
    client.publish()
    assert [(event.name, event.schedule_id) for event in events] == [(JOB_CREATED, job.id)]


def test_a_client_of_one_tenant_stays_within_it_whoever_the_user_is(
    store: Store, scheduler: Scheduler, scheduler_dsn: str
) -> None:
    theirs = Scheduler(store, "theirs").schedule_once(mail())
    with psycopg.connect(scheduler_dsn) as owner:  # a superuser
        client = scheduler.using(owner)
        assert client.get(theirs.id) is None
        assert client.list().total == 0
        client.schedule_once(mail())
        row = owner.execute("SELECT tenant_id FROM scheduler.schedules ORDER BY 1").fetchall()
        assert row == [("acme",), ("theirs",)]


def test_what_belongs_to_no_tenant_is_refused(scheduler: Scheduler, application: psycopg.Connection[Any]) -> None:
    client = scheduler.using(application)
    job = client.schedule_once(mail())
    run = client.trigger_now(job.id)
    application.commit()
    [claim] = scheduler.claim("w")
    for call in (
        lambda: client.claim("w"),
        lambda: client.finish(claim),
        lambda: client.complete(run.id),
        lambda: client.heartbeat(run.id),
        client.metrics,
        client.health,
        client.status,
        client.purge,
    ):
        with pytest.raises(UsageError, match="call the client of the store itself"):
            call()
    assert client.stats(job.id).by_state["running"] == 1


def test_a_connection_that_cannot_take_part_is_refused(
    scheduler: Scheduler, application: psycopg.Connection[Any], dsn: str
) -> None:
    client = scheduler.using(application)
    application.autocommit = True
    with pytest.raises(UsageError, match="is in autocommit and has begun no transaction"):
        client.schedule_once(mail())
    with application.transaction():
        client.schedule_once(mail())
    with pytest.raises(UsageError, match="in pipeline mode"), application.transaction(), application.pipeline():
        client.list()
    application.autocommit = False
    order(application)
    with pytest.raises(psycopg.errors.UniqueViolation):
        order(application)
    with pytest.raises(UsageError, match="has failed: roll it back first"):
        client.list()
    application.rollback()
    assert client.list().total == 1
    application.close()
    with pytest.raises(UnreachableError, match="is closed"):
        scheduler.using(application)
    with pytest.raises(MigratorError):
        client.list()
    with pytest.raises(UsageError, match=r"must be a connection of psycopg 3, not builtins\.str"):
        scheduler.store.using("a connection")  # type: ignore[attr-defined] # what an untyped application does
    with psycopg.connect(dsn) as other, pytest.raises(UsageError, match=r"connection must be .*, not Cursor"):
        scheduler.using(other.cursor())  # type: ignore[arg-type] # as above


def test_a_connection_that_breaks_is_an_error_of_the_tool(
    scheduler: Scheduler, application: psycopg.Connection[Any], scheduler_dsn: str
) -> None:
    client = scheduler.using(application)
    order(application)
    with connect(scheduler_dsn) as owner:
        owner.execute("SELECT pg_terminate_backend(%s)", (application.info.backend_pid,))
    with pytest.raises(UnreachableError):
        client.schedule_once(mail())
    assert stored(scheduler_dsn)[:2] == (0, 0)


def test_a_user_who_may_not_act_as_the_service_is_told_the_grant_and_the_transaction_goes_on(
    scheduler: Scheduler, application: psycopg.Connection[Any], scheduler_dsn: str
) -> None:
    with connect(scheduler_dsn) as owner:
        owner.execute(f"REVOKE scheduler_service FROM {application.info.user}".encode())
    order(application)
    with pytest.raises(RefusedError, match='GRANT "scheduler_service", "scheduler_dispatcher" TO "shop_'):
        scheduler.using(application).schedule_once(mail())
    application.commit()
    assert stored(scheduler_dsn)[:2] == (1, 0)


def test_after_a_rollback_of_the_cutover_it_is_refused(
    scheduler: Scheduler, application: psycopg.Connection[Any], scheduler_dsn: str
) -> None:
    client = scheduler.using(application)
    client.schedule_once(mail())
    application.commit()
    with connect(scheduler_dsn) as owner:
        epoch.write(owner, Epoch(2, "mongo"))
    with pytest.raises(BackendMovedError):
        client.schedule_once(mail("another"))


def test_a_wait_for_another_session_ends_and_names_it_and_the_transaction_goes_on(
    scheduler: Scheduler, application: psycopg.Connection[Any], scheduler_dsn: str
) -> None:
    job = scheduler.schedule_once(mail(), run_at=None)
    application.execute("SET lock_timeout TO '200ms'")
    order(application)
    client = scheduler.using(application)
    with psycopg.connect(scheduler_dsn) as other:
        other.execute("SELECT FROM scheduler.schedules WHERE id = %s FOR UPDATE", (job.id,))
        with pytest.raises(LockedError, match="holds"):
            client.trigger_now(job.id)
        other.rollback()
    client.trigger_now(job.id)
    application.commit()
    assert stored(scheduler_dsn)[:4] == (1, 1, 1, 1)


def test_in_a_stricter_isolation_a_change_that_was_overtaken_is_told_and_undone(
    scheduler: Scheduler, application: psycopg.Connection[Any]
) -> None:
    application.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    job = scheduler.schedule_once(mail())
    order(application)
    scheduler.update(job.id, priority=70)
    with pytest.raises(OvertakenError):
        scheduler.using(application).update(job.id, priority=80)
    application.rollback()
    found = scheduler.get(job.id)
    assert found is not None
    assert found.schedule.priority == 70


def test_sqlalchemy_gives_its_connection(scheduler: Scheduler, dsn: str, scheduler_dsn: str) -> None:
    engine = create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))
    for commits in (False, True):
        with engine.connect() as session:
            session.execute(text("INSERT INTO shop.orders VALUES (1)"))
            connection = session.connection.driver_connection
            assert connection is not None
            scheduler.using(connection).schedule_once(mail())
            if commits:
                session.commit()
        assert stored(scheduler_dsn)[:2] == (commits, commits)
    engine.dispose()


def test_an_asynchronous_application_uses_its_own_kind_of_connection(
    scheduler: Scheduler, dsn: str, scheduler_dsn: str
) -> None:
    async def buy() -> None:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            await connection.execute("INSERT INTO shop.orders VALUES (1)")
            client = AsyncScheduler(scheduler.using(connection))
            job = await client.schedule_once(mail())
            assert await client.get(job.id) is not None
            await connection.execute("INSERT INTO shop.orders VALUES (2)")
            assert stored(scheduler_dsn)[:2] == (0, 0)

    asyncio.run(buy())
    assert stored(scheduler_dsn)[:2] == (2, 1)
