"""Applying and undoing the schema's revisions: one transaction, one upgrader at a time.

An advisory lock is taken first, so that of two upgraders one applies and the other, having waited, finds nothing to do.
Everything else happens in the same transaction, revisions and their records included: an interrupted upgrade leaves
nothing behind. Alembic's own command would do none of this, hence ``alembic/env.py`` refuses it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
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
from migrator.errors import LockedError, RefusedError, UsageError
from migrator.store.postgres import holders, revisions, roles
from migrator.store.postgres.columns import LARGE
from migrator.store.postgres.connection import Connection, first_line, speaking_of
from migrator.store.postgres.revisions import BRANCHES, HISTORY_TABLE, VERSION_TABLE, Revision
from migrator.store.postgres.security import Roles
from migrator.store.postgres.shared import be_owner, connect, driver, transaction
from migrator.store.postgres.tables import SCHEDULER
from migrator.telemetry import waiting

LOCK_KEY = 0x6D69_6772_6174_6F72
"""Of the advisory lock: ``migrator`` in ASCII."""

BASE = "base"

PATIENCE_S = 300.0
"""How long a table that somebody else has locked is waited for, if nothing else is said."""
PAUSE_S = 1.0
"""Between two attempts: whoever waited behind the change of a table goes first."""

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


def upgrade(
    dsn: str, *, names: Roles | None = None, branches: tuple[str, ...] = BRANCHES, patience_s: float = PATIENCE_S
) -> list[Change]:
    """Bring the branches to their heads, making roles and schemas where they are missing; return what was applied.

    A table that somebody else has locked is waited for, for ``patience_s``. Raises ``RightsMissingError`` with the SQL
    to hand over, ``RefusedError`` for a changed or unknown revision and for a schema of somebody else,
    ``ConfigurationError`` for roles that keep no tenants apart, ``LockedError`` for a table that stays locked.
    """
    return _patiently(dsn, patience_s, lambda: _upgrade(dsn, names or Roles(), branches))


def _upgrade(dsn: str, names: Roles, branches: tuple[str, ...]) -> list[Change]:
    done: list[Change] = []
    with speaking_of("the target"), connect(dsn) as connection:
        connection.autocommit = True
        roles.require_group_roles(connection, names)
        roles.ensure_roles(connection, names)
    with transaction(dsn) as lent:
        connection = driver(lent)
        _lock(connection)
        for branch in branches:
            roles.ensure_schema(connection, branch, names)
        be_owner(connection, names)
        for branch in branches:
            _keep_books(connection, branch)
            known, applied = _standing(connection, branch)
            if len(applied) < len(known):
                done += _run(lent, branch, known, names, partial(command.upgrade, revision=f"{branch}@head"))
        compress(connection)
    return done


def downgrade(
    dsn: str,
    revision: str = BASE,
    *,
    names: Roles | None = None,
    discard_rows: bool = False,
    patience_s: float = PATIENCE_S,
) -> list[Change]:
    """Undo every revision after ``revision``; return what was undone, last first.

    ``revision`` is a revision's id, ``base`` for both branches, or ``<branch>@base``. A schema whose last revision is
    undone goes, unless something of somebody else is in it. Refused while rows would be lost, unless ``discard_rows``.
    A table that somebody else has locked is waited for, as by ``upgrade``.
    """
    return _patiently(dsn, patience_s, lambda: _downgrade(dsn, revision, names or Roles(), discard_rows=discard_rows))


def _downgrade(dsn: str, revision: str, names: Roles, *, discard_rows: bool) -> list[Change]:
    done: list[Change] = []
    with transaction(dsn) as lent:
        connection = driver(lent)
        _lock(connection)
        lost = _losses(connection, revision)
        if lost and not discard_rows:
            listed = ", ".join(f"{table}: {count}" for table, count in lost.items())
            raise RefusedError(f"rows would be lost ({listed}); call again with --discard-rows to lose them")
        for branch, stop in _targets(revision):
            known, applied = _standing(connection, branch)
            if not applied:
                continue
            be_owner(connection, names)
            done += _run(lent, branch, known, names, partial(command.downgrade, revision=f"{branch}@{stop}"))
            _drop_if_empty(connection, branch)
    return done


def losses(dsn: str, revision: str = BASE) -> dict[str, int]:
    """Return how many rows a downgrade to ``revision`` would lose, by ``schema.table``; none: left out."""
    with speaking_of("the target"), connect(dsn) as connection:
        return _losses(connection, revision)


def current(dsn: str, names: Roles | None = None) -> list[Position]:
    """Return where each branch stands.

    Raises ``RefusedError`` for a changed or unknown revision, and for a schema of somebody else.
    """
    places = []
    names = names or Roles()
    with speaking_of("the target"), connect(dsn) as connection:
        for branch in BRANCHES:
            roles.require_own_schema(connection, branch, names)
            known, applied = _standing(connection, branch)
            at = [revision.id for revision in known if revision.id in applied]
            pending = tuple(revision.id for revision in known if revision.id not in applied)
            places.append(Position(branch, at[-1] if at else None, known[-1].id, pending))
    return places


def require_group_roles(dsn: str, names: Roles) -> None:
    """Refuse roles that keep no tenants apart, as ``roles.require_group_roles`` does."""
    with speaking_of("the target"), connect(dsn) as connection:
        roles.require_group_roles(connection, names)


def _standing(connection: Connection, branch: str) -> tuple[list[Revision], Mapping[str, tuple[str, str]]]:
    """Return a branch's revisions, and those that were applied; raise ``RefusedError`` where they do not fit."""
    known = revisions.revisions(branch)
    applied = revisions.applied(connection, branch)
    revisions.check_applied(known, applied)
    revisions.check_recorded(branch, known, applied, revisions.recorded(connection, branch))
    return known, applied


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


def _patiently(dsn: str, seconds: float, work: Callable[[], list[Change]]) -> list[Change]:
    """Do ``work``, one transaction; where a table is locked, take all of it back, say who holds it, and try again.

    Nothing waits in line for long: behind a waiting change of a table every reader of it would wait, too.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return work()
        except LockedError as error:
            with speaking_of("the target"), connect(dsn) as connection:
                words = holders.sentence(connection, weak=True)
            if time.monotonic() >= until:
                raise LockedError(f"{words}; nothing was changed, call again when it has ended") from error
            waiting(f"{words}; trying again")
        threading.Event().wait(PAUSE_S)


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
