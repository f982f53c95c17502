"""The quarantine: list and show its documents, and retry them after the source or the profile was corrected."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing, nullcontext
from datetime import datetime
from itertools import groupby
from typing import Final

import bson
import msgspec
from bson import json_util

from migrator.config import Settings
from migrator.connections.postgres import fetch_structs, fetch_value, target_connection
from migrator.errors import RefusedError, UsageError
from migrator.pipeline import ledger, references
from migrator.pipeline import plan as plans
from migrator.pipeline.extract import DocumentReader
from migrator.pipeline.ledger import Plan
from migrator.pipeline.load import DUPLICATE_ID, DUPLICATE_KEY, KEY_IN_USE, merge_rows
from migrator.pipeline.locks import backfill_lock
from migrator.pipeline.plan import Scope
from migrator.pipeline.references import ORPHAN, fill_links
from migrator.pipeline.sessions import Sessions, open_sessions
from migrator.pipeline.tail import applier
from migrator.pipeline.transform import (
    NOT_ROUND_TRIP,
    UNDECODABLE,
    SourceDocument,
    transform_documents,
)
from migrator.schema import decisions
from migrator.schema.decisions import Approval
from migrator.sources import profile_of
from migrator.values import document as documents
from migrator.values.identity import source_id_of

BATCH = 500

REASONS: Final = (
    "bad-date",
    "bad-pickle",
    DUPLICATE_ID,
    DUPLICATE_KEY,
    KEY_IN_USE,
    "missing-field",
    "no-tenant",
    "no-zone",
    NOT_ROUND_TRIP,
    "nul",
    "nul-in-tenant",
    ORPHAN,
    "out-of-range",
    "refused-import",
    "too-long",
    UNDECODABLE,
    "unknown-type",
    "unknown-value",
    "wrong-kind",
    "wrong-type",
)
"""Every code under which a document may be quarantined."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A document in quarantine."""

    collection: str
    source_id: str
    tenant: str | None
    reason: str
    path: str
    expected: str
    size: int
    tool_version: str
    profile_version: int
    since: datetime
    dropped_by: str | None = None
    """Who gave it up; None: it is in quarantine."""
    dropped_because: str | None = None
    dropped_at: datetime | None = None


class RetryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a retry."""

    loaded: int
    rejected: int
    gone: int
    """Documents that the source does not have any more."""


def entries(
    settings: Settings, collection: str | None = None, reason: str | None = None, *, dropped: bool = False
) -> list[Entry]:
    """Return the quarantined documents in a stable order, or those that were dropped.

    Raises ``UsageError`` for an unknown collection or reason.
    """
    if reason is not None and reason not in REASONS:
        raise UsageError(f"unknown code {reason}; known: {', '.join(REASONS)}")
    if collection is not None:
        plans.check_scope(profile_of(settings.source, settings.target), Scope(only=(collection,)))
    with target_connection(settings) as target:
        return fetch_structs(
            target,
            Entry,
            "SELECT collection, source_id, tenant_id AS tenant, reason, path, expected, length(raw) AS size,"
            " tool_version, profile_version, created_at AS since, dropped_by, dropped_because,"
            " CASE WHEN state = 'dropped' THEN resolved_at END AS dropped_at FROM migration.quarantine WHERE state = %s"
            " AND collection = coalesce(%s, collection) AND reason = coalesce(%s, reason)"
            " ORDER BY collection, reason, path, source_key",
            ("dropped" if dropped else "open", collection, reason),
        )


def raw_document(settings: Settings, collection: str, source_id: str) -> tuple[Entry, bytes]:
    """Return one entry with the document's bytes; raises ``UsageError`` if the document is not in quarantine."""
    matching = [one for one in entries(settings, collection) if one.source_id == source_id]
    if not matching:
        raise UsageError(
            f"no document of {collection} with that source id is in quarantine; see migrator quarantine list"
        )
    with target_connection(settings) as target:
        raw = fetch_value(
            target,
            "SELECT raw FROM migration.quarantine WHERE collection = %s AND source_key = %s",
            (collection, ledger.source_key(source_id)),
        )
    return matching[0], raw or b""


