"""The queue in MongoDB: firing, claiming, and renewing, releasing and ending runs that are held, across tenants.

Candidates are read first, without a lock. A run is then taken by one atomic update of its document, which finds out
whether it is still queued. One that another process took is skipped, as PostgreSQL does with SKIP LOCKED. Runs of
schedules with a limit are counted and taken in a transaction, one at a time for each schedule.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec
from pymongo import UpdateOne

from migrator.connections.mongo import MongoDatabase, translate_errors
from migrator.errors import MigratorError, OvertakenError
from migrator.records import Run, Schedule
from migrator.sources.store_documents import ids, names
from migrator.store import transitions, validation
from migrator.store.left_rows import LeftRows
from migrator.store.mongo.candidates import Candidate, CandidateReader, Search, Stream, Waiting, served, take_first
from migrator.store.mongo.firing import Firing, RunCreation, due_triggers, may_fire
from migrator.store.mongo.indexes import AVAILABLE, CREATED, RUNNING
from migrator.store.mongo.locks import clock, exclude_others
from migrator.store.mongo.priority import restated
from migrator.store.mongo.repository import CrossTenantRepository, ForeignIds, StoredDocument, Wanted, counted
from migrator.store.mongo.transaction import WHAT, Change, Transaction, in_transaction, retry_overtaken
from migrator.store.queue import Claim, Finish, FirePlan, HandlerFilter
from migrator.values.times import format_iso, to_bson

_PAGE = 1_000


class ExpiredRuns:
    """One search, outside any transaction: what it finds is checked again when it is ended."""

    def __init__(
        self,
        transaction: Transaction,
        foreign_ids: ForeignIds,
        now: datetime,
        tenants: Sequence[str] | None,
        workers: Sequence[str] | None,
    ) -> None:
        """``workers``: only runs that one of these holds under a fence; None: whichever worker holds them."""
        self._transaction, self._now = transaction, now
        self._running: dict[str, Any] = {"state": "running", **served(tenants)}
        if workers is not None:
            self._running |= {"workerId": {"$in": [*workers]}, "fence": {"$ne": None}}
        self._runs = CrossTenantRepository(Run, transaction, foreign_ids)
        self._schedules = CrossTenantRepository(Schedule, transaction, foreign_ids)
        self._found_schedules: dict[Wanted, Schedule | None] = {}

    def first(self, limit: int) -> Sequence[Claim]:
        """Return so many of them, or as many as there are, by the lease's end (null last), then id."""
        lease = self._running | {"leaseExpiresAt": {"$lte": to_bson(self._now)}}
        by_lease = self._runs.matching(lease, sort=(("leaseExpiresAt", 1), ("_id", 1)), hint=RUNNING)
        rows = {one.row.id: one for one in islice(by_lease, limit)}
        rows |= self._by_timeout()
        ordered = sorted(rows.values(), key=lambda one: _by_lease_end(one.row))[:limit]
        self._learn({wanted: one.document.get("scheduleId") for one in ordered if (wanted := _wanted(one.row))})
        claims = [Claim(run=one.row, schedule=self._schedule(one.row)) for one in ordered]
        return [one for one in claims if transitions.is_expired(one.run, one.schedule, self._now)]

    def _by_timeout(self) -> dict[UUID, StoredDocument[Run]]:
        """Return the running runs that run longer than their schedule allows; there are as many as workers hold."""
        if not self._transaction.distinct(names.SCHEDULES, "timeoutMs", {"timeoutMs": {"$gte": 0}}):
            return {}
        page: list[tuple[Any, Wanted, str]] = []
        expired: dict[UUID, StoredDocument[Run]] = {}
        started = self._running | {"startedAt": {"$ne": None}, "scheduleId": {"$ne": None}}
        for running in self._transaction.project(names.RUNS, started, ["tenantId", "scheduleId"], hint=RUNNING):
            tenant, text = running.get("tenantId"), running["scheduleId"]
            if isinstance(tenant, str) and isinstance(text, str):
                page.append((running["_id"], (tenant, ids.schedule_id(tenant, text)), text))
            if len(page) == _PAGE:
                expired |= self._limited(page)
                page = []
        return expired | self._limited(page)

    def _limited(self, page: Sequence[tuple[Any, Wanted, str]]) -> dict[UUID, StoredDocument[Run]]:
        self._learn({wanted: text for _, wanted, text in page})
        keys = []
        for key, wanted, _ in page:
            schedule = self._found_schedules[wanted]
            if schedule is not None and schedule.timeout_ms is not None:
                keys.append(key)
        read = self._runs.at(keys, {"state": "running"}).values()
        return {one.row.id: one for one in read if transitions.is_expired(one.row, self._schedule(one.row), self._now)}

    def _learn(self, texts: dict[Wanted, Any]) -> None:
        new = {wanted: text for wanted, text in texts.items() if wanted not in self._found_schedules}
        found = self._schedules.found(new, shared=True, hints={text for text in new.values() if text is not None})
        self._found_schedules |= {wanted: found[wanted].row if wanted in found else None for wanted in new}

    def _schedule(self, run: Run) -> Schedule | None:
        wanted = _wanted(run)
        return None if wanted is None else self._found_schedules.get(wanted)


