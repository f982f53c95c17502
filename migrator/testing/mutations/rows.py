"""Mutations of rows (lost, duplicated, moved, exchanged, referring elsewhere) and of the values inside a row."""

from typing import Final

from migrator.testing.mutations.mutation import Mutation, Sql, data, delete_first, exchange, update_first

_SUMMED = "Where the schedule has a summary."
_ALONE = (
    "t.schedule_id IS NULL AND NOT EXISTS (SELECT FROM scheduler.execution_logs WHERE run_id = t.id)"
    " AND NOT EXISTS (SELECT FROM scheduler.impact_snapshots WHERE run_id = t.id)"
    " AND NOT EXISTS (SELECT FROM scheduler.runs WHERE retry_of = t.id)"
)
"""A run to which nothing refers."""

ROW_MUTATIONS: Final[tuple[Mutation, ...]] = (
    data(
        "a row is lost",
        delete_first("scheduler.runs", _ALONE),
        "parity.documents parity.aggregates parity.columns",
        sometimes_by={"semantics.summaries": _SUMMED},
        faults=("one-off retry lost",),
    ),
    data(
        "a run of a summary is lost",
        delete_first(
            "scheduler.runs",
            "EXISTS (SELECT FROM scheduler.run_summaries AS s WHERE (s.tenant_id, s.schedule_id) = (t.tenant_id,"
            " t.schedule_id)) AND NOT EXISTS (SELECT FROM scheduler.impact_snapshots WHERE run_id = t.id)",
        ),
        "parity.documents parity.aggregates semantics.summaries parity.columns",
    ),
    data(
        "an extra row",
        Sql(
            "INSERT INTO scheduler.runs (id, tenant_id, source, source_id, state, created_at) SELECT gen_random_uuid(),"
            " tenant_id, source, 'ghost', state, created_at FROM scheduler.runs ORDER BY id LIMIT 1"
        ),
        "parity.extra parity.aggregates parity.columns",
        sometimes_by={"semantics.history": "Where the row contradicts itself: a state without its times."},
    ),
    data(
        "an extra row, and another row that names no source any more, so that their number is right",
        Sql(
            "INSERT INTO scheduler.audit (id, tenant_id, source, source_id, category, action, occurred_at) SELECT"
            " gen_random_uuid(), tenant_id, source, 'ghost', category, action, occurred_at FROM scheduler.audit"
            " WHERE source IS NOT NULL ORDER BY id LIMIT 1",
            "UPDATE scheduler.audit SET source = NULL, source_id = NULL WHERE id = (SELECT id FROM scheduler.audit"
            " WHERE source IS NOT NULL AND source_id <> 'ghost' ORDER BY id LIMIT 1)",
        ),
        "parity.extra parity.rows parity.foreign",
        sometimes_by={
            "parity.aggregates": "Where a field of either row is one that is counted.",
            "parity.columns": "As above.",
        },
    ),
    data(
        "a row twice",
        Sql(
            "INSERT INTO scheduler.audit SELECT gen_random_uuid(), tenant_id, source, source_id, category, action,"
            " occurred_at, actor, entity_id, schedule_id, run_id, correlation_id, message, metadata, extra"
            " FROM scheduler.audit ORDER BY id LIMIT 1"
        ),
        "parity.extra parity.aggregates parity.columns",
    ),
    data(
        "a row under another id",
        update_first("scheduler.audit", "id = gen_random_uuid()"),
        "parity.documents parity.extra",
        note="Each aggregate stays the same.",
    ),
    data(
        "a field of two rows exchanged",
        exchange("scheduler.runs", "error"),
        "parity.rows",
        note="Differences that cancel out in a sum are not detected by the aggregates.",
    ),
    data(
        "statistics of two rows exchanged",
        exchange("scheduler.runs", "stats", "one.schedule_id IS NULL AND other.schedule_id IS NULL"),
        "parity.rows",
        sometimes_by={"semantics.summaries": _SUMMED},
    ),
    data(
        "two columns of a row exchanged",
        update_first(
            "scheduler.schedules",
            "created_by = updated_by, updated_by = created_by",
            "length(t.created_by) <> length(t.updated_by)",
        ),
        "parity.rows parity.columns",
    ),
    data(
        "the wrong tenant",
        update_first("scheduler.runs", "tenant_id = 'somebody'", f"t.retry_of IS NULL AND {_ALONE}"),
        "parity.rows parity.aggregates parity.columns",
        sometimes_by={"semantics.summaries": _SUMMED},
    ),
    data("the wrong source id", update_first("scheduler.audit", "source_id = source_id || 'x'"), "parity.rows"),
    data(
        "the wrong source",
        update_first("scheduler.audit", "source = 'stellaops/runs'"),
        "parity.rows parity.aggregates parity.columns",
    ),
    data(
        "a reference was cut",
        update_first("scheduler.execution_logs", "run_id = NULL", "t.run_id IS NOT NULL"),
        "parity.rows",
    ),
    data(
        "a reference to another row",
        update_first(
            "scheduler.runs",
            "schedule_id = (SELECT id FROM scheduler.schedules AS s WHERE s.id <> schedule_id"
            " AND s.tenant_id = runs.tenant_id ORDER BY id LIMIT 1)",
            "EXISTS (SELECT FROM scheduler.run_summaries AS one WHERE (one.tenant_id, one.schedule_id) = (t.tenant_id,"
            " t.schedule_id)) AND EXISTS (SELECT FROM scheduler.schedules AS s WHERE s.id <> t.schedule_id"
            " AND s.tenant_id = t.tenant_id)",
        ),
        "parity.rows semantics.summaries",
    ),
    data(
        "a reference to nothing",
        Sql(
            "ALTER TABLE scheduler.execution_logs DROP CONSTRAINT fk_execution_logs_run_id",
            *update_first("scheduler.execution_logs", "run_id = gen_random_uuid()", "t.run_id IS NOT NULL").statements,
        ),
        "parity.rows",
    ),
    data(
        "a retry that repeats another run",
        update_first("scheduler.runs", "retry_of = id", "t.retry_of IS NOT NULL"),
        "parity.rows semantics.history",
    ),
    data(
        "a run number twice",
        Sql(
            "DROP INDEX scheduler.uq_runs_number",
            "UPDATE scheduler.runs SET run_number = 1 WHERE id IN (SELECT id FROM scheduler.runs WHERE schedule_id ="
            " (SELECT schedule_id FROM scheduler.runs GROUP BY 1 HAVING count(schedule_id) > 1 ORDER BY 1 LIMIT 1))",
        ),
        "parity.rows semantics.history parity.columns",
        faults=("duplicate execution_number",),
    ),
    data(
        "a slot run twice",
        Sql(
            "DROP INDEX scheduler.uq_runs_slot",
            "UPDATE scheduler.runs AS r SET trigger_id = t.id, attempt = 1, scheduled_at = '2025-01-01' FROM"
            " scheduler.triggers AS t WHERE t.schedule_id = r.schedule_id AND r.schedule_id = (SELECT schedule_id FROM"
            " scheduler.runs JOIN scheduler.triggers USING (schedule_id) GROUP BY 1 HAVING count(*) > 1 ORDER BY 1"
            " LIMIT 1)",
        ),
        "parity.rows semantics.history parity.columns",
        faults=("duplicate (trigger, slot) run",),
    ),
    data("an event is lost", delete_first("scheduler.graph_job_events"), "parity.documents parity.aggregates"),
    data(
        "events in another order",
        exchange("scheduler.graph_job_events", "created_at"),
        "parity.rows",
        sometimes_by={"semantics.history": "Where the order tells of a change of state that no job can make."},
    ),
    data(
        "a lock was cleared",
        delete_first("scheduler.locks"),
        "parity.documents parity.aggregates parity.columns",
        faults=("lock cleared under a live worker",),
    ),
    data(
        "a lock was given to somebody else",
        update_first("scheduler.locks", "holder = 'somebody', fence = fence + 1"),
        "parity.rows",
    ),
    data(
        "an audit row was edited",
        update_first("scheduler.audit", "action = action || '!'"),
        "parity.rows parity.aggregates parity.columns",
    ),
    data(
        "the ledger says loaded, the rows are gone",
        Sql("DELETE FROM scheduler.audit"),
        "parity.documents parity.aggregates parity.columns",
    ),
    data(
        "a row of somebody else's, which names no source",
        Sql(
            "INSERT INTO scheduler.audit (id, tenant_id, category, action, occurred_at) SELECT"
            " gen_random_uuid(), tenant_id, category, action, occurred_at FROM scheduler.audit ORDER BY id LIMIT 1"
        ),
        "parity.foreign",
    ),
    data(
        "a second seeder with other names",
        Sql(
            "INSERT INTO scheduler.handlers (id, tenant_id, name, handler_type) SELECT gen_random_uuid(), tenant_id,"
            " 'seeded twice', 'function' FROM scheduler.schedules ORDER BY id LIMIT 1"
        ),
        "parity.foreign",
        faults=("second seeder with other names",),
    ),
)


