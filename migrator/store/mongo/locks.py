"""Locks in MongoDB: a lease by the server's clock, and a fencing token.

A released lock keeps its document, so that its fence keeps rising.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from random import randrange, uniform
from threading import Event
from time import monotonic
from typing import Any, cast

from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.write_concern import WriteConcern

from migrator.connections.mongo import MongoDatabase, translate_errors
from migrator.errors import ConflictError, LostLockError, OvertakenError
from migrator.sources.profile import Document
from migrator.sources.store_documents import names
from migrator.store import validation
from migrator.store.locks import Deadline, Trust, check_wait, key_of, whole_milliseconds
from migrator.store.mongo.transaction import WHAT, Transaction, in_transaction
from migrator.store.protocols import Session
from migrator.values.times import to_bson

GUARD_KEYS = 16
"""A guarded session takes one of so many keys, an acquisition takes all: see ``guard_keys``."""

_ENDS = {
    "$convert": {
        "input": {"$ifNull": ["$expiresAt", "$ttlAt"]},
        "to": "date",
        "onError": None,
        "onNull": None,
    }
}
"""When it ends, or null. ``ttlAt`` is another module's name; a time that cannot be read counts as null."""

_NOBODYS = {"$eq": [{"$ifNull": ["$owner", None]}, None]}


def clock(now: datetime | None) -> Any:  # noqa: ANN401 - a variable of the server, or a date
    """Return the expression for now in an update."""
    return "$$NOW" if now is None else to_bson(validation.checked_time(now))


def of_key(tenant: str, resource: str) -> Document:
    """Return the condition on the documents of a lock."""
    named_by_id = {"tenantId": tenant, "resource": None, "_id": resource}
    return {"$or": [{"tenantId": tenant, "resource": resource}, named_by_id]}


def is_free(moment: Any) -> Document:  # noqa: ANN401 - of ``clock``
    """Return the condition under which a lock may be taken."""
    over = {"$and": [{"$ne": [_ENDS, None]}, {"$lte": [_ENDS, moment]}]}
    return {"$expr": {"$or": [_NOBODYS, over]}}


def is_held(fence: int, moment: Any) -> Document:  # noqa: ANN401 - as above
    """Return the condition under which a lock is held under this fence."""
    lasts = {"$or": [{"$eq": [_ENDS, None]}, {"$gt": [_ENDS, moment]}]}
    same = {"$eq": [{"$ifNull": ["$fence", 0]}, fence]}
    return {"$expr": {"$and": [{"$not": [_NOBODYS]}, same, lasts]}}


def taken(holder: str, ttl: timedelta, moment: Any) -> list[Document]:  # noqa: ANN401 - as above
    """Return the update that takes a lock."""
    fields = {
        "owner": {"$literal": holder},
        "fence": {"$add": [{"$ifNull": ["$fence", 0]}, 1]},
        "acquiredAt": moment,
        "expiresAt": _later(moment, ttl),
    }
    return [{"$set": fields}, {"$unset": ["ttlAt"]}]


def extended(ttl: timedelta, moment: Any) -> list[Document]:  # noqa: ANN401 - as above
    """Return the update that renews a lock."""
    return [{"$set": {"expiresAt": _later(moment, ttl)}}]


RELEASED = {"$unset": {"owner": "", "expiresAt": ""}}
"""The update that releases a lock. A document without a time is not deleted, so that the fence stays."""


def first_of(tenant: str, resource: str, holder: str, ttl: timedelta, moment: Any, fence: Any) -> list[Document]:  # noqa: ANN401 - as above; a number, or an expression
    """Return the update that creates the document of a lock, acquired."""
    fields = {
        "tenantId": {"$literal": tenant},
        "resource": {"$literal": resource},
        "owner": {"$literal": holder},
        "fence": fence,
        "acquiredAt": moment,
        "expiresAt": _later(moment, ttl),
    }
    return [{"$set": fields}]


def first_fence(database: MongoDatabase) -> Any:  # noqa: ANN401 - a number, or what the server makes one of
    """Return the fence of a document that is created.

    If an index of another application deletes expired locks, a document may have existed before. Then the fence is the
    server's time in milliseconds, which is greater than any counted fence.
    """
    indexes = database[names.LOCKS].index_information().values()
    return {"$toLong": "$$NOW"} if any("expireAfterSeconds" in one for one in indexes) else 1


def exclude_others(transaction: Transaction, keys: Sequence[str]) -> None:
    """Exclude other transactions that take one of these keys: the second one gets ``OvertakenError``.

    They write the same documents, which are deleted before any other session could see them.
    """
    transaction.insert(names.LOCKS, [{"_id": key, "tenantId": key, "resource": key} for key in keys])
    transaction.delete(names.LOCKS, {"_id": {"$in": [*keys]}})


def guard_keys(key: str, numbers: range) -> list[str]:
    """Return keys of a lock. A guarded session takes one of ``GUARD_KEYS``, an acquisition takes all.

    So they exclude each other, but one guarded session rarely the next one. A renewal takes no key: it neither waits
    for a guarded session nor ends it.
    """
    return [f"~guard/{number}/{key}" for number in numbers]


