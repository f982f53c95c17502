"""Run summaries, added up again from the runs: by SQL in the target, and by an aggregation pipeline in the source.

A summary may be wrong already in the source (``stale``, or counting runs that are in quarantine). That is explained if
the target's runs add up to the same as the source's runs; else runs were lost or changed on the way.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, LiteralString

import msgspec

from migrator.connections.mongo import translate_errors
from migrator.connections.postgres import Connection
from migrator.store.transitions import TOTALS
from migrator.values import document as documents
from migrator.values.identity import id_filter
from migrator.verify.semantics.anomalies import NO_SOURCE, Anomalies, RowKey, SourceRows, batches, same_values

COLUMNS: Final = ("last_run", "recent", "counters")
_ALIASES: Final = {"canceled": "cancelled"}
_TOTALS: Final = ", ".join(
    f"coalesce(sum(CASE WHEN jsonb_typeof(stats -> '{member}') = 'number'"
    f" THEN trunc((stats ->> '{member}')::numeric) END), 0)::bigint"
    for member in TOTALS
)
_QUERY: LiteralString = (
    "WITH by_state AS (SELECT tenant_id, schedule_id, state, count(*) AS runs, max(created_at) AS newest,"  # noqa: S608 - names of this module's own
    f" ARRAY[{_TOTALS}] AS totals FROM scheduler.runs WHERE schedule_id IS NOT NULL GROUP BY 1, 2, 3),"
    " summed AS (SELECT tenant_id, schedule_id, jsonb_object_agg(state, runs) AS states, sum(runs)::bigint AS total,"
    " max(newest) AS newest,"
    + ", ".join(f" sum(totals[{place}])::bigint AS t{place}" for place in range(1, len(TOTALS) + 1))
    + " FROM by_state GROUP BY 1, 2)"
    " SELECT s.id, s.source, s.source_id, s.schedule_id, s.last_run::text, s.recent::text, s.counters::text,"
    " coalesce(r.states, '{}')::text, coalesce(r.total, 0), r.newest, "
    + ", ".join(f"coalesce(r.t{place}, 0)" for place in range(1, len(TOTALS) + 1))
    + " FROM scheduler.run_summaries AS s LEFT JOIN summed AS r USING (tenant_id, schedule_id) ORDER BY s.id"
)

TITLES: Final = {
    "count": ("a summary that counts other runs than there are", "recompute it; look for runs that were lost"),
    "total": ("a summary whose totals are not those of its runs", "recompute it; look for changed statistics"),
    "latest": ("a summary whose latest run is not the newest", "recompute it; look for runs that were lost"),
}


class Summary(msgspec.Struct):
    """A stored summary, and what its schedule's runs add up to."""

    key: RowKey
    schedule_id: object
    texts: tuple[str | None, str | None, str | None]
    states: dict[str, int]
    total: int
    totals: dict[str, int]

    def wrong(self) -> set[str]:
        """Return which of ``TITLES`` are true of it; a member that is not there claims nothing."""
        counters = msgspec.json.decode(self.texts[2]) if self.texts[2] else {}
        wrong = set()
        if not isinstance(counters, dict):
            return {"count"}
        claimed = {name: value for name, value in counters.items() if type(value) is int}
        counted = {"total": self.total, **{state: self.states.get(state, 0) for state in claimed if state in _STATES}}
        if any(name in claimed and claimed[name] != value for name, value in counted.items()):
            wrong.add("count")
        if any(name in claimed and claimed[name] != value for name, value in self.totals.items()):
            wrong.add("total")
        if self._first() != self._claimed_last():
            wrong.add("latest")
        return wrong

    def _first(self) -> object:
        recent = msgspec.json.decode(self.texts[1]) if self.texts[1] else None
        return _run_key(recent[0]) if isinstance(recent, list) and recent else None

    def _claimed_last(self) -> object:
        return _run_key(msgspec.json.decode(self.texts[0])) if self.texts[0] else None


_STATES: Final = frozenset({"planning", "queued", "running", "completed", "error", "cancelled", "timeout", "skipped"})


def _run_key(entry: object) -> object:
    return (entry.get("runId"), entry.get("createdAt")) if isinstance(entry, dict) else None


