"""Handlers that are seeded, a tenant that is removed."""

from collections.abc import Callable
from typing import Any

import pytest

from migrator import records
from migrator.errors import UsageError
from migrator.records import Run, Schedule
from migrator.scheduler.client import Scheduler
from migrator.store.statistics import RunFilter
from migrator.verify.behaviour.harness import MINUTE, Clock, Harness
from tests.contract.facade.stored import everything
from tests.contract.rows import (
    NOW,
    event_trigger,
    fresh,
    graph_job,
    handler,
    line,
    policy_job,
    run,
    schedule,
    snapshot,
)

# -- handlers


@pytest.mark.proves("4-D3")
def test_seeding_twice_changes_nothing(harness: Harness) -> None:
    seeds = [handler(harness.tenant, name=name, handler_path=f"app.{name}") for name in ("sync", "clean")]
    first = harness.facade.seed_handlers(seeds, now=NOW)
    assert (first.added, first.unchanged, first.conflicting) == (("sync", "clean"), (), ())
    before = everything(harness)
    again = [handler(harness.tenant, name=name, handler_path=f"app.{name}") for name in ("sync", "clean")]
    second = harness.facade.seed_handlers(again, now=NOW)
    assert (second.added, second.unchanged, second.conflicting) == ((), ("sync", "clean"), ())
    assert everything(harness) == before


@pytest.mark.proves("4-D3")
@pytest.mark.parametrize(
    "other",
    [
        {"name": "sync", "handler_path": "app.sync", "default_timeout_ms": 600_000},
        {"name": "sync", "handler_path": "app.other"},
        {"name": "expire_sync", "handler_path": "app.sync"},
        {"name": "sync", "handler_path": "app.sync", "is_system": True},
    ],
    ids=["another timeout", "other code", "another name for the code", "a system handler"],
)
def test_a_second_seeder_that_differs_is_reported_and_wins_nothing(harness: Harness, other: dict[str, Any]) -> None:
    harness.facade.seed_handlers([handler(harness.tenant, name="sync", handler_path="app.sync")], now=NOW)
    before = everything(harness)
    found = harness.facade.seed_handlers([handler(harness.tenant, **other)], now=NOW)
    assert (found.added, found.unchanged, found.conflicting) == ((), (), (other["name"],))
    assert everything(harness) == before


def test_seeds_that_cannot_be_are_refused(harness: Harness) -> None:
    with pytest.raises(UsageError, match="handler a is named twice"):
        harness.facade.seed_handlers([handler(harness.tenant, name="a"), handler(harness.tenant, name="a")], now=NOW)
    with pytest.raises(UsageError, match="another tenant"):
        harness.facade.seed_handlers([handler(harness.tenant, name="b"), handler(fresh())], now=NOW)
    with pytest.raises(UsageError, match="name must not be blank"):
        harness.facade.seed_handlers([handler(harness.tenant, name=" ")], now=NOW)
    assert everything(harness)[-1] == ()


# -- removing a tenant


def live(harness: Harness) -> None:
    """Give a tenant a row in every table that has tenants."""
    harness.facade.seed_handlers([handler(harness.tenant)], now=NOW)
    harness.recurring()
    harness.advance(MINUTE)
    harness.run_once()
    harness.now = NOW
    with harness.store.session(harness.tenant, now=NOW) as session:
        of = session.schedules.upsert(schedule(harness.tenant))
        session.triggers.upsert(event_trigger(of, "push"))
        gone = session.schedules.upsert(schedule(harness.tenant))
        session.schedules.soft_delete(gone.id, "me")
        first = session.runs.create(run(harness.tenant, schedule_id=of.id, state="error"))
        session.runs.create(run(harness.tenant, retry_of=first.id))
        session.execution_logs.append([line(harness.tenant, run_id=first.id), line(harness.tenant)])
        session.impact_snapshots.insert(snapshot(harness.tenant, run_id=first.id))
        job = graph_job(harness.tenant)
        session.graph_jobs.insert(job)
        session.graph_jobs.try_replace(graph_job(harness.tenant, id=job.id, status=1), "pending")
        session.policy_jobs.insert(policy_job(harness.tenant, run_id="r"))
    lock = harness.store.locks.acquire(harness.tenant, "thing", ttl=MINUTE)
    assert lock is not None
    lock.release()


@pytest.mark.proves("2-P2")
def test_removing_a_tenant_removes_every_row_of_it_and_none_of_another(
    harness: Harness, plant: Callable[..., None], look: Callable[..., Any]
) -> None:
    beside = Harness(harness.store, (f"{harness.tenant}x", harness.tenant), clock=Clock(NOW))  # its name begins alike
    of_all = schedule("*", name=fresh())
    plant(of_all)
    live(harness)
    live(beside)
    kept = everything(beside)
    mine = everything(harness)
    removed = harness.facade.purge()
    assert set(removed) == {record.table for record in records.ALL}
    assert {table for table, count in removed.items() if not count} == {"workers"}
    assert removed["schedules"] == 3  # the deleted one too
    assert all(not part for part in everything(harness))
    for row in (*mine[0], *mine[2]):
        assert look(Schedule if isinstance(row, Schedule) else Run, row.id) is None
    assert everything(beside) == kept
    assert look(Schedule, of_all.id) is not None
    assert Scheduler(harness.store, harness.tenant).get(of_all.id, now=NOW) is not None
    with harness.store.session(beside.tenant, now=NOW) as session:
        assert session.statistics.runs(RunFilter()).total == len(kept[2])
    assert sum(harness.facade.purge().values()) == 0
