"""The group roles of the target: made when they are missing, or the SQL that makes them."""

from collections.abc import Iterable

from psycopg import errors, sql

from migrator.errors import ConfigurationError, RefusedError
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.security import Roles

SHOWN = 3
"""Tables of somebody else's schema that a refusal names."""
PREDEFINED = "pg_"
"""How the names of PostgreSQL's own roles begin; others may not."""
MAY_SET_ROLE_SINCE = 160000
"""PostgreSQL 16 tells membership from the right to SET ROLE."""


class RightsMissingError(RefusedError):
    """The user may not do what only an administrator may; the message holds the SQL to hand over."""

    def __init__(self, what: str, statements: Iterable[str]) -> None:
        self.statements = tuple(statements)
        lines = "\n".join(f"  {statement};" for statement in self.statements)
        super().__init__(f"the target's user may not {what}; have an administrator run this, then call again:\n{lines}")


def require_group_roles(connection: Connection, roles: Roles) -> None:
    """Refuse names of roles under which nothing would keep the tenants apart; roles that are missing are none.

    Raises ``ConfigurationError`` for a superuser, for a role of PostgreSQL's own, and for a role that serves the
    application and is not bound by row-level security: one with BYPASSRLS, or one that may act as the owner.
    """
    settings = {"migration_role": roles.migration, "service_role": roles.service, "dispatcher_role": roles.dispatcher}
    found = {
        name: (superuser, bypasses, owns)
        for name, superuser, bypasses, owns in connection.execute(
            "SELECT rolname, rolsuper, rolbypassrls, CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = %s)"
            " THEN pg_has_role(rolname, %s, 'MEMBER') ELSE false END FROM pg_roles WHERE rolname = ANY(%s)",
            (roles.migration, roles.migration, [*roles.names()]),
        )
    }
    for key, name in settings.items():
        superuser, bypasses, owns = found.get(name, (False, False, False))
        serves = key != "migration_role"
        for wrong, why in (
            (name.startswith(PREDEFINED), "belongs to PostgreSQL itself"),
            (superuser, "is a superuser"),
            (serves and bypasses, "has BYPASSRLS, so nothing would keep the tenants apart"),
            (serves and (owns or name == roles.migration), f"may act as {roles.migration}, which owns the tables"),
        ):
            if wrong:
                raise ConfigurationError(
                    f"postgres.{key}: the role {name} {why}; name a role of its own, which schema upgrade makes"
                )


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


def require_own_schema(connection: Connection, name: str, roles: Roles) -> None:
    """Refuse a schema of this name that somebody else has made: one of another owner, with something in it."""
    row = connection.execute(
        "SELECT pg_get_userbyid(nspowner), array(SELECT relname::text FROM pg_class WHERE relnamespace = mine.oid"
        " AND relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY relname)"
        " FROM pg_namespace AS mine WHERE nspname = %s AND to_regclass(%s) IS NULL",
        (name, f"{name}.schema_history"),
    ).fetchone()
    if row is None or row[0] == roles.migration or not row[1]:
        return
    tables = ", ".join(row[1][:SHOWN]) + (" and more" if len(row[1]) > SHOWN else "")
    raise RefusedError(
        f"the target has a schema {name} that is not this tool's: it belongs to {row[0]} and holds {tables}; rename it"
        f" (ALTER SCHEMA {name} RENAME TO ...), or let postgres.dsn name another database"
    )


def ensure_schema(connection: Connection, name: str, roles: Roles) -> None:
    """Make the schema where it is missing, owned by the owning role; raises ``RefusedError`` for somebody else's."""
    require_own_schema(connection, name, roles)
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