def recount(target: Connection, source: SourceRows | None, anomalies: Anomalies) -> int:
    """Add up every summary again; return how many there are."""
    done = 0
    for rows in batches(target, _QUERY):
        done += len(rows)
        judged = [(one, one.wrong()) for one in map(_summary, rows)]
        suspects = [(one, wrong) for one, wrong in judged if wrong]
        if suspects:
            _add_anomalies(suspects, source, anomalies)
    return done


def _summary(row: tuple[Any, ...]) -> Summary:
    return Summary(
        key=RowKey("run_summaries", row[0], row[1], row[2]),
        schedule_id=row[3],
        texts=(row[4], row[5], row[6]),
        states=msgspec.json.decode(row[7]),
        total=row[8],
        totals=dict(zip(TOTALS.values(), row[10:], strict=True)),
    )


def _add_anomalies(
    suspects: Sequence[tuple[Summary, set[str]]], source: SourceRows | None, anomalies: Anomalies
) -> None:
    source_rows = {} if source is None else source.rows(one.key for one, _ in suspects)
    counted = {} if source is None else _counted_at_source(source, [one for one, _ in suspects])
    for suspect, kinds in suspects:
        if source is None and suspect.key.source is not None:
            anomalies.add_doubt(NO_SOURCE)
            continue
        same = same_values(source_rows.get(suspect.key.row_id), COLUMNS, suspect.texts)
        runs = counted.get(str(suspect.key.source_id))
        # where the source's runs cannot be added up apart from decode, the summary's own document decides
        explained = same and (runs is None or runs == suspect.states)
        for kind in sorted(kinds):
            title, fix = TITLES[kind]
            anomalies.add(
                "explained" if explained else "difference",
                f"summary-{kind}",
                title,
                "the source's own summary says the same of the same runs" if explained else fix,
                key=suspect.key.source_id or str(suspect.key.id),
                table="run_summaries",
                path="counters" if kind != "latest" else "last_run",
            )


def _counted_at_source(source: SourceRows, suspects: Sequence[Summary]) -> Mapping[str, dict[str, int]]:
    """Return, by source id of the summary, its schedule's runs by state as the source's own pipeline counts them.

    Only where the summary names its schedule in the documented shape. Runs in quarantine are not counted, nor are those
    of another tenant: a run that names another tenant's schedule has none in the target.
    """
    if source.sessions.profile.name != "stellaops":
        return {}
    names = source.sessions.name_of
    ids = [one.key.source_id for one in suspects if one.key.source == "stellaops/run_summaries"]
    with translate_errors("the source"):
        database = source.sessions.source
        default = source.sessions.settings.source.default_tenant
        schedules: dict[str, tuple[Any, Any]] = {
            str(found["_id"]): (found.get("scheduleId"), found.get("tenantId", default))
            for found in documents.readable(
                database[names("run_summaries")].find_raw_batches(
                    {"_id": {"$in": ids}}, {"scheduleId": 1, "tenantId": 1}
                )
            )
        }
        schedules = {
            key: (schedule, tenant) for key, (schedule, tenant) in schedules.items() if _are_texts(schedule, tenant)
        }
        wanted = [schedule for schedule, _ in schedules.values()]
        states: dict[tuple[str, str], dict[str, int]] = {one: {} for one in schedules.values()}
        quarantined = source.quarantined("runs")
        for document in documents.readable(
            database[names("runs")].aggregate_raw_batches(
                [
                    {"$match": {"scheduleId": {"$in": wanted, "$type": "string"}, "state": {"$type": "string"}}},
                    *([{"$match": {"_id": id_filter(quarantined, "$nin")}}] if quarantined else []),
                    {
                        "$group": {
                            "_id": {
                                "schedule": "$scheduleId",
                                "state": "$state",
                                "tenant": {"$ifNull": ["$tenantId", default]},
                            },
                            "runs": {"$sum": 1},
                        }
                    },
                ],
                allowDiskUse=True,
            )
        ):
            state = document["_id"]["state"]
            by_state = states.get((document["_id"]["schedule"], document["_id"]["tenant"]), {})
            by_state[_ALIASES.get(state, state)] = by_state.get(_ALIASES.get(state, state), 0) + document["runs"]
    return {key: states[schedule] for key, schedule in schedules.items()}


def _are_texts(*values: object) -> bool:
    return all(isinstance(value, str) for value in values)