def _wanted(run: Run) -> Wanted | None:
    return None if run.schedule_id is None else (run.tenant_id, run.schedule_id)


def _by_lease_end(run: Run) -> tuple[Any, ...]:
    ends = run.lease_expires_at
    return (ends is None, run.id) if ends is None else (False, ends, run.id)


_WIDEST_OFFSET_MS: Final = 24 * 60 * 60 * 1000
"""The most by which a createdAt that another application wrote with an offset may seem later than it is."""
_EARLIEST: Final = datetime.min  # noqa: DTZ901 - as BSON has it
_LATEST: Final = datetime(9999, 12, 30, tzinfo=UTC)


def waiting_runs(now: datetime | None) -> Waiting:
    """Return the condition on available queued runs: since ``availableAt``, else since ``createdAt`` (a text)."""
    moment, until = clock(now), clock(now and min(now, _LATEST))
    latest = {"$dateToString": {"date": {"$add": [until, _WIDEST_OFFSET_MS]}, "format": "%Y-%m-%dT%H:%M:%S.%L"}}
    later = {"$and": [{"$eq": [{"$type": "$createdAt"}, "string"]}, {"$gt": ["$createdAt", latest]}]}
    available = {"availableAt": {"$gte": _EARLIEST}, "$expr": {"$lte": ["$availableAt", moment]}}
    return Waiting(
        record=Run,
        streams=(
            Stream(where={"state": "queued", **available}, time="availableAt", index=AVAILABLE),
            Stream(
                where={"state": "queued", "availableAt": None, "$expr": {"$not": [later]}},
                time="createdAt",
                index=CREATED,
            ),
        ),
        since=lambda run: run.available_at or run.created_at,
    )


def may_run(schedule: Schedule | None) -> bool:
    """Return whether a schedule's runs may be claimed; those without a schedule may."""
    return schedule is None or (schedule.enabled and schedule.status != "paused" and schedule.deleted_at is None)


class Lookahead:
    """How many runs more than it wants a process reads: about as many as others take before it has taken its own.

    The server takes the first of them that is still queued. So a process that others overtake reads more, and it takes
    the next run, not a command more.
    """

    def __init__(self) -> None:
        self.runs = _FEWEST_AHEAD

    def learn(self, overtaken: int) -> None:
        """Adapt to how many runs others took between the last read and the update."""
        if 2 * overtaken > self.runs:
            self.runs = min(2 * self.runs, _MOST_AHEAD)
        elif overtaken == 0:
            self.runs = max(self.runs - 1, _FEWEST_AHEAD)


_FEWEST_AHEAD, _MOST_AHEAD = 3, 31


