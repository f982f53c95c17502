"""The plan of a copy: the collections that the source has, their chunks, how each is loaded; and its preview."""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import cast

import bson
import msgspec

from migrator import __version__
from migrator.config import Settings
from migrator.connections.mongo import MongoDatabase, committed_time, require_replica_set
from migrator.connections.mongo import translate_errors as translate_source_errors
from migrator.connections.postgres import Connection
from migrator.errors import MigratorError, RefusedError, UsageError
from migrator.pipeline import ledger
from migrator.pipeline.executors import workers
from migrator.pipeline.extract import bound_cursor, tenant_filter
from migrator.pipeline.ledger import Chunk, LoadMode, Plan
from migrator.pipeline.sessions import Sessions, open_sessions
from migrator.pipeline.tail.positions import oplog_history
from migrator.records import Lock
from migrator.sources import context_of
from migrator.sources.profile import Collection, Context, Profile
from migrator.store import epoch
from migrator.store.postgres import parallel_run
from migrator.values import document as documents
from migrator.values.identity import bound_of

ORDINARY_COLLECTION = "collection"
"""MongoDB's name of the type of a collection that is neither a view nor a time series."""
SYSTEM_PREFIX = "system."
OWN_COLLECTION = "migrator_reverse_sync"
"""The tool's own collection in the source (`migrator.cutover.reverse_sync`), which is never copied."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the source that a plan covers; empty for all of it."""

    only: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()

    def chosen(self, found: Iterable["SourceCollection"]) -> list["SourceCollection"]:
        """Return the collections that are in the scope."""
        return [one for one in found if not self.only or one.collection.name in self.only]


class SourceCollection(msgspec.Struct, frozen=True, kw_only=True):
    """A collection of the profile that exists in the source."""

    collection: Collection
    name: str
    documents: int
    average_bytes: float


def no_collection_message(source: MongoDatabase, profile: Profile, unknown: Sequence[str]) -> str:
    """Return the message for a database without any collection of the profile."""
    holds = f"it has: {', '.join(unknown[:10])}" if unknown else "it is empty, or does not exist"
    return f"database {source.name} has no collection of profile {profile.name}; {holds}"


def survey(
    source: MongoDatabase, profile: Profile, settings: Settings
) -> tuple[list[SourceCollection], tuple[str, ...]]:
    """Return the profile's collections that exist, in load order, and the names of those that it does not read."""
    with translate_source_errors("the source"):
        kinds = {one["name"]: one.get("type", ORDINARY_COLLECTION) for one in source.list_collections(nameOnly=True)}
        names = set(kinds)
        for collection in profile.collections:
            name = settings.source.collections.get(collection.name, collection.name)
            if kinds.get(name, ORDINARY_COLLECTION) != ORDINARY_COLLECTION:
                raise _not_a_collection(source, collection.name, name, kinds[name])
        found = [
            _source_collection(source, collection, name)
            for collection in profile.collections
            if (name := settings.source.collections.get(collection.name, collection.name)) in names
        ]
    unknown = names - {one.name for one in found} - {OWN_COLLECTION}
    return found, tuple(sorted(name for name in unknown if not name.startswith(SYSTEM_PREFIX)))


def _not_a_collection(source: MongoDatabase, collection: str, name: str, kind: str) -> RefusedError:
    """Return the error for a view or a time series, which cannot be read by an index on ``_id``."""
    if kind == "view":
        (made,) = source.list_collections(filter={"name": name})
        base = made["options"]["viewOn"]
        return RefusedError(
            f"{name} of the source is a view of {base}, and a copy reads collections only: if {base} holds the whole"
            f' documents, set {collection} = "{base}" in [source] collections; else write what the view shows into a'
            " collection of its own ($out) and name that one there"
        )
    return RefusedError(
        f"{name} of the source is a {kind} collection, which has no index of _id to be read by: write it into an"
        f' ordinary collection ($out), and set {collection} = "THAT COLLECTION" in [source] collections'
    )


def require_tenants(
    source: MongoDatabase, found: Sequence[SourceCollection], scope: Scope, default_tenant: str | None
) -> None:
    """Raise ``UsageError`` for a tenant of the scope that no document of the source names."""
    chosen = scope.chosen(found)
    with translate_source_errors("the source"):
        for tenant in scope.tenants:
            if not any(
                source[one.name].find_one(tenant_filter(one.collection, (tenant,), default_tenant), {"_id": 1})
                for one in chosen
            ):
                raise UsageError(f"unknown tenant {tenant}: no document of the source is of it")


def _source_collection(source: MongoDatabase, collection: Collection, name: str) -> SourceCollection:
    stats = next(iter(source[name].aggregate([{"$collStats": {"storageStats": {}}}])))["storageStats"]
    documents = int(stats.get("count", 0))
    return SourceCollection(
        collection=collection,
        name=name,
        documents=documents,
        average_bytes=float(stats.get("avgObjSize", 0) or 0),
    )


