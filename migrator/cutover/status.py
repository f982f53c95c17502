"""The state of the last cutover: its steps, the reverse sync, the processes, and what a person must do next."""

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from migrator.config import Settings
from migrator.connections import advisory_locks
from migrator.connections.postgres import Connection, target_connection
from migrator.cutover import journal, late_writes, metrics, outbox, processes
from migrator.cutover.journal import (
    CONFIRM_STEP,
    FINISH_STEP,
    POINT_OF_NO_RETURN,
    RELEASE_STEP,
    REVERSE_STOPPED,
    Journal,
    unfinished_level,
    window_end,
)
from migrator.cutover.metrics import CutoverMetrics
from migrator.cutover.processes import Arrivals
from migrator.cutover.server_gates import Gate
from migrator.durations import format_duration
from migrator.errors import MigratorError
from migrator.pipeline.sessions import open_sessions
from migrator.sources import profile_of
from migrator.sources.write_back import write_back
from migrator.store.postgres import parallel_run

RUN = "migrator cutover run"
ABORT = "migrator cutover abort"
CONFIRM = "migrator cutover confirm"
FINISH = "migrator cutover finish"
RELEASE = "migrator cutover release-source"
CLOSE_EARLY = "migrator cutover finish --now --who WHO --reason WHY"
ROLLBACK = "migrator rollback run"
RESTORE = "migrator rollback run --level 3"
TAIL = "migrator tail"
LOOK_S = 3.0
"""How long ``cutover status`` looks for writes in MongoDB; ``cutover finish`` looks at all."""


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """A state that needs a person, or another process, to end."""

    words: str
    commands: tuple[str, ...] = ()
    """The first is the next call; another one is for when those before it fail. Empty: a process works on it."""


class CutoverStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What ``cutover status`` prints."""

    cutover: journal.Cutover | None
    steps: tuple[journal.Step, ...] = ()
    waiting: int = 0
    """Notes that the reverse sync has not carried yet."""
    oldest_s: float = 0.0
    open_until: datetime | None = None
    """Until when ``cutover finish`` is refused; None: there is nothing to be finished."""
    parallel_since: datetime | None = None
    """Since when both schedulers run; None: they do not."""
    metrics: CutoverMetrics | None = CutoverMetrics()
    """None: the target is a library's tables, whose scheduler the tool does not measure."""
    arrivals: Arrivals | None = None
    """None: PostgreSQL is not open."""
    source: tuple[Gate, ...] = ()
    """Who wrote in MongoDB since the cutover, and who could; empty before the cutover and after `release-source`."""
    attention: Attention | None = None
    """None: no person is needed."""


def cutover_status(settings: Settings, *, wait_s: float = 0.0, config: str | None = None) -> CutoverStatus:
    """Return the state of the last cutover; wait for the processes of the old side for ``wait_s`` seconds at most.

    ``config`` is the configuration file that the commands of ``attention`` name.
    """
    with target_connection(settings) as target:
        if settings.target.is_native:
            return _library_status(settings, target, config)
        since = parallel_run.since(target)
        current = journal.latest(target)
        if current is None:
            return CutoverStatus(cutover=None, parallel_since=since)
        arrived = processes.wait_for_arrivals(settings, wait_s)
        count, age = outbox.backlog(target)
        return CutoverStatus(
            cutover=current,
            steps=tuple(journal.steps(target, current.id)),
            waiting=count,
            oldest_s=round(age, 1),
            open_until=window_end(target, current, settings) if current.state == "cut-over" else None,
            parallel_since=since,
            metrics=metrics.collect(settings),
            arrivals=arrived,
            source=_source_gates(settings, target, current),
            attention=attention(settings, config),
        )


def _library_status(settings: Settings, target: Connection, config: str | None) -> CutoverStatus:
    """Return the state of a cutover to a library's tables: nothing is known of the application's processes."""
    current = journal.latest(target)
    if current is None:
        return CutoverStatus(cutover=None)
    count, age = outbox.backlog(target)
    return CutoverStatus(
        cutover=current,
        steps=tuple(journal.steps(target, current.id)),
        waiting=count,
        oldest_s=round(age, 1),
        open_until=window_end(target, current, settings) if current.state == "cut-over" else None,
        metrics=None,
        source=_source_gates(settings, target, current),
        attention=attention(settings, config),
    )


def _source_gates(settings: Settings, target: Connection, cutover: journal.Cutover) -> tuple[Gate, ...]:
    """Return who wrote in MongoDB since the cutover, as far as that can be found out in a moment."""
    current = Journal(target, cutover)
    if cutover.state not in ("cut-over", "finished") or current.begun(RELEASE_STEP):
        return ()
    try:
        with open_sessions(settings) as sessions:
            return tuple(late_writes.gates(sessions, cutover, seconds=LOOK_S))
    except MigratorError as error:
        return (Gate(name=late_writes.WRITES_GATE, passed=None, words=f"not known: {error}"),)


