"""The revisions of the schema: their files, and applying and undoing them.

An upgrade is one transaction, and one upgrade runs at a time: an advisory lock is taken first, so that of two upgrades
the second finds nothing to do. Revisions and the records of them are written in that transaction: an interrupted
upgrade leaves nothing. Alembic's own command does none of this, so ``alembic/env.py`` refuses it.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from psycopg import errors, sql

import migrator
from migrator.connections import advisory_locks, table_locks
from migrator.connections.postgres import Connection, fetch_value, first_line
from migrator.connections.retries import retry
from migrator.errors import LockedError, MigratorError, RefusedError, UsageError
from migrator.schema import decisions, security
from migrator.schema.decisions import Approval
from migrator.schema.security import Roles
from migrator.schema.transaction import be_owner, driver, session, transaction

if TYPE_CHECKING:  # Alembic and SQLAlchemy take half of the time of a command that only says how it is called
    from alembic.config import Config
    from sqlalchemy import Connection as AlchemyConnection

TOOL = "migration"
"""The branch of the tool's own tables, which every target needs."""
BRANCHES = ("scheduler", TOOL)
"""Each branch of the revisions fills the schema of its name and has its version table there."""

VERSION_TABLE = "schema_revision"
"""Alembic's own table: the revision of a branch."""
HISTORY_TABLE = "schema_history"
"""The files that were applied, with their SHA-256."""
BOOKKEEPING = (VERSION_TABLE, HISTORY_TABLE)

BOOKKEEPING_DDL = """
CREATE TABLE IF NOT EXISTS {version} (
    version_num text NOT NULL,
    CONSTRAINT pk_schema_revision PRIMARY KEY (version_num)
);
CREATE TABLE IF NOT EXISTS {history} (
    revision text NOT NULL,
    file text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL,
    tool_version text NOT NULL,
    CONSTRAINT pk_schema_history PRIMARY KEY (revision)
);
"""


LARGE = (
    ("schedules", "payload"),
    ("runs", "deltas"),
    ("runs", "result"),
    ("impact_snapshots", "images"),
    ("run_summaries", "recent"),
    ("policy_jobs", "inputs"),
    ("graph_jobs", "payload"),
    ("graph_job_events", "payload"),
)
"""Tables of the scheduler, each with a column of jsonb that may be large: it is compressed with lz4 if possible."""

_COMPRESSION = """
DO $$
DECLARE
    place record;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)) THEN
        RETURN;
    END IF;
    -- read first: the statement takes a strong lock also when it changes nothing
    FOR place IN
        SELECT relname, attname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
        WHERE relnamespace = to_regnamespace('scheduler') AND relkind = 'r' AND attcompression <> 'l'
            AND (relname, attname) IN ({places})
        ORDER BY relname, attname
    LOOP
        EXECUTE 'ALTER TABLE scheduler.' || quote_ident(place.relname)
            || ' ALTER COLUMN ' || quote_ident(place.attname) || ' SET COMPRESSION lz4';
    END LOOP;
END
$$;
"""
COMPRESSION_DDL = _COMPRESSION.format(places=", ".join(f"('{table}', '{column}')" for table, column in LARGE))
"""Has large jsonb compressed with lz4 if the server offers it (twice as fast as pglz on documents of 22 KB)."""


class Revision(msgspec.Struct, frozen=True):
    """One revision file."""

    id: str
    branch: str
    title: str
    file: str
    sha256: str
    """SHA-256 of the file's bytes, in hexadecimal."""
    tables: tuple[str, ...]
    """Tables it makes, and drops with their rows when it is undone."""


def revisions_folder() -> Path:
    """Return the folder of the revisions: in the installed package, or next to it in the checkout."""
    package = Path(migrator.__file__).parent
    for place in (package / "_alembic", package.parent / "alembic"):
        if (place / "env.py").is_file():
            return place
    raise MigratorError(f"the schema's revisions are missing from the installation; looked next to {package}")


