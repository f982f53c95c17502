"""The documents that mutations are applied to: a sample of the source, and made documents where the sample lacks some.

The sample holds something of every kind in every collection, and the documents that those refer to. Made documents show
what the verification sees, not what the data holds; the report says which mutations were shown on them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, cast

import bson

from migrator.connections.mongo import MongoDatabase, translate_errors
from migrator.connections.postgres import Connection
from migrator.pipeline import ledger
from migrator.pipeline.plan import plan_context
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.transform import decode_document
from migrator.sources import history
from migrator.sources.profile import Collection, Context, Rejected, Skipped
from migrator.testing.demo import SEED, faulty_documents
from migrator.testing.demo.plan import Counts, Plan
from migrator.testing.demo.seed import COLLECTIONS
from migrator.values import identity
from migrator.values.document import readable, split
from migrator.values.identity import id_filter
from migrator.verify.scratch_databases import ScratchDatabases, insert_documents

FIRST_DOCUMENTS: Final = 6
"""Documents taken from the beginning of each collection, in the order of ``_id``."""
KINDS: Final = 40
"""Kinds of one collection at most: combinations of what the profile counts by (state, cause, ...)."""
QUARANTINED: Final = 6
"""Documents in quarantine."""
SCANNED: Final = 20_000
"""Documents from the beginning in which kinds are looked for."""
REFERENCE_DEPTH: Final = 4
"""How far references are followed."""


def copy_sample(sessions: Sessions, scratch: MongoDatabase) -> int:
    """Copy the sample's documents, byte for byte, into the scratch database; return how many.

    Two runs over the same data take the same sample.
    """
    plan = ledger.latest_plan(sessions.target)
    context = plan_context(plan) if plan is not None else None
    present = set(sessions.source.list_collection_names())
    taken: dict[str, dict[str, bytes]] = {}
    for collection in sessions.profile.collections:
        name = sessions.name_of(collection.name)
        if name in present:
            scope = history.in_scope(collection, None if context is None else context.history_before)
            with translate_errors("the source"):
                taken[collection.name] = dict(_first(sessions, collection, name, scope))
    if context is not None:
        _follow(sessions, context, taken)
    return sum(
        insert_documents(scratch, sessions.name_of(name), documents.values()) for name, documents in taken.items()
    )


def _first(
    sessions: Sessions, collection: Collection, name: str, scope: Mapping[str, Any]
) -> Iterable[tuple[str, bytes]]:
    """Yield source id and document; of those alone that are in the scope of the copy."""
    source = sessions.source[name]
    kinds = {f"g{place}": one.expression for place, one in enumerate(collection.measures) if one.kind == "group"}
    wanted = [*_first_of_each(source, kinds, scope), *_first_of_each(source, collection.tenant_expression, scope)]
    wanted += _with_remainder(sessions, collection)
    rows = sessions.target.execute(
        "SELECT source_id FROM migration.quarantine WHERE profile = %s AND collection = %s"
        " AND state IN ('open', 'dropped')"
        " ORDER BY source_key LIMIT %s",
        (sessions.profile.name, collection.name, QUARANTINED),
    )
    wanted += [row[0] for row in rows]
    yield from _documents(source.find_raw_batches(scope, sort=[("_id", 1)], limit=FIRST_DOCUMENTS))
    yield from _documents(source.find_raw_batches({"_id": id_filter(wanted), **scope}))


def _first_of_each(source: Any, groups: Any, scope: Mapping[str, Any]) -> list[str]:  # noqa: ANN401 - a collection, and a MongoDB expression
    """Return the source id of the first document of each group."""
    batches = source.aggregate_raw_batches(
        [
            *([{"$match": scope}] if scope else []),
            {"$sort": {"_id": 1}},
            {"$limit": SCANNED},
            {"$group": {"_id": groups, "first": {"$first": "$_id"}}},
            {"$sort": {"first": 1}},
            {"$limit": KINDS},
        ],
        allowDiskUse=True,
    )
    return [identity.source_id(one["first"]) for one in readable(batches)]


def _with_remainder(sessions: Sessions, collection: Collection) -> list[str]:
    """Return a source id for each kind of remainder: each path, and each type at it."""
    owner = collection.tables[0]
    if "source" not in owner.__struct_fields__:
        return []
    rows = sessions.target.execute(
        "SELECT min(source_id) FROM (SELECT source_id, extra FROM scheduler."  # noqa: S608 - a record's table name
        f"{owner.table} WHERE source = %s AND extra <> '{{}}' ORDER BY id LIMIT %s) AS stored, jsonb_each(extra) AS one"
        " GROUP BY one.key, jsonb_typeof(one.value), CASE jsonb_typeof(one.value) WHEN 'object'"
        " THEN (SELECT min(key) FROM jsonb_object_keys(one.value) AS key) END ORDER BY one.key LIMIT %s",
        (sessions.profile.source_of(collection.name), SCANNED, KINDS),
    )
    return [row[0] for row in rows]


def _documents(batches: Iterable[Any]) -> Iterable[tuple[str, bytes]]:
    for batch in batches:
        for raw in split(batch):
            yield identity.source_id_of(raw), raw


def _follow(sessions: Sessions, context: Context, taken: dict[str, dict[str, bytes]]) -> None:
    """Take what the sample refers to as well, as far as it is stored: the sample's references shall lead somewhere."""
    todo = {name: list(documents.values()) for name, documents in taken.items()}
    for _ in range(REFERENCE_DEPTH):
        found = _referred(sessions, context, todo)
        todo = {}
        for name, ids in found.items():
            missing = [key for key in ids if key not in taken.get(name, {})]
            if missing:
                source = sessions.source[sessions.name_of(name)]
                with translate_errors("the source"):
                    new = dict(_documents(source.find_raw_batches({"_id": id_filter(missing)})))
                taken.setdefault(name, {}).update(new)
                todo[name] = list(new.values())
        if not todo:
            return


