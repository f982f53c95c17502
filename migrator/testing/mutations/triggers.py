"""Mutations of what makes schedules fire, and of what counts their runs."""

from collections.abc import Mapping
from typing import Any, Final, LiteralString

from migrator.testing.mutations.mutation import (
    Apply,
    Mutation,
    NoMaterial,
    ScratchCopy,
    Sql,
    Undo,
    data,
    delete_first,
    update_first,
)
from migrator.values import jsonb

_LIVE: Final = (
    "t.enabled AND EXISTS (SELECT FROM scheduler.schedules AS s WHERE s.id = t.schedule_id AND s.enabled"
    " AND s.status = 'scheduled' AND s.deleted_at IS NULL)"
)
"""A trigger ``t`` that will fire."""
_BOTH_DAYS: Final = "0 9 13 * 5"
"""On the 13th and on Fridays, or on Friday the 13th: the dialects do not agree."""
_ONLY_TRIGGER = (
    "t.kind = 'cron' AND NOT EXISTS (SELECT FROM scheduler.triggers AS other WHERE other.schedule_id = t.schedule_id"
    " AND other.id <> t.id)"
)
_ADDED_UP: Final = {"parity.aggregates": "Where the source has triggers of its own: their fires are added up."}


def _on(changes: LiteralString, condition: LiteralString = "true") -> Apply:
    """Change the first living trigger that fulfils the condition."""
    return update_first("scheduler.triggers", changes, f"{_LIVE} AND {condition}")


def _on_schedule(changes: LiteralString) -> Apply:
    """Change the schedule of the first living trigger with a cron line."""
    return Sql(
        f"UPDATE scheduler.schedules SET {changes} WHERE id = (SELECT t.schedule_id FROM scheduler.triggers AS t"  # noqa: S608 - texts of this module
        f" WHERE {_LIVE} AND t.kind = 'cron' ORDER BY t.id LIMIT 1)"
    )


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
    return lambda: _put_back(schedules, before)


def _put_back(schedules: Any, before: Mapping[str, Any] | None) -> None:  # noqa: ANN401 - a collection of the driver
    if before is not None:
        schedules.replace_one({"_id": before["_id"]}, before)


TRIGGER_MUTATIONS: Final[tuple[Mutation, ...]] = (
    data(
        "an interval doubled",
        _on("interval_ms = interval_ms * 2", "t.kind = 'interval'"),
        "parity.rows semantics.fires",
        faults=("interval unit doubled",),
    ),
    data(
        "a weekday shifted by one",
        _on("cron_expression = replace(cron_expression, '* * 1', '* * 2')", "t.cron_expression LIKE '%* * 1%'"),
        "parity.rows semantics.fires",
        faults=("weekday shifted by one",),
    ),
    data(
        "a cron line became an interval of 60 minutes",
        _on(
            "kind = 'interval', interval_ms = 3600000, anchor = 'fixed_rate',"
            " cron_expression = NULL, cron_dialect = NULL",
            "t.kind = 'cron' AND t.cron_expression NOT LIKE '0 * %'",
        ),
        "parity.rows semantics.fires",
        faults=("complex cron turned into 60 min",),
    ),
    data(
        "day fields joined by the other word",
        _day_fields,
        "parity.rows semantics.fires",
        faults=("dom/dow AND vs OR",),
    ),
    data(
        "a local time read as UTC",
        _on("timezone = 'UTC'", "t.timezone <> 'UTC' AND t.cron_expression NOT LIKE '*/%'"),
        "parity.rows semantics.fires",
        faults=("naive local time read as UTC",),
    ),
    data(
        "a zone of the same offset, without its changes of the clock",
        _on("timezone = 'Etc/GMT-1'", "t.timezone = 'Europe/Berlin' AND t.cron_expression NOT LIKE '*/%'"),
        "parity.rows semantics.fires",
    ),
    data(
        "a trigger is lost",
        delete_first(
            "scheduler.triggers",
            f"{_LIVE} AND NOT EXISTS (SELECT FROM scheduler.runs WHERE trigger_id = t.id) AND {_ONLY_TRIGGER}",
        ),
        "parity.documents semantics.fires semantics.scheduled",
        faults=("job silently not scheduled (missing interval keys / WHERE false)",),
    ),
    data(
        "a trigger was disabled",
        _on("enabled = false", _ONLY_TRIGGER),
        "parity.rows semantics.fires semantics.scheduled",
    ),
    data("a schedule was paused", _on_schedule("status = 'paused'"), "parity.rows semantics.fires"),
    data(
        "a disabled schedule fires",
        Sql(
            "WITH one AS (SELECT s.id FROM scheduler.triggers AS t JOIN scheduler.schedules AS s ON s.id ="
            " t.schedule_id WHERE NOT s.enabled AND s.deleted_at IS NULL AND t.kind = 'cron' ORDER BY t.id LIMIT 1),"
            " woken AS (UPDATE scheduler.triggers SET enabled = true WHERE schedule_id IN (SELECT id FROM one))"
            " UPDATE scheduler.schedules SET enabled = true, status = 'scheduled' WHERE id IN (SELECT id FROM one)"
        ),
        "parity.rows parity.aggregates semantics.fires",
        faults=("disabled job keeps firing",),
    ),
    data("a wrong boolean", _on_schedule("enabled = false"), "parity.rows parity.aggregates semantics.fires"),
    data(
        "a next fire was pushed",
        _on("next_fire_at = '2027-03-01 12:34:56+00'", "t.kind = 'cron'"),
        "parity.rows semantics.scheduled",
        faults=("next fire pushed by unrelated update",),
    ),
    data(
        "a trigger fired once too often",
        _on("max_fires = 1, fire_count = 2"),
        "parity.rows semantics.counters",
        sometimes_by=_ADDED_UP,
        faults=("max_executions+1",),
    ),
    data(
        "a counter that no rows back",
        _on("fire_count = 9"),
        "parity.rows semantics.counters",
        sometimes_by=_ADDED_UP,
        faults=("counters not backed by rows",),
    ),
    data(
        "a summary that counts more than there is",
        update_first(
            "scheduler.run_summaries",
            "counters = jsonb_set(counters, '{total}', to_jsonb((counters ->> 'total')::int + 5))",
            "t.counters ? 'total'",
        ),
        "parity.rows parity.aggregates semantics.summaries",
    ),
    data(
        "a summary whose latest run is another",
        update_first(
            "scheduler.run_summaries",
            "last_run = jsonb_set(last_run, '{runId}', '\"run_another\"')",
            "t.last_run ? 'runId'",
        ),
        "parity.rows semantics.summaries",
    ),
)
