"""Random calls on several backends in lockstep: the same operations, and every answer must be the same.

An operation is a word and a number, from which its arguments follow; so any part of a list of operations can be played
again, and a list that shows a difference is cut down to what is needed for it. ``migrator verify`` plays them on
MongoDB and PostgreSQL, the tests on the model in memory besides, and with the calls of the stores.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

from migrator.errors import MigratorError
from migrator.scheduler.completion import Outcome
from migrator.scratch import Components, new_scratch_tenant, scratch_tenants
from migrator.store.protocols import RunQuery, ScheduleQuery, Store
from migrator.store.queue import Claim
from migrator.verify.behaviour.harness import (
    DAY,
    DONE,
    FAILED_FOR_GOOD,
    HOUR,
    MINUTE,
    SECOND,
    START,
    Clock,
    Harness,
)
from migrator.verify.behaviour.scenarios import could_not_tell, plain, wording
from migrator.verify.check import CheckContext

BACKENDS: Final = ("postgres", "mongo")
OPERATIONS_PER_ROUND: Final = 150
"""Operations of one round; then the scratch tenants are emptied."""
EVERY: Final = 20
"""Operations between two comparisons of everything that is stored."""
LEASE: Final = timedelta(minutes=10)

X = TypeVar("X")
P = TypeVar("P", bound="Emptied")

Operation: TypeAlias = tuple[int, str, int]
"""Its place, which names the ids it makes; what; and the number from which its arguments follow."""


class Emptied(Protocol):
    """A store that may be emptied."""

    @property
    def store(self) -> Store:
        """The store that is driven."""

    def clear(self) -> None:
        """Remove every row."""


class Place(Emptied, Protocol):
    """Two tenants of one backend."""

    @property
    def tenants(self) -> tuple[str, str]:
        """The tenants, named alike on every backend."""

    @property
    def components(self) -> Components:
        """The parts that are driven."""


class Difference(msgspec.Struct, frozen=True):
    """Two answers that differ, and the shortest list of operations found that leads there."""

    operations: tuple[Operation, ...]
    words: tuple[str, ...]


class Choices:
    """Arguments that follow from a number alone."""

    def __init__(self, number: int) -> None:
        self._chance = random.Random(number)  # noqa: S311 - no secret is made of it

    def of(self, values: Sequence[X]) -> X:
        """Return one of these."""
        return self._chance.choice(values)

    def chance(self, of: float = 0.5) -> bool:
        """Return true with this probability."""
        return self._chance.random() < of

    def among(self, values: Sequence[X]) -> X | None:
        """Return one of these, the newest most often; None if there is none."""
        if not values:
            return None
        return values[-1 - min(self._chance.randrange(len(values)), self._chance.randrange(len(values)))]

    def some(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Choose a value for some of the columns."""
        return {name: self.of(values) for name, values in columns.items() if self.chance()}


OUTCOMES: Final[dict[str, Outcome | None]] = {
    "done": DONE,
    "failed": Outcome(state="error", error="refused: no such host", error_detail="line 7"),
    "failed for good": FAILED_FOR_GOOD,
    "timeout": Outcome(state="timeout", error="timeout: of its own"),
    "open": None,
}
"""How a run ends; None: it stays open."""


class Player(Protocol):
    """Plays operations on one backend."""

    def play(self, operation: Operation) -> tuple[Any, bool]:
        """Run an operation; return the plain answer, and whether an error refused it."""

    def state(self) -> Any:  # noqa: ANN401 - all that is read
        """Return all that is stored, as plain values."""


