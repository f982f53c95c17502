"""Running runs whose time is over: by the index of leases, and by the schedules that have a timeout."""

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from migrator.records.run import Run
from migrator.records.schedule import Schedule
from migrator.sources.stellaops import ids, names
from migrator.store import lives
from migrator.store.mongo.indexes import RUNNING
from migrator.store.mongo.many import Many, Wanted
from migrator.store.mongo.ranking import served
from migrator.store.mongo.repository import Stored, Strangers
from migrator.store.mongo.transaction import Transaction
from migrator.store.work import Claim
from migrator.values.times import to_bson

_PAGE = 1_000


class Over:
    """One search, outside any transaction: what it finds is asked again when it is ended."""

    def __init__(
        self,
        transaction: Transaction,
        strangers: Strangers,
        now: datetime,
        tenants: Sequence[str] | None,
        workers: Sequence[str] | None,
    ) -> None:
        """``workers``: only runs that one of these holds under a fence; none: whoever holds them."""
        self._transaction, self._now = transaction, now
        self._running: dict[str, Any] = {"state": "running", **served(tenants)}
        if workers is not None:
            self._running |= {"workerId": {"$in": [*workers]}, "fence": {"$ne": None}}
        self._runs = Many(Run, transaction, strangers, now)
        self._schedules = Many(Schedule, transaction, strangers, now)
        self._shelf: dict[Wanted, Schedule | None] = {}

    def first(self, limit: int) -> Sequence[Claim]:
        """Return so many of them, or as many as there are, by the lease's end (none last), then id."""
        lease = self._running | {"leaseExpiresAt": {"$lte": to_bson(self._now)}}
        by_lease = self._runs.matching(lease, sort=(("leaseExpiresAt", 1), ("_id", 1)), hint=RUNNING)
        rows = {one.row.id: one for one in islice(by_lease, limit)}
        rows |= self._by_timeout()
        ordered = sorted(rows.values(), key=lambda one: _by_lease_end(one.row))[:limit]
        self._learn({wanted: one.document.get("scheduleId") for one in ordered if (wanted := _wanted(one.row))})
        claims = [Claim(run=one.row, schedule=self._schedule(one.row)) for one in ordered]
        return [one for one in claims if lives.is_over(one.run, one.schedule, self._now)]

    def _by_timeout(self) -> dict[UUID, Stored[Run]]:
        """Return the running runs that run longer than their schedule allows; there are as many as workers hold."""
        if not self._transaction.distinct(names.SCHEDULES, "timeoutMs", {"timeoutMs": {"$gte": 0}}):
            return {}
        page: list[tuple[Any, Wanted, str]] = []
        found: dict[UUID, Stored[Run]] = {}
        started = self._running | {"startedAt": {"$ne": None}, "scheduleId": {"$ne": None}}
        for one in self._transaction.project(names.RUNS, started, ["tenantId", "scheduleId"], hint=RUNNING):
            tenant, text = one.get("tenantId"), one["scheduleId"]
            if isinstance(tenant, str) and isinstance(text, str):
                page.append((one["_id"], (tenant, ids.schedule_id(tenant, text)), text))
            if len(page) == _PAGE:
                found |= self._limited(page)
                page = []
        return found | self._limited(page)

    def _limited(self, page: Sequence[tuple[Any, Wanted, str]]) -> dict[UUID, Stored[Run]]:
        self._learn({wanted: text for _, wanted, text in page})
        keys = []
        for key, wanted, _ in page:
            schedule = self._shelf[wanted]
            if schedule is not None and schedule.timeout_ms is not None:
                keys.append(key)
        read = self._runs.at(keys, {"state": "running"}).values()
        return {one.row.id: one for one in read if lives.is_over(one.row, self._schedule(one.row), self._now)}

    def _learn(self, texts: dict[Wanted, Any]) -> None:
        new = {wanted: text for wanted, text in texts.items() if wanted not in self._shelf}
        found = self._schedules.found(new, shared=True, hints={text for text in new.values() if text is not None})
        self._shelf |= {wanted: found[wanted].row if wanted in found else None for wanted in new}

    def _schedule(self, run: Run) -> Schedule | None:
        wanted = _wanted(run)
        return None if wanted is None else self._shelf.get(wanted)


def _wanted(run: Run) -> Wanted | None:
    return None if run.schedule_id is None else (run.tenant_id, run.schedule_id)


def _by_lease_end(run: Run) -> tuple[Any, ...]:
    ends = run.lease_expires_at
    return (ends is None, run.id) if ends is None else (False, ends, run.id)
