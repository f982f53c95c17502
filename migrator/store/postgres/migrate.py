"""Applying and undoing the schema's revisions: one transaction, one upgrader at a time.

An advisory lock is taken first, so that of two upgraders one applies and the other, having waited, finds nothing to do.
Everything else happens in the same transaction, revisions and their records included: an interrupted upgrade leaves
nothing behind. Alembic's own command would do none of this, hence ``alembic/env.py`` refuses it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import msgspec
import psycopg
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from psycopg import errors, sql
from sqlalchemy import Connection as Lent
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

import migrator
from migrator.errors import ConfigurationError, RefusedError, UsageError
from migrator.store.postgres import revisions, roles
from migrator.store.postgres.connection import Connection, first_line, speaking_of, translate
from migrator.store.postgres.revisions import BRANCHES, HISTORY_TABLE, VERSION_TABLE, Revision
from migrator.store.postgres.security import Roles

LOCK_KEY = 0x6D69_6772_6174_6F72
"""Of the advisory lock: ``migrator`` in ASCII."""

BASE = "base"


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
    with speaking_of("the target"), _connect(dsn) as connection:
        connection.autocommit = True
        roles.ensure_roles(connection, names)
    with _transaction(dsn) as lent:
        connection = _driver(lent)
        _lock(connection)
        for branch in branches:
            roles.ensure_schema(connection, branch, names)
        _be_owner(connection, names)
        for branch in branches:
            _keep_books(connection, branch)
            known = revisions.revisions(branch)
            revisions.check_applied(known, revisions.applied(connection, branch))
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
    with _transaction(dsn) as lent:
        connection = _driver(lent)
        _lock(connection)
        for branch, stop in _targets(revision):
            known = revisions.revisions(branch)
            applied = revisions.applied(connection, branch)
            if not applied:
                continue
            revisions.check_applied(known, applied)
            _be_owner(connection, names)
            lost = _rows(connection, branch, _undone(known, applied, stop))
            if any(lost.values()) and not discard_rows:
                listed = ", ".join(f"{branch}.{table}: {count}" for table, count in lost.items() if count)
                raise RefusedError(f"rows would be lost ({listed}); call again with --discard-rows to lose them")
            done += _run(lent, branch, known, names, partial(command.downgrade, revision=f"{branch}@{stop}"))
            _drop_if_empty(connection, branch)
    return done


def losses(dsn: str, revision: str = BASE) -> dict[str, int]:
    """Return how many rows a downgrade to ``revision`` would lose, by ``schema.table``; none: left out."""
    lost: dict[str, int] = {}
    with speaking_of("the target"), _connect(dsn) as connection:
        for branch, stop in _targets(revision):
            undone = _undone(revisions.revisions(branch), revisions.applied(connection, branch), stop)
            rows = _rows(connection, branch, undone)
            lost |= {f"{branch}.{table}": count for table, count in rows.items() if count}
    return lost


def current(dsn: str) -> list[Position]:
    """Return where each branch stands; raise ``RefusedError`` for a changed or unknown revision."""
    places = []
    with speaking_of("the target"), _connect(dsn) as connection:
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
    from migrator.store.postgres.columns import LARGE  # noqa: PLC0415 - beside the tables, which need it
    from migrator.store.postgres.tables import SCHEDULER  # noqa: PLC0415 - declares all tables when imported

    offered = connection.execute(
        "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
    ).fetchone()
    if offered != (True,):
        return
    for table in SCHEDULER.tables.values():
        for column in table.columns:
            if column.info.get(LARGE):
                connection.execute(
                    sql.SQL("ALTER TABLE {} ALTER COLUMN {} SET COMPRESSION lz4").format(
                        sql.Identifier("scheduler", table.name), sql.Identifier(column.name)
                    )
                )


def _connect(dsn: str) -> Connection:
    try:
        return psycopg.connect(dsn, application_name="migrator", options="-c timezone=UTC")
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(f"postgres.dsn is not a PostgreSQL DSN: {first_line(error)}") from None


@contextmanager
def _transaction(dsn: str) -> Iterator[Lent]:
    """Open a transaction that Alembic and we share; commit it at the end, or nothing of it."""
    engine = create_engine("postgresql+psycopg://", creator=lambda: _connect(dsn), poolclass=NullPool)
    try:
        with speaking_of("the target"), engine.begin() as lent:
            yield lent
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise translate("the target", error.orig) from error
        raise
    finally:
        engine.dispose()


def _driver(lent: Lent) -> Connection:
    return cast("Connection", lent.connection.driver_connection)


def _be_owner(connection: Connection, names: Roles) -> None:
    """Act as the owning role until the transaction ends."""
    connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(names.migration)))


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
    connection = _driver(lent)
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
        act(config)
    except CommandError as error:
        raise UsageError(str(error)[:1].lower() + str(error)[1:]) from None
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


def _undone(known: list[Revision], applied: Any, stop: str) -> list[Revision]:  # noqa: ANN401 - a mapping by id
    after = known if stop == BASE else known[[entry.id for entry in known].index(stop) + 1 :]
    return [entry for entry in after if entry.id in applied]


def _rows(connection: Connection, branch: str, undone: list[Revision]) -> dict[str, int]:
    counts = {}
    for table in (table for revision in undone for table in revision.tables):
        row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(branch, table))).fetchone()
        counts[table] = row[0] if row else 0
    return counts


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