def check_scope(profile: Profile, scope: Scope) -> None:
    """Raise ``UsageError`` for a collection that the profile does not have."""
    known = profile.by_name()
    for name in scope.only:
        if name not in known:
            raise UsageError(f"unknown collection {name}; profile {profile.name} has: {', '.join(known)}")


def new_plan(
    source: MongoDatabase,
    profile: Profile,
    settings: Settings,
    scope: Scope,
    found: Sequence[SourceCollection],
    *,
    position: bool = True,
) -> Plan:
    """Return a plan without chunks; take the position of the change stream here, before anything is read."""
    identity = source_identity(source) if position else source.name
    with translate_source_errors("the source"):
        now: datetime = source.client.admin.command("hello")["localTime"].replace(tzinfo=UTC)
        # the time from which a change stream can be started
        stream = bson.encode({"operationTime": committed_time(source)}) if position else None
    # the input of decode, which is fixed for the whole plan
    context = context_of(settings.source, now)
    return Plan(
        id=uuid.uuid4(),
        profile=profile.name,
        profile_version=profile.version,
        tool_version=__version__,
        config_digest=config_digest(settings, scope),
        source_identity=identity,
        as_of=now,
        context=msgspec.to_builtins({"context": context, "scope": scope, "collections": [one.name for one in found]}),
        stream_position=stream,
    )


def source_identity(source: MongoDatabase) -> str:
    """Return what distinguishes one source from another: the replica set and the database."""
    return f"{require_replica_set(source)}/{source.name}"


def config_digest(settings: Settings, scope: Scope) -> str:
    """Return the SHA-256 of everything in the configuration that decides which rows a document becomes."""
    return hashlib.sha256(msgspec.json.encode([settings.source, scope], order="sorted")).hexdigest()


def plan_context(plan: Plan) -> Context:
    """Return a stored plan's context."""
    return msgspec.convert(plan.context["context"], Context)


def plan_scope(plan: Plan) -> Scope:
    """Return a stored plan's scope."""
    return msgspec.convert(plan.context["scope"], Scope)


def guard_resume(plan: Plan, source: MongoDatabase, profile: Profile, settings: Settings, scope: Scope) -> None:
    """Raise ``RefusedError`` if an unfinished plan was begun under other conditions than those of now."""
    differs = differences(
        ("tool version", plan.tool_version, __version__),
        ("profile", f"{plan.profile}/{plan.profile_version}", f"{profile.name}/{profile.version}"),
        ("configuration digest", plan.config_digest[:12], config_digest(settings, scope)[:12]),
        ("source", plan.source_identity.rpartition("/")[2], source.name),
    )
    if differs:
        raise RefusedError(
            f"an unfinished copy of {plan.as_of:%Y-%m-%d %H:%M} was begun with other settings ({differs}); finish"
            " it with those, or call backfill --restart, which discards the ledger and keeps the rows"
        )


def differences(*conditions: tuple[str, str, str]) -> str:
    """Return which conditions (name, then, now) are not as they were; empty if all are."""
    return "; ".join(f"{what}: then {then}, now {now}" for what, then, now in conditions if then != now)


def cut(source: MongoDatabase, found: SourceCollection, settings: Settings, mode: LoadMode) -> Iterator[Chunk]:
    """Yield a collection's chunks: ranges of ``_id`` between keys found by steps through the index on ``_id``."""
    size = chunk_documents(settings, found.average_bytes)
    lower: bytes | None = None
    ordinal = 0
    with translate_source_errors("the source"):
        while True:
            upper = _key_after(source, found.name, lower, size)
            yield Chunk(
                collection=found.collection.name,
                ordinal=ordinal,
                lower=lower,
                upper=upper,
                estimated=size if upper is not None else max(found.documents - ordinal * size, 0),
                average_bytes=round(found.average_bytes),
                mode=mode,
            )
            if upper is None:
                return
            lower, ordinal = upper, ordinal + 1


def chunk_documents(settings: Settings, average_bytes: float) -> int:
    """Return how many documents make a chunk."""
    return max(1, min(settings.copy.chunk_documents, int(settings.copy.chunk_bytes / max(average_bytes, 1.0))))


def _key_after(source: MongoDatabase, name: str, lower: bytes | None, steps: int) -> bytes | None:
    """Return the next bound; if no BSON value can state an ``_id``, take the one after it."""
    with bound_cursor(source[name].find_raw_batches({}, {"_id": 1}, skip=steps, batch_size=1), lower, None) as cursor:
        for batch in cursor:
            for raw in documents.split(cast("bytes", batch)):
                if (bound := bound_of(raw)) is not None:
                    return bound
    return None


def load_mode(target: Connection, collection: Collection) -> LoadMode:
    """Return ``direct`` when every table that a collection feeds is empty, else ``merge``."""
    for record in collection.tables:
        if target.execute(f"SELECT EXISTS (SELECT FROM scheduler.{record.table})").fetchone() != (False,):  # noqa: S608 - a record's table name
            return "merge"
    return "direct"


