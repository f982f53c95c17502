"""Functions and triggers by which the database keeps ``priority`` of triggers and open runs equal to the schedule's.

Writers of schedules, triggers and runs need not know of it: the store, the copy, the tail, a repair, and programs that
write the tables themselves. Revision 0016 creates what is declared here; the catalogue check compares both.

A row gets the priority when it is inserted, and a run also when it is queued again. It locks the schedule as its
foreign key does (``FOR KEY SHARE``). A change of the schedule's priority waits for such rows (``FOR UPDATE``), and they
wait for it, so that neither misses the other. The functions run as the owner, whom row-level security does not bind: a
schedule of the tenant ``*`` has runs of every tenant.
"""

from collections.abc import Iterator
from typing import Final

from psycopg import sql

_TAKE: Final = """
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
$function$
"""

_GIVE: Final = """
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
$function$
"""

_REVOKE: Final = "REVOKE ALL ON FUNCTION {schema}.take_priority(), {schema}.give_priority() FROM PUBLIC"

# Most runs have ended when they are copied: the function is not called for them because of the condition.
_TRIGGERS: Final = """
CREATE TRIGGER take_priority AFTER INSERT ON {schema}.triggers
    FOR EACH ROW EXECUTE FUNCTION {schema}.take_priority();
CREATE TRIGGER take_priority_again AFTER UPDATE OF schedule_id ON {schema}.triggers
    FOR EACH ROW WHEN (OLD.schedule_id <> NEW.schedule_id) EXECUTE FUNCTION {schema}.take_priority();
CREATE TRIGGER take_priority AFTER INSERT ON {schema}.runs
    FOR EACH ROW WHEN (NEW.state = ANY (ARRAY['planning'::text, 'queued'::text]))
    EXECUTE FUNCTION {schema}.take_priority();
CREATE TRIGGER take_priority_again AFTER UPDATE OF state, schedule_id, global_schedule ON {schema}.runs
    FOR EACH ROW WHEN (NEW.state = ANY (ARRAY['planning'::text, 'queued'::text])
        AND (OLD.state, OLD.schedule_id, OLD.schedule_tenant_id)
            IS DISTINCT FROM (NEW.state, NEW.schedule_id, NEW.schedule_tenant_id))
    EXECUTE FUNCTION {schema}.take_priority();
CREATE TRIGGER give_priority BEFORE UPDATE OF priority ON {schema}.schedules
    FOR EACH ROW WHEN (coalesce(OLD.priority, 50) <> coalesce(NEW.priority, 50))
    EXECUTE FUNCTION {schema}.give_priority()
"""


def priority_statements(schema: str) -> Iterator[sql.Composed]:
    """Yield the statements that create the functions and the triggers in ``schema``, whose tables exist."""
    place = sql.Identifier(schema)
    for statement in (_TAKE, _GIVE, _REVOKE, _TRIGGERS):
        yield sql.SQL(statement).format(schema=place)
