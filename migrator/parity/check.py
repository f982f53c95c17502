"""The parity check as a whole: what was copied, compared with what is stored, by chunks and in parallel."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import chain
from uuid import uuid4

import msgspec

from migrator.config import Settings
from migrator.errors import RefusedError, UsageError
from migrator.parity.aggregates import (
    AggregatesJob,
    BothSides,
    compare_aggregates,
    compute_aggregates_apart,
    counted_rows,
    split_columns,
    with_column_measures,
)
from migrator.parity.causes import CauseCode
from migrator.parity.changes import aggregates_while_active, created_rows, derived_while_active
from migrator.parity.compare import compare_derived, run_job
from migrator.parity.extra_rows import ExtraRows, find_extra_rows, find_foreign_rows, removed_collections
from migrator.parity.model import (
    KEPT_CHARACTERS,
    AggregateResult,
    CollectionComparison,
    Merged,
    ParityOutcome,
    in_order,
    tally_of,
)
from migrator.parity.never_firing_schedules import find_never_firing_schedules
from migrator.parity.recheck import MOVING, aggregates_during_tail, confirmed_extra_rows, derived_during_tail
from migrator.parity.stopped_writers import writers_stopped
from migrator.pipeline import history, ledger, locks
from migrator.pipeline import plan as plans
from migrator.pipeline.executors import (
    ChunkJob,
    are_few,
    documents_of,
    executor,
    in_thread,
    is_small,
    prepare_workers,
)
from migrator.pipeline.extract import SourceCollection
from migrator.pipeline.job_feeder import JobFeeder
from migrator.pipeline.ledger import Plan
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import Sessions, open_sessions, prepare_job, thread_executor
from migrator.pipeline.tail import positions
from migrator.pipeline.tail.backlog import tailed_collections
from migrator.pipeline.throttle import Throttle, throttle_of
from migrator.progress import Progress
from migrator.sources.history import rule

NEVER_COPIED = "the ledger has no copy of this collection"
UNFINISHED = "its copy is unfinished: call backfill again"
LEFT_OUT = "left out by --only"
LOCKS_TABLES = "--lock-source locks the tables of a source in PostgreSQL, and this source is in MongoDB"
UNTOLD = "{:,} documents cannot become rows: too many to tell whether a row without a document is of one of them"
UNEXPLAINED = "the collection has {:,} documents, and {:,} were compared or left out as history"
"""Why a collection was not compared, or a part of it was not."""


def check_parity(
    settings: Settings,
    scope: Scope,
    *,
    opened: Sessions | None = None,
    pool: Executor | None = None,
    lock_source: bool = False,
    throttled: bool = True,
) -> ParityOutcome:
    """Compare everything in ``scope`` that a backfill has copied; writes nothing.

    ``opened``: sessions of these settings, which stay open; if omitted, new ones are opened. ``pool`` runs the chunks,
    silently, in place of the configuration's executor and without a throttle. Without ``throttled`` neither a limit nor
    a pause holds: writers wait for it. ``lock_source``: hold SHARE locks on the tables of a source in PostgreSQL
    meanwhile. Raises ``RefusedError`` when nothing was ever copied from this
    source, ``UnreachableError`` when a server fails.
    """
    with (
        open_sessions(settings) if opened is None else nullcontext(opened) as sessions,
        _source_held(sessions, lock=lock_source) as (snapshot, unverified_because),
    ):
        check = _Check(sessions, scope)
        if pool is None:
            prepare_workers(settings, check.documents, prepare_job)
        throttle = throttle_of(sessions, refresh=_refresh) if throttled and pool is None else None
        parts, computed = _run(settings, check, snapshot, pool, throttle)
        compared = check.with_extra({name: merged.whole() for name, merged in sorted(parts.items())}, computed)
        compared = check.with_history(compared)
        aggregates, columns = split_columns(check.aggregates(compared, computed))
        derived = tuple(check.derived())
        never_firing = [] if scope.tenants else find_never_firing_schedules(sessions, check.context, check.names)
        since = sessions.target_tables.active_since(sessions.target)
        return ParityOutcome(
            profile=f"{sessions.profile.name}/{sessions.profile.version}",
            collections=(*check.in_order(compared), *derived),
            aggregates=tuple(aggregates),
            columns=tuple(columns),
            unknown_collections=check.unknown,
            left_out=dict(sessions.profile.left_out),
            never_firing=tuple(never_firing[: check.listed]),
            never_firing_total=len(never_firing),
            active_since=since,
            created={} if since is None or settings.target.is_native else created_rows(sessions.target),
            unverified_because=unverified_because,
        )


@contextmanager
def _source_held(sessions: Sessions, *, lock: bool) -> Iterator[tuple[str, str]]:
    """Yield the snapshot in which tables of PostgreSQL are read, and why nothing shows that they do not change."""
    if sessions.tables is None:
        if lock:
            raise UsageError(LOCKS_TABLES)
        yield "", ""
        return
    tables = [one.name for one in sessions.survey()[0]]
    with (
        writers_stopped(sessions.settings, tables, lock=lock) as unverified_because,
        sessions.reader.snapshot() as snapshot,
    ):
        yield snapshot, unverified_because


class _Check:
    """One parity check: what is compared, and what it asks both sides besides the documents."""

    def __init__(self, sessions: Sessions, scope: Scope) -> None:
        plans.check_scope(sessions.profile, scope)
        sessions.target_tables.require_comparable(sessions.target)
        plan = ledger.latest_plan(sessions.target)
        if plan is None:
            raise RefusedError("nothing was copied into this target yet, so there is nothing to compare: call backfill")
        self._sessions, self._scope, self._plan = sessions, scope, plan
        self.context, self.listed = plans.plan_context(plan), sessions.settings.report.max_differences
        found, self.unknown = sessions.survey()
        plans.require_tenants(sessions.reader, found, scope, sessions.settings.source.default_tenant)
        self._found = [*found, *removed_collections(sessions, found)]
        self._reasons = _unverified(sessions, plan, scope, self._found)
        self._chosen = [one for one in self._found if not self._reasons.get(one.collection.name)]
        self._tailed = locks.is_tail_running(sessions.target)
        self.names = [one.collection.name for one in self._chosen]
        self.estimated = {one.collection.name: one.documents for one in self._chosen}
        self.documents = sum(self.estimated.values())

    def chunk_jobs(self, snapshot: str) -> Iterator[ChunkJob]:
        """Yield the ranges of documents to compare; where each ends is searched when it is asked for."""
        settings, name = self._sessions.settings, uuid4().hex
        patient = self._sessions.tables is None  # a snapshot of PostgreSQL ends with its connection
        copied = ledger.chunks_of(self._sessions.target, self._plan.id)
        for one in self._chosen:
            bounds = plans.bounds_of(copied, one, settings)
            for chunk in plans.cut(self._sessions.reader, one, settings, "merge", patient=patient, bounds=bounds):
                yield ChunkJob(
                    settings=settings,
                    plan=self._plan,
                    context=self.context,
                    chunk=chunk,
                    tenants=self._scope.tenants,
                    snapshot=snapshot,
                    begun=name,
                    tailed=self._tailed,
                )

    def aggregates_jobs(self) -> list[AggregatesJob]:
        """Return the aggregates that workers compute while others compare documents.

        They leave out the documents in quarantine. The comparison will say whether these are all that must be left out.
        So a collection of which the copy skipped documents has no job, nor has one with more in quarantine than a
        request can leave out.
        """
        sessions = self._sessions
        if self._scope.tenants or sessions.tables is not None:
            return []
        without_job = ledger.collections_with_skips(sessions.target)
        without_job |= ledger.collections_in_quarantine(
            sessions.target, sessions.profile.name, characters=KEPT_CHARACTERS
        )
        return [
            AggregatesJob(
                settings=sessions.settings,
                collection=name,
                left_out=tuple(sorted(ledger.quarantined_ids(sessions.target, sessions.profile.name, name))),
                default_tenant=self.context.default_tenant,
                history_before=self.context.history_before,
            )
            for name in self.names
            if name not in without_job
        ]

    def _is_tailed(self) -> bool:
        """Whether a tail runs, or ran when the check began."""
        return self._tailed or locks.is_tail_running(self._sessions.target)

    def with_extra(
        self, comparisons: dict[str, CollectionComparison], computed: Sequence[BothSides]
    ) -> dict[str, CollectionComparison]:
        """Return the comparisons with the rows that no document explains, unless single tenants are compared.

        ``computed``: the aggregates, which have counted the rows of most tables.
        """
        if self._scope.tenants:
            return comparisons
        sessions, context, listed = self._sessions, self.context, self.listed
        compared = {
            (name, column.table): column.compared
            for name, comparison in comparisons.items()
            for column in comparison.columns
            if column.column == "id"
        }
        result = dict(comparisons)
        since = sessions.target_tables.active_since(sessions.target)
        # then the counts are of two moments, and may agree by chance
        tailed = since is None and self._is_tailed()
        rejected = {name: comparison.rejected for name, comparison in comparisons.items()}
        untold = {name for name, one in comparisons.items() if one.rejected_total > len(one.rejected)}
        for name in untold:
            result[name] = msgspec.structs.replace(result[name], unverified=UNTOLD.format(result[name].rejected_total))
        chosen = [one for one in self._chosen if one.collection.name not in untold]
        extras = find_extra_rows(
            sessions,
            context,
            chosen,
            {} if tailed else compared,
            listed=listed,
            rejected=rejected,
            unchanged_since=since,
            counted=counted_rows(sessions.profile, computed) if since is None and not tailed else {},
        )
        moving: dict[str, int] = {}
        if tailed:

            def again(names: set[str]) -> dict[str, ExtraRows]:
                some = [one for one in chosen if one.collection.name in names]
                return find_extra_rows(sessions, context, some, {}, listed=listed, rejected=rejected)

            extras, moving = confirmed_extra_rows(sessions, extras, again)
        for name, rows in moving.items():
            result[name] = msgspec.structs.replace(result[name], unverified=MOVING.format(rows))
        for name, extra in extras.items():
            result[name] = _with_extra(result[name], extra, "extra-row", listed)
        if since is None:  # afterwards the application writes them
            for name, foreign in find_foreign_rows(sessions, self._chosen, listed):
                result[name] = _with_extra(result[name], foreign, "foreign-row", listed)
        return result

    def with_history(self, comparisons: dict[str, CollectionComparison]) -> dict[str, CollectionComparison]:
        """Return the comparisons with the documents that are left out as history, as the server counts them.

        Where nothing changes meanwhile, the server counts all documents too, without the rule: a document that was
        neither compared nor left out is seen.
        """
        before = self.context.history_before
        if before is None or self._sessions.tables is not None:
            return comparisons
        sessions, tenants, result = self._sessions, self._scope.tenants, dict(comparisons)
        moving = self._is_tailed() or sessions.target_tables.active_since(sessions.target) is not None
        for collection in (one.collection for one in self._chosen if one.collection.name in comparisons):
            if collection.history is None:
                continue
            compared = comparisons[collection.name]
            count = history.left_out(sessions, collection, self.context, tenants)
            explained = compared.documents + count
            whole = explained if moving else history.total(sessions, collection, self.context, tenants)
            reasons = (compared.unverified, UNEXPLAINED.format(whole, explained) if whole != explained else "")
            result[collection.name] = msgspec.structs.replace(
                compared,
                documents=whole,
                history=count,
                skipped=compared.skipped | ({rule(before): count} if count else {}),
                unverified="; ".join(filter(None, reasons)),
            )
        return result

    def aggregates(
        self, comparisons: dict[str, CollectionComparison], computed: Sequence[BothSides]
    ) -> list[AggregateResult]:
        """Compare what both servers count, add up and order; ``computed``: what the workers have of it."""
        if self._scope.tenants:
            return []
        sessions = self._sessions
        results = compare_aggregates(
            sessions.tables or sessions.source,
            sessions.target,
            with_column_measures(sessions.profile),
            {name: comparison.excluded for name, comparison in comparisons.items()},
            uncounted={
                name: comparison.excluded_total
                for name, comparison in comparisons.items()
                if comparison.excluded_total > len(comparison.excluded)
            },
            default_tenant=self.context.default_tenant,
            names=sessions.settings.source.collections,
            only=self.names,
            computed=computed,
            fields={name: comparison.fields for name, comparison in comparisons.items()},
            history_before=self.context.history_before,
        )
        if sessions.target_tables.active_since(sessions.target) is not None:
            return aggregates_while_active(results)
        return aggregates_during_tail(results, tailed=self._is_tailed())

    def derived(self) -> Iterator[CollectionComparison]:
        """Yield the comparison of the rows that many documents make together, if all documents were compared."""
        sessions = self._sessions
        if self._plan.state != "complete" or self._scope.only or self._scope.tenants:
            return
        for closing in sessions.profile.closing:
            compare = partial(compare_derived, sessions, closing, listed=self.listed)
            if sessions.target_tables.active_since(sessions.target) is not None:
                yield derived_while_active(compare())
            else:
                yield derived_during_tail(sessions, compare, tailed=self._tailed)

    def in_order(self, comparisons: dict[str, CollectionComparison]) -> Iterator[CollectionComparison]:
        """Yield the comparison of each collection in the order of the profile; of one that was left out, why."""
        existing = {one.collection.name for one in self._found}
        for collection in self._sessions.profile.collections:
            name, tables = collection.name, collection.tables
            if name in comparisons:
                yield comparisons[name]
            elif name in existing:
                yield CollectionComparison(
                    collection=name,
                    tables=tuple(record.table for record in tables),
                    unverified=self._reasons.get(name, ""),
                )


def _with_extra(before: CollectionComparison, extra: ExtraRows, cause: CauseCode, listed: int) -> CollectionComparison:
    """Return a comparison with rows that no document explains."""
    counts = sorted(extra.tables.items())
    tallies = tuple(tally_of(before.collection, cause, count, table=table) for table, count in counts)
    return msgspec.structs.replace(
        before,
        extra=before.extra + extra.tables.total(),
        findings=tuple(in_order([*before.findings, *extra.findings])[:listed]),
        tallies=before.tallies | {"extra": (*before.tallies.get("extra", ()), *tallies)},
    )


def _unverified(
    sessions: Sessions, plan: Plan, scope: Scope, collections: Sequence[SourceCollection]
) -> dict[str, str]:
    """Return, by collection, why it cannot be compared; empty where it can."""
    reasons: dict[str, str] = {}
    # also what has all its chunks: the closing passes, which fill references and settle contested keys, are still owed
    finished = plan.state == "complete"
    unfinished = () if finished else {chunk.collection for chunk in ledger.chunks_of(sessions.target, plan.id)}
    ever = ledger.copied_collections(sessions.target)
    if positions.tail_state(sessions.target, sessions.profile.name) is not None:
        ever |= set(tailed_collections(sessions))  # a collection that was made after the copy is the tail's
    for one in collections:
        name = one.collection.name
        if scope.only and name not in scope.only:
            reasons[name] = LEFT_OUT
        elif name in unfinished:
            reasons[name] = UNFINISHED
        elif name not in ever:
            reasons[name] = NEVER_COPIED
    return reasons


def _refresh(sessions: Sessions) -> None:
    """Connect to the target again if the connection was lost while chunks were compared."""
    if sessions.target.closed:
        sessions.open_target()


def _run(
    settings: Settings, check: _Check, snapshot: str, pool: Executor | None, throttle: Throttle | None
) -> tuple[dict[str, Merged], list[BothSides]]:
    """Run all jobs; return the comparisons of the chunks by collection, and the aggregates.

    The aggregates are the servers' work. So a thread of this process waits for them, the largest first, while worker
    processes compare documents; a worker that finds no more chunks takes what is left of them, the smallest first.
    Both begin when the first chunk is cut.
    """
    parts: dict[str, Merged] = {}
    computed: list[BothSides] = []
    if not check.estimated:
        return parts, computed
    chunks = check.chunk_jobs(snapshot)
    few = [*chunks] if are_few(check.documents) else []
    aggregates = sorted(check.aggregates_jobs(), key=lambda one: check.estimated[one.collection])
    in_background = pool is None and settings.copy.executor == "local"
    first, shared = ((), aggregates) if in_background else (aggregates, ())
    jobs: Iterator[AggregatesJob | ChunkJob] = chain(first, few, chunks)
    with (
        Progress("parity", check.estimated) if pool is None else nullcontext() as progress,
        _executor(settings, few) if pool is None else nullcontext(pool) as chosen,
    ):
        feeder = JobFeeder(chosen, run_job, jobs, settings.copy, throttle, documents_of, shared)
        with _computed_in_background(feeder.take_shared) as background:
            for job, part in feeder:
                if background.done():
                    background.result()  # what failed there ends this check
                if isinstance(part, BothSides):
                    computed.append(part)
                    continue
                parts.setdefault(part.collection, Merged(check.listed)).add(part)
                if progress is not None and isinstance(job, ChunkJob):
                    size = part.documents * job.chunk.average_bytes
                    progress.add(part.collection, part.documents, part.rows, size, part.quarantined)
            computed += background.result()
    return parts, computed


def _executor(settings: Settings, few: Sequence[ChunkJob]) -> AbstractContextManager[Executor]:
    """Return the executor of the configuration; a thread of this process for less than what its processes take.

    ``few``: all chunks, if they have few documents; else none.
    """
    return thread_executor() if few and is_small(settings.copy, few) else executor(settings.copy)


@contextmanager
def _computed_in_background(next_job: Callable[[], object]) -> Iterator[Future[list[BothSides]]]:
    """Let a thread compute the aggregates that it is given, until there are no more; yield what will hold the results.

    A block that fails waits for the job that runs, as its executor does; one that is interrupted does not.
    """
    failed = threading.Event()

    def jobs() -> Iterator[AggregatesJob]:
        while not failed.is_set() and isinstance(job := next_job(), AggregatesJob):
            yield job

    future = in_thread("aggregates", lambda: [compute_aggregates_apart(job) for job in jobs()])
    try:
        yield future
    except BaseException as error:
        failed.set()
        if isinstance(error, Exception):
            future.exception()
        raise
