"""Mutations of what makes schedules fire, and of what counts their runs."""

from collections.abc import Mapping
from typing import Any, Final, LiteralString

from migrator.values import jsonb
from migrator.verify.sensitivity.mutation import Apply, Mutation, NoMaterial, ScratchCopy, Undo, sql

_LIVE_TRIGGER = (
    "(SELECT t.id FROM scheduler.triggers AS t JOIN scheduler.schedules AS s ON s.id = t.schedule_id WHERE t.enabled"
    " AND s.enabled AND s.status = 'scheduled' AND s.deleted_at IS NULL AND "
)
_BOTH_DAYS: Final = "0 9 13 * 5"
"""On the 13th and on Fridays, or on Friday the 13th: the dialects do not agree."""
_ONLY_TRIGGER = (
    "t.kind = 'cron' AND NOT EXISTS (SELECT FROM scheduler.triggers AS other WHERE other.schedule_id = t.schedule_id"
    " AND other.id <> t.id)"
)


def _on(change: LiteralString, condition: LiteralString = "true") -> Apply:
    """Change the first living trigger that fulfils the condition."""
    return sql(f"UPDATE scheduler.triggers SET {change} WHERE id = {_LIVE_TRIGGER}{condition} ORDER BY t.id LIMIT 1)")  # noqa: S608 - texts of this module


def _lost(condition: LiteralString) -> Apply:
    return sql(f"DELETE FROM scheduler.triggers WHERE id = {_LIVE_TRIGGER}{condition} ORDER BY t.id LIMIT 1)")  # noqa: S608 - as above


def _day_fields(copy: ScratchCopy) -> Undo:
    """Give a schedule a line with both day fields, in its document and its rows; then swap the dialect."""
    row = copy.target.execute(
        "SELECT t.id, t.source_id, t.timezone FROM scheduler.triggers AS t JOIN scheduler.schedules AS s"
        " ON s.id = t.schedule_id WHERE t.enabled AND s.enabled AND s.deleted_at IS NULL"
        " AND t.source = 'stellaops/schedules' AND t.cron_dialect = 'cronos' AND t.source_spec ? 'cronExpression'"
        " AND t.source_spec ->> 'timezone' = t.timezone ORDER BY t.id LIMIT 1"
    ).fetchone()
    if row is None:
        raise NoMaterial
    trigger, key, zone = row
    schedules = copy.source[copy.settings.source.collections.get("schedules", "schedules")]
    before: Mapping[str, Any] | None = schedules.find_one_and_update(
        {"_id": key}, {"$set": {"cronExpression": _BOTH_DAYS}}
    )
    spec = jsonb.encode({"cronExpression": _BOTH_DAYS, "timezone": zone}).decode()
    copy.target.execute(
        "UPDATE scheduler.triggers SET cron_expression = %s, source_spec = %s::jsonb, cron_dialect = 'debian'"
        " WHERE id = %s",
        (_BOTH_DAYS, spec, trigger),
    )
    return lambda: _put_back(copy, key, before)


def _put_back(copy: ScratchCopy, key: str, before: Mapping[str, Any] | None) -> None:
    if before is not None:
        copy.source["schedules"].replace_one({"_id": key}, before)


