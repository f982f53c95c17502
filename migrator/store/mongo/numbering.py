"""Run numbers: one more than a schedule ever had, also after retention removed its newest runs.

The counter is ``lives.LAST_NUMBER``, a member of the schedule's summary. Who numbers runs of one schedule at the same
time writes the same document, and one of them is told ``ConflictError``.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from migrator.records.run_summary import RunSummary
from migrator.records.schedule import Schedule
from migrator.sources.stellaops import names
from migrator.store import lives
from migrator.store.mongo.repository import Repository, Stored, Strangers
from migrator.store.mongo.transaction import Transaction
from migrator.values import jsonb


class Numbering(Repository[RunSummary]):
    """The counters of a tenant's schedules."""

    def __init__(self, transaction: Transaction, strangers: Strangers, tenant: str, now: datetime) -> None:
        super().__init__(RunSummary, transaction, strangers, tenant, now)

    def summary(self, schedule_id: UUID) -> Stored[RunSummary] | None:
        """Return the summary of a schedule."""
        return next(self._each({"scheduleId": self._refers(Schedule, schedule_id)}), None)

    def next(self, schedule_id: UUID) -> int:
        """Return the number of the next run; it is taken by ``take`` only."""
        texts = self._texts(Schedule, schedule_id)
        return max(lives_number(self.summary(schedule_id)), self._highest(texts)) + 1

    def last(self, schedule_id: UUID) -> int:
        """Return the highest number that the schedule ever had; 0 where it has had none."""
        return self.next(schedule_id) - 1

    def take(self, schedule_id: UUID, number: int) -> None:
        """Store the number as the last one given."""
        stored = self.summary(schedule_id)
        if stored is None:
            made = RunSummary(
                id=lives.summary_id(self._tenant, schedule_id),
                tenant_id=self._tenant,
                schedule_id=schedule_id,
                updated_at=self._now,
                counters=jsonb.encode({lives.LAST_NUMBER: number}),
            )
            self._insert(made, summary_key(self._tenant, schedule_id))
            return
        self._replace(stored, numbered(stored, number))

    def store(self, summary: RunSummary, stored: Stored[RunSummary] | None) -> RunSummary:
        """Store a summary that was computed, over the one that there is."""
        if stored is None:
            return self._insert(summary, summary_key(self._tenant, _required(summary.schedule_id)))
        return self._replace(stored, msgspec.structs.replace(summary, extra=stored.row.extra))

    def _highest(self, texts: Sequence[str]) -> int:
        highest = 0
        for text in texts:  # one by one: the index gives the highest of each without reading the others
            where = {"scheduleId": text, "runNumber": {"$exists": True}}
            for one in self._transaction.project(names.RUNS, where, ["runNumber"], sort=[("runNumber", -1)], limit=1):
                highest = max(highest, lives.whole(one["runNumber"]))
        return highest


def summary_key(tenant: str, schedule_id: UUID) -> str:
    """Return the ``_id`` of a summary born here."""
    return f"{tenant}:{names.SCHEDULE_PREFIX}{schedule_id.hex}"


def numbered(stored: Stored[RunSummary], number: int) -> RunSummary:
    """Return a summary whose counter stands at this number."""
    counters = _counters(stored) | {lives.LAST_NUMBER: number}
    return msgspec.structs.replace(stored.row, counters=jsonb.encode(counters))


def lives_number(stored: Stored[RunSummary] | None) -> int:
    """Return the counter of a summary, 0 where there is none."""
    return 0 if stored is None else lives.whole(_counters(stored).get(lives.LAST_NUMBER))


def _counters(stored: Stored[RunSummary]) -> dict[str, Any]:
    counters: Any = None if stored.row.counters is None else jsonb.decode(stored.row.counters)
    return counters if isinstance(counters, dict) else {}


def _required(schedule_id: UUID | None) -> UUID:
    assert schedule_id is not None  # noqa: S101 - computed for a schedule
    return schedule_id
