"""Locks in MongoDB: a lease by the server's clock, and a fence (``work.Locks``)."""

from collections.abc import Callable
from datetime import datetime, timedelta
from random import randrange, uniform
from threading import Event
from time import monotonic
from typing import Any, cast

from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.write_concern import WriteConcern

from migrator.errors import ConflictError, LostLockError
from migrator.sources.profile import Document
from migrator.sources.stellaops import names
from migrator.store.locking import Patience, Trust, check_wait, key_of, whole
from migrator.store.mongo import leases
from migrator.store.mongo.atomic import Overtaken, atomically
from migrator.store.mongo.client import Source, speaking_of
from migrator.store.mongo.transaction import WHAT, Transaction
from migrator.store.ports import Session

_SHORTEST_WAIT, _LONGEST_WAIT = 0.005, 0.05


def _wait(seconds: float) -> None:
    Event().wait(seconds)


class MongoLocks:
    """``work.Locks``."""

    def __init__(self, database: Source, wait: Callable[[float], None] = _wait) -> None:
        """``wait`` is called with seconds between two tries."""
        self._database, self._wait = database, wait
        self._collection = database.get_collection(names.LOCKS, write_concern=WriteConcern("majority"))

    def acquire(
        self,
        tenant: str,
        resource: str,
        *,
        ttl: timedelta,
        timeout: timedelta | None = timedelta(0),
        holder: str = "",
        now: datetime | None = None,
    ) -> "MongoLock | None":
        """Return the lock, or none when it was not had within ``timeout``; tries are some milliseconds apart."""
        key, ttl = key_of(tenant, resource), whole(ttl)
        check_wait(timeout, now)
        moment, patience = leases.clock(now), Patience(timeout)
        while True:
            tried = monotonic()
            found = self._take(tenant, resource, ttl, holder, moment)
            if found is not None:
                return MongoLock(self._collection, key, found, ttl, tried)
            left = patience.left()
            if left == 0:
                return None
            pause = uniform(_SHORTEST_WAIT, _LONGEST_WAIT)  # noqa: S311 - no secret
            self._wait(pause if left is None else min(pause, left))

    def holder(self, tenant: str, resource: str, now: datetime | None = None) -> tuple[str, int] | None:
        """Return who holds it now (text, fence); a lock of another application too."""
        key_of(tenant, resource)
        held = {"$nor": [leases.is_free(leases.clock(now))]}
        with speaking_of(WHAT):
            found = self._collection.find_one({"$and": [leases.of_key(tenant, resource), held]})
        return None if found is None else (str(found["owner"]), int(found.get("fence") or 0))

    def guard(self, session: Session, tenant: str, resource: str, fence: int) -> None:
        """Let the session commit only if ``fence`` is the lock's and it is live; raises ``LostLockError``.

        A guarded session rarely meets another one of the same lock; then it raises ``ConflictError``.
        """
        key = key_of(tenant, resource)
        transaction = cast("Transaction", session.transaction)  # type: ignore[attr-defined] # of this backend
        held = {"$and": [leases.of_key(tenant, resource), leases.is_held(fence, leases.clock(session.now))]}
        if next(transaction.project(names.LOCKS, held, ["_id"], limit=1), None) is None:
            raise LostLockError("the lock is not held any more under this fence")
        gate = randrange(leases.GATES)  # noqa: S311 - no secret
        try:
            leases.pass_gates(transaction, key, range(gate, gate + 1))
        except ConflictError:
            with speaking_of(WHAT):
                if self._collection.find_one(held) is None:
                    raise LostLockError("the lock was taken by another one at this moment") from None
            raise

    def _take(self, tenant: str, resource: str, ttl: timedelta, holder: str, moment: Any) -> Document | None:  # noqa: ANN401 - of ``leases.clock``
        """Return the document of a lock that was taken, else none; nothing is left behind then."""
        key = key_of(tenant, resource)

        def act(transaction: Transaction) -> Document | None:
            there = transaction.project(names.LOCKS, leases.of_key(tenant, resource), [], sort=[("_id", 1)], limit=1)
            known = next(there, None)
            if known is None:
                first = leases.first_fence(self._database)
                made = leases.first_of(tenant, resource, holder, ttl, moment, first)
                return transaction.take(
                    names.LOCKS, {"_id": key, "tenantId": None, "resource": None}, made, upsert=True
                )
            where = {"_id": known["_id"], **leases.is_free(moment)}
            found = transaction.take(names.LOCKS, where, leases.taken(holder, ttl, moment))
            if found is not None:
                leases.pass_gates(transaction, key, range(leases.GATES))
            return found

        try:
            return atomically(self._database, act)
        except Overtaken:
            return None


class MongoLock:
    """``work.LockHandle``."""

    def __init__(
        self, collection: Collection[Document], key: str, found: Document, ttl: timedelta, tried: float
    ) -> None:
        """Hold what ``acquire`` found; ``tried`` is the local time at which its winning attempt began."""
        self.key, self.fence = key, int(found["fence"])
        self._collection, self._key, self._ttl = collection, found["_id"], ttl
        self._lost = False
        self._trust = Trust(tried, ttl)

    def renew(self, ttl: timedelta | None = None, *, now: datetime | None = None) -> bool:
        """Extend from now, by the first ttl where none is given; false when it was lost: it stays lost."""
        length, moment, tried = self._ttl if ttl is None else whole(ttl), leases.clock(now), monotonic()
        held = self._change(leases.extended(length, moment), moment)
        if held:
            self._trust.extend(tried, length)
        return held

    def release(self, *, now: datetime | None = None) -> bool:
        """Give it back; false when it was not this handle's any more. A second call returns false."""
        held = self._change(leases.RELEASED, leases.clock(now))
        self._lost = True
        return held

    @property
    def trusted(self) -> bool:
        """Whether the holder may act without asking: local time since the winning attempt is well inside the ttl."""
        return not self._lost and self._trust.lasts()

    def _change(self, update: Any, moment: Any) -> bool:  # noqa: ANN401 - an update; of ``leases.clock``
        if self._lost:
            return False
        where = {"_id": self._key, **leases.is_held(self.fence, moment)}
        with speaking_of(WHAT):
            found = self._collection.find_one_and_update(where, update, return_document=ReturnDocument.AFTER)
        self._lost = found is None
        return not self._lost
