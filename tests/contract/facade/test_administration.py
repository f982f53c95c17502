"""Handlers that are seeded, a tenant that is removed."""

from collections.abc import Callable
from typing import Any

import pytest

from migrator import records
from migrator.errors import UsageError
from migrator.records import Run, Schedule
from migrator.scheduler.client import Scheduler
from migrator.store.statistics import RunFilter
from tests.contract.facade.yard import MINUTE, Yard
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


def test_seeding_twice_changes_nothing(yard: Yard) -> None:
    seeds = [handler(yard.tenant, name=name, handler_path=f"app.{name}") for name in ("sync", "clean")]
    first = yard.facade.seed_handlers(seeds, now=NOW)
    assert (first.added, first.unchanged, first.conflicting) == (("sync", "clean"), (), ())
    before = yard.everything()
    again = [handler(yard.tenant, name=name, handler_path=f"app.{name}") for name in ("sync", "clean")]
    second = yard.facade.seed_handlers(again, now=NOW)
    assert (second.added, second.unchanged, second.conflicting) == ((), ("sync", "clean"), ())
    assert yard.everything() == before


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
def test_a_second_seeder_that_differs_is_reported_and_wins_nothing(yard: Yard, other: dict[str, Any]) -> None:
    yard.facade.seed_handlers([handler(yard.tenant, name="sync", handler_path="app.sync")], now=NOW)
    before = yard.everything()
    found = yard.facade.seed_handlers([handler(yard.tenant, **other)], now=NOW)
    assert (found.added, found.unchanged, found.conflicting) == ((), (), (other["name"],))
    assert yard.everything() == before


def test_seeds_that_cannot_be_are_refused(yard: Yard) -> None:
    with pytest.raises(UsageError, match="handler a is named twice"):
        yard.facade.seed_handlers([handler(yard.tenant, name="a"), handler(yard.tenant, name="a")], now=NOW)
    with pytest.raises(UsageError, match="another tenant"):
        yard.facade.seed_handlers([handler(yard.tenant, name="b"), handler(fresh())], now=NOW)
    with pytest.raises(UsageError, match="name must not be blank"):
        yard.facade.seed_handlers([handler(yard.tenant, name=" ")], now=NOW)
    assert yard.everything()[-1] == ()


# -- removing a tenant


def live(yard: Yard) -> None:
    """Give a tenant a row in every table that has tenants."""
    yard.facade.seed_handlers([handler(yard.tenant)], now=NOW)
    yard.recurring()
    yard.later(MINUTE)
    yard.turn()
    yard.now = NOW
    with yard.store.session(yard.tenant, now=NOW) as session:
        of = session.schedules.upsert(schedule(yard.tenant))
        session.triggers.upsert(event_trigger(of, "push"))
        gone = session.schedules.upsert(schedule(yard.tenant))
        session.schedules.soft_delete(gone.id, "me")
        first = session.runs.create(run(yard.tenant, schedule_id=of.id, state="error"))
        session.runs.create(run(yard.tenant, retry_of=first.id))
        session.execution_logs.append([line(yard.tenant, run_id=first.id), line(yard.tenant)])
        session.impact_snapshots.insert(snapshot(yard.tenant, run_id=first.id))
        job = graph_job(yard.tenant)
        session.graph_jobs.insert(job)
        session.graph_jobs.try_replace(graph_job(yard.tenant, id=job.id, status=1), "pending")
        session.policy_jobs.insert(policy_job(yard.tenant, run_id="r"))
    lock = yard.store.locks.acquire(yard.tenant, "thing", ttl=MINUTE)
    assert lock is not None
    lock.release()


@pytest.mark.proves("2-P2")
def test_removing_a_tenant_removes_every_row_of_it_and_none_of_another(
    yard: Yard, plant: Callable[..., None], look: Callable[..., Any]
) -> None:
    beside = Yard(yard.store, f"{yard.tenant}x")  # its name begins alike
    of_all = schedule("*", name=fresh())
    plant(of_all)
    live(yard)
    live(beside)
    kept = beside.everything()
    mine = yard.everything()
    removed = yard.facade.purge()
    assert set(removed) == {record.table for record in records.ALL}
    assert {table for table, count in removed.items() if not count} == {"workers"}
    assert removed["schedules"] == 3  # the deleted one too
    assert all(not part for part in yard.everything())
    for row in (*mine[0], *mine[2]):
        assert look(Schedule if isinstance(row, Schedule) else Run, row.id) is None
    assert beside.everything() == kept
    assert look(Schedule, of_all.id) is not None
    assert Scheduler(yard.store, yard.tenant).get(of_all.id, now=NOW) is not None
    with yard.store.session(beside.tenant, now=NOW) as session:
        assert session.statistics.runs(RunFilter()).total == len(kept[2])
    assert sum(yard.facade.purge().values()) == 0
