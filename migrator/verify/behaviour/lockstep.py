"""Random calls on both backends in lockstep: the same operations, and every answer must be the same.

An operation is a word and a few whole numbers, which choose among what there is; so any part of a list of operations
can be played again, and a list that shows a difference is cut down to what is needed for it.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Final, TypeAlias
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

from migrator.errors import MigratorError
from migrator.scheduler.completion import Outcome
from migrator.scheduler.models import EventRequest, HistoryQuery, Patch, Timing
from migrator.scratch import new_scratch_tenant
from migrator.store.protocols import ScheduleQuery
from migrator.verify.behaviour.harness import DONE, FAILED, HOUR, MINUTE, SECOND, Harness
from migrator.verify.behaviour.scenarios import could_not_tell, plain, wording
from migrator.verify.behaviour.scratch_tenants import Components, ScratchTenants, scratch_tenants
from migrator.verify.check import Context

BACKENDS: Final[tuple[str, str]] = ("postgres", "mongo")
OPERATIONS_PER_ROUND: Final = 150
"""Operations of one round; then the scratch tenants are emptied."""

Operation: TypeAlias = tuple[int, str, int, int]
"""Its place, which names the ids it makes; what; and two choices."""


class Difference(msgspec.Struct, frozen=True):
    """Two answers that differ, and the shortest list of operations found that leads there."""

    operations: tuple[Operation, ...]
    words: tuple[str, ...]


class Player:
    """The harness of one backend, and what was made by it, in order."""

    def __init__(self, place: ScratchTenants) -> None:
        """Begin with nothing made."""
        self._tenant = place.tenants[0]
        self._operation, self._asked = -1, 0  # an operation names its ids, not a count
        self.harness = Harness.of(place, new_id=self._new_id)
        self.harness.executor.outcome = self._outcome
        self.jobs: list[UUID] = []
        self.runs: list[UUID] = []

    def _new_id(self) -> UUID:
        self._asked += 1
        return uuid5(NAMESPACE_URL, f"{self._tenant}/{self._operation}/{self._asked}")

    def _outcome(self, claim: Any) -> Outcome | None:  # noqa: ANN401 - a claim
        return (DONE, FAILED, None, Outcome(state="error", error="for good", final=True))[claim.run.id.int % 4]

    def play(self, operation: Operation) -> Any:  # noqa: ANN401 - answers of all calls
        """Run an operation; return the plain answer, or the name of the error that refused it."""
        self._operation, word, one, two = operation
        self._asked = 0
        try:
            return plain(_OPERATIONS[word](self, one, two))
        except MigratorError as error:
            if could_not_tell(error):
                raise
            return type(error).__name__

    def job(self, choice: int) -> UUID:
        """Return one of the schedules; one that is not there, where there is none."""
        return self.jobs[choice % len(self.jobs)] if self.jobs else uuid5(NAMESPACE_URL, "none")

    def made(self, job: Any) -> Any:  # noqa: ANN401 - a job
        """Remember a schedule."""
        self.jobs.append(job.id)
        return job

    def state(self) -> Any:  # noqa: ANN401 - all that is read
        """Return all there is, as the facade shows it."""
        harness = self.harness
        jobs = harness.facade.list(ScheduleQuery(limit=500, sort_by="name", descending=False), now=harness.now)
        return plain([(job, _runs(self, job.id)) for job in jobs.jobs])


def _runs(player: Player, job: UUID) -> Any:  # noqa: ANN401 - executions
    harness = player.harness
    query = HistoryQuery(limit=200, descending=False)
    found = [one.run for one in harness.facade.history(job, query, now=harness.now).executions]
    player.runs = sorted({*player.runs, *(run.id for run in found)})
    return found


def _tick(player: Player, one: int, two: int) -> Any:  # noqa: ANN401 - counts
    player.harness.advance((SECOND, MINUTE, 5 * MINUTE, HOUR, 26 * HOUR)[one % 5] * (1 + two % 3))
    return player.harness.run_once()


def _finish(player: Player, one: int, two: int) -> Any:  # noqa: ANN401 - counts
    taken = player.harness.executor.taken
    if taken:
        player.harness.executor.end((DONE, FAILED)[two % 2], taken[one % len(taken)])
    return player.harness.worker.collect()


def _work(player: Player, one: int, two: int) -> dict[str, Any]:
    return {
        "name": f"job {player._operation % 40}",  # noqa: SLF001 - its own
        "max_retries": one % 3,
        "retry_delay_ms": 1000 * (two % 90),
        "max_concurrency": (None, 1, 2)[two % 3],
        "priority": (None, "low", "high", 101)[one % 4],
        "on_exhausted": ("keep", "stop")[two % 2],
        "timeout_ms": (None, 60_000, 3_600_000)[one % 3],
    }


_LINES: Final = ("*/5 * * * *", "30 2 * * *", "0 9 * * 1-5", "61 * * * *", "* * * * *")
_OPERATIONS: Final[dict[str, Callable[[Player, int, int], Any]]] = {
    "tick": _tick,
    "cron": lambda p, a, b: p.made(
        p.harness.cron(_LINES[a % 5], timezone=("UTC", "America/New_York")[b % 2], **_work(p, a, b))
    ),
    "every": lambda p, a, b: p.made(
        p.harness.every(
            timedelta(minutes=a % 90),
            anchor=("fixed_rate", "completion")[b % 2],
            max_fires=(None, 1, 3)[a % 3],
            **_work(p, a, b),
        )
    ),
    "once": lambda p, a, b: p.made(p.harness.once(p.harness.now + MINUTE * (a % 120 - 10), **_work(p, a, b))),
    "on_event": lambda p, a, b: p.made(
        p.harness.facade.on_event("push", f"h{a % 3}", EventRequest(priority=b % 101), now=p.harness.now)
    ),
    "event": lambda p, a, b: p.harness.facade.trigger_event("push", {"a": a}, event_id=f"e{b % 20}", now=p.harness.now),
    "trigger_now": lambda p, a, _b: p.harness.facade.trigger_now(p.job(a), now=p.harness.now),
    "finish": _finish,
    "pause": lambda p, a, _b: p.harness.facade.pause(p.job(a), now=p.harness.now),
    "resume": lambda p, a, _b: p.harness.facade.resume(p.job(a), now=p.harness.now),
    "cancel": lambda p, a, _b: p.harness.facade.cancel(p.job(a), now=p.harness.now),
    "toggle": lambda p, a, b: p.harness.facade.toggle(p.job(a), enabled=bool(b % 2), now=p.harness.now),
    "update": lambda p, a, b: p.harness.facade.update(
        p.job(a), Patch(priority=b % 102, tags=("x",) * (b % 2)), now=p.harness.now
    ),
    "reschedule": lambda p, a, b: p.harness.facade.reschedule(
        p.job(a), Timing(interval=timedelta(minutes=b % 60)), now=p.harness.now
    ),
    "unschedule": lambda p, a, _b: p.harness.facade.unschedule(p.job(a), now=p.harness.now),
    "retry": lambda p, a, _b: p.harness.facade.retry(p.runs[a % len(p.runs)], now=p.harness.now) if p.runs else None,
    "retry_schedule": lambda p, a, _b: p.harness.facade.retry_schedule(p.job(a), now=p.harness.now),
    "history": lambda p, a, _b: _runs(p, p.job(a)),
    "stats": lambda p, a, _b: p.harness.facade.stats(p.job(a), now=p.harness.now),
    "reclaim": lambda p, _a, _b: p.harness.sweeper().reclaim(),
    "adopt": lambda p, _a, _b: p.harness.sweeper().adopt(),
    "list": lambda p, a, b: p.harness.facade.list(
        ScheduleQuery(
            sort_by=("created_at", "name", "priority", "next_fire_at")[a % 4], descending=bool(b % 2), limit=1 + b % 9
        ),
        now=p.harness.now,
    ),
}
_FREQUENT: Final = ("tick",) * 8 + ("finish", "history", "trigger_now", "cron", "every") * 2


def draw(seed: int, count: int) -> list[Operation]:
    """Return operations that follow from a seed alone."""
    chance = random.Random(seed)  # noqa: S311 - no secret is made of it
    words = (*_FREQUENT, *_OPERATIONS)
    return [(place, chance.choice(words), chance.randrange(1000), chance.randrange(1000)) for place in range(count)]


class Lockstep:
    """Both backends, emptied for each list of operations."""

    def __init__(self, places: Sequence[ScratchTenants]) -> None:
        """``places`` are of different backends, under one name."""
        self._places = places
        self.refused = 0

    def play(self, operations: Sequence[Operation]) -> tuple[int, tuple[str, ...]] | None:
        """Run a list of operations; return after which operation the backends differ, and how; None if they do not."""
        for place in self._places:
            place.clear()
        one, other = (Player(place) for place in self._places)
        for number, operation in enumerate(operations):
            mine, theirs = one.play(operation), other.play(operation)
            self.refused += isinstance(mine, str)
            if mine != theirs:
                return number, wording(mine, theirs, BACKENDS)
        mine, theirs = one.state(), other.state()
        return None if mine == theirs else (len(operations) - 1, wording(mine, theirs, BACKENDS))

    def shortened(self, operations: Sequence[Operation], tries: int = 60) -> Difference | None:
        """Return a difference, its operations cut down as far as so many tries allow; none where there is none."""
        found = self.play(operations)
        if found is None:
            return None
        kept, words = list(operations[: found[0] + 1]), found[1]
        size = max(len(kept) // 2, 1)
        while tries > 0:
            start = 0
            while start < len(kept) and tries > 0:
                fewer = kept[:start] + kept[start + size :]
                tries -= 1
                again = self.play(fewer) if fewer else None
                if again is None:
                    start += size
                else:
                    kept, words = fewer[: again[0] + 1], again[1]
            if size == 1:
                break
            size //= 2
        return Difference(tuple(kept), words)


def run_lockstep(context: Context) -> tuple[int, int, Difference | None]:
    """Run ``context.operations`` random ones; return how many were, how many refused, and the first difference."""
    components = context.components or Components()
    name = new_scratch_tenant()
    with ExitStack() as opened:
        places = [opened.enter_context(scratch_tenants(context.settings, each, components, name)) for each in BACKENDS]
        both = Lockstep(places)
        done = 0
        for number, begin in enumerate(range(0, context.operations, OPERATIONS_PER_ROUND)):
            count = min(OPERATIONS_PER_ROUND, context.operations - begin)
            difference = both.shortened(draw(context.seed + number, count))
            if difference is not None:
                return done + count, both.refused, difference
            done += count
    return done, both.refused, None
