"""The part of the machine that works: fires, claims, ends, heartbeats, releases, sweeps, and runs made by hand."""

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid5

from migrator import states
from migrator.records import Run, Schedule, Trigger
from migrator.store.protocols import RunQuery
from migrator.store.queue import Claim, Fire
from tests.contract.lockstep import rules
from tests.contract.lockstep.base import PICK, TENANTS, Base
from tests.contract.lockstep.rules import precondition, rule
from tests.contract.rows import changed
from tests.contract.working import end_of

SERVED = rules.sampled_from(
    [None, None, None, list(TENANTS), list(TENANTS), [TENANTS[0]], [TENANTS[1], TENANTS[2]], []]
)
LEASES = rules.sampled_from([1, 5000, 5000, 30_000, 3_600_000])
LIMITS = rules.sampled_from([1, 2, 3, 10, 10])
WORKERS = rules.sampled_from(["one", "two"])
HELD = rules.lists(rules.integers(0, 3) | PICK, least=1, most=4)
ENDS = rules.sampled_from([*["completed"] * 5, *["error"] * 6, "cancelled", "timeout", "skipped"])
AFTERWARDS = rules.sampled_from([*[None] * 9, "completed", "failed", "scheduled", "paused"])
PLANS = rules.sampled_from(
    ["one", "one", "one", "all", "none", "skip if live", "twice", "last", "keyed", "stay", "fail"]
)


FIRE = rule(
    8,
    plan=PLANS,
    status=rules.sampled_from([*[None] * 9, "running", "scheduled", "completed", "paused", "pending"]),
    limit=LIMITS,
    served=SERVED,
)
CLAIM = rule(
    8,
    worker=WORKERS,
    limit=LIMITS,
    lease=LEASES,
    queues=rules.sampled_from([None, None, None, None, ["mail"], ["mail", "slow"], []]),
    served=SERVED,
    registered=PICK,
)
END = rule(
    8,
    picks=HELD,
    state=ENDS,
    retry=rules.sampled_from([None, 0, 5000]),
    status=AFTERWARDS,
    over=rules.sampled_from([False, False, True]),
)


class PlanError(Exception):
    """What the plan ``fail`` raises for a trigger whose id ends so."""


class Planned:
    """A plan whose answer follows from what it is asked, so that all sides get the same."""

    def __init__(self, kind: str, status: str | None) -> None:
        self.kind, self.status = kind, status

    def __call__(self, schedule: Schedule, trigger: Trigger, live_runs: int, now: datetime) -> Fire:
        fire = trigger.next_fire_at
        assert fire is not None
        period = timedelta(milliseconds=trigger.interval_ms or 60_000)
        slots = [fire]
        if self.kind == "all":
            slots = [fire + period * place for place in range(3) if fire + period * place <= now]
        if self.kind == "none" or (self.kind == "fail" and trigger.id.int % 3):
            slots = []
        elif self.kind == "fail":
            raise PlanError
        state = "skipped" if self.kind == "skip if live" and live_runs else "queued"
        key = "same" if self.kind == "keyed" else None
        runs = [self._run(schedule, trigger, at, now, state, key, "") for at in slots]
        if self.kind == "twice":
            runs += [self._run(schedule, trigger, at, now, state, key, "again") for at in slots]
        after = changed(
            trigger,
            next_fire_at=None
            if self.kind == "last"
            else fire
            if self.kind == "stay"
            else max(slots, default=fire) + period,
            enabled=self.kind != "last",
            last_fire_at=now,
            fire_count=trigger.fire_count + len(slots),
        )
        return Fire(runs=tuple(runs), trigger=after, schedule_status=self.status)

    @staticmethod
    def _run(
        schedule: Schedule, trigger: Trigger, at: datetime, now: datetime, state: str, key: str | None, mark: str
    ) -> Run:
        return Run(
            id=uuid5(trigger.id, f"{at.isoformat()} {now.isoformat()} {mark}"),
            tenant_id=schedule.tenant_id,
            schedule_id=schedule.id,
            trigger_id=trigger.id,
            scheduled_at=at,
            state=state,
            cause=trigger.kind,
            created_at=now,
            dedupe_key=key,
        )


