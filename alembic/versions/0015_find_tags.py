"""Find schedules by their tags through the index, which row-level security keeps a service's query from."""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

TABLES = ()
"""Makes no table."""

CURRENT = "NULLIF(current_setting('app.tenant_id'::text, true), ''::text)"
VISIBLE = f"tenant_id = ANY (ARRAY[{CURRENT}, CASE WHEN {CURRENT} IS NULL THEN NULL::text ELSE '*'::text END])"

OPERATORS = {"any_tag": "&&", "every_tag": "@>"}

# The server evaluates operators of arrays only on rows that row-level security has let through. The owner is not bound
# by it: the condition stands in the function, with the session's tenant, which is no argument.
UPGRADE = """
CREATE FUNCTION scheduler.schedules_with_{which}(wanted text[]) RETURNS SETOF uuid
    LANGUAGE sql STABLE STRICT SECURITY DEFINER ROWS 100 SET search_path = pg_catalog, pg_temp
AS $function$
SELECT id FROM scheduler.schedules WHERE tags {operator} wanted AND {visible}
$function$;
REVOKE ALL ON FUNCTION scheduler.schedules_with_{which}(text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION scheduler.schedules_with_{which}(text[]) TO {service};
"""


def upgrade() -> None:
    """Make the functions."""
    service = op.get_context().opts["roles"]["service"]
    for which, operator in OPERATORS.items():
        op.get_bind().exec_driver_sql(UPGRADE.format(which=which, operator=operator, visible=VISIBLE, service=service))


def downgrade() -> None:
    """Take the functions away."""
    for which in OPERATORS:
        op.get_bind().exec_driver_sql(f"DROP FUNCTION scheduler.schedules_with_{which}(text[])")
