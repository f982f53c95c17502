"""Corruptions inside a row: a value that is nearly, or not at all, the one it was."""

from typing import Final

from migrator.verify.sensitivity.model import Corruption, sql

_EDGE = "Where the row is the first or the last of its tenant: first and last times are known, in milliseconds."
_COUNTED = "Where the field is one that is counted, summed, or whose first and last time is taken."
_ORDER = "Where the moved time leaves the order of the row's times."

VALUES: Final[tuple[Corruption, ...]] = (
    Corruption(
        name="a millisecond",
        how="data",
        plant=sql(
            "UPDATE scheduler.schedules SET updated_at = updated_at + interval '1 ms' WHERE id = (SELECT s.id FROM"
            " scheduler.schedules AS s WHERE EXISTS (SELECT FROM scheduler.schedules WHERE tenant_id = s.tenant_id AND"
            " updated_at > s.updated_at + interval '1 s') ORDER BY s.id LIMIT 1)"
        ),
        yes=("parity.rows",),
        sometimes={"parity.aggregates": _EDGE},
    ),
    Corruption(
        name="a microsecond",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET created_at = created_at + interval '1 us'"
            " WHERE id = (SELECT id FROM scheduler.runs WHERE schedule_id IS NULL ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows",),
    ),
    Corruption(
        name="an hour, as a zone shifts",
        how="data",
        plant=sql(
            "UPDATE scheduler.policy_jobs SET created_at = created_at + interval '1 hour' WHERE id = (SELECT s.id FROM"
            " scheduler.policy_jobs AS s WHERE EXISTS (SELECT FROM scheduler.policy_jobs WHERE tenant_id = s.tenant_id"
            " AND created_at > s.created_at + interval '1 day') AND EXISTS (SELECT FROM scheduler.policy_jobs WHERE"
            " tenant_id = s.tenant_id AND created_at < s.created_at) ORDER BY s.id LIMIT 1)"
        ),
        yes=("parity.rows",),
        sometimes={"parity.aggregates": _EDGE, "meaning.history": _ORDER},
    ),
    Corruption(
        name="the offset of a time is lost",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET extra = extra - 'createdAt' WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE extra ? 'createdAt' ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows",),
    ),
    Corruption(
        name="the last place of a double",
        how="data",
        plant=sql(
            "UPDATE scheduler.policy_jobs SET stats = jsonb_set(stats, '{durationSeconds}',"
            " to_jsonb(((stats ->> 'durationSeconds') || '00000000000001')::numeric)) WHERE id = (SELECT id FROM"
            " scheduler.policy_jobs WHERE stats ->> 'durationSeconds' LIKE '%.%' ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows",),
        note="Sums of fractions are compared to nine digits, so the aggregates do not see it.",
    ),
    Corruption(
        name="an int became a double",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET stats = jsonb_set(stats, '{queued}', ((stats ->> 'queued') || '.0')::jsonb)"
            " WHERE id = (SELECT id FROM scheduler.runs WHERE stats ? 'queued' ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows",),
    ),
    Corruption(
        name="an int64 became an int32",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET extra = extra - 'stats.candidates'"
            " WHERE id = (SELECT id FROM scheduler.runs WHERE extra -> 'stats.candidates' ? '$long'"
            " ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.losses"),
    ),
    Corruption(
        name="a number changed",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET stats = jsonb_set(stats, '{queued}', '987654')"
            " WHERE id = (SELECT id FROM scheduler.runs WHERE stats ? 'queued' ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.aggregates"),
    ),
    Corruption(
        name="null became absent",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET extra = extra - '+error' WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE extra @> '{\"+error\": null}' ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows",),
    ),
    Corruption(
        name="null became empty",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET error = '' WHERE id = (SELECT id FROM scheduler.runs WHERE error IS NULL"
            " ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.columns"),
    ),
    Corruption(
        name="an empty list became null",
        how="data",
        plant=sql(
            "UPDATE scheduler.schedules SET subscribers = NULL WHERE id = (SELECT id FROM scheduler.schedules"
            " WHERE subscribers = '{}' ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.columns"),
    ),
    Corruption(
        name="a NUL was lost",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET extra = extra - 'error' WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE extra -> 'error' ? '$text' ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.losses"),
    ),
    Corruption(
        name="another Unicode form",
        how="data",
        plant=sql(
            "UPDATE scheduler.audit SET tenant_id = normalize(tenant_id, NFD) WHERE id = (SELECT id FROM"
            " scheduler.audit WHERE tenant_id <> normalize(tenant_id, NFD) ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.aggregates", "parity.columns"),
    ),
    Corruption(
        name="another letter case",
        how="data",
        plant=sql(
            "UPDATE scheduler.schedules SET name = upper(name) WHERE id = (SELECT id FROM scheduler.schedules"
            " WHERE name <> upper(name) ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows",),
    ),
    Corruption(
        name="a space at the end",
        how="data",
        plant=sql(
            "UPDATE scheduler.schedules SET name = name || ' ' WHERE id = (SELECT id FROM scheduler.schedules"
            " ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.columns"),
    ),
    Corruption(
        name="a text was cut",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET error = left(error, 7) WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE length(error) > 8 ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.columns"),
    ),
    Corruption(
        name="UTF-8 was read as Latin-1",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET error = convert_from(convert_to(error, 'UTF8'), 'LATIN1') WHERE id = (SELECT id"
            " FROM scheduler.runs WHERE octet_length(error) > length(error) ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.columns"),
    ),
    Corruption(
        name="a list in another order",
        how="data",
        plant=sql(
            "UPDATE scheduler.schedules SET subscribers = ARRAY(SELECT one FROM unnest(subscribers) AS one"
            " ORDER BY one DESC) WHERE id = (SELECT id FROM scheduler.schedules WHERE cardinality(subscribers) > 1"
            " ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows",),
    ),
    Corruption(
        name="a key is lost",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET stats = stats - 'candidates' WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE stats ->> 'candidates' > '0' ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.aggregates"),
    ),
    Corruption(
        name="a key too many",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET stats = stats || '{\"ghost\": 1}' WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE stats IS NOT NULL ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows",),
    ),
    Corruption(
        name="a key renamed",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET stats = stats - 'candidates' || jsonb_build_object('Candidates', stats ->"
            " 'candidates') WHERE id = (SELECT id FROM scheduler.runs WHERE stats ->> 'candidates' > '0' ORDER BY id"
            " LIMIT 1)"
        ),
        yes=("parity.rows", "parity.aggregates"),
    ),
    Corruption(
        name="a residue was emptied",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET extra = '{}' WHERE id = (SELECT id FROM scheduler.runs WHERE extra <> '{}'"
            " ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows",),
    ),
    Corruption(
        name="a residue was changed",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET extra = extra || '{\"+ghost\": 1}' WHERE id = (SELECT id FROM scheduler.runs"
            " ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows",),
    ),
    Corruption(
        name="another state",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET state = 'error' WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE state = 'completed' AND schedule_id IS NULL ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.aggregates"),
        sometimes={
            "meaning.summaries": "Where the schedule has a summary.",
            "meaning.history": "Where the other state does not go with the row's times.",
        },
    ),
    Corruption(
        name="a state that does not go with its times",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET state = 'queued' WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE state = 'completed' AND schedule_id IS NULL ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.aggregates", "meaning.history"),
        faults=("one_time marked completed before running", "cancel overwritten by late failure"),
    ),
    Corruption(
        name="the priority was overwritten with the default",
        how="data",
        plant=sql(
            "UPDATE scheduler.schedules SET priority = 50 WHERE id = (SELECT id FROM scheduler.schedules"
            " WHERE priority IS DISTINCT FROM 50 ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.columns"),
        faults=("default priority overwritten",),
    ),
    Corruption(
        name="a negative duration",
        how="data",
        plant=sql(
            "ALTER TABLE scheduler.runs DROP CONSTRAINT ck_runs_duration_ms",
            "UPDATE scheduler.runs SET duration_ms = -duration_ms WHERE id = (SELECT id FROM scheduler.runs"
            " WHERE duration_ms > 0 ORDER BY id LIMIT 1)",
        ),
        yes=("parity.rows", "meaning.history"),
    ),
    Corruption(
        name="a duration in whole seconds",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET duration_ms = duration_ms / 1000 * 1000 WHERE id = (SELECT id FROM"
            " scheduler.runs WHERE duration_ms % 1000 > 0 ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "meaning.history"),
        faults=("duration truncated",),
    ),
    Corruption(
        name="a run before its slot",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET scheduled_at = started_at + interval '1 s' WHERE id = (SELECT id FROM"
            " scheduler.runs WHERE started_at IS NOT NULL AND trigger_id IS NULL ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "meaning.history", "parity.columns"),
    ),
    Corruption(
        name="statistics that decreased below zero",
        how="data",
        plant=sql(
            "UPDATE scheduler.runs SET stats = jsonb_set(stats, '{queued}', '-1') WHERE id = (SELECT id FROM"
            " scheduler.runs WHERE stats ->> 'queued' > '0' ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.aggregates", "meaning.history"),
    ),
    Corruption(
        name="a graph job's column against its payload",
        how="data",
        plant=sql(
            "UPDATE scheduler.graph_jobs SET status = (status + 1) % 6 WHERE id = (SELECT id FROM scheduler.graph_jobs"
            " ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.aggregates", "meaning.history"),
    ),
    Corruption(
        name="a graph job's payload was changed",
        how="data",
        plant=sql(
            "UPDATE scheduler.graph_jobs SET payload = jsonb_set(payload, '{attempts}', '77') WHERE id ="
            " (SELECT id FROM scheduler.graph_jobs ORDER BY id LIMIT 1)"
        ),
        yes=("parity.rows", "parity.aggregates"),
    ),
)
