"""What comes first: due triggers and queued runs in the order of their schedules' priority, then of time, then of id.

The priority is the schedule's, and the time stands in another collection, so no index has both. There are few
priorities, and mostly few schedules that have another than the usual one: level by level, from the highest, documents
are read in the order of time, those of the level's schedules only. A level of very many schedules is not listed: its
documents are picked out of all that are left. Where little waits, all of it is read, and sorted here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from re import escape
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from migrator.records import Record, Schedule
from migrator.sources.profile import Document, Rejected
from migrator.sources.stellaops import ids, names
from migrator.store import validation
from migrator.store.mongo.places import PLACES
from migrator.store.mongo.repository import CrossTenantRepository, ForeignIds, StoredDocument, Wanted, counted
from migrator.store.mongo.transaction import Transaction
from migrator.store.queue import SCRATCH
from migrator.values.identity import source_id

LISTED = 2_000
"""So many schedules of a level are named one by one."""

_SMALLEST_PAGE = 32

_Where: TypeAlias = dict[str, Any]


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """Documents that wait, in the order of time: a condition, and the order that an index has."""

    where: Mapping[str, Any]
    order: Sequence[tuple[str, int]]


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be ranked."""

    record: type[Record]
    streams: Sequence[Stream]
    since: Callable[[Document], datetime]
    """Since when a document waits; raises ``Rejected``."""
    fields: Sequence[str]
    """What ``since`` reads."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A document in its place."""

    key: Any
    """Its ``_id``."""
    source_id: str
    row_id: UUID
    tenant: str
    since: datetime
    schedule: Wanted | None
    text: str | None
    """How it spells its schedule."""


Fits: TypeAlias = Callable[[Schedule | None], bool]


def served(tenants: Sequence[str] | None) -> _Where:
    """Return the condition on documents of these tenants; none: of all but scratch ones."""
    if tenants is None:
        return {"tenantId": {"$not": {"$regex": f"^{escape(SCRATCH)}"}}}
    return {"tenantId": {"$in": [*tenants]}}


