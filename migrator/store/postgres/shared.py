"""One transaction that SQLAlchemy (for DDL from declarations, and for Alembic) and psycopg (for all else) share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import psycopg
from psycopg import errors, sql
from sqlalchemy import Connection as Lent
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from migrator.config import PostgresSettings
from migrator.store.postgres.connection import Connection, dial, not_migrated, speaking_of, translate
from migrator.store.postgres.membership import not_a_member
from migrator.store.postgres.security import Roles


def connect(dsn: str) -> Connection:
    """Connect as the user of the DSN, pinned, not in autocommit; raises as ``connection.dial`` does."""
    connection = dial(dsn, PostgresSettings().timeout_s)
    connection.autocommit = False
    return connection


@contextmanager
def transaction(dsn: str) -> Iterator[Lent]:
    """Open a transaction, and commit it at the end, or nothing of it; errors of either driver become the tool's."""
    engine = create_engine("postgresql+psycopg://", creator=lambda: connect(dsn), poolclass=NullPool)
    try:
        with speaking_of("the target"), engine.begin() as lent:
            yield lent
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise translate("the target", error.orig) from error
        raise
    finally:
        engine.dispose()


def driver(lent: Lent) -> Connection:
    """Return the psycopg connection under SQLAlchemy's."""
    return cast("Connection", lent.connection.driver_connection)


def be_owner(connection: Connection, names: Roles) -> None:
    """Act as the owning role until the transaction ends."""
    try:
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(names.migration)))
    except (errors.InvalidParameterValue, errors.UndefinedObject):
        raise not_migrated(f"it has no role {names.migration}") from None
    except errors.InsufficientPrivilege:
        raise not_a_member(connection, names.migration) from None
