"""Statistics in MongoDB, counted by the server. Documents that cannot be read as rows are not counted as schedules."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from migrator import states
from migrator.records import Schedule, Trigger
from migrator.sources.store_documents import names
from migrator.store import validation
from migrator.store.mongo.repository import ForeignIds, Repository
from migrator.store.mongo.runs import MongoRuns, spellings
from migrator.store.mongo.schedules import ENABLED
from migrator.store.mongo.transaction import Transaction
from migrator.store.statistics import (
    PERCENTILES,
    Backlog,
    Durations,
    FailurePattern,
    NextFire,
    RunFilter,
    RunStatistics,
    ScheduleStatistics,
    rank,
)
from migrator.values.times import format_iso, to_bson

_LIVE = states.live(states.RUN)


def _date(field: str) -> dict[str, Any]:
    """Return a time, which the source writes as text, as a date."""
    return {"$convert": {"input": field, "to": "date", "onError": None, "onNull": None}}


_STARTED, _FINISHED, _CREATED = (_date(f"${field}") for field in ("startedAt", "finishedAt", "createdAt"))
_LASTED = {"$subtract": [_FINISHED, _STARTED]}
_AVAILABLE = {"$ifNull": [_date("$availableAt"), _CREATED]}


class MongoStatistics:
    """``statistics.Statistics``."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, tenant: str, now: datetime) -> None:
        self._transaction, self._tenant, self._now = transaction, tenant, now
        self._schedules = Repository(Schedule, transaction, foreign_ids, tenant, now)
        self._runs = MongoRuns(transaction, foreign_ids, tenant, now)
        self._triggers = Repository(Trigger, transaction, foreign_ids, tenant, now)

    def schedules(self) -> ScheduleStatistics:
        rows = [one.row for one in self._schedules._each({"deletedAt": None})]  # noqa: SLF001 - the same room
        found = Counter(row.status for row in rows)
        return ScheduleStatistics(
            by_status={status: found[status] for status in states.SCHEDULE}, enabled=sum(row.enabled for row in rows)
        )

    def runs(self, runs: RunFilter) -> RunStatistics:
        where = self._where(runs)
        counts: Counter[str] = Counter()
        last: dict[str, datetime | None] = {"started": None, "created": None}
        for group in self._counted(where):
            counts[names.RUN_STATES.get(group["_id"], "")] += group["runs"]
            for what, before in last.items():
                last[what] = max(filter(None, (before, _aware(group[what]))), default=None)
        return RunStatistics(
            by_state={state: counts[state] for state in states.RUN},
            durations=self._durations(where) if counts["completed"] else None,
            last_started_at=last["started"],
            last_created_at=last["created"],
        )

    def backlog(self) -> Backlog:
        ready = {"$and": [{"$eq": ["$state", "queued"]}, {"$lte": [_AVAILABLE, to_bson(self._now)]}]}
        group = {
            "_id": None,
            "queued": {"$sum": {"$cond": [{"$eq": ["$state", "queued"]}, 1, 0]}},
            "ready": {"$sum": {"$cond": [ready, 1, 0]}},
            "planning": {"$sum": {"$cond": [{"$eq": ["$state", "planning"]}, 1, 0]}},
            "running": {"$sum": {"$cond": [{"$eq": ["$state", "running"]}, 1, 0]}},
            "of": {"$addToSet": {"$cond": [{"$eq": ["$state", "running"]}, "$scheduleId", None]}},
            "oldest": {"$min": {"$cond": [ready, _AVAILABLE, None]}},
        }
        groups = self._aggregate({"tenantId": self._tenant, "state": {"$in": [*_LIVE]}}, {"$group": group})
        if not groups:
            return Backlog(ready=0, delayed=0, planning=0, running=0, running_schedules=0, oldest_ready_at=None)
        totals = groups[0]
        return Backlog(
            ready=totals["ready"],
            delayed=totals["queued"] - totals["ready"],
            planning=totals["planning"],
            running=totals["running"],
            running_schedules=len([key for key in totals["of"] if key is not None]),
            oldest_ready_at=_aware(totals["oldest"]),
        )

    def failures(self, runs: RunFilter, limit: int) -> Sequence[FailurePattern]:
        validation.check_page(limit)
        pattern = {"$arrayElemAt": [{"$split": ["$error", ":"]}, 0]}
        group = {
            "_id": {"$cond": [{"$eq": [{"$type": "$error"}, "string"]}, pattern, "$state"]},
            "runs": {"$sum": 1},
            "last": {"$max": {"$ifNull": [_FINISHED, _CREATED]}},
        }
        where = self._where(runs) | {"state": {"$in": [*states.RUN_FAILED]}}
        groups = self._aggregate(where, {"$group": group}, {"$sort": {"runs": -1, "_id": 1}}, {"$limit": limit})
        return [
            FailurePattern(pattern=one["_id"], count=one["runs"], last_at=one["last"].replace(tzinfo=UTC))
            for one in groups
        ]

    def hours(self, runs: RunFilter) -> Mapping[int, int]:
        group = {"_id": {"$hour": {"$ifNull": [_STARTED, _CREATED]}}, "runs": {"$sum": 1}}
        found = self._aggregate(self._where(runs), {"$group": group}, {"$sort": {"_id": 1}})
        return {one["_id"]: one["runs"] for one in found if one["_id"] is not None}

    def removable(self, keep: int, before: datetime) -> Mapping[UUID | None, int]:
        return Counter(run.schedule_id for run in self._runs.beyond(keep, before, sys.maxsize))

    def next_fires(self, limit: int) -> Sequence[NextFire]:
        validation.check_page(limit)
        where = {"nextFireAt": {"$ne": None}, "enabled": ENABLED}
        triggers = [one.row for one in self._triggers._each(where)]  # noqa: SLF001 - as above
        schedules = {one.row.id: one.row for one in self._schedules._each({"deletedAt": None})}  # noqa: SLF001 - as above
        fires = []
        for trigger in triggers:
            schedule = schedules.get(trigger.schedule_id)
            if (
                schedule is not None
                and schedule.enabled
                and schedule.status in states.SCHEDULE_FIRING
                and trigger.next_fire_at
            ):
                fires.append(
                    NextFire(
                        at=trigger.next_fire_at, schedule_id=schedule.id, trigger_id=trigger.id, name=schedule.name
                    )
                )
        return sorted(fires, key=lambda one: (one.at, one.trigger_id))[:limit]

    def _where(self, runs: RunFilter) -> dict[str, Any]:
        where: dict[str, Any] = {"tenantId": self._tenant}
        if runs.schedule_id is not None:
            where["scheduleId"] = self._schedules._refers(Schedule, runs.schedule_id)  # noqa: SLF001 - as above
        bounds = {"$gte": runs.since, "$lt": runs.until}
        if made := {sign: format_iso(at) for sign, at in bounds.items() if at is not None}:
            where["createdAt"] = made
        return where

    def _counted(self, where: Mapping[str, Any]) -> list[dict[str, Any]]:
        group = {"_id": "$state", "runs": {"$sum": 1}, "started": {"$max": _STARTED}, "created": {"$max": _CREATED}}
        return self._aggregate(where, {"$group": group})

    def _durations(self, where: Mapping[str, Any]) -> Durations | None:
        completed = ({"$set": {"lasted": _LASTED}}, {"$match": {"lasted": {"$gte": 0}}})
        where = {**where, "state": {"$in": spellings(["completed"])}}
        group = {
            "_id": None,
            "count": {"$sum": 1},
            "total": {"$sum": "$lasted"},
            "least": {"$min": "$lasted"},
            "most": {"$max": "$lasted"},
        }
        groups = self._aggregate(where, *completed, {"$group": group})
        if not groups:
            return None
        count = groups[0]["count"]
        ranks = [rank(percentile, count) for percentile in PERCENTILES]
        numbered = self._aggregate(
            where,
            *completed,
            {"$project": {"lasted": 1}},
            {"$setWindowFields": {"sortBy": {"lasted": 1}, "output": {"rank": {"$documentNumber": {}}}}},
            {"$match": {"rank": {"$in": ranks}}},
        )
        at = {one["rank"]: int(one["lasted"]) for one in numbered}
        p50, p95, p99 = (at[place] for place in ranks)
        del groups[0]["_id"]
        return Durations(**{name: int(value) for name, value in groups[0].items()}, p50=p50, p95=p95, p99=p99)

    def _aggregate(self, where: Mapping[str, Any], *stages: Mapping[str, Any]) -> list[dict[str, Any]]:
        return self._transaction.aggregate(names.RUNS, [{"$match": where}, *stages])


def _aware(at: datetime | None) -> datetime | None:
    return None if at is None else at.replace(tzinfo=UTC)
