"""Tenant isolation by row-level security: whoever writes the query."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from migrator.connections.postgres import Connection
from migrator.schema.security import APPEND_ONLY, DELETED_BY_SERVICE, WRITTEN_BY_DISPATCHER
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
    column = Identifier({"parallel_triggers": "timing"}.get(table, "payload" if "graph_job" in table else "extra"))
    query = SQL("UPDATE {} SET {} = {} WHERE id = %s").format(Identifier("scheduler", table), column, column)
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
            if table not in APPEND_ONLY | WRITTEN_BY_DISPATCHER:
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
        for table in LEAST.keys() - APPEND_ONLY - WRITTEN_BY_DISPATCHER:
            assert changed(connection, table, rows[table, "a"]) == 1, table
            for other in ("b", "*"):
                assert changed(connection, table, rows[table, other]) == 0, table
                if table in DELETED_BY_SERVICE:
                    assert deleted(connection, table, rows[table, other]) == 0, table
        for table in LEAST.keys() - WRITTEN_BY_DISPATCHER:
            insert(connection, table, "a")
            for other in ("b", "*"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                    insert(connection, table, other)
        for table in WRITTEN_BY_DISPATCHER:
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
                insert(connection, table, "a")
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
                changed(connection, table, rows[table, "a"])


def test_a_service_cannot_hand_a_row_to_another_tenant(filled: tuple[str, Rows]) -> None:
    """The column is not granted; were it, the policy would refuse it all the same."""
    dsn, rows = filled
    hand = "UPDATE scheduler.runs SET tenant_id = %s WHERE id = %s"
    with session(dsn, "a") as connection:
        for other in ("b", "*"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
                connection.execute(hand, (other, rows["runs", "a"]))
        with connect(dsn) as admin:
            admin.execute("GRANT UPDATE (tenant_id) ON scheduler.runs TO scheduler_service")
        for other in ("b", "*"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                connection.execute(hand, (other, rows["runs", "a"]))


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
            if table in DELETED_BY_SERVICE:
                connection.execute(SQL("DELETE FROM {}").format(Identifier("scheduler", table)))
    with connect(dsn) as connection:
        for table in LEAST:
            # The logs and the snapshots stand by themselves here; logs of a run go with it.
            left = {"b", "*"} if table in DELETED_BY_SERVICE else {"a", "b", "*"}
            assert seen(connection, table) == left, table


LOCKABLE = {"scheduler_service": {"handlers", "runs", "triggers"}, "scheduler_dispatcher": {"workers"}}
"""Tables on which a role has DELETE, and with it every mode of LOCK TABLE."""


@pytest.mark.parametrize("role", LOCKABLE)
def test_a_role_keeps_nobody_from_a_table_that_it_deletes_nothing_of(role: str, filled: tuple[str, Rows]) -> None:
    dsn, _ = filled
    with session(dsn, "a", role) as connection:
        for mode in ("SHARE UPDATE EXCLUSIVE", "SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE"):
            locked = set()
            for table in LEAST:
                with suppress(psycopg.errors.InsufficientPrivilege), connection.transaction(force_rollback=True):
                    connection.execute(f"LOCK TABLE scheduler.{table} IN {mode} MODE".encode())
                    locked.add(table)
            assert locked == LOCKABLE[role], mode


@pytest.mark.parametrize("role", LOCKABLE)
def test_a_role_deletes_only_what_the_store_deletes_in_it(role: str, filled: tuple[str, Rows]) -> None:
    dsn, rows = filled
    with session(dsn, "a", role) as connection:
        for table in LEAST.keys() - LOCKABLE[role]:
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
                deleted(connection, table, rows[table, "a"])


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


TAGGED = (
    "SELECT scheduler.schedules_with_any_tag(ARRAY['red', 'blue'])",
    "SELECT scheduler.schedules_with_every_tag(ARRAY['red'])",
)


@pytest.mark.proves("0-X2")
def test_the_functions_of_tags_see_what_the_session_sees(filled: tuple[str, Rows]) -> None:
    dsn, rows = filled
    with connect(dsn) as connection:
        connection.execute("UPDATE scheduler.schedules SET tags = ARRAY['red', 'green']")
        everybodys = {row[0] for row in connection.execute("SELECT id FROM scheduler.schedules WHERE tenant_id = '*'")}
    for statement in TAGGED:
        for tenant in ("a", "b"):
            with session(dsn, tenant) as connection:
                own = {row[0] for row in connection.execute("SELECT id FROM scheduler.schedules")}
                found = {row[0] for row in connection.execute(statement.encode())}
                assert found == own > everybodys
                assert rows["schedules", tenant] in found
        for nobody in (None, "", "c"):
            with session(dsn, nobody) as connection:
                seen_by_nobody = {row[0] for row in connection.execute(statement.encode())}
                assert seen_by_nobody == (everybodys if nobody == "c" else set())


@pytest.mark.proves("0-X2")
def test_the_functions_of_tags_take_no_tenant_no_other_table_and_serve_the_service_only(
    filled: tuple[str, Rows],
) -> None:
    dsn, _ = filled
    with session(dsn, "a") as connection:
        for name in ("schedules_with_any_tag", "schedules_with_every_tag"):
            with pytest.raises(psycopg.errors.UndefinedFunction):
                connection.execute(f"SELECT scheduler.{name}(ARRAY['red'], 'b')".encode())
        # Operators of the caller's own, found first, would be run by the owner and shown every row.
        connection.execute("CREATE TEMPORARY TABLE shown (tags text[])")
        connection.execute(
            "CREATE FUNCTION pg_temp.peek(text[], text[]) RETURNS boolean LANGUAGE sql AS"
            " 'INSERT INTO pg_temp.shown VALUES ($1); SELECT true'"
        )
        connection.execute("CREATE OPERATOR pg_temp.&& (LEFTARG = text[], RIGHTARG = text[], FUNCTION = pg_temp.peek)")
        connection.execute("SET search_path = pg_temp, pg_catalog")
        assert connection.execute("SELECT scheduler.schedules_with_any_tag(ARRAY['none'])").fetchall() == []
        assert connection.execute("SELECT count(*) FROM pg_temp.shown").fetchone() == (0,)
    with session(dsn, "a", "scheduler_dispatcher") as connection:
        for statement in TAGGED:
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for function"):
                connection.execute(statement.encode())


def test_a_missing_policy_would_be_seen(filled: tuple[str, Rows]) -> None:
    """The first test looks at something: with the policy opened it fails."""
    dsn, _ = filled
    with connect(dsn) as connection:
        connection.execute("ALTER POLICY tenant_read ON scheduler.runs USING (true)")
    with session(dsn, "a") as connection:
        assert seen(connection, "runs") == set(TENANTS)