class Working(Base):
    """Runs, from the fire to the end."""

    @FIRE
    def fire(self, plan: str, status: str | None, limit: int, served: list[str] | None) -> None:
        planned = Planned(plan, status)

        def act(store: Any) -> Any:  # noqa: ANN401 - runs, or what the plan raised
            try:
                return store.queue.fire_due(planned, limit, self.now, served)
            except PlanError:
                return "the plan raised"

        raw = self.each(f"fire_due {plan} {limit} {served}", act)
        if raw and not isinstance(raw[0], str):
            self.runs += [(run.tenant_id, run.id) for run in raw[0]]

    @CLAIM
    def claim(
        self, worker: str, limit: int, lease: int, queues: list[str] | None, served: list[str] | None, registered: int
    ) -> None:
        name = str(self.workers[registered % len(self.workers)]) if self.workers and registered % 3 else worker
        raw = self.each(
            f"claim {limit} {queues} {served}",
            lambda store: store.queue.claim(
                name, limit, timedelta(milliseconds=lease), self.now, queues=queues, tenants=served
            ),
        )
        self.claims += raw[0] if raw else []

    def held(self, picks: list[int]) -> list[Claim]:
        """Return claims that were made, perhaps long lost."""
        return [self.claims[-1 - pick % len(self.claims)] for pick in picks]

    @precondition(lambda self: self.claims)
    @rule(2, picks=HELD, lease=LEASES)
    def heartbeat(self, picks: list[int], lease: int) -> None:
        claims = self.held(picks)
        self.ids("heartbeat", lambda store: store.queue.heartbeat(claims, timedelta(milliseconds=lease), self.now))

    @precondition(lambda self: self.claims)
    @END
    def end(self, picks: list[int], state: str, retry: int | None, status: str | None, over: bool) -> None:  # noqa: FBT001 - a rule's arguments are named
        ends = []
        for claim in self.held(picks):
            again = None if retry is None else self._again(claim.run, retry)
            said: dict[str, Any] = {"result": b'{"a":1}'} if state == "completed" else {"error": f"it was {state}"}
            ends.append(end_of(claim, state, retry=again, schedule_status=status, **said))
        what = "expire" if over else "finish"
        ended = self.ids(f"{what} {state}", lambda store: getattr(store.queue, what)(ends, self.now))
        if isinstance(ended, list):
            self.runs += [
                (end.tenant_id, end.retry.id) for end in ends if end.retry is not None and end.run_id in ended
            ]

    def _again(self, ended: Run, delay: int) -> Run:
        return Run(
            id=uuid5(ended.id, self.now.isoformat()),
            tenant_id=ended.tenant_id,
            schedule_id=ended.schedule_id,
            trigger_id=ended.trigger_id,
            scheduled_at=ended.scheduled_at,
            attempt=(ended.attempt or 1) + 1,
            retry_of=ended.id,
            cause="retry",
            state="queued",
            created_at=self.now,
            available_at=self.now + timedelta(milliseconds=delay),
        )

    @precondition(lambda self: self.claims)
    @rule(4, picks=HELD)
    def release(self, picks: list[int]) -> None:
        claims = self.held(picks)
        self.ids("release", lambda store: store.queue.release(claims, self.now))

    @rule(2, limit=LIMITS, served=SERVED, state=rules.sampled_from(["error", "timeout"]))
    def sweep(self, limit: int, served: list[str] | None, state: str) -> None:
        raw = self.each("expired", lambda store: store.queue.expired(limit, self.now, served))
        ends = [
            end_of(claim, state, error="lost", retry=self._again(claim.run, 0)) for claim in (raw[0] if raw else [])
        ]
        if ends:
            self.ids("expire those", lambda store: store.queue.expire(ends, self.now))
            self.runs += [(end.tenant_id, end.retry.id) for end in ends if end.retry is not None]

    @precondition(lambda self: self.schedules)
    @rule(
        4,
        pick=PICK,
        state=rules.sampled_from(["queued", "queued", "queued", "planning", "running"]),
        delay=rules.sampled_from([None, None, 0, 5000]),
        alone=rules.sampled_from([False, False, True]),
    )
    def make_a_run(self, pick: int, state: str, delay: int | None, alone: bool) -> None:  # noqa: FBT001 - as above
        tenant, of = self.schedules[-1 - pick % len(self.schedules)]
        row = Run(
            id=self.new_id(),
            tenant_id=tenant,
            schedule_id=None if alone else of,
            state=state,
            cause="manual",
            created_at=self.now,
            available_at=None if delay is None else self.now + timedelta(milliseconds=delay),
        )
        if self.within("create", tenant, lambda session: session.runs.create(row)) is not None:
            self.runs.append((tenant, row.id))

    @precondition(lambda self: self.runs)
    @rule(pick=PICK)
    def cancel_a_run(self, pick: int) -> None:
        tenant, identity = self.runs[-1 - pick % len(self.runs)]
        self.within("cancel", tenant, lambda session: session.runs.cancel(identity, "enough"))

    @precondition(lambda self: self.schedules)
    @rule(pick=PICK)
    def cancel_the_runs_of_a_schedule(self, pick: int) -> None:
        tenant, identity = self.schedules[-1 - pick % len(self.schedules)]
        self.within("cancel all", tenant, lambda session: session.runs.cancel_of_schedule(identity, "enough"))

    @precondition(lambda self: self.runs)
    @rule(
        pick=PICK,
        state=rules.sampled_from([*states.RUN]),
        stats=rules.sampled_from([None, b'{"queued":1}', b'{"deltas":2}']),
    )
    def update_a_run(self, pick: int, state: str, stats: bytes | None) -> None:
        row = self.run(pick)
        if row is not None:
            self.within(
                f"update {row.state} to {state}",
                row.tenant_id,
                lambda session: session.runs.update(changed(row, state=state, stats=stats), row.state),
            )

    @rule(tenant=rules.sampled_from(TENANTS), keep=rules.integers(0, 2), age=rules.sampled_from([0, 1000, 60_000]))
    def retire_old_runs(self, tenant: str, keep: int, age: int) -> None:
        before = self.now - timedelta(milliseconds=age)
        old = self.within("beyond", tenant, lambda session: session.runs.beyond(keep, before, 5))
        if old:
            self.within("remove", tenant, lambda session: session.runs.remove([run.id for run in old]))

    @precondition(lambda self: self.schedules)
    @rule(pick=PICK)
    def sum_up(self, pick: int) -> None:
        tenant, identity = self.schedules[-1 - pick % len(self.schedules)]
        self.within("recompute", tenant, lambda session: session.run_summaries.recompute(identity, 3))

    @rule(
        tenant=rules.sampled_from(TENANTS),
        limit=rules.sampled_from([1, 3, 50]),
        among=rules.sampled_from([(), ("queued",), ("running", "error")]),
    )
    def list_runs(self, tenant: str, limit: int, among: tuple[str, ...]) -> None:
        page = self.within("list", tenant, lambda session: session.runs.list(RunQuery(limit=limit, states=among)))
        if page is not None and page.cursor is not None:
            more = RunQuery(limit=limit, states=among, cursor=page.cursor)
            self.within("list on", tenant, lambda session: (session.runs.list(more), session.runs.pending(limit)))