class Ranking:
    """One search; asked again, it goes on behind what it gave before.

    It learns which schedules are passed over, so that they hide nothing behind them.
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
        """``fits`` tells whether what waits of a schedule may be taken; ``bounded``: by ``max_concurrency`` too."""
        self._transaction, self._waiting, self._fits, self._bounded = transaction, waiting, fits, bounded
        self._place, self._tenants = PLACES[waiting.record][0], tenants
        self._schedules = CrossTenantRepository(Schedule, transaction, foreign_ids, now)
        self._shelf: dict[Wanted, StoredDocument[Schedule] | None] = {}
        self._room: dict[UUID, int] = {}
        self._given: set[str] = set()

    def first(self, limit: int) -> list[Candidate]:
        """Return so many candidates that were not given before, or as many as there are."""
        chosen = self._of_all(limit)
        if chosen is not None:
            return chosen
        chosen = []
        for where, level in self._levels():
            self._fill(chosen, limit, where, level)
            if len(chosen) >= limit:
                break
        return chosen

    def _of_all(self, limit: int) -> list[Candidate] | None:
        """Return what comes first where so little waits that it is read as a whole; else none."""
        page, more = self._page({}, max(_SMALLEST_PAGE, limit) + _SMALLEST_PAGE, [])
        if more:
            return None
        page = [one for one in page if one.source_id not in self._given]
        self._look_up(page)
        page.sort(key=lambda one: -priority(self._schedule(one)))  # within a priority the order of time stays
        chosen: list[Candidate] = []
        for one in page:
            if len(chosen) < limit and self._takes(one, None):
                chosen.append(one)
                self._given.add(one.source_id)
        return chosen

    def _levels(self) -> Iterator[tuple[_Where, int | None]]:
        """Yield the levels, highest first: the condition on documents, and the level that is still to be asked for."""
        asked: _Where = {} if self._tenants is None else {"$or": self._owned([*self._tenants, validation.GLOBAL])}
        known = self._transaction.distinct(names.SCHEDULES, "priority", asked)
        levels = {level for level in known if isinstance(level, int)} - {validation.DEFAULT_PRIORITY}
        listed: dict[int, list[str]] = {}
        for level in levels:
            texts = self._texts(asked | {"priority": level})
            if texts is not None:
                listed[level] = texts
        others: _Where = {"scheduleId": {"$nin": [text for texts in listed.values() for text in texts]}}
        alone = len(listed) == len(levels)
        for level in sorted(levels | {validation.DEFAULT_PRIORITY}, reverse=True):
            if level in listed:
                yield {"scheduleId": {"$in": listed[level]}}, None
            else:
                yield others if listed else {}, None if alone else level

    @staticmethod
    def _owned(tenants: Sequence[str]) -> list[_Where]:
        return [{path: {"$in": [*tenants]}} for path in PLACES[Schedule][0].tenants]

    def _texts(self, where: _Where) -> list[str] | None:
        """Return how the schedules that match are referred to; none where they are too many."""
        texts: list[str] = []
        fields = ["tenantId", "selection.tenantId"]
        for count, one in enumerate(self._transaction.project(names.SCHEDULES, where, fields, limit=LISTED + 1)):
            if count == LISTED:
                return None
            key, chosen = one["_id"], one.get("selection")
            tenant = one.get("tenantId") or (chosen.get("tenantId") if isinstance(chosen, dict) else None)
            if isinstance(tenant, str):
                text = f"{names.SCHEDULE_PREFIX}{PLACES[Schedule][0].row_id(tenant, key).hex}"
                texts += [text, key] if isinstance(key, str) and key != text else [text]
        return texts

    def _fill(self, chosen: list[Candidate], limit: int, where: _Where, level: int | None) -> None:
        """Add what fits of a level; page by page, each without the schedules that the pages before ruled out."""
        size, seen = max(_SMALLEST_PAGE, limit), set(self._given)
        closed: dict[Wanted, _Where] = {}
        while len(chosen) < limit:
            page, more = self._page(where, size, list(closed.values()))
            page = [one for one in page if one.source_id not in seen]
            seen |= {one.source_id for one in page}
            self._look_up(page)
            for one in page:
                if len(chosen) == limit:
                    return
                if self._takes(one, level):
                    chosen.append(one)
                    self._given.add(one.source_id)
                elif one.schedule is not None:
                    closed[one.schedule] = {"tenantId": one.tenant, "scheduleId": one.text}
            if not more:
                return
            size *= 2

    def _page(self, where: _Where, size: int, closed: list[_Where]) -> tuple[list[Candidate], bool]:
        """Return the first documents, as far as their order is known, and whether there are more."""
        found: list[Candidate] = []
        bounds: list[tuple[datetime, UUID]] = []
        more = False
        parts = [part for part in (served(self._tenants), where, _none_of(closed)) if part]
        fields = ["tenantId", "scheduleId", *self._waiting.fields]
        for stream in self._waiting.streams:
            condition = {"$and": [dict(stream.where), *parts]}
            read = [*self._transaction.project(self._place.name, condition, fields, sort=stream.order, limit=size)]
            some = [one for one in map(self._candidate, read) if one is not None]
            found += some
            if len(read) == size:
                more = True
                bounds += [(one.since, one.row_id) for one in some[-1:]]
        found.sort(key=lambda one: (one.since, one.row_id))
        return [one for one in found if not bounds or (one.since, one.row_id) <= min(bounds)], more

    def _candidate(self, document: Document) -> Candidate | None:
        key, tenant, text = document["_id"], document.get("tenantId"), document.get("scheduleId")
        if not isinstance(tenant, str) or not isinstance(text, str | None):
            return None
        try:
            since = self._waiting.since(document)
        except Rejected:
            return None
        return Candidate(
            key=key,
            source_id=source_id(key),
            row_id=self._place.row_id(tenant, key),
            tenant=tenant,
            since=since,
            schedule=None if text is None else (tenant, ids.schedule_id(tenant, text)),
            text=text,
        )

    def _look_up(self, page: Sequence[Candidate]) -> None:
        """Learn of the schedules of a page, and how many more runs they may have."""
        texts = {one.schedule: one.text for one in page if one.schedule is not None and one.schedule not in self._shelf}
        found = self._schedules.found(texts, shared=True, hints=set(texts.values()))
        self._shelf |= {wanted: found.get(wanted) for wanted in texts}
        limited = [one for one in found.values() if self._bounded and one.row.max_concurrency is not None]
        for identity, running in counted(self._transaction, limited, ("running",)).items():
            most = next(one.row.max_concurrency or 0 for one in limited if one.row.id == identity)
            self._room.setdefault(identity, most - running)

    def _schedule(self, one: Candidate) -> Schedule | None:
        stored = None if one.schedule is None else self._shelf[one.schedule]
        return None if stored is None else stored.row

    def _takes(self, one: Candidate, level: int | None) -> bool:
        """Tell whether a candidate is one of its level and may be taken; then there is room for one less."""
        schedule = self._schedule(one)
        if not self._fits(schedule) or level not in (None, priority(schedule)):
            return False
        if schedule is None or schedule.id not in self._room:
            return True
        self._room[schedule.id] -= 1
        return self._room[schedule.id] >= 0


def priority(schedule: Schedule | None) -> int:
    """Return the priority of what waits of a schedule, or of none."""
    return validation.DEFAULT_PRIORITY if schedule is None or schedule.priority is None else schedule.priority


def _none_of(closed: Sequence[_Where]) -> _Where:
    """Return the condition that rules schedules out, each of one tenant; a text of our own means the same to all."""
    ours = [one["scheduleId"] for one in closed if one["scheduleId"].startswith(names.SCHEDULE_PREFIX)]
    others = [one for one in closed if not one["scheduleId"].startswith(names.SCHEDULE_PREFIX)]
    return ({"scheduleId": {"$nin": ours}} if ours else {}) | ({"$nor": others} if others else {})
