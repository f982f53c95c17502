"""Tenant isolation by row-level security: whoever writes the query."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from migrator.store.postgres.connection import Connection
from migrator.store.postgres.security import APPEND_ONLY
from tests.schema_rows import LEAST, connect, count, insert

TENANTS = ("a", "b", "*")
Rows = dict[tuple[str, str], Any]


@contextmanager
def session(dsn: str, tenant: str | None, role: str = "scheduler_service") -> Iterator[Connection]:
    """Open a session as an application does: its role, its tenant."""
    with connect(dsn) as connection:
        connection.execute(SQL("SET ROLE {}").format(Identifier(role)))
        if tenant is not None:
            connection.execute("SELECT set_config('app.tenant_id', %s, false)", (tenant,))
        yield connection


@pytest.fixture
def filled(any_scheduler_dsn: str) -> tuple[str, Rows]:
    """A database with one row of each tenant in each table (parents of rows that must have one come on top)."""
    with connect(any_scheduler_dsn) as connection:
        rows = {(table, tenant): insert(connection, table, tenant) for table in LEAST for tenant in TENANTS}
    return any_scheduler_dsn, rows


def seen(connection: Connection, table: str) -> set[str]:
    query = SQL("SELECT DISTINCT tenant_id FROM {}").format(Identifier("scheduler", table))
    return {tenant for (tenant,) in connection.execute(query)}


def changed(connection: Connection, table: str, identity: UUID | int) -> int:
    query = SQL("UPDATE {} SET tenant_id = tenant_id WHERE id = %s").format(Identifier("scheduler", table))
    return connection.execute(query, (identity,)).rowcount


def deleted(connection: Connection, table: str, identity: UUID | int) -> int:
    query = SQL("DELETE FROM {} WHERE id = %s").format(Identifier("scheduler", table))
    return connection.execute(query, (identity,)).rowcount


def test_a_service_reads_its_own_rows_and_those_for_all(filled: tuple[str, Rows]) -> None:
    """0-X2, 1-G4: each table with tenant B sees nothing of A."""
    dsn, _ = filled
    for tenant in ("a", "b"):
        with session(dsn, tenant) as connection:
            for table in LEAST:
                assert seen(connection, table) == {tenant, "*"}, table


@pytest.mark.parametrize("tenant", [None, ""])
def test_without_a_tenant_nothing_is_seen_and_nothing_written(tenant: str | None, filled: tuple[str, Rows]) -> None:
    """An empty setting is what a pooled session shows after a transaction's own setting has ended."""
    dsn, rows = filled
    with session(dsn, tenant) as connection:
        for table in LEAST:
            assert seen(connection, table) == set(), table
            if table not in APPEND_ONLY:
                assert changed(connection, table, rows[table, "a"]) == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            insert(connection, "schedules", "a")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            insert(connection, "schedules", "")


def test_a_transaction_s_setting_ends_with_it(filled: tuple[str, Rows]) -> None:
    dsn, _ = filled
    with session(dsn, None) as connection:
        with connection.transaction():
            connection.execute("SELECT set_config('app.tenant_id', 'a', true)")
            assert seen(connection, "runs") == {"a", "*"}
        assert seen(connection, "runs") == set()


