"""Corruptions of whole rows: lost, doubled, moved, exchanged, pointing elsewhere."""

from typing import Final

from migrator.verify.sensitivity.model import Corruption, sql

_MIDDLE = "Where the row is the first or the last of its tenant: first and last times are known, in milliseconds."
_SUMMED = "Where the schedule has a summary."

ROWS: Final[tuple[Corruption, ...]] = (
    Corruption(
        name="a row is lost",
        how="data",
        plant=sql(
            "DELETE FROM scheduler.runs WHERE id = (SELECT id FROM scheduler.runs AS r WHERE schedule_id IS NULL AND"
            " NOT EXISTS (SELECT FROM scheduler.execution_logs WHERE run_id = r.id) AND NOT EXISTS (SELECT FROM"
            " scheduler.impact_snapshots WHERE run_id = r.id) AND NOT EXISTS (SELECT FROM scheduler.runs WHERE"
            " retry_of = r.id) ORDER BY id LIMIT 1)"
        ),
        yes=("parity.documents", "parity.aggregates", "parity.columns"),
        sometimes={"meaning.summaries": _SUMMED},
        faults=("one-off retry lost",),
    ),
    Corruption(
        name="a run of a summary is lost",
        how="data",
        plant=sql(
            "DELETE FROM scheduler.runs WHERE id = (SELECT r.id FROM scheduler.runs AS r JOIN scheduler.run_summaries"
            " USING (tenant_id, schedule_id) WHERE NOT EXISTS (SELECT FROM scheduler.impact_snapshots WHERE"
            " run_id = r.id) ORDER BY r.id LIMIT 1)"
        ),
        yes=("parity.documents", "parity.aggregates", "meaning.summaries", "parity.columns"),
    ),
    Corruption(
        name="a row too many",
        how="data",
        plant=sql(
            "INSERT INTO scheduler.runs (id, tenant_id, source, source_id, state, created_at) SELECT gen_random_uuid(),"
            " tenant_id, source, 'ghost', state, created_at FROM scheduler.runs WHERE state = 'planning' OR true"
            " ORDER BY id LIMIT 1"
        ),
        yes=("parity.extra", "parity.aggregates", "parity.columns"),
        sometimes={"meaning.history": "Where the row contradicts itself: a state without its times."},
    ),
    Corruption(
        name="a row twice",
        how="data",
        plant=sql(
            "INSERT INTO scheduler.audit SELECT gen_random_uuid(), tenant_id, source, source_id, category, action,"
            " occurred_at, actor, entity_id, schedule_id, run_id, correlation_id, message, metadata, extra"
            " FROM scheduler.audit ORDER BY id LIMIT 1"
        ),
        yes=("parity.extra", "parity.aggregates", "parity.columns"),
    ),
    Corruption(
        name="a row under another id",
        how="data",
        plant=sql(
            "UPDATE scheduler.audit SET id = gen_random_uuid()"
            " WHERE id = (SELECT id FROM scheduler.audit ORDER BY id LIMIT 1)"
        ),
        yes=("parity.documents", "parity.extra"),
        note="Each figure stays the same, so the aggregates do.",
    ),
    Corruption(
        name="a field of two rows exchanged",
        how="data",
        plant=sql(
            "WITH pair AS (SELECT one.id AS a, other.id AS b, one.error AS of_a, other.error AS of_b"
            " FROM scheduler.runs AS one JOIN scheduler.runs AS other ON one.tenant_id = other.tenant_id"
            " AND one.error < other.error ORDER BY 1, 2 LIMIT 1)"
            " UPDATE scheduler.runs SET error = CASE id WHEN a THEN of_b ELSE of_a END FROM pair WHERE id IN (a, b)"
        ),
        yes=("parity.rows",),
        note="Figures that cancel out in a sum are not seen by the aggregates.",
    ),
    Corruption(
        name="statistics of two rows exchanged",
        how="data",
        plant=sql(
            "WITH pair AS (SELECT one.id AS a, other.id AS b, one.stats AS of_a, other.stats AS of_b"
            " FROM scheduler.runs AS one JOIN scheduler.runs AS other ON one.tenant_id = other.tenant_id"
            " AND one.stats < other.stats WHERE one.schedule_id IS NULL AND other.schedule_id IS NULL"
            " ORDER BY 1, 2 LIMIT 1)"
            " UPDATE scheduler.runs SET stats = CASE id WHEN a THEN of_b ELSE of_a END FROM pair WHERE id IN (a, b)"
        ),
        yes=("parity.rows",),
        sometimes={"meaning.summaries": _SUMMED},
    ),
    Corruption(
        name="two columns of a row exchanged",
        how="data",
        plant=sql(
            "UPDATE scheduler.schedules SET created_by = updated_by, updated_by = created_by WHERE id ="
            " (SELECT id FROM scheduler.schedules WHERE length(created_by) <> length(updated_by) ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.columns"),
    ),
    Corruption(
        name="the wrong tenant",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET tenant_id = 'somebody' WHERE id = (SELECT id FROM scheduler.runs AS r"
            " WHERE schedule_id IS NULL AND retry_of IS NULL AND NOT EXISTS (SELECT FROM scheduler.execution_logs"
            " WHERE run_id = r.id) AND NOT EXISTS (SELECT FROM scheduler.impact_snapshots WHERE run_id = r.id)"
            " AND NOT EXISTS (SELECT FROM scheduler.runs WHERE retry_of = r.id) ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.aggregates", "parity.columns"),
        sometimes={"meaning.summaries": _SUMMED},
    ),
    Corruption(
        name="the wrong source id",
        how="data",
        plant=sql(
            "UPDATE scheduler.audit SET source_id = source_id || 'x'"
            " WHERE id = (SELECT id FROM scheduler.audit ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows",),
    ),
    Corruption(
        name="the wrong source",
        how="data",
        plant=sql(
            "UPDATE scheduler.audit SET source = 'stellaops/runs'"
            " WHERE id = (SELECT id FROM scheduler.audit ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.aggregates", "parity.columns"),
    ),
    Corruption(
        name="a reference was cut",
        how="data",
        plant=sql(
            "UPDATE scheduler.execution_logs SET run_id = NULL WHERE id = (SELECT id FROM scheduler.execution_logs"
            " WHERE run_id IS NOT NULL ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows",),
    ),
    Corruption(
        name="a reference to another row",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET schedule_id = (SELECT id FROM scheduler.schedules AS s WHERE s.id <> schedule_id"
            " AND s.tenant_id = runs.tenant_id ORDER BY id LIMIT 1) WHERE id = (SELECT r.id FROM scheduler.runs AS r"
            " JOIN scheduler.run_summaries USING (tenant_id, schedule_id) WHERE EXISTS (SELECT FROM"
            " scheduler.schedules AS s WHERE s.id <> r.schedule_id AND s.tenant_id = r.tenant_id)"
            " ORDER BY r.id LIMIT 1)"
        ),
        yes=("parity.rows", "meaning.summaries"),
    ),
    Corruption(
        name="a reference to nothing",
        how="data",
        plant=sql(
            "ALTER TABLE scheduler.execution_logs DROP CONSTRAINT fk_execution_logs_run_id",
            "UPDATE scheduler.execution_logs SET run_id = gen_random_uuid() WHERE id = (SELECT id FROM"
            " scheduler.execution_logs WHERE run_id IS NOT NULL ORDER BY id LIMIT 1)",
        ),
        yes=("parity.rows",),
    ),
    Corruption(
        name="a retry that repeats another run",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET retry_of = id WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE retry_of IS NOT NULL ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "meaning.history"),
    ),
    Corruption(
        name="a run number twice",
        how="data",
        plant=sql(
            "DROP INDEX scheduler.uq_runs_number",
            "UPDATE scheduler.runs SET run_number = 1 WHERE id IN (SELECT id FROM scheduler.runs WHERE schedule_id ="
            " (SELECT schedule_id FROM scheduler.runs GROUP BY 1 HAVING count(schedule_id) > 1 ORDER BY 1 LIMIT 1))",
        ),
        yes=("parity.rows", "meaning.history", "parity.columns"),
        faults=("duplicate execution_number",),
    ),
    Corruption(
        name="a slot run twice",
        how="data",
        plant=sql(
            "DROP INDEX scheduler.uq_runs_slot",
            "UPDATE scheduler.runs AS r SET trigger_id = t.id, attempt = 1, scheduled_at = '2025-01-01' FROM"
            " scheduler.triggers AS t WHERE t.schedule_id = r.schedule_id AND r.schedule_id = (SELECT schedule_id FROM"
            " scheduler.runs JOIN scheduler.triggers USING (schedule_id) GROUP BY 1 HAVING count(*) > 1 ORDER BY 1"
            " LIMIT 1)",
        ),
        yes=("parity.rows", "meaning.history", "parity.columns"),
        faults=("duplicate (trigger, slot) run",),
    ),
    Corruption(
        name="an event is lost",
        how="data",
        plant=sql(
            "DELETE FROM scheduler.graph_job_events WHERE id = (SELECT id FROM scheduler.graph_job_events"
            " ORDER BY id LIMIT 1)"
        ),
        yes=("parity.documents", "parity.aggregates"),
    ),
    Corruption(
        name="events in another order",
        how="data",
        plant=sql(
            "WITH pair AS (SELECT one.id AS a, other.id AS b, one.created_at AS of_a, other.created_at AS of_b FROM"
            " scheduler.graph_job_events AS one JOIN scheduler.graph_job_events AS other"
            " ON one.created_at < other.created_at AND one.tenant_id = other.tenant_id ORDER BY 1, 2 LIMIT 1)"
            " UPDATE scheduler.graph_job_events SET created_at = CASE id WHEN a THEN of_b ELSE of_a END FROM pair"
            " WHERE id IN (a, b)"
        ),
        yes=("parity.rows",),
        sometimes={"meaning.history": "Where the order tells of a change of state that no job can make."},
    ),
    Corruption(
        name="a lock was cleared",
        how="data",
        plant=sql("DELETE FROM scheduler.locks WHERE id = (SELECT id FROM scheduler.locks ORDER BY id LIMIT 1)"),
        yes=("parity.documents", "parity.aggregates", "parity.columns"),
        faults=("lock cleared under a live worker",),
    ),
    Corruption(
        name="a lock was given to somebody else",
        how="data",
        plant=sql(
            "UPDATE scheduler.locks SET holder = 'somebody', fence = fence + 1"
            " WHERE id = (SELECT id FROM scheduler.locks ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows",),
    ),
    Corruption(
        name="an audit row was edited",
        how="data",
        plant=sql(
            "UPDATE scheduler.audit SET action = action || '!' WHERE id = (SELECT id FROM scheduler.audit"
            " ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.aggregates", "parity.columns"),
    ),
    Corruption(
        name="the ledger says loaded, the rows are gone",
        how="data",
        plant=sql("DELETE FROM scheduler.audit"),
        yes=("parity.documents", "parity.aggregates", "parity.columns"),
    ),
    Corruption(
        name="a row of somebody else's, which names no source",
        how="data",
        plant=sql(
            "INSERT INTO scheduler.audit (id, tenant_id, category, action, occurred_at) SELECT"
            " gen_random_uuid(), tenant_id, category, action, occurred_at FROM scheduler.audit ORDER BY id LIMIT 1"
        ),
        yes=("parity.foreign",),
    ),
    Corruption(
        name="a second seeder with other names",
        how="data",
        plant=sql(
            "INSERT INTO scheduler.handlers (id, tenant_id, name, handler_type) SELECT gen_random_uuid(), tenant_id,"
            " 'seeded twice', 'function' FROM scheduler.schedules ORDER BY id LIMIT 1"
        ),
        yes=("parity.foreign",),
        faults=("second seeder with other names",),
    ),
)