class ClientPlayer:
    """Plays through the client: two tenants, each with its facade and worker, and one clock."""

    def __init__(self, place: Place) -> None:
        self._tenant = place.tenants[0]
        self._operation, self._asked = -1, 0  # an operation names its ids, not a count
        self.mood = "mixed"
        """How runs end; as their ids say where it is mixed."""
        self.clock = Clock(START)
        self.harnesses = tuple(self._harness(place, tenants) for tenants in (place.tenants, place.tenants[::-1]))
        self.jobs: list[tuple[Harness, UUID]] = []
        """What was made, in order, and whose it is."""

    def _harness(self, place: Place, tenants: tuple[str, str]) -> Harness:
        harness = Harness(place.store, tenants, components=place.components, clock=self.clock, new_id=self._new_id)
        harness.executor.outcome = self._outcome
        self.restart(harness)
        return harness

    def restart(self, harness: Harness) -> None:
        """Begin as another process; one that was there is left as a killed one leaves it."""
        harness.worker = harness.worker_for(harness.executor, batch=4, capacity=6, lease=LEASE, monotonic=lambda: 0.0)

    def _new_id(self) -> UUID:
        self._asked += 1
        return uuid5(NAMESPACE_URL, f"{self._tenant}/{self._operation}/{self._asked}")

    def _outcome(self, claim: Claim) -> Outcome | None:
        return OUTCOMES[self.mood if self.mood != "mixed" else [*OUTCOMES][claim.run.id.int % len(OUTCOMES)]]

    def play(self, operation: Operation) -> tuple[Any, bool]:
        """Run an operation; return the plain answer with the events told, and whether an error refused it.

        The answer of what was refused is the name of the error.
        """
        self._operation, word, number = operation
        self._asked = 0
        refused = False
        try:
            answer = plain(_OPERATIONS[word](self, Choices(number)))
        except MigratorError as error:
            if could_not_tell(error):
                raise
            answer, refused = type(error).__name__, True
        told = [plain(event) for harness in self.harnesses for event in harness.events]
        for harness in self.harnesses:
            harness.events.clear()
        return {"answer": answer, "events": told}, refused

    def harness(self, choices: Choices) -> Harness:
        """Return one of the two tenants, the first one more often."""
        return choices.of((self.harnesses[0], self.harnesses[0], self.harnesses[1]))

    def job(self, choices: Choices) -> tuple[Harness, UUID]:
        """Return one of the schedules and who asks: now and then the other tenant; or one that is not there."""
        owner, identity = choices.among(self.jobs) or (self.harnesses[0], uuid5(NAMESPACE_URL, "none"))
        asks_as_other = choices.chance(1 / 10)
        return (self.harnesses[owner is self.harnesses[0]] if asks_as_other else owner), identity

    def made(self, harness: Harness, job: Any) -> Any:  # noqa: ANN401 - a job
        """Remember a schedule."""
        self.jobs.append((harness, job.id))
        return job

    def state(self) -> Any:  # noqa: ANN401 - all that is read
        """Return all that is stored: schedules, histories, audit trail, and what the newest logs say."""
        return [plain(self._state_of(harness)) for harness in self.harnesses]

    def _state_of(self, harness: Harness) -> list[Any]:
        query = ScheduleQuery(limit=1000, sort_by="name", descending=False)
        jobs = sorted(harness.facade.list(query, now=harness.now).jobs, key=lambda job: job.id)
        histories = [harness.facade.history(job.id, limit=100, descending=False, now=harness.now) for job in jobs]
        with harness.session() as session:
            trail = [msgspec.structs.replace(one, id=UUID(int=0)) for one in session.audit.list(1000)]
            runs = session.runs.list(RunQuery(limit=5)).runs
            logs = [(run.id, session.execution_logs.of_run(run.id)) for run in runs]
        said = [(run, sorted((line.logged_at, line.level, line.message) for line in lines)) for run, lines in logs]
        return [jobs, histories, sorted((plain(one) for one in trail), key=repr), said]


