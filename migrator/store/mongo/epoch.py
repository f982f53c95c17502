"""The persistence epoch in MongoDB (``store.epoch``): a document of ``locks`` that the copy skips by rule."""

from typing import Any

from pymongo.client_session import ClientSession
from pymongo.write_concern import WriteConcern

from migrator.connections.mongo import MongoDatabase
from migrator.sources.store_documents import names
from migrator.store.epoch import BACKEND, KEY, RESOURCE, Epoch, EpochState, require
from migrator.store.validation import GLOBAL


def read(source: MongoDatabase, session: ClientSession | None = None) -> Epoch | None:
    """Return the content of the document, as the session's snapshot reads it; None: there was no cutover."""
    found = source[names.LOCKS].find_one({"_id": KEY}, {"fence": 1, "metadata": 1}, session=session)
    backend = None if found is None else (found.get("metadata") or {}).get(BACKEND)
    return None if found is None or backend is None else Epoch(int(found.get("fence") or 0), str(backend))


def require_here(source: MongoDatabase, session: ClientSession | None = None) -> None:
    """Raise ``BackendMovedError`` if the data is on the other side."""
    found = read(source, session)
    require(EpochState(None if found is None else found.backend), "mongo")


def write(source: MongoDatabase, epoch: Epoch) -> None:
    """Write the document to a majority; called again, it changes nothing. The number never goes back."""
    where: dict[str, Any] = {"_id": KEY}
    number = {"$ifNull": ["$fence", 0]}
    newer = {"$lte": [number, {"$literal": epoch.number}]}
    metadata = {"$cond": [newer, {"$literal": {BACKEND: epoch.backend}}, "$metadata"]}
    update = {
        "tenantId": GLOBAL,
        "resource": RESOURCE,
        "fence": {"$max": [number, {"$literal": epoch.number}]},
        "metadata": metadata,
    }
    locks = source.get_collection(names.LOCKS, write_concern=WriteConcern("majority"))
    locks.update_one(where, [{"$set": update}], upsert=True)


def forget(source: MongoDatabase) -> None:
    """Delete the document."""
    source[names.LOCKS].delete_one({"_id": KEY})
