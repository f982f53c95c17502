"""PostgreSQL's fence for the way back, against writers in the middle of a statement and of a transaction."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, cast
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors, sql

from migrator.config import PostgresSettings, Settings
from migrator.connections.postgres import Connection, open_target
from migrator.cutover import fence
from migrator.errors import RefusedError
from migrator.schema import catalogue, revisions
from migrator.testing.servers.postgres import PostgresServer
from tests.conftest import fresh_name

LIMIT = timedelta(minutes=4)
SOON = timedelta(milliseconds=200)
ROLES = ("scheduler_service", "scheduler_dispatcher")
INSERT = "INSERT INTO scheduler.schedules (id, tenant_id, name, status) VALUES (%s, 'a', %s, 'scheduled')"


@pytest.fixture
def roles(scheduler_dsn: str) -> PostgresSettings:
    return PostgresSettings(dsn=scheduler_dsn)


@pytest.fixture
def tool(roles: PostgresSettings) -> Iterator[Connection]:
    with open_target(Settings(postgres=roles), autocommit=True) as connection:
        yield connection


@contextmanager
def writer(dsn: str, role: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"SET ROLE {role}")
        connection.execute("SELECT set_config('app.tenant_id', 'a', false)")
        yield connection


def names(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        return {row[0] for row in connection.execute("SELECT name FROM scheduler.schedules")}


def is_open_for_a_while(closing: Future[None]) -> bool:
    """Wait a moment for a fence that is being closed; tell whether it is still waiting."""
    with suppress(TimeoutError):
        closing.result(SOON.total_seconds())
    return not closing.done()


@pytest.mark.proves("4-B1")
@pytest.mark.parametrize("role", ROLES)
def test_nobody_of_the_application_writes_behind_it(
    role: str, roles: PostgresSettings, tool: Connection, scheduler_dsn: str
) -> None:
    with writer(scheduler_dsn, role) as application:
        application.execute(INSERT, (uuid4(), "before"))
        assert not fence.is_target_fenced(tool, roles)
        fence.engage_target(tool, roles, LIMIT)
        fence.engage_target(tool, roles, LIMIT)
        assert fence.is_target_fenced(tool, roles)
        for statement in (
            "UPDATE scheduler.schedules SET name = 'x'",
            "DELETE FROM scheduler.runs",
            "INSERT INTO scheduler.audit VALUES (DEFAULT)",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                application.execute(statement)
        fence.lift_target(tool, roles)
        fence.lift_target(tool, roles)
        application.execute(INSERT, (uuid4(), "between"))
        application.execute("UPDATE scheduler.schedules SET name = 'after' WHERE name = 'between'")
        with pytest.raises(errors.InsufficientPrivilege):
            application.execute("DELETE FROM scheduler.audit")  # what the schema's revisions never gave
    assert names(scheduler_dsn) == {"before", "after"}
    assert catalogue.differences(scheduler_dsn) == []


def test_a_right_on_a_column_is_not_overlooked(roles: PostgresSettings, tool: Connection) -> None:
    fence.engage_target(tool, roles, LIMIT)
    tool.execute("GRANT UPDATE (name) ON scheduler.schedules TO scheduler_service")
    assert not fence.is_target_fenced(tool, roles)
    fence.engage_target(tool, roles, LIMIT)
    assert fence.is_target_fenced(tool, roles)


def test_a_transaction_that_has_written_is_waited_for(
    roles: PostgresSettings, tool: Connection, scheduler_dsn: str
) -> None:
    with writer(scheduler_dsn, ROLES[0]) as application, ThreadPoolExecutor() as pool:
        application.autocommit = False
        application.execute(INSERT, (uuid4(), "inside"))
        closing = pool.submit(fence.engage_target, tool, roles, LIMIT)
        while not _revoked(scheduler_dsn, roles):
            pass
        assert not closing.done()
        application.commit()
        closing.result()
    assert names(scheduler_dsn) == {"inside"}


class Interposed:
    """The tool's connection; ``act`` is called when the first right is revoked, and that is not committed yet."""

    def __init__(self, connection: Connection, act: Callable[[], object]) -> None:
        self._connection, self._act, self.acted = connection, act, False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a connection has
        return getattr(self._connection, name)

    def execute(self, query: Any, *more: Any) -> Any:  # noqa: ANN401 - as above
        answer = self._connection.execute(query, *more)
        if not self.acted and isinstance(query, sql.Composed) and "REVOKE" in query.as_string():
            self.acted = True
            self._act()
        return answer


def test_a_transaction_that_writes_while_the_rights_are_revoked_is_waited_for(
    roles: PostgresSettings, tool: Connection, scheduler_dsn: str
) -> None:
    """Its id is a later one than that of the fence, and its right was checked before: it would commit behind it."""
    with writer(scheduler_dsn, ROLES[0]) as application, ThreadPoolExecutor() as pool:
        application.autocommit = False
        interposed = Interposed(tool, lambda: application.execute(INSERT, (uuid4(), "inside")))
        closing = pool.submit(fence.engage_target, cast("Connection", interposed), roles, LIMIT)
        assert is_open_for_a_while(closing)
        while not _revoked(scheduler_dsn, roles):
            pass
        assert interposed.acted
        assert not closing.done()
        application.commit()
        closing.result()
    assert names(scheduler_dsn) == {"inside"}


