"""What stops every writer of PostgreSQL when the way back is taken: the roles lose their right to write.

Owners, superusers and whoever was granted rights besides the tool's roles are not stopped; they are named.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from psycopg import sql

from migrator.config import PostgresSettings
from migrator.connections.postgres import Connection
from migrator.errors import RefusedError
from migrator.records import ALL
from migrator.schema.scheduler_tables import SCHEDULER
from migrator.schema.security import Roles, write_grants

POLL_S: Final = 0.05


def engage(connection: Connection, roles: PostgresSettings, limit: timedelta) -> None:
    """Take the right to write away, and wait for every transaction that began before; one too old is ended.

    Returns when nothing can be written any more in the two application roles. Called again, it changes nothing.
    """
    with connection.transaction():
        for record in ALL:
            connection.execute(
                sql.SQL("REVOKE INSERT, UPDATE, DELETE ON {} FROM {}, {}").format(*_names(record.table, roles))
            )
        row = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
    mark = "0" if row is None else row[0]
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    fenced_at = None if row is None else row[0]
    until = time.monotonic() + limit.total_seconds()
    while older := _writing_before(connection, mark, fenced_at):
        if time.monotonic() > until:
            with _as_login(connection):
                for pid in older:
                    connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
            if time.monotonic() > until + limit.total_seconds():
                raise RefusedError(f"transactions older than the fence do not end: {len(older)}")
        time.sleep(POLL_S)


def lift(connection: Connection, roles: PostgresSettings) -> None:
    """Give the rights back, as the schema's revisions gave them. Called again, it changes nothing."""
    with connection.transaction():
        names = Roles(roles.migration_role, roles.service_role, roles.dispatcher_role)
        for record in ALL:
            for statement in write_grants("scheduler", SCHEDULER.tables[f"scheduler.{record.table}"], names):
                connection.execute(statement)


def is_engaged(connection: Connection, roles: PostgresSettings) -> bool:
    """Tell whether neither application role may write into any table."""
    row = connection.execute(
        "SELECT bool_or(has_table_privilege(role, format('scheduler.%%I', t), 'INSERT, UPDATE, DELETE')"
        " OR has_any_column_privilege(role, format('scheduler.%%I', t), 'INSERT, UPDATE'))"
        " FROM unnest(%s::text[]) AS role, unnest(%s::text[]) AS t",
        ([roles.service_role, roles.dispatcher_role], [record.table for record in ALL]),
    ).fetchone()
    return row == (False,)


def unstopped(connection: Connection, roles: PostgresSettings) -> list[str]:
    """Return who could still write: superusers, members of the owning role, roles with rights of their own."""
    with _as_login(connection):
        rows = connection.execute(
            "SELECT rolname FROM pg_roles WHERE rolcanlogin AND rolname <> session_user"
            " AND (rolsuper OR pg_has_role(oid, %(owner)s, 'MEMBER')) UNION"
            " SELECT grantee FROM (SELECT grantee, table_schema, privilege_type"
            " FROM information_schema.role_table_grants UNION SELECT grantee, table_schema, privilege_type"
            " FROM information_schema.role_column_grants) AS granted"
            " WHERE table_schema = 'scheduler' AND privilege_type IN ('INSERT', 'UPDATE', 'DELETE')"
            " AND grantee NOT IN (%(owner)s, %(service)s, %(dispatcher)s) ORDER BY 1",
            {"owner": roles.migration_role, "service": roles.service_role, "dispatcher": roles.dispatcher_role},
        ).fetchall()
    return [row[0] for row in rows]


def _names(table: str, roles: PostgresSettings) -> tuple[sql.Identifier, sql.Identifier, sql.Identifier]:
    return (
        sql.Identifier("scheduler", table),
        sql.Identifier(roles.service_role),
        sql.Identifier(roles.dispatcher_role),
    )


def _writing_before(connection: Connection, mark: str, fenced_at: datetime | None) -> list[int]:
    """Return the backends that may still write into this database by a right they had before.

    Those whose transaction has an id below ``mark``, and those in the middle of a statement that began earlier: rights
    are looked at when a statement begins. All others meet the fence at their next statement.
    """
    with _as_login(connection):
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' AND (age(backend_xid) > age(%s::xid8::xid)"
            " OR state = 'active' AND query_start <= %s)",
            (mark, fenced_at),
        ).fetchall()
    return [row[0] for row in rows]


@contextmanager
def _as_login(connection: Connection) -> Iterator[None]:
    """Act as the user who logged in: the owning role, which this session is in, does not see what others do."""
    with connection.transaction():
        connection.execute("SET LOCAL ROLE NONE")
        yield
