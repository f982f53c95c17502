"""Run summaries in MongoDB."""

from collections import Counter
from datetime import datetime
from typing import Any
from uuid import UUID

from migrator.records.run import Run
from migrator.records.run_summary import RunSummary
from migrator.records.schedule import Schedule
from migrator.sources.stellaops import names
from migrator.store import lives, rules
from migrator.store.mongo.numbering import Numbering
from migrator.store.mongo.repository import Repository, Strangers
from migrator.store.mongo.runs import NEWEST
from migrator.store.mongo.transaction import Transaction


class MongoRunSummaries(Repository[RunSummary]):
    """``ports.RunSummaries``."""

    def __init__(self, transaction: Transaction, strangers: Strangers, tenant: str, now: datetime) -> None:
        super().__init__(RunSummary, transaction, strangers, tenant, now)
        self._numbering = Numbering(transaction, strangers, tenant, now)
        self._runs = self._of(Run)

    def get(self, schedule_id: UUID) -> RunSummary | None:
        """Return a schedule's summary."""
        stored = self._numbering.summary(schedule_id)
        return None if stored is None else stored.row

    def recompute(self, schedule_id: UUID, recent: int = 20) -> RunSummary:
        """Compute it from the runs, and store it (``lives.summary``); ``lastRunNumber`` never goes back."""
        rules.page(recent)
        rules.own(self._tenant, self._tenant)
        where = {"scheduleId": self._refers(Schedule, schedule_id)}
        newest = self._runs._rows(where, recent, sort=NEWEST)  # noqa: SLF001 - its own other half
        if not newest:
            self._require(Schedule, schedule_id, shared=True)
        stored = self._numbering.summary(schedule_id)
        counts, totals = self._added_up({"tenantId": self._tenant} | where)
        summary = lives.summary(
            lives.summary_id(self._tenant, schedule_id) if stored is None else stored.row.id,
            self._tenant,
            schedule_id,
            counts=counts,
            totals=totals,
            newest=newest,
            last_number=self._numbering.last(schedule_id),
            now=self._now,
        )
        return self._numbering.store(summary, stored)

    def _added_up(self, where: dict[str, Any]) -> tuple[Counter[str], Counter[str]]:
        """Return runs by state, and the sums of the whole numbers in their stats."""
        group: dict[str, Any] = {"_id": "$state", "runs": {"$sum": 1}}
        for member in lives.TOTALS:
            field = f"$stats.{member}"
            group[member] = {"$sum": {"$cond": [{"$in": [{"$type": field}, ["int", "long"]]}, field, 0]}}
        counts: Counter[str] = Counter()
        totals: Counter[str] = Counter()
        for row in self._transaction.aggregate(names.RUNS, [{"$match": where}, {"$group": group}]):
            counts[names.RUN_STATES.get(row["_id"], "")] += row["runs"]
            totals.update({member: int(row[member]) for member in lives.TOTALS})
        return counts, totals
