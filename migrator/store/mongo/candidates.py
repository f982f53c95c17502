"""Candidates: due triggers and queued runs in the order of priority, then of time, then of id, page by page.

A document of our store holds the priority of its schedule (``priority.FIELD``), so that an index has the whole order. A
document of another application holds none, and counts as of the usual priority until ``MongoStore.prepare`` has written
it: such documents are read in addition, and merged. A document that cannot be read as a row is skipped, and hides no
other.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from random import randrange
from re import escape
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from bson.raw_bson import RawBSONDocument

from migrator.connections.mongo import MongoDatabase, translate_errors
from migrator.records import Record, Schedule
from migrator.sources.profile import Document
from migrator.sources.store_documents import names
from migrator.store import epoch, validation
from migrator.store.conflicts import pause
from migrator.store.mongo.priority import FIELD
from migrator.store.mongo.repository import CrossTenantRepository, ForeignIds, StoredDocument, Wanted, counted, spelled
from migrator.store.mongo.transaction import WHAT, Transaction
from migrator.store.queue import SCRATCH, HandlerFilter, is_served
from migrator.values.times import from_bson

_SMALLEST_PAGE = 4
_TOGETHER: Final = 256
"""Documents of the largest page that is read together with its schedules: the server holds it in memory."""
_FEW: Final = 1_000
"""So many schedules are too many to name them to the server."""
_CARRIED: Final = 64 * 1024
"""Bytes of the largest document that is read with its page; a larger one is read by itself."""

Taken = TypeVar("Taken")
_Where: TypeAlias = dict[str, Any]
Order: TypeAlias = tuple[tuple[str, int], ...]
"""A sort of the server."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """Documents that wait: a condition, the field with the time, and the index that has priority, time and ``_id``."""

    where: Mapping[str, Any]
    time: str
    index: str


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What waits: rows of a record, in several streams."""

    record: type[Record]
    streams: Sequence[Stream]
    since: Callable[[Any], datetime]
    """Return since when a row waits."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A document and its position in the order."""

    stored: StoredDocument[Any]
    priority: int
    since: datetime
    order: Order
    """The sort of the server by which it was read."""

    @property
    def key(self) -> Any:  # noqa: ANN401 - any BSON
        """Its ``_id``."""
        return self.stored.document["_id"]

    @property
    def source_id(self) -> str:
        """Its ``_id`` as the row has it."""
        return str(self.stored.row.source_id)

    @property
    def schedule(self) -> Wanted | None:
        """Its schedule, as it asks for it."""
        row = self.stored.row
        return None if row.schedule_id is None else (row.tenant_id, row.schedule_id)

    @property
    def text(self) -> Any:  # noqa: ANN401 - a text, or null
        """The text by which it refers to its schedule."""
        return self.stored.document.get("scheduleId")

    @property
    def place(self) -> tuple[int, datetime, UUID]:
        """The sort key."""
        return (-self.priority, self.since, self.stored.row.id)

    def precedes(self, other: "Candidate") -> bool:
        """Return whether the server sorts it before the other one, too."""
        mine, its = self.sorted_by, other.sorted_by
        alike = self.order == other.order and [*map(type, mine)] == [*map(type, its)]
        return alike and isinstance(self.key, str) and mine < its

    @property
    def sorted_by(self) -> tuple[Any, ...]:
        """The values by which the server sorts."""
        time, _ = self.order[-2]
        return (-self.priority, self.stored.document.get(time), self.key)


def served_schedules(queues: Sequence[str] | None, handlers: HandlerFilter | None) -> _Where:
    """Return the condition on documents of schedules that all fulfil for which ``is_served`` holds; empty: none."""
    parts: list[_Where] = []
    if queues is not None:
        parts.append({"queue": {"$in": [*queues]}})
    if handlers is not None:
        modes = [spelled for spelled, mode in names.SCHEDULE_MODES.items() if mode in handlers.names]
        by_mode = {"handlerName": {"$in": [None, ""]}, "mode": {"$in": modes}}
        by_type = {"handlerType": {"$in": [*handlers.types]}}
        parts.append({"$or": [{"handlerName": {"$in": [*handlers.names]}}, by_mode, by_type]})
    return {"$and": parts} if parts else {}


