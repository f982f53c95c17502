"""Cutting the source into chunks, and deciding how each is loaded."""

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import cast

import bson
import msgspec

from migrator import __version__
from migrator.config import Settings
from migrator.connections.mongo import MongoDatabase, committed_time, require_replica_set, translate_errors
from migrator.connections.postgres import Connection
from migrator.errors import RefusedError, UsageError
from migrator.pipeline.extract import bounded, tenant_filter
from migrator.pipeline.model import Mode, Plan, PlannedChunk
from migrator.records import Lock
from migrator.sources.profile import Collection, Context, Profile
from migrator.store import epoch
from migrator.store.postgres import parallel_run
from migrator.values import document as documents
from migrator.values.rawid import bound_of

ORDINARY = "collection"
"""What MongoDB calls a collection that is neither a view nor a time series."""
SYSTEM_PREFIX = "system."
OWN = "migrator_reverse"
"""The tool's own collection in the source (`migrator.cutover.reverse_sync`), which is nobody's data."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the source that a plan covers; empty for all of it."""

    only: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A collection of the profile as the source has it."""

    collection: Collection
    name: str
    documents: int
    average_bytes: float


def nothing_found(source: MongoDatabase, profile: Profile, unknown: Sequence[str]) -> str:
    """Return the sentence for a database without any collection of the profile."""
    holds = f"it has: {', '.join(unknown[:10])}" if unknown else "it is empty, or does not exist"
    return f"database {source.name} has no collection of profile {profile.name}; {holds}"


def survey(source: MongoDatabase, profile: Profile, settings: Settings) -> tuple[list[Found], tuple[str, ...]]:
    """Return the profile's collections that exist, in load order, and the names of those that it does not read."""
    with translate_errors("the source"):
        kinds = {one["name"]: one.get("type", ORDINARY) for one in source.list_collections(nameOnly=True)}
        names = set(kinds)
        for collection in profile.collections:
            name = settings.source.collections.get(collection.name, collection.name)
            if kinds.get(name, ORDINARY) != ORDINARY:
                raise _not_a_collection(source, collection.name, name, kinds[name])
        found = [
            _found(source, collection, name)
            for collection in profile.collections
            if (name := settings.source.collections.get(collection.name, collection.name)) in names
        ]
    unknown = names - {one.name for one in found} - {OWN}
    return found, tuple(sorted(name for name in unknown if not name.startswith(SYSTEM_PREFIX)))


def _not_a_collection(source: MongoDatabase, collection: str, name: str, kind: str) -> RefusedError:
    """Return the error for a view or a time series, which have no index of ``_id`` to be read by."""
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


def require_tenants(source: MongoDatabase, found: Sequence[Found], scope: Scope, default_tenant: str | None) -> None:
    """Raise ``UsageError`` for a tenant of the scope that no document of the source is of."""
    chosen = [one for one in found if not scope.only or one.collection.name in scope.only]
    with translate_errors("the source"):
        for tenant in scope.tenants:
            if not any(
                source[one.name].find_one(tenant_filter(one.collection, (tenant,), default_tenant), {"_id": 1})
                for one in chosen
            ):
                raise UsageError(f"unknown tenant {tenant}: no document of the source is of it")


