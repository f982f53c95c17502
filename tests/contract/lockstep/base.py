"""What every part of the player uses: the time, the ids, rows known so far, and calls whose answers are compared."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeVar
from uuid import NAMESPACE_URL, UUID, uuid5

from migrator.records import Run, Schedule, Trigger
from migrator.store.locks import LockHandle
from migrator.store.protocols import RunQuery, ScheduleQuery, Session, Store
from migrator.store.queue import SCRATCH, Claim
from migrator.verify.behaviour.lockstep import Choices, Operation
from tests.contract.lockstep.rules import WHEN, Rule, integers, precondition, rule, rules_of, sampled_from
from tests.contract.lockstep.sides import Raised, Side, by_id, ids_of, outcome
from tests.contract.rows import NOW

X = TypeVar("X")

TENANTS = ("t-one", "t-two", f"{SCRATCH}three")

PICK = integers(0, 999)
"""Which of the rows known so far, counted from the newest."""

MILLISECONDS = sampled_from([1000, 1000, 5000, 1, 250, 1000, 4999, 5000, 5001, 30_000, 60_000, 120_000, 3_600_000])


class Base:
    """Plays the calls of one store: what they answer is told, and is equal on every side."""

    rules: ClassVar[dict[str, Rule]] = {}
    effective: ClassVar[Counter[str]] = Counter()
    """Calls that found or did something, by their name."""

    def __init_subclass__(cls) -> None:
        cls.rules = rules_of(cls)

    def __init__(self, side: Side) -> None:
        self.side, self.store, self.now = side, side.store, NOW
        self.operation, self.made = -1, 0  # an operation names its ids, not a count
        self.told: list[tuple[str, Any]] = []
        self.schedules: list[tuple[str, UUID]] = []
        self.triggers: list[tuple[str, UUID]] = []
        self.runs: list[tuple[str, UUID]] = []
        self.claims: list[Claim] = []
        self.workers: list[UUID] = []
        self.handles: list[LockHandle] = []
        self.furnish()

    def furnish(self) -> None:
        """Put down what every list of operations begins with."""

    @classmethod
    def words(cls) -> list[str]:
        """Return the names of the rules, each as often as it weighs."""
        return [name for name, one in cls.rules.items() for _ in range(one.weight)]

    def play(self, operation: Operation) -> tuple[Any, bool]:
        """Follow a rule where it may be followed; return what its calls told, and whether one was refused."""
        self.operation, word, number = operation
        self.made, self.told = 0, []
        method = getattr(self, word)
        if getattr(method, WHEN, lambda _: True)(self):
            choices = Choices(number)
            method(**{name: each.value(choices) for name, each in self.rules[word].given.items()})
        return self.told, any(isinstance(answer, Raised) for _, answer in self.told)

    def new_id(self) -> UUID:
        """Return an id whose order says nothing of when it was made."""
        self.made += 1
        return uuid5(NAMESPACE_URL, f"lockstep/{self.operation}/{self.made}")

    def tell(self, what: str, act: Callable[[], X], order: Callable[[Any], Any] = lambda answer: answer) -> list[X]:
        """Make a call and tell its answer; return the raw one, none where it was refused."""
        raw: list[X] = []

        def call() -> X:
            raw.append(act())
            return raw[0]

        answer = order(outcome(call))
        self.told.append((f"{what} at {self.now.isoformat()}", answer))
        self.effective[what.split(maxsplit=1)[0]] += bool(answer) and not isinstance(answer, Raised)
        return raw

    def each(self, what: str, act: Callable[[Store], X]) -> list[X]:
        """Make a call of the store."""
        return self.tell(what, lambda: act(self.store))

    def ids(self, what: str, act: Callable[[Store], Sequence[UUID]]) -> Any:  # noqa: ANN401 - ids, or what was raised
        self.tell(what, lambda: act(self.store), ids_of)
        return self.told[-1][1]

    def within(self, what: str, tenant: str, act: Callable[[Session], X]) -> X | None:
        """Make a call in a session of its own; return its answer, none where it was refused."""

        def in_session() -> X:
            with self.store.session(tenant, now=self.now) as session:
                return act(session)

        raw = self.tell(f"{what} of {tenant}", in_session)
        return raw[0] if raw else None

    def peek(self, tenant: str, act: Callable[[Session], X]) -> X:
        """Look something up, to act on it."""
        with self.store.session(tenant, now=self.now) as session:
            return act(session)

    def schedule(self, pick: int) -> Schedule | None:
        tenant, identity = self.schedules[-1 - pick % len(self.schedules)]
        return self.peek(tenant, lambda session: session.schedules.get(identity))

    def trigger(self, pick: int) -> Trigger | None:
        tenant, identity = self.triggers[-1 - pick % len(self.triggers)]
        return self.peek(tenant, lambda session: session.triggers.get(identity))

    def run(self, pick: int) -> Run | None:
        tenant, identity = self.runs[-1 - pick % len(self.runs)]
        return self.peek(tenant, lambda session: session.runs.get(identity))

    @rule(8, by=MILLISECONDS)
    def move_the_clock(self, by: int) -> None:
        self.now += timedelta(milliseconds=by)

    @precondition(lambda self: self.runs or self.triggers)
    @rule(4, pick=PICK, before=sampled_from([0, 0, 1]))
    def move_the_clock_to_an_end(self, pick: int, before: int) -> None:
        """To the very instant at which a lease ends or a trigger fires, or a millisecond before it."""
        moments: list[datetime | None] = []
        if self.runs:
            run = self.run(pick)
            moments += [] if run is None else [run.lease_expires_at, run.available_at]
        if self.triggers:
            trigger = self.trigger(pick)
            moments += [] if trigger is None else [trigger.next_fire_at]
        ahead = [moment for moment in moments if moment is not None and moment > self.now]
        if ahead:
            self.now = min(ahead) - timedelta(milliseconds=before)

    @rule(by=sampled_from([1, 1000, 60_000]))
    def move_the_clock_back(self, by: int) -> None:
        self.now -= timedelta(milliseconds=by)

    def state(self) -> Any:  # noqa: ANN401 - all that is read
        """Return everything that is stored."""
        of_all = {tenant: outcome(lambda tenant=tenant: self._all(tenant)) for tenant in TENANTS}  # type: ignore[misc]
        return of_all, outcome(self.store.workers.list), outcome(self.store.queue.tenants)

    def _all(self, tenant: str) -> dict[str, Any]:
        mine = [identity for whose, identity in self.schedules if whose == tenant]
        with self.store.session(tenant, now=self.now) as session:
            return {
                "schedules": by_id(session.schedules.list(ScheduleQuery(limit=1000))),
                "triggers": session.triggers.of_schedules(mine) if mine else [],
                "runs": by_id(session.runs.list(RunQuery(limit=1000)).runs),
                "summaries": [session.run_summaries.get(identity) for identity in mine],
            }