def _referred(sessions: Sessions, context: Context, raws: dict[str, list[bytes]]) -> dict[str, set[str]]:
    collections = sessions.profile.by_name()
    wanted: dict[str, set[Any]] = {}
    for name, documents in raws.items():
        collection = collections[name]
        for raw in documents:
            try:
                rows = decode_document(collection, context, raw).rows
            except (Rejected, Skipped):
                continue
            for reference in collection.references:
                for row in rows:
                    if type(row) is reference.record and getattr(row, reference.column) is not None:
                        wanted.setdefault(reference.target.table, set()).add(getattr(row, reference.column))
    referred: dict[str, set[str]] = {}
    for table, ids in wanted.items():
        for source, source_id in _origins(sessions.target, table, sorted(ids)):
            collection_name = source.partition("/")[2] if source else table
            if source_id is not None and collection_name in collections:
                referred.setdefault(collection_name, set()).add(source_id)
    return referred


def _origins(target: Connection, table: str, ids: Sequence[Any]) -> list[tuple[str | None, str | None]]:
    columns = "NULL, payload ->> '_id'" if table == "graph_jobs" else "source, source_id"
    rows = target.execute(f"SELECT {columns} FROM scheduler.{table} WHERE id = ANY(%s) ORDER BY id", (ids,))  # noqa: S608 - a record's table name
    return cast("list[tuple[str | None, str | None]]", rows.fetchall())


MADE_PROFILE: Final = "stellaops"
"""The profile whose documents they are."""
_MADE_COUNTS: Final = Counts(30, 60, 10, 30, 20, 20, 20, 30, 5, 3, 20, 40)
_MADE_PER_COLLECTION: Final = 60


def write_made_documents(databases: ScratchDatabases) -> int:
    """Write the made documents into the scratch source; return how many."""
    plan = Plan(seed=SEED, counts=_MADE_COUNTS, triggers=True)
    total = 0
    for name, documents in COLLECTIONS.items():
        raws = [
            *islice(documents(plan), _MADE_PER_COLLECTION),
            *(item.raw for item in faulty_documents(SEED) if item.collection == name),
        ]
        total += insert_documents(databases.source, name, raws)
    return total + insert_documents(databases.source, "handlers", _handlers())


def _handlers() -> Iterator[bytes]:
    for number in range(3):
        yield bson.encode(
            {
                "_id": f"handler-{number}",
                "tenantId": "acme",
                "name": f"scan-{number}",
                "handlerType": "function",
                "handlerPath": "acme.tasks.scan",
            }
        )
