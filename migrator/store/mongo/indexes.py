"""The indexes of the store's collections, and the triggers of schedules that another application wrote.

Opening a store creates neither. Call ``MongoStore.prepare`` before the first write, as ``migrator scheduler run`` does.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from pymongo import ASCENDING, DESCENDING, DeleteOne, InsertOne, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from migrator.connections.mongo import MongoDatabase, translate_errors
from migrator.records import Schedule, Trigger
from migrator.sources.profile import Context, Document, Rejected
from migrator.sources.store_documents import names
from migrator.sources.store_documents.own import COPY_OF
from migrator.store.mongo.places import PLACES, document_of
from migrator.store.mongo.priority import FIELD, with_priority
from migrator.store.mongo.transaction import WHAT

_Keys = Sequence[str]

_ASKED: Final = 1_000
_RULE: Final = ("cronExpression", "timezone", "cronDialect")
"""Fields of a trigger that its schedule's rule decides."""

_IS_SET = {"$exists": True}

UNIQUE: Mapping[str, Mapping[str, tuple[_Keys, Mapping[str, Any]]]] = {
    names.SCHEDULES: {"uq_schedules_name": (("tenantId", "name"), {"deletedAt": None})},
    names.RUNS: {
        "uq_runs_number": (("scheduleId", "runNumber"), {"runNumber": _IS_SET}),
        "uq_runs_slot": (("triggerId", "scheduledAt", "attempt"), {"triggerId": _IS_SET, "scheduledAt": _IS_SET}),
        "uq_runs_dedupe": (("triggerId", "dedupeKey"), {"triggerId": _IS_SET, "dedupeKey": _IS_SET}),
    },
    names.POLICY_JOBS: {"uq_policy_jobs_run": (("tenantId", "runId"), {"runId": _IS_SET})},
    names.HANDLERS: {"uq_handlers_name": (("tenantId", "name"), {"name": _IS_SET})},
}
"""Collection to its unique indexes: name to keys and to the condition on documents that are in it."""

DUE: Final = "idx_triggers_due"
AVAILABLE: Final = "idx_runs_available"
CREATED: Final = "idx_runs_created"
"""Named to the server by the reads of candidates: each has the order of the queue."""

RUNNING: Final = "idx_runs_running"
"""Named to the server if a query has no condition on its first fields: the server would not choose it."""

OF_STATE: Mapping[str, str] = {"queued": "idx_runs_queued", "running": RUNNING}
"""State to the index that counts a schedule's runs in it; without a hint the server may read all of its runs."""

WAITING: Mapping[str, Mapping[str, tuple[_Keys, Mapping[str, Any]]]] = {
    names.TRIGGERS: {DUE: ((f"-{FIELD}", "nextFireAt", "_id", "scheduleId", "tenantId"), {"nextFireAt": _IS_SET})},
    names.RUNS: {
        AVAILABLE: (
            (f"-{FIELD}", "availableAt", "_id", "scheduleId", "tenantId"),
            {"state": "queued", "availableAt": _IS_SET},
        ),
        CREATED: (
            (f"-{FIELD}", "createdAt", "_id", "scheduleId", "tenantId"),
            {"state": "queued", "availableAt": None},
        ),
        "idx_runs_queued": (("scheduleId", "availableAt", "_id", "tenantId"), {"state": "queued"}),
        RUNNING: (("scheduleId", "leaseExpiresAt", "_id", "tenantId", "workerId"), {"state": "running"}),
    },
}
"""Collection to the indexes of what waits or runs: they stay small, however many runs have ended.

Every claim and every end changes each of them. So running runs have only one index: there are as many as workers hold,
and a read of leases or workers reads all of it.
"""

