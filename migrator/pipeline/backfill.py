"""The backfill: plan or resume, chunks in the order of the foreign keys, closing passes."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec

from migrator import fault_points
from migrator.config import Settings
from migrator.connections.postgres import Connection
from migrator.errors import MigratorError, RefusedError
from migrator.pipeline import deferred_ddl, history, hooks, ledger
from migrator.pipeline import plan as plans
from migrator.pipeline.chunk import copy_chunk
from migrator.pipeline.completion import refresh_statistics, write_derived
from migrator.pipeline.executors import (
    ChunkJob,
    documents_of,
    executor,
    is_small,
    prepare_workers,
    require_executor,
    start_workers,
    workers,
)
from migrator.pipeline.extract import SourceCollection, no_collection_message
from migrator.pipeline.job_feeder import JobFeeder
from migrator.pipeline.ledger import Chunk, ChunkResult, Plan
from migrator.pipeline.locks import backfill_lock, keep_backfill_lock
from migrator.pipeline.plan import Scope
from migrator.pipeline.references import ORPHAN, fill_links
from migrator.pipeline.sessions import Sessions, open_sessions, prepare_job, retry_transient, thread_executor
from migrator.pipeline.tail import applier
from migrator.pipeline.throttle import Throttle, throttle_of
from migrator.progress import Progress
from migrator.schema import decisions
from migrator.schema.decisions import Approval
from migrator.sources.profile import Profile
from migrator.telemetry import say


class BackfillResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call of backfill."""

    plan: Plan
    resumed: bool
    complete: bool
    """False if it was interrupted: some chunks are not done, and the next call continues with them."""
    chunks: int
    """Chunks done by this call."""
    documents: int
    rows: int
    written: int
    quarantined: int
    """Documents in quarantine now, in the scope of the plan."""
    skipped: int
    dangling: int
    """Dangling references in the chunks of the plan that are done, in this call or an earlier one."""
    unknown_collections: tuple[str, ...]
    by_collection: dict[str, ChunkResult]


def backfill(
    settings: Settings,
    scope: Scope,
    *,
    restart: bool = False,
    dry_run: bool = False,
    position: bool = True,
    overwrite_by: Approval | None = None,
) -> BackfillResult:
    """Copy the source into the target, or continue an unfinished copy. A second call writes nothing.

    ``overwrite_by``: who wants that rows which another program changed or deleted in a library's tables are
    overwritten; None: they are not.

    Raises ``RefusedError`` if the target holds rows of others, rows that others changed, or the copy of another
    source, another backfill runs, an unfinished copy was begun under other conditions, or the source has no
    collection of the profile; ``UnreachableError`` if a server stays unreachable.
    """
    with open_sessions(settings) as sessions, backfill_lock(sessions), sessions.reader.snapshot() as snapshot:
        start = partial(_start, sessions, scope, restart=restart, position=position, overwrite_by=overwrite_by)
        return _copied(sessions, scope, snapshot, start, dry_run=dry_run)


def _copied(
    sessions: Sessions, scope: Scope, snapshot: str, start: Callable[..., "_Start"], *, dry_run: bool
) -> BackfillResult:
    """Copy; ``start`` is ``_start`` with what the caller asked for."""
    throttle = throttle_of(sessions, refresh=keep_backfill_lock)
    if dry_run:
        begun = retry_transient(sessions.settings, lambda: start(dry_run=True))
        return _run_copy(sessions, scope, begun, snapshot, throttle, dry_run=True)
    hooks.require_programs(sessions.settings)
    hook = _Hook(sessions)
    try:
        begun = retry_transient(sessions.settings, lambda: start(dry_run=False, before_writing=hook.started))
        hook.plan = begun.plan
        result = _run_copy(sessions, scope, begun, snapshot, throttle, dry_run=False)
    except BaseException as error:
        hook.ended(
            {"complete": False, "error": str(error) if isinstance(error, MigratorError) else type(error).__name__}
        )
        raise
    counts = ("complete", "resumed", "documents", "rows", "written", "quarantined")
    hook.ended({name: getattr(result, name) for name in counts})
    return result


