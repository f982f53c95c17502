"""What was written in MongoDB since the cutover by others than the reverse sync, and who is connected and could write.

The change stream names the documents from the position of the fence on. The reverse sync writes in transactions that
begin with its fencing token, so that everything else is somebody else's. MongoDB does not say whose. Writes that the
fence refused leave no trace in its statistics (tried on 6.0), so they are not looked for.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from migrator.connections.mongo import UNAUTHORIZED, MongoDatabase, committed_time, first_line, translate_errors
from migrator.cutover import fence
from migrator.cutover.journal import Cutover
from migrator.cutover.reverse_sync import FENCE_COLLECTION
from migrator.cutover.server_gates import Gate
from migrator.exit_status import Allowance, beyond
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail.positions import as_datetime, position_after
from migrator.pipeline.tail.stream import AWAIT_MS, LOST_CODES
from migrator.store.epoch import KEY
from migrator.values.identity import source_id

WRITES_GATE: Final = "writes in MongoDB"
CONNECTED_GATE: Final = "users of MongoDB"
NAMED: Final = 5
"""How many documents are named."""
KEPT_FIELDS: Final = {"operationType": 1, "ns": 1, "documentKey": 1, "lsid": 1, "txnNumber": 1, "clusterTime": 1}


class LateWrites(msgspec.Struct, kw_only=True):
    """Documents that others than the reverse sync have changed since the cutover."""

    until: Timestamp
    """Cluster time up to which was looked."""
    complete: bool = False
    """Whether everything up to now was looked at."""
    unknown: str = ""
    """Why it is not known; empty if it is."""
    touched: dict[str, set[str]] = {}
    """Collection → ids as text."""
    dropped: set[str] = set()
    """Collections that were dropped or renamed; "" for the database."""
    expiring: dict[str, int] = {}
    """Collection with a TTL index → documents that were deleted, by MongoDB itself or by others."""
    first: Timestamp | None = None
    last: Timestamp | None = None

    @property
    def documents(self) -> int:
        """Number of documents, and of collections that were dropped."""
        return sum(map(len, self.touched.values())) + len(self.dropped)


def find(sessions: Sessions, cutover: Cutover, *, seconds: float | None = None) -> LateWrites:
    """Return the writes of others since the cutover; ``seconds``: look for so long at most (None: at everything)."""
    kept = cutover.detail.get("position")
    if kept is None:
        return LateWrites(until=Timestamp(0, 0), unknown="the cutover recorded no position of the fence")
    since = Timestamp(kept["t"], kept["i"])
    looked = LateWrites(until=since)
    with translate_errors("the source"):
        try:
            _read(sessions, looked, committed_time(sessions.source), seconds)
        except OperationFailure as error:  # at the opening, or at the first event
            if error.code not in LOST_CODES:
                raise
            looked.unknown = f"the oplog does not reach back to the cutover ({first_line(error)})"
    return looked


def _read(sessions: Sessions, looked: LateWrites, end: Timestamp, seconds: float | None) -> None:
    source = sessions.source
    names = [sessions.name_of(one.name) for one in sessions.profile.collections]
    expiring = _expiring(sessions, names)
    ours = {"ns.coll": {"$in": [*names, FENCE_COLLECTION]}}
    pipeline: list[dict[str, Any]] = [
        {"$match": {"$or": [ours, {"operationType": "dropDatabase"}]}},
        {"$project": KEPT_FIELDS},
    ]
    own: tuple[Any, Any] | None = None
    until = None if seconds is None else time.monotonic() + seconds
    with source.watch(pipeline, start_at_operation_time=looked.until, max_await_time_ms=AWAIT_MS) as stream:
        while stream.alive and (until is None or time.monotonic() < until):
            change: Any = stream.try_next()
            if change is None:
                token = stream.resume_token
                if token is not None:
                    looked.until = max(looked.until, position_after(token).time)
                if looked.until >= end:
                    looked.complete = True
                    return
                continue
            looked.until = change["clusterTime"]
            transaction = (change["lsid"]["id"], change["txnNumber"]) if "txnNumber" in change else None
            if change.get("ns", {}).get("coll") == FENCE_COLLECTION:
                own = transaction
            elif transaction is None or transaction != own:
                _note(looked, change, expiring)
            if looked.until > end:
                looked.complete = True
                return
        looked.complete = not stream.alive


def _note(looked: LateWrites, change: Any, expiring: set[str]) -> None:  # noqa: ANN401 - an event
    collection = change.get("ns", {}).get("coll", "")
    if "documentKey" not in change:
        if change["operationType"] == "invalidate":
            return
        looked.dropped.add(collection)
    elif change["documentKey"]["_id"] == KEY:
        return
    elif change["operationType"] == "delete" and collection in expiring:
        looked.expiring[collection] = looked.expiring.get(collection, 0) + 1
        return
    else:
        looked.touched.setdefault(collection, set()).add(source_id(change["documentKey"]["_id"]))
    looked.first = looked.first or change["clusterTime"]
    looked.last = change["clusterTime"]


def _expiring(sessions: Sessions, names: list[str]) -> set[str]:
    """Return the collections from which MongoDB itself removes documents (TTL indexes)."""
    existing = set(sessions.source.list_collection_names())
    return {
        name
        for name in names
        if name in existing and any("expireAfterSeconds" in index for index in sessions.source[name].list_indexes())
    }


def connected_users(
    source: MongoDatabase,
    revoked: Sequence[Mapping[str, Any]],
    tolerated: Sequence[str] = (),
    collections: Sequence[str] = (),
) -> list[str] | None:
    """Return the users, besides the tool's own, who are connected and write when no fence stops them, with their host.

    ``revoked``: those whose roles the fence has revoked. ``tolerated``: those who are known not to write.
    ``collections``: those to which they write; none: to any. None if the tool's user may not see connections
    (privilege inprog).
    """
    writers = fence.writing_users(source, revoked, collections) - set(tolerated)
    pipeline: list[dict[str, Any]] = [
        {"$currentOp": {"allUsers": True, "idleConnections": True}},
        {"$match": {"effectiveUsers": {"$exists": True}, "client": {"$exists": True}}},
    ]
    with translate_errors("the source"):
        try:
            operations = list(source.client.admin.aggregate(pipeline))
        except OperationFailure as error:
            if error.code != UNAUTHORIZED:
                raise
            return None
    return sorted({one for operation in operations for one in _named_users(operation, writers)})


def _named_users(operation: dict[str, Any], writers: set[str]) -> Iterator[str]:
    host = operation["client"].rpartition(":")[0]
    program = f", {operation['appName']}" if operation.get("appName") else ""
    for user in operation["effectiveUsers"]:
        title = f"{user['user']}@{user['db']}"
        if title in writers:
            yield f"{title} (from {host}{program})"


def gates(sessions: Sessions, cutover: Cutover, allowed: Allowance = 0, *, seconds: float | None = None) -> list[Gate]:
    """Return who wrote in MongoDB since the cutover, and who could; a gate that is not met stops ``cutover finish``.

    ``allowed``: so many documents written by others are known, and do not matter.
    """
    looked = find(sessions, cutover, seconds=seconds)
    users = connected_users(
        sessions.source, cutover.fence.get("revoked", ()), collections=cutover.fence.get("collections", ())
    )
    if users is None:
        connected = Gate(
            name=CONNECTED_GATE, passed=None, words="not known: the tool's user may not see connections (inprog)"
        )
    elif users:
        words = f"connected now, and refused only by the fence: {', '.join(users)}; end these processes"
        connected = Gate(name=CONNECTED_GATE, passed=None, words=words)
    else:
        connected = Gate(name=CONNECTED_GATE, passed=True, words="nobody who could write is connected now")
    return [_writes_gate(looked, allowed), connected]


def _writes_gate(looked: LateWrites, allowed: Allowance) -> Gate:
    unseen = "attempts that the fence refused leave no trace and were not looked for"
    expired = "".join(
        f"; {count:,} documents of {name} were deleted, by its TTL index or by others"
        for name, count in sorted(looked.expiring.items())
    )
    if looked.unknown:
        return Gate(name=WRITES_GATE, passed=None, words=f"not known: {looked.unknown}; {unseen}")
    until = "" if looked.complete else f" up to {_clock(as_datetime(looked.until))}, and not looked at after that"
    if looked.documents:
        detail = f"{looked.documents:,} documents were written by others than the reverse sync{until}, {_named(looked)}"
        known = beyond(looked.documents, allowed)
        remedy = (
            "; PostgreSQL does not have this, and MongoDB does not say who wrote it: enter what matters in PostgreSQL,"
            f" then call migrator cutover finish --allow-writes {looked.documents}"
        )
        return Gate(name=WRITES_GATE, passed=not known, words=f"{detail}{remedy if known else ''}{expired}")
    detail = f"nothing but the reverse sync wrote the scheduler's documents since the cutover{until}; {unseen}{expired}"
    return Gate(name=WRITES_GATE, passed=True if looked.complete else None, words=detail)


def _named(looked: LateWrites) -> str:
    assert looked.first is not None  # noqa: S101 - something was written
    assert looked.last is not None  # noqa: S101 - as above
    places = [f"{name} {len(ids):,} ({', '.join(sorted(ids)[:NAMED])})" for name, ids in sorted(looked.touched.items())]
    places += [f"{name or 'the database'} dropped or renamed" for name in sorted(looked.dropped)]
    return f"from {_clock(as_datetime(looked.first))} to {_clock(as_datetime(looked.last))}: {'; '.join(places)}"


def _clock(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
