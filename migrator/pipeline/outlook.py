"""What a backfill would do, read only: chunks in load order, estimates, and what could go wrong."""

import msgspec

from migrator.config import Settings
from migrator.connections.mongo import require_replica_set
from migrator.connections.mongo import translate_errors as speaking_of_source
from migrator.connections.postgres import translate_errors
from migrator.errors import MigratorError
from migrator.pipeline import ledger
from migrator.pipeline import plan as plans
from migrator.pipeline.executors import workers
from migrator.pipeline.history import history
from migrator.pipeline.model import PlannedChunk
from migrator.pipeline.plan import Found, Scope
from migrator.pipeline.sessions import Sessions, naming_holders

DOCUMENTS_PER_SECOND = 15_000
"""Of one worker, on documents of 1 KB: a cautious figure from benchmarks/; only for the estimate."""
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
    chunks: tuple[PlannedChunk, ...]


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that was not stored."""

    collections: tuple[PlannedCollection, ...]
    unknown_collections: tuple[str, ...]
    workers: int
    estimated_seconds: int
    resumes: bool
    """An unfinished copy would be gone on with instead."""
    risks: tuple[str, ...]


def outlook(settings: Settings, scope: Scope) -> Outlook:
    """Return what a backfill in ``scope`` would do; writes nothing to either side."""
    sessions = Sessions(settings)
    try:
        with translate_errors("the target"), speaking_of_source("the source"), naming_holders(settings):
            return _outlook(sessions, scope)
    finally:
        sessions.close()


def _outlook(sessions: Sessions, scope: Scope) -> Outlook:
    settings = sessions.settings
    plans.check_scope(sessions.profile, scope)
    found, unknown = plans.survey(sessions.source, sessions.profile, settings)
    chosen = [one for one in found if not scope.only or one.collection.name in scope.only]
    collections = tuple(_planned(sessions, one) for one in chosen)
    seconds = sum(
        max(one.documents / DOCUMENTS_PER_SECOND, one.documents * one.average_bytes / BYTES_PER_SECOND)
        for one in chosen
    )
    estimated = round(seconds / workers(settings.copy))
    return Outlook(
        collections=collections,
        unknown_collections=unknown,
        workers=workers(settings.copy),
        estimated_seconds=estimated,
        resumes=ledger.latest_plan(sessions.target, "open") is not None,
        risks=tuple(_risks(sessions, chosen, unknown, estimated)),
    )


def _planned(sessions: Sessions, one: Found) -> PlannedCollection:
    mode = plans.load_mode(sessions.target, one.collection)
    return PlannedCollection(
        collection=one.collection.name,
        tables=tuple(record.table for record in one.collection.tables),
        documents=one.documents,
        average_bytes=round(one.average_bytes),
        mode=mode,
        chunks=tuple(plans.cut(sessions.source, one, sessions.settings, mode)),
    )


def _risks(sessions: Sessions, chosen: list[Found], unknown: tuple[str, ...], seconds: int) -> list[str]:
    risks = []
    if unknown:
        risks.append(f"collections that the profile does not read stay behind: {', '.join(unknown)}")
    risks.extend(
        f"{one.name}: documents of {one.average_bytes / 1e6:.1f} MB on average; a worker holds several at a time"
        for one in chosen
        if one.average_bytes > LARGE_DOCUMENT
    )
    try:
        require_replica_set(sessions.source)
        kept = history(sessions.source)
        if kept is not None and kept.full and kept.seconds < OPLOG_MARGIN * seconds:
            risks.append(
                f"the oplog reaches back {kept.seconds} s and the copy may take {seconds} s: changes made meanwhile"
                " could be lost to a change stream; enlarge the oplog, or let migrator tail run beside the copy"
            )
    except MigratorError as error:
        risks.append(str(error))
    try:
        plans.guard_foreign(sessions.target, sessions.profile)
    except MigratorError as error:
        risks.append(str(error))
    return risks
