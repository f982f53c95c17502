"""How far back the source's history (its oplog) reaches: what is older cannot be followed."""

from typing import Final

import msgspec
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from migrator.connections.mongo import MongoDatabase

OPLOG: Final = "oplog.rs"
FULL: Final = 0.8
"""Of an oplog: the server drops from it in steps."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What the source has kept."""

    oldest: Timestamp
    seconds: int
    """From the oldest entry to the newest."""
    full: bool
    """Something is dropped for what comes in; else the time it has lived so far says nothing."""


def history(source: MongoDatabase) -> History | None:
    """Return how far back it reaches; None: there is none, or the tool's user may not read it."""
    local = source.client.local
    try:
        first = local[OPLOG].find_one({}, {"ts": 1}, sort=[("$natural", 1)])
        last = local[OPLOG].find_one({}, {"ts": 1}, sort=[("$natural", -1)])
        if first is None or last is None:
            return None
        size = local.command("collStats", OPLOG)
    except OperationFailure:
        return None
    kept = last["ts"].time - first["ts"].time
    return History(oldest=first["ts"], seconds=kept, full=size["size"] >= FULL * size["maxSize"])
