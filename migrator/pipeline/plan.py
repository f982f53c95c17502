"""The plan of a copy: the collections that the source has, their chunks, how each is loaded; and its preview."""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial

import msgspec

from migrator import __version__
from migrator.config import CopySettings, Settings
from migrator.connections.server_product import require_change_stream
from migrator.errors import MigratorError, RefusedError, UsageError
from migrator.pipeline import history, ledger
from migrator.pipeline.executors import workers
from migrator.pipeline.extract import SourceCollection, SourceReader, no_collection_message
from migrator.pipeline.history import HistoryScope
from migrator.pipeline.ledger import Chunk, LoadMode, Plan
from migrator.pipeline.named_losses import NamedLoss, sampled
from migrator.pipeline.sessions import Sessions, open_sessions, retry_transient
from migrator.pipeline.tables import NOT_FOLLOWED
from migrator.pipeline.tail.positions import OplogHistory, oplog_history
from migrator.sources import context_of
from migrator.sources.profile import Collection, Context, Profile


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the source that a plan covers; empty for all of it."""

    only: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()

    def chosen(self, found: Iterable["SourceCollection"]) -> list["SourceCollection"]:
        """Return the collections that are in the scope."""
        return [one for one in found if not self.only or one.collection.name in self.only]


def require_tenants(
    reader: SourceReader, found: Sequence[SourceCollection], scope: Scope, default_tenant: str | None
) -> None:
    """Raise ``UsageError`` for a tenant of the scope that no document of the source names."""
    chosen = scope.chosen(found)
    for tenant in scope.tenants:
        if not any(reader.of(one.collection).has_tenant((tenant,), default_tenant) for one in chosen):
            raise UsageError(f"unknown tenant {tenant}: no document of the source is of it")


def check_scope(profile: Profile, scope: Scope) -> None:
    """Raise ``UsageError`` for a collection that the profile does not have."""
    known = profile.by_name()
    for name in scope.only:
        if name not in known:
            raise UsageError(f"unknown collection {name}; profile {profile.name} has: {', '.join(known)}")


def new_plan(
    reader: SourceReader,
    profile: Profile,
    settings: Settings,
    scope: Scope,
    collections: Sequence[SourceCollection],
    *,
    position: bool = True,
    copied: Sequence[datetime | None] = (),
) -> Plan:
    """Return a plan without chunks; take the position of the change stream here, before anything is read.

    ``copied``: the cutoffs of earlier copies (``ledger.history_of_copies``).
    """
    identity = reader.identity() if position else reader.database
    now = reader.now()
    stream = reader.position() if position else None
    # the input of decode, which is fixed for the whole plan
    context = msgspec.structs.replace(
        context_of(settings.source, now), history_before=history.cutoff(settings, profile, now, copied)
    )
    return Plan(
        id=uuid.uuid4(),
        profile=profile.name,
        profile_version=profile.version,
        tool_version=__version__,
        config_digest=config_digest(settings, scope),
        source_identity=identity,
        as_of=now,
        context=msgspec.to_builtins(
            {
                "context": context,
                "scope": scope,
                "collections": [one.name for one in collections],
                "history": settings.copy.history,
            }
        ),
        stream_position=stream,
    )


def config_digest(settings: Settings, scope: Scope) -> str:
    """Return the SHA-256 of everything in the configuration that decides which rows a document becomes."""
    source = msgspec.structs.replace(settings.source, uri=None, uri_env=None, uri_file=None)  # where, not what
    target = msgspec.structs.replace(settings.target, interpreter=None, packages=None)  # they ask, and decide no row
    deciding = [source, scope, *([target] if target.is_native else [])]
    return hashlib.sha256(msgspec.json.encode(deciding, order="sorted")).hexdigest()


def plan_context(plan: Plan) -> Context:
    """Return a stored plan's context."""
    return msgspec.convert(plan.context["context"], Context)


def plan_scope(plan: Plan) -> Scope:
    """Return a stored plan's scope."""
    return msgspec.convert(plan.context["scope"], Scope)


