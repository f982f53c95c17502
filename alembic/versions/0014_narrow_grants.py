"""Grant UPDATE by column, and DELETE where the store deletes: with either on a table, LOCK TABLE is allowed."""

from alembic import op

revision = "0014"
down_revision = "0012"
branch_labels = None
depends_on = None

TABLES = ()
"""Makes no table."""

# table → those who delete rows of it
CHANGED: dict[str, tuple[str, ...]] = {
    "handlers": ("service",),
    "schedules": (),
    "triggers": ("service",),
    "runs": ("service",),
    "execution_logs": (),
    "impact_snapshots": (),
    "run_summaries": (),
    "policy_jobs": (),
    "workers": ("dispatcher",),
    "locks": (),
    "graph_jobs": (),
    "graph_job_events": (),
}

# All but the key, which nobody but the owner changes, and what is computed.
COLUMNS = """
SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
WHERE attrelid = 'scheduler.{table}'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    AND attname NOT IN ('id', 'tenant_id')
"""

# A role that may write nothing is kept from it by a rollback to MongoDB, which gives the rights back itself.
WRITES = "SELECT has_any_column_privilege(CAST('{role}' AS regrole)::oid, 'scheduler.{table}', 'UPDATE')"


def upgrade() -> None:
    """Narrow the rights of the roles that have them."""
    for table, deleters in CHANGED.items():
        columns = _value(COLUMNS.format(table=table))
        for name, role in _names().items():
            if not _value(WRITES.format(role=role, table=table)):
                continue
            _execute(f"REVOKE UPDATE ON TABLE scheduler.{table} FROM {role}")
            _execute(f"GRANT UPDATE ({columns}) ON TABLE scheduler.{table} TO {role}")
            if name not in deleters:
                _execute(f"REVOKE DELETE ON TABLE scheduler.{table} FROM {role}")


def downgrade() -> None:
    """Grant both on the whole table again to the roles that may write."""
    for table in CHANGED:
        for role in _names().values():
            if _value(WRITES.format(role=role, table=table)):
                _execute(f"REVOKE UPDATE ON TABLE scheduler.{table} FROM {role}")  # also that on columns
                _execute(f"GRANT UPDATE, DELETE ON TABLE scheduler.{table} TO {role}")


def _names() -> dict[str, str]:
    """Return the configured names of the application's roles, quoted."""
    names: dict[str, str] = op.get_context().opts["roles"]
    return {name: names[name] for name in ("service", "dispatcher")}


def _value(query: str) -> str | bool:
    found: str | bool = op.get_bind().exec_driver_sql(query).scalar_one()
    return found


def _execute(statement: str) -> None:
    op.get_bind().exec_driver_sql(statement)
