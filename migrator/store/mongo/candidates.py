"""Candidates: due triggers and queued runs in the order of priority, then of time, then of id, page by page.

A document of our store holds the priority of its schedule (``priority.FIELD``), so that an index has the whole order. A
document of another application holds none, and counts as of the usual priority until ``MongoStore.prepare`` has written
it: such documents are read in addition, and merged. A document that cannot be read as a row is skipped, and hides no
other.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from random import randrange
from re import escape
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from migrator.records import Record, Schedule
from migrator.sources.profile import Document, Rejected
from migrator.sources.stellaops import ids, names
from migrator.store import validation
from migrator.store.mongo.places import PLACES
from migrator.store.mongo.priority import FIELD
from migrator.store.mongo.repository import CrossTenantRepository, ForeignIds, StoredDocument, Wanted, counted
from migrator.store.mongo.transaction import Transaction
from migrator.store.queue import SCRATCH
from migrator.values.identity import source_id

_SMALLEST_PAGE = 32

_Where: TypeAlias = dict[str, Any]


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """Documents that wait: a condition, the order of time, and the index that has priority and time in this order."""

    where: Mapping[str, Any]
    order: Sequence[tuple[str, int]]
    index: str


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The fields to be read."""

    record: type[Record]
    streams: Sequence[Stream]
    since: Callable[[Document], datetime]
    """Return since when a document waits; raises ``Rejected``."""
    fields: Sequence[str]
    """The fields that ``since`` reads."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A document and its position in the order."""

    key: Any
    """Its ``_id``."""
    source_id: str
    row_id: UUID
    tenant: str
    priority: int
    since: datetime
    schedule: Wanted | None
    text: str | None
    """The text by which it refers to its schedule."""

    @property
    def place(self) -> tuple[int, datetime, UUID]:
        """The sort key."""
        return (-self.priority, self.since, self.row_id)


Fits: TypeAlias = Callable[[Schedule | None], bool]


def served(tenants: Sequence[str] | None) -> _Where:
    """Return the condition on documents of these tenants; None: of all but scratch tenants."""
    if tenants is None:
        return {"tenantId": {"$not": {"$regex": f"^{escape(SCRATCH)}"}}}
    return {"tenantId": {"$in": [*tenants]}}