def attention(settings: Settings, config: str | None = None) -> Attention | None:
    """Return the step that a person must take for the last cutover; None: nothing. Commands name ``config``."""
    with target_connection(settings) as target:
        need = _find(target, settings)
    if need is None or config is None:
        return need
    named = tuple(f"{one} --config {shlex.quote(config)}" for one in need.commands)
    return msgspec.structs.replace(need, commands=named)


def attention_lines(found: Attention) -> Iterator[str]:
    """Yield the lines for a terminal."""
    yield f"NOT FINISHED: {found.words}"
    for number, one in enumerate(found.commands):
        yield f"{'next' if number == 0 else 'or, if that fails'}: {one}"


def _find(target: Connection, settings: Settings) -> Attention | None:
    last = journal.latest(target)
    if last is None:
        return None
    current = Journal(target, last)
    level = unfinished_level(current)
    works = advisory_locks.is_held(target, journal.LOCK)
    if level is not None:
        return _of_rollback(current, level, works=works, levels=not settings.target.is_native)
    if last.state == "running":
        return _of_cutover(current, works=works, restores=not settings.target.is_native)
    if last.state == "cut-over":
        return _of_reverse_sync(target, settings, last) or _of_confirmation(settings, current)
    if last.state == "finished" and not works:
        return _of_finish(current)
    return None


def _of_finish(current: Journal) -> Attention | None:
    if not current.done(FINISH_STEP):
        return Attention(words=f"finishing was interrupted{_failed_step(current)}", commands=(FINISH,))
    if current.begun(RELEASE_STEP) and not current.done(RELEASE_STEP):
        words = f"opening MongoDB was interrupted{_failed_step(current)}: some of its users may be refused"
        return Attention(words=words, commands=(RELEASE,))
    return None


def _of_rollback(current: Journal, level: int, *, works: bool, levels: bool) -> Attention:
    of_level = f" of level {level}" if levels else ""
    if works:
        return Attention(words=f"a rollback{of_level} is under way in another process")
    words = f"a rollback{of_level} was interrupted{_failed_step(current)}"
    return Attention(words=words, commands=(f"{ROLLBACK} --level {level}" if levels else ROLLBACK,))


def _of_cutover(current: Journal, *, works: bool, restores: bool) -> Attention:
    if works:
        return Attention(words="a cutover is under way in another process")
    if not current.done(POINT_OF_NO_RETURN):
        detail = (
            f"a cutover was interrupted before its point of no return{_failed_step(current)}: writers may be refused"
        )
        return Attention(words=detail, commands=(ABORT,))
    detail = f"a cutover was interrupted after its point of no return{_failed_step(current)}: writers may be refused"
    return Attention(words=detail, commands=(RUN, ROLLBACK, RESTORE) if restores else (RUN, ROLLBACK))


def _of_reverse_sync(target: Connection, settings: Settings, last: journal.Cutover) -> Attention | None:
    """Return whether the reverse sync has stopped: its notes are older than a tail may lag."""
    count, oldest_s = outbox.backlog(target)
    why = last.detail.get(REVERSE_STOPPED, "")
    if not count or (not why and oldest_s <= settings.cutover.max_lag.total_seconds()):
        return None
    stopped = f"the reverse sync has stopped: {count:,} outbox entries wait, the oldest {oldest_s:,.0f} s old"
    why = f"; {why}" if why else ""
    if settings.target.is_native:
        return Attention(words=f"{stopped}{why}", commands=(TAIL, CLOSE_EARLY))
    leads_on = (TAIL,) if not write_back(profile_of(settings.source, settings.target)).faults else ()
    return Attention(words=f"{stopped}{why}", commands=(*leads_on, RESTORE, CLOSE_EARLY))


def _of_confirmation(settings: Settings, current: Journal) -> Attention | None:
    """Return whether the application of a library is still to be started on PostgreSQL."""
    if not settings.target.is_native or current.done(CONFIRM_STEP):
        return None
    need = "the application is to be configured for PostgreSQL, started, and confirmed"
    limit, since = settings.cutover.confirm_within, current.cutover.ended_at
    if limit and since is not None and datetime.now(UTC) - since > limit:
        need += f"; cutover.confirm_within ({format_duration(limit)}) is over"
    return Attention(words=need, commands=(CONFIRM, ROLLBACK))


def _failed_step(current: Journal) -> str:
    """Return the step that failed, and why, as a clause; empty if none is recorded."""
    for step in reversed(current.steps()):
        if step.state == "running":
            why = step.detail.get(journal.FAILED)
            return f" in step {step.step}" + (f" ({why})" if why else "")
    return ""
