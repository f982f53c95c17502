"""Runs in MongoDB, with their numbers, summaries, logs and impact snapshots.

A run number is one more than a schedule ever had, also after retention deleted its newest runs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from uuid import UUID

import msgspec

from migrator import states
from migrator.constraints import most_of
from migrator.errors import ConflictError, StoreError
from migrator.records import ExecutionLog, ImpactSnapshot, Run, RunSummary, Schedule, Trigger
from migrator.sources.profile import Document, Rejected
from migrator.sources.shapes import instant
from migrator.sources.store_documents import names
from migrator.store import transitions, validation
from migrator.store.mongo.priority import restated, with_priority
from migrator.store.mongo.repository import CrossTenantRepository, ForeignIds, Repository, StoredDocument, whole
from migrator.store.mongo.transaction import Transaction
from migrator.store.protocols import RunPage, RunQuery
from migrator.values import jsonb
from migrator.values.times import format_iso


class Numbers:
    """The run numbers of several schedules, each of a tenant's own."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, now: datetime) -> None:
        self._transaction, self._now = transaction, now
        self._summaries = CrossTenantRepository(RunSummary, transaction, foreign_ids)
        self._stored: dict[UUID, StoredDocument[RunSummary]] = {}
        self._last: dict[UUID, int] = {}
        self._taken: dict[UUID, str] = {}

    def learn(self, schedules: Mapping[UUID, tuple[str, Sequence[str]]]) -> None:
        """Look up the last number that each schedule ever had; with each its tenant, and how documents refer to it."""
        new = {identity: one for identity, one in schedules.items() if identity not in self._last}
        if not new:
            return
        of_text = {text: identity for identity, (_, texts) in new.items() for text in texts}
        owners = sorted({tenant for tenant, _ in new.values()})
        for stored in self._summaries.matching({"tenantId": {"$in": owners}, "scheduleId": {"$in": [*of_text]}}):
            identity = stored.row.schedule_id
            if identity in new and new[identity][0] == stored.row.tenant_id:
                self._stored.setdefault(identity, stored)
        self._last |= {identity: lives_number(self._stored.get(identity)) for identity in new}
        beyond = [
            {"scheduleId": {"$in": [*texts]}, "runNumber": {"$gt": self._last[identity]}}
            for identity, (_, texts) in new.items()
        ]
        for run in self._transaction.project(names.RUNS, {"$or": beyond}, ["scheduleId", "runNumber"]):
            identity = of_text[run["scheduleId"]]
            self._last[identity] = max(self._last[identity], transitions.whole_number(run["runNumber"]))

    def summary(self, schedule_id: UUID) -> StoredDocument[RunSummary] | None:
        """Return the summary of a schedule that was looked up."""
        return self._stored.get(schedule_id)

    def last(self, schedule_id: UUID) -> int:
        """Return the highest number that a schedule that was looked up ever had; 0 if it had none."""
        return self._last[schedule_id]

    def take(self, tenant: str, schedule_id: UUID) -> int | None:
        """Return the next number of a schedule that was looked up, or None (``transitions.run_number``)."""
        self._taken[schedule_id] = tenant
        self._last[schedule_id] += 1
        return transitions.run_number(self._last[schedule_id])

    def store(self) -> None:
        """Write the last number of each schedule that took one."""
        made: list[Document] = []
        for identity, tenant in self._taken.items():
            stored = self._stored.get(identity)
            number = {transitions.LAST_NUMBER: self._last[identity]}
            if stored is not None:
                counters = jsonb.encode(_counters(stored) | number)
                self._summaries.replace(stored, msgspec.structs.replace(stored.row, counters=counters))
                continue
            row = RunSummary(
                id=transitions.summary_id(tenant, identity),
                tenant_id=tenant,
                schedule_id=identity,
                updated_at=self._now,
                counters=jsonb.encode(number),
            )
            made.append(self._summaries.new(row, summary_key(tenant, identity))[0])
        if made:
            self._transaction.insert(names.RUN_SUMMARIES, made)


def summary_key(tenant: str, schedule_id: UUID) -> str:
    """Return the ``_id`` of a summary created here."""
    return f"{tenant}:{names.SCHEDULE_PREFIX}{schedule_id.hex}"


