"""Recorded parity checks, and the last parity check before the cutover, which compares what changed since then.

The cutover asks for the last recorded check to be complete, clean, and young enough.
"""

import time
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from typing import Any
from uuid import uuid4

import msgspec
from bson.timestamp import Timestamp
from psycopg.types.json import Jsonb

from migrator.config import Settings
from migrator.connections.mongo import cluster_time
from migrator.connections.postgres import Connection, fetch_value, translate_errors
from migrator.errors import MigratorError
from migrator.log import logger
from migrator.parity.check import check_parity
from migrator.parity.compare import compare_derived
from migrator.parity.equal import is_equal, stored_rows
from migrator.parity.model import ParityOutcome
from migrator.pipeline import checksums, hooks, ledger
from migrator.pipeline import plan as plans
from migrator.pipeline.extract import DocumentReader
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import Sessions, open_sessions
from migrator.pipeline.tail.lookups import RowLookups, has_source_column
from migrator.pipeline.transform import transform_documents
from migrator.sources.profile import Collection, Context
from migrator.values.identity import source_id_of

DOCUMENTS_PER_READ = 1_000


class RecordedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A parity check of everything."""

    started_at: datetime
    age_s: float
    """By the target's clock, from its beginning: what changed since then may not have been seen."""
    clean: bool
    position: Timestamp
    """The source's cluster time before it began."""
    documents: int
    seconds: float
    quarantined: int


