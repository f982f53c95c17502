"""Scenarios of area locking: exclusion between processes, fences, leadership.

Exclusion shows only between processes: contenders are processes of their own, which do what they are told by a pipe.
"""

import time
from datetime import timedelta
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Final
from uuid import UUID

import msgspec

from migrator.errors import LostLockError
from migrator.result import Measurement, Panel, table_panel
from migrator.scheduler.leadership import Leadership
from migrator.store.locks import LockHandle
from migrator.store.protocols import Store
from migrator.verify.behaviour.harness import FAILED, MINUTE, SECOND, Harness
from migrator.verify.behaviour.scenarios import Observations
from migrator.verify.behaviour.scratch_processes import (
    ScratchProcess,
    ScratchProcessError,
    ScratchTask,
    scratch_processes,
)

COUNTER: Final = "counter"
HOLD: Final = "hold"
LEADER: Final = "leader"
TTL: Final = timedelta(seconds=30)
LOCK_TIMEOUT: Final = timedelta(seconds=60)


class ContenderTask(ScratchTask, frozen=True, kw_only=True):
    """A contender: it counts, holds a lock, and stands for leadership."""

    counter: UUID
    """The schedule whose description is counted up."""
    rounds: int

    def serve(self, store: Store, pipe: Connection) -> None:
        """Do what is told until the pipe ends."""
        leadership = self.components.leadership(store, ttl=TTL, holder="contender", resource=LEADER, tenant=self.tenant)
        held = []
        pipe.send(())
        while True:
            word = pipe.recv()
            if word == COUNTER:
                pipe.send([_count_up(self, store) for _ in range(self.rounds)])
            elif word == HOLD:
                held.append(store.locks.acquire(self.tenant, HOLD, ttl=TTL))
                pipe.send(0 if held[-1] is None else held[-1].fence)
            elif word == "stand":
                pipe.send((leadership.acquire(),))
            elif word == "resign":
                pipe.send((leadership.release(),))


class LockTenure(msgspec.Struct, frozen=True):
    """One time that a contender held the lock; seconds of the machine's monotonic clock."""

    fence: int
    requested: float
    acquired: float
    released: float


def _count_up(task: ContenderTask, store: Store) -> LockTenure:
    """Count one further under the lock: read in one transaction, write in another one."""
    requested = time.monotonic()
    handle = store.locks.acquire(task.tenant, COUNTER, ttl=TTL, timeout=LOCK_TIMEOUT, holder="contender")
    acquired = time.monotonic()
    if handle is None:
        raise ScratchProcessError("the lock was not had within a minute")
    with store.session(task.tenant) as session:
        found = session.schedules.get(task.counter)
    seen = int((found.description if found is not None else None) or 0)
    with store.session(task.tenant) as session:
        session.schedules.change(task.counter, description=str(seen + 1))
    released = time.monotonic()
    handle.release()
    return LockTenure(handle.fence, requested, acquired, released)


PROCESSES: Final = 3
ROUNDS: Final = 8
CHECK: Final = "locking.processes"


def contention(harness: Harness, observed: Observations) -> None:
    """Let processes count under one lock; kill one that holds another lock; let them contend for leadership."""
    row = harness.row("counter", description="0")
    with harness.session() as session:
        session.schedules.upsert(row)
    scratch = harness.scratch
    assert scratch is not None  # noqa: S101 - other processes open the store of scratch tenants only
    task = ContenderTask(
        settings=scratch.settings,
        backend=scratch.backend,
        base=scratch.base,
        components=scratch.components,
        counter=row.id,
        rounds=ROUNDS,
    )
    with scratch_processes([task] * PROCESSES) as processes:
        for one in processes:
            one.send(COUNTER)
        tenures: list[list[LockTenure]] = [one.receive() for one in processes]
        with harness.session() as session:
            counted = session.schedules.get(row.id)
        observed.expect("no count is lost", str(PROCESSES * ROUNDS), None if counted is None else counted.description)
        _check_tenures(harness, observed, tenures)
        _check_leaders(observed, processes)
        holder, *_ = processes
        holder.send(HOLD)
        fence = holder.receive()
        observed.expect("a lock that another process holds is not had", None, _acquire(harness, HOLD))
        holder.kill()
        now = None if harness.backend == "postgres" else harness.store.now() + TTL + SECOND
        wait = 30 * SECOND if now is None else timedelta(0)
        taken = harness.store.locks.acquire(harness.tenant, HOLD, ttl=TTL, timeout=wait, now=now)
        higher = taken is not None and taken.fence > fence
        observed.expect_true("the lock of a process that was killed is had, under a higher fence", higher)
        if taken is not None:
            taken.release(now=now)


