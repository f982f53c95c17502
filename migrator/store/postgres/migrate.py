"""Applying and undoing the schema's revisions: one transaction, one upgrader at a time.

An advisory lock is taken first, so that of two upgraders one applies and the other, having waited, finds nothing to do.
Everything else happens in the same transaction, revisions and their records included: an interrupted upgrade leaves
nothing behind. Alembic's own command would do none of this, hence ``alembic/env.py`` refuses it.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from psycopg import errors, sql
from sqlalchemy import Connection as Lent
from sqlalchemy.exc import DBAPIError

import migrator
from migrator.errors import RefusedError, UsageError
from migrator.store.postgres import revisions, roles
from migrator.store.postgres.columns import LARGE
from migrator.store.postgres.connection import Connection, first_line, speaking_of
from migrator.store.postgres.revisions import BRANCHES, HISTORY_TABLE, VERSION_TABLE, Revision
from migrator.store.postgres.security import Roles
from migrator.store.postgres.shared import be_owner, connect, driver, transaction
from migrator.store.postgres.tables import SCHEDULER

LOCK_KEY = 0x6D69_6772_6174_6F72
"""Of the advisory lock: ``migrator`` in ASCII."""

BASE = "base"

_ALEMBIC = threading.Lock()
"""Alembic keeps its environment in a module: one at a time in a process."""


class Change(msgspec.Struct, frozen=True):
    """A revision that was applied or undone."""

    revision: str
    branch: str
    title: str
    undone: bool = False


class Position(msgspec.Struct, frozen=True):
    """Where a branch stands."""

    branch: str
    revision: str | None
    """None: nothing is applied."""
    head: str
    pending: tuple[str, ...]
    """Revisions that an upgrade would apply."""


def upgrade(dsn: str, *, names: Roles | None = None, branches: tuple[str, ...] = BRANCHES) -> list[Change]:
    """Bring the branches to their heads, making roles and schemas where they are missing; return what was applied.

    Raises ``RightsMissingError`` with the SQL to hand over, ``RefusedError`` for a changed or unknown revision.
    """
    names = names or Roles()
    done: list[Change] = []
    with speaking_of("the target"), connect(dsn) as connection:
        connection.autocommit = True
        roles.ensure_roles(connection, names)
    with transaction(dsn) as lent:
        connection = driver(lent)
        _lock(connection)
        for branch in branches:
            roles.ensure_schema(connection, branch, names)
        be_owner(connection, names)
        for branch in branches:
            _keep_books(connection, branch)
            known = revisions.revisions(branch)
            applied = revisions.applied(connection, branch)
            revisions.check_applied(known, applied)
            if len(applied) < len(known):
                done += _run(lent, branch, known, names, partial(command.upgrade, revision=f"{branch}@head"))
        compress(connection)
    return done


def downgrade(
    dsn: str, revision: str = BASE, *, names: Roles | None = None, discard_rows: bool = False
) -> list[Change]:
    """Undo every revision after ``revision``; return what was undone, last first.

    ``revision`` is a revision's id, ``base`` for both branches, or ``<branch>@base``. A schema whose last revision is
    undone goes, unless something of somebody else is in it. Refused while rows would be lost, unless ``discard_rows``.
    """
    names = names or Roles()
    done: list[Change] = []
    with transaction(dsn) as lent:
        connection = driver(lent)
        _lock(connection)
        lost = _losses(connection, revision)
        if lost and not discard_rows:
            listed = ", ".join(f"{table}: {count}" for table, count in lost.items())
            raise RefusedError(f"rows would be lost ({listed}); call again with --discard-rows to lose them")
        for branch, stop in _targets(revision):
            known = revisions.revisions(branch)
            applied = revisions.applied(connection, branch)
            if not applied:
                continue
            revisions.check_applied(known, applied)
            be_owner(connection, names)
            done += _run(lent, branch, known, names, partial(command.downgrade, revision=f"{branch}@{stop}"))
            _drop_if_empty(connection, branch)
    return done


def losses(dsn: str, revision: str = BASE) -> dict[str, int]:
    """Return how many rows a downgrade to ``revision`` would lose, by ``schema.table``; none: left out."""
    with speaking_of("the target"), connect(dsn) as connection:
        return _losses(connection, revision)


def current(dsn: str) -> list[Position]:
    """Return where each branch stands; raise ``RefusedError`` for a changed or unknown revision."""
    places = []
    with speaking_of("the target"), connect(dsn) as connection:
        for branch in BRANCHES:
            known = revisions.revisions(branch)
            applied = revisions.applied(connection, branch)
            revisions.check_applied(known, applied)
            at = [revision.id for revision in known if revision.id in applied]
            pending = tuple(revision.id for revision in known if revision.id not in applied)
            places.append(Position(branch, at[-1] if at else None, known[-1].id, pending))
    return places


def compress(connection: Connection) -> None:
    """Have large jsonb compressed with lz4 where the server offers it (twice as fast as pglz on 22 KB documents)."""
    offered = connection.execute(
        "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
    ).fetchone()
    if offered != (True,):
        return
    large = [
        (table.name, column.name)
        for table in SCHEDULER.tables.values()
        for column in table.columns
        if LARGE in column.info
    ]
    # Asked first: the statement takes a strong lock also when it changes nothing.
    others = connection.execute(
        "SELECT relname, attname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid"
        " WHERE relnamespace = to_regnamespace('scheduler') AND relkind = 'r' AND attnum > 0 AND attcompression <> 'l'"
    ).fetchall()
    for table, column in sorted(set(large) & set(others)):
        connection.execute(
            sql.SQL("ALTER TABLE {} ALTER COLUMN {} SET COMPRESSION lz4").format(
                sql.Identifier("scheduler", table), sql.Identifier(column)
            )
        )


def _lock(connection: Connection) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_KEY,))


def _keep_books(connection: Connection, branch: str) -> None:
    connection.execute(
        sql.SQL(revisions.BOOKKEEPING_DDL).format(
            version=sql.Identifier(branch, VERSION_TABLE), history=sql.Identifier(branch, HISTORY_TABLE)
        )
    )


def _run(
    lent: Lent,
    branch: str,
    known: list[Revision],
    names: Roles,
    act: Callable[[Config], None],
) -> list[Change]:
    """Let Alembic act on a branch, inside the transaction that is open; return what it did."""
    connection = driver(lent)
    by_id = {revision.id: revision for revision in known}
    done: list[Change] = []

    def record(*, step: Any, **_: object) -> None:  # noqa: ANN401 - Alembic's MigrationInfo
        revision = by_id[step.up_revision_id]
        if step.is_upgrade:
            connection.execute(
                sql.SQL("INSERT INTO {} VALUES (%s, %s, %s, clock_timestamp(), %s)").format(
                    sql.Identifier(branch, HISTORY_TABLE)
                ),
                (revision.id, revision.file, revision.sha256, migrator.__version__),
            )
        else:
            connection.execute(
                sql.SQL("DELETE FROM {} WHERE revision = %s").format(sql.Identifier(branch, HISTORY_TABLE)),
                (revision.id,),
            )
        done.append(Change(revision.id, branch, revision.title, undone=not step.is_upgrade))

    config = revisions.configuration()
    config.attributes.update(
        connection=lent,
        branch=branch,
        on_version_apply=record,
        roles={
            role: sql.Identifier(name).as_string(connection) for role, name in msgspec.structs.asdict(names).items()
        },
    )
    try:
        with _ALEMBIC:
            act(config)
    except CommandError as error:
        raise UsageError(str(error)[:1].lower() + str(error)[1:]) from None
    except DBAPIError as error:
        if isinstance(error.orig, errors.DuplicateTable | errors.DuplicateObject):
            said = first_line(error.orig)
            raise RefusedError(f"schema {branch} holds something the tool has not made: {said}; move it away") from None
        raise
    return done


def _targets(revision: str) -> list[tuple[str, str]]:
    """Return (branch, where to stop) for what a downgrade names."""
    branch, at, stop = revision.rpartition("@")
    if revision == BASE:
        return [(one, BASE) for one in reversed(BRANCHES)]
    for one in BRANCHES:
        known = [BASE, *(entry.id for entry in revisions.revisions(one))] if not at or branch == one else []
        if stop in known and (at or stop != BASE):
            return [(one, stop)]
    raise UsageError(f"no revision {revision}; known: base, " + ", ".join(_names()))


def _names() -> Iterator[str]:
    for branch in BRANCHES:
        yield f"{branch}@base"
        yield from (entry.id for entry in revisions.revisions(branch))


def _losses(connection: Connection, revision: str) -> dict[str, int]:
    lost: dict[str, int] = {}
    for branch, stop in _targets(revision):
        known, applied = revisions.revisions(branch), revisions.applied(connection, branch)
        after = known if stop == BASE else known[[entry.id for entry in known].index(stop) + 1 :]
        for table in (table for entry in after if entry.id in applied for table in entry.tables):
            query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(branch, table))
            row = connection.execute(query).fetchone()
            if row and row[0]:
                lost[f"{branch}.{table}"] = row[0]
    return lost


def _drop_if_empty(connection: Connection, branch: str) -> None:
    """Drop a schema in which nothing but the bookkeeping is left."""
    if revisions.applied(connection, branch):
        return
    for table in revisions.BOOKKEEPING:
        connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(branch, table)))
    try:
        with connection.transaction():
            connection.execute(sql.SQL("DROP SCHEMA {}").format(sql.Identifier(branch)))
    except errors.DependentObjectsStillExist:
        pass  # somebody else keeps something in it