def chosen_entries(
    settings: Settings, collection: str | None, source_id: str | None, reason: str | None
) -> list[Entry]:
    """Return the quarantined documents that a call of ``drop`` names; raises ``UsageError`` if there is none."""
    matching = [one for one in entries(settings, collection, reason) if source_id in (None, one.source_id)]
    if not matching:
        raise UsageError("no document in quarantine is meant by that; see migrator quarantine list")
    return matching


def drop(settings: Settings, chosen: Sequence[Entry], by: Approval) -> int:
    """Give documents in quarantine up, and record who decided it and why; return how many still were in quarantine.

    They stay visible: the parity check counts them as left out on purpose, and the report lists them.
    """
    counts: Counter[str] = Counter()
    with target_connection(settings) as target, target.transaction():
        for one in chosen:
            counts[one.collection] += ledger.drop_entry(target, one.collection, one.source_id, by)
        decisions.record(target, decisions.DROP, by, documents=dict(sorted(counts.items())))
    return counts.total()


def retry(
    settings: Settings, collection: str | None = None, reason: str | None = None, *, dry_run: bool = False
) -> RetryResult:
    """Read the documents again and load those that can be loaded now.

    A document that cannot be loaded stays in quarantine, with the reason of now. The entry of a document that does not
    exist any more is closed as superseded. ``dry_run``: the same in one transaction, which is rolled back. Raises
    ``RefusedError`` before the first copy, and while it is not complete.
    """
    with open_sessions(settings) as sessions, backfill_lock(sessions):
        plan = ledger.latest_plan(sessions.target)
        if plan is None:
            raise RefusedError("nothing was copied into this target yet, so nothing was quarantined")
        if plan.state == "open":  # what the copy has not loaded yet would count as a dangling reference
            raise RefusedError("the copy is not complete; call migrator backfill, which continues it, and then retry")
        plan = msgspec.structs.replace(plan, profile_version=sessions.profile.version)
        counts: Counter[str] = Counter()
        chosen = entries(settings, collection, reason)
        with sessions.target.transaction(force_rollback=True) if dry_run else nullcontext():
            for name, group in groupby(chosen, key=lambda one: one.collection):
                ids = [one.source_id for one in group]
                for begin in range(0, len(ids), BATCH):
                    counts.update(_retry(sessions, plan, name, ids[begin : begin + BATCH]))
            fill_links(sessions.target, plan)
            applier.settle_contested_keys(sessions, plan)
    return RetryResult(loaded=counts["loaded"], rejected=counts["rejected"], gone=counts["gone"])


def _retry(sessions: Sessions, plan: Plan, name: str, source_ids: Sequence[str]) -> Counter[str]:
    collection, target = sessions.profile.by_name()[name], sessions.target
    context = plans.plan_context(plan)
    with closing(DocumentReader(sessions, context.history_before)) as reader:
        current = reader.by_id(name, source_ids)
    gone = [one for one in source_ids if one not in current]
    loadable: dict[str, SourceDocument] = {}
    still: list[SourceDocument] = []
    waiting: list[references.DanglingReference] = []
    batch = b"".join(current.values())
    for document in transform_documents(collection, context, sessions.resolver, batch):
        key = source_id_of(document.raw)
        waiting.extend(references.dangling_references_of(document))
        if document.serialized:
            loadable[key] = document
        elif document.rejected is not None:
            still.append(document)
        else:
            gone.append(key)
    with target.transaction():
        merge_rows(target, list(loadable.values()))
        for key, document in tuple(loadable.items()):
            if document.rejected is not None:
                still.append(loadable.pop(key))
        ledger.quarantine(target, plan, name, still)
        ledger.close_entries(target, plan.profile, name, loadable, "resolved")
        ledger.close_entries(target, plan.profile, name, gone, "superseded")
        references.store_dangling(target, name, waiting)
        ledger.store_links(target, name, [link for document in loadable.values() for link in document.links_to_store()])
    return Counter(loaded=len(loadable), rejected=len(still), gone=len(gone))


def extended_json(raw: bytes) -> str:
    """Return a document as canonical Extended JSON, for a person who asked to see its values."""
    try:
        return json_util.dumps(
            bson.decode(raw, documents.OPTIONS), json_options=json_util.CANONICAL_JSON_OPTIONS, indent=2
        )
    except bson.errors.InvalidBSON as error:
        return f"cannot be decoded ({type(error).__name__}); write its bytes to a file with --raw"