def require_one_source(sessions: Sessions) -> None:
    """Raise ``RefusedError`` if the target holds the copy of another profile, or of another database."""
    require_one_profile(sessions)
    require_one_database(sessions)


def require_one_database(sessions: Sessions) -> None:
    """Raise ``RefusedError`` if the target holds the copy of another database.

    Rows name their profile and their collection, and not their database. Documents of a second database with the same
    ids would overwrite the rows of the first, and all others would be compared with it.
    """
    copied = ledger.copied_database(sessions.target, sessions.profile.name)
    if copied not in (None, sessions.reader.database):
        raise RefusedError(
            f"this target was copied from database {copied}, and the source is database {sessions.reader.database}:"
            " copy it into another database of PostgreSQL"
        )


def require_one_profile(sessions: Sessions) -> None:
    """Raise ``RefusedError`` if the target holds the copy of another profile.

    The last plan, the last parity check and the last cutover would count for both.
    """
    other = ledger.other_copied_profile(sessions.target, sessions.profile.name)
    if other is not None:
        raise RefusedError(
            f"this target holds the copy of the source {other}, and a database has one ledger and one journal of its"
            f" cutover: copy {sessions.profile.name} into another database of PostgreSQL (docs/limits.md says how both"
            " come into one)"
        )


def guard_resume(plan: Plan, reader: SourceReader, profile: Profile, settings: Settings, scope: Scope) -> None:
    """Raise ``RefusedError`` if an unfinished plan was begun under other conditions than those of now."""
    differs = differences(
        ("tool version", plan.tool_version, __version__),
        ("profile", f"{plan.profile}/{plan.profile_version}", f"{profile.name}/{profile.version}"),
        ("configuration digest", plan.config_digest[:12], config_digest(settings, scope)[:12]),
        ("source", ledger.database_of(plan.source_identity), reader.database),
        ("copy.history", plan.context.get("history", "all"), settings.copy.history),
    )
    if differs:
        raise RefusedError(
            f"an unfinished copy of {plan.as_of:%Y-%m-%d %H:%M} was begun with other settings ({differs}); finish"
            " it with those, or call backfill --restart, which discards the ledger and keeps the rows"
        )


def differences(*conditions: tuple[str, str, str]) -> str:
    """Return which conditions (name, then, now) are not as they were; empty if all are."""
    return "; ".join(f"{what}: then {then}, now {now}" for what, then, now in conditions if then != now)


def cut(
    reader: SourceReader,
    source: SourceCollection,
    settings: Settings,
    mode: LoadMode,
    *,
    patient: bool = False,
    bounds: Iterable[bytes] = (),
) -> Iterator[Chunk]:
    """Yield a collection's chunks: ranges of ``_id`` between keys found by steps through the index on ``_id``.

    ``patient``: a search that fails for the moment is repeated, as ``retry_transient`` does. ``bounds``: the first
    keys, in order, which are known, so many documents apart as they would be found.
    """
    size, collection = _chunk_size(source, settings), reader.of(source.collection)
    known = iter(bounds)
    lower: bytes | None = None
    ordinal = 0
    while True:
        upper = next(known, None)
        if upper is None:
            search = partial(collection.next_bound, lower, size)
            upper = retry_transient(settings, search) if patient else search()
        yield Chunk(
            collection=source.collection.name,
            ordinal=ordinal,
            lower=lower,
            upper=upper,
            estimated=size if upper is not None else max(source.documents - ordinal * size, 0),
            average_bytes=round(source.average_bytes),
            mode=mode,
        )
        if upper is None:
            return
        lower, ordinal = upper, ordinal + 1


def bounds_of(chunks: Iterable[Chunk], source: SourceCollection, settings: Settings) -> list[bytes]:
    """Return the keys between a collection's chunks of a plan, where ``cut`` would make chunks of about their size.

    What ``cut`` makes of them is complete whatever the chunks were: it begins before the first key, and goes on behind
    the last one.
    """
    size, most = _chunk_size(source, settings), chunk_documents(settings, source.average_bytes)
    before = [one for one in chunks if one.collection == source.collection.name and one.upper is not None]
    like = all(size <= 2 * one.estimated <= 2 * most for one in before)
    grown = source.documents > 2 * (sum(one.estimated for one in before) + size)
    return [] if grown or not like else [one.upper for one in before if one.upper is not None]