def test_a_service_writes_its_own_rows_only(filled: tuple[str, Rows]) -> None:
    dsn, rows = filled
    with session(dsn, "a") as connection:
        for table in LEAST.keys() - APPEND_ONLY:
            assert changed(connection, table, rows[table, "a"]) == 1, table
            for other in ("b", "*"):
                assert changed(connection, table, rows[table, other]) == 0, table
                assert deleted(connection, table, rows[table, other]) == 0, table
        for table in LEAST:
            insert(connection, table, "a")
            for other in ("b", "*"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                    insert(connection, table, other)


def test_a_service_cannot_hand_a_row_to_another_tenant(filled: tuple[str, Rows]) -> None:
    dsn, rows = filled
    with session(dsn, "a") as connection:
        for other in ("b", "*"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                connection.execute("UPDATE scheduler.runs SET tenant_id = %s WHERE id = %s", (other, rows["runs", "a"]))


def test_a_service_bound_to_all_reads_but_does_not_write(filled: tuple[str, Rows]) -> None:
    """Rows for all are written only by roles that may, whatever a session sets its tenant to."""
    dsn, rows = filled
    with session(dsn, "*") as connection:
        assert seen(connection, "schedules") == {"*"}
        assert changed(connection, "schedules", rows["schedules", "*"]) == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            insert(connection, "schedules", "*")


def test_a_service_s_delete_spares_the_others(filled: tuple[str, Rows]) -> None:
    """2-P2: purge of a tenant."""
    dsn, _ = filled
    with session(dsn, "a") as connection:
        for table in [*LEAST][::-1]:
            if table not in APPEND_ONLY:
                connection.execute(SQL("DELETE FROM {}").format(Identifier("scheduler", table)))
    with connect(dsn) as connection:
        for table in LEAST:
            left = {"a", "b", "*"} if table in APPEND_ONLY else {"b", "*"}
            assert seen(connection, table) == left, table


@pytest.mark.parametrize("role", ["scheduler_service", "scheduler_dispatcher"])
def test_the_audit_is_append_only(role: str, filled: tuple[str, Rows]) -> None:
    dsn, rows = filled
    with session(dsn, "a", role) as connection:
        insert(connection, "audit", "a")
        for act in (changed, deleted):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                act(connection, "audit", rows["audit", "a"])


def test_a_dispatcher_works_across_tenants(filled: tuple[str, Rows]) -> None:
    dsn, rows = filled
    with session(dsn, None, "scheduler_dispatcher") as connection:
        for table in LEAST:
            assert seen(connection, table) == set(TENANTS), table
            for tenant in TENANTS:
                insert(connection, table, tenant)
                if table not in APPEND_ONLY:
                    assert changed(connection, table, rows[table, tenant]) == 1, table


@pytest.mark.parametrize("role", ["scheduler_service", "scheduler_dispatcher"])
def test_sessions_may_not_touch_the_tool_s_own_schema_nor_change_tables(role: str, filled: tuple[str, Rows]) -> None:
    dsn, _ = filled
    with session(dsn, "a", role) as connection:
        for statement in (
            "SELECT FROM migration.plans",
            "SELECT FROM scheduler.schema_history",
            "TRUNCATE scheduler.runs",
            "ALTER TABLE scheduler.runs DISABLE ROW LEVEL SECURITY",
            "CREATE TABLE scheduler.theirs ()",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())


def test_the_owner_copies_past_the_policies(filled: tuple[str, Rows]) -> None:
    """Row-level security is enabled, not forced: COPY FROM would be refused under it."""
    dsn, _ = filled
    with session(dsn, None, "scheduler_migration") as connection:
        before = count(connection, "workers")
        with connection.cursor().copy("COPY scheduler.workers (id, tenant_id, kind, status) FROM STDIN") as copy:
            copy.write_row((UUID(int=7), "*", "worker", "active"))
        assert count(connection, "workers") == before + 1
    with (
        session(dsn, "a") as connection,
        pytest.raises(psycopg.errors.FeatureNotSupported),
        connection.cursor().copy("COPY scheduler.runs (id, tenant_id, state) FROM STDIN") as copy,
    ):
        copy.write_row((UUID(int=8), "a", "queued"))


def test_a_missing_policy_would_be_seen(filled: tuple[str, Rows]) -> None:
    """The first test looks at something: with the policy opened it fails."""
    dsn, _ = filled
    with connect(dsn) as connection:
        connection.execute("ALTER POLICY tenant_read ON scheduler.runs USING (true)")
    with session(dsn, "a") as connection:
        assert seen(connection, "runs") == set(TENANTS)
