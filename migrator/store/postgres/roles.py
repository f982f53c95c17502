"""The group roles of the target: made when they are missing, or the SQL that makes them."""

from collections.abc import Iterable

from psycopg import errors, sql

from migrator.errors import RefusedError
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.security import Roles

MAY_SET_ROLE_SINCE = 160000
"""PostgreSQL 16 tells membership from the right to SET ROLE."""


class RightsMissingError(RefusedError):
    """The user may not do what only an administrator may; the message holds the SQL to hand over."""

    def __init__(self, what: str, statements: Iterable[str]) -> None:
        self.statements = tuple(statements)
        lines = "\n".join(f"  {statement};" for statement in self.statements)
        super().__init__(f"the target's user may not {what}; have an administrator run this, then call again:\n{lines}")


def ensure_roles(connection: Connection, roles: Roles) -> None:
    """Make the group roles that are missing and join the owning one; the connection is in autocommit.

    Roles belong to the server, not to the database: another upgrade may make them at the same moment.
    """
    known = {
        row[0] for row in connection.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", [[*roles.names()]])
    }
    missing = [name for name in dict.fromkeys(roles.names()) if name not in known]
    membership = _membership(connection, roles)
    for name in missing:
        try:
            connection.execute(_create(name))
        except (errors.DuplicateObject, errors.UniqueViolation):
            continue  # made by another upgrade since we looked
        except errors.InsufficientPrivilege:
            wanted = [_create(other).as_string(connection) for other in missing] + [membership.as_string(connection)]
            raise RightsMissingError("create roles", wanted) from None
    right = "SET" if connection.info.server_version >= MAY_SET_ROLE_SINCE else "MEMBER"
    if connection.execute("SELECT pg_has_role(%s, %s)", (roles.migration, right)).fetchone() != (True,):
        try:
            connection.execute(membership)
        except errors.InsufficientPrivilege:
            raise RightsMissingError(f"join {roles.migration}", [membership.as_string(connection)]) from None


def ensure_schema(connection: Connection, name: str, roles: Roles) -> None:
    """Make the schema where it is missing, owned by the owning role."""
    if connection.execute("SELECT to_regnamespace(quote_ident(%s)) IS NULL", (name,)).fetchone() != (True,):
        return
    create = sql.SQL("CREATE SCHEMA {} AUTHORIZATION {}").format(sql.Identifier(name), sql.Identifier(roles.migration))
    try:
        connection.execute(create)
    except errors.InsufficientPrivilege:
        raise RightsMissingError("create schemas in this database", [create.as_string(connection)]) from None


def _create(name: str) -> sql.Composed:
    return sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name))


def _membership(connection: Connection, roles: Roles) -> sql.Composed:
    user = connection.execute("SELECT current_user").fetchone()
    return sql.SQL("GRANT {} TO {}").format(sql.Identifier(roles.migration), sql.Identifier(user[0] if user else ""))