_LINES: Final = (*("* * * * *", "*/5 * * * *") * 4, "30 2 * * *", "0 9 * * 1-5", "61 * * * *")
_ZONES: Final = (*("UTC", "America/New_York") * 5, "Mars/Base")
_POLICIES: Final = (None, None, "fire_once", "skip", "fire_all")
_WORK: Final[dict[str, Sequence[Any]]] = {
    "enabled": (True, True, True, False),
    "priority": (None, "high", "low", 10, 50, 90, 100, 101),
    "max_retries": (0, 1, 3),
    "retry_delay": (timedelta(0), SECOND, 90 * SECOND),
    "retry_strategy": ("exponential", "fixed"),
    "on_exhausted": ("keep", "stop"),
    "timeout": (None, *(MINUTE, HOUR) * 4, timedelta(0)),
    "max_concurrency": (None, 1, 1, 2),
    "tags": ((), ("a",), ("a", "b")),
    "payload": (None, {"a": [1, 2.5]}, "text"),
}
_BOUNDS: Final[dict[str, Sequence[Any]]] = {
    "max_fires": (*(1, 2, 5) * 3, 0),
    "skip_if_overdue": (True, False),
    "misfire_policy": _POLICIES,
    "misfire_grace": (timedelta(0), 10 * MINUTE),
}
_UNSET_OR_FLAG: Final = (None, None, True, False)
_SHIFTS: Final = (None, None, None, -MINUTE, timedelta(0), MINUTE, 10 * MINUTE, DAY)
_ENDS: Final = (*(None, HOUR, DAY) * 3, MINUTE, -MINUTE)
_STEPS: Final = (SECOND / 1000, SECOND, MINUTE, MINUTE, 5 * MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, DAY)


def _timing(choices: Choices) -> dict[str, Any]:
    if choices.chance():
        return {"cron": choices.of(_LINES), "timezone": choices.of(_ZONES)}
    lengths = (*(30 * SECOND, MINUTE, MINUTE, HOUR) * 3, timedelta(0))
    return {"interval": choices.of(lengths), "anchor": choices.of(("fixed_rate", "completion"))}


def _work(player: ClientPlayer, choices: Choices) -> dict[str, Any]:
    """Return the columns of a request; a name is taken now and then."""
    name = choices.of(("alpha", "beta", *[f"job {player._operation}"] * 8))  # noqa: SLF001 - its own
    return {"name": name} | choices.some(_WORK)


def _shifted(harness: Harness, shift: timedelta | None) -> datetime | None:
    return None if shift is None else harness.now + shift


def _cron(player: ClientPlayer, choices: Choices) -> object:
    harness = player.harness(choices)
    asked = {"timezone": choices.of(_ZONES), "misfire_policy": choices.of(_POLICIES)} | _work(player, choices)
    return player.made(harness, harness.cron(choices.of(_LINES), **asked))


def _recurring(player: ClientPlayer, choices: Choices) -> object:
    harness = player.harness(choices)
    asked = {"start_at": _shifted(harness, choices.of(_SHIFTS)), "end_at": _shifted(harness, choices.of(_ENDS))}
    timing = _timing(choices)
    return player.made(harness, harness.recurring(**timing, **asked, **choices.some(_BOUNDS), **_work(player, choices)))


def _once(player: ClientPlayer, choices: Choices) -> object:
    harness = player.harness(choices)
    return player.made(harness, harness.once(_shifted(harness, choices.of(_SHIFTS)), **_work(player, choices)))


def _on_event(player: ClientPlayer, choices: Choices) -> object:
    harness = player.harness(choices)
    priorities: tuple[int | str, ...] = (10, 50, "high")
    asked: dict[str, Any] = {"priority": choices.of(priorities), "enabled": choices.chance(2 / 3), "max_retries": 1}
    return player.made(harness, harness.facade.on_event("push", choices.of(("h", "g")), **asked, now=harness.now))


def _event(player: ClientPlayer, choices: Choices) -> object:
    harness, name = player.harness(choices), choices.of(("push", "push", "pull"))
    return harness.facade.trigger_event(name, {"a": 1}, event_id=choices.of(("e1", "e2", "e3")), now=harness.now)


def _call(method: str) -> Callable[[ClientPlayer, Choices], Any]:
    def call(player: ClientPlayer, choices: Choices) -> object:
        harness, job = player.job(choices)
        return getattr(harness.facade, method)(job, now=harness.now)

    return call


def _toggle(player: ClientPlayer, choices: Choices) -> object:
    harness, job = player.job(choices)
    return harness.facade.toggle(job, enabled=choices.chance(), now=harness.now)