def _chunk_size(source: SourceCollection, settings: Settings) -> int:
    """Return how many documents of a collection make a chunk, if its workers share them evenly."""
    return shared_evenly(chunk_documents(settings, source.average_bytes), source.documents, workers(settings.copy))


SMALLEST_PACED = 100
"""Documents of a chunk of a copy whose rate is limited; smaller chunks would cost more than they smooth."""


def chunk_documents(settings: Settings, average_bytes: float) -> int:
    """Return how many documents make a chunk."""
    limits = [settings.copy.chunk_documents, int(settings.copy.chunk_bytes / max(average_bytes, 1.0))]
    if settings.copy.max_rate:
        limits.append(max(settings.copy.max_rate, SMALLEST_PACED))
    return max(1, min(limits))


SMALLEST_SHARED = 5_000
"""Documents of a chunk that is made smaller for an even share; smaller ones would cost more than they balance."""


def shared_evenly(most: int, documents: int, shares: int) -> int:
    """Return the size of a chunk, at most ``most``, with which each worker has as many chunks as the others.

    Three chunks of two workers take as long as four.
    """
    rounds = -(-documents // (most * shares))
    size = -(-documents // max(rounds * shares, 1))
    return size if documents > most and size >= SMALLEST_SHARED else most


def load_mode(sessions: Sessions, collection: Collection) -> LoadMode:
    """Return ``direct`` when every table that a collection feeds is empty, else ``merge``."""
    empty = (sessions.target_tables.is_empty(sessions.target, record) for record in collection.tables)
    return "direct" if all(empty) else "merge"


DOCUMENTS_PER_SECOND = 15_000
"""Of one worker, on documents of 1 KB: a low value of benchmarks/, only for the estimate."""
BYTES_PER_SECOND = 20_000_000
"""Of one worker, on large documents; as above."""
OPLOG_MARGIN = 3
LARGE_DOCUMENT = 1_000_000
SAMPLED = 1_000
"""Documents of a collection in which a plan counts the losses by name."""


class PlannedCollection(msgspec.Struct, frozen=True, kw_only=True):
    """A collection as it would be copied."""

    collection: str
    tables: tuple[str, ...]
    documents: int
    average_bytes: int
    mode: str
    chunks: tuple[Chunk, ...]
    left_out: int = 0
    """Documents that are left out as history, as the server counts them."""
    losses: tuple[NamedLoss, ...] = ()
    """What the tables cannot hold, by the words of the mapping, in a sample of the documents."""


class BackfillPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that is not stored."""

    collections: tuple[PlannedCollection, ...]
    unknown_collections: tuple[str, ...]
    workers: int
    estimated_seconds: int
    resumes: bool
    """Whether an unfinished copy would be continued instead."""
    risks: tuple[str, ...]
    history: HistoryScope


def plan_backfill(settings: Settings, scope: Scope) -> BackfillPlan:
    """Return the plan of a backfill in ``scope``; writes nothing to either side.

    Raises ``RefusedError`` for a source without any collection of the profile, and for one that the target was not
    copied from.
    """
    with open_sessions(settings) as sessions:
        return _plan_backfill(sessions, scope)


def _plan_backfill(sessions: Sessions, scope: Scope) -> BackfillPlan:
    settings = sessions.settings
    check_scope(sessions.profile, scope)
    existing, unknown = sessions.survey()
    if not existing:
        raise RefusedError(no_collection_message(sessions.reader.database, sessions.profile, unknown))
    require_one_source(sessions)
    chosen = scope.chosen(existing)
    unfinished = ledger.latest_plan(sessions.target, "open")
    copied = ledger.history_of_copies(sessions.target, sessions.profile.name, history.covered(sessions.profile))
    now = sessions.reader.now()
    before = (
        history.cutoff(settings, sessions.profile, now, copied)
        if unfinished is None
        else plan_context(unfinished).history_before
    )
    if unfinished is None:
        names = [one.collection.name for one in existing]
        history.require_all_widened(sessions.profile, scope.only, names, before, copied)
    context = msgspec.structs.replace(context_of(settings.source, now), history_before=before)
    collections = tuple(_planned_collection(sessions, one, context) for one in chosen)
    in_scope = [
        msgspec.structs.replace(one, documents=max(one.documents - planned.left_out, 0))
        for one, planned in zip(chosen, collections, strict=True)
    ]
    estimated = copy_seconds(in_scope, settings.copy)
    return BackfillPlan(
        collections=collections,
        unknown_collections=unknown,
        workers=workers(settings.copy),
        estimated_seconds=estimated,
        resumes=unfinished is not None,
        risks=tuple(_risks(sessions, chosen, unknown, estimated)),
        history=history.scope_of(settings, sessions.profile, existing, now, before),
    )


def copy_seconds(collections: Iterable[SourceCollection], settings: CopySettings) -> int:
    """Return the estimate of the seconds that a copy of collections takes, from rates that were measured."""
    listed = tuple(collections)
    seconds = sum(
        max(one.documents / DOCUMENTS_PER_SECOND, one.documents * one.average_bytes / BYTES_PER_SECOND)
        for one in listed
    )
    estimated = round(seconds / workers(settings))
    if settings.max_rate:
        estimated = max(estimated, round(sum(one.documents for one in listed) / settings.max_rate))
    return estimated


def _planned_collection(sessions: Sessions, source: SourceCollection, context: Context) -> PlannedCollection:
    mode = load_mode(sessions, source.collection)
    return PlannedCollection(
        collection=source.collection.name,
        tables=tuple(record.table for record in source.collection.tables),
        documents=source.documents,
        average_bytes=round(source.average_bytes),
        mode=mode,
        chunks=tuple(cut(sessions.reader, source, sessions.settings, mode)),
        left_out=history.left_out(sessions, source.collection, context),
        losses=_losses(sessions, source, context),
    )


def _losses(sessions: Sessions, source: SourceCollection, context: Context) -> tuple[NamedLoss, ...]:
    """Return the losses by name in a sample; of a mapping that declares none nothing is read."""
    if not source.collection.lost:
        return ()
    raws = sessions.reader.of(source.collection, context.history_before).sample(SAMPLED)
    return sampled(source.collection, context, raws)


def _oplog(sessions: Sessions) -> OplogHistory | None:
    if not sessions.reader.has_change_stream:
        return None
    require_change_stream(sessions.source)
    return oplog_history(sessions.source)


def _risks(sessions: Sessions, chosen: list[SourceCollection], unknown: tuple[str, ...], seconds: int) -> list[str]:
    risks = []
    if unknown:
        risks.append(f"collections that the profile does not read are not copied: {', '.join(unknown)}")
    risks.extend(
        f"{one.name}: documents of {one.average_bytes / 1e6:.1f} MB on average; a worker holds several at a time"
        for one in chosen
        if one.average_bytes > LARGE_DOCUMENT
    )
    if not sessions.reader.has_change_stream:
        risks.append(NOT_FOLLOWED)
    try:
        kept = _oplog(sessions)
        if kept is not None and kept.full and kept.seconds < OPLOG_MARGIN * seconds:
            risks.append(
                f"the oplog reaches back {kept.seconds} s and the copy may take {seconds} s: changes made meanwhile"
                " could be lost to a change stream; enlarge the oplog, or let migrator tail run during the copy"
            )
    except MigratorError as error:
        risks.append(str(error))
    tables, profile = sessions.target_tables, sessions.profile
    guards = (
        partial(tables.guard_foreign, profile=profile),
        partial(tables.guard_changed, collections=profile.collections),
    )
    for guard in guards:
        try:
            guard(sessions.target)
        except MigratorError as error:
            risks.append(str(error))
    return risks
