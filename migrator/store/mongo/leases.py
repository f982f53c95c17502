"""What a lock is in MongoDB: a document that outlives the lock, so that its fence keeps rising.

``{_id, tenantId, resource, owner, fence, acquiredAt, expiresAt}``: the shape of the profile's ``locks``, in which
another application's locks are seen and waited for. Free is one without ``owner``, or past ``expiresAt``; without
``expiresAt`` it is held for good. The fence tells one acquire from every other one.
"""

from datetime import datetime, timedelta
from typing import Any

from migrator.sources.profile import Document
from migrator.sources.stellaops import names
from migrator.store import rules
from migrator.store.mongo.client import Source
from migrator.store.mongo.transaction import Transaction
from migrator.values.times import to_bson

GATES = 16
"""Guarded sessions pass one of them each, who acquires passes all: see ``pass_gates``."""

_ENDS = {
    "$convert": {
        "input": {"$ifNull": ["$expiresAt", "$ttlAt"]},
        "to": "date",
        "onError": None,
        "onNull": None,
    }
}
"""When it ends, or null. ``ttlAt`` is another module's name; a time that cannot be read counts as none."""

_NOBODYS = {"$eq": [{"$ifNull": ["$owner", None]}, None]}


def clock(now: datetime | None) -> Any:  # noqa: ANN401 - a variable of the server, or a date
    """Return what stands for now in an update."""
    return "$$NOW" if now is None else to_bson(rules.moment(now))


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
"""The update that gives a lock back. Without a time nothing deletes the document, so that the fence stays."""


def first_of(tenant: str, resource: str, holder: str, ttl: timedelta, moment: Any, fence: Any) -> list[Document]:  # noqa: ANN401 - as above; a number, or an expression
    """Return the update that makes the document of a lock, taken."""
    fields = {
        "tenantId": {"$literal": tenant},
        "resource": {"$literal": resource},
        "owner": {"$literal": holder},
        "fence": fence,
        "acquiredAt": moment,
        "expiresAt": _later(moment, ttl),
    }
    return [{"$set": fields}]


def first_fence(database: Source) -> Any:  # noqa: ANN401 - a number, or what the server makes one of
    """Return the fence of a document that is made.

    Where an index of another application deletes locks that are over, a document may have been there before: then the
    fence is the server's time in milliseconds, which is more than any that was counted up.
    """
    indexes = database[names.LOCKS].index_information().values()
    return {"$toLong": "$$NOW"} if any("expireAfterSeconds" in one for one in indexes) else 1


def pass_gates(transaction: Transaction, key: str, numbers: range) -> None:
    """Let guarded sessions and who acquires exclude each other, but not one guarded session the next one.

    The documents that both write are gone before anybody could see them; who comes second is overtaken. A renewal
    passes no gate: it neither waits for a guarded session nor ends it.
    """
    gates = [f"~guard/{number}/{key}" for number in numbers]
    transaction.insert(names.LOCKS, [{"_id": gate, "tenantId": gate, "resource": gate} for gate in gates])
    transaction.delete(names.LOCKS, {"_id": {"$in": gates}})


def _later(moment: Any, ttl: timedelta) -> Document:  # noqa: ANN401 - as above
    return {"$add": [moment, ttl // timedelta(milliseconds=1)]}
