"""Keep the priority of triggers and open runs equal to their schedule's: one index has the order of the queue."""

from alembic import op

revision = "0007"
down_revision = "0006"
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
#
# Existing rows are brought in step before the triggers are made.
UPGRADE = """
UPDATE triggers AS t SET priority = coalesce(s.priority, 50) FROM schedules AS s
    WHERE s.id = t.schedule_id AND s.tenant_id = t.tenant_id AND t.priority <> coalesce(s.priority, 50);
UPDATE runs AS r SET priority = coalesce(s.priority, 50) FROM schedules AS s
    WHERE s.id = r.schedule_id AND s.tenant_id = r.schedule_tenant_id AND r.priority <> coalesce(s.priority, 50)
    AND r.state = ANY (ARRAY['planning'::text, 'queued'::text]);

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

DOWNGRADE = """
DROP TRIGGER give_priority ON schedules;
DROP TRIGGER take_priority_again ON runs;
DROP TRIGGER take_priority ON runs;
DROP TRIGGER take_priority_again ON triggers;
DROP TRIGGER take_priority ON triggers;
DROP FUNCTION {schema}.give_priority();
DROP FUNCTION {schema}.take_priority();
"""


def upgrade() -> None:
    """Fill the columns from the schedules, and let the database keep them."""
    op.get_bind().exec_driver_sql(UPGRADE.format(schema=op.get_context().opts["schema"]))


def downgrade() -> None:
    """Leave the columns as they are; nothing keeps them equal any more."""
    op.get_bind().exec_driver_sql(DOWNGRADE.format(schema=op.get_context().opts["schema"]))
