"""One transaction that SQLAlchemy (for Alembic) and psycopg (for all else) share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import psycopg
from psycopg import errors, sql

from migrator.config import PostgresSettings
from migrator.connections.postgres import (
    Connection,
    connect_as_login,
    entering_role,
    translate_errors,
    translated,
)
from migrator.connections.table_locks import describe_holders, holders_named
from migrator.errors import LockedError
from migrator.schema.security import Roles

if TYPE_CHECKING:
    from sqlalchemy import Connection as AlchemyConnection


def connect(dsn: str) -> Connection:
    """Connect as the user of the DSN, pinned, not in autocommit; raises as ``connect_as_login`` does."""
    connection = connect_as_login(dsn, PostgresSettings().timeout)
    connection.autocommit = False
    return connection


@contextmanager
def session(dsn: str) -> Iterator[Connection]:
    """Connect as ``connect`` does; the driver's errors become the tool's, and who holds a locked table is named."""
    with translate_errors("the target"), connect(dsn) as connection, holders_named(connection):
        yield connection


@contextmanager
def transaction(dsn: str) -> "Iterator[AlchemyConnection]":
    """Open a transaction; commit it at the end, or roll it back. Errors of both drivers become the tool's."""
    from sqlalchemy import create_engine  # noqa: PLC0415 - it takes a fifth of a second
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - as above
    from sqlalchemy.pool import NullPool  # noqa: PLC0415 - as above

    engine = create_engine("postgresql+psycopg://", creator=lambda: connect(dsn), poolclass=NullPool)
    try:
        with translate_errors("the target"), engine.begin() as alchemy:
            yield alchemy
    except DBAPIError as error:
        if isinstance(error.orig, errors.LockNotAvailable):
            with session(dsn) as connection:
                raise LockedError(describe_holders(connection)) from error.orig
        if isinstance(error.orig, psycopg.Error):
            raise translated("the target", error.orig) from error
        raise
    finally:
        engine.dispose()


def driver(alchemy: "AlchemyConnection") -> Connection:
    """Return the psycopg connection under SQLAlchemy's."""
    return cast("Connection", alchemy.connection.driver_connection)


def be_owner(connection: Connection, names: Roles) -> None:
    """Act as the owning role until the transaction ends."""
    with entering_role(connection, names.migration):
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(names.migration)))