_EDGE = "Where the row is the first or the last of its tenant: first and last times are known, in milliseconds."
_ORDER = "Where the moved time leaves the order of the row's times."

VALUE_MUTATIONS: Final[tuple[Mutation, ...]] = (
    data(
        "a millisecond",
        update_first(
            "scheduler.schedules",
            "updated_at = updated_at + interval '1 ms'",
            "EXISTS (SELECT FROM scheduler.schedules AS s WHERE s.tenant_id = t.tenant_id"
            " AND s.updated_at > t.updated_at + interval '1 s')",
        ),
        "parity.rows",
        sometimes_by={"parity.aggregates": _EDGE},
    ),
    data(
        "a microsecond",
        update_first("scheduler.runs", "created_at = created_at + interval '1 us'", "t.schedule_id IS NULL"),
        "parity.rows",
    ),
    data(
        "an hour, as a zone shifts",
        update_first(
            "scheduler.policy_jobs",
            "created_at = created_at + interval '1 hour'",
            "EXISTS (SELECT FROM scheduler.policy_jobs AS p WHERE p.tenant_id = t.tenant_id"
            " AND p.created_at > t.created_at + interval '1 day') AND EXISTS (SELECT FROM scheduler.policy_jobs AS p"
            " WHERE p.tenant_id = t.tenant_id AND p.created_at < t.created_at)",
        ),
        "parity.rows",
        sometimes_by={"parity.aggregates": _EDGE, "semantics.history": _ORDER},
    ),
    data(
        "the offset of a time is lost",
        update_first("scheduler.runs", "extra = extra - 'createdAt'", "t.extra ? 'createdAt'"),
        "parity.rows",
    ),
    data(
        "the last place of a double",
        update_first(
            "scheduler.policy_jobs",
            "stats = jsonb_set(stats, '{durationSeconds}',"
            " to_jsonb(((stats ->> 'durationSeconds') || '00000000000001')::numeric))",
            "t.stats ->> 'durationSeconds' LIKE '%.%'",
        ),
        "parity.rows",
        note="Sums of fractions are compared to nine digits, so the aggregates do not see it.",
    ),
    data(
        "an int became a double",
        update_first(
            "scheduler.runs",
            "stats = jsonb_set(stats, '{queued}', ((stats ->> 'queued') || '.0')::jsonb)",
            "t.stats ? 'queued'",
        ),
        "parity.rows",
    ),
    data(
        "an int64 became an int32",
        update_first("scheduler.runs", "extra = extra - 'stats.candidates'", "t.extra -> 'stats.candidates' ? '$long'"),
        "parity.rows parity.losses",
    ),
    data(
        "a number changed",
        update_first("scheduler.runs", "stats = jsonb_set(stats, '{queued}', '987654')", "t.stats ? 'queued'"),
        "parity.rows parity.aggregates",
    ),
    data(
        "null became absent",
        update_first("scheduler.runs", "extra = extra - '+error'", "t.extra @> '{\"+error\": null}'"),
        "parity.rows",
    ),
    data(
        "null became empty",
        update_first("scheduler.runs", "error = ''", "t.error IS NULL"),
        "parity.rows parity.columns",
    ),
    data(
        "an empty list became null",
        update_first("scheduler.schedules", "subscribers = NULL", "t.subscribers = '{}'"),
        "parity.rows parity.columns",
    ),
    data(
        "a NUL was lost",
        update_first("scheduler.runs", "extra = extra - 'error'", "t.extra -> 'error' ? '$text'"),
        "parity.rows parity.losses",
    ),
    data(
        "another Unicode form",
        update_first(
            "scheduler.audit",
            "tenant_id = normalize(tenant_id, NFD)",
            "t.tenant_id <> normalize(t.tenant_id, NFD)",
        ),
        "parity.rows parity.aggregates parity.columns",
    ),
    data(
        "another letter case",
        update_first("scheduler.schedules", "name = upper(name)", "t.name <> upper(t.name)"),
        "parity.rows",
    ),
    data(
        "a space at the end",
        update_first("scheduler.schedules", "name = name || ' '"),
        "parity.rows parity.columns",
    ),
    data(
        "a text was cut",
        update_first("scheduler.runs", "error = left(error, 7)", "length(t.error) > 8"),
        "parity.rows parity.columns",
    ),
    data(
        "UTF-8 was read as Latin-1",
        update_first(
            "scheduler.runs",
            "error = convert_from(convert_to(error, 'UTF8'), 'LATIN1')",
            "octet_length(t.error) > length(t.error)",
        ),
        "parity.rows parity.columns",
    ),
    data(
        "a list in another order",
        update_first(
            "scheduler.schedules",
            "subscribers = ARRAY(SELECT one FROM unnest(subscribers) AS one ORDER BY one DESC)",
            "cardinality(t.subscribers) > 1",
        ),
        "parity.rows",
    ),
    data(
        "a key is lost",
        update_first("scheduler.runs", "stats = stats - 'candidates'", "t.stats ->> 'candidates' > '0'"),
        "parity.rows parity.aggregates",
    ),
    data(
        "an extra key",
        update_first("scheduler.runs", "stats = stats || '{\"ghost\": 1}'", "t.stats IS NOT NULL"),
        "parity.rows",
    ),
    data(
        "a key renamed",
        update_first(
            "scheduler.runs",
            "stats = stats - 'candidates' || jsonb_build_object('Candidates', stats -> 'candidates')",
            "t.stats ->> 'candidates' > '0'",
        ),
        "parity.rows parity.aggregates",
    ),
    data("a remainder was emptied", update_first("scheduler.runs", "extra = '{}'", "t.extra <> '{}'"), "parity.rows"),
    data(
        "a remainder was changed",
        update_first("scheduler.runs", "extra = extra || '{\"+ghost\": 1}'"),
        "parity.rows",
    ),
    data(
        "another state",
        update_first("scheduler.runs", "state = 'error'", "t.state = 'completed' AND t.schedule_id IS NULL"),
        "parity.rows parity.aggregates",
        sometimes_by={
            "semantics.summaries": _SUMMED,
            "semantics.history": "Where the other state does not go with the row's times.",
        },
    ),
    data(
        "a state that does not go with its times",
        update_first("scheduler.runs", "state = 'queued'", "t.state = 'completed' AND t.schedule_id IS NULL"),
        "parity.rows parity.aggregates semantics.history",
        faults=("one_time marked completed before running", "cancel overwritten by late failure"),
    ),
    data(
        "the priority was overwritten with the default",
        update_first("scheduler.schedules", "priority = 50", "t.priority IS DISTINCT FROM 50"),
        "parity.rows parity.columns",
        faults=("default priority overwritten",),
    ),
    data(
        "a queued run has another priority than its schedule",
        update_first("scheduler.runs", "priority = priority + 1", "t.state IN ('planning', 'queued')"),
        "semantics.priorities",
    ),
    data(
        "a trigger has another priority than its schedule",
        update_first("scheduler.triggers", "priority = priority + 1"),
        "semantics.priorities",
    ),
    data(
        "the priority of a schedule was changed while its triggers in the database were off",
        Sql(
            "ALTER TABLE scheduler.schedules DISABLE TRIGGER give_priority",
            "UPDATE scheduler.schedules SET priority = 51 WHERE id = (SELECT schedule_id FROM scheduler.triggers"
            " WHERE priority <> 51 ORDER BY id LIMIT 1)",
        ),
        "parity.rows parity.columns semantics.priorities",
    ),
    data(
        "a negative duration",
        Sql(
            "ALTER TABLE scheduler.runs DROP CONSTRAINT ck_runs_duration_ms",
            *update_first("scheduler.runs", "duration_ms = -duration_ms", "t.duration_ms > 0").statements,
        ),
        "parity.rows semantics.history",
    ),
    data(
        "a duration in whole seconds",
        update_first("scheduler.runs", "duration_ms = duration_ms / 1000 * 1000", "t.duration_ms % 1000 > 0"),
        "parity.rows semantics.history",
        faults=("duration truncated",),
    ),
    data(
        "a run before its slot",
        update_first(
            "scheduler.runs",
            "scheduled_at = started_at + interval '1 s'",
            "t.started_at IS NOT NULL AND t.trigger_id IS NULL",
        ),
        "parity.rows semantics.history parity.columns",
    ),
    data(
        "statistics that decreased below zero",
        update_first("scheduler.runs", "stats = jsonb_set(stats, '{queued}', '-1')", "t.stats ->> 'queued' > '0'"),
        "parity.rows parity.aggregates semantics.history",
    ),
    data(
        "a graph job's column against its payload",
        update_first("scheduler.graph_jobs", "status = (status + 1) % 6"),
        "parity.rows parity.aggregates semantics.history",
    ),
    data(
        "a graph job's payload was changed",
        update_first("scheduler.graph_jobs", "payload = jsonb_set(payload, '{attempts}', '77')"),
        "parity.rows parity.aggregates",
    ),
)
