"""Health and standing: with faults planted in each part, and with processes dead and alive."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from migrator.errors import UnreachableError
from migrator.records import WorkerRecord
from migrator.scheduler.client import Scheduler
from migrator.scheduler.health import Limits
from migrator.store.protocols import Store
from migrator.verify.behaviour.harness import HOUR, MINUTE, Harness
from tests.contract.facade.stored import stored
from tests.contract.rows import NOW, SECOND, changed

ALIVE = WorkerRecord(
    id=uuid4(), tenant_id="*", kind="worker", status="active", last_heartbeat_at=NOW - SECOND, hostname="h", pid=1
)
UNREACHABLE = UnreachableError("gone")


class Faulty:
    """A store with faults in some of its parts; the rest answers as it is."""

    def __init__(self, store: Store, **parts: Any) -> None:  # noqa: ANN401 - whatever is faulty
        self._store, self._parts, self.backend = store, parts, store.backend
        self.workers = SimpleNamespace(list=self._workers)
        self.locks = SimpleNamespace(holder=lambda *_: parts.get("leader", ("me", 3)))

    def ping(self) -> timedelta:
        answer: timedelta = self._given("ping", timedelta(milliseconds=2))
        return answer

    def now(self) -> datetime:
        return self._store.now()

    @contextmanager
    def session(self, tenant: str, *, now: datetime | None = None) -> Iterator[Any]:
        self._given("queue", None)
        with self._store.session(tenant, now=now) as session:
            yield session

    def _workers(self) -> list[WorkerRecord]:
        answer: list[WorkerRecord] = self._given("workers", [ALIVE])
        return answer

    def _given(self, part: str, sound: Any) -> Any:  # noqa: ANN401 - as above
        found = self._parts.get(part, sound)
        if isinstance(found, Exception):
            raise found
        return found


def facade(harness: Harness, **parts: Any) -> Scheduler:  # noqa: ANN401 - as above
    return Scheduler(cast("Store", Faulty(harness.store, **parts)), harness.tenant)


@pytest.mark.proves("2-F17")
def test_all_is_well(harness: Harness) -> None:
    found = facade(harness).health(now=NOW)
    assert (found.status, found.issues, found.checked_at) == ("healthy", (), NOW)
    assert (found.components.leader, found.components.latency) == ("me", timedelta(milliseconds=2))
    assert (found.components.active_workers, found.components.ready) == (1, 0)


@pytest.mark.proves("2-F17")
@pytest.mark.parametrize(
    ("parts", "status", "component", "severity"),
    [
        ({"ping": timedelta(seconds=1, milliseconds=1)}, "degraded", "database", "warning"),
        ({"ping": UNREACHABLE}, "unhealthy", "database", "critical"),
        ({"queue": UNREACHABLE}, "unhealthy", "queue", "critical"),
        ({"workers": []}, "degraded", "workers", "error"),
        ({"workers": UNREACHABLE}, "unhealthy", "workers", "critical"),
        ({"leader": None}, "degraded", "scheduler", "warning"),
    ],
    ids=["slow", "down", "queue down", "no workers", "workers unknown", "no leader"],
)
def test_each_fault_is_an_issue_of_its_part(
    harness: Harness, parts: dict[str, Any], status: str, component: str, severity: str
) -> None:
    found = facade(harness, **parts).health(now=NOW)
    assert found.status == status
    assert [(one.component, one.severity) for one in found.issues] == [(component, severity)]
    parts_status = {name: getattr(found.components, name) for name in ("scheduler", "database", "queue", "workers")}
    assert {name for name, one in parts_status.items() if one != "healthy"} == {component}


@pytest.mark.proves("2-F17")
def test_the_limit_itself_is_no_issue(harness: Harness) -> None:
    assert facade(harness, ping=timedelta(seconds=1)).health(now=NOW).status == "healthy"


@pytest.mark.proves("2-F17")
def test_a_queue_that_does_not_keep_up_says_since_when(harness: Harness) -> None:
    job = harness.recurring()
    harness.facade.trigger_now(job.id, now=NOW)
    assert facade(harness).health(now=NOW + MINUTE).status == "healthy"
    late = changed(ALIVE, last_heartbeat_at=NOW + HOUR)
    found = facade(harness, workers=[late]).health(now=NOW + HOUR)
    assert found.status == "degraded"
    (issue,) = found.issues
    assert (issue.component, issue.severity, issue.since) == ("queue", "warning", NOW)


def test_the_real_parts_answer_too(harness: Harness) -> None:
    found = harness.facade.health()
    assert found.components.database == "healthy"
    assert found.checked_at is not None


@pytest.mark.proves("4-S5", "3-C5")
def test_where_the_scheduler_stands(harness: Harness) -> None:
    busy, waits = harness.recurring(), harness.recurring(start_at=NOW + HOUR)
    harness.facade.toggle(waits.id, enabled=False, now=NOW)
    harness.executor.outcome = lambda _: None
    harness.advance(MINUTE)
    harness.run_once()
    harness.facade.trigger_now(busy.id, now=harness.now)
    dead = changed(ALIVE, id=uuid4())
    stopped = changed(ALIVE, id=uuid4(), status="stopped", last_heartbeat_at=harness.now)
    silent = changed(dead, last_heartbeat_at=NOW - HOUR)
    found = facade(harness, workers=[ALIVE, silent, stopped]).status(now=harness.now)
    assert found.leader is not None
    assert (found.alive, found.leader.holder, found.leader.term) == (1, "me", 3)
    assert (sum(found.schedules.values()), found.enabled, found.running_schedules) == (2, 1, 1)
    assert (found.ready, found.running) == (1, 1)
    following = found.next_fires[0].fire
    assert (following.schedule_id, following.at) == (busy.id, stored(harness, busy).next_fire_at)
    assert [(one.id, one.alive) for one in found.instances] == [
        (ALIVE.id, True),
        (silent.id, False),
        (stopped.id, False),
    ]


@pytest.mark.proves("4-S5")
def test_rows_of_dead_processes_do_not_make_it_run(harness: Harness) -> None:
    found = facade(harness, workers=[ALIVE], leader=None).status(now=NOW + HOUR)
    assert (found.alive, found.leader, found.next_fires) == (0, None, ())


@pytest.mark.proves("4-S5")
def test_a_process_that_registers_and_leads_is_seen(harness: Harness) -> None:
    worker = harness.store.workers.register(
        WorkerRecord(id=uuid4(), tenant_id="*", kind="scheduler", status="active", hostname="h"), NOW
    )
    found = harness.facade.status(now=NOW)
    assert {one.id: one.alive for one in found.instances}[worker.id]
    limited = Scheduler(harness.store, harness.tenant, limits=Limits(silent_for=SECOND))
    assert not {one.id: one.alive for one in limited.status(now=NOW + MINUTE).instances}[worker.id]
    harness.store.workers.stop(worker.id, NOW)
    assert not {one.id: one.alive for one in harness.facade.status(now=NOW).instances}[worker.id]
