"""Scripts of area locking: exclusion between processes, fences, leadership."""

from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

from migrator.errors import LostLockError
from migrator.result import Exhibit, Measurement
from migrator.scheduler.leader import Leadership
from migrator.store.work import LockHandle
from migrator.verify.behaviour.contenders import COUNTER, HOLD, TTL, Orders, Turn, contenders
from migrator.verify.behaviour.ground import FAILED, MINUTE, SECOND, Ground
from migrator.verify.behaviour.notes import Notes

PROCESSES: Final = 3
ROUNDS: Final = 8
CHECK: Final = "locking.processes"


def contention(ground: Ground, notes: Notes) -> None:
    """Let processes count under one lock; kill one that holds another lock; let them contend for leadership."""
    row = ground.row("counter", description="0")
    with ground.session() as session:
        session.schedules.upsert(row)
    scratch = ground.scratch
    orders = Orders(scratch.settings, scratch.backend, scratch.base, scratch.craft, row.id, ROUNDS)
    with contenders(PROCESSES, orders) as processes:
        for one in processes:
            one.tell(COUNTER)
        turns: list[list[Turn]] = [one.hear() for one in processes]
        with ground.session() as session:
            counted = session.schedules.get(row.id)
        notes.expect("no count is lost", str(PROCESSES * ROUNDS), None if counted is None else counted.description)
        _judge_turns(ground, notes, turns)
        _leaders(notes, processes)
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


def _judge_turns(ground: Ground, notes: Notes, turns: list[list[Turn]]) -> None:
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


def _leaders(notes: Notes, processes: list[Any]) -> None:
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


def fences(ground: Ground, notes: Notes) -> None:
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


def leadership(ground: Ground, notes: Notes) -> None:
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


def _candidate(ground: Ground, name: str) -> Leadership:
    return ground.craft.leadership(
        ground.store, ttl=TTL, holder=name, resource="leader", tenant=ground.tenant, clock=lambda: ground.now,
        monotonic=lambda: ground.now.timestamp(),  # noqa: PLW0108 - the clock moves
    )  # fmt: skip


def _acquire(ground: Ground, resource: str) -> LockHandle | None:
    now = None if resource == HOLD else ground.now
    return ground.store.locks.acquire(ground.tenant, resource, ttl=TTL, now=now)


def _guarded(ground: Ground, notes: Notes, what: str, handle: LockHandle, *, refused: bool) -> None:
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