def guard_foreign(target: Connection, profile: Profile) -> None:
    """Raise ``RefusedError`` if a table holds rows that this profile did not load."""
    for record in dict.fromkeys(record for collection in profile.collections for record in collection.tables):
        if "source" in record.__struct_fields__:
            foreign = "(source IS NULL OR NOT starts_with(source, %(prefix)s))"
            foreign += (
                f" AND key NOT IN ('{epoch.KEY}', '{parallel_run.KEY}')" if record is Lock else ""
            )  # the tool's own
        else:  # the rows of such a table do not name their source, but the ledger shows that they are not ours
            foreign = "NOT EXISTS (SELECT FROM migration.chunks WHERE state = 'done' AND collection = ANY(%(feeding)s))"
        feeding = [one.name for one in profile.collections if record in one.tables]
        row = target.execute(
            f"SELECT count(*) FROM (SELECT FROM scheduler.{record.table} WHERE {foreign} LIMIT 1001) AS rows",  # noqa: S608 - a record's table name
            {"prefix": f"{profile.name}/", "feeding": feeding},
        ).fetchone()
        if row and row[0]:
            count = "more than 1000" if row[0] > 1000 else str(row[0])  # noqa: PLR2004 - where counting stops
            raise RefusedError(
                f"table scheduler.{record.table} holds rows that did not come from profile {profile.name} ({count}); "
                "copy into an empty schema, or remove them"
            )


DOCUMENTS_PER_SECOND = 15_000
"""Of one worker, on documents of 1 KB: a low value of benchmarks/, only for the estimate."""
BYTES_PER_SECOND = 20_000_000
"""Of one worker, on large documents; as above."""
OPLOG_MARGIN = 3
LARGE_DOCUMENT = 1_000_000


class PlannedCollection(msgspec.Struct, frozen=True, kw_only=True):
    """A collection as it would be copied."""

    collection: str
    tables: tuple[str, ...]
    documents: int
    average_bytes: int
    mode: str
    chunks: tuple[Chunk, ...]


class BackfillPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that is not stored."""

    collections: tuple[PlannedCollection, ...]
    unknown_collections: tuple[str, ...]
    workers: int
    estimated_seconds: int
    resumes: bool
    """Whether an unfinished copy would be continued instead."""
    risks: tuple[str, ...]


def plan_backfill(settings: Settings, scope: Scope) -> BackfillPlan:
    """Return what a backfill in ``scope`` would do; writes nothing to either side."""
    with open_sessions(settings) as sessions:
        return _plan_backfill(sessions, scope)


def _plan_backfill(sessions: Sessions, scope: Scope) -> BackfillPlan:
    settings = sessions.settings
    check_scope(sessions.profile, scope)
    found, unknown = survey(sessions.source, sessions.profile, settings)
    chosen = scope.chosen(found)
    collections = tuple(_planned_collection(sessions, one) for one in chosen)
    seconds = sum(
        max(one.documents / DOCUMENTS_PER_SECOND, one.documents * one.average_bytes / BYTES_PER_SECOND)
        for one in chosen
    )
    estimated = round(seconds / workers(settings.copy))
    return BackfillPlan(
        collections=collections,
        unknown_collections=unknown,
        workers=workers(settings.copy),
        estimated_seconds=estimated,
        resumes=ledger.latest_plan(sessions.target, "open") is not None,
        risks=tuple(_risks(sessions, chosen, unknown, estimated)),
    )


def _planned_collection(sessions: Sessions, one: SourceCollection) -> PlannedCollection:
    mode = load_mode(sessions.target, one.collection)
    return PlannedCollection(
        collection=one.collection.name,
        tables=tuple(record.table for record in one.collection.tables),
        documents=one.documents,
        average_bytes=round(one.average_bytes),
        mode=mode,
        chunks=tuple(cut(sessions.source, one, sessions.settings, mode)),
    )


def _risks(sessions: Sessions, chosen: list[SourceCollection], unknown: tuple[str, ...], seconds: int) -> list[str]:
    risks = []
    if unknown:
        risks.append(f"collections that the profile does not read are not copied: {', '.join(unknown)}")
    risks.extend(
        f"{one.name}: documents of {one.average_bytes / 1e6:.1f} MB on average; a worker holds several at a time"
        for one in chosen
        if one.average_bytes > LARGE_DOCUMENT
    )
    try:
        require_replica_set(sessions.source)
        kept = oplog_history(sessions.source)
        if kept is not None and kept.full and kept.seconds < OPLOG_MARGIN * seconds:
            risks.append(
                f"the oplog reaches back {kept.seconds} s and the copy may take {seconds} s: changes made meanwhile"
                " could be lost to a change stream; enlarge the oplog, or let migrator tail run during the copy"
            )
    except MigratorError as error:
        risks.append(str(error))
    try:
        guard_foreign(sessions.target, sessions.profile)
    except MigratorError as error:
        risks.append(str(error))
    return risks