class ChangedDocuments(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared, and what is wrong."""

    documents: int
    wrong: dict[str, tuple[str, ...]]
    """Collection → the first few source ids."""


def check_and_record(
    settings: Settings, *, must: bool = True, lock_source: bool = False, dry_run: bool = False
) -> ParityOutcome:
    """Compare everything, and put the outcome on record; raises as ``check_parity`` does.

    Without ``must`` an outcome that cannot be put on record is returned all the same, with a line of the log. A source
    in PostgreSQL, and a server of MongoDB without a change stream, have no position of one, and no cutover that could
    ask for the record. ``dry_run``: nothing is put on record.
    """
    if dry_run:
        return check_parity(settings, Scope(), lock_source=lock_source)
    hooks.require_programs(settings)
    if settings.source.in_postgres:
        outcome = check_parity(settings, Scope(), lock_source=lock_source)
    else:
        with open_sessions(settings) as sessions:
            position = cluster_time(sessions.source)
            started_at = fetch_value(sessions.target, "SELECT clock_timestamp()")
            began = time.monotonic()
            outcome = check_parity(settings, Scope(), opened=sessions, lock_source=lock_source)
            took = time.monotonic() - began
            try:
                with translate_errors("the target"):
                    if position is not None:
                        record(sessions.target, outcome, started_at, position, took)
            except MigratorError as error:
                if must:
                    raise
                logger().warning("the parity check is not recorded: the cutover will ask for another", why=str(error))
    state = {"clean": is_clean(outcome), "complete": is_complete(outcome), **_counts(outcome)}
    hooks.call(settings, hooks.PARITY_ENDED, state)
    return outcome


def _counts(outcome: ParityOutcome) -> dict[str, int]:
    """Return how many documents were compared, and how many are in quarantine."""
    return {
        "documents": sum(one.documents for one in outcome.collections if not one.collection.startswith("(")),
        "quarantined": sum(one.quarantined for one in outcome.collections),
    }


def record(
    target: Connection, outcome: ParityOutcome, started_at: datetime, position: Timestamp, seconds: float
) -> None:
    """Record the outcome of a parity check of everything."""
    plan = ledger.latest_plan(target)
    result: dict[str, Any] = {
        "position": {"t": position.time, "i": position.inc},
        "seconds": seconds,
        **_counts(outcome),
    }
    key = uuid4()
    with target.transaction():
        target.execute(
            "INSERT INTO migration.parity_checks (id, plan_id, started_at, finished_at, complete, clean, result)"
            " VALUES (%s, %s, %s, clock_timestamp(), %s, %s, %s)",
            (
                key,
                None if plan is None else plan.id,
                started_at,
                is_complete(outcome) and outcome.active_since is None,  # else no cutover may go by it
                is_clean(outcome),
                Jsonb(result),
            ),
        )
        checksums.write(target, "parity_checks", "stored.id = %s", key)


def is_complete(outcome: ParityOutcome) -> bool:
    """Whether every document of every collection was compared."""
    return not any(one.unverified for one in outcome.collections)


def is_clean(outcome: ParityOutcome) -> bool:
    """Whether no difference was found."""
    return not outcome.differs


def last_check(target: Connection) -> RecordedCheck | None:
    """Return the newest complete parity check."""
    row = target.execute(
        "SELECT started_at, extract(epoch FROM clock_timestamp() - started_at)::float8, clean, result"
        " FROM migration.parity_checks WHERE complete ORDER BY started_at DESC LIMIT 1"
    ).fetchone()
    if row is None:
        return None
    result = row[3]
    return RecordedCheck(
        started_at=row[0],
        age_s=row[1],
        clean=row[2],
        position=Timestamp(result["position"]["t"], result["position"]["i"]),
        documents=result["documents"],
        seconds=result["seconds"],
        quarantined=result["quarantined"],
    )


def compare_changed(sessions: Sessions, changed: dict[str, list[str]]) -> ChangedDocuments:
    """Compare these documents with their rows, and what many documents make together; nothing may write meanwhile."""
    plan = ledger.latest_plan(sessions.target)
    assert plan is not None  # noqa: S101 - something was copied, else nothing was compared
    context = plans.plan_context(plan)
    sessions.forget()
    lookups = RowLookups(sessions)
    wrong: dict[str, tuple[str, ...]] = {}
    with closing(DocumentReader(sessions, context.history_before)) as reader:
        for collection in sessions.profile.collections:
            ids = changed.get(collection.name, [])
            differing: list[str] = []
            for first in range(0, len(ids), DOCUMENTS_PER_READ):
                differing += _differing(
                    sessions, collection, context, reader, lookups, ids[first : first + DOCUMENTS_PER_READ]
                )
            if differing:
                wrong[collection.name] = tuple(sorted(differing)[:5])
    for one in sessions.profile.closing:
        derived = compare_derived(sessions, one, listed=5)
        if derived.differing or derived.missing or derived.extra:
            wrong[derived.collection] = tuple(one.key for one in derived.findings)
    return ChangedDocuments(documents=sum(map(len, changed.values())), wrong=wrong)


def _differing(
    sessions: Sessions,
    collection: Collection,
    context: Context,
    reader: DocumentReader,
    lookups: RowLookups,
    ids: Sequence[str],
) -> list[str]:
    """Return which of these documents are not equal to what is stored, or have extra rows."""
    raw = b"".join(reader.documents(collection.name, ids))
    documents_read = list(transform_documents(collection, context, sessions.resolver, raw))
    quarantine = ledger.quarantine_entries(sessions.target, sessions.profile.name, collection.name, ids)
    stored = stored_rows(sessions.target, documents_read)
    wrong = [source_id_of(one.raw) for one in documents_read if not is_equal(one, stored, quarantine)]
    expected = {
        source_id_of(one.raw): one
        for one in documents_read
        if one.serialized and source_id_of(one.raw) not in quarantine
    }
    keys = {
        (type(row.record), row.record.id, row.record.tenant_id)  # type: ignore[attr-defined] # every loaded record has both
        for document in expected.values()
        for row in document.serialized
    }
    rowless = sorted(set(ids) - set(expected))
    for record in collection.tables:
        # A table that does not name its document is read as a whole: only for documents that may have no row at all.
        asked = ids if has_source_column(record) else rowless
        if asked:
            rows = lookups.rows_of(collection, record, asked)
            wrong += [named for key, named in rows.items() if (record, *key) not in keys]
    return list(dict.fromkeys(wrong))