PLAIN: Mapping[str, Sequence[_Keys]] = {
    names.SCHEDULES: (
        ("tenantId", "_id"),
        ("tenantId", "-createdAt", "_id"),
        ("tenantId", "-priority", "_id"),
        ("tenantId", "status", "enabled"),
        ("tenantId", "createdBy"),
        ("tenantId", "deletedAt"),
        ("selection.tenantId", "tenantId"),
        ("tags", "tenantId"),
        ("priority",),
        ("timeoutMs",),
        ("handlerName", "tenantId"),
        ("handlerType",),
    ),
    names.TRIGGERS: (
        ("tenantId", "nextFireAt", "scheduleId"),
        ("tenantId", "kind"),
        ("scheduleId",),
        ("eventName",),
    ),
    names.RUNS: (
        ("tenantId", "-createdAt", "_id"),
        ("tenantId", "state", "createdAt", "_id"),
        ("scheduleId", "-createdAt", "_id"),
        ("triggerId",),
        ("traceId",),
        ("retryOf",),
    ),
    names.EXECUTION_LOGS: (("runId", "loggedAt", "_id"),),
    names.IMPACT_SNAPSHOTS: (("runId",),),
    names.GRAPH_JOBS: (("tenantId", "status", "-createdAt"),),
    names.GRAPH_JOB_EVENTS: (("jobId", "_id"), ("payload.job.id",)),
    names.POLICY_JOBS: (("tenantId", "status"),),
    names.POLICY_RUNS: (("tenantId", "status"),),
    names.RUN_SUMMARIES: (("tenantId", "scheduleId"),),
    names.AUDIT: (("tenantId", "-occurredAt", "_id"),),
    names.LOCKS: (("tenantId", "resource"),),
}
"""Collection to its other indexes; ``-`` is descending."""

FORMER: Mapping[str, Sequence[_Keys]] = {
    names.SCHEDULES: (("handlerName",),),
    names.TRIGGERS: (("tenantId", "nextFireAt"),),
}
"""Collection to indexes that earlier versions created; one of ``PLAIN`` begins with the same keys and replaces each."""


SHARED: Final = frozenset({"uq_schedules_name", "uq_policy_jobs_run"})
"""Unique indexes over fields that other applications write, too."""


def ensure_indexes(database: MongoDatabase) -> Mapping[str, Sequence[str]]:
    """Create the indexes that are missing; return collection to the indexes that were created.

    Other applications continue to write as before: if a collection holds documents already, ``SHARED`` indexes are
    created as plain ones, which refuse nothing. So is one whose key the documents repeat. Then only the lookup before
    each write guards the key.
    """
    made: dict[str, Sequence[str]] = {}
    with translate_errors(WHAT):
        for name in sorted({*UNIQUE, *WAITING, *PLAIN}):
            before = set(database[name].index_information())
            for index, (keys, condition) in UNIQUE.get(name, {}).items():
                _unique(database, name, index, keys, condition, before)
            for index, (keys, condition) in WAITING.get(name, {}).items():
                database[name].create_index(_directed(keys), name=index, partialFilterExpression=condition)
            for keys in PLAIN.get(name, ()):
                database[name].create_index(_directed(keys))
            after = set(database[name].index_information()) - {"_id_"}
            if after - before:
                made[name] = sorted(after - before)
    return made


def replaced_indexes(database: MongoDatabase) -> Mapping[str, Sequence[str]]:
    """Return collection to the names of its indexes that are ``FORMER`` ones, if what replaces them exists.

    An index of the same keys with an option, as an application may have created it, is not among them. Raises the
    driver's ``PyMongoError`` if the indexes may not be listed.
    """
    replaced: dict[str, Sequence[str]] = {}
    for name, former in FORMER.items():
        plain = {
            tuple(about["key"]): index
            for index, about in database[name].index_information().items()
            if about.keys() <= {"v", "ns", "key"}
        }
        for keys in former:
            replacement = next(one for one in PLAIN[name] if one[: len(keys)] == keys)
            if tuple(_directed(keys)) in plain and tuple(_directed(replacement)) in plain:
                replaced[name] = [*replaced.get(name, ()), plain[tuple(_directed(keys))]]
    return replaced