def _update(player: ClientPlayer, choices: Choices) -> object:
    harness, job = player.job(choices)
    changed = {name: _WORK[name] for name in ("priority", "max_retries", "max_concurrency", "tags", "payload")}
    return harness.facade.update(job, now=harness.now, **choices.some(changed | {"name": ("alpha", "beta", "gamma")}))


def _reschedule(player: ClientPlayer, choices: Choices) -> object:
    harness, job = player.job(choices)
    return harness.facade.reschedule(job, **_timing(choices), now=harness.now)


def _retry(player: ClientPlayer, choices: Choices) -> object:
    harness, job = player.job(choices)
    with harness.session() as session:
        runs = session.runs.of_schedule(job, 4)[::-1]
    failed = [run for run in runs if run.state in ("error", "timeout")]
    run = choices.among(failed if failed and choices.chance(3 / 4) else runs)
    if run is None:
        return None
    made = harness.facade.retry(run.id, now=harness.now)
    execution = harness.facade.get_execution(run.id, now=harness.now)
    return made, None if execution is None else execution.run


def _tick(player: ClientPlayer, choices: Choices) -> object:
    player.clock.advance(choices.of(_STEPS))
    return _turn(player, choices)


def _turn(player: ClientPlayer, choices: Choices) -> object:
    harness = player.harness(choices)
    player.mood = choices.of(("done", "mixed", "mixed", "mixed", "open", "open", *OUTCOMES))
    worker = harness.worker
    return worker.fire(), worker.claim(), worker.collect()


def _end(player: ClientPlayer, choices: Choices) -> object:
    """End the oldest open run, whoever may have it by now; or one that has ended before."""
    harness = player.harness(choices)
    outcome = OUTCOMES[choices.of(("done", "failed", "timeout"))]
    executor = harness.executor
    claim = choices.among(executor.taken) if choices.chance(1 / 3) else next(iter(executor.open), None)
    if claim is not None and outcome is not None:
        executor.end(outcome, claim)
    return harness.worker.collect()


def _meanwhile(act: Callable[[ClientPlayer, Harness], Any]) -> Callable[[ClientPlayer, Choices], Any]:
    return lambda player, choices: act(player, player.harness(choices))


def _history(player: ClientPlayer, choices: Choices) -> object:
    harness, job = player.job(choices)
    page = harness.facade.history(
        job,
        limit=choices.of((*(1, 3, 10, 50) * 3, 0)),
        offset=choices.of((0, 0, 2)),
        states=choices.of(((), (), ("completed",), ("queued", "error"), ("completed",), ("no such",))),
        descending=choices.chance(),
        now=harness.now,
    )
    return page, harness.facade.stats(job, now=harness.now)


def _metrics(player: ClientPlayer, choices: Choices) -> object:
    """Return the metrics but for those of this process."""
    harness = player.harness(choices)
    found = harness.facade.metrics(zone=choices.of(("UTC", "America/New_York")), now=harness.now)
    return [found.jobs, found.executions, found.performance, found.queue, found.today, found.start, found.end]


def _list(player: ClientPlayer, choices: Choices) -> object:
    harness = player.harness(choices)
    query = ScheduleQuery(
        statuses=choices.of(((), (), ("scheduled",), ("paused", "running"), ("no such",))),
        kinds=choices.of(((), ("interval",), ("one_time", "event"))),
        handlers=choices.of(((), ("a",), ("a", "no such"))),
        enabled=choices.of(_UNSET_OR_FLAG),
        tags_any=choices.of(((), ("a", "b"))),
        limit=choices.of((1, 3, 9, 50)),
        sort_by=choices.of(("created_at", "next_fire_at", "name", "priority")),
        descending=choices.chance(),
    )
    return harness.facade.list(query, now=harness.now)