def test_a_statement_that_has_written_nothing_yet_is_waited_for_to_its_commit(
    roles: PostgresSettings, tool: Connection, scheduler_dsn: str
) -> None:
    """It gets its id when the fence is closed already, and its transaction stays open after it."""
    with (
        writer(scheduler_dsn, ROLES[0]) as application,
        psycopg.connect(scheduler_dsn) as holder,
        ThreadPoolExecutor() as pool,
    ):
        application.autocommit = False
        holder.execute("SELECT pg_advisory_lock(7)")
        slow = f"{INSERT.partition('VALUES')[0]} SELECT %s, 'a', %s, 'scheduled' FROM pg_advisory_xact_lock(7)"
        inserting = pool.submit(application.execute, slow, (uuid4(), "inside"))
        while not _waits(scheduler_dsn):
            pass
        closing = pool.submit(fence.engage_target, tool, roles, LIMIT)
        while not _revoked(scheduler_dsn, roles):
            pass
        holder.execute("SELECT pg_advisory_unlock(7)")
        inserting.result()
        assert is_open_for_a_while(closing)
        application.commit()
        closing.result()
    assert names(scheduler_dsn) == {"inside"}


def test_a_transaction_that_does_not_end_is_ended(
    roles: PostgresSettings, tool: Connection, scheduler_dsn: str
) -> None:
    with writer(scheduler_dsn, ROLES[0]) as application:
        application.autocommit = False
        application.execute(INSERT, (uuid4(), "inside"))
        fence.engage_target(tool, roles, SOON)
        with pytest.raises(psycopg.OperationalError):
            application.execute("SELECT 1")
    assert names(scheduler_dsn) == set()


@pytest.fixture(scope="module")
def two_phase_dsn() -> Iterator[str]:
    """A server that admits prepared transactions: none does unless it is told to."""
    with PostgresServer(fast=True, settings={"max_prepared_transactions": "4"}) as server:
        dsn = server.create_database(fresh_name())
        revisions.upgrade(dsn)
        yield dsn


def test_a_prepared_transaction_is_waited_for_and_named(two_phase_dsn: str) -> None:
    """No session holds it: it would be committed after the outbox was read, and nobody would carry its rows."""
    roles = PostgresSettings(dsn=two_phase_dsn)
    with (
        open_target(Settings(postgres=roles), autocommit=True) as tool,
        psycopg.connect(two_phase_dsn, autocommit=True) as administrator,
        ThreadPoolExecutor() as pool,
    ):
        administrator.execute("CREATE TABLE public.of_others (id int)")
        administrator.execute("BEGIN; INSERT INTO of_others VALUES (1); PREPARE TRANSACTION 'elsewhere'")
        with writer(two_phase_dsn, ROLES[0]) as application:
            application.autocommit = False
            application.execute(INSERT, (uuid4(), "inside"))
            application.execute("PREPARE TRANSACTION 'it''s open'")
        with pytest.raises(RefusedError, match=r"do not end: 'it''s open'; whoever .* with COMMIT PREPARED"):
            fence.engage_target(tool, roles, SOON)
        closing = pool.submit(fence.engage_target, tool, roles, LIMIT)
        assert is_open_for_a_while(closing)
        administrator.execute("COMMIT PREPARED 'it''s open'")
        closing.result()
        assert fence.is_target_fenced(tool, roles)
        administrator.execute("ROLLBACK PREPARED 'elsewhere'")
    assert names(two_phase_dsn) == {"inside"}


def test_a_statement_in_the_middle_of_its_work_is_waited_for(
    roles: PostgresSettings, tool: Connection, scheduler_dsn: str
) -> None:
    """Rights are looked at when a statement begins: one that waits for a lock would write behind the fence."""
    with (
        writer(scheduler_dsn, ROLES[0]) as application,
        psycopg.connect(scheduler_dsn) as holder,
        ThreadPoolExecutor() as pool,
    ):
        application.execute(INSERT, (uuid4(), "one"))
        holder.execute("SELECT FROM scheduler.schedules FOR UPDATE")
        begun = threading.Event()

        def change() -> None:
            begun.set()
            application.execute("UPDATE scheduler.schedules SET name = 'changed'")

        changing = pool.submit(change)
        begun.wait()
        while not _waits(scheduler_dsn):
            pass
        closing = pool.submit(fence.engage_target, tool, roles, LIMIT)
        while not _revoked(scheduler_dsn, roles):
            pass
        assert not closing.done()
        holder.commit()
        changing.result()
        closing.result()
    assert names(scheduler_dsn) == {"changed"}


def test_a_revision_of_the_rights_does_not_lift_it(
    roles: PostgresSettings, tool: Connection, scheduler_dsn: str
) -> None:
    revisions.downgrade(scheduler_dsn, "0006")
    fence.engage_target(tool, roles, LIMIT)
    revisions.upgrade(scheduler_dsn)
    assert fence.is_target_fenced(tool, roles)
    fence.lift_target(tool, roles)
    assert catalogue.differences(scheduler_dsn) == []


@pytest.mark.parametrize("right", ["INSERT", "UPDATE (state)"])
def test_who_is_not_stopped_is_named(right: str, roles: PostgresSettings, tool: Connection, scheduler_dsn: str) -> None:
    name = f"writer_{uuid4().hex[:8]}"
    with psycopg.connect(scheduler_dsn, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN")
        try:
            assert name not in fence.unstopped_on_target(tool, roles)
            admin.execute(f"GRANT {right} ON scheduler.runs TO {name}")
            assert name in fence.unstopped_on_target(tool, roles)
        finally:
            admin.execute(f"DROP OWNED BY {name}")
            admin.execute(f"DROP ROLE {name}")


def _revoked(dsn: str, roles: PostgresSettings) -> bool:
    with psycopg.connect(dsn) as connection:
        return fence.is_target_fenced(connection, roles)


def _waits(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone()
    return row is not None and row[0] > 0