def _later(moment: Any, ttl: timedelta) -> Document:  # noqa: ANN401 - as above
    return {"$add": [moment, ttl // timedelta(milliseconds=1)]}


_SHORTEST_WAIT, _LONGEST_WAIT = 0.005, 0.05


def _wait(seconds: float) -> None:
    Event().wait(seconds)


class MongoLocks:
    """``locks.Locks``."""

    def __init__(self, database: MongoDatabase, wait: Callable[[float], None] = _wait) -> None:
        """``wait`` is called with seconds between two attempts."""
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
        """Return the lock, or None if it was not obtained within ``timeout``; attempts are some milliseconds apart."""
        key, ttl = key_of(tenant, resource), whole_milliseconds(ttl)
        check_wait(timeout, now)
        moment, deadline = clock(now), Deadline(timeout)
        while True:
            tried = monotonic()
            found = self._take(tenant, resource, ttl, holder, moment)
            if found is not None:
                return MongoLock(self._collection, key, found, ttl, tried)
            left = deadline.left()
            if left == 0:
                return None
            pause = uniform(_SHORTEST_WAIT, _LONGEST_WAIT)  # noqa: S311 - no secret
            self._wait(pause if left is None else min(pause, left))

    def holder(self, tenant: str, resource: str, now: datetime | None = None) -> tuple[str, int] | None:
        key_of(tenant, resource)
        held = {"$nor": [is_free(clock(now))]}
        with translate_errors(WHAT):
            found = self._collection.find_one({"$and": [of_key(tenant, resource), held]})
        return None if found is None else (str(found["owner"]), int(found.get("fence") or 0))

    def guard(self, session: Session, tenant: str, resource: str, fence: int) -> None:
        """Let the session commit only if ``fence`` is the lock's and it is live; raises ``LostLockError``.

        A guarded session rarely meets another one of the same lock; then it raises ``ConflictError``.
        """
        key = key_of(tenant, resource)
        transaction = cast("Transaction", session.transaction)  # type: ignore[attr-defined] # of this backend
        held = {"$and": [of_key(tenant, resource), is_held(fence, clock(session.now))]}
        if next(transaction.project(names.LOCKS, held, ["_id"], limit=1), None) is None:
            raise LostLockError("the lock is not held any more under this fence")
        number = randrange(GUARD_KEYS)  # noqa: S311 - no secret
        try:
            exclude_others(transaction, guard_keys(key, range(number, number + 1)))
        except ConflictError:
            with translate_errors(WHAT):
                if self._collection.find_one(held) is None:
                    raise LostLockError("the lock was taken by another one at this moment") from None
            raise

    def _take(self, tenant: str, resource: str, ttl: timedelta, holder: str, moment: Any) -> Document | None:  # noqa: ANN401 - of ``clock``
        """Return the document of a lock that was acquired, else None; nothing is left behind then."""
        key = key_of(tenant, resource)

        def act(transaction: Transaction) -> Document | None:
            locks = transaction.project(names.LOCKS, of_key(tenant, resource), [], sort=[("_id", 1)], limit=1)
            known = next(locks, None)
            if known is None:
                first = first_fence(self._database)
                made = first_of(tenant, resource, holder, ttl, moment, first)
                return transaction.take(
                    names.LOCKS, {"_id": key, "tenantId": None, "resource": None}, made, upsert=True
                )
            where = {"_id": known["_id"], **is_free(moment)}
            lock = transaction.take(names.LOCKS, where, taken(holder, ttl, moment))
            if lock is not None:
                exclude_others(transaction, guard_keys(key, range(GUARD_KEYS)))
            return lock

        try:
            return in_transaction(self._database, act)
        except OvertakenError:
            return None


class MongoLock:
    """``locks.LockHandle``."""

    def __init__(
        self, collection: Collection[Document], key: str, found: Document, ttl: timedelta, tried: float
    ) -> None:
        """Hold what ``acquire`` found; ``tried`` is the local time at which its winning attempt began."""
        self.key, self.fence = key, int(found["fence"])
        self._collection, self._key, self._ttl = collection, found["_id"], ttl
        self._lost = False
        self._trust = Trust(tried, ttl)

    def renew(self, ttl: timedelta | None = None, *, now: datetime | None = None) -> bool:
        length, moment, tried = self._ttl if ttl is None else whole_milliseconds(ttl), clock(now), monotonic()
        held = self._change(extended(length, moment), moment)
        if held:
            self._trust.extend(tried, length)
        return held

    def release(self, *, now: datetime | None = None) -> bool:
        held = self._change(RELEASED, clock(now))
        self._lost = True
        return held

    @property
    def trusted(self) -> bool:
        return not self._lost and self._trust.lasts()

    def _change(self, update: Any, moment: Any) -> bool:  # noqa: ANN401 - an update; of ``clock``
        if self._lost:
            return False
        where = {"_id": self._key, **is_held(self.fence, moment)}
        with translate_errors(WHAT):
            found = self._collection.find_one_and_update(where, update, return_document=ReturnDocument.AFTER)
        self._lost = found is None
        return not self._lost
