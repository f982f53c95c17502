"""The SQL of an upgrade, for an administrator: what ``revisions.upgrade`` executes, as one script.

The revisions state SQL and ask the server nothing, so the script can be made without a server. It takes the lock of an
upgrade, verifies that the schemas are where it begins, and is one transaction, roles included.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, cast

import msgspec
from psycopg import sql

import migrator
from migrator.connections.postgres import LOCK_TIMEOUT, OLDEST, PINNED, fetch_value
from migrator.errors import UsageError
from migrator.schema import revisions
from migrator.schema.revisions import BASE, BRANCHES, HISTORY_TABLE, VERSION_TABLE, Revision
from migrator.schema.security import MAY_SET_ROLE_SINCE, Roles
from migrator.schema.transaction import session

if TYPE_CHECKING:
    from sqlalchemy import Connection as AlchemyConnection

Start = Mapping[str, str | None]
"""Branch → the revision at which a script begins; None: nothing was applied."""

DIALECT = "postgresql+psycopg"

VERSION = """
DO $$
BEGIN
    IF current_setting('server_version_num')::integer < {oldest}0000 THEN
        RAISE EXCEPTION 'this server has PostgreSQL %, and the schema needs PostgreSQL {oldest} or later',
            current_setting('server_version');
    END IF;
END
$$;
"""
ROLE = """
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN
        CREATE ROLE "{role}" NOLOGIN;
    END IF;
END
$$;
"""
MEMBERSHIP = """
DO $$
BEGIN
    IF NOT pg_has_role('{role}', CASE WHEN current_setting('server_version_num')::integer >= {since}
        THEN 'SET' ELSE 'MEMBER' END) THEN
        GRANT "{role}" TO CURRENT_USER;
    END IF;
END
$$;
"""
SCHEMA = """
DO $$
BEGIN
    IF EXISTS (
        SELECT FROM pg_class JOIN pg_namespace AS mine ON mine.oid = relnamespace
        WHERE nspname = '{branch}' AND relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_get_userbyid(nspowner) <> '{owner}'
            AND NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = mine.oid AND relname = '{history}')
    ) THEN
        RAISE EXCEPTION 'the schema {branch} is not this tool''s: it belongs to another role and holds tables';
    END IF;
    CREATE SCHEMA IF NOT EXISTS {branch} AUTHORIZATION "{owner}";
END
$$;
"""
BEGINNING = """
DO $$
DECLARE
    found text;
BEGIN
    IF to_regclass('{branch}.{version}') IS NOT NULL THEN
        SELECT string_agg(version_num, ', ') INTO found FROM {branch}.{version};
    END IF;
    IF coalesce(found, '{nothing}') <> '{start}' THEN
        RAISE EXCEPTION 'the schema {branch} is at %, and this script begins at {start}', coalesce(found, '{nothing}');
    END IF;