def _found(source: MongoDatabase, collection: Collection, name: str) -> Found:
    stats = next(iter(source[name].aggregate([{"$collStats": {"storageStats": {}}}])))["storageStats"]
    documents = int(stats.get("count", 0))
    return Found(
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


def context_of(settings: Settings, as_of: datetime) -> Context:
    """Return what decode may know, fixed for a whole plan."""
    return Context(
        as_of=as_of,
        default_tenant=settings.source.default_tenant,
        carry_expired_locks=settings.source.carry_expired_locks,
    )


def new_plan(
    source: MongoDatabase,
    profile: Profile,
    settings: Settings,
    scope: Scope,
    found: Sequence[Found],
    *,
    position: bool = True,
) -> Plan:
    """Return a plan without chunks; the position of the change stream is taken here, before anything is read."""
    identity = source_identity(source) if position else source.name
    with translate_errors("the source"):
        now: datetime = source.client.admin.command("hello")["localTime"].replace(tzinfo=UTC)
        stream = _stream_position(source) if position else None
    return Plan(
        id=uuid.uuid4(),
        profile=profile.name,
        profile_version=profile.version,
        tool_version=__version__,
        config_digest=config_digest(settings, scope),
        source_identity=identity,
        as_of=now,
        context=msgspec.to_builtins(
            {"context": context_of(settings, now), "scope": scope, "collections": [one.name for one in found]}
        ),
        stream_position=stream,
    )


def source_identity(source: MongoDatabase) -> str:
    """Return what tells one source from another: the replica set and the database."""
    return f"{require_replica_set(source)}/{source.name}"


def config_digest(settings: Settings, scope: Scope) -> str:
    """Return the digest of everything in the configuration that decides what rows a document becomes."""
    return digest_of(settings.source, scope)


def plan_context(plan: Plan) -> Context:
    """Return a stored plan's context."""
    return msgspec.convert(plan.context["context"], Context)


def plan_scope(plan: Plan) -> Scope:
    """Return a stored plan's scope."""
    return msgspec.convert(plan.context["scope"], Scope)


def guard_resume(plan: Plan, source: MongoDatabase, profile: Profile, settings: Settings, scope: Scope) -> None:
    """Raise ``RefusedError`` when an unfinished plan was begun under other conditions than today's."""
    differs = [
        f"{what}: then {then}, now {now}"
        for what, then, now in (
            ("tool version", plan.tool_version, __version__),
            ("profile", f"{plan.profile}/{plan.profile_version}", f"{profile.name}/{profile.version}"),
            ("configuration digest", plan.config_digest[:12], config_digest(settings, scope)[:12]),
            ("source", plan.source_identity.rpartition("/")[2], source.name),
        )
        if then != now
    ]
    if differs:
        raise RefusedError(
            f"an unfinished copy of {plan.as_of:%Y-%m-%d %H:%M} was begun under other conditions"
            f" ({'; '.join(differs)}); finish it under those, or call backfill --restart, which forgets the ledger and"
            " keeps the rows"
        )


def cut(source: MongoDatabase, found: Found, settings: Settings, mode: Mode) -> Iterator[PlannedChunk]:
    """Yield a collection's chunks: ranges of ``_id`` between keys found by stepping through the ``_id`` index."""
    size = chunk_documents(settings, found.average_bytes)
    lower: bytes | None = None
    ordinal = 0
    with translate_errors("the source"):
        while True:
            upper = _key_after(source, found.name, lower, size)
            yield PlannedChunk(
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
    """Return the next bound; an ``_id`` that no value stands for is none, the one after it is taken."""
    with bounded(source[name].find_raw_batches({}, {"_id": 1}, skip=steps, batch_size=1), lower, None) as cursor:
        for batch in cursor:
            for raw in documents.split(cast("bytes", batch)):
                if (bound := bound_of(raw)) is not None:
                    return bound
    return None


def _stream_position(source: MongoDatabase) -> bytes:
    """Return the time from which a change stream can be started."""
    return bson.encode({"operationTime": committed_time(source)})


def load_mode(target: Connection, collection: Collection) -> Mode:
    """Return ``direct`` when every table that a collection feeds is empty, else ``merge``."""
    for record in collection.tables:
        if target.execute(f"SELECT EXISTS (SELECT FROM scheduler.{record.table})").fetchone() != (False,):  # noqa: S608 - a record's table name
            return "merge"
    return "direct"


def guard_foreign(target: Connection, profile: Profile) -> None:
    """Raise ``RefusedError`` when a table holds rows that this profile did not load."""
    for record in dict.fromkeys(record for collection in profile.collections for record in collection.tables):
        if "source" in record.__struct_fields__:
            foreign = "(source IS NULL OR NOT starts_with(source, %(prefix)s))"
            foreign += (
                f" AND key NOT IN ('{epoch.KEY}', '{parallel_run.KEY}')" if record is Lock else ""
            )  # the tool's own
        else:  # such a table cannot tell whose its rows are, but the ledger can tell that they are not ours
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


def digest_of(settings: msgspec.Struct, *more: object) -> str:
    """Return the SHA-256 of what must not change between the parts of one copy, in hexadecimal."""
    return hashlib.sha256(msgspec.json.encode([settings, *more], order="sorted")).hexdigest()