def _unique(
    database: MongoDatabase, name: str, index: str, keys: _Keys, condition: Mapping[str, Any], existing: Container[str]
) -> None:
    plain = f"{index}_repeated"
    if index in existing or plain in existing:
        return
    shared = index in SHARED and database[name].find_one({}, {"_id": 1}) is not None
    try:
        if not shared:
            database[name].create_index(_directed(keys), name=index, unique=True, partialFilterExpression=condition)
            return
    except DuplicateKeyError:
        pass
    database[name].create_index(_directed(keys), name=plain, partialFilterExpression=condition)


def _directed(keys: _Keys) -> list[tuple[str, int]]:
    return [(key.lstrip("-"), DESCENDING if key.startswith("-") else ASCENDING) for key in keys]


def create_missing_triggers(database: MongoDatabase, covers: Callable[[Schedule], bool] = lambda _: True) -> int:
    """Keep a trigger document for the rule of each schedule document; return how many were written or deleted.

    Only for the schedules that are the caller's (``covers``). Copies of rules that do not exist any more are always
    deleted.

    The rule belongs to the schedule. A copy of it is kept where the store reads triggers, for the next fire, which no
    schedule holds. The copy is marked, so that the migration skips it. Copies are added, changed and deleted for
    schedules that were added, changed or left without a rule since the last call. The ids are those that the migration
    computes.
    """

    def adopt(session: ClientSession) -> int:
        return len(_bring_up_to_date(database, session, covers))

    with database.client.start_session() as session:
        return session.with_transaction(adopt, ReadConcern("snapshot"), WriteConcern("majority"))


def _bring_up_to_date(
    database: MongoDatabase, session: ClientSession, covers: Callable[[Schedule], bool]
) -> Sequence[Any]:
    triggers = database[names.TRIGGERS]
    made = {copy["_id"]: (schedule, copy) for schedule, copy in _made_by_schedules(database, session)}
    kept: dict[Any, Document] = {}
    for some in (triggers.find({COPY_OF: names.SCHEDULES}, session=session), _named(triggers, [*made], session)):
        kept |= {one["_id"]: one for one in some}
    changes: list[InsertOne[Document] | UpdateOne | DeleteOne] = []
    for key, (schedule, copy) in made.items():
        if not covers(schedule):
            continue
        if key not in kept:
            changes += [] if schedule.deleted_at is not None else [InsertOne(copy)]
        elif update := _update(kept[key], copy):
            changes.append(UpdateOne({"_id": key}, update))
    changes += [DeleteOne({"_id": key}) for key in kept if key not in made]
    if changes:
        triggers.bulk_write(changes, session=session)
    return changes


def _named(triggers: Collection[Document], keys: Sequence[str], session: ClientSession) -> Iterator[Document]:
    for first in range(0, len(keys), _ASKED):
        yield from triggers.find({"_id": {"$in": [*keys[first : first + _ASKED]]}}, session=session)


def _update(kept: Document, copy: Document) -> Document:
    """Return the update that makes a copy state its schedule's rule; another rule has another next fire."""
    held = (*_RULE, "enabled", COPY_OF, FIELD)
    given = {name: copy[name] for name in held if name in copy and kept.get(name) != copy[name]}
    gone: list[str] = [name for name in _RULE if name in kept and name not in copy]
    if not given.keys().isdisjoint(_RULE) or gone:
        gone.append("nextFireAt")
    return ({"$set": given} if given else {}) | ({"$unset": dict.fromkeys(gone, "")} if gone else {})


def _made_by_schedules(database: MongoDatabase, session: ClientSession) -> Iterator[tuple[Schedule, Document]]:
    """Yield each schedule that has a rule, with the copy of it."""
    decode = PLACES[Schedule][0].collection.decode
    context = Context(as_of=datetime.min.replace(tzinfo=UTC))
    for document in database[names.SCHEDULES].find({}, session=session):
        with suppress(Rejected):
            rows = decode(document, context).rows
            schedule = next(row for row in rows if isinstance(row, Schedule))
            for row in rows:
                if isinstance(row, Trigger):
                    copy = with_priority(document_of(row), schedule) | {COPY_OF: names.SCHEDULES}
                    if type(document["_id"]) is str:
                        copy["scheduleId"] = document["_id"]
                    yield schedule, copy
