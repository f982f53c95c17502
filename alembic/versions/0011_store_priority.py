"""Store the schedule's priority in its triggers and open runs: one index has the order of the queue."""

from alembic import op

revision = "0011"
down_revision = "0007"
branch_labels = None
depends_on = None

TABLES = ()
"""Makes no table."""

# The database keeps the priority equal to the schedule's. Writers of schedules, triggers and runs need not know of it:
# the store, the copy, the tail, a repair, and programs that write the tables themselves. A row gets the priority when
# it is inserted, and a run also when it is queued again. It locks the schedule as its foreign key does (FOR KEY SHARE).
# A change of the schedule's priority waits for such rows (FOR UPDATE), and they wait for it, so that neither misses the
# other. The functions run as the owner, whom row-level security does not bind: a schedule of the tenant * has runs of
# every tenant. Most runs have ended when they are copied: because of the condition the function is not called for them.
# Firing uses ix_triggers_due, for all tenants; lists of a tenant use ix_triggers_next.
#
# Existing rows are brought in step before the triggers are made; most schedules state no priority, and cost nothing.
UPGRADE = """
ALTER TABLE triggers ADD COLUMN priority smallint NOT NULL DEFAULT 50;
ALTER TABLE runs ADD COLUMN priority smallint NOT NULL DEFAULT 50;
COMMENT ON COLUMN triggers.priority IS 'priority of the schedule, kept equal by the database; 50 without one';
COMMENT ON COLUMN runs.priority IS
    'priority of the schedule, kept equal by the database while the run is planning or queued; 50 without one';
UPDATE triggers AS t SET priority = s.priority FROM schedules AS s
    WHERE s.id = t.schedule_id AND s.tenant_id = t.tenant_id AND s.priority <> 50;
UPDATE runs AS r SET priority = s.priority FROM schedules AS s
    WHERE s.id = r.schedule_id AND s.tenant_id = r.schedule_tenant_id AND s.priority <> 50
    AND r.state = ANY (ARRAY['planning'::text, 'queued'::text]);
DROP INDEX ix_triggers_due;
DROP INDEX ix_runs_waiting;
CREATE INDEX ix_triggers_due ON triggers (priority DESC, next_fire_at, id)
    WHERE enabled AND next_fire_at IS NOT NULL;
CREATE INDEX ix_triggers_next ON triggers (tenant_id, next_fire_at, id)
    WHERE enabled AND next_fire_at IS NOT NULL;
CREATE INDEX ix_runs_waiting ON runs (state, priority DESC, COALESCE(available_at, created_at), id)
    WHERE state = ANY (ARRAY['planning'::text, 'queued'::text]);

CREATE FUNCTION {schema}.take_priority() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    owner text;
    stated smallint;
BEGIN
    IF TG_TABLE_NAME = 'runs' THEN
        owner := NEW.schedule_tenant_id;
    ELSE
        owner := NEW.tenant_id;
    END IF;
    SELECT s.priority INTO stated FROM scheduler.schedules AS s
        WHERE s.id = NEW.schedule_id AND s.tenant_id = owner FOR KEY SHARE;
    stated := coalesce(stated, 50);
    IF stated = NEW.priority THEN
        RETURN NULL;
    END IF;
    IF TG_TABLE_NAME = 'runs' THEN
        UPDATE scheduler.runs SET priority = stated WHERE id = NEW.id AND tenant_id = NEW.tenant_id;
    ELSE
        UPDATE scheduler.triggers SET priority = stated WHERE id = NEW.id AND tenant_id = NEW.tenant_id;
    END IF;
    RETURN NULL;
END
$function$;

CREATE FUNCTION {schema}.give_priority() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    stated smallint := coalesce(NEW.priority, 50);
BEGIN
    PERFORM FROM scheduler.schedules WHERE id = OLD.id AND tenant_id = OLD.tenant_id FOR UPDATE;
    UPDATE scheduler.triggers SET priority = stated
        WHERE schedule_id = OLD.id AND tenant_id = OLD.tenant_id AND priority <> stated;
    UPDATE scheduler.runs SET priority = stated
        WHERE schedule_id = OLD.id AND schedule_tenant_id = OLD.tenant_id AND priority <> stated
        AND state = 'queued';
    UPDATE scheduler.runs SET priority = stated
        WHERE schedule_id = OLD.id AND schedule_tenant_id = OLD.tenant_id AND priority <> stated
        AND state = 'planning';
    RETURN NEW;
END
$function$;

REVOKE ALL ON FUNCTION {schema}.take_priority(), {schema}.give_priority() FROM PUBLIC;

CREATE TRIGGER take_priority AFTER INSERT ON triggers
    FOR EACH ROW EXECUTE FUNCTION {schema}.take_priority();
CREATE TRIGGER take_priority_again AFTER UPDATE OF schedule_id ON triggers
    FOR EACH ROW WHEN (OLD.schedule_id <> NEW.schedule_id) EXECUTE FUNCTION {schema}.take_priority();
CREATE TRIGGER take_priority AFTER INSERT ON runs
    FOR EACH ROW WHEN (NEW.state = ANY (ARRAY['planning'::text, 'queued'::text]))
    EXECUTE FUNCTION {schema}.take_priority();
CREATE TRIGGER take_priority_again AFTER UPDATE OF state, schedule_id, global_schedule ON runs
    FOR EACH ROW WHEN (NEW.state = ANY (ARRAY['planning'::text, 'queued'::text])
        AND (OLD.state, OLD.schedule_id, OLD.schedule_tenant_id)
            IS DISTINCT FROM (NEW.state, NEW.schedule_id, NEW.schedule_tenant_id))
    EXECUTE FUNCTION {schema}.take_priority();
CREATE TRIGGER give_priority BEFORE UPDATE OF priority ON schedules
    FOR EACH ROW WHEN (coalesce(OLD.priority, 50) <> coalesce(NEW.priority, 50))
    EXECUTE FUNCTION {schema}.give_priority();
"""