TRIGGER_MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        name="an interval doubled",
        kind="data",
        apply=_on("interval_ms = interval_ms * 2", "t.kind = 'interval'"),
        caught_by=("parity.rows", "semantics.fires"),
        faults=("interval unit doubled",),
    ),
    Mutation(
        name="a weekday shifted by one",
        kind="data",
        apply=_on("cron_expression = replace(cron_expression, '* * 1', '* * 2')", "t.cron_expression LIKE '%* * 1%'"),
        caught_by=("parity.rows", "semantics.fires"),
        faults=("weekday shifted by one",),
    ),
    Mutation(
        name="a cron line became an interval of 60 minutes",
        kind="data",
        apply=_on(
            "kind = 'interval', interval_ms = 3600000, anchor = 'fixed_rate',"
            " cron_expression = NULL, cron_dialect = NULL",
            "t.kind = 'cron' AND t.cron_expression NOT LIKE '0 * %'",
        ),
        caught_by=("parity.rows", "semantics.fires"),
        faults=("complex cron turned into 60 min",),
    ),
    Mutation(
        name="day fields joined by the other word",
        kind="data",
        apply=_day_fields,
        caught_by=("parity.rows", "semantics.fires"),
        faults=("dom/dow AND vs OR",),
    ),
    Mutation(
        name="a local time read as UTC",
        kind="data",
        apply=_on("timezone = 'UTC'", "t.timezone <> 'UTC' AND t.cron_expression NOT LIKE '*/%'"),
        caught_by=("parity.rows", "semantics.fires"),
        faults=("naive local time read as UTC",),
    ),
    Mutation(
        name="a zone of the same offset, without its changes of the clock",
        kind="data",
        apply=_on("timezone = 'Etc/GMT-1'", "t.timezone = 'Europe/Berlin' AND t.cron_expression NOT LIKE '*/%'"),
        caught_by=("parity.rows", "semantics.fires"),
    ),
    Mutation(
        name="a trigger is lost",
        kind="data",
        apply=_lost("NOT EXISTS (SELECT FROM scheduler.runs WHERE trigger_id = t.id) AND " + _ONLY_TRIGGER),
        caught_by=("parity.documents", "semantics.fires", "semantics.scheduled"),
        faults=("job silently not scheduled (missing interval keys / WHERE false)",),
    ),
    Mutation(
        name="a trigger was disabled",
        kind="data",
        apply=_on("enabled = false", _ONLY_TRIGGER),
        caught_by=("parity.rows", "semantics.fires", "semantics.scheduled"),
    ),
    Mutation(
        name="a schedule was paused",
        kind="data",
        apply=sql(
            "UPDATE scheduler.schedules SET status = 'paused' WHERE id = (SELECT t.schedule_id FROM scheduler.triggers"
            " AS t JOIN scheduler.schedules AS s ON s.id = t.schedule_id WHERE t.enabled AND s.enabled AND"
            " s.status = 'scheduled' AND s.deleted_at IS NULL AND t.kind = 'cron' ORDER BY t.id LIMIT 1)"
        ),
        caught_by=("parity.rows", "semantics.fires"),
    ),
    Mutation(
        name="a disabled schedule fires",
        kind="data",
        apply=sql(
            "WITH one AS (SELECT s.id FROM scheduler.triggers AS t JOIN scheduler.schedules AS s ON s.id ="
            " t.schedule_id WHERE NOT s.enabled AND s.deleted_at IS NULL AND t.kind = 'cron' ORDER BY t.id LIMIT 1),"
            " woken AS (UPDATE scheduler.triggers SET enabled = true WHERE schedule_id IN (SELECT id FROM one))"
            " UPDATE scheduler.schedules SET enabled = true, status = 'scheduled' WHERE id IN (SELECT id FROM one)"
        ),
        caught_by=("parity.rows", "parity.aggregates", "semantics.fires"),
        faults=("disabled job keeps firing",),
    ),
    Mutation(
        name="a wrong boolean",
        kind="data",
        apply=sql(
            "UPDATE scheduler.schedules SET enabled = false WHERE id = (SELECT t.schedule_id FROM scheduler.triggers"
            " AS t JOIN scheduler.schedules AS s ON s.id = t.schedule_id WHERE t.enabled AND s.enabled AND"
            " s.status = 'scheduled' AND s.deleted_at IS NULL AND t.kind = 'cron' ORDER BY t.id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.aggregates", "semantics.fires"),
    ),
    Mutation(
        name="a next fire was pushed",
        kind="data",
        apply=_on("next_fire_at = '2027-03-01 12:34:56+00'", "t.kind = 'cron'"),
        caught_by=("parity.rows", "semantics.scheduled"),
        faults=("next fire pushed by unrelated update",),
    ),
    Mutation(
        name="a trigger fired once too often",
        kind="data",
        apply=_on("max_fires = 1, fire_count = 2", "true"),
        caught_by=("parity.rows", "semantics.counters"),
        sometimes_by={"parity.aggregates": "Where the source has triggers of its own: their fires are added up."},
        faults=("max_executions+1",),
    ),
    Mutation(
        name="a counter that no rows back",
        kind="data",
        apply=_on("fire_count = 9", "true"),
        caught_by=("parity.rows", "semantics.counters"),
        sometimes_by={"parity.aggregates": "Where the source has triggers of its own: their fires are added up."},
        faults=("counters not backed by rows",),
    ),
    Mutation(
        name="a summary that counts more than there is",
        kind="data",
        apply=sql(
            "UPDATE scheduler.run_summaries SET counters = jsonb_set(counters, '{total}', to_jsonb((counters ->>"
            " 'total')::int + 5)) WHERE id = (SELECT id FROM scheduler.run_summaries WHERE counters ? 'total'"
            " ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "parity.aggregates", "semantics.summaries"),
    ),
    Mutation(
        name="a summary whose latest run is another",
        kind="data",
        apply=sql(
            "UPDATE scheduler.run_summaries SET last_run = jsonb_set(last_run, '{runId}', '\"run_another\"') WHERE id ="
            " (SELECT id FROM scheduler.run_summaries WHERE last_run ? 'runId' ORDER BY id LIMIT 1)"
        ),
        caught_by=("parity.rows", "semantics.summaries"),
    ),
)