def _check_tenures(harness: Harness, observed: Observations, tenures: list[list[LockTenure]]) -> None:
    everybody = sorted((tenure for own in tenures for tenure in own), key=lambda tenure: tenure.fence)
    fences = [tenure.fence for tenure in everybody]
    observed.expect("every fencing token is given once", len(fences), len(set(fences)))
    overlaps = sum(later.acquired < before.released for before, later in pairwise(everybody))
    observed.expect("nobody has it while another one works", 0, overlaps)
    observed.panels.append(
        table_panel(
            f"Contention for one lock on {harness.backend}",
            ("what", "expected", "found"),
            (
                ("processes that contend", PROCESSES, len(tenures)),
                ("turns with the lock", PROCESSES * ROUNDS, len(everybody)),
                ("turns that overlap", 0, overlaps),
                ("fencing tokens given", PROCESSES * ROUNDS, len(fences)),
                ("fencing tokens given twice", 0, len(fences) - len(set(fences))),
            ),
        )
    )
    begun = min(tenure.requested for tenure in everybody)
    rows = tuple(
        (f"process {number}", _ms(tenure.acquired - begun), _ms(tenure.released - begun), f"fence {tenure.fence}")
        for number, own in enumerate(tenures, 1)
        for tenure in own
    )
    title = f"Who held the lock on {harness.backend}, ms"
    columns = ("process", "from", "to", "fence")
    observed.varying.append(Panel(kind="spans", title=title, columns=columns, rows=rows, rows_total=len(rows)))
    waits = [tenure.acquired - tenure.requested for tenure in everybody]
    for name, value in (("longest wait", max(waits)), ("mean wait", sum(waits) / len(waits))):
        observed.measurements.append(
            Measurement(
                check=CHECK,
                name=f"{name} for a contended lock on {harness.backend}",
                unit="ms",
                value=round(value * 1000, 1),
            )
        )


def _check_leaders(observed: Observations, processes: list[ScratchProcess]) -> None:
    for one in processes:
        one.send("stand")
    terms = [one.receive()[0] for one in processes]
    leading = [number for number, term in enumerate(terms) if term is not None]
    if not observed.expect("one process leads", 1, len(leading)):
        return
    processes[leading[0]].send("resign")
    processes[leading[0]].receive()
    heir = processes[leading[0] - 1]
    heir.send("stand")
    term = heir.receive()[0]
    observed.expect_true(
        "after it resigned another one leads, in a later term", term is not None and term > terms[leading[0]]
    )