_OPERATIONS: Final[dict[str, Callable[[ClientPlayer, Choices], Any]]] = {
    "tick": _tick,
    "turn": _turn,
    "end": _end,
    "clock back": lambda player, choices: player.clock.advance(-choices.of((SECOND, MINUTE))),
    "cron": _cron,
    "recurring": _recurring,
    "once": _once,
    "on_event": _on_event,
    "event": _event,
    "trigger_now": _call("trigger_now"),
    "pause": _call("pause"),
    "resume": _call("resume"),
    "cancel": _call("cancel"),
    "unschedule": _call("unschedule"),
    "retry_schedule": _call("retry_schedule"),
    "toggle": _toggle,
    "update": _update,
    "reschedule": _reschedule,
    "retry": _retry,
    "renew": _meanwhile(lambda _, harness: harness.worker.renew()),
    "release": _meanwhile(lambda _, harness: harness.worker.release()),
    "crash": _meanwhile(lambda player, harness: player.restart(harness)),
    "sweep": _meanwhile(lambda _, harness: harness.sweeper(dead_after=LEASE).sweep()),
    "reclaim": _meanwhile(lambda _, harness: harness.sweeper(dead_after=LEASE).reclaim()),
    "adopt": _meanwhile(lambda _, harness: harness.sweeper(dead_after=LEASE).give_missing_fires()),
    "history": _history,
    "metrics": _metrics,
    "list": _list,
}
_FREQUENT: Final = ("tick",) * 10 + ("end", "retry", "cron", "recurring", "trigger_now") * 3 + ("history", "turn") * 2
WORDS: Final = (*_FREQUENT, *_OPERATIONS)
"""What a client is told, the frequent more often."""


def draw(seed: int, count: int, words: Sequence[str] = WORDS) -> list[Operation]:
    """Return operations that follow from a seed alone; a word that stands there twice comes twice as often."""
    chance = random.Random(seed)  # noqa: S311 - no secret is made of it
    return [(place, chance.choice(words), chance.randrange(1_000_000)) for place in range(count)]


class Lockstep(Generic[P]):
    """Several backends, emptied for each list of operations; the first one is what the others are compared with."""

    def __init__(self, places: Mapping[str, P], player: Callable[[P], Player]) -> None:
        """``places``: backend → its place, which ``player`` plays on. Their tenants have the same names."""
        self._places, self._player = places, player
        self.refused = 0

    def play(self, operations: Sequence[Operation]) -> tuple[int, tuple[str, ...]] | None:
        """Run a list of operations; return after which operation backends differ, and how; None if they do not."""
        for place in self._places.values():
            place.clear()
        players = {name: self._player(place) for name, place in self._places.items()}
        for number, operation in enumerate(operations):
            played = {name: player.play(operation) for name, player in players.items()}
            self.refused += next(iter(played.values()))[1]
            answers = _words({name: answer for name, (answer, _) in played.items()})
            if answers is None and (number + 1 == len(operations) or (number + 1) % EVERY == 0):
                answers = _words({name: player.state() for name, player in players.items()})
            if answers is not None:
                return number, answers
        return None

    def shortened(self, operations: Sequence[Operation], tries: int = 60) -> Difference | None:
        """Return a difference, its operations cut down as far as so many tries allow; none where there is none."""
        difference = self.play(operations)
        if difference is None:
            return None
        kept, description = list(operations[: difference[0] + 1]), difference[1]
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
                    kept, description = fewer[: again[0] + 1], again[1]
            if size == 1:
                break
            size //= 2
        return Difference(tuple(kept), description)


def _words(answers: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Say where an answer is not that of the first backend; None where all are the same."""
    (first, reference), *others = answers.items()
    for name, answer in others:
        if answer != reference:
            return wording(reference, answer, (first, name))
    return None


def run_lockstep(context: CheckContext) -> tuple[int, int, Difference | None]:
    """Run the random operations asked for; return how many were, how many refused, and the first difference."""
    name = new_scratch_tenant()
    with ExitStack() as opened:
        places = {
            backend: opened.enter_context(scratch_tenants(context.settings, backend, context.components, name))
            for backend in BACKENDS
        }
        both = Lockstep(places, ClientPlayer)
        done = 0
        for number, begin in enumerate(range(0, context.request.operations, OPERATIONS_PER_ROUND)):
            count = min(OPERATIONS_PER_ROUND, context.request.operations - begin)
            difference = both.shortened(draw(context.seed + number, count))
            if difference is not None:
                return done + count, both.refused, difference
            done += count
    return done, both.refused, None