END
$$;
"""
NOTHING = "nothing"


class UpgradeScript(msgspec.Struct, frozen=True):
    """A script for an administrator."""

    revisions: tuple[str, ...]
    """What it applies."""
    text: str
    """SQL; a comment alone if nothing is pending."""


def present_start(dsn: str, names: Roles) -> tuple[Start, str | None]:
    """Return where the schemas of a target are, and its user if it needs a right to the owning role.

    Raises ``RefusedError`` and ``ConfigurationError`` as an upgrade does.
    """
    revisions.require_group_roles(dsn, names)
    start = {one.branch: one.revision for one in revisions.current(dsn, names)}
    with session(dsn) as connection:
        user = fetch_value(connection, "SELECT rolname FROM pg_roles WHERE rolname = current_user AND NOT rolsuper")
    return start, user


def named_start(given: Iterable[str]) -> Start:
    """Return the revisions that a person names: ids, ``<branch>@base``, or ``base``; raises ``UsageError``."""
    start: dict[str, str | None] = {}
    for branch, revision in (place for one in given for place in revisions.named_places(one)):
        if branch in start:
            raise UsageError(f"--from names two revisions of {branch}: one is expected")
        start[branch] = None if revision == BASE else revision
    for branch in BRANCHES:
        if branch not in start:
            raise UsageError(f"--from names no revision of {branch}: add --from REVISION, or --from {branch}@base")
    return start


def upgrade_script(start: Start, names: Roles, *, user: str | None = None) -> UpgradeScript:
    """Return the SQL of an upgrade from ``start`` to the newest revisions.

    ``user``: a user of the target that is to act as the owning role, besides the one that executes the script.
    """
    pending = {branch: _pending(branch, start[branch]) for branch in BRANCHES}
    applied = tuple(revision.id for after in pending.values() for revision, _ in after)
    if not applied:
        return UpgradeScript((), "-- nothing to apply\n")
    parts = [*_head(start, names, user)]
    for branch, after in pending.items():
        if after:
            parts += _branch(branch, start[branch], after, names)
    parts += [revisions.COMPRESSION_DDL, "COMMIT;"]
    return UpgradeScript(applied, "\n\n".join(part.strip() for part in parts) + "\n")


def _pending(branch: str, at: str | None) -> list[tuple[Revision, ModuleType]]:
    """Return the revisions of a branch after the one at which it is, with their modules."""
    loaded = revisions.loaded_revisions(branch)
    return loaded[0 if at is None else 1 + [revision.id for revision, _ in loaded].index(at) :]


def _head(start: Start, names: Roles, user: str | None) -> Iterator[str]:
    places = ", ".join(f"{branch} from {start[branch] or NOTHING}" for branch in BRANCHES)
    yield (
        f"-- Upgrade of the schemas to the newest revisions of migrator {migrator.__version__}: {places}.\n"
        "-- One transaction: after an error nothing is changed. Execute it in the target's database, as a superuser,\n"
        "-- or as a user that may create roles and schemas:  psql --set ON_ERROR_STOP=1 --file FILE\n"
        "-- Then call: migrator schema check"
    )
    yield "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
    yield VERSION.format(oldest=OLDEST)
    pinned = {name: value for name, value in PINNED.items() if not name.startswith("default_transaction")}
    pinned |= {"client_encoding": "UTF8", "lock_timeout": LOCK_TIMEOUT, "statement_timeout": "0"}
    yield "\n".join(f"SET LOCAL {name} = '{value}';" for name, value in pinned.items())
    yield f"-- one upgrade at a time\nSELECT pg_advisory_xact_lock({revisions.LOCK_KEY});"
    roles = [ROLE.format(role=role).strip() for role in dict.fromkeys(names.names())]
    yield "-- roles belong to the server: those that exist stay as they are\n" + "\n".join(roles)
    yield MEMBERSHIP.format(role=names.migration, since=MAY_SET_ROLE_SINCE)
    if user is not None:
        yield f'GRANT "{names.migration}" TO {sql.Identifier(user).as_string(None)};'
    for branch in BRANCHES:
        yield SCHEMA.format(branch=branch, owner=names.migration, history=HISTORY_TABLE)
    yield f'SET LOCAL ROLE "{names.migration}";'


def _branch(branch: str, at: str | None, pending: Iterable[tuple[Revision, ModuleType]], names: Roles) -> Iterator[str]:
    """Yield the statements of a branch, and those that record its revisions."""
    version, history = sql.Identifier(branch, VERSION_TABLE), sql.Identifier(branch, HISTORY_TABLE)
    record = sql.SQL("INSERT INTO {} VALUES ({}, {}, {}, clock_timestamp(), {});")
    mark = sql.SQL("DELETE FROM {table};\nINSERT INTO {table} VALUES ({revision});")
    yield BEGINNING.format(branch=branch, version=VERSION_TABLE, start=at or NOTHING, nothing=NOTHING)
    yield sql.SQL(revisions.BOOKKEEPING_DDL).format(version=version, history=history).as_string(None)
    yield f"SET LOCAL search_path = {branch};"
    for revision, module in pending:
        yield f"-- {revision.id}: {revision.title}"
        yield _statements(branch, module, names)
        recorded = (revision.id, revision.file, revision.sha256, migrator.__version__)
        yield record.format(history, *map(sql.Literal, recorded)).as_string(None)
        at = revision.id
    yield mark.format(table=version, revision=sql.Literal(at)).as_string(None)


def _statements(branch: str, module: ModuleType, names: Roles) -> str:
    """Return the statements that a revision would execute, without asking the server."""
    from alembic.migration import MigrationContext  # noqa: PLC0415 - as in ``revisions``
    from alembic.operations import Operations  # noqa: PLC0415 - as above

    text = io.StringIO()
    roles = {role: sql.Identifier(name).as_string(None) for role, name in msgspec.structs.asdict(names).items()}
    context = MigrationContext.configure(
        dialect_name=DIALECT, opts={"as_sql": True, "output_buffer": text, "schema": branch, "roles": roles}
    )
    context.impl.connection = cast("AlchemyConnection", _StatementRecorder(text))
    with revisions.ALEMBIC_LOCK, Operations.context(context):
        module.upgrade()
    return text.getvalue()


class _StatementRecorder:
    """Takes the place of the connection on which a revision executes its statements."""

    def __init__(self, text: io.StringIO) -> None:
        self._text = text

    def exec_driver_sql(self, statement: str) -> None:
        """Record a statement as the driver would send it; a revision that asks for a result fails."""
        self._text.write((statement % ()).strip().rstrip(";") + ";\n\n")
