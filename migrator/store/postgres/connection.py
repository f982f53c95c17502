"""Reaching the target: a connection in the right role, and errors an operator can act on."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg import errors, sql

from migrator.config import Settings, postgres_dsn
from migrator.errors import ConfigurationError, DeniedError, LockedError, MigratorError, RefusedError, UnreachableError
from migrator.store.postgres import session
from migrator.store.postgres.membership import not_a_member
from migrator.telemetry import redact

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]


_UNUSABLE = re.compile(r"connection is bad: (invalid |definition of service |service file )")
"""What libpq says of a DSN that it can read and not use; nobody was asked for a connection."""


def open_target(settings: Settings, *, autocommit: bool = False, role: str | None = None) -> Connection:
    """Connect to the target in ``role`` (default: the migration role, which owns the tables), pinned (``session``).

    Raises ``ConfigurationError`` (DSN), ``UnreachableError`` (no server, wrong password), ``RefusedError`` (no such
    role: not migrated).
    """
    role = settings.postgres.migration_role if role is None else role
    connection = open_login(settings)
    with speaking_of("the target"):
        try:
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        except (errors.InvalidParameterValue, errors.UndefinedObject):
            connection.close()
            raise not_migrated(f"it has no role {role}") from None
        except errors.InsufficientPrivilege:
            names = settings.postgres
            every = (names.migration_role, names.service_role, names.dispatcher_role)
            refused = not_a_member(connection, role, () if role == names.migration_role else every)
            connection.close()
            raise refused from None
    connection.autocommit = autocommit
    return connection


def open_login(settings: Settings) -> Connection:
    """Connect as the user of the DSN, pinned and in autocommit; raises as `open_target` does, but for the role."""
    dsn = postgres_dsn(settings)
    with speaking_of("the target"):
        connection = dial(dsn, settings.postgres.timeout_s)
        connection.execute("SET plan_cache_mode = force_custom_plan")
    return connection


def dial(dsn: str, timeout_s: int) -> Connection:
    """Connect as the user of the DSN, in autocommit, every setting pinned (``session``); raises the driver's errors.

    Raises ``ConfigurationError`` for a DSN that is none, ``RefusedError`` for a database of another encoding.
    """
    try:
        connection = psycopg.connect(dsn, autocommit=True, **session.arguments(timeout_s))
    except psycopg.ProgrammingError as error:
        raise not_a_dsn(error) from None
    except psycopg.OperationalError as error:
        if _UNUSABLE.match(str(error)):
            raise not_a_dsn(error) from None
        raise
    try:
        session.pin(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def version(connection: Connection) -> str:
    """Return the server's version, as it says it."""
    row = connection.execute("SHOW server_version").fetchone()
    assert row is not None  # noqa: S101 - a SHOW has one row
    return str(row[0])


@contextmanager
def speaking_of(what: str) -> Iterator[None]:
    """Turn the driver's errors into the tool's: who failed, and what an operator can do."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(what, error) from error


def translate(what: str, error: psycopg.Error) -> MigratorError:
    """Return the tool's error for one of the driver's."""
    line = first_line(error)
    if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName):
        return not_migrated(line)
    if "password authentication failed" in str(error):
        return UnreachableError(f"{what} refuses the user or the password of postgres.dsn")
    if 'database "' in str(error) and "does not exist" in str(error):  # while connecting there is no SQLSTATE
        return UnreachableError(f"{what}: {line}; create the database first")
    kinds: tuple[tuple[type[psycopg.Error], type[UnreachableError], str], ...] = (
        (errors.InsufficientPrivilege, DeniedError, f"{what} denies a right: {line}"),
        (errors.LockNotAvailable, LockedError, f"{what}: a lock on a table was waited for in vain: {line}"),
        (errors.DiskFull, UnreachableError, f"{what} is out of disk space: {line}; free some and call again"),
        (psycopg.OperationalError, UnreachableError, f"{what} cannot be reached or went away: {line}"),
    )
    for kind, becomes, sentence in kinds:
        if isinstance(error, kind):
            return becomes(sentence)
    return UnreachableError(f"{what} failed: {type(error).__name__}: {line}")


def not_migrated(why: str) -> RefusedError:
    """Return the error for a target without the schema, or with an old one."""
    return RefusedError(f"the target is not migrated ({why}): call migrator schema upgrade first")


def not_a_dsn(error: psycopg.Error) -> ConfigurationError:
    """Return the error for a DSN that libpq cannot read, without what it quotes: maybe a piece of the password."""
    said = re.sub('"[^"]*"', '"***"', first_line(error))
    return ConfigurationError(f"postgres.dsn is not a PostgreSQL DSN: {said.removeprefix('connection is bad: ')}")


def first_line(error: psycopg.Error) -> str:
    """Return an error's first line without credentials and without the row it may quote."""
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    return redact(text.splitlines()[0])[:300]
