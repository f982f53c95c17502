"""What every part of the machine uses: the time, the ids, rows known so far, and one call made on every side."""

from collections import Counter as Multiset
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, UUID, uuid5

from hypothesis import strategies as st
from hypothesis.stateful import invariant

from migrator.errors import MigratorError
from migrator.records import Run, Schedule, Trigger
from migrator.store.locks import LockHandle
from migrator.store.protocols import RunQuery, ScheduleQuery, Session, Store
from migrator.store.queue import SCRATCH, Claim
from tests.contract.lockstep.sides import Raised, Side, agreed, by_id, ids_of, outcome
from tests.contract.lockstep.weighted import Weighted, precondition, rule
from tests.contract.rows import NOW

X = TypeVar("X")

TENANTS = ("t-one", "t-two", f"{SCRATCH}three")
EVERY = 20
"""Steps between two comparisons of everything that is stored."""

PICK = st.integers(0, 999)
"""Which of the rows known so far, counted from the newest."""

MILLISECONDS = st.sampled_from([1000, 1000, 5000, 1, 250, 1000, 4999, 5000, 5001, 30_000, 60_000, 120_000, 3_600_000])


class Counter:
    """Counts the calls that were made on every side."""

    steps = 0
    refused = 0
    examples = 0

    def __init__(self) -> None:
        self.effective: Multiset[str] = Multiset()
        """Calls that found or did something, by their name."""


class Base(Weighted):
    """One store beside the other, each told the same."""

    def __init__(self, sides: Sequence[Side], counter: Counter) -> None:
        super().__init__()
        self.sides, self.counter, self.now = sides, counter, NOW
        self.made = 0
        self.schedules: list[tuple[str, UUID]] = []
        self.triggers: list[tuple[str, UUID]] = []
        self.runs: list[tuple[str, UUID]] = []
        self.claims: list[Claim] = []
        self.workers: list[UUID] = []
        self.handles: list[list[LockHandle]] = []
        self.open: list[LockHandle] = []
        self.since = 0
        counter.examples += 1
        for side in sides:
            side.clear()
        self.furnish()

    def furnish(self) -> None:
        """Put down what every example begins with."""

    def new_id(self) -> UUID:
        """Return an id whose order says nothing of when it was made."""
        self.made += 1
        return uuid5(NAMESPACE_URL, f"lockstep/{self.made}")

    def each(
        self, what: str, act: Callable[[Store], X], order: Callable[[Any], Any] = lambda answer: answer
    ) -> tuple[Any, list[X]]:
        """Make a call on every side; return the answer all agree on, and the raw answers (none where refused)."""
        raw: list[X] = []

        def call(side: Side) -> X:
            answer = act(side.store)
            raw.append(answer)
            return answer

        answers = [(side.name, order(outcome(partial(call, side)))) for side in self.sides]
        self.counter.steps += 1
        self.since += 1
        answer = agreed(f"{what} at {self.now.isoformat()}", answers)
        if answer and not isinstance(answer, Raised):
            self.counter.effective[what.split(maxsplit=1)[0]] += 1
        self.counter.refused += not raw
        return answer, raw

    def ids(self, what: str, act: Callable[[Store], Sequence[UUID]]) -> Any:  # noqa: ANN401 - ids, or what was raised
        return self.each(what, act, ids_of)[0]

    def within(self, what: str, tenant: str, act: Callable[[Session], X]) -> X | None:
        """Make a call in a session of its own on every side; return the model's answer, none where it was refused."""

        def in_session(store: Store) -> X:
            with store.session(tenant, now=self.now) as session:
                return act(session)

        raw = self.each(f"{what} of {tenant}", in_session)[1]
        return raw[0] if raw else None

    def peek(self, tenant: str, act: Callable[[Session], X]) -> X:
        """Look something up in the model, to act on it."""
        with self.sides[0].store.session(tenant, now=self.now) as session:
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
    @rule(4, pick=PICK, before=st.sampled_from([0, 0, 1]))
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

    @rule(by=st.sampled_from([1, 1000, 60_000]))
    def move_the_clock_back(self, by: int) -> None:
        self.now -= timedelta(milliseconds=by)

    @invariant()
    def every_so_often_all_is_equal(self) -> None:
        if self.since >= EVERY:
            self.compare_all()

    def compare_all(self, *, summaries: bool = False) -> None:
        """Compare everything that is stored (the summaries at the end only); not counted as a step."""
        self.since = 0
        for tenant in TENANTS:
            ask = partial(self._all, tenant=tenant, summaries=summaries)
            agreed(f"all of {tenant}", [(side.name, outcome(partial(ask, side.store))) for side in self.sides])
        agreed("workers", [(side.name, outcome(side.store.workers.list)) for side in self.sides])
        agreed("tenants", [(side.name, outcome(side.store.queue.tenants)) for side in self.sides])

    def _all(self, store: Store, tenant: str, *, summaries: bool) -> dict[str, Any]:
        mine = [identity for whose, identity in self.schedules if whose == tenant]
        with store.session(tenant, now=self.now) as session:
            return {
                "schedules": by_id(session.schedules.list(ScheduleQuery(limit=1000))),
                "triggers": session.triggers.of_schedules(mine) if mine else [],
                "runs": by_id(session.runs.list(RunQuery(limit=1000)).runs),
                "summaries": [session.run_summaries.get(identity) for identity in mine if summaries],
            }

    def teardown(self) -> None:
        try:
            self.compare_all(summaries=True)
        finally:
            for handle in self.open:
                with suppress(MigratorError):
                    handle.release()
