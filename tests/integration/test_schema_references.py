"""Keys carry the tenant: nobody refers to another tenant's row, holds it, or learns from an error that it exists."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from migrator.connections.postgres import Connection
from tests.schema_rows import LEAST, connect, count, insert


class Key(NamedTuple):
    """A foreign key as the catalogue has it."""

    name: str
    table: str
    columns: tuple[str, ...]
    target: str
    target_columns: tuple[str, ...]


def foreign_keys(connection: Connection) -> list[Key]:
    found = connection.execute(
        "SELECT conname, rel.relname, ARRAY(SELECT attname::text FROM unnest(conkey) WITH ORDINALITY AS k (num, place)"
        " JOIN pg_attribute ON attrelid = conrelid AND attnum = num ORDER BY place), target.relname,"
        " ARRAY(SELECT attname::text FROM unnest(confkey) WITH ORDINALITY AS k (num, place)"
        " JOIN pg_attribute ON attrelid = confrelid AND attnum = num ORDER BY place)"
        " FROM pg_constraint JOIN pg_class AS rel ON rel.oid = conrelid"
        " JOIN pg_class AS target ON target.oid = confrelid"
        " WHERE contype = 'f' AND connamespace = 'scheduler'::regnamespace ORDER BY conname"
    )
    return [Key(name, table, tuple(mine), target, tuple(theirs)) for name, table, mine, target, theirs in found]


@contextmanager
def service(dsn: str, tenant: str) -> Iterator[Connection]:
    with connect(dsn) as connection:
        connection.execute("SET ROLE scheduler_service")
        connection.execute("SELECT set_config('app.tenant_id', %s, false)", (tenant,))
        yield connection


def refusal(connection: Connection, act: Callable[[], None], named: UUID) -> tuple[str | None, str]:
    """Return the error of an act, without the id that was named: all that a caller learns."""
    with pytest.raises(psycopg.errors.ForeignKeyViolation) as caught, connection.transaction():
        act()
    diag = caught.value.diag
    said = " ".join(str(part) for part in (diag.message_primary, diag.message_detail, diag.message_hint))
    return diag.constraint_name, said.replace(str(named), "ID")


@pytest.mark.proves("0-X2", "1-G4")
def test_each_foreign_key_refuses_another_tenant_s_row_as_one_that_is_not_there(any_scheduler_dsn: str) -> None:
    """The keys come from the catalogue: a new one is tried too."""
    dsn = any_scheduler_dsn
    with connect(dsn) as owner:
        keys = foreign_keys(owner)
        assert len(keys) >= 7
        for key in keys:
            assert key.target_columns == ("tenant_id", "id"), key
            theirs, mine = insert(owner, key.target, "b"), insert(owner, key.target, "a")
            own_row = insert(owner, key.table, "a", **{key.columns[1]: mine})
            with service(dsn, "a") as connection:
                for write in (_insert, _update):
                    told = [
                        refusal(connection, lambda: write(connection, key, named, own_row), named)  # noqa: B023 - called at once
                        for named in (theirs, uuid4())
                    ]
                    assert told[0] == told[1], key
                    assert told[0][0] == key.name
            statement = SQL("DELETE FROM {} WHERE id = %s AND tenant_id = 'b'").format(
                Identifier("scheduler", key.target)
            )
            assert owner.execute(statement, (theirs,)).rowcount == 1, key
            assert count(owner, key.table, own_row) == 1


def _insert(connection: Connection, key: Key, named: UUID, _: object) -> None:
    insert(connection, key.table, "a", **{key.columns[1]: named})


def _update(connection: Connection, key: Key, named: UUID, row: object) -> None:
    statement = SQL("UPDATE {} SET {} = %s WHERE id = %s").format(
        Identifier("scheduler", key.table), Identifier(key.columns[1])
    )
    connection.execute(statement, (named, row))


@pytest.mark.proves("0-X2")
def test_a_tenant_s_run_refers_to_a_global_schedule_and_trigger_and_to_nothing_else_that_is_global(
    any_scheduler_dsn: str,
) -> None:
    dsn = any_scheduler_dsn
    with connect(dsn) as owner:
        shared = insert(owner, "schedules", "*")
        cause = insert(owner, "triggers", "*", schedule_id=shared)
        theirs = insert(owner, "schedules", "b")
        mine = insert(owner, "schedules", "a")
        with service(dsn, "a") as connection:
            insert(connection, "runs", "a", schedule_id=shared, trigger_id=cause, global_schedule=True)
            for values in (
                {"schedule_id": shared},  # does not say that it is global
                {"schedule_id": theirs, "global_schedule": True},
                {"schedule_id": mine, "global_schedule": True},
                {"schedule_id": mine, "trigger_id": cause},
                {"schedule_id": mine, "trigger_id": cause, "global_schedule": True},
            ):
                with pytest.raises(psycopg.errors.ForeignKeyViolation):
                    insert(connection, "runs", "a", **values)
            with pytest.raises(psycopg.errors.GeneratedAlways):
                insert(connection, "runs", "a", schedule_id=theirs, schedule_tenant_id="b")
        for key in foreign_keys(owner):
            if key.columns[0] == "tenant_id":
                everybodys = insert(owner, key.target, "*")
                with service(dsn, "a") as connection, pytest.raises(psycopg.errors.ForeignKeyViolation):
                    insert(connection, key.table, "a", **{key.columns[1]: everybodys})


@pytest.mark.proves("0-X2", "1-G4")
def test_an_id_of_another_tenant_s_row_is_as_free_as_any(any_scheduler_dsn: str) -> None:
    """Ids of migrated rows can be computed by whoever knows the document's: a violated key would tell of it."""
    dsn = any_scheduler_dsn
    with connect(dsn) as owner:
        ids = {table: insert(owner, table, "b") for table in LEAST}
        before = {table: _row(owner, table, "b") for table in LEAST}
        with service(dsn, "a") as connection:
            for table, identity in ids.items():
                if table in {"workers", "locks"}:  # the dispatcher alone writes them
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        insert(connection, table, "a", id=identity, **({"key": "a/lock"} if table == "locks" else {}))
                    continue
                insert(connection, table, "a", id=identity)
                with pytest.raises(psycopg.errors.UniqueViolation):
                    insert(connection, table, "a", id=identity)
        assert {table: _row(owner, table, "b") for table in LEAST} == before


def _row(connection: Connection, table: str, tenant: str) -> list[tuple[Any, ...]]:
    query = SQL("SELECT t::text FROM {} AS t WHERE tenant_id = %s ORDER BY 1").format(Identifier("scheduler", table))
    return connection.execute(query, (tenant,)).fetchall()


@pytest.mark.proves("0-X2")
def test_every_unique_key_carries_the_tenant(scheduler_dsn: str) -> None:
    """A lock's key begins with its tenant, which a CHECK demands."""
    with connect(scheduler_dsn) as connection:
        found = connection.execute(
            "SELECT idx.relname FROM pg_index JOIN pg_class AS idx ON idx.oid = indexrelid"
            " JOIN pg_class AS rel ON rel.oid = indrelid WHERE indisunique"
            " AND rel.relnamespace = 'scheduler'::regnamespace AND rel.relname NOT LIKE 'schema%'"
            " AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = indexrelid AND attname = 'tenant_id')"
        ).fetchall()
    assert found == [("uq_locks_key",)]
