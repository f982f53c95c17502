"""The machine at the level of the facade: its methods, and a worker, a crash, a broom and the clock in between."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import invariant

from migrator.scheduler.models import (
    EventRequest,
    HistoryQuery,
    OnceRequest,
    Patch,
    RecurringRequest,
    ScheduleRequest,
    Timing,
)
from migrator.store.protocols import ScheduleQuery
from tests.contract.lockstep.base import EVERY, Counter
from tests.contract.lockstep.participant import OUTCOMES, Participant
from tests.contract.lockstep.sides import Side, agreed, outcome
from tests.contract.lockstep.weighted import Weighted, precondition, rule
from tests.contract.rows import NOW

PICK = st.integers(0, 999)
MOVES = st.sampled_from([1, 1000, 60_000, 60_000, 300_000, 300_000, 900_000, 3_600_000, 86_400_000])
TENANTS = ("f-one", "f-two")
OF = st.sampled_from([TENANTS[0], TENANTS[0], TENANTS[1]])
WORK: dict[str, st.SearchStrategy[Any]] = {
    "enabled": st.sampled_from([True, True, True, False]),
    "priority": st.sampled_from([None, "high", "low", 10, 101]),
    "max_retries": st.sampled_from([0, 1, 3]),
    "retry_strategy": st.sampled_from(["exponential", "fixed"]),
    "on_exhausted": st.sampled_from(["keep", "stop"]),
    "timeout_ms": st.sampled_from([None, 60_000, 0]),
    "max_concurrency": st.sampled_from([None, 1, 1, 2]),
    "tags": st.sampled_from([(), ("a",), ("a", "b")]),
    "payload": st.sampled_from([None, {"a": [1, 2.5]}, "text"]),
}
NAMES = st.sampled_from(["alpha", "beta"]) | st.integers(0, 10_000).map(lambda number: f"job {number}")
LINES = st.sampled_from(["*/5 * * * *", "* * * * *", "0 9 * * 1-5", "30 2 * * *", "61 * * * *"])
ZONES = st.sampled_from(["UTC", "UTC", "America/New_York", "Mars/Base"])
LENGTHS = st.sampled_from([timedelta(seconds=30), timedelta(minutes=1), timedelta(hours=1), timedelta(0)])
MISSED = st.sampled_from([None, None, "fire_once", "skip", "fire_all"])
TIMINGS = st.builds(Timing, cron=LINES, timezone=ZONES) | st.builds(
    Timing, interval=LENGTHS, anchor=st.sampled_from(["fixed_rate", "completion"])
)
SHIFTS = st.sampled_from([None, None, -60_000, 0, 60_000, 600_000, 86_400_000])


FURNITURE: tuple[tuple[str, dict[str, Any]], ...] = (
    (TENANTS[0], {"max_retries": 0, "max_concurrency": 2}),
    (TENANTS[0], {"max_retries": 3, "timeout_ms": 60_000}),
    (TENANTS[1], {"max_retries": 1, "max_concurrency": None}),
)


def optional(**columns: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=columns)


class Asking(Weighted):
    """One facade beside the other, each asked the same."""

    def __init__(self, sides: Sequence[Side], counter: Counter) -> None:
        super().__init__()
        self.counter, self.now, self.steps, self.since = counter, NOW, 0, 0
        counter.examples += 1
        for side in sides:
            side.clear()
        self.names = [side.name for side in sides]
        self.participants = {
            tenant: [Participant(side.store, tenant, self.now) for side in sides] for tenant in TENANTS
        }
        self.jobs: list[tuple[str, UUID]] = []
        for tenant, work in FURNITURE:
            every = Timing(interval=timedelta(minutes=1))
            self.schedule_recurring(tenant, f"every minute {work}", every, None, None, {}, work)
        self.on_event(TENANTS[0], "h", 50, enabled=True)

    def each(self, what: str, tenant: str, act: Callable[[Participant], Any]) -> Any:  # noqa: ANN401 - answers of all calls
        """Make a call on every side; return the model's answer, none where it was refused."""
        self.steps += 1
        self.since += 1
        self.counter.steps += 1
        raw: list[Any] = []

        def call(participant: Participant) -> Any:  # noqa: ANN401 - as above
            participant.begin(self.steps, self.now)
            raw.append(act(participant))
            return raw[-1]

        pairs = zip(self.names, self.participants[tenant], strict=True)
        answers = [(name, [outcome(partial(call, participant)), participant.listened()]) for name, participant in pairs]
        agreed(f"{what} of {tenant} at {self.now.isoformat()}", answers)
        if raw and (any(raw[0]) if isinstance(raw[0], tuple) else raw[0]):
            self.counter.effective[what] += 1
        self.counter.refused += not raw
        return raw[0] if raw else None

    def job(self, pick: int) -> tuple[str, UUID]:
        return self.jobs[-1 - pick % len(self.jobs)]

    def at(self, shift: int | None) -> datetime | None:
        return None if shift is None else self.now + timedelta(milliseconds=shift)

    def keep(self, tenant: str, made: Any) -> None:  # noqa: ANN401 - a job, or none
        if made is not None:
            self.jobs.append((tenant, made.id))

    # -- making

    @rule(tenant=OF, name=NAMES, cron=LINES, zone=ZONES, missed=MISSED, work=optional(**WORK))
    def schedule(self, tenant: str, name: str, cron: str, zone: str, missed: Any, work: dict[str, Any]) -> None:  # noqa: ANN401 - a word
        asked = ScheduleRequest(
            name=name, handler_name="h", created_by="me", cron=cron, timezone=zone, misfire_policy=missed, **work
        )
        self.keep(
            tenant, self.each("schedule", tenant, lambda participant: participant.facade.schedule(asked, now=self.now))
        )

    @rule(tenant=OF, name=NAMES, shift=SHIFTS, work=optional(**WORK))
    def schedule_once(self, tenant: str, name: str, shift: int | None, work: dict[str, Any]) -> None:
        asked = OnceRequest(name=name, handler_name="h", created_by="me", run_at=self.at(shift), **work)
        made = self.each(
            "schedule_once", tenant, lambda participant: participant.facade.schedule_once(asked, now=self.now)
        )
        self.keep(tenant, made)

    @rule(
        tenant=OF,
        name=NAMES,
        timing=TIMINGS,
        start=SHIFTS,
        end=SHIFTS,
        bounds=optional(
            max_fires=st.sampled_from([1, 2, 0]),
            skip_if_overdue=st.booleans(),
            misfire_policy=MISSED,
            misfire_grace_ms=st.sampled_from([0, 600_000]),
        ),
        work=optional(**WORK),
    )
    def schedule_recurring(
        self,
        tenant: str,
        name: str,
        timing: Timing,
        start: int | None,
        end: int | None,
        bounds: dict[str, Any],
        work: dict[str, Any],
    ) -> None:
        asked = RecurringRequest(
            name=name,
            handler_name="h",
            created_by="me",
            timing=timing,
            start_at=self.at(start),
            end_at=self.at(end),
            **bounds,
            **work,
        )
        made = self.each(
            "schedule_recurring", tenant, lambda participant: participant.facade.schedule_recurring(asked, now=self.now)
        )
        self.keep(tenant, made)

    @rule(
        tenant=OF,
        handler=st.sampled_from(["h", "g"]),
        priority=st.sampled_from([10, 50, "high"]),
        enabled=st.booleans(),
    )
    def on_event(self, tenant: str, handler: str, priority: Any, enabled: bool) -> None:  # noqa: ANN401, FBT001 - a rule's arguments are named
        asked = EventRequest(priority=priority, enabled=enabled, max_retries=1)
        made = self.each(
            "on_event", tenant, lambda participant: participant.facade.on_event("push", handler, asked, now=self.now)
        )
        self.keep(tenant, made)

    # -- changing

    @precondition(lambda self: self.jobs)
    @rule(
        pick=PICK,
        what=st.sampled_from(
            ["pause", "pause", "resume", "resume", "cancel", "unschedule", "trigger_now", "retry_schedule"]
        ),
        stranger=st.sampled_from([False] * 9 + [True]),
    )
    def change(self, pick: int, what: str, stranger: bool) -> None:  # noqa: FBT001 - as above
        tenant, identity = self.job(pick)
        whose = TENANTS[1] if stranger and tenant == TENANTS[0] else tenant
        self.each(what, whose, lambda participant: getattr(participant.facade, what)(identity, now=self.now))

    @precondition(lambda self: self.jobs)
    @rule(pick=PICK, enabled=st.booleans())
    def toggle(self, pick: int, enabled: bool) -> None:  # noqa: FBT001 - as above
        tenant, identity = self.job(pick)
        self.each(
            "toggle", tenant, lambda participant: participant.facade.toggle(identity, enabled=enabled, now=self.now)
        )

    @precondition(lambda self: self.jobs)
    @rule(pick=PICK, timing=TIMINGS)
    def reschedule(self, pick: int, timing: Timing) -> None:
        tenant, identity = self.job(pick)
        self.each(
            "reschedule", tenant, lambda participant: participant.facade.reschedule(identity, timing, now=self.now)
        )

    @precondition(lambda self: self.jobs)
    @rule(
        pick=PICK,
        changes=optional(
            name=NAMES,
            **{column: WORK[column] for column in ("priority", "max_retries", "max_concurrency", "tags", "payload")},
        ),
    )
    def update(self, pick: int, changes: dict[str, Any]) -> None:
        tenant, identity = self.job(pick)
        self.each(
            "update", tenant, lambda participant: participant.facade.update(identity, Patch(**changes), now=self.now)
        )

    @rule(tenant=OF, event=st.sampled_from(["push", "push", "pull"]), event_id=st.sampled_from(["e1", "e2"]))
    def trigger_event(self, tenant: str, event: str, event_id: str) -> None:
        self.each(
            "trigger_event",
            tenant,
            lambda participant: participant.facade.trigger_event(event, {"a": 1}, event_id=event_id, now=self.now),
        )

    @precondition(lambda self: self.jobs)
    @rule(4, pick=PICK, place=st.integers(0, 3))
    def retry(self, pick: int, place: int) -> None:
        tenant, identity = self.job(pick)
        with self.participants[tenant][0].store.session(tenant, now=self.now) as session:
            runs = session.runs.of_schedule(identity, 4)
        if runs:
            run_id = runs[place % len(runs)].id
            self.each("retry", tenant, lambda participant: participant.facade.retry(run_id, now=self.now))
            self.each("get_execution", tenant, lambda participant: bare_execution(participant, run_id, self.now))

    # -- what happens meanwhile

    @rule(8, tenant=OF, mood=st.sampled_from(["done", "mixed", "mixed", "mixed", "open", "failed", *OUTCOMES]))
    def turn(self, tenant: str, mood: str) -> None:
        def act(participant: Participant) -> Any:  # noqa: ANN401 - counts
            participant.mood = mood
            return participant.turn()

        self.each(f"turn {mood}", tenant, act)

    @rule(3, tenant=OF, mood=st.sampled_from(["done", "failed", "timeout"]))
    def end_one(self, tenant: str, mood: str) -> None:
        def act(participant: Participant) -> Any:  # noqa: ANN401 - counts
            participant.end_oldest(mood)
            return participant.worker.collect()

        self.each(f"end one as {mood}", tenant, act)

    @rule(3, tenant=OF, what=st.sampled_from(["renew", "give_back", "crash", "sweep", "sweep", "adopt"]))
    def work(self, tenant: str, what: str) -> None:
        acts: dict[str, Callable[[Participant], Any]] = {
            "renew": lambda participant: participant.worker.renew(),
            "give_back": lambda participant: participant.worker.release(),
            "crash": lambda participant: participant.restart(),
            "sweep": lambda participant: participant.leader.sweep(),
            "adopt": lambda participant: participant.leader.adopt(),
        }
        self.each(what, tenant, acts[what])

    @rule(8, by=MOVES)
    def move_the_clock(self, by: int) -> None:
        self.now += timedelta(milliseconds=by)

    @rule(by=st.sampled_from([1000, 60_000]))
    def move_the_clock_back(self, by: int) -> None:
        self.now -= timedelta(milliseconds=by)

    # -- reading

    @precondition(lambda self: self.jobs)
    @rule(
        pick=PICK,
        query=st.builds(
            HistoryQuery,
            limit=st.sampled_from([1, 3, 10, 0]),
            offset=st.sampled_from([0, 0, 2]),
            states=st.sampled_from([(), ("completed",), ("queued", "error"), ("no such",)]),
            descending=st.booleans(),
        ),
    )
    def history(self, pick: int, query: HistoryQuery) -> None:
        tenant, identity = self.job(pick)
        self.each("history", tenant, lambda participant: participant.facade.history(identity, query, now=self.now))
        self.each("stats", tenant, lambda participant: participant.facade.stats(identity, now=self.now))

    @rule(tenant=OF, zone=st.sampled_from(["UTC", "America/New_York"]))
    def figures(self, tenant: str, zone: str) -> None:
        def act(participant: Participant) -> Any:  # noqa: ANN401 - figures, without those of this process
            found = participant.facade.metrics(zone=zone, now=self.now)
            return [found.jobs, found.executions, found.performance, found.queue, found.today, found.start, found.end]

        self.each("metrics", tenant, act)

    @rule(
        tenant=OF,
        query=st.builds(
            ScheduleQuery,
            statuses=st.sampled_from([(), ("scheduled",), ("paused", "running"), ("no such",)]),
            kinds=st.sampled_from([(), ("interval",), ("one_time", "event")]),
            enabled=st.sampled_from([None, None, True, False]),
            tags_any=st.sampled_from([(), ("a", "b")]),
            limit=st.sampled_from([1, 3, 50]),
            sort_by=st.sampled_from(["created_at", "next_fire_at", "name", "priority"]),
            descending=st.booleans(),
        ),
    )
    def list_jobs(self, tenant: str, query: ScheduleQuery) -> None:
        self.each("list", tenant, lambda participant: participant.facade.list(query, now=self.now))

    @invariant()
    def every_so_often_all_is_equal(self) -> None:
        if self.since >= EVERY:
            self.compare_all()

    def compare_all(self) -> None:
        """Compare everything that is stored; not counted as a step."""
        self.since = 0
        for tenant, participants in self.participants.items():
            pairs = zip(self.names, participants, strict=True)
            agreed(
                f"all of {tenant}", [(name, outcome(partial(self._all, participant))) for name, participant in pairs]
            )

    def _all(self, participant: Participant) -> list[Any]:
        participant.now = self.now
        jobs = participant.facade.list(ScheduleQuery(limit=1000), now=self.now).jobs
        mine = [identity for whose, identity in self.jobs if whose == participant.tenant]
        histories = [
            participant.facade.history(identity, HistoryQuery(limit=100), now=self.now)
            for identity in mine
            if participant.facade.get(identity, now=self.now)
        ]
        return [jobs, histories, participant.audited(), participant.said()]

    def teardown(self) -> None:
        self.compare_all()


def bare_execution(participant: Participant, run_id: UUID, now: datetime) -> Any:  # noqa: ANN401 - a run
    """Return a run without its log, whose ids nobody chose."""
    found = participant.facade.get_execution(run_id, now=now)
    return None if found is None else found.run