class ClaimAttempt:
    """One call of ``Queue.claim``."""

    def __init__(
        self,
        database: MongoDatabase,
        foreign_ids: ForeignIds,
        search: Search,
        ahead: Lookahead,
        *,
        worker_id: str,
        lease: timedelta,
    ) -> None:
        self._database, self._foreign_ids, self._search, self._ahead = database, foreign_ids, search, ahead
        self._worker, self._lease = worker_id, lease
        self._gone: set[str] = set()
        """Candidates that this call, or another process, has taken."""

    def take(self, limit: int) -> Sequence[Claim]:
        """Take the first runs; fewer if others took some of them at the same moment."""
        ahead = self._ahead
        candidates = take_first(
            self._database, self._foreign_ids, self._search, limit, self._claim, ahead=lambda: ahead.runs
        )
        return candidates or []

    def _claim(
        self, reader: CandidateReader, candidates: Sequence[Candidate], page: Sequence[Candidate]
    ) -> tuple[Sequence[Claim] | None, bool]:
        """Take the candidates of a page; in place of those without a limit, the first of all of these.

        Return the claims, in the order of the queue, and whether another process has taken one meanwhile.
        """
        assert reader.now is not None  # noqa: S101 - it has read candidates
        now = reader.now
        limited = [one for one in page if _is_limited(reader.schedule(one))]
        claims, lost = self._take_free(reader, now, candidates, len(page) - len(limited))
        if limited:
            try:
                claims |= in_transaction(self._database, lambda inside: self._take_limited(inside, now, limited))
            except OvertakenError:
                lost = True
        return [claims[one.source_id] for one in candidates if one.source_id in claims] or None, lost

    def _take_free(
        self, reader: CandidateReader, now: datetime, candidates: Sequence[Candidate], number: int
    ) -> tuple[dict[str, Claim], bool]:
        """Take so many, each by one update: of the first ones, the server takes the first that is still queued.

        What was taken before an error is claimed all the same, and returned to the caller.
        """
        update = {
            "state": "running",
            "workerId": {"$literal": self._worker},
            "fence": {"$add": [{"$ifNull": ["$fence", 0]}, 1]},
            "leaseExpiresAt": to_bson(now + self._lease),
            "startedAt": {"$ifNull": ["$startedAt", format_iso(now)]},
            "updatedAt": to_bson(now),
        }
        free = [one for one in candidates if one.source_id not in self._gone and not _is_limited(reader.schedule(one))]
        claims, lost = dict[str, Claim](), False
        while free and len(claims) < number:
            first = [free[0], *(after for _, after in takewhile(_are_sorted, pairwise(free[: 1 + self._ahead.runs])))]
            where = {"_id": {"$in": [one.key for one in first]}, "state": "queued"}
            try:
                taken = reader.rows.take(where, [{"$set": update}], first[0].order)
            except MigratorError:
                if not claims:
                    raise
                return claims, True
            key = None if taken is None else taken.row.source_id
            overtaken = next((place for place, one in enumerate(first) if one.source_id == key), len(first))
            self._ahead.learn(overtaken)
            lost = lost or overtaken > 0
            if taken is not None and overtaken < len(first):
                claims[first[overtaken].source_id] = Claim(run=taken.row, schedule=reader.schedule(first[overtaken]))
            self._gone |= {one.source_id for one in first[: overtaken + 1]}
            free = [one for one in free if one.source_id not in self._gone]
        return claims, lost

    def _take_limited(
        self, transaction: Transaction, now: datetime, candidates: Sequence[Candidate]
    ) -> dict[str, Claim]:
        """Take runs of schedules with a limit, as many as the limit allows; return them by source id."""
        runs = CrossTenantRepository(Run, transaction, self._foreign_ids)
        schedules = CrossTenantRepository(Schedule, transaction, self._foreign_ids)
        until = validation.milliseconds(now + self._lease)
        texts = {one.schedule: one.text for one in candidates if one.schedule is not None}
        found_schedules = schedules.found(texts, shared=True, hints=set(texts.values()))
        room = self._room(transaction, found_schedules.values())
        stored_runs = runs.at([one.key for one in candidates], {"state": "queued"})
        claims: dict[str, Claim] = {}
        changes: list[Change] = []
        for candidate in candidates:
            stored = stored_runs.get(candidate.source_id)
            of = None if candidate.schedule is None else found_schedules.get(candidate.schedule)
            schedule = None if of is None else of.row
            if stored is None or not self._search.fits(schedule):
                continue
            if schedule is not None and schedule.id in room:
                if room[schedule.id] <= 0:
                    continue
                room[schedule.id] -= 1
            row = transitions.claimed_run(stored.row, self._worker, until, now)
            changes.append(runs.update(stored, row, proved=False))
            claims[candidate.source_id] = Claim(run=row, schedule=schedule)
        if changes:
            transaction.write(names.RUNS, changes)
        return claims

    @staticmethod
    def _room(transaction: Transaction, found_schedules: Iterable[StoredDocument[Schedule]]) -> dict[Any, int]:
        """Return how many more runs the schedules with a limit may have; no other session claims of them meanwhile."""
        limited = {one.row.id: one for one in found_schedules if one.row.max_concurrency is not None}
        if not limited:
            return {}
        exclude_others(
            transaction, sorted(f"~claim/{one.row.tenant_id}/{identity.hex}" for identity, one in limited.items())
        )
        running = counted(transaction, limited.values(), ("running",))
        return {identity: (one.row.max_concurrency or 0) - running[identity] for identity, one in limited.items()}


def _is_limited(schedule: Schedule | None) -> bool:
    return schedule is not None and schedule.max_concurrency is not None


def _are_sorted(both: tuple[Candidate, Candidate]) -> bool:
    before, after = both
    return before.precedes(after)


