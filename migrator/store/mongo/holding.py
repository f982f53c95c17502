"""Runs that a worker holds: kept, given back, ended; and those whose time is over.

Each write finds the documents, asks whether they are still held under the worker and fence, and writes them, in one
transaction: whoever cancels or reclaims one of them at the same moment comes before or after, never between.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from migrator.records.run import Run
from migrator.records.schedule import Schedule
from migrator.sources.stellaops import names
from migrator.store import lives, rules
from migrator.store.mongo.atomic import insistently
from migrator.store.mongo.client import Source, speaking_of
from migrator.store.mongo.many import Many, Wanted
from migrator.store.mongo.minting import Minting
from migrator.store.mongo.overdue import Over
from migrator.store.mongo.repository import Stored, Strangers
from migrator.store.mongo.transaction import WHAT, Change, Transaction
from migrator.store.work import Claim, Finish

_Held: TypeAlias = tuple[str, UUID, str | None, int]
"""Tenant, run, worker and fence."""


class Holding:
    """The calls of ``Queue`` about runs that are running."""

    def __init__(self, database: Source, strangers: Strangers, now: datetime) -> None:
        self._database, self._strangers, self._now = database, strangers, now

    def keep(self, claims: Sequence[Claim], lease: timedelta) -> Sequence[UUID]:
        """Extend the leases of those that are still held."""
        until = rules.milliseconds(self._now + lease)

        def kept(run: Run) -> Run:
            ends = max(until, run.lease_expires_at or until)
            return msgspec.structs.replace(run, lease_expires_at=ends, updated_at=self._now)

        return self._change([_held(claim) for claim in claims], kept)

    def give_back(self, claims: Sequence[Claim]) -> Sequence[UUID]:
        """Put those that are still held into the queue again."""
        return self._change([_held(claim) for claim in claims], lambda run: lives.released_run(run, self._now))

    def end(self, ends: Sequence[Finish], *, only_over: bool) -> Sequence[UUID]:
        """End those that are still held, and with ``only_over`` past their time."""
        for end in ends:
            rules.transition("run", "running", end.state)
            if end.schedule_status is not None:
                rules.transition("schedule", "running", end.schedule_status)

        def act(transaction: Transaction) -> Sequence[UUID]:
            return _Ending(transaction, self._strangers, self._now).end(ends, only_over=only_over)

        return insistently(self._database, act) if ends else []

    def over(self, limit: int, tenants: Sequence[str] | None, workers: Sequence[str] | None) -> Sequence[Claim]:
        """Return running runs whose lease or timeout is over, by the lease's end, then id."""
        with speaking_of(WHAT), self._database.client.start_session() as session:
            transaction = Transaction(self._database, session)
            return Over(transaction, self._strangers, self._now, tenants, workers).first(limit)

    def _change(self, held: Sequence[_Held], change: Callable[[Run], Run]) -> Sequence[UUID]:
        def act(transaction: Transaction) -> Sequence[UUID]:
            runs = Many(Run, transaction, self._strangers, self._now)
            changes: dict[UUID, Change] = {}
            for stored in _still(runs, held):
                row = rules.precise(rules.served(change(stored.row), stored.row.tenant_id), stored.row)
                changes[stored.row.id] = runs.update(stored, row, proved=False)
            if changes:
                transaction.write(names.RUNS, [*changes.values()])
            return [*changes]

        return insistently(self._database, act) if held else []


def _held(claim: Claim) -> _Held:
    return claim.run.tenant_id, claim.run.id, claim.run.worker_id, claim.fence


def _still(runs: Many[Run], held: Sequence[_Held]) -> Iterable[Stored[Run]]:
    found = runs.found({(tenant, identity) for tenant, identity, _, _ in held}, shared=False)
    for tenant, identity, worker, fence in dict.fromkeys(held):
        stored = found.get((tenant, identity))
        if stored is not None and lives.is_held(stored.row, worker, fence):
            yield stored


class _Ending:
    """Ends in one transaction, one after the other."""

    def __init__(self, transaction: Transaction, strangers: Strangers, now: datetime) -> None:
        self._transaction, self._now = transaction, now
        self._runs = Many(Run, transaction, strangers, now)
        self._schedules = Many(Schedule, transaction, strangers, now)
        self._minting = Minting(transaction, strangers, now)

    def end(self, ends: Sequence[Finish], *, only_over: bool) -> Sequence[UUID]:
        """Write what ends, and what follows from it."""
        held = [(one.tenant_id, one.run_id, one.worker_id, one.fence) for one in ends]
        rows = {stored.row.id: stored for stored in _still(self._runs, held)}
        shelf = self._shelf(rows.values(), ends, only_over=only_over)
        changes: dict[UUID, Change] = {}
        status: dict[UUID, Schedule] = {}
        for end, (tenant, identity, worker, fence) in zip(ends, held, strict=True):
            stored = rows.get(identity)
            if stored is None or identity in changes or stored.row.tenant_id != tenant:
                continue
            of = shelf.get((tenant, stored.row.schedule_id)) if stored.row.schedule_id is not None else None
            over = not only_over or lives.is_over(stored.row, None if of is None else of.row, self._now)
            if not over or not lives.is_held(stored.row, worker, fence):
                continue
            row = rules.precise(rules.served(lives.ended_run(stored.row, end, self._now), tenant), stored.row)
            told = (end.result, end.error, end.error_detail) != (None, None, None)
            changes[identity] = self._runs.update(stored, row, proved=told)
            if end.retry is not None:
                retry = lives.retry_after(end.retry, stored.row)
                self._minting.add(retry, tenant, self._schedule_of(retry, shelf))
            if of is not None and end.schedule_status is not None:
                schedule = status.get(of.row.id, of.row)
                if schedule.deleted_at is None and schedule.status == "running":
                    status[of.row.id] = lives.with_status(schedule, end.schedule_status, self._now)
        if changes:
            self._transaction.write(names.RUNS, [*changes.values()])
        for of in {of.row.id: of for of in shelf.values()}.values():
            if of.row.id in status:
                self._schedules.replace(of, status[of.row.id])
        self._minting.insert()
        return [*changes]

    def _shelf(
        self, rows: Collection[Stored[Run]], ends: Sequence[Finish], *, only_over: bool
    ) -> dict[Wanted, Stored[Schedule]]:
        """Return the schedules that somebody asks about."""
        asking = {end.run_id for end in ends if end.schedule_status is not None}
        wanted: dict[Wanted, Any] = {}
        for stored in rows:
            if stored.row.schedule_id is not None and (only_over or stored.row.id in asking):
                wanted[stored.row.tenant_id, stored.row.schedule_id] = stored.document.get("scheduleId")
        for end in ends:
            if (
                end.retry is not None
                and end.retry.schedule_id is not None
                and end.run_id in {one.row.id for one in rows}
            ):
                wanted.setdefault((end.tenant_id, end.retry.schedule_id), None)
        hints = {text for text in wanted.values() if text is not None}
        return self._schedules.found(wanted, shared=True, hints=hints)

    @staticmethod
    def _schedule_of(run: Run, shelf: dict[Wanted, Stored[Schedule]]) -> Stored[Schedule] | None:
        return None if run.schedule_id is None else shelf.get((run.tenant_id, run.schedule_id))