# A role that may write nothing is kept from it by a rollback to MongoDB, which gives the rights back itself.
GRANT = """
DO $$
BEGIN
    IF has_any_column_privilege(CAST('{role}' AS regrole)::oid, '{table}', 'UPDATE') THEN
        GRANT UPDATE (priority) ON TABLE {table} TO {role};
    END IF;
END
$$;
"""

DOWNGRADE = """
DROP TRIGGER give_priority ON schedules;
DROP TRIGGER take_priority_again ON runs;
DROP TRIGGER take_priority ON runs;
DROP TRIGGER take_priority_again ON triggers;
DROP TRIGGER take_priority ON triggers;
DROP FUNCTION {schema}.give_priority();
DROP FUNCTION {schema}.take_priority();
DROP INDEX ix_runs_waiting;
DROP INDEX ix_triggers_next;
DROP INDEX ix_triggers_due;
ALTER TABLE runs DROP COLUMN priority;
ALTER TABLE triggers DROP COLUMN priority;
CREATE INDEX ix_runs_waiting ON runs (state, COALESCE(available_at, created_at), id)
    WHERE state = ANY (ARRAY['planning'::text, 'queued'::text]);
CREATE INDEX ix_triggers_due ON triggers (next_fire_at, tenant_id, id)
    WHERE enabled AND next_fire_at IS NOT NULL;
"""


def upgrade() -> None:
    """Add the columns, fill them from the schedules, and let the database keep them."""
    bind, options = op.get_bind(), op.get_context().opts
    bind.exec_driver_sql(UPGRADE.format(schema=options["schema"]))
    roles = options["roles"]
    for table in ("triggers", "runs"):
        for role in (roles["service"], roles["dispatcher"]):
            bind.exec_driver_sql(GRANT.format(role=role, table=table))


def downgrade() -> None:
    """Take the columns away; the schedules keep what they state."""
    op.get_bind().exec_driver_sql(DOWNGRADE.format(schema=op.get_context().opts["schema"]))
