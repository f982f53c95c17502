"""Removing a tenant from PostgreSQL: as the owner of the tables, since nobody else may delete from the audit trail."""

from collections.abc import Mapping

from psycopg import errors, sql

from migrator import records
from migrator.errors import RefusedError
from migrator.store import rules
from migrator.store.postgres.membership import not_a_member
from migrator.store.postgres.pool import WHAT, Pool
from migrator.store.postgres.rows import table_name


def purge(pool: Pool, owner: str, tenant: str) -> Mapping[str, int]:
    """Remove every row of a tenant in one transaction; return table to rows removed.

    Row-level security does not bind the owner: each statement names the tenant. Raises ``UsageError`` for no tenant
    and for ``*``, ``RefusedError`` where the user may not act as ``owner``.
    """
    rules.purgeable(tenant)
    removed: dict[str, int] = {}
    with pool.transaction(tenant=None) as (connection, _):
        try:
            connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(owner)))
        except (errors.InvalidParameterValue, errors.UndefinedObject):
            raise RefusedError(f"{WHAT} has no role {owner}: call migrator schema upgrade first") from None
        except errors.InsufficientPrivilege:
            raise not_a_member(connection, owner) from None
        for record in reversed(records.ALL):  # what refers before what it refers to
            statement = sql.SQL("DELETE FROM {} WHERE tenant_id = %s").format(table_name(record.table))
            removed[record.table] = connection.execute(statement, (tenant,)).rowcount
    return removed
