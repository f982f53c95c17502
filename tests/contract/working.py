"""What the tests of firing, claiming and ending have in common: rows put there, rows read back, plans."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from migrator.records import Run, Schedule, Trigger
from migrator.store.protocols import SessionStore, Store
from migrator.store.queue import Claim, Finish, Fire
from tests.contract.rows import NOW, changed, run, schedule

MINUTE = timedelta(minutes=1)
LEASE = timedelta(seconds=30)


def put(store: SessionStore, *rows: Schedule | Trigger | Run, now: datetime = NOW) -> list[Any]:
    """Write rows, each in its turn, and return them as they are stored."""
    stored: list[Any] = []
    for row in rows:
        with store.session(row.tenant_id, now=now) as session:
            if isinstance(row, Schedule):
                stored.append(session.schedules.upsert(row))
            elif isinstance(row, Trigger):
                stored.append(session.triggers.upsert(row))
            else:
                stored.append(session.runs.create(row))
    return stored


def run_of(store: SessionStore, tenant: str, run_id: UUID) -> Run:
    with store.session(tenant, now=NOW) as session:
        found = session.runs.get(run_id)
    assert found is not None
    return found


def trigger_of(store: SessionStore, trigger: Trigger) -> Trigger:
    with store.session(trigger.tenant_id, now=NOW) as session:
        found = session.triggers.get(trigger.id)
    assert found is not None
    return found


def schedule_of(store: SessionStore, schedule: Schedule) -> Schedule:
    with store.session(schedule.tenant_id, now=NOW) as session:
        found = session.schedules.get(schedule.id)
    assert found is not None
    return found


def runs_of(store: SessionStore, schedule: Schedule) -> list[Run]:
    """Return a schedule's runs by number."""
    with store.session(schedule.tenant_id, now=NOW) as session:
        found = session.runs.of_schedule(schedule.id, 1000)
    return sorted(found, key=lambda each: each.run_number or 0)


def slot(schedule: Schedule, trigger: Trigger, **columns: Any) -> Run:  # noqa: ANN401 - columns have all types
    """Return the queued run of a trigger's next fire."""
    least: dict[str, Any] = {"schedule_id": schedule.id, "trigger_id": trigger.id, "scheduled_at": trigger.next_fire_at}
    return run(schedule.tenant_id, **least | columns)


def advanced(trigger: Trigger) -> Trigger:
    """Return a trigger a minute on."""
    fire = trigger.next_fire_at
    assert fire is not None
    return changed(trigger, next_fire_at=fire + MINUTE, last_fire_at=fire, fire_count=trigger.fire_count + 1)


def each_slot(schedule: Schedule, trigger: Trigger, live_runs: int, now: datetime) -> Fire:
    """Plan one run for the slot, and the next a minute on."""
    del live_runs, now
    return Fire(runs=(slot(schedule, trigger),), trigger=advanced(trigger))


class Seen:
    """A plan that writes down what it is asked, and answers as ``answer`` does."""

    def __init__(self, answer: Callable[[Schedule, Trigger], Fire] | None = None) -> None:
        self.asked: list[tuple[Schedule, Trigger, int, datetime]] = []
        self._answer = answer or (lambda schedule, trigger: each_slot(schedule, trigger, 0, NOW))

    def __call__(self, schedule: Schedule, trigger: Trigger, live_runs: int, now: datetime) -> Fire:
        self.asked.append((schedule, trigger, live_runs, now))
        return self._answer(schedule, trigger)

    @property
    def triggers(self) -> list[UUID]:
        return [trigger.id for _, trigger, _, _ in self.asked]


def end_of(claim: Claim, state: Any = "completed", **columns: Any) -> Finish:  # noqa: ANN401 - also wrong states
    """Return how a claimed run ends."""
    held = claim.run
    least: dict[str, Any] = {"run_id": held.id, "tenant_id": held.tenant_id, "worker_id": held.worker_id or ""}
    return Finish(**least | {"fence": claim.fence, "state": state} | columns)


def repeat(ended: Run, **columns: Any) -> Run:  # noqa: ANN401 - columns have all types
    """Return the queued run that repeats one."""
    least: dict[str, Any] = {
        "schedule_id": ended.schedule_id,
        "trigger_id": ended.trigger_id,
        "scheduled_at": ended.scheduled_at,
        "attempt": (ended.attempt or 1) + 1,
        "retry_of": ended.id,
        "cause": "retry",
    }
    return run(ended.tenant_id, **least | columns)


def claimed(claims: Sequence[Claim]) -> list[UUID]:
    return [claim.run.id for claim in claims]


def held(store: Store, tenant: str, **columns: Any) -> Claim:  # noqa: ANN401 - columns have all types
    """Return a claim on a fresh run of a fresh schedule; ``columns`` are the schedule's."""
    (of,) = put(store, schedule(tenant, **columns))
    put(store, run(tenant, schedule_id=of.id))
    (claim,) = store.queue.claim("one", 1, LEASE, NOW, tenants=[tenant])
    return claim


def now_of(store: Store, claim: Claim) -> Run:
    return run_of(store, claim.run.tenant_id, claim.run.id)