def lives_number(stored: StoredDocument[RunSummary] | None) -> int:
    """Return the counter of a summary, 0 if there is none."""
    if stored is None:
        return 0
    return min(transitions.whole_number(_counters(stored).get(transitions.LAST_NUMBER)), most_of("runs.run_number"))


def _counters(stored: StoredDocument[RunSummary]) -> dict[str, Any]:
    counters: Any = None if stored.row.counters is None else jsonb.decode(stored.row.counters)
    return counters if isinstance(counters, dict) else {}


LIVE = states.live(states.RUN)
NEWEST = (("createdAt", -1), ("_id", 1))
OLDEST = (("createdAt", 1), ("_id", 1))


def spellings(words: Sequence[str]) -> list[str]:
    """Return every spelling of these states."""
    return [spelled for spelled, word in names.RUN_STATES.items() if word in words]


class MongoRuns(Repository[Run]):
    """``protocols.Runs``."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, tenant: str, now: datetime) -> None:
        super().__init__(Run, transaction, foreign_ids, tenant, now)

    def get(self, run_id: UUID) -> Run | None:
        return self._visible(run_id)

    def list(self, query: RunQuery) -> RunPage:
        validation.check_page(query.limit, query.offset)
        validation.check_known("run state", states.RUN, query.states)
        parts: list[Document] = [{}]
        if query.schedule_id is not None:
            parts.append({"scheduleId": self._refers(Schedule, query.schedule_id)})
        if query.states:
            parts.append({"state": {"$in": spellings(query.states)}})
        if query.created_after is not None:
            parts.append({"createdAt": {"$gt": format_iso(query.created_after)}})
        if query.created_before is not None:
            parts.append({"createdAt": {"$lt": format_iso(query.created_before)}})
        if query.trace_id is not None:
            parts.append({"traceId": query.trace_id})
        if query.cursor is not None:
            parts.append(self._after(*query.cursor, descending=query.descending))
        sort = NEWEST if query.descending else OLDEST
        runs = self._rows({"$and": parts}, query.offset + query.limit + 1, sort=sort)[query.offset :]
        page = tuple(runs[: query.limit])
        more = len(runs) > query.limit
        return RunPage(runs=page, cursor=(page[-1].created_at, page[-1].id) if more else None)

    def create(self, run: Run) -> Run:
        run = validation.checked_record(run, self._tenant)
        owner = self._require(Schedule, run.schedule_id, shared=True)
        self._require(Trigger, run.trigger_id, shared=True)
        self._require(Run, run.retry_of)
        changes: dict[str, Any] = {"run_number": None, "updated_at": run.updated_at or self._now}
        if run.trigger_id is not None and run.scheduled_at is not None and run.attempt is None:
            changes["attempt"] = 1
        numbers = Numbers(self._transaction, self._foreign_ids, self._now)
        if run.schedule_id is not None and owner == self._tenant:
            numbers.learn({run.schedule_id: (self._tenant, self._texts(Schedule, run.schedule_id))})
            changes["run_number"] = numbers.take(self._tenant, run.schedule_id)
        document, row = self._checked(msgspec.structs.replace(run, **changes))
        document = with_priority(document, self._schedule(run))
        self._check_keys(document)
        numbers.store()
        self._transaction.insert(self.name, [document])
        return row

    def update(self, run: Run, expected: str) -> bool:
        run = validation.checked_record(run, self._tenant)
        transitions.check_update(expected, run.state)
        stored = self._find(run.id)
        if stored is None or stored.row.state != expected:
            return False
        # A referenced row may have been deleted since: only a reference that changes is looked up.
        if run.schedule_id != stored.row.schedule_id:
            self._require(Schedule, run.schedule_id, shared=True)
        if run.trigger_id != stored.row.trigger_id:
            self._require(Trigger, run.trigger_id, shared=True)
        if run.retry_of != stored.row.retry_of:
            self._require(Run, run.retry_of)
        advanced = transitions.advanced_run(stored.row, validation.with_stored_precision(run, stored.row), self._now)
        document, _ = self._changed(stored, advanced)
        if advanced.state in states.RUN_WAITING:
            document = document | restated(document, self._schedule(advanced))
        self._check_keys(document)
        self._transaction.replace(self.name, document)
        return True

    def _schedule(self, run: Run) -> Schedule | None:
        return None if run.schedule_id is None else self._of(Schedule)._visible(run.schedule_id)  # noqa: SLF001 - of the same class

    def pending(self, limit: int) -> Sequence[Run]:
        validation.check_page(limit)
        return self._rows({"state": {"$in": [*states.RUN_WAITING]}}, limit, sort=OLDEST)

    def of_schedule(self, schedule_id: UUID, limit: int) -> Sequence[Run]:
        validation.check_page(limit)
        return self._rows({"scheduleId": self._refers(Schedule, schedule_id)}, limit, sort=NEWEST)

    def newest_of(self, schedule_ids: Sequence[UUID], states: Sequence[str]) -> Sequence[Run]:
        texts = self._spellings(Schedule, schedule_ids)
        where = {"tenantId": self._tenant, "state": {"$in": spellings(states)}}
        keys = self._newest_keys([*chain.from_iterable(texts.values())], where)
        newest: dict[UUID | None, Run] = {}
        read = 0
        for one in self._each({"_id": {"$in": keys}}, sort=NEWEST):
            newest.setdefault(one.row.schedule_id, one.row)
            read += 1
        if read < len(keys):  # the newest document cannot be read as a row: of such a schedule, the next one counts
            for identity in schedule_ids:
                for run in self.list(RunQuery(schedule_id=identity, states=tuple(states), limit=1)).runs:
                    newest[identity] = run
        return [newest[identity] for identity in schedule_ids if identity in newest]

    def _newest_keys(self, texts: Sequence[str], where: Document) -> Sequence[Any]:
        """Return the ``_id`` of the newest document that matches for each text that names a schedule."""
        if not texts:
            return []
        newest = [
            {"$match": {"$expr": {"$eq": ["$scheduleId", "$$text"]}} | where},
            {"$sort": dict(NEWEST)},
            {"$limit": 1},
            {"$project": {"_id": 1}},
        ]
        # Each text is looked up by itself: one scan would read every run of these schedules.
        groups = self._transaction.aggregate(
            self.name,
            [
                {"$limit": 1},
                {"$project": {"_id": 0, "text": {"$literal": texts}}},
                {"$unwind": "$text"},
                {"$lookup": {"from": self.name, "let": {"text": "$text"}, "pipeline": newest, "as": "newest"}},
            ],
        )
        return [one["_id"] for each in groups for one in each["newest"]]

    def repeats(self, run_id: UUID) -> Sequence[Run]:
        return [one.row for one in self._each({"retryOf": self._refers(Run, run_id)}, sort=OLDEST)]

    def cancel(self, run_id: UUID, reason: str) -> Run | None:
        stored = self._find(run_id)
        if stored is None or stored.row.state not in LIVE:
            return None
        cancelled = validation.checked_record(transitions.cancelled_run(stored.row, reason, self._now), self._tenant)
        return self.replace(stored, validation.with_stored_precision(cancelled, stored.row))

    def cancel_of_schedule(self, schedule_id: UUID, reason: str) -> int:
        where = {"scheduleId": self._refers(Schedule, schedule_id), "state": {"$in": [*LIVE]}}
        ids = [one.row.id for one in self._each(where)]
        return sum(self.cancel(identity, reason) is not None for identity in ids)

    def beyond(self, keep: int, before: datetime, limit: int) -> Sequence[Run]:
        validation.check_page(limit, keep)
        ended = set(spellings([state for state in states.RUN if state not in LIVE]))
        seen: Counter[object] = Counter()
        old: list[Any] = []
        fields = ("scheduleId", "createdAt", "state")
        for raw in self._transaction.project(self.name, {"tenantId": self._tenant}, fields, sort=NEWEST):
            schedule = raw.get("scheduleId")
            seen[schedule] += 1
            if seen[schedule] > keep and raw.get("state") in ended and _created(raw, before):
                old.append(raw["_id"])
        # Oldest first, then by id: they are sorted again, so that equal times are in the order of their ids.
        where = {"_id": {"$in": old}}
        return self._rows(where, limit, sort=OLDEST) if old else []

    def held(self, run_ids: Sequence[UUID]) -> Sequence[Run]:
        ended = [one for one in _of_ids(self, self._tenant, run_ids) if one.row.state not in LIVE]
        return sorted(map(whole, ended), key=lambda row: (row.created_at, row.id))

    def remove(self, run_ids: Sequence[UUID]) -> int:
        ended = (one for one in _of_ids(self, self._tenant, run_ids) if one.row.state not in LIVE)
        keys = _spellings_of(ended)
        mine: Document = {"tenantId": self._tenant}
        self._transaction.delete(names.EXECUTION_LOGS, mine | {"runId": {"$in": keys}})
        self._transaction.change(names.IMPACT_SNAPSHOTS, mine | {"runId": {"$in": keys}}, {"$unset": {"runId": ""}})
        self._transaction.change(names.RUNS, mine | {"retryOf": {"$in": keys}}, {"$unset": {"retryOf": ""}})
        return self._transaction.delete(self.name, mine | {"_id": {"$in": keys}})

    def _after(self, created_at: datetime, run_id: UUID, *, descending: bool) -> Document:
        stored = self._find(run_id)
        key = f"{names.RUN_PREFIX}{run_id.hex}" if stored is None else stored.document["_id"]
        at = format_iso(created_at)
        beyond = "$lt" if descending else "$gt"
        return {"createdAt": {f"{beyond}e": at}, "$or": [{"createdAt": {beyond: at}}, {"_id": {"$gt": key}}]}

    def _check_keys(self, document: Document) -> None:
        """Raise ``ConflictError`` if the slot or the dedupe key of the trigger is another run's."""
        trigger, other = document.get("triggerId"), {"$ne": document["_id"]}
        if trigger is None:
            return
        slot, dedupe = document.get("scheduledAt"), document.get("dedupeKey")
        if slot is not None and self._exists(
            {"triggerId": trigger, "scheduledAt": slot, "attempt": document.get("attempt"), "_id": other}
        ):
            raise ConflictError("the slot of the trigger is taken: it ran, or is to run, already")
        if dedupe is not None and self._exists({"triggerId": trigger, "dedupeKey": dedupe, "_id": other}):
            raise ConflictError("the trigger ran for this dedupe key already")

    def _exists(self, where: Document) -> bool:
        return next(self._transaction.find(self.name, where), None) is not None