_Held: TypeAlias = tuple[str, UUID, str | None, int]
"""Tenant, run, worker and fence."""


def _still(runs: CrossTenantRepository[Run], held: Sequence[_Held]) -> Iterable[StoredDocument[Run]]:
    found = runs.found({(tenant, identity) for tenant, identity, _, _ in held}, shared=False)
    for tenant, identity, worker, fence in dict.fromkeys(held):
        stored = found.get((tenant, identity))
        if stored is not None and transitions.is_held(stored.row, worker, fence):
            yield stored


class _RunEnds:
    """Ends in one transaction, one after the other."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, now: datetime) -> None:
        self._transaction, self._now = transaction, now
        self._runs = CrossTenantRepository(Run, transaction, foreign_ids)
        self._schedules = CrossTenantRepository(Schedule, transaction, foreign_ids)
        self._creation = RunCreation(transaction, foreign_ids, now)

    def end(self, ends: Sequence[Finish], *, only_expired: bool) -> Sequence[UUID]:
        """Write the ends, and what follows from them."""
        held = [(one.tenant_id, one.run_id, one.worker_id, one.fence) for one in ends]
        rows = {stored.row.id: stored for stored in _still(self._runs, held)}
        found_schedules = self._schedules_of_ends(rows.values(), ends, only_expired=only_expired)
        changes: dict[UUID, Change] = {}
        status: dict[UUID, Schedule] = {}
        for end, (tenant, identity, worker, fence) in zip(ends, held, strict=True):
            stored = rows.get(identity)
            if stored is None or identity in changes or stored.row.tenant_id != tenant:
                continue
            of = found_schedules.get((tenant, stored.row.schedule_id)) if stored.row.schedule_id is not None else None
            over = not only_expired or transitions.is_expired(stored.row, None if of is None else of.row, self._now)
            if not over or not transitions.is_held(stored.row, worker, fence):
                continue
            row = transitions.ended_run(stored.row, end, self._now)
            told = (end.result, end.error, end.error_detail) != (None, None, None)
            changes[identity] = self._runs.update(stored, row, proved=told)
            if end.retry is not None:
                retry = transitions.retry_after(end.retry, stored.row)
                self._creation.add(retry, tenant, self._schedule_of(retry, found_schedules))
            if of is not None and end.schedule_status is not None:
                schedule = status.get(of.row.id, of.row)
                if schedule.deleted_at is None and schedule.status == "running":
                    status[of.row.id] = transitions.with_status(schedule, end.schedule_status, self._now)
        if changes:
            self._transaction.write(names.RUNS, [*changes.values()])
        for of in {of.row.id: of for of in found_schedules.values()}.values():
            if of.row.id in status:
                self._schedules.replace(of, status[of.row.id])
        self._creation.insert()
        return [*changes]

    def _schedules_of_ends(
        self, rows: Collection[StoredDocument[Run]], ends: Sequence[Finish], *, only_expired: bool
    ) -> dict[Wanted, StoredDocument[Schedule]]:
        """Return the schedules that are needed."""
        asking = {end.run_id for end in ends if end.schedule_status is not None}
        wanted: dict[Wanted, Any] = {}
        for stored in rows:
            if stored.row.schedule_id is not None and (only_expired or stored.row.id in asking):
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
    def _schedule_of(
        run: Run, found_schedules: dict[Wanted, StoredDocument[Schedule]]
    ) -> StoredDocument[Schedule] | None:
        return None if run.schedule_id is None else found_schedules.get((run.tenant_id, run.schedule_id))


class MongoQueue:
    """``queue.Queue``."""

    def __init__(self, database: MongoDatabase, foreign_ids: ForeignIds, clock: Callable[[], datetime]) -> None:
        self._database, self._foreign_ids, self._clock = database, foreign_ids, clock
        self._ahead = Lookahead()
        self._left_triggers = LeftRows("triggers")

    def tenants(self) -> Sequence[str]:
        runs, schedules = self._database[names.RUNS], self._database[names.SCHEDULES]
        with translate_errors(WHAT):
            tenants = set(runs.distinct("tenantId"))
            # The index has the schedules, but not whether they are deleted.
            for tenant in set(schedules.distinct("tenantId")) - tenants:
                if schedules.find_one({"tenantId": tenant, "deletedAt": None}, {"_id": 1}) is not None:
                    tenants.add(tenant)
            tenants |= set(schedules.distinct("selection.tenantId", {"tenantId": None, "deletedAt": None}))
        return sorted(one for one in tenants if isinstance(one, str) and one)

    def fire_due(
        self,
        plan: FirePlan,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        *,
        queues: Sequence[str] | None = None,
        handlers: HandlerFilter | None = None,
    ) -> Sequence[Run]:
        validation.check_page(limit)
        moment = self._at(now)
        search = Search(
            waiting=due_triggers(moment),
            now=moment,
            may=may_fire,
            bounded=False,
            queues=queues,
            handlers=handlers,
            tenants=tenants,
        )
        return Firing(self._database, self._foreign_ids, search, moment, plan, self._left_triggers).fire(limit)

    def claim(
        self,
        worker_id: str,
        limit: int,
        lease: timedelta,
        now: datetime | None = None,
        *,
        queues: Sequence[str] | None = None,
        handlers: HandlerFilter | None = None,
        tenants: Sequence[str] | None = None,
    ) -> Sequence[Claim]:
        validation.check_page(limit)
        validation.check_above_zero("a lease", lease)
        moment = validation.checked_time(now)
        search = Search(
            waiting=waiting_runs(moment),
            now=moment,
            may=may_run,
            bounded=True,
            queues=queues,
            handlers=handlers,
            tenants=tenants,
        )
        attempt = ClaimAttempt(self._database, self._foreign_ids, search, self._ahead, worker_id=worker_id, lease=lease)
        return attempt.take(limit)

    def heartbeat(self, claims: Sequence[Claim], lease: timedelta, now: datetime | None = None) -> Sequence[UUID]:
        validation.check_above_zero("a lease", lease)
        moment = self._at(now)
        until = validation.milliseconds(moment + lease)

        def kept(run: Run) -> Run:
            ends = max(until, run.lease_expires_at or until)
            return msgspec.structs.replace(run, lease_expires_at=ends, updated_at=moment)

        return self._change(claims, kept)

    def finish(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        return self._end(ends, now, only_expired=False)

    def release(self, claims: Sequence[Claim], now: datetime | None = None) -> Sequence[UUID]:
        moment = self._at(now)
        return self._change(claims, lambda run: transitions.released_run(run, moment), queued=True)

    def expired(
        self,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        *,
        workers: Sequence[str] | None = None,
    ) -> Sequence[Claim]:
        validation.check_page(limit)
        moment = self._at(now)
        with translate_errors(WHAT), self._database.client.start_session() as session:
            transaction = Transaction(self._database, session)
            return ExpiredRuns(transaction, self._foreign_ids, moment, tenants, workers).first(limit)

    def expire(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        return self._end(ends, now, only_expired=True)

    def _end(self, ends: Sequence[Finish], now: datetime | None, *, only_expired: bool) -> Sequence[UUID]:
        """End those that are still held, and with ``only_expired`` past their time."""
        moment = self._at(now)
        for end in ends:
            validation.check_outcome(end)
            validation.check_transition("run", "running", end.state)
            if end.schedule_status is not None:
                validation.check_transition("schedule", "running", end.schedule_status)

        def act(transaction: Transaction) -> Sequence[UUID]:
            return _RunEnds(transaction, self._foreign_ids, moment).end(ends, only_expired=only_expired)

        return retry_overtaken(self._database, act) if ends else []

    def _change(self, claims: Sequence[Claim], change: Callable[[Run], Run], *, queued: bool = False) -> Sequence[UUID]:
        """Change those that are still held; ``queued``: they are queued again, with the priority of their schedule."""
        held = [(one.run.tenant_id, one.run.id, one.run.worker_id, one.fence) for one in claims]

        def act(transaction: Transaction) -> Sequence[UUID]:
            runs = CrossTenantRepository(Run, transaction, self._foreign_ids)
            schedules = CrossTenantRepository(Schedule, transaction, self._foreign_ids)
            changes: dict[UUID, Change] = {}
            for stored in _still(runs, held):
                row = change(stored.row)
                update = runs.changes(stored, row, proved=False)
                if queued and (wanted := _wanted(row)) is not None:
                    text = stored.document.get("scheduleId")
                    of = schedules.found([wanted], shared=True, hints=[text]).get(wanted)
                    update["$set"] |= restated(stored.document, None if of is None else of.row)
                key = stored.document["_id"]
                changes[stored.row.id] = UpdateOne({"_id": key}, update or {"$set": {"_id": key}})
            if changes:
                transaction.write(names.RUNS, [*changes.values()])
            return [*changes]

        return retry_overtaken(self._database, act) if held else []

    def _at(self, now: datetime | None) -> datetime:
        return validation.checked_time(now) or self._clock()