def alembic_configuration() -> "Config":
    """Return Alembic's configuration, without a file."""
    from alembic.config import Config  # noqa: PLC0415 - see above

    config = Config()
    config.set_main_option("script_location", str(revisions_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def known_revisions(branch: str) -> list[Revision]:
    """Return a branch's revisions, first to last."""
    return [revision for revision, _ in loaded_revisions(branch)]


def loaded_revisions(branch: str) -> list[tuple[Revision, ModuleType]]:
    """Return a branch's revisions, first to last, with the modules in which they are written."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see above

    scripts = ScriptDirectory.from_config(alembic_configuration())
    walk = list(scripts.walk_revisions("base", f"{branch}@head"))
    return [(_revision(branch, script), script.module) for script in reversed(walk)]


def _revision(branch: str, script: Any) -> Revision:  # noqa: ANN401 - Alembic's Script
    path = Path(script.path)
    return Revision(
        id=script.revision,
        branch=branch,
        title=(script.doc or "").rstrip("."),
        file=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        tables=tuple(script.module.TABLES),
    )


def applied_revisions(connection: Connection, branch: str) -> dict[str, tuple[str, str]]:
    """Return revision → (file, SHA-256) of what was applied; empty if nothing was."""
    row = connection.execute("SELECT to_regclass(%s) IS NULL", (f"{branch}.{HISTORY_TABLE}",)).fetchone()
    if row == (True,):
        return {}
    query = sql.SQL("SELECT revision, file, sha256 FROM {} ORDER BY revision").format(
        sql.Identifier(branch, HISTORY_TABLE)
    )
    return {revision: (file, digest) for revision, file, digest in connection.execute(query)}


def recorded_revisions(connection: Connection, branch: str) -> list[str]:
    """Return the revisions that Alembic's own table names; empty if there is none."""
    row = connection.execute("SELECT to_regclass(%s) IS NULL", (f"{branch}.{VERSION_TABLE}",)).fetchone()
    if row == (True,):
        return []
    query = sql.SQL("SELECT version_num FROM {} ORDER BY 1").format(sql.Identifier(branch, VERSION_TABLE))
    return [revision for (revision,) in connection.execute(query)]


def check_recorded(branch: str, known: list[Revision], done: dict[str, tuple[str, str]], names: list[str]) -> None:
    """Raise ``RefusedError`` if Alembic's table names anything but the last revision that was applied."""
    expected = [one.id for one in known if one.id in done][-1:]
    if names != expected:
        only = expected[0] if expected else "no row"
        raise RefusedError(
            f"{branch}.{VERSION_TABLE} names {', '.join(names) or 'no revision'} where {only} is expected: another tool"
            f" has changed this schema or that table; undo that, so that the table has {only} alone"
        )


def check_applied(known: list[Revision], done: dict[str, tuple[str, str]]) -> None:
    """Raise ``RefusedError`` if an applied revision is unknown, or its file is not the one that was applied."""
    by_id = {revision.id: revision for revision in known}
    for identity, (file, _) in reversed(done.items()):  # of a version that knows more, the newest is named
        if identity not in by_id:
            raise _unknown(identity, file)
    for identity, (_, digest) in done.items():
        if by_id[identity].sha256 != digest:
            raise _changed(identity, by_id[identity].file)


def require_known(connection: Connection) -> None:
    """Raise ``RefusedError`` if a revision was applied that this version of the tool does not know, or knows otherwise.

    Called before rows are written or compared, so without Alembic, which takes long to load.
    """
    versions = revisions_folder() / "versions"
    for branch in BRANCHES:
        applied = applied_revisions(connection, branch)
        for identity, (file, _) in reversed(applied.items()):
            if not (versions / Path(file).name).is_file():
                raise _unknown(identity, file)
        for identity, (file, digest) in applied.items():
            if hashlib.sha256((versions / Path(file).name).read_bytes()).hexdigest() != digest:
                raise _changed(identity, file)


def _unknown(identity: str, file: str) -> RefusedError:
    return RefusedError(
        f"the schema is at revision {identity} ({file}), which this version of the tool does not know; use the version"
        " that applied it"
    )


def _changed(identity: str, file: str) -> RefusedError:
    return RefusedError(
        f"revision {identity} was applied from a file with another content than {file}: restore the applied file; a"
        " change needs a new revision"
    )


LOCK_KEY = 0x6D69_6772_6174_6F72
"""Key of the advisory lock: ``migrator`` in ASCII."""

BASE = "base"

PATIENCE_S = 300.0
"""How long to wait for a table that another session has locked, by default."""
PAUSE_S = 1.0
"""Between two attempts: sessions that waited behind the change of a table go first."""

ALEMBIC_LOCK = threading.Lock()
"""Alembic keeps its environment in a module: one at a time in a process."""


class Change(msgspec.Struct, frozen=True):
    """A revision that was applied or undone."""

    revision: str
    branch: str
    title: str
    undone: bool = False


class Position(msgspec.Struct, frozen=True):
    """The revision of a branch, and what is pending."""

    branch: str
    revision: str | None
    """None if nothing is applied."""
    head: str
    pending: tuple[str, ...]
    """Revisions that an upgrade would apply."""


def upgrade(
    dsn: str, *, names: Roles | None = None, branches: tuple[str, ...] = BRANCHES, patience_s: float = PATIENCE_S
) -> list[Change]:
    """Upgrade the branches to their heads, creating roles and schemas that are missing; return what was applied.

    A table that another session has locked is waited for, for ``patience_s``. Raises ``RightsMissingError`` with the
    SQL for an administrator, ``RefusedError`` for a changed or unknown revision and for a schema of another owner,
    ``ConfigurationError`` for roles that do not isolate tenants, ``LockedError`` for a table that stays locked.
    """
    return _with_lock_retries(dsn, patience_s, lambda: _upgrade(dsn, names or Roles(), branches))


def _upgrade(dsn: str, names: Roles, branches: tuple[str, ...]) -> list[Change]:
    done: list[Change] = []
    with session(dsn) as connection:
        connection.autocommit = True
        security.require_group_roles(connection, names)
        security.ensure_roles(connection, names)
    with transaction(dsn) as alchemy:
        connection = driver(alchemy)
        _lock(connection)
        for branch in branches:
            security.ensure_schema(connection, branch, names)
        be_owner(connection, names)
        for branch in branches:
            _create_bookkeeping(connection, branch)
            known, applied = _checked_revisions(connection, branch)
            if len(applied) < len(known):
                done += _run(alchemy, branch, known, names, _to("upgrade", f"{branch}@head"))
        connection.execute(COMPRESSION_DDL.encode())
    return done


def downgrade(
    dsn: str,
    revision: str = BASE,
    *,
    names: Roles | None = None,
    discard_rows: bool = False,
    patience_s: float = PATIENCE_S,
    by: Approval | None = None,
) -> list[Change]:
    """Undo every revision after ``revision``; return what was undone, last first.

    ``revision`` is a revision's id, ``base`` for both branches, or ``<branch>@base``. A schema whose last revision is
    undone is dropped, unless it holds objects of others. Refused if rows would be lost, unless ``discard_rows``. A
    table that another session has locked is waited for, as by ``upgrade``. The decision ``by`` is recorded, unless
    its table goes too.
    """
    return _with_lock_retries(
        dsn, patience_s, lambda: _downgrade(dsn, revision, names or Roles(), by, discard_rows=discard_rows)
    )


def _downgrade(dsn: str, revision: str, names: Roles, by: Approval | None, *, discard_rows: bool) -> list[Change]:
    done: list[Change] = []
    with transaction(dsn) as alchemy:
        connection = driver(alchemy)
        _lock(connection)
        lost = _losses(connection, revision)
        if lost and not discard_rows:
            listed = ", ".join(f"{table}: {count}" for table, count in lost.items())
            raise RefusedError(f"rows would be lost ({listed}); call again with --discard-rows to lose them")
        for branch, stop in named_places(revision):
            known, applied = _checked_revisions(connection, branch)
            if not applied:
                continue
            be_owner(connection, names)
            done += _run(alchemy, branch, known, names, _to("downgrade", f"{branch}@{stop}"))
            _drop_if_empty(connection, branch)
        if by is not None and done and fetch_value(connection, "SELECT to_regclass('migration.decisions') IS NOT NULL"):
            undone = [one.revision for one in done]
            decisions.record(connection, decisions.DOWNGRADE, by, revision=revision, undone=undone, rows=lost)
    return done


def downgrade_losses(dsn: str, revision: str = BASE) -> dict[str, int]:
    """Return the rows that a downgrade would lose, by table; raises ``UsageError`` for an unknown revision."""
    with session(dsn) as connection:
        return _losses(connection, revision)


def current(dsn: str, names: Roles | None = None) -> list[Position]:
    """Return the revision of each branch.

    Raises ``RefusedError`` for a changed or unknown revision, and for a schema of another owner.
    """
    places = []
    names = names or Roles()
    with session(dsn) as connection:
        for branch in BRANCHES:
            security.require_own_schema(connection, branch, names)
            known, applied = _checked_revisions(connection, branch)
            at = [revision.id for revision in known if revision.id in applied]
            pending = tuple(revision.id for revision in known if revision.id not in applied)
            places.append(Position(branch, at[-1] if at else None, known[-1].id, pending))
    return places


def require_group_roles(dsn: str, names: Roles) -> None:
    """Refuse roles that do not isolate tenants, as ``security.require_group_roles`` does."""
    with session(dsn) as connection:
        security.require_group_roles(connection, names)


def _checked_revisions(connection: Connection, branch: str) -> tuple[list[Revision], dict[str, tuple[str, str]]]:
    """Return a branch's revisions, and those that were applied; raise ``RefusedError`` if they do not match."""
    known = known_revisions(branch)
    applied = applied_revisions(connection, branch)
    check_applied(known, applied)
    check_recorded(branch, known, applied, recorded_revisions(connection, branch))
    return known, applied


def _with_lock_retries(dsn: str, seconds: float, work: Callable[[], list[Change]]) -> list[Change]:
    """Do ``work``, one transaction; if a table is locked, roll back, name the holder, and try again.

    It never waits long for a lock: every reader of a table would wait behind a waiting change of it.
    """
    until = time.monotonic() + seconds

    def once() -> list[Change]:
        try:
            return work()
        except LockedError as error:
            with session(dsn) as connection:
                words = table_locks.describe_holders(connection, weak=True)
            raise LockedError(words) from error

    def again(error: Exception) -> float | bool:
        return PAUSE_S if isinstance(error, LockedError) and time.monotonic() < until else False

    try:
        return retry(once, again)
    except LockedError as error:
        raise LockedError(f"{error}; nothing was changed, call again when it has ended") from error.__cause__


def _lock(connection: Connection) -> None:
    advisory_locks.take_in_transaction(connection, LOCK_KEY)


def _create_bookkeeping(connection: Connection, branch: str) -> None:
    connection.execute(
        sql.SQL(BOOKKEEPING_DDL).format(
            version=sql.Identifier(branch, VERSION_TABLE), history=sql.Identifier(branch, HISTORY_TABLE)
        )
    )


def _run(
    alchemy: "AlchemyConnection",
    branch: str,
    known: list[Revision],
    names: Roles,
    act: "Callable[[Config], None]",
) -> list[Change]:
    """Let Alembic act on a branch, inside the open transaction, and record it; return what it did."""
    connection = driver(alchemy)
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

    from alembic.util import CommandError  # noqa: PLC0415 - see above
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - see above

    try:
        _call_alembic(alchemy, branch, names, act, record)
    except CommandError as error:
        raise UsageError(str(error)[:1].lower() + str(error)[1:]) from None
    except DBAPIError as error:
        if isinstance(error.orig, errors.DuplicateTable | errors.DuplicateObject):
            said = first_line(error.orig)
            raise RefusedError(
                f"schema {branch} holds an object that the tool did not create: {said}; move it away"
            ) from None
        raise
    return done


def apply_to_temporary_schema(alchemy: "AlchemyConnection", branch: str, names: Roles) -> None:
    """Apply all revisions of a branch to the temporary schema of the session; nothing is recorded."""
    _call_alembic(alchemy, "pg_temp", names, _to("upgrade", f"{branch}@head"), None)


def _to(direction: Literal["upgrade", "downgrade"], revision: str) -> "Callable[[Config], None]":
    from alembic import command  # noqa: PLC0415 - see above

    return partial(command.upgrade if direction == "upgrade" else command.downgrade, revision=revision)


def _call_alembic(
    alchemy: "AlchemyConnection",
    schema: str,
    names: Roles,
    act: "Callable[[Config], None]",
    record: Callable[..., None] | None,
) -> None:
    roles = msgspec.structs.asdict(names)
    config = alembic_configuration()
    config.attributes.update(
        connection=alchemy,
        schema=schema,
        on_version_apply=record,
        roles={role: sql.Identifier(name).as_string(driver(alchemy)) for role, name in roles.items()},
    )
    with ALEMBIC_LOCK:
        act(config)


def named_places(revision: str) -> list[tuple[str, str]]:
    """Return (branch, revision) for a revision as a person names it; raises ``UsageError`` for an unknown one."""
    branch, at, stop = revision.rpartition("@")
    if revision == BASE:
        return [(one, BASE) for one in reversed(BRANCHES)]
    for name in BRANCHES:
        known = [BASE, *(entry.id for entry in known_revisions(name))] if not at or branch == name else []
        if stop in known and (at or stop != BASE):
            return [(name, stop)]
    raise UsageError(f"no revision {revision}; known: base, " + ", ".join(_names()))


def _names() -> Iterator[str]:
    for branch in BRANCHES:
        yield f"{branch}@base"
        yield from (entry.id for entry in known_revisions(branch))


def _losses(connection: Connection, revision: str) -> dict[str, int]:
    lost: dict[str, int] = {}
    for branch, stop in named_places(revision):
        known, applied = known_revisions(branch), applied_revisions(connection, branch)
        after = known if stop == BASE else known[[entry.id for entry in known].index(stop) + 1 :]
        for table in (table for entry in after if entry.id in applied for table in entry.tables):
            query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(branch, table))
            row = connection.execute(query).fetchone()
            if row and row[0]:
                lost[f"{branch}.{table}"] = row[0]
    return lost


def _drop_if_empty(connection: Connection, branch: str) -> None:
    """Drop a schema that holds only the tables of the revisions."""
    if applied_revisions(connection, branch):
        return
    for table in BOOKKEEPING:
        connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(branch, table)))
    try:
        with connection.transaction():
            connection.execute(sql.SQL("DROP SCHEMA {}").format(sql.Identifier(branch)))
    except errors.DependentObjectsStillExist:
        pass  # others keep objects in it