class _Hook:
    """Calls the two hooks of a copy: neither for a call that is refused, and after the first exactly one second."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._started = False
        self.plan: Plan | None = None

    def started(self) -> None:
        """Call the first one, once, although the start may be tried again; raises ``RefusedError`` if it fails."""
        if not self._started:
            self._started = True
            state = {"source": self._sessions.reader.database}
            hooks.call(self._sessions.settings, hooks.BACKFILL_STARTED, state)

    def ended(self, state: dict[str, Any]) -> None:
        """Call the second one, if the first one was called."""
        if self._started:
            identity = None if self.plan is None else self.plan.id
            hooks.call(self._sessions.settings, hooks.BACKFILL_ENDED, state, identity=identity)


def _run_copy(
    sessions: Sessions, scope: Scope, begun: "_Start", snapshot: str, throttle: Throttle, *, dry_run: bool
) -> BackfillResult:
    settings, profile, plan = sessions.settings, sessions.profile, begun.plan
    job = partial(
        ChunkJob,
        settings=settings,
        plan=plan,
        context=plans.plan_context(plan),
        tenants=scope.tenants,
        dry_run=dry_run,
        snapshot=snapshot,
        begun=uuid4().hex,
    )
    pending = [chunk for chunk in begun.chunks if not chunk.done]
    done: list[ChunkResult] = []
    interrupted = False
    while pending and not interrupted:
        jobs = [job(chunk=chunk) for chunk in pending]
        with Progress("dry run" if dry_run else "backfill", _estimates(jobs)) as progress:
            results, interrupted = run_chunks(settings, profile, jobs, progress, throttle)
        done += results
        pending = [] if dry_run else retry_transient(settings, lambda: _confirm_chunks(sessions, plan))
        lost = {(chunk.collection, chunk.ordinal) for chunk in pending}
        if count := sum((result.collection, result.ordinal) in lost for result in done):
            say(f"backfill: a crash of the target lost committed chunks ({count}); they are copied again")
            done = [result for result in done if (result.collection, result.ordinal) not in lost]
    if not dry_run and not interrupted:
        retry_transient(settings, lambda: _complete(sessions, plan))
        sessions.reader.close()  # now, because its threads take half a second to end, for which the exit waits
        retry_transient(settings, lambda: _restore_deferred(sessions, plan))
    return retry_transient(settings, lambda: _result(sessions, begun, done, complete=not interrupted, dry_run=dry_run))


class _Start(msgspec.Struct, frozen=True):
    """What a call begins with."""

    plan: Plan
    chunks: list[Chunk]
    unknown: tuple[str, ...]
    resumed: bool


def _start(
    sessions: Sessions,
    scope: Scope,
    *,
    restart: bool,
    dry_run: bool,
    position: bool,
    overwrite_by: Approval | None,
    before_writing: Callable[[], None] = lambda: None,
) -> _Start:
    """Continue the unfinished copy, or plan a new one. It is called again after a failure of a server.

    ``before_writing`` is called when nothing refuses the call any more, and nothing was written yet.
    """
    keep_backfill_lock(sessions)
    fault_points.reach(fault_points.BEFORE_PLAN)
    settings, target, profile = sessions.settings, sessions.target, sessions.profile
    plans.check_scope(profile, scope)
    collections, unknown = sessions.survey()
    if not collections:
        raise RefusedError(no_collection_message(sessions.reader.database, profile, unknown))
    chosen = scope.chosen(collections)
    prepare_workers(settings, sum(one.documents for one in chosen), prepare_job)
    plans.require_tenants(sessions.reader, collections, scope, settings.source.default_tenant)
    plans.require_one_profile(sessions)
    sessions.target_tables.require_forward(target)
    sessions.target_tables.guard_foreign(target, profile)
    if overwrite_by is None:
        sessions.target_tables.guard_changed(target, [one.collection for one in chosen])
    _require_parents(target, profile, scope, {one.collection.name for one in collections})
    require_executor(settings.copy)
    plan = abandoned = ledger.latest_plan(target, "open")
    if restart:
        plan = None
    resumed = plan is not None and not dry_run
    if plan is None or dry_run:
        copied = ledger.history_of_copies(target, profile.name, history.covered(profile))
        plan = plans.new_plan(sessions.reader, profile, settings, scope, collections, position=position, copied=copied)
        before = plans.plan_context(plan).history_before
        history.require_all_widened(profile, scope.only, [one.collection.name for one in collections], before, copied)
        plans.require_one_database(sessions)
        chunks = [
            chunk
            for one in chosen
            for chunk in plans.cut(sessions.reader, one, settings, plans.load_mode(sessions, one.collection))
        ]
        if not dry_run:
            before_writing()
            _take_over(sessions, chosen, overwrite_by)
            if abandoned is not None:
                ledger.set_plan_state(target, abandoned.id, "abandoned")
            new = plan
            retry_transient(settings, lambda: _store(sessions, new, chosen, chunks))
    else:
        plans.guard_resume(plan, sessions.reader, profile, settings, scope)
        before_writing()
        _take_over(sessions, chosen, overwrite_by)
        chunks = ledger.chunks_of(target, plan.id)
    return _Start(plan, chunks, unknown, resumed)


def _take_over(sessions: Sessions, chosen: Sequence[SourceCollection], by: Approval | None) -> None:
    """Let this copy overwrite what another program changed and deleted, if somebody wants it."""
    if by is None:
        return
    with sessions.target.transaction():
        rows = sessions.target_tables.take_over(sessions.target, [one.collection for one in chosen])
        decisions.record(sessions.target, decisions.OVERWRITTEN, by, rows=rows)


def _confirm_chunks(sessions: Sessions, plan: Plan) -> list[Chunk]:
    """Return the chunks that are not done; those that are can no longer be lost."""
    keep_backfill_lock(sessions)
    return ledger.unconfirmed_chunks(sessions.target, plan.id)


def _complete(sessions: Sessions, plan: Plan) -> None:
    """Run the closing passes that need all rows; each of them may have been done before."""
    keep_backfill_lock(sessions)
    target = sessions.target
    fill_links(target, plan)
    applier.settle_contested_keys(sessions, plan)
    if not plans.plan_scope(plan).only:
        write_derived(sessions)
    fault_points.reach(fault_points.AFTER_DERIVED_WRITTEN)


def _restore_deferred(sessions: Sessions, plan: Plan) -> None:
    """Create the deferred indexes and foreign keys again, and close the plan."""
    keep_backfill_lock(sessions)
    refresh_statistics(sessions, plan)  # first: the check of the foreign keys uses them
    fault_points.reach(fault_points.AFTER_STATISTICS_TAKEN)
    deferred_ddl.restore(sessions.target, sessions.settings, workers(sessions.settings.copy))
    fault_points.reach(fault_points.AFTER_DEFERRED_RESTORED)
    ledger.set_plan_state(sessions.target, plan.id, "complete")


def _store(sessions: Sessions, plan: Plan, chosen: Sequence[SourceCollection], chunks: Sequence[Chunk]) -> None:
    keep_backfill_lock(sessions)
    with sessions.target.transaction():
        ledger.store_plan(sessions.target, plan, chunks, datetime.now(UTC))
        sessions.target_tables.mark_copy(sessions.target, plan.profile)
        _defer(sessions, plan, chosen, chunks)
    fault_points.reach(fault_points.AFTER_PLAN_STORED)


def _defer(sessions: Sessions, plan: Plan, collections: Sequence[SourceCollection], chunks: Sequence[Chunk]) -> None:
    direct = {chunk.collection for chunk in chunks if chunk.mode == "direct"}
    documents: dict[str, int] = {}
    kept: set[str] = set()
    for collection in collections:
        for record in collection.collection.tables:
            documents[record.table] = documents.get(record.table, 0) + collection.documents
            if collection.collection.name not in direct:
                kept.add(record.table)
    tables = [name for name, count in documents.items() if name not in kept and count >= deferred_ddl.MIN_DOCUMENTS]
    if tables:
        sessions.target_tables.defer(sessions.target, plan.id, tables)


def _estimates(jobs: Iterable[ChunkJob]) -> dict[str, int]:
    """Return the number of documents that the jobs of each collection are about to read, as estimated."""
    counts: Counter[str] = Counter()
    for job in jobs:
        counts[job.chunk.collection] += job.chunk.estimated
    return dict(counts)


def levels(profile: Profile) -> dict[str, int]:
    """Return collection → the number of levels of its parents."""
    depth: dict[str, int] = {}
    for collection in profile.collections:  # parents come first in a profile
        depth[collection.name] = 1 + max((depth[name] for name in collection.after), default=-1)
    return depth


def run_chunks(
    settings: Settings, profile: Profile, jobs: Sequence[ChunkJob], progress: Progress, throttle: Throttle
) -> tuple[list[ChunkResult], bool]:
    """Run the chunks, parents first; return the results, and whether it was interrupted."""
    depth = levels(profile)
    done: list[ChunkResult] = []
    if not jobs:
        return done, False
    with thread_executor() if is_small(settings.copy, jobs) else executor(settings.copy) as pool:
        start_workers(pool, settings.copy, copy_chunk.__module__, len(jobs))
        for level in sorted({depth[job.chunk.collection] for job in jobs}):
            batch = [job for job in jobs if depth[job.chunk.collection] == level]
            chunks = JobFeeder(pool, copy_chunk, batch, settings.copy, throttle, documents_of)
            if not _run_level(chunks, done, progress):
                return done, True
    return done, False


def _run_level(chunks: JobFeeder[ChunkJob, ChunkResult], done: list[ChunkResult], progress: Progress) -> bool:
    """Run chunks that do not depend on each other; on Ctrl-C finish those that run, and return False."""
    try:
        for _, result in chunks:
            _count(result, done, progress)
    except KeyboardInterrupt:
        progress.waiting("for the running chunks to finish; finished chunks are kept")
        for _, result in chunks.interrupt():
            _count(result, done, progress)
        return False
    return True


def _count(result: ChunkResult, done: list[ChunkResult], progress: Progress) -> None:
    done.append(result)
    progress.add(result.collection, result.documents, sum(result.rows.values()), result.bytes, result.quarantined)


def _require_parents(target: Connection, profile: Profile, scope: Scope, present: set[str]) -> None:
    known = profile.by_name()
    copied = ledger.copied_collections(target)
    for name in scope.only:
        for parent in known[name].after:
            if parent in scope.only or parent not in present or parent in copied:
                continue
            raise RefusedError(
                f"--only {name} needs {parent} loaded first, because other rows refer to it; add --only {parent}"
            )


def _result(
    sessions: Sessions, begun: _Start, done: Sequence[ChunkResult], *, complete: bool, dry_run: bool
) -> BackfillResult:
    keep_backfill_lock(sessions)
    target, plan = sessions.target, begun.plan
    total = ChunkResult(collection="", ordinal=0)
    by_collection: dict[str, ChunkResult] = {}
    for one in done:
        total.add(one)
        by_collection.setdefault(one.collection, ChunkResult(collection=one.collection, ordinal=one.ordinal)).add(one)
    if dry_run:
        quarantined, dangling = total.quarantined, 0
    else:
        quarantined = ledger.quarantined_count(target, plan.profile)
        dangling = ledger.noted_documents(target, plan.id, "finding", ORPHAN)
    return BackfillResult(
        plan=plan,
        resumed=begun.resumed,
        complete=complete,
        chunks=len(done),
        documents=total.documents,
        rows=total.rows.total(),
        written=total.written.total(),
        quarantined=quarantined,
        skipped=total.skipped.total(),
        dangling=dangling,
        unknown_collections=begun.unknown,
        by_collection=by_collection,
    )