def fences(harness: Harness, observed: Observations) -> None:
    """Hold, lose and take a lock by a given clock; a handle that lost it can do nothing with it."""
    first = _acquire(harness, "work")
    assert first is not None  # noqa: S101 - nobody else is here
    observed.expect("held: another one does not get it", None, _acquire(harness, "work"))
    harness.advance(20 * SECOND)
    observed.expect_true("held: renewed", first.renew(now=harness.now))
    harness.advance(20 * SECOND)
    observed.expect("a live holder's lock is not cleared", None, _acquire(harness, "work"))
    _guarded(harness, observed, "a live holder commits", first, refused=False)
    harness.advance(2 * MINUTE)
    second = _acquire(harness, "work")
    observed.expect_true(
        "over: another one gets it, under a higher fence", second is not None and second.fence > first.fence
    )
    if second is None:
        return
    _guarded(harness, observed, "the old holder's fencing token is refused", first, refused=True)
    observed.expect_false("the old holder cannot renew", first.renew(now=harness.now))
    observed.expect_false("the old holder cannot release", first.release(now=harness.now))
    holder = harness.store.locks.holder(harness.tenant, "work", harness.now)
    observed.expect("the new holder still has it", second.fence, None if holder is None else holder[1])
    observed.expect("nobody else gets it", None, _acquire(harness, "work"))
    _guarded(harness, observed, "the new holder commits", second, refused=False)
    observed.expect_true("released by its holder", second.release(now=harness.now))
    observed.expect_false("released once", second.release(now=harness.now))
    third = _acquire(harness, "work")
    observed.expect_true("free again", third is not None and third.fence > second.fence)


def leadership(harness: Harness, observed: Observations) -> None:
    """Let two stand for leadership; the one that lost its term writes nothing any more, and sweeps nothing."""
    first, two = _candidate(harness, "one"), _candidate(harness, "two")
    terms = (first.acquire(), two.acquire())
    observed.expect("one leads", [True, False], [term is not None for term in terms])
    observed.expect("it goes on leading", terms[0], first.acquire())
    job = harness.every(MINUTE, max_retries=0, timeout=SECOND)
    harness.executor.outcome = lambda _claim: None
    harness.advance(MINUTE)
    harness.run_once()
    delay = 2 * MINUTE
    taken = harness.store.locks.acquire(harness.tenant, "leader", ttl=TTL, now=harness.now + delay)
    observed.expect_true("a term that is over is another's", taken is not None)
    if taken is None:
        return
    harness.advance(delay)

    def write(candidate: Leadership) -> None:
        with harness.session() as session:
            session.schedules.change(job.id, description="written by a leader that was reaped")
            candidate.guard(session)

    observed.expect_refused("a reaped leader commits nothing", LostLockError, lambda: write(first))
    observed.expect("what it wrote is not there", None, harness.job(job).schedule.description)
    observed.expect("it learns that it leads no longer", None, first.acquire())
    observed.expect("who leads not sweeps nothing", (0, 0), harness.sweeper(first).reclaim())
    observed.expect("nor does the other one get it", None, two.acquire())
    taken.release(now=harness.now)
    observed.expect_true("free: the other one leads", two.acquire() is not None)
    observed.expect("the leader sweeps", (1, 0), harness.sweeper(two).reclaim())
    harness.executor.end(FAILED, harness.executor.taken[0])
    observed.expect("what comes later counts no more", 0, harness.worker.collect())


def _candidate(harness: Harness, name: str) -> Leadership:
    return harness.components.leadership(
        harness.store, ttl=TTL, holder=name, resource="leader", tenant=harness.tenant, clock=lambda: harness.now,
        monotonic=lambda: harness.now.timestamp(),  # noqa: PLW0108 - the clock moves
    )  # fmt: skip


def _acquire(harness: Harness, resource: str) -> LockHandle | None:
    now = None if resource == HOLD else harness.now
    return harness.store.locks.acquire(harness.tenant, resource, ttl=TTL, now=now)


def _guarded(harness: Harness, observed: Observations, what: str, handle: LockHandle, *, refused: bool) -> None:
    def commit() -> bool:
        with harness.session() as session:
            harness.store.locks.guard(session, harness.tenant, "work", handle.fence)
        return True

    if refused:
        observed.expect_refused(what, LostLockError, commit)
    else:
        try:
            observed.expect_true(what, commit())
        except LostLockError as error:
            observed.expect_true(what, type(error).__name__)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
