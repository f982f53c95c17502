"""Describe the columns that the tables share, and isolate tenants: row-level security, policies, rights."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = ()
"""Makes no table."""

SOURCED = (
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

COMMENTS = """
COMMENT ON COLUMN {table}.id IS 'a new UUID; of a migrated row: computed from tenant, collection and source_id';
COMMENT ON COLUMN {table}.tenant_id IS
    'owner of the row; *: a global row, which every tenant may read and only some roles may write';
COMMENT ON COLUMN {table}.source IS
    'profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL';
COMMENT ON COLUMN {table}.source_id IS
    '_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row is '
    'found by its computed id. To search by it, build a hash index after the load';
COMMENT ON COLUMN {table}.extra IS
    'remainder: the fields of the document that no column holds, by path, with their types; {{}}: there are none';
"""

# table → those who may delete rows of it. With UPDATE on a whole table, or DELETE, a role may LOCK TABLE in every mode:
# UPDATE is granted by column, and DELETE only where the store deletes.
CHANGED: dict[str, tuple[str, ...]] = {
    "handlers": ("service",),
    "schedules": (),
    "triggers": ("service",),
    "parallel_triggers": (),
    "runs": ("service",),
    "execution_logs": (),
    "impact_snapshots": (),
    "run_summaries": (),
    "policy_jobs": (),
    "workers": ("dispatcher",),
    "locks": (),
}
APPEND_ONLY = ("audit",)
# Processes live under the tenant *, and locks exclude processes: a row that a tenant inserts there with the id of a
# process, or beside a lock, would be taken for one of them. The service reads both, and the dispatcher alone writes.
OF_DISPATCHER = ("workers", "locks")

CURRENT = "NULLIF(current_setting('app.tenant_id'::text, true), ''::text)"
VISIBLE = f"tenant_id = ANY (ARRAY[{CURRENT}, CASE WHEN {CURRENT} IS NULL THEN NULL::text ELSE '*'::text END])"
OWN = f"tenant_id = {CURRENT} AND tenant_id <> '*'::text"

ALL_TABLES = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant_read ON {table} FOR SELECT TO {service} USING ({visible});
CREATE POLICY dispatcher_all ON {table} TO {dispatcher} USING (true) WITH CHECK (true);
GRANT SELECT ON TABLE {table} TO {service};
GRANT SELECT, INSERT ON TABLE {table} TO {dispatcher};
"""
OF_TENANTS = """
CREATE POLICY tenant_insert ON {table} FOR INSERT TO {service} WITH CHECK ({own});
GRANT INSERT ON TABLE {table} TO {service};
"""
CHANGED_BY_TENANTS = """
CREATE POLICY tenant_update ON {table} FOR UPDATE TO {service} USING ({own}) WITH CHECK ({own});
CREATE POLICY tenant_delete ON {table} FOR DELETE TO {service} USING ({own});
"""
POLICIES = ("tenant_read", "tenant_insert", "tenant_update", "tenant_delete", "dispatcher_all")

# All but the key, which nobody but the owner changes, and what is computed.
GRANT_COLUMNS = """
DO $$
BEGIN
    EXECUTE (
        SELECT 'GRANT UPDATE (' || string_agg(quote_ident(attname), ', ' ORDER BY attnum)
            || ') ON TABLE {table} TO {role}'
        FROM pg_attribute
        WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
            AND attname NOT IN ('id', 'tenant_id')
    );
END
$$;
"""

# The server evaluates operators of arrays only on rows that row-level security has passed, so without an index. These
# functions run as the owner, whom it does not bind; they take no tenant, and read the session's.
OPERATORS = {"any_tag": "&&", "every_tag": "@>"}
TAGGED = """
CREATE FUNCTION {schema}.schedules_with_{which}(wanted text[]) RETURNS SETOF uuid
    LANGUAGE sql STABLE STRICT SECURITY DEFINER ROWS 100 SET search_path = pg_catalog, pg_temp
AS $function$
SELECT id FROM scheduler.schedules WHERE tags {operator} wanted AND {visible}
$function$;
REVOKE ALL ON FUNCTION {schema}.schedules_with_{which}(text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION {schema}.schedules_with_{which}(text[]) TO {service};
"""


def upgrade() -> None:
    """Write the comments; let service sessions see their own tenant's rows and those of ``*``, and write their own."""
    names = _names()
    for table in SOURCED:
        op.get_bind().exec_driver_sql(COMMENTS.format(table=table))
    if names["schema"] == "scheduler":  # no right to a temporary schema can be granted
        _execute("GRANT USAGE ON SCHEMA scheduler TO {service}, {dispatcher}", names)
    for table in (*CHANGED, *APPEND_ONLY):
        _execute(ALL_TABLES, names, table=table, visible=VISIBLE)
        if table not in OF_DISPATCHER:
            _execute(OF_TENANTS, names, table=table, own=OWN)
    for table, deleters in CHANGED.items():
        if table not in OF_DISPATCHER:
            _execute(CHANGED_BY_TENANTS, names, table=table, own=OWN)
            _execute(GRANT_COLUMNS, names, table=table, role=names["service"])
        _execute(GRANT_COLUMNS, names, table=table, role=names["dispatcher"])
        for deleter in deleters:
            _execute("GRANT DELETE ON TABLE {table} TO {role}", names, table=table, role=names[deleter])
    for which, operator in OPERATORS.items():
        _execute(TAGGED, names, which=which, operator=operator, visible=VISIBLE)


def downgrade() -> None:
    """Remove functions, policies and grants; only the owner sees the tables then. The comments stay: they are right."""
    names = _names()
    for which in OPERATORS:
        _execute("DROP FUNCTION {schema}.schedules_with_{which}(text[])", names, which=which)
    for table in (*CHANGED, *APPEND_ONLY):
        for policy in POLICIES:
            _execute("DROP POLICY IF EXISTS {policy} ON {table}", names, policy=policy, table=table)
        _execute("ALTER TABLE {table} DISABLE ROW LEVEL SECURITY", names, table=table)
        _execute("REVOKE ALL ON TABLE {table} FROM {service}, {dispatcher}", names, table=table)
    _execute("REVOKE USAGE ON SCHEMA scheduler FROM {service}, {dispatcher}", names)


def _names() -> dict[str, str]:
    """Return the names of the schema and, quoted, of the roles."""
    options = op.get_context().opts
    return {"schema": options["schema"], **options["roles"]}


def _execute(statement: str, names: dict[str, str], **others: str) -> None:
    op.get_bind().exec_driver_sql(statement.format(**names, **others))