def served(tenants: Sequence[str] | None) -> _Where:
    """Return the condition on documents of these tenants; None: of all but scratch tenants."""
    if tenants is None:
        return {"tenantId": {"$not": {"$regex": f"^{escape(SCRATCH)}"}}}
    return {"tenantId": {"$in": [*tenants]}}


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What a call looks for."""

    waiting: Waiting
    now: datetime | None
    """If omitted, the server's time at which the first page with a document is read."""
    may: Callable[[Schedule | None], bool]
    """Whether what waits of a schedule may be taken by anybody."""
    bounded: bool
    """Whether ``max_concurrency`` applies."""
    queues: Sequence[str] | None
    handlers: HandlerFilter | None
    tenants: Sequence[str] | None

    def fits(self, schedule: Schedule | None) -> bool:
        """Return whether what waits of a schedule may be taken by this call."""
        return self.may(schedule) and self.serves(schedule)

    def serves(self, schedule: Schedule | None) -> bool:
        """Return whether the caller works for a schedule."""
        return is_served(schedule, self.queues, self.handlers)


class CandidateReader:
    """One search; each further call continues after the candidates that were returned before.

    It remembers which schedules are skipped, so that they do not hide the candidates after them.
    """

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, search: Search) -> None:
        self.now, self._transaction, self._search = search.now, transaction, search
        self._unread = served_schedules(search.queues, search.handlers)
        """The condition on schedules that fit, until they are read; empty if all schedules are served."""
        self._among: _Where = {}
        """The condition on candidates of schedules that fit, after those of others were met; empty if they are many."""
        self.rows: CrossTenantRepository[Any] = CrossTenantRepository(search.waiting.record, transaction, foreign_ids)
        self._schedules = CrossTenantRepository(Schedule, transaction, foreign_ids)
        self._read_schedules: dict[Any, StoredDocument[Schedule]] = {}
        """By their ``_id``, those that were read with a page."""
        self._found_schedules: dict[Wanted, StoredDocument[Schedule] | None] = {}
        self._room: dict[UUID, int] = {}
        self._given: set[str] = set()

    def first(self, limit: int) -> list[Candidate]:
        """Return so many candidates that were not returned before, or as many as there are.

        Page by page, each without the schedules that the pages before have excluded. Raises ``BackendMovedError`` if
        the data is on the other side, also if nothing waits: a caller would otherwise wait here for ever.
        """
        size, seen = max(_SMALLEST_PAGE, limit + len(self._given)), set(self._given)
        closed: dict[Wanted, _Where] = {}
        chosen: list[Candidate] = []
        met_others = False
        while True:
            page, more = self._page(size, list(closed.values()))
            page = [one for one in page if one.source_id not in seen]
            seen |= {one.source_id for one in page}
            self._look_up(page)
            for candidate in page:
                if self._takes(candidate):
                    chosen.append(candidate)
                    self._given.add(candidate.source_id)
                    if len(chosen) == limit:
                        return chosen
                    continue
                if candidate.schedule is not None:
                    closed[candidate.schedule] = {
                        "tenantId": candidate.stored.row.tenant_id,
                        "scheduleId": candidate.text,
                    }
                met_others = met_others or not self._search.serves(self.schedule(candidate))
            if not more:
                return chosen
            size *= 4
            if met_others and self._unread:
                self._narrow()

    def _narrow(self) -> None:
        """Read candidates of the schedules that fit only, if they are few: the server then reads no others."""
        schedules = [*self._transaction.find(self._schedules.name, self._unread, limit=_FEW)]
        self._unread = {}
        if len(schedules) < _FEW:
            fitting = [
                one for one in map(self._schedules.stored, schedules) if one is not None and self._search.fits(one.row)
            ]
            texts = [text for one in fitting for text in (*spelled(one), str(one.row.id))]
            self._among = {"scheduleId": {"$in": texts}}

    def _page(self, size: int, closed: list[_Where]) -> tuple[list[Candidate], bool]:
        """Return the first documents, as far as their order is known, and whether there are more.

        One command reads them with their schedules, the persistence epoch and the server's time.
        """
        orders, pipeline = self._pipeline(size, closed)
        rows = defaultdict[int, list[RawBSONDocument]](list)
        backend: str | None = None
        hint = (
            None if self._among else self._search.waiting.streams[0].index
        )  # few of some schedules have a better index
        for raw in self._transaction.aggregate_raw(self.rows.name, pipeline, hint):
            kind = next(iter(raw))
            if kind == "stream":
                rows[raw["stream"]].append(raw)
            elif kind == "backend":
                backend = raw["backend"]
            elif isinstance(key := raw["_id"], str) and (schedule := self._schedules.stored(bytes(raw.raw))):
                self._read_schedules[key] = schedule
        epoch.require(epoch.EpochState(backend), "mongo")
        candidates: list[Candidate] = []
        bounds: list[tuple[int, datetime, UUID] | None] = []
        for number, read in rows.items():
            some = self._candidates(read, orders[number])
            candidates += some
            if len(read) == size:
                bounds.append(some[-1].place if some else None)
        candidates.sort(key=lambda one: one.place)
        known = [one for one in candidates if all(last is not None and one.place <= last for last in bounds)]
        return [one for one in known if self.now is None or one.since <= self.now], bool(bounds)

    def _pipeline(self, size: int, closed: list[_Where]) -> tuple[Sequence[Order], Sequence[Mapping[str, Any]]]:
        """Return the sort of each stream, and the pipeline that reads them all."""
        parts = [part for part in (served(self._search.tenants), _none_of(closed), self._among) if part]
        orders: list[Order] = []
        pipeline: list[Mapping[str, Any]] = []
        for stream in self._search.waiting.streams:
            by_time: Order = ((stream.time, 1), ("_id", 1))
            for stated, order in (({"$gte": 0}, ((FIELD, -1), *by_time)), (None, by_time)):
                where = {"$and": [{**stream.where, FIELD: stated}, *parts]}
                branch: list[Mapping[str, Any]] = [
                    {"$match": where},
                    {"$sort": dict(order)},
                    {"$limit": size},
                    _row(len(orders)),
                ]
                pipeline += [{"$unionWith": {"coll": self.rows.name, "pipeline": branch}}] if orders else branch
                orders.append(order)
        if size <= _TOGETHER:
            pipeline += _SCHEDULES
        return orders, [*pipeline, _EPOCH]

    def _candidates(self, read: Sequence[RawBSONDocument], order: Order) -> list[Candidate]:
        """Return the documents of a stream that can be read."""
        if self.now is None:
            self.now = from_bson(read[0]["now"])
        candidates: list[Candidate] = []
        for one in read:
            raw = bytes(one["document"].raw) if "document" in one else self.rows.raw(one["_id"])
            stored = None if raw is None else self.rows.stored(raw)
            if stored is not None:
                stated = stored.document.get(FIELD)
                priority = validation.DEFAULT_PRIORITY if stated is None else int(stated)
                candidates.append(
                    Candidate(
                        stored=stored, priority=priority, since=self._search.waiting.since(stored.row), order=order
                    )
                )
        return candidates

    def _look_up(self, page: Sequence[Candidate]) -> None:
        """Find the schedules of a page, and how many more runs they may have."""
        texts = {
            one.schedule: one.text
            for one in page
            if one.schedule is not None and one.schedule not in self._found_schedules
        }
        read = {wanted: self._read_schedules[text] for wanted, text in texts.items() if self._is_read(wanted, text)}
        missing = {wanted: text for wanted, text in texts.items() if wanted not in read}
        read |= self._schedules.found(missing, shared=True, hints=set(missing.values()))
        self._found_schedules |= {wanted: read.get(wanted) for wanted in texts}
        limited = [one for one in read.values() if self._search.bounded and one.row.max_concurrency is not None]
        for identity, running in counted(self._transaction, limited, ("running",)).items():
            most = next(one.row.max_concurrency or 0 for one in limited if one.row.id == identity)
            self._room.setdefault(identity, most - running)

    def _is_read(self, wanted: Wanted, text: str) -> bool:
        """Return whether a schedule was read with its page."""
        tenant, identity = wanted
        stored = self._read_schedules.get(text)
        return stored is not None and stored.row.id == identity and stored.row.tenant_id in (tenant, validation.GLOBAL)

    def schedule(self, one: Candidate) -> Schedule | None:
        """Return the schedule of a returned candidate, as it was read."""
        stored = None if one.schedule is None else self._found_schedules[one.schedule]
        return None if stored is None else stored.row

    def _takes(self, one: Candidate) -> bool:
        """Return whether a candidate may be taken; if so, its schedule may have one run less."""
        schedule = self.schedule(one)
        if not self._search.fits(schedule):
            return False
        if schedule is None or schedule.id not in self._room:
            return True
        self._room[schedule.id] -= 1
        return self._room[schedule.id] >= 0


