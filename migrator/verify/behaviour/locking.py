"""Scenarios of area locking: exclusion between processes, fences, leadership.

Exclusion shows only between processes: contenders are processes of their own, which do what they are told by a pipe.
"""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from migrator.config import Settings
from migrator.errors import LostLockError, MigratorError
from migrator.result import Exhibit, Measurement
from migrator.scheduler.leader import Leadership
from migrator.store.locks import LockHandle
from migrator.store.protocols import Store
from migrator.store.scratch import PARTS
from migrator.verify.behaviour.harness import FAILED, MINUTE, SECOND, Harness
from migrator.verify.behaviour.scenarios import Observations, could_not_tell
from migrator.verify.behaviour.scratch_tenants import Components, ScopedStore, TenantScope, open_store

COUNTER: Final = "counter"
HOLD: Final = "hold"
LEADER: Final = "leader"
TTL: Final = timedelta(seconds=30)
LOCK_TIMEOUT: Final = timedelta(seconds=60)
_ANSWER_S: Final = 120.0
_ENDED_EARLY: Final = "a process of the verification ended before it answered"


class ContenderError(MigratorError):
    """A process did not do what it was told to: what the scheduler must not do, not what could not be told."""


class ContenderSettings(msgspec.Struct, frozen=True):
    """What a contender needs."""

    settings: Settings
    backend: str
    base: str
    craft: Components
    counter: UUID
    """The schedule whose description is counted up."""
    rounds: int


class LockTenure(msgspec.Struct, frozen=True):
    """One time that a contender had the lock; seconds by the machine's monotonic clock."""

    fence: int
    asked: float
    had: float
    gave: float


