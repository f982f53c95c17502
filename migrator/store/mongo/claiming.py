"""Claiming: queued runs become a worker's, each one's only.

What comes first is read outside the transaction, and asked again inside it, where only the documents that are taken are
written: two claims meet for a moment only. Who meets another one goes on behind the runs that it wanted, which is what
PostgreSQL's SKIP LOCKED does.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from migrator.records.run import Run
from migrator.records.schedule import Schedule
from migrator.sources.profile import Document
from migrator.sources.shapes import instant
from migrator.sources.stellaops import names
from migrator.store import lives
from migrator.store.mongo.atomic import Overtaken, atomically
from migrator.store.mongo.client import Source, speaking_of
from migrator.store.mongo.many import Many, counted
from migrator.store.mongo.ranking import Candidate, Ranking, Stream, Waiting
from migrator.store.mongo.repository import Stored, Strangers
from migrator.store.mongo.transaction import WHAT, Change, Transaction, pause
from migrator.store.work import Claim, HandlerFilter, is_served
from migrator.values.times import format_iso, to_bson

_ROUNDS = 5
_WIDEST_OFFSET = timedelta(hours=24)
"""A createdAt that another application spelled with an offset may read later than it is by so much."""


def waiting_runs(now: datetime) -> Waiting:
    """Return what is queued and available: since ``availableAt``, else since ``createdAt``, which is a text."""
    latest = format_iso(min(now, datetime.max.replace(tzinfo=now.tzinfo) - _WIDEST_OFFSET) + _WIDEST_OFFSET)
    return Waiting(
        record=Run,
        streams=(
            Stream(
                where={"state": "queued", "availableAt": {"$lte": to_bson(now)}},
                order=(("availableAt", 1), ("_id", 1)),
            ),
            Stream(
                where={"state": "queued", "availableAt": None, "createdAt": {"$not": {"$gt": latest}}},
                order=(("createdAt", 1), ("_id", 1)),
            ),
        ),
        since=_since,
        fields=("availableAt", "createdAt"),
    )


def _since(document: Document) -> datetime:
    stated = document.get("availableAt")
    return instant(document.get("createdAt") if stated is None else stated, "createdAt")


class Claiming:
    """One call of ``Queue.claim``."""

    def __init__(
        self,
        database: Source,
        strangers: Strangers,
        now: datetime,
        *,
        worker_id: str,
        until: datetime,
        queues: Sequence[str] | None,
        handlers: HandlerFilter | None,
        tenants: Sequence[str] | None,
    ) -> None:
        self._database, self._strangers, self._now = database, strangers, now
        self._worker, self._until, self._tenants = worker_id, until, tenants
        self._queues, self._handlers = queues, handlers

    def take(self, limit: int) -> Sequence[Claim]:
        """Take what comes first; fewer where others took some of it at the same moment."""
        for attempt in range(_ROUNDS):
            claims, overtaken = self._round(limit)
            if claims or not overtaken:
                return claims
            pause(attempt)  # all that was left was wanted by others, who may have failed to take it
        return []

    def _round(self, limit: int) -> tuple[Sequence[Claim], bool]:
        overtaken = False
        with speaking_of(WHAT), self._database.client.start_session() as session:
            ranking = Ranking(
                Transaction(self._database, session),
                self._strangers,
                self._now,
                waiting_runs(self._now),
                fits=self._may,
                bounded=True,
                tenants=self._tenants,
            )
            while candidates := ranking.first(limit):
                candidates = [one for one in candidates if one.since <= self._now]
                try:
                    if claims := self._claim(candidates):
                        return claims, overtaken
                except Overtaken:
                    overtaken = True
        return [], overtaken

    def _may(self, schedule: Schedule | None) -> bool:
        """Tell whether a schedule's runs may be claimed at all."""
        if schedule is not None and (
            not schedule.enabled or schedule.status == "paused" or schedule.deleted_at is not None
        ):
            return False
        return is_served(schedule, self._queues, self._handlers)

    def _claim(self, candidates: Sequence[Candidate]) -> Sequence[Claim]:
        return atomically(self._database, lambda transaction: self._write(transaction, candidates))

    def _write(self, transaction: Transaction, candidates: Sequence[Candidate]) -> Sequence[Claim]:
        runs = Many(Run, transaction, self._strangers, self._now)
        schedules = Many(Schedule, transaction, self._strangers, self._now)
        texts = {one.schedule: one.text for one in candidates if one.schedule is not None}
        shelf = schedules.found(texts, shared=True, hints=set(texts.values()))
        room = self._room(transaction, shelf.values())
        found = runs.at([one.key for one in candidates], {"state": "queued"})
        claims: list[Claim] = []
        changes: list[Change] = []
        for one in candidates:
            stored = found.get(one.source_id)
            of = None if one.schedule is None else shelf.get(one.schedule)
            schedule = None if of is None else of.row
            if stored is None or not self._may(schedule):
                continue
            if schedule is not None and schedule.id in room:
                if room[schedule.id] <= 0:
                    continue
                room[schedule.id] -= 1
            row = lives.claimed_run(stored.row, self._worker, self._until, self._now)
            changes.append(runs.update(stored, row, proved=False))
            claims.append(Claim(run=row, schedule=schedule))
        if changes:
            transaction.write(names.RUNS, changes)
        return claims

    @staticmethod
    def _room(transaction: Transaction, shelf: Iterable[Stored[Schedule]]) -> dict[Any, int]:
        """Return how many more runs the schedules with a limit may have; nobody else claims of them meanwhile."""
        limited = {one.row.id: one for one in shelf if one.row.max_concurrency is not None}
        if not limited:
            return {}
        pass_gates(transaction, limited.values())
        running = counted(transaction, limited.values(), ("running",))
        return {identity: (one.row.max_concurrency or 0) - running[identity] for identity, one in limited.items()}


def pass_gates(transaction: Transaction, schedules: Iterable[Stored[Schedule]]) -> None:
    """Let one transaction at a time count the runs of these schedules and add to them; others are ``Overtaken``.

    The document that they all write is gone before anybody could see it.
    """
    gates = [f"~claim/{one.row.tenant_id}/{one.row.id.hex}" for one in schedules]
    gates.sort()
    made = [{"_id": key, "tenantId": one, "resource": key} for key, one in zip(gates, gates, strict=True)]
    transaction.insert(names.LOCKS, made)
    transaction.delete(names.LOCKS, {"_id": {"$in": gates}})
