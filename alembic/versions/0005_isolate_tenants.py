"""Isolate the tenants of the tables so far: row-level security, policies, grants."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = ()
"""Makes no table."""

ISOLATED = (
    "handlers",
    "schedules",
    "triggers",
    "runs",
    "execution_logs",
    "impact_snapshots",
    "run_summaries",
    "policy_jobs",
    "workers",
    "locks",
    "audit",
)
APPEND_ONLY = ("audit",)

CURRENT = "NULLIF(current_setting('app.tenant_id'::text, true), ''::text)"
VISIBLE = f"tenant_id = ANY (ARRAY[{CURRENT}, CASE WHEN {CURRENT} IS NULL THEN NULL::text ELSE '*'::text END])"
OWN = f"tenant_id = {CURRENT} AND tenant_id <> '*'::text"

ALL_TABLES = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant_read ON {table} FOR SELECT TO {service} USING ({visible});
CREATE POLICY tenant_insert ON {table} FOR INSERT TO {service} WITH CHECK ({own});
CREATE POLICY dispatcher_all ON {table} TO {dispatcher} USING (true) WITH CHECK (true);
GRANT SELECT, INSERT ON TABLE {table} TO {service}, {dispatcher};
"""
CHANGED_TABLES = """
CREATE POLICY tenant_update ON {table} FOR UPDATE TO {service} USING ({own}) WITH CHECK ({own});
CREATE POLICY tenant_delete ON {table} FOR DELETE TO {service} USING ({own});
GRANT UPDATE, DELETE ON TABLE {table} TO {service}, {dispatcher};
"""


def upgrade() -> None:
    """Let service sessions see their own tenant's rows and those of ``*``, and write their own."""
    connection, names = op.get_bind(), _names()
    connection.exec_driver_sql(
        "GRANT USAGE ON SCHEMA scheduler TO {service}, {dispatcher}".format(**names),
    )
    for table in ISOLATED:
        ddl = ALL_TABLES if table in APPEND_ONLY else ALL_TABLES + CHANGED_TABLES
        connection.exec_driver_sql(ddl.format(table=f"scheduler.{table}", visible=VISIBLE, own=OWN, **names))


def downgrade() -> None:
    """Take the policies and grants away; only the owner sees the tables then."""
    connection, names = op.get_bind(), _names()
    for table in ISOLATED:
        policies = ["tenant_read", "tenant_insert", "dispatcher_all"]
        if table not in APPEND_ONLY:
            policies += ["tenant_update", "tenant_delete"]
        for policy in policies:
            connection.exec_driver_sql(f"DROP POLICY {policy} ON scheduler.{table}")
        connection.exec_driver_sql(f"ALTER TABLE scheduler.{table} DISABLE ROW LEVEL SECURITY")
        connection.exec_driver_sql(
            f"REVOKE ALL ON TABLE scheduler.{table} FROM " + "{service}, {dispatcher}".format(**names)
        )
    connection.exec_driver_sql("REVOKE USAGE ON SCHEMA scheduler FROM {service}, {dispatcher}".format(**names))


def _names() -> dict[str, str]:
    """Return the configured role names, quoted."""
    names: dict[str, str] = op.get_context().opts["roles"]
    return names