class CandidateReader:
    """One search; each further call continues after the candidates that were returned before.

    It remembers which schedules are skipped, so that they do not hide the candidates after them.
    """

    def __init__(
        self,
        transaction: Transaction,
        foreign_ids: ForeignIds,
        now: datetime,
        waiting: Waiting,
        *,
        fits: Fits,
        bounded: bool,
        tenants: Sequence[str] | None,
    ) -> None:
        """``fits``: whether candidates of a schedule may be taken; ``bounded``: ``max_concurrency`` applies too."""
        self._transaction, self._waiting, self._fits, self._bounded = transaction, waiting, fits, bounded
        self._place, self._tenants = PLACES[waiting.record][0], tenants
        self._schedules = CrossTenantRepository(Schedule, transaction, foreign_ids, now)
        self._found_schedules: dict[Wanted, StoredDocument[Schedule] | None] = {}
        self._room: dict[UUID, int] = {}
        self._given: set[str] = set()

    def first(self, limit: int) -> list[Candidate]:
        """Return so many candidates that were not returned before, or as many as there are.

        Page by page, each without the schedules that the pages before have excluded.
        """
        size, seen = max(_SMALLEST_PAGE, limit + len(self._given)), set(self._given)
        closed: dict[Wanted, _Where] = {}
        chosen: list[Candidate] = []
        while True:
            page, more = self._page(size, list(closed.values()))
            page = [one for one in page if one.source_id not in seen]
            seen |= {one.source_id for one in page}
            self._look_up(page)
            for one in page:
                if self._takes(one):
                    chosen.append(one)
                    self._given.add(one.source_id)
                    if len(chosen) == limit:
                        return chosen
                elif one.schedule is not None:
                    closed[one.schedule] = {"tenantId": one.tenant, "scheduleId": one.text}
            if not more:
                return chosen
            size *= 2

    def _page(self, size: int, closed: list[_Where]) -> tuple[list[Candidate], bool]:
        """Return the first documents, as far as their order is known, and whether there are more."""
        found: list[Candidate] = []
        bounds: list[tuple[int, datetime, UUID]] = []
        more = False
        parts = [part for part in (served(self._tenants), _none_of(closed)) if part]
        fields = ["tenantId", "scheduleId", FIELD, *self._waiting.fields]
        for stream in self._waiting.streams:
            for stated, order in (({"$gte": 0}, ((FIELD, -1), *stream.order)), (None, stream.order)):
                condition = {"$and": [{**stream.where, FIELD: stated}, *parts]}
                read = [
                    *self._transaction.project(
                        self._place.name, condition, fields, sort=order, limit=size, hint=stream.index
                    )
                ]
                some = [one for one in map(self._candidate, read) if one is not None]
                found += some
                if len(read) == size:
                    more = True
                    bounds += [one.place for one in some[-1:]]
        found.sort(key=lambda one: one.place)
        return [one for one in found if not bounds or one.place <= min(bounds)], more

    def _candidate(self, document: Document) -> Candidate | None:
        key, tenant, text = document["_id"], document.get("tenantId"), document.get("scheduleId")
        if not isinstance(tenant, str) or not isinstance(text, str | None):
            return None
        try:
            since = self._waiting.since(document)
        except Rejected:
            return None
        stated = document.get(FIELD)
        return Candidate(
            key=key,
            source_id=source_id(key),
            row_id=self._place.row_id(tenant, key),
            tenant=tenant,
            priority=validation.DEFAULT_PRIORITY if stated is None else int(stated),
            since=since,
            schedule=None if text is None else (tenant, ids.schedule_id(tenant, text)),
            text=text,
        )

    def _look_up(self, page: Sequence[Candidate]) -> None:
        """Read the schedules of a page, and how many more runs they may have."""
        texts = {
            one.schedule: one.text
            for one in page
            if one.schedule is not None and one.schedule not in self._found_schedules
        }
        found = self._schedules.found(texts, shared=True, hints=set(texts.values()))
        self._found_schedules |= {wanted: found.get(wanted) for wanted in texts}
        limited = [one for one in found.values() if self._bounded and one.row.max_concurrency is not None]
        for identity, running in counted(self._transaction, limited, ("running",)).items():
            most = next(one.row.max_concurrency or 0 for one in limited if one.row.id == identity)
            self._room.setdefault(identity, most - running)

    def schedule(self, one: Candidate) -> Schedule | None:
        """Return the schedule of a returned candidate, as it was read."""
        stored = None if one.schedule is None else self._found_schedules[one.schedule]
        return None if stored is None else stored.row

    def _takes(self, one: Candidate) -> bool:
        """Return whether a candidate may be taken; if so, its schedule may have one run less."""
        schedule = self.schedule(one)
        if not self._fits(schedule):
            return False
        if schedule is None or schedule.id not in self._room:
            return True
        self._room[schedule.id] -= 1
        return self._room[schedule.id] >= 0


def _none_of(closed: Sequence[_Where]) -> _Where:
    """Return the condition that excludes schedules, each of one tenant; a text of our own means the same to all."""
    ours = [one["scheduleId"] for one in closed if one["scheduleId"].startswith(names.SCHEDULE_PREFIX)]
    others = [one for one in closed if not one["scheduleId"].startswith(names.SCHEDULE_PREFIX)]
    return ({"scheduleId": {"$nin": ours}} if ours else {}) | ({"$nor": others} if others else {})


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

    @staticmethod
    def pages(candidates: Sequence[Candidate], limit: int) -> list[Sequence[Candidate]]:
        """Return the candidates in pages of ``limit``, in the order in which to try them, starting with one of them."""
        pages = [candidates[first : first + limit] for first in range(0, len(candidates), limit)]
        begin = randrange(len(pages)) if pages else 0  # noqa: S311 - no secret
        return pages[begin:] + pages[:begin]
