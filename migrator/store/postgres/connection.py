"""Reaching the target: a connection in the right role, and errors an operator can act on."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg import errors, sql

from migrator.config import Settings, postgres_dsn
from migrator.errors import ConfigurationError, DeniedError, MigratorError, RefusedError, UnreachableError
from migrator.store.postgres.membership import not_a_member
from migrator.telemetry import redact

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]


def open_target(settings: Settings, *, autocommit: bool = False, role: str | None = None) -> Connection:
    """Connect to the target in ``role`` (default: the migration role, which owns the tables), in UTC.

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
    """Connect as the user of the DSN, in UTC and autocommit; raises as `open_target` does, but for the role."""
    dsn = postgres_dsn(settings)
    with speaking_of("the target"):
        try:
            return psycopg.connect(
                dsn,
                autocommit=True,
                connect_timeout=settings.postgres.timeout_s,
                application_name="migrator",
                options="-c timezone=UTC -c plan_cache_mode=force_custom_plan",
            )
        except psycopg.ProgrammingError as error:
            raise not_a_dsn(error) from None


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
    if isinstance(error, errors.InsufficientPrivilege):
        return DeniedError(f"{what} denies a right: {line}")
    for kind, sentence in (
        (errors.DiskFull, f"{what} is out of disk space: {line}; free some and call again"),
        (psycopg.OperationalError, f"{what} cannot be reached or went away: {line}"),
    ):
        if isinstance(error, kind):
            return UnreachableError(sentence)
    return UnreachableError(f"{what} failed: {type(error).__name__}: {line}")


def not_migrated(why: str) -> RefusedError:
    """Return the error for a target without the schema, or with an old one."""
    return RefusedError(f"the target is not migrated ({why}): call migrator schema upgrade first")


def not_a_dsn(error: psycopg.Error) -> ConfigurationError:
    """Return the error for a DSN that libpq cannot read, without what it quotes: maybe a piece of the password."""
    said = re.sub('"[^"]*"', '"***"', first_line(error))
    return ConfigurationError(f"postgres.dsn is not a PostgreSQL DSN: {said}")


def first_line(error: psycopg.Error) -> str:
    """Return an error's first line without credentials and without the row it may quote."""
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    return redact(text.splitlines()[0])[:300]