class Contender:
    """A process, and what it is told."""

    def __init__(self, orders: ContenderSettings) -> None:
        """Start it."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_contender_main, args=(orders, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def tell(self, word: str) -> None:
        """Give an order; raises ``ContenderError`` where the process is gone."""
        try:
            self._pipe.send(word)
        except OSError:
            raise ContenderError(_ENDED_EARLY) from None

    def hear(self) -> Any:  # noqa: ANN401 - whatever the order is answered by
        """Return the next answer; raises ``ContenderError`` where none comes, and what told nothing in the process."""
        try:
            if not self._pipe.poll(_ANSWER_S):
                raise ContenderError("a process of the verification did not answer")
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise ContenderError(_ENDED_EARLY) from None
        if isinstance(answer, MigratorError):
            if could_not_tell(answer):
                raise answer
            raise ContenderError(f"a process of the verification ended: {type(answer).__name__}: {answer}")
        return answer

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


@contextmanager
def contenders(count: int, orders: ContenderSettings) -> Iterator[list[Contender]]:
    """Start processes, and end them in every case."""
    born: list[Contender] = []
    try:
        for _ in range(count):
            born.append(Contender(orders))  # noqa: PERF401 - those that were started are ended
        for one in born:
            one.hear()
        yield born
    finally:
        for one in born:
            one.kill()


def _contender_main(orders: ContenderSettings, pipe: Connection) -> None:
    with suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            inner = open_store(orders.settings, orders.backend)
            try:
                fence = TenantScope(orders.base, [orders.base + part for part in PARTS])
                _serve(orders, orders.craft.store(cast("Store", ScopedStore(inner, fence))), pipe)
            finally:
                inner.close()
        except MigratorError as error:
            pipe.send(error)


def _serve(orders: ContenderSettings, store: Store, pipe: Connection) -> None:
    tenant = orders.base + PARTS[0]
    leadership = orders.craft.leadership(store, ttl=TTL, holder="contender", resource=LEADER, tenant=tenant)
    held = []
    pipe.send(())
    while True:
        word = pipe.recv()
        if word == COUNTER:
            pipe.send([_count_up(orders, store, tenant) for _ in range(orders.rounds)])
        elif word == HOLD:
            held.append(store.locks.acquire(tenant, HOLD, ttl=TTL))
            pipe.send(0 if held[-1] is None else held[-1].fence)
        elif word == "stand":
            pipe.send((leadership.stand(),))
        elif word == "resign":
            pipe.send((leadership.resign(),))


def _count_up(orders: ContenderSettings, store: Store, tenant: str) -> LockTenure:
    """Count one further under the lock: read in one transaction, write in another one."""
    asked = time.monotonic()
    handle = store.locks.acquire(tenant, COUNTER, ttl=TTL, timeout=LOCK_TIMEOUT, holder="contender")
    had = time.monotonic()
    if handle is None:
        raise ContenderError("the lock was not had within a minute")
    with store.session(tenant) as session:
        found = session.schedules.get(orders.counter)
    seen = int((found.description if found is not None else None) or 0)
    with store.session(tenant) as session:
        session.schedules.change(orders.counter, description=str(seen + 1))
    gave = time.monotonic()
    handle.release()
    return LockTenure(handle.fence, asked, had, gave)


PROCESSES: Final = 3
ROUNDS: Final = 8
CHECK: Final = "locking.processes"


def contention(ground: Harness, notes: Observations) -> None:
    """Let processes count under one lock; kill one that holds another lock; let them contend for leadership."""
    row = ground.row("counter", description="0")
    with ground.session() as session:
        session.schedules.upsert(row)
    scratch = ground.scratch
    orders = ContenderSettings(scratch.settings, scratch.backend, scratch.base, scratch.craft, row.id, ROUNDS)
    with contenders(PROCESSES, orders) as processes:
        for one in processes:
            one.tell(COUNTER)
        turns: list[list[LockTenure]] = [one.hear() for one in processes]
        with ground.session() as session:
            counted = session.schedules.get(row.id)
        notes.expect("no count is lost", str(PROCESSES * ROUNDS), None if counted is None else counted.description)
        _check_tenures(ground, notes, turns)
        _check_leaders(notes, processes)
        holder, *_ = processes
        holder.tell(HOLD)
        fence = holder.hear()
        notes.expect("a lock that another process holds is not had", None, _acquire(ground, HOLD))
        holder.kill()
        now = None if ground.backend == "postgres" else ground.store.now() + TTL + SECOND
        wait = 30 * SECOND if now is None else timedelta(0)
        taken = ground.store.locks.acquire(ground.tenant, HOLD, ttl=TTL, timeout=wait, now=now)
        higher = taken is not None and taken.fence > fence
        notes.holds("the lock of a process that was killed is had, under a higher fence", higher)
        if taken is not None:
            taken.release(now=now)


def _check_tenures(ground: Harness, notes: Observations, turns: list[list[LockTenure]]) -> None:
    everybody = sorted((turn for own in turns for turn in own), key=lambda turn: turn.fence)
    fences = [turn.fence for turn in everybody]
    notes.expect("every fence is given once", len(fences), len(set(fences)))
    overlaps = sum(later.had < before.gave for before, later in pairwise(everybody))
    notes.expect("nobody has it while another one works", 0, overlaps)
    begun = min(turn.asked for turn in everybody)
    rows = tuple(
        (f"process {number}", _ms(turn.had - begun), _ms(turn.gave - begun), f"fence {turn.fence}")
        for number, own in enumerate(turns, 1)
        for turn in own
    )
    title = f"Who held the lock on {ground.backend}, ms"
    columns = ("process", "from", "to", "fence")
    notes.varying.append(Exhibit(kind="spans", title=title, columns=columns, rows=rows, rows_total=len(rows)))
    waits = [turn.had - turn.asked for turn in everybody]
    for name, value in (("longest wait", max(waits)), ("mean wait", sum(waits) / len(waits))):
        notes.measurements.append(
            Measurement(
                check=CHECK,
                name=f"{name} for a contended lock on {ground.backend}",
                unit="ms",
                value=round(value * 1000, 1),
            )
        )


def _check_leaders(notes: Observations, processes: list[Any]) -> None:
    for one in processes:
        one.tell("stand")
    terms = [one.hear()[0] for one in processes]
    leading = [number for number, term in enumerate(terms) if term is not None]
    if not notes.expect("one process leads", 1, len(leading)):
        return
    processes[leading[0]].tell("resign")
    processes[leading[0]].hear()
    heir = processes[leading[0] - 1]
    heir.tell("stand")
    term = heir.hear()[0]
    notes.holds("after it resigned another one leads, in a later term", term is not None and term > terms[leading[0]])


def fences(ground: Harness, notes: Observations) -> None:
    """Hold, lose and take a lock by a given clock; who lost it can do nothing with it any more."""
    first = _acquire(ground, "work")
    assert first is not None  # noqa: S101 - nobody else is here
    notes.expect("held: another one does not get it", None, _acquire(ground, "work"))
    ground.later(20 * SECOND)
    notes.holds("held: renewed", first.renew(now=ground.now))
    ground.later(20 * SECOND)
    notes.expect("a live holder's lock is not cleared", None, _acquire(ground, "work"))
    _guarded(ground, notes, "a live holder commits", first, refused=False)
    ground.later(2 * MINUTE)
    second = _acquire(ground, "work")
    notes.holds("over: another one gets it, under a higher fence", second is not None and second.fence > first.fence)
    if second is None:
        return
    _guarded(ground, notes, "a zombie's fence is refused", first, refused=True)
    notes.fails("a zombie renews nothing", first.renew(now=ground.now))
    notes.fails("a zombie releases nothing", first.release(now=ground.now))
    holder = ground.store.locks.holder(ground.tenant, "work", ground.now)
    notes.expect("the new holder still has it", second.fence, None if holder is None else holder[1])
    notes.expect("nobody else gets it", None, _acquire(ground, "work"))
    _guarded(ground, notes, "the new holder commits", second, refused=False)
    notes.holds("released by its holder", second.release(now=ground.now))
    notes.fails("released once", second.release(now=ground.now))
    third = _acquire(ground, "work")
    notes.holds("free again", third is not None and third.fence > second.fence)


def leadership(ground: Harness, notes: Observations) -> None:
    """Let two stand for leadership; the one that lost its term writes nothing any more, and sweeps nothing."""
    one, two = _candidate(ground, "one"), _candidate(ground, "two")
    terms = (one.stand(), two.stand())
    notes.expect("one leads", [True, False], [term is not None for term in terms])
    notes.expect("it goes on leading", terms[0], one.stand())
    job = ground.every(MINUTE, max_retries=0, timeout_ms=1000)
    ground.hand.outcome = lambda _claim: None
    ground.later(MINUTE)
    ground.turn()
    late = 2 * MINUTE
    taken = ground.store.locks.acquire(ground.tenant, "leader", ttl=TTL, now=ground.now + late)
    notes.holds("a term that is over is another's", taken is not None)
    if taken is None:
        return
    ground.later(late)

    def write(candidate: Leadership) -> None:
        with ground.session() as session:
            session.schedules.change(job.id, description="written by a leader that was reaped")
            candidate.guard(session)

    notes.expect_refused("a reaped leader commits nothing", LostLockError, lambda: write(one))
    notes.expect("what it wrote is not there", None, ground.job(job).schedule.description)
    notes.expect("it learns that it leads no longer", None, one.stand())
    notes.expect("who leads not sweeps nothing", (0, 0), ground.broom(one).reclaim())
    notes.expect("nor does the other one get it", None, two.stand())
    taken.release(now=ground.now)
    notes.holds("free: the other one leads", two.stand() is not None)
    notes.expect("the leader sweeps", (1, 0), ground.broom(two).reclaim())
    ground.hand.end(ground.hand.taken[0], FAILED)
    notes.expect("what comes later counts no more", 0, ground.desk.collect())


def _candidate(ground: Harness, name: str) -> Leadership:
    return ground.craft.leadership(
        ground.store, ttl=TTL, holder=name, resource="leader", tenant=ground.tenant, clock=lambda: ground.now,
        monotonic=lambda: ground.now.timestamp(),  # noqa: PLW0108 - the clock moves
    )  # fmt: skip


def _acquire(ground: Harness, resource: str) -> LockHandle | None:
    now = None if resource == HOLD else ground.now
    return ground.store.locks.acquire(ground.tenant, resource, ttl=TTL, now=now)


def _guarded(ground: Harness, notes: Observations, what: str, handle: LockHandle, *, refused: bool) -> None:
    def commit() -> bool:
        with ground.session() as session:
            ground.store.locks.guard(session, ground.tenant, "work", handle.fence)
        return True

    if refused:
        notes.expect_refused(what, LostLockError, commit)
    else:
        try:
            notes.holds(what, commit())
        except LostLockError as error:
            notes.holds(what, type(error).__name__)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
