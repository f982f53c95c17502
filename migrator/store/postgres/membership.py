"""Membership of the target's user in the group roles: what it lacks, and the statement that gives it."""

from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from migrator.errors import RefusedError

_MISSING = (
    "SELECT array(SELECT rolname::text FROM pg_roles WHERE rolname = ANY(%(asked)s)"
    " AND NOT pg_has_role(session_user, oid, 'MEMBER') ORDER BY array_position(%(asked)s::text[], rolname::text))"
)


def not_a_member(connection: psycopg.Connection[Any], role: str, also: Iterable[str] = ()) -> RefusedError:
    """Return the refusal for a user that may not act in ``role``.

    ``also``: roles that the caller will need next. Those that the user lacks too stand in the same statement, unless
    the refusal has ended the transaction, so that nothing more can be asked.
    """
    user, missing = connection.info.user, [role]
    if connection.info.transaction_status != TransactionStatus.INERROR:
        cursor = psycopg.ClientCursor(connection)  # the connection's own may take other placeholders
        row = cursor.execute(_MISSING, {"asked": list(dict.fromkeys((role, *also)))}).fetchone()
        missing = (row[0] if row else None) or missing
    statement = sql.SQL("GRANT {} TO {}").format(
        sql.SQL(", ").join(sql.Identifier(one) for one in missing), sql.Identifier(user)
    )
    return RefusedError(
        f"the target's user {user} is not a member of {', '.join(missing)}; an administrator calls",
        grant=statement.as_string(connection),
    )