def _created(document: Document, before: datetime) -> bool:
    try:
        return instant(document.get("createdAt"), "createdAt") < before
    except Rejected:
        return False


def _of_ids(runs: Repository[Run], tenant: str, run_ids: Sequence[UUID]) -> Iterable[StoredDocument[Run]]:
    return runs.found([(tenant, run_id) for run_id in dict.fromkeys(run_ids)], shared=False).values()


def _spellings_of(runs: Iterable[StoredDocument[Run]]) -> list[Any]:
    """Return how documents may name these runs."""
    return [key for one in runs for key in (one.document["_id"], f"{names.RUN_PREFIX}{one.row.id.hex}")]


class MongoRunSummaries(Repository[RunSummary]):
    """``protocols.RunSummaries``."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, tenant: str, now: datetime) -> None:
        super().__init__(RunSummary, transaction, foreign_ids, tenant, now)
        self._runs = self._of(Run)

    def get(self, schedule_id: UUID) -> RunSummary | None:
        stored = next(self._each({"scheduleId": self._refers(Schedule, schedule_id)}), None)
        return None if stored is None else stored.row

    def recompute(self, schedule_id: UUID, recent: int = 20) -> RunSummary:
        validation.check_page(recent)
        validation.check_own_tenant(self._tenant, self._tenant)
        where = {"scheduleId": self._refers(Schedule, schedule_id)}
        newest = self._runs._rows(where, recent, sort=NEWEST)  # noqa: SLF001 - its own other half
        if not newest:
            self._require(Schedule, schedule_id, shared=True)
        numbers = Numbers(self._transaction, self._foreign_ids, self._now)
        numbers.learn({schedule_id: (self._tenant, self._texts(Schedule, schedule_id))})
        stored = numbers.summary(schedule_id)
        counts, totals = self._added_up({"tenantId": self._tenant} | where)
        summary = transitions.summary(
            transitions.summary_id(self._tenant, schedule_id) if stored is None else stored.row.id,
            self._tenant,
            schedule_id,
            counts=counts,
            totals=totals,
            newest=newest,
            last_number=numbers.last(schedule_id),
            now=self._now,
        )
        if stored is None:
            return self._insert(summary, summary_key(self._tenant, schedule_id))
        return self.replace(stored, msgspec.structs.replace(summary, extra=stored.row.extra))

    def _added_up(self, where: dict[str, Any]) -> tuple[Counter[str], Counter[str]]:
        """Return runs by state, and the sums of the whole numbers in their stats."""
        group: dict[str, Any] = {"_id": "$state", "runs": {"$sum": 1}}
        for member in transitions.TOTALS:
            field = f"$stats.{member}"
            group[member] = {"$sum": {"$cond": [{"$in": [{"$type": field}, ["int", "long"]]}, field, 0]}}
        counts: Counter[str] = Counter()
        totals: Counter[str] = Counter()
        for row in self._transaction.aggregate(names.RUNS, [{"$match": where}, {"$group": group}]):
            counts[names.RUN_STATES.get(row["_id"], "")] += row["runs"]
            totals.update({member: int(row[member]) for member in transitions.TOTALS})
        return counts, totals


class MongoExecutionLogs(Repository[ExecutionLog]):
    """``protocols.ExecutionLogs``."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, tenant: str, now: datetime) -> None:
        super().__init__(ExecutionLog, transaction, foreign_ids, tenant, now)

    def append(self, lines: Sequence[ExecutionLog]) -> None:
        written = [validation.checked_record(line, self._tenant) for line in lines]
        for run_id in dict.fromkeys(line.run_id for line in written):
            self._require(Run, run_id)
        documents = [self._checked(line)[0] for line in written]
        if len({line.id for line in written}) < len(written):
            raise ConflictError(f"the id is taken ({self.name})")
        if documents:
            self._transaction.insert(self.name, documents)

    def of_run(self, run_id: UUID, limit: int = 1000) -> Sequence[ExecutionLog]:
        validation.check_page(limit)
        return self._rows({"runId": self._refers(Run, run_id)}, limit, sort=(("loggedAt", 1), ("_id", 1)))

    def of_runs(self, run_ids: Sequence[UUID]) -> Sequence[ExecutionLog]:
        wanted = set(run_ids)
        keys = _spellings_of(_of_ids(self._of(Run), self._tenant, run_ids))
        where = {"tenantId": self._tenant, "runId": {"$in": keys}}
        entries = [self.stored(raw) for raw in self._transaction.find(self.name, where)]
        rows = [whole(one) for one in entries if one is not None and one.row.run_id in wanted]
        if len(rows) < len(entries):
            raise StoreError(f"{len(entries) - len(rows):,} of the lines of these runs cannot be read as rows")
        return sorted(rows, key=lambda row: (row.run_id, row.logged_at, row.id))


_FIRST = datetime.min.replace(tzinfo=UTC)


class MongoImpactSnapshots(Repository[ImpactSnapshot]):
    """``protocols.ImpactSnapshots``."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, tenant: str, now: datetime) -> None:
        super().__init__(ImpactSnapshot, transaction, foreign_ids, tenant, now)

    def insert(self, snapshot: ImpactSnapshot) -> None:
        snapshot = validation.checked_record(snapshot, self._tenant)
        self._require(Run, snapshot.run_id)
        self._insert(snapshot)

    def get(self, snapshot_id: UUID) -> ImpactSnapshot | None:
        return self._visible(snapshot_id)

    def of_run(self, run_id: UUID) -> Sequence[ImpactSnapshot]:
        rows = [one.row for one in self._each({"runId": self._refers(Run, run_id)})]
        rows.sort(key=lambda row: row.id)
        return sorted(rows, key=lambda row: row.generated_at or _FIRST, reverse=True)
