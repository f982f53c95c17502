"""Mutations of rows (lost, duplicated, moved, exchanged, referring elsewhere) and of the values inside a row."""

from typing import Final

from migrator.verify.sensitivity.mutation import Mutation, sql

_SUMMED = "Where the schedule has a summary."

ROW_MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        name="a row is lost",
        kind="data",
        apply=sql(
            "DELETE FROM scheduler.runs WHERE id = (SELECT id FROM scheduler.runs AS r WHERE schedule_id IS NULL AND"
            " NOT EXISTS (SELECT FROM scheduler.execution_logs WHERE run_id = r.id) AND NOT EXISTS (SELECT FROM"
            " scheduler.impact_snapshots WHERE run_id = r.id) AND NOT EXISTS (SELECT FROM scheduler.runs WHERE"
            " retry_of = r.id) ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.documents", "parity.aggregates", "parity.columns"),
        sometimes_by={"semantics.summaries": _SUMMED},
        faults=("one-off retry lost",),
    ),
    Mutation(
        name="a run of a summary is lost",
        kind="data",
        apply=sql(
            "DELETE FROM scheduler.runs WHERE id = (SELECT r.id FROM scheduler.runs AS r JOIN scheduler.run_summaries"
            " USING (tenant_id, schedule_id) WHERE NOT EXISTS (SELECT FROM scheduler.impact_snapshots WHERE"
            " run_id = r.id) ORDER BY r.id LIMIT 1)"
        ),
        caught_by=("parity.documents", "parity.aggregates", "semantics.summaries", "parity.columns"),
    ),
    Mutation(
        name="an extra row",
        kind="data",
        apply=sql(
            "INSERT INTO scheduler.runs (id, tenant_id, source, source_id, state, created_at) SELECT gen_random_uuid(),"
            " tenant_id, source, 'ghost', state, created_at FROM scheduler.runs WHERE state = 'planning' OR true"
            " ORDER BY id LIMIT 1"
        ),
        caught_by=("parity.extra", "parity.aggregates", "parity.columns"),
        sometimes_by={"semantics.history": "Where the row contradicts itself: a state without its times."},
    ),
    Mutation(
        name="a row twice",
        kind="data",
        apply=sql(
            "INSERT INTO scheduler.audit SELECT gen_random_uuid(), tenant_id, source, source_id, category, action,"
            " occurred_at, actor, entity_id, schedule_id, run_id, correlation_id, message, metadata, extra"
            " FROM scheduler.audit ORDER BY id LIMIT 1"
        ),
        caught_by=("parity.extra", "parity.aggregates", "parity.columns"),
    ),
    Mutation(
        name="a row under another id",
        kind="data",
        apply=sql(
            "UPDATE scheduler.audit SET id = gen_random_uuid()"
            " WHERE id = (SELECT id FROM scheduler.audit ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.documents", "parity.extra"),
        note="Each aggregate stays the same.",
    ),
    Mutation(
        name="a field of two rows exchanged",
        kind="data",
        apply=sql(
            "WITH pair AS (SELECT one.id AS a, other.id AS b, one.error AS of_a, other.error AS of_b"
            " FROM scheduler.runs AS one JOIN scheduler.runs AS other ON one.tenant_id = other.tenant_id"
            " AND one.error < other.error ORDER BY 1, 2 LIMIT 1)"
            " UPDATE scheduler.runs SET error = CASE id WHEN a THEN of_b ELSE of_a END FROM pair WHERE id IN (a, b)"
        ),
        caught_by=("parity.rows",),
        note="Differences that cancel out in a sum are not detected by the aggregates.",
    ),
    Mutation(
        name="statistics of two rows exchanged",
        kind="data",
        apply=sql(
            "WITH pair AS (SELECT one.id AS a, other.id AS b, one.stats AS of_a, other.stats AS of_b"
            " FROM scheduler.runs AS one JOIN scheduler.runs AS other ON one.tenant_id = other.tenant_id"
            " AND one.stats < other.stats WHERE one.schedule_id IS NULL AND other.schedule_id IS NULL"
            " ORDER BY 1, 2 LIMIT 1)"
            " UPDATE scheduler.runs SET stats = CASE id WHEN a THEN of_b ELSE of_a END FROM pair WHERE id IN (a, b)"
        ),
        caught_by=("parity.rows",),
        sometimes_by={"semantics.summaries": _SUMMED},
    ),
    Mutation(
        name="two columns of a row exchanged",
        kind="data",
        apply=sql(
            "UPDATE scheduler.schedules SET created_by = updated_by, updated_by = created_by WHERE id ="
            " (SELECT id FROM scheduler.schedules WHERE length(created_by) <> length(updated_by) ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.columns"),
    ),
    Mutation(
        name="the wrong tenant",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET tenant_id = 'somebody' WHERE id = (SELECT id FROM scheduler.runs AS r"
            " WHERE schedule_id IS NULL AND retry_of IS NULL AND NOT EXISTS (SELECT FROM scheduler.execution_logs"
            " WHERE run_id = r.id) AND NOT EXISTS (SELECT FROM scheduler.impact_snapshots WHERE run_id = r.id)"
            " AND NOT EXISTS (SELECT FROM scheduler.runs WHERE retry_of = r.id) ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.aggregates", "parity.columns"),
        sometimes_by={"semantics.summaries": _SUMMED},
    ),
    Mutation(
        name="the wrong source id",
        kind="data",
        apply=sql(
            "UPDATE scheduler.audit SET source_id = source_id || 'x'"
            " WHERE id = (SELECT id FROM scheduler.audit ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
    ),
    Mutation(
        name="the wrong source",
        kind="data",
        apply=sql(
            "UPDATE scheduler.audit SET source = 'stellaops/runs'"
            " WHERE id = (SELECT id FROM scheduler.audit ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.aggregates", "parity.columns"),
    ),
    Mutation(
        name="a reference was cut",
        kind="data",
        apply=sql(
            "UPDATE scheduler.execution_logs SET run_id = NULL WHERE id = (SELECT id FROM scheduler.execution_logs"
            " WHERE run_id IS NOT NULL ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
    ),
    Mutation(
        name="a reference to another row",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET schedule_id = (SELECT id FROM scheduler.schedules AS s WHERE s.id <> schedule_id"
            " AND s.tenant_id = runs.tenant_id ORDER BY id LIMIT 1) WHERE id = (SELECT r.id FROM scheduler.runs AS r"
            " JOIN scheduler.run_summaries USING (tenant_id, schedule_id) WHERE EXISTS (SELECT FROM"
            " scheduler.schedules AS s WHERE s.id <> r.schedule_id AND s.tenant_id = r.tenant_id)"
            " ORDER BY r.id LIMIT 1)"
        ),
        caught_by=("parity.rows", "semantics.summaries"),
    ),
    Mutation(
        name="a reference to nothing",
        kind="data",
        apply=sql(
            "ALTER TABLE scheduler.execution_logs DROP CONSTRAINT fk_execution_logs_run_id",
            "UPDATE scheduler.execution_logs SET run_id = gen_random_uuid() WHERE id = (SELECT id FROM"
            " scheduler.execution_logs WHERE run_id IS NOT NULL ORDER BY id LIMIT 1)",
        ),
        caught_by=("parity.rows",),
    ),
    Mutation(
        name="a retry that repeats another run",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET retry_of = id WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE retry_of IS NOT NULL ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "semantics.history"),
    ),
    Mutation(
        name="a run number twice",
        kind="data",
        apply=sql(
            "DROP INDEX scheduler.uq_runs_number",
            "UPDATE scheduler.runs SET run_number = 1 WHERE id IN (SELECT id FROM scheduler.runs WHERE schedule_id ="
            " (SELECT schedule_id FROM scheduler.runs GROUP BY 1 HAVING count(schedule_id) > 1 ORDER BY 1 LIMIT 1))",
        ),
        caught_by=("parity.rows", "semantics.history", "parity.columns"),
        faults=("duplicate execution_number",),
    ),
    Mutation(
        name="a slot run twice",
        kind="data",
        apply=sql(
            "DROP INDEX scheduler.uq_runs_slot",
            "UPDATE scheduler.runs AS r SET trigger_id = t.id, attempt = 1, scheduled_at = '2025-01-01' FROM"
            " scheduler.triggers AS t WHERE t.schedule_id = r.schedule_id AND r.schedule_id = (SELECT schedule_id FROM"
            " scheduler.runs JOIN scheduler.triggers USING (schedule_id) GROUP BY 1 HAVING count(*) > 1 ORDER BY 1"
            " LIMIT 1)",
        ),
        caught_by=("parity.rows", "semantics.history", "parity.columns"),
        faults=("duplicate (trigger, slot) run",),
    ),
    Mutation(
        name="an event is lost",
        kind="data",
        apply=sql(
            "DELETE FROM scheduler.graph_job_events WHERE id = (SELECT id FROM scheduler.graph_job_events"
            " ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.documents", "parity.aggregates"),
    ),
    Mutation(
        name="events in another order",
        kind="data",
        apply=sql(
            "WITH pair AS (SELECT one.id AS a, other.id AS b, one.created_at AS of_a, other.created_at AS of_b FROM"
            " scheduler.graph_job_events AS one JOIN scheduler.graph_job_events AS other"
            " ON one.created_at < other.created_at AND one.tenant_id = other.tenant_id ORDER BY 1, 2 LIMIT 1)"
            " UPDATE scheduler.graph_job_events SET created_at = CASE id WHEN a THEN of_b ELSE of_a END FROM pair"
            " WHERE id IN (a, b)"
        ),
        caught_by=("parity.rows",),
        sometimes_by={"semantics.history": "Where the order tells of a change of state that no job can make."},
    ),
    Mutation(
        name="a lock was cleared",
        kind="data",
        apply=sql("DELETE FROM scheduler.locks WHERE id = (SELECT id FROM scheduler.locks ORDER BY id LIMIT 1)"),
        caught_by=("parity.documents", "parity.aggregates", "parity.columns"),
        faults=("lock cleared under a live worker",),
    ),
    Mutation(
        name="a lock was given to somebody else",
        kind="data",
        apply=sql(
            "UPDATE scheduler.locks SET holder = 'somebody', fence = fence + 1"
            " WHERE id = (SELECT id FROM scheduler.locks ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
    ),
    Mutation(
        name="an audit row was edited",
        kind="data",
        apply=sql(
            "UPDATE scheduler.audit SET action = action || '!' WHERE id = (SELECT id FROM scheduler.audit"
            " ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.aggregates", "parity.columns"),
    ),
    Mutation(
        name="the ledger says loaded, the rows are gone",
        kind="data",
        apply=sql("DELETE FROM scheduler.audit"),
        caught_by=("parity.documents", "parity.aggregates", "parity.columns"),
    ),
    Mutation(
        name="a row of somebody else's, which names no source",
        kind="data",
        apply=sql(
            "INSERT INTO scheduler.audit (id, tenant_id, category, action, occurred_at) SELECT"
            " gen_random_uuid(), tenant_id, category, action, occurred_at FROM scheduler.audit ORDER BY id LIMIT 1"
        ),
        caught_by=("parity.foreign",),
    ),
    Mutation(
        name="a second seeder with other names",
        kind="data",
        apply=sql(
            "INSERT INTO scheduler.handlers (id, tenant_id, name, handler_type) SELECT gen_random_uuid(), tenant_id,"
            " 'seeded twice', 'function' FROM scheduler.schedules ORDER BY id LIMIT 1"
        ),
        caught_by=("parity.foreign",),
        faults=("second seeder with other names",),
    ),
)


_EDGE = "Where the row is the first or the last of its tenant: first and last times are known, in milliseconds."
_ORDER = "Where the moved time leaves the order of the row's times."

VALUE_MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        name="a millisecond",
        kind="data",
        apply=sql(
            "UPDATE scheduler.schedules SET updated_at = updated_at + interval '1 ms' WHERE id = (SELECT s.id FROM"
            " scheduler.schedules AS s WHERE EXISTS (SELECT FROM scheduler.schedules WHERE tenant_id = s.tenant_id AND"
            " updated_at > s.updated_at + interval '1 s') ORDER BY s.id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
        sometimes_by={"parity.aggregates": _EDGE},
    ),
    Mutation(
        name="a microsecond",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET created_at = created_at + interval '1 us'"
            " WHERE id = (SELECT id FROM scheduler.runs WHERE schedule_id IS NULL ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
    ),
    Mutation(
        name="an hour, as a zone shifts",
        kind="data",
        apply=sql(
            "UPDATE scheduler.policy_jobs SET created_at = created_at + interval '1 hour' WHERE id = (SELECT s.id FROM"
            " scheduler.policy_jobs AS s WHERE EXISTS (SELECT FROM scheduler.policy_jobs WHERE tenant_id = s.tenant_id"
            " AND created_at > s.created_at + interval '1 day') AND EXISTS (SELECT FROM scheduler.policy_jobs WHERE"
            " tenant_id = s.tenant_id AND created_at < s.created_at) ORDER BY s.id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
        sometimes_by={"parity.aggregates": _EDGE, "semantics.history": _ORDER},
    ),
    Mutation(
        name="the offset of a time is lost",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET extra = extra - 'createdAt' WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE extra ? 'createdAt' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
    ),
    Mutation(
        name="the last place of a double",
        kind="data",
        apply=sql(
            "UPDATE scheduler.policy_jobs SET stats = jsonb_set(stats, '{durationSeconds}',"
            " to_jsonb(((stats ->> 'durationSeconds') || '00000000000001')::numeric)) WHERE id = (SELECT id FROM"
            " scheduler.policy_jobs WHERE stats ->> 'durationSeconds' LIKE '%.%' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
        note="Sums of fractions are compared to nine digits, so the aggregates do not see it.",
    ),
    Mutation(
        name="an int became a double",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET stats = jsonb_set(stats, '{queued}', ((stats ->> 'queued') || '.0')::jsonb)"
            " WHERE id = (SELECT id FROM scheduler.runs WHERE stats ? 'queued' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
    ),
    Mutation(
        name="an int64 became an int32",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET extra = extra - 'stats.candidates'"
            " WHERE id = (SELECT id FROM scheduler.runs WHERE extra -> 'stats.candidates' ? '$long'"
            " ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.losses"),
    ),
    Mutation(
        name="a number changed",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET stats = jsonb_set(stats, '{queued}', '987654')"
            " WHERE id = (SELECT id FROM scheduler.runs WHERE stats ? 'queued' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.aggregates"),
    ),
    Mutation(
        name="null became absent",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET extra = extra - '+error' WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE extra @> '{\"+error\": null}' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
    ),
    Mutation(
        name="null became empty",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET error = '' WHERE id = (SELECT id FROM scheduler.runs WHERE error IS NULL"
            " ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.columns"),
    ),
    Mutation(
        name="an empty list became null",
        kind="data",
        apply=sql(
            "UPDATE scheduler.schedules SET subscribers = NULL WHERE id = (SELECT id FROM scheduler.schedules"
            " WHERE subscribers = '{}' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.columns"),
    ),
    Mutation(
        name="a NUL was lost",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET extra = extra - 'error' WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE extra -> 'error' ? '$text' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.losses"),
    ),
    Mutation(
        name="another Unicode form",
        kind="data",
        apply=sql(
            "UPDATE scheduler.audit SET tenant_id = normalize(tenant_id, NFD) WHERE id = (SELECT id FROM"
            " scheduler.audit WHERE tenant_id <> normalize(tenant_id, NFD) ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.aggregates", "parity.columns"),
    ),
    Mutation(
        name="another letter case",
        kind="data",
        apply=sql(
            "UPDATE scheduler.schedules SET name = upper(name) WHERE id = (SELECT id FROM scheduler.schedules"
            " WHERE name <> upper(name) ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
    ),
    Mutation(
        name="a space at the end",
        kind="data",
        apply=sql(
            "UPDATE scheduler.schedules SET name = name || ' ' WHERE id = (SELECT id FROM scheduler.schedules"
            " ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.columns"),
    ),
    Mutation(
        name="a text was cut",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET error = left(error, 7) WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE length(error) > 8 ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.columns"),
    ),
    Mutation(
        name="UTF-8 was read as Latin-1",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET error = convert_from(convert_to(error, 'UTF8'), 'LATIN1') WHERE id = (SELECT id"
            " FROM scheduler.runs WHERE octet_length(error) > length(error) ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.columns"),
    ),
    Mutation(
        name="a list in another order",
        kind="data",
        apply=sql(
            "UPDATE scheduler.schedules SET subscribers = ARRAY(SELECT one FROM unnest(subscribers) AS one"
            " ORDER BY one DESC) WHERE id = (SELECT id FROM scheduler.schedules WHERE cardinality(subscribers) > 1"
            " ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
    ),
    Mutation(
        name="a key is lost",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET stats = stats - 'candidates' WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE stats ->> 'candidates' > '0' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.aggregates"),
    ),
    Mutation(
        name="an extra key",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET stats = stats || '{\"ghost\": 1}' WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE stats IS NOT NULL ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
    ),
    Mutation(
        name="a key renamed",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET stats = stats - 'candidates' || jsonb_build_object('Candidates', stats ->"
            " 'candidates') WHERE id = (SELECT id FROM scheduler.runs WHERE stats ->> 'candidates' > '0' ORDER BY id"
            " LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.aggregates"),
    ),
    Mutation(
        name="a remainder was emptied",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET extra = '{}' WHERE id = (SELECT id FROM scheduler.runs WHERE extra <> '{}'"
            " ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
    ),
    Mutation(
        name="a remainder was changed",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET extra = extra || '{\"+ghost\": 1}' WHERE id = (SELECT id FROM scheduler.runs"
            " ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows",),
    ),
    Mutation(
        name="another state",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET state = 'error' WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE state = 'completed' AND schedule_id IS NULL ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.aggregates"),
        sometimes_by={
            "semantics.summaries": "Where the schedule has a summary.",
            "semantics.history": "Where the other state does not go with the row's times.",
        },
    ),
    Mutation(
        name="a state that does not go with its times",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET state = 'queued' WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE state = 'completed' AND schedule_id IS NULL ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.aggregates", "semantics.history"),
        faults=("one_time marked completed before running", "cancel overwritten by late failure"),
    ),
    Mutation(
        name="the priority was overwritten with the default",
        kind="data",
        apply=sql(
            "UPDATE scheduler.schedules SET priority = 50 WHERE id = (SELECT id FROM scheduler.schedules"
            " WHERE priority IS DISTINCT FROM 50 ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.columns"),
        faults=("default priority overwritten",),
    ),
    Mutation(
        name="a queued run has another priority than its schedule",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET priority = priority + 1 WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE state IN ('planning', 'queued') ORDER BY id LIMIT 1)"
        ),
        caught_by=("semantics.priorities",),
    ),
    Mutation(
        name="a trigger has another priority than its schedule",
        kind="data",
        apply=sql(
            "UPDATE scheduler.triggers SET priority = priority + 1"
            " WHERE id = (SELECT id FROM scheduler.triggers ORDER BY id LIMIT 1)"
        ),
        caught_by=("semantics.priorities",),
    ),
    Mutation(
        name="the priority of a schedule was changed while its triggers in the database were off",
        kind="data",
        apply=sql(
            "ALTER TABLE scheduler.schedules DISABLE TRIGGER give_priority",
            "UPDATE scheduler.schedules SET priority = 51 WHERE id = (SELECT schedule_id FROM scheduler.triggers"
            " WHERE priority <> 51 ORDER BY id LIMIT 1)",
        ),
        caught_by=("parity.rows", "parity.columns", "semantics.priorities"),
    ),
    Mutation(
        name="a negative duration",
        kind="data",
        apply=sql(
            "ALTER TABLE scheduler.runs DROP CONSTRAINT ck_runs_duration_ms",
            "UPDATE scheduler.runs SET duration_ms = -duration_ms WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE duration_ms > 0 ORDER BY id LIMIT 1)",
        ),
        caught_by=("parity.rows", "semantics.history"),
    ),
    Mutation(
        name="a duration in whole seconds",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET duration_ms = duration_ms / 1000 * 1000 WHERE id = (SELECT id FROM"
            " scheduler.runs WHERE duration_ms % 1000 > 0 ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "semantics.history"),
        faults=("duration truncated",),
    ),
    Mutation(
        name="a run before its slot",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET scheduled_at = started_at + interval '1 s' WHERE id = (SELECT id FROM"
            " scheduler.runs WHERE started_at IS NOT NULL AND trigger_id IS NULL ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "semantics.history", "parity.columns"),
    ),
    Mutation(
        name="statistics that decreased below zero",
        kind="data",
        apply=sql(
            "UPDATE scheduler.runs SET stats = jsonb_set(stats, '{queued}', '-1') WHERE id = (SELECT id FROM"
            " scheduler.runs WHERE stats ->> 'queued' > '0' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.aggregates", "semantics.history"),
    ),
    Mutation(
        name="a graph job's column against its payload",
        kind="data",
        apply=sql(
            "UPDATE scheduler.graph_jobs SET status = (status + 1) % 6 WHERE id = (SELECT id FROM scheduler.graph_jobs"
            " ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.aggregates", "semantics.history"),
    ),
    Mutation(
        name="a graph job's payload was changed",
        kind="data",
        apply=sql(
            "UPDATE scheduler.graph_jobs SET payload = jsonb_set(payload, '{attempts}', '77') WHERE id ="
            " (SELECT id FROM scheduler.graph_jobs ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.aggregates"),
    ),
)
