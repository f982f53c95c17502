"""Rows of many tenants at once: what the queue reads and writes in one transaction."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, cast
from uuid import UUID

import msgspec
from pymongo import UpdateOne

from migrator.records.base import Record
from migrator.records.schedule import Schedule
from migrator.sources.profile import Context, Document
from migrator.sources.stellaops import names
from migrator.store.mongo.indexes import OF_STATE
from migrator.store.mongo.places import PLACES, Place
from migrator.store.mongo.repository import Repository, Sort, Stored, Strangers, read_as
from migrator.store.mongo.transaction import Transaction
from migrator.store.rules import GLOBAL

R = TypeVar("R", bound=Record)

_ANY_TIME = Context(as_of=datetime.min.replace(tzinfo=UTC), of_store=True)
"""Of schedules nothing depends on the time at which they are read."""

Wanted: TypeAlias = tuple[str, UUID]
"""The tenant that asks for a row, and the row's id."""


class Many(Repository[R]):
    """The rows of one record, whoever owns them."""

    def __init__(self, record: type[R], transaction: Transaction, strangers: Strangers, now: datetime) -> None:
        super().__init__(record, transaction, strangers, GLOBAL, now)

    def _read(self, place: Place, raw: bytes) -> Stored[R] | None:
        if self._record is Schedule:  # read again and again, and rarely changed
            return cast("Stored[R] | None", _schedule(raw))
        return super()._read(place, raw)

    def found(self, wanted: Collection[Wanted], *, shared: bool, hints: Iterable[Any] = ()) -> dict[Wanted, Stored[R]]:
        """Return the rows that there are, of each tenant its own, with ``shared`` also those of ``*``.

        ``hints`` are ``_id``s under which they may stand besides those that their ids tell.
        """
        place, answers = self._places[0], dict[Wanted, Stored[R]]()
        if not wanted:
            return answers
        keys = [key for identity in {identity for _, identity in wanted} for key in place.keys(identity)]
        self._match(answers, wanted, [*keys, *hints], shared=shared)
        strange: list[Any] = []
        for tenant, identity in wanted:
            if (tenant, identity) not in answers:
                for owner in (tenant, GLOBAL) if shared else (tenant,):
                    key = self._strangers.key(self._transaction, place, owner, identity)
                    strange += [] if key is None else [key]
        if strange:
            self._match(answers, wanted, strange, shared=shared)
        return answers

    def at(self, keys: Collection[Any], where: Mapping[str, Any]) -> dict[Any, Stored[R]]:
        """Return the rows of the documents with these ``_id``s (texts or any other BSON) that match, by source id."""
        found = self._transaction.find(self._name, {**where, "_id": {"$in": [*keys]}}) if keys else ()
        stored = (self._read(self._places[0], raw) for raw in found)
        return {one.row.source_id: one for one in stored if one is not None}  # type: ignore[attr-defined] # every table has it

    @property
    def place(self) -> Place:
        """Where new rows go."""
        return self._places[0]

    def matching(
        self, where: Mapping[str, Any], sort: Sort = (("_id", 1),), hint: str | None = None
    ) -> Iterator[Stored[R]]:
        """Yield the rows of the documents that match, in order; ``hint`` names the index to be used."""
        for raw in self._transaction.find(self._name, where, sort=sort, hint=hint):
            stored = self._read(self._places[0], raw)
            if stored is not None:
                yield stored

    def any_taken(self, identities: Iterable[UUID]) -> bool:
        """Tell whether one of these ids finds a document."""
        keys = [key for identity in identities for key in self._places[0].keys(identity)]
        return any(True for _ in self._transaction.project(self._name, {"_id": {"$in": keys}}, ["_id"], limit=1))

    def update(self, stored: Stored[R], row: R, *, proved: bool = True) -> UpdateOne:
        """Return the write of what a row changes; whole documents would touch every index.

        ``proved``: that it will be read back as it is given is tried out; who writes words of the store's own need not.
        """
        encode = stored.place.collection.encode
        row = msgspec.structs.replace(row, source=stored.row.source, source_id=stored.row.source_id)  # type: ignore[attr-defined] # every table that comes here has them
        before, after = encode((stored.row,)), encode((row,))
        given = {name: value for name, value in after.items() if name not in before or before[name] != value}
        gone = [name for name in before if name not in after]
        if proved:
            kept = {name: value for name, value in stored.document.items() if name not in gone}
            self._proved(stored.place, kept | given, row)
        update = ({"$set": given} if given else {}) | ({"$unset": dict.fromkeys(gone, "")} if gone else {})
        return UpdateOne({"_id": stored.document["_id"]}, update or {"$set": {"_id": stored.document["_id"]}})

    def replace(self, stored: Stored[R], row: R) -> R:
        """Write a row over a document."""
        return self._replace(stored, row)

    def new(self, row: R, key: str | None = None) -> tuple[Document, R]:
        """Return the document of a new row, and the row as it will be read; whether its id is taken is not asked."""
        return self._fresh(row, key)

    def _match(
        self, answers: dict[Wanted, Stored[R]], wanted: Collection[Wanted], keys: list[Any], *, shared: bool
    ) -> None:
        by_id: dict[UUID, list[Stored[R]]] = defaultdict(list)
        for raw in self._transaction.find(self._name, {"_id": {"$in": keys}}):
            stored = self._read(self._places[0], raw)
            if stored is not None:
                by_id[stored.row.id].append(stored)  # type: ignore[attr-defined] # every table that comes here has it
        for tenant, identity in wanted:
            for stored in by_id.get(identity, ()):
                owner: str = stored.row.tenant_id  # type: ignore[attr-defined] # as above
                if owner == tenant or (shared and owner == GLOBAL):
                    answers[tenant, identity] = stored


@lru_cache(maxsize=4_096)
def _schedule(raw: bytes) -> Stored[Schedule] | None:
    """Return what the document of a schedule is read as; nobody writes into what is returned."""
    return cast("Stored[Schedule] | None", read_as(PLACES[Schedule][0], raw, _ANY_TIME))


def spelled(schedule: Stored[Schedule]) -> list[str]:
    """Return how documents may spell a reference to a schedule."""
    key = schedule.document["_id"]
    text = f"{names.SCHEDULE_PREFIX}{schedule.row.id.hex}"
    return [text, key] if isinstance(key, str) and key != text else [text]


def counted(transaction: Transaction, schedules: Iterable[Stored[Schedule]], among: Collection[str]) -> dict[UUID, int]:
    """Return how many runs of each schedule are in one of these states (which have one spelling), whose ever they are.

    A schedule of ``*`` may have runs of every tenant.
    """
    of = {one.row.id: one for one in schedules}
    owners = defaultdict(list)
    for one in of.values():
        for text in spelled(one):
            owners[text].append(one.row)
    found = dict.fromkeys(of, 0)
    if not owners:
        return found
    by = {"_id": {"tenant": "$tenantId", "text": "$scheduleId"}, "runs": {"$sum": 1}}
    for state in among:  # one by one: each state has an index of its own
        where = {"state": state, "scheduleId": {"$in": [*owners]}}
        for group in transaction.aggregate(names.RUNS, [{"$match": where}, {"$group": by}], hint=OF_STATE[state]):
            for row in owners[group["_id"]["text"]]:
                if row.tenant_id in (GLOBAL, group["_id"].get("tenant")):
                    found[row.id] += group["runs"]
    return found
