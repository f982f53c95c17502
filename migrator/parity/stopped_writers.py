"""Whether nobody writes a source in PostgreSQL any more: without that, what was compared may change at once.

Nothing follows these tables, so that the last parity check is of the data that counts only if the writers were stopped
before it. Two things show that: only the owner of the tables may write them, and no transaction that has written is
open; or SHARE locks, held during the check, which wait for those transactions and keep others from writing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg import sql

from migrator.config import Settings
from migrator.connections.postgres import Connection, open_source, translate_source_errors
from migrator.errors import DeniedError
from migrator.pipeline.tables import place_of

VIEW: Final = "v"

_TABLES: Final = """
SELECT c.oid, c.relkind::text, c.oid::regclass::text
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN unnest(%s::text[], %s::text[]) AS named (schema, relation) ON n.nspname = schema AND c.relname = relation
ORDER BY 3
"""
_WRITERS: Final = """
WITH granted AS (
    SELECT c.relowner, entry.grantee, entry.privilege_type
    FROM pg_class AS c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS entry
    WHERE c.oid = ANY(%(tables)s)
    UNION
    SELECT c.relowner, entry.grantee, entry.privilege_type
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid, aclexplode(a.attacl) AS entry
    WHERE c.oid = ANY(%(tables)s))
SELECT DISTINCT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(grantee)::text END
FROM granted WHERE privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE') AND grantee <> relowner
UNION
SELECT pg_get_userbyid(m.member)::text FROM pg_auth_members AS m JOIN pg_roles AS r ON r.oid = m.roleid
WHERE r.rolname = 'pg_write_all_data'
ORDER BY 1
"""
_WRITING: Final = """
SELECT count(DISTINCT coalesce(l.pid::text, l.virtualtransaction)) FROM pg_locks AS l
JOIN pg_database AS d ON d.oid = l.database WHERE d.datname = current_database() AND l.relation = ANY(%s) AND l.granted
AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
AND l.pid IS DISTINCT FROM pg_backend_pid()
"""


@contextmanager
def writers_stopped(settings: Settings, tables: Sequence[str], *, lock: bool) -> Iterator[str]:
    """Yield why nothing shows that these tables do not change any more; empty if it is shown.

    ``lock``: hold SHARE locks on them within the block. Raises ``DeniedError`` if the user may not, ``LockedError`` if
    a writer does not end in time.
    """
    with translate_source_errors(), open_source(settings) as connection:
        found = _found(connection, tables)
        if not lock:
            yield _reason(connection, found)
            return
        with connection.transaction():
            _lock(connection, tables)
            yield ""


def _found(connection: Connection, tables: Sequence[str]) -> list[tuple[int, str, str]]:
    places = [place_of(one) for one in tables]
    return connection.execute(_TABLES, ([one for one, _ in places], [one for _, one in places])).fetchall()


def _reason(connection: Connection, found: Sequence[tuple[int, str, str]]) -> str:
    """Return why the tables may still change, and what to do."""
    views = [name for _, kind, name in found if kind == VIEW]
    oids = [oid for oid, _, _ in found]
    writers = [name for (name,) in connection.execute(_WRITERS, {"tables": oids})]
    row = connection.execute(_WRITING, (oids,)).fetchone()
    reasons = []
    if writers:
        reasons.append(f"{', '.join(writers)} may write its tables")
    if row is not None and row[0]:
        reasons.append(f"{row[0]} open transactions have written them")
    if views:
        reasons.append(f"nothing shows who writes the tables of the view {', '.join(views)}")
    if not reasons:
        return ""
    return (
        f"the source may still change: {'; '.join(reasons)}; revoke INSERT, UPDATE, DELETE and TRUNCATE from all roles"
        " but the owner, or compare with --lock-source"
    )


def _lock(connection: Connection, tables: Sequence[str]) -> None:
    names = sql.SQL(", ").join(sql.Identifier(*place_of(one)) for one in tables)
    connection.execute("SET TRANSACTION READ WRITE")  # a read-only one takes no such lock
    try:
        connection.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(names))
    except psycopg.errors.InsufficientPrivilege as error:
        grant = sql.SQL("GRANT UPDATE ON {} TO {}").format(names, sql.Identifier(connection.info.user))
        raise DeniedError(
            "--lock-source: the source's user may not lock its tables; as an administrator run",
            grant=grant.as_string(connection),
        ) from error
