"""The parity check as a whole: what was copied, compared with what is stored, by chunks and in parallel."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, nullcontext
from functools import partial

import msgspec

from migrator.config import Settings
from migrator.errors import RefusedError, UsageError
from migrator.parity.aggregates import (
    AggregatesJob,
    BothSides,
    compare_aggregates,
    compute_aggregates,
    compute_aggregates_apart,
    split_columns,
    with_column_measures,
)
from migrator.parity.changes import active_since, aggregates_while_active, created_rows, derived_while_active
from migrator.parity.compare import compare_chunk, compare_derived
from migrator.parity.extra_rows import ExtraRows, find_extra_rows, removed_collections
from migrator.parity.model import AggregateResult, CauseCount, CollectionComparison, ParityOutcome, merge
from migrator.parity.recheck import MOVING, aggregates_during_tail, confirmed_extra_rows, derived_during_tail
from migrator.parity.silent_schedules import find_silent_schedules
from migrator.parity.stopped_writers import writers_stopped
from migrator.pipeline import ledger, locks
from migrator.pipeline import plan as plans
from migrator.pipeline.executors import ChunkJob, documents_of, estimates, executor
from migrator.pipeline.extract import SourceCollection
from migrator.pipeline.ledger import Plan
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import Sessions, open_sessions
from migrator.pipeline.submission import Submission
from migrator.pipeline.tail import positions
from migrator.pipeline.tail.conditions import tailed_collections
from migrator.pipeline.throttle import Throttle, throttle_of
from migrator.progress import Progress
from migrator.sources.profile import Context

NEVER_COPIED = "the ledger has no copy of this collection"
UNFINISHED = "its copy is unfinished: call backfill again"
LEFT_OUT = "left out by --only"
LOCKS_TABLES = "--lock-source locks the tables of a source in PostgreSQL, and this source is in MongoDB"
"""Why a collection was not compared."""


def check_parity(
    settings: Settings,
    scope: Scope,
    *,
    pool: Executor | None = None,
    lock_source: bool = False,
    throttled: bool = True,
) -> ParityOutcome:
    """Compare everything in ``scope`` that a backfill has copied; writes nothing.

    ``pool`` runs the chunks, silently, in place of the configuration's executor and without a throttle. Without
    ``throttled`` neither a limit nor a pause holds: writers wait for it. ``lock_source``: hold SHARE locks on
    the tables of a source in PostgreSQL meanwhile. Raises ``RefusedError`` when nothing was ever copied from this
    source, ``UnreachableError`` when a server fails.
    """
    with open_sessions(settings) as sessions:
        if sessions.tables is None:
            if lock_source:
                raise UsageError(LOCKS_TABLES)
            return _check_parity(sessions, scope, pool, "", throttled=throttled)
        tables = [one.name for one in sessions.survey()[0]]
        with (
            writers_stopped(settings, tables, lock=lock_source) as unproven,
            sessions.reader.snapshot() as snapshot,
        ):
            found = _check_parity(sessions, scope, pool, snapshot, throttled=throttled)
            return msgspec.structs.replace(found, unproven=unproven)


def _check_parity(
    sessions: Sessions, scope: Scope, pool: Executor | None, snapshot: str, *, throttled: bool
) -> ParityOutcome:
    settings, profile = sessions.settings, sessions.profile
    throttle = throttle_of(sessions, refresh=_refresh) if throttled and pool is None else None
    plans.check_scope(profile, scope)
    plan = ledger.latest_plan(sessions.target)
    if plan is None:
        raise RefusedError("nothing was copied into this target yet, so there is nothing to compare: call backfill")
    found, unknown = sessions.survey()
    plans.require_tenants(sessions.reader, found, scope, settings.source.default_tenant)
    found += removed_collections(sessions, found)
    reasons = _unverified(sessions, plan, scope, found)
    tailed = locks.is_tail_running(sessions.target)
    chosen = [one for one in found if not reasons.get(one.collection.name)]
    context = plans.plan_context(plan)
    jobs = [
        ChunkJob(
            settings=settings,
            plan=plan,
            context=context,
            chunk=chunk,
            tenants=scope.tenants,
            snapshot=snapshot,
            tailed=tailed,
        )
        for one in chosen
        for chunk in plans.cut(sessions.reader, one, settings, "merge")
    ]
    parts, computed = _run(settings, _aggregates_jobs(sessions, context, chosen, scope), jobs, pool, throttle)
    comparisons = {name: merge(some, listed=settings.report.max_differences) for name, some in sorted(parts.items())}
    if not scope.tenants:
        comparisons = _with_extra(sessions, context, chosen, comparisons, tailed=tailed)
    for one in found:
        name, tables = one.collection.name, tuple(record.table for record in one.collection.tables)
        why = reasons.get(name, "")
        comparisons.setdefault(name, CollectionComparison(collection=name, tables=tables, unverified=why))
    order = {collection.name: position for position, collection in enumerate(profile.collections)}
    whole = plan.state == "complete" and not scope.only and not scope.tenants
    listed = settings.report.max_differences
    results, columns = split_columns(
        [] if scope.tenants else _aggregates(sessions, context, chosen, comparisons, computed, tailed=tailed)
    )
    since = active_since(sessions.target)
    derived = [
        derived_while_active(compare_derived(sessions, closing, listed=listed))
        if since is not None
        else derived_during_tail(sessions, partial(compare_derived, sessions, closing, listed=listed), tailed=tailed)
        for closing in profile.closing
        if whole
    ]
    names = [one.collection.name for one in chosen]
    mute = [] if scope.tenants else find_silent_schedules(sessions, context, names)
    return ParityOutcome(
        profile=f"{profile.name}/{profile.version}",
        collections=(*sorted(comparisons.values(), key=lambda one: order[one.collection]), *derived),
        aggregates=tuple(results),
        columns=tuple(columns),
        unknown_collections=unknown,
        silent=tuple(mute[:listed]),
        silent_total=len(mute),
        active_since=since,
        created={} if since is None else created_rows(sessions.target),
    )


def _unverified(sessions: Sessions, plan: Plan, scope: Scope, found: Sequence[SourceCollection]) -> dict[str, str]:
    """Return, by collection, why it cannot be compared; empty where it can."""
    reasons: dict[str, str] = {}
    # also what has all its chunks: the closing passes, which fill references and settle contested keys, are still owed
    finished = plan.state == "complete"
    unfinished = () if finished else {chunk.collection for chunk in ledger.chunks_of(sessions.target, plan.id)}
    ever = ledger.copied_collections(sessions.target)
    if positions.tail_state(sessions.target, sessions.profile.name) is not None:
        ever |= set(tailed_collections(sessions))  # a collection that was made after the copy is the tail's
    for one in found:
        name = one.collection.name
        if scope.only and name not in scope.only:
            reasons[name] = LEFT_OUT
        elif name in unfinished:
            reasons[name] = UNFINISHED
        elif name not in ever:
            reasons[name] = NEVER_COPIED
    return reasons


def _aggregates_jobs(
    sessions: Sessions, context: Context, chosen: Sequence[SourceCollection], scope: Scope
) -> list[AggregatesJob]:
    """Return the aggregates that workers compute while others compare documents.

    They leave out the documents in quarantine. The comparison will say whether these are all that must be left out. So
    a collection of which the copy skipped documents has no job.
    """
    if scope.tenants or sessions.tables is not None:
        return []
    skipped = ledger.collections_with_skips(sessions.target)
    return [
        AggregatesJob(
            settings=sessions.settings,
            collection=name,
            left_out=tuple(sorted(ledger.quarantined_ids(sessions.target, sessions.profile.name, name))),
            default_tenant=context.default_tenant,
        )
        for name in (one.collection.name for one in chosen)
        if name not in skipped
    ]


def _refresh(sessions: Sessions) -> None:
    """Connect to the target again if the connection was lost while chunks were compared."""
    if sessions.target.closed:
        sessions.open_target()


def _run(
    settings: Settings,
    aggregates: Sequence[AggregatesJob],
    chunks: Sequence[ChunkJob],
    pool: Executor | None,
    throttle: Throttle | None,
) -> tuple[dict[str, list[CollectionComparison]], list[BothSides]]:
    """Run all jobs; return the comparisons of the chunks by collection, and the aggregates.

    The aggregates are the servers' work. So a thread of this process waits for them, the largest first, while worker
    processes compare documents; a worker that finds no more chunks takes what is left of them, the smallest first.
    """
    parts: dict[str, list[CollectionComparison]] = {}
    computed: list[BothSides] = []
    if not chunks:
        return parts, computed
    sizes = estimates(chunks)
    ordered = sorted(aggregates, key=lambda one: sizes.get(one.collection, 0))
    beside = pool is None and settings.copy.executor == "local"
    jobs: list[AggregatesJob | ChunkJob] = [*chunks, *ordered] if beside else [*aggregates, *chunks]
    with (
        Progress("parity", sizes) if pool is None else nullcontext() as progress,
        executor(settings.copy) if pool is None else nullcontext(pool) as chosen,
    ):
        submission = Submission(chosen, _run_job, jobs, settings.copy, throttle, documents_of)
        with _computed_beside(lambda: _withdrawn(submission) if beside else None) as found:
            for job, part in submission:
                if found.done():
                    found.result()  # what failed there ends this check
                if isinstance(part, BothSides):
                    computed.append(part)
                    continue
                parts.setdefault(part.collection, []).append(part)
                if progress is not None and isinstance(job, ChunkJob):
                    size = part.documents * job.chunk.average_bytes
                    progress.add(part.collection, part.documents, part.rows, size, part.quarantined)
            computed += found.result()
    return parts, computed


def _withdrawn(submission: "Submission[AggregatesJob | ChunkJob, BothSides | CollectionComparison]") -> object:
    return submission.withdraw(lambda job: isinstance(job, AggregatesJob))


@contextmanager
def _computed_beside(next_job: Callable[[], object]) -> Iterator[Future[list[BothSides]]]:
    """Let a thread compute the aggregates that it is given, until there are no more; yield what will hold the results.

    A block that fails waits for the job that runs, as its executor does; one that is interrupted does not.
    """
    found: Future[list[BothSides]] = Future()
    failed = threading.Event()

    def jobs() -> Iterator[AggregatesJob]:
        while not failed.is_set() and isinstance(job := next_job(), AggregatesJob):
            yield job

    def compute() -> None:
        try:
            found.set_result([compute_aggregates_apart(job) for job in jobs()])
        except BaseException as error:  # noqa: BLE001 - raised where the results are asked for
            found.set_exception(error)

    threading.Thread(target=compute, name="aggregates", daemon=True).start()
    try:
        yield found
    except BaseException as error:
        failed.set()
        if isinstance(error, Exception):
            found.exception()
        raise


def _run_job(job: AggregatesJob | ChunkJob) -> BothSides | CollectionComparison:
    return compare_chunk(job) if isinstance(job, ChunkJob) else compute_aggregates(job)


def _with_extra(
    sessions: Sessions,
    context: Context,
    chosen: Sequence[SourceCollection],
    comparisons: dict[str, CollectionComparison],
    *,
    tailed: bool,
) -> dict[str, CollectionComparison]:
    listed = sessions.settings.report.max_differences
    compared = {
        (name, column.table): column.compared
        for name, comparison in comparisons.items()
        for column in comparison.columns
        if column.column == "id"
    }
    result = dict(comparisons)
    since = active_since(sessions.target)
    # then the counts are of two moments, and may agree by chance
    beside = since is None and (tailed or locks.is_tail_running(sessions.target))
    rejected = {name: comparison.rejected for name, comparison in comparisons.items()}
    extras = find_extra_rows(
        sessions, context, chosen, {} if beside else compared, listed=listed, rejected=rejected, unchanged_since=since
    )
    moving: dict[str, int] = {}
    if beside:

        def again(names: set[str]) -> dict[str, ExtraRows]:
            some = [one for one in chosen if one.collection.name in names]
            return find_extra_rows(sessions, context, some, {}, listed=listed, rejected=rejected)

        extras, moving = confirmed_extra_rows(sessions, extras, again)
    for name, rows in moving.items():
        result[name] = msgspec.structs.replace(result[name], unverified=MOVING.format(rows))
    for name, extra in extras.items():
        before = result[name]
        result[name] = msgspec.structs.replace(
            before,
            extra=extra.tables.total(),
            differences=tuple(sorted([*before.differences, *extra.differences])[:listed]),
            causes=(
                *before.causes,
                *(
                    CauseCount(table=table, path="", side="extra", cause="extra-row", count=count)
                    for table, count in sorted(extra.tables.items())
                ),
            ),
        )
    return result


def _aggregates(
    sessions: Sessions,
    context: Context,
    chosen: Sequence[SourceCollection],
    comparisons: dict[str, CollectionComparison],
    computed: Sequence[BothSides],
    *,
    tailed: bool,
) -> list[AggregateResult]:
    results = compare_aggregates(
        sessions.tables or sessions.source,
        sessions.target,
        with_column_measures(sessions.profile),
        {name: comparison.excluded for name, comparison in comparisons.items()},
        default_tenant=context.default_tenant,
        names=sessions.settings.source.collections,
        only=[one.collection.name for one in chosen],
        computed=computed,
    )
    if active_since(sessions.target) is not None:
        return aggregates_while_active(results)
    return aggregates_during_tail(results, tailed=tailed or locks.is_tail_running(sessions.target))
