"""Documents that are read again on request: their rows are brought up to date as the tail does it.

There is one way to bring a document's rows up to date, and this uses it: rows that are wrong are written, rows that no
document makes are removed, what cannot become rows is quarantined. A tail may run meanwhile: it and this take turns.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing

import msgspec

from migrator.config import Settings
from migrator.connections import advisory_locks
from migrator.connections.mongo import translate_errors
from migrator.errors import RefusedError, UsageError
from migrator.pipeline import ledger
from migrator.pipeline import plan as plans
from migrator.pipeline.completion import write_derived
from migrator.pipeline.extract import DocumentReader
from migrator.pipeline.ledger import Plan
from migrator.pipeline.locks import ROWS_KEY
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import Sessions, open_sessions
from migrator.pipeline.tail import backlog
from migrator.pipeline.tail.applier import Applier
from migrator.pipeline.tail.backlog import BACKLOG_DOCUMENTS, UNFINISHED, require_same_conditions, tailed_collections
from migrator.pipeline.tail.lookups import ensure_indexes
from migrator.sources import history

NAMED = 10
"""Ids that an error names."""


class RereadResult(msgspec.Struct, frozen=True, kw_only=True):
    """What reading documents again did."""

    documents: dict[str, int]
    """Collection → documents that were read again, or, in a dry run, would be."""
    written: int = 0
    removed: int = 0
    quarantined: int = 0
    """Documents of these collections in quarantine now."""


def read_again(
    settings: Settings, collections: Sequence[str], source_ids: Sequence[str] | None = None, *, dry_run: bool = False
) -> RereadResult:
    """Bring the rows of documents up to date: those of ``source_ids`` in one collection, or all of some collections.

    Killed half way, it has done a part; the tail, or the next call, does the rest of whole collections.

    Raises ``UsageError`` for an unknown collection, and, before anything is written, for ids that name neither a
    document nor rows nor a document in quarantine; ``RefusedError`` for ids of documents that are left out as history,
    while a copy is unfinished, where it was made under other conditions or without a collection, for a source in
    PostgreSQL, and after the cutover.
    """
    with open_sessions(settings) as sessions:
        sessions.source  # noqa: B018 - raises RefusedError for tables, which cannot be read by id while others change them
        plans.check_scope(sessions.profile, Scope(only=tuple(collections)))
        plan = complete_plan(sessions)
        for name in sorted(set(collections) - set(tailed_collections(sessions))):
            raise RefusedError(f"{name} was not copied yet: call migrator backfill --only {name}")
        applier = Applier(sessions, plan)
        named: dict[str, tuple[str, ...]] = {}
        if source_ids is not None:
            (name,) = collections
            named = {name: tuple(dict.fromkeys(source_ids))}
            _require_known(sessions, applier, plan, name, named[name])
        if dry_run:
            counts = {name: _count_in_scope(sessions, plan, name) for name in collections if not named}
            return RereadResult(documents=counts or {name: len(chosen) for name, chosen in named.items()})
        with sessions.target.transaction():
            ensure_indexes(sessions.target, sessions.profile)
            if not named:
                backlog.add_whole(sessions.target, collections)
        done = drain(sessions, applier, named)
        write_derived(sessions)
        quarantined = ledger.quarantined_by_collection(sessions.target, sessions.profile.name)
        return RereadResult(
            documents={name: done.documents.get(name, 0) for name in collections},
            written=done.written,
            removed=done.removed,
            quarantined=sum(quarantined.get(name, 0) for name in collections),
        )


def complete_plan(sessions: Sessions) -> Plan:
    """Return the plan under which rows may be updated; raises ``RefusedError`` if there is none."""
    plan = ledger.latest_plan(sessions.target)
    if plan is None or plan.state != "complete":
        raise RefusedError(f"no document can be read again yet: {UNFINISHED if plan else 'nothing was copied'}")
    require_same_conditions(sessions, plan)
    sessions.target_tables.require_forward(sessions.target)
    return plan


class Drained(msgspec.Struct):
    """The totals of a drained backlog."""

    documents: dict[str, int] = {}
    """Collection → documents that were read."""
    written: int = 0
    removed: int = 0


def drain(sessions: Sessions, applier: Applier, named: Mapping[str, Sequence[str]]) -> Drained:
    """Apply these documents, then the backlog, while a tail may be doing the latter.

    The documents are not put into the backlog: the tail does not know a row that another program wrote into a table
    whose rows do not name their documents.
    """
    names = tuple(collection.name for collection in sessions.profile.collections)
    pending = [(name, source_id) for name, source_ids in named.items() for source_id in source_ids]
    drained = Drained(documents={})
    while pending or backlog.any_left(sessions.target, names):
        with sessions.target.transaction():
            advisory_locks.take_in_transaction(sessions.target, ROWS_KEY)
            applier.reader.not_before_now()
            if pending:
                some, pending = pending[:BACKLOG_DOCUMENTS], pending[BACKLOG_DOCUMENTS:]
                chosen = {name: {source_id for of, source_id in some if of == name} for name in named}
            else:
                applier.name_all(names)
                chosen = {
                    name: set(taken) for name, taken in backlog.take(sessions.target, names, BACKLOG_DOCUMENTS).items()
                }
            done = applier.apply(chosen)
        for name, source_ids in chosen.items():
            drained.documents[name] = drained.documents.get(name, 0) + len(source_ids)
        drained.written += done.written
        drained.removed += done.removed
    return drained


def _count_in_scope(sessions: Sessions, plan: Plan, name: str) -> int:
    """Return how many documents of a collection are not left out as history; the server counts them."""
    scope = history.in_scope(sessions.profile.by_name()[name], plans.plan_context(plan).history_before)
    with translate_errors("the source"):
        return sessions.source[sessions.name_of(name)].count_documents(scope)


def _require_known(sessions: Sessions, applier: Applier, plan: Plan, name: str, source_ids: Sequence[str]) -> None:
    """Raise ``UsageError`` for ids that name nothing on either side, and ``RefusedError`` for those of history alone.

    The former were written wrongly; the latter are of documents that no copy has, so that no row can be brought up to
    date.
    """
    collection = sessions.profile.by_name()[name]
    unknown: list[str] = []
    quarantined = ledger.quarantined_ids(sessions.target, sessions.profile.name, name)
    for start in range(0, len(source_ids), BACKLOG_DOCUMENTS):
        some = source_ids[start : start + BACKLOG_DOCUMENTS]
        known = quarantined | applier.reader.by_id(name, some).keys()
        for record in collection.tables:
            known |= set(applier.lookups.rows_of(collection, record, some).values())
        unknown += [source_id for source_id in some if source_id not in known]
    if not unknown:
        return
    before = plans.plan_context(plan).history_before
    left_out: list[str] = []
    if before is not None:
        with closing(DocumentReader(sessions, None)) as everything:
            present = everything.by_id(name, unknown).keys()
        left_out = [source_id for source_id in unknown if source_id in present]
    absent = [source_id for source_id in unknown if source_id not in left_out]
    if absent:
        raise UsageError(
            f"{len(absent):,} of {len(source_ids):,} ids name neither a document of {name} nor rows of one:"
            f" {_listed(absent)}; nothing was written"
        )
    assert before is not None  # noqa: S101 - else none of them is left out
    raise RefusedError(
        f"{len(left_out):,} of {len(source_ids):,} ids name documents of {name} that copy.history leaves out"
        f" ({history.rule(before)}): {_listed(left_out)}; nothing was written. To copy them, set a wider copy.history"
        " and call migrator backfill"
    )


def _listed(source_ids: Sequence[str]) -> str:
    """Return the first of the ids, and how many others there are."""
    more = f" and {len(source_ids) - NAMED:,} more" if len(source_ids) > NAMED else ""
    return f"{', '.join(source_ids[:NAMED])}{more}"