def _row(stream: int) -> Document:
    """Return the stage that makes a row of the page."""
    small = {"$lte": [{"$bsonSize": "$$ROOT"}, _CARRIED]}
    fields = {"now": "$$NOW", "document": {"$cond": [small, "$$ROOT", "$$REMOVE"]}}
    return {"$replaceRoot": {"newRoot": {"stream": {"$literal": stream}, "_id": "$_id", **fields}}}


_SCHEDULES: Final[Sequence[Document]] = (
    {"$group": {"_id": None, "rows": {"$push": "$$ROOT"}}},
    {
        "$lookup": {
            "from": names.SCHEDULES,
            "localField": "rows.document.scheduleId",
            "foreignField": "_id",
            "as": "schedules",
        }
    },
    {"$project": {"all": {"$concatArrays": ["$rows", "$schedules"]}}},
    {"$unwind": "$all"},
    {"$replaceRoot": {"newRoot": "$all"}},
)
"""The stages that add the schedules of all rows, looked up at once."""

_EPOCH: Final[Document] = {
    "$unionWith": {
        "coll": names.LOCKS,
        "pipeline": [
            {"$match": {"_id": epoch.KEY}},
            {"$replaceRoot": {"newRoot": {"backend": {"$ifNull": [f"$metadata.{epoch.BACKEND}", None]}}}},
        ],
    }
}
"""The stage that adds the backend that the persistence epoch names."""


def _none_of(closed: Sequence[_Where]) -> _Where:
    """Return the condition that excludes schedules, each of one tenant; a text of our own means the same to all."""
    ours = [one["scheduleId"] for one in closed if one["scheduleId"].startswith(names.SCHEDULE_PREFIX)]
    others = [one for one in closed if not one["scheduleId"].startswith(names.SCHEDULE_PREFIX)]
    return ({"scheduleId": {"$nin": ours}} if ours else {}) | ({"$nor": others} if others else {})


_ROUNDS = 5
_WIDEST = 16
_MOST = 512


class Spread:
    """Where a call tries next: at the head of the queue, or, after a conflict with others, at a random page.

    Processes that continue with the next documents after a conflict meet again: of ten, each meets nine others, nine
    times. Among several pages few meet.
    """

    def __init__(self) -> None:
        self._pages = 1

    def met(self) -> None:
        """Record that another process was faster."""
        self._pages = min(4 * self._pages, _WIDEST)

    def read(self, limit: int) -> int:
        """Return how many candidates to read if ``limit`` are to be taken."""
        return limit * min(self._pages, max(_MOST // limit, 1))

    def pages(self, candidates: Sequence[Candidate], limit: int) -> Iterator[Sequence[Candidate]]:
        """Yield the candidates in pages of ``limit``, each as the one to try next."""
        pages = [candidates[first : first + limit] for first in range(0, len(candidates), limit)]
        while pages:
            yield pages.pop(0 if self._pages == 1 else randrange(len(pages)))  # noqa: S311 - no secret


def take_first(
    database: MongoDatabase,
    foreign_ids: ForeignIds,
    search: Search,
    limit: int,
    take: Callable[[CandidateReader, Sequence[Candidate], Sequence[Candidate]], tuple[Taken | None, bool]],
    *,
    ahead: Callable[[], int] = lambda: 0,
) -> Taken | None:
    """Return the rows that ``take`` takes of the first page of candidates of which it can take any; None: of no page.

    ``take`` is called with the reader, all candidates that were read, and the page to try now. It returns None if it
    took nothing, and whether another process was faster. ``ahead``: how many candidates to read besides the page.
    """
    spread = Spread()
    for attempt in range(_ROUNDS):
        overtaken = False
        with translate_errors(WHAT), database.client.start_session() as session:
            reader = CandidateReader(Transaction(database, session), foreign_ids, search)
            while candidates := reader.first(spread.read(limit) + ahead()):
                for page in spread.pages(candidates, limit):
                    taken, lost = take(reader, candidates, page)
                    if lost:
                        overtaken = True
                        spread.met()
                    if taken is not None:
                        return taken
        if not overtaken:
            return None
        pause(attempt)  # others wanted all that was left, and may have failed to take it
    return None
