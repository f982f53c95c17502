"""Retention: kept is what is among the newest or young; what goes is said."""

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import states
from migrator.errors import UsageError
from migrator.scheduler import retention
from migrator.scheduler.retention import RetentionRule
from migrator.store.protocols import RunQuery, Store
from migrator.verify.behaviour.harness import DAY, MINUTE, Clock, Harness
from tests.contract.rows import MILLISECOND, NOW, fresh, line, run, schedule

FEW = settings(max_examples=5, deadline=None)
DRAWN = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 60), st.sampled_from(["completed", "error", "running", "queued"])),
    max_size=30,
)


def fill(store: Store, tenant: str, drawn: list[Any]) -> tuple[list[Any], list[Any]]:
    """Write runs of two schedules, and of none, so many days old."""
    with store.session(tenant, now=NOW) as session:
        owners = [session.schedules.upsert(schedule(tenant)).id, session.schedules.upsert(schedule(tenant)).id, None]
        rows = [
            session.runs.create(run(tenant, schedule_id=owners[of], created_at=NOW - DAY * days, state=state))
            for of, days, state in drawn
        ]
    return owners, rows


def left(store: Store, tenant: str) -> set[Any]:
    with store.session(tenant, now=NOW) as session:
        return {row.id for row in session.runs.list(RunQuery(limit=1000)).runs}


@pytest.mark.proves("3-R1")
@FEW
@given(drawn=DRAWN, keep=st.integers(0, 6), days=st.integers(0, 40), batch=st.integers(1, 9))
def test_kept_is_exactly_what_is_among_the_newest_or_young_or_live(
    at_work: Store, drawn: list[Any], keep: int, days: int, batch: int
) -> None:
    tenant = fresh()
    owners, rows = fill(at_work, tenant, drawn)
    expected, gone = set(), Counter[Any]()
    for owner in owners:
        own = sorted((row for row in rows if row.schedule_id == owner), key=lambda row: row.id)
        own.sort(key=lambda row: row.created_at, reverse=True)
        for rank, row in enumerate(own, 1):
            young = row.created_at >= NOW - DAY * days
            if rank <= keep or young or not states.is_terminal(states.RUN, row.state):
                expected.add(row.id)
            else:
                gone[owner] += 1
    rule = RetentionRule(keep=keep, young=DAY * days, batch=batch)
    said = retention.apply(at_work, tenant, rule, dry_run=True, now=NOW)
    assert left(at_work, tenant) == {row.id for row in rows}  # nothing was written
    removed = retention.apply(at_work, tenant, rule, now=NOW)
    assert left(at_work, tenant) == expected
    assert dict(removed.by_schedule) == dict(said.by_schedule) == dict(gone)
    assert (removed.total, removed.dry_run, said.dry_run) == (sum(gone.values()), False, True)
    assert retention.apply(at_work, tenant, rule, now=NOW).total == 0


@pytest.mark.proves("3-R1")
def test_the_boundary_of_age_and_of_rank(harness: Harness) -> None:
    with harness.store.session(harness.tenant, now=NOW) as session:
        of = session.schedules.upsert(schedule(harness.tenant))
        ages = [timedelta(0), DAY * 30 - MILLISECOND, DAY * 30, DAY * 30 + MILLISECOND, DAY * 90]
        rows = [
            session.runs.create(run(harness.tenant, schedule_id=of.id, created_at=NOW - age, state="completed"))
            for age in ages
        ]
    retention.apply(harness.store, harness.tenant, RetentionRule(keep=0, young=DAY * 30), now=NOW)
    assert left(harness.store, harness.tenant) == {row.id for row in rows[:3]}  # of thirty days exactly: not older
    retention.apply(harness.store, harness.tenant, RetentionRule(keep=2, young=timedelta(0)), now=NOW + DAY)
    assert left(harness.store, harness.tenant) == {row.id for row in rows[:2]}


@pytest.mark.proves("3-R1", "4-C7")
@pytest.mark.parametrize(
    ("count", "every", "rule", "kept"),
    [
        (150, DAY, RetentionRule(), 100),
        (500, timedelta(hours=2), RetentionRule(), 360),
        (120, DAY, RetentionRule(keep=0, young=DAY * 90), 90),
    ],
    ids=["150 daily", "500 two-hourly", "90 days whatever the rank"],
)
def test_the_figures_of_the_source(count: int, every: timedelta, rule: RetentionRule, kept: int) -> None:
    """On the model: 150 daily leave 100; two-hourly those of 30 days; a rule of age alone is the third system's."""
    from migrator.testing.memory.store import MemoryStore  # noqa: PLC0415 - for this alone

    store, tenant = MemoryStore(), "t"
    with store.session(tenant, now=NOW) as session:
        of = session.schedules.upsert(schedule(tenant))
        for n in range(count):
            session.runs.create(
                run(tenant, schedule_id=of.id, created_at=NOW - every * n - MILLISECOND, state="completed")
            )
    removed = retention.apply(store, tenant, rule, now=NOW)
    assert (removed.total, len(left(store, tenant))) == (count - kept, kept)


@pytest.mark.proves("3-R3")
def test_run_numbers_go_on_after_retention(harness: Harness) -> None:
    job = harness.recurring()
    harness.run_until(NOW + 3 * MINUTE, MINUTE)
    assert [row.run_number for row in harness.runs(job)] == [1, 2, 3]
    harness.advance(DAY * 40)
    removed = retention.apply(harness.store, harness.tenant, RetentionRule(keep=0), now=harness.now)
    assert dict(removed.by_schedule) == {job.id: 3}
    assert harness.runs(job) == []
    assert harness.facade.trigger_now(job.id, now=harness.now).run_number == 4


def test_summaries_stay_what_the_runs_say_and_logs_go_with_their_runs(harness: Harness) -> None:
    job = harness.recurring()
    harness.run_until(NOW + 2 * MINUTE, MINUTE)
    old, new = harness.runs(job)
    with harness.store.session(harness.tenant, now=NOW) as session:
        session.execution_logs.append([line(harness.tenant, run_id=old.id)])
    retention.apply(harness.store, harness.tenant, RetentionRule(keep=1, young=timedelta(0)), now=harness.now + DAY)
    with harness.store.session(harness.tenant, now=harness.now) as session:
        stored = session.run_summaries.get(job.id)
        assert session.execution_logs.of_run(old.id) == []
        assert stored is not None
        again = session.run_summaries.recompute(job.id)
        assert (stored.counters, stored.recent) == (again.counters, again.recent)
        entries = session.audit.list(10, action=retention.REMOVED)
    assert [entry.metadata for entry in entries] == [b'{"keep":"1","runs":"1"}']
    assert [row.id for row in harness.runs(job)] == [new.id]


@pytest.mark.proves("3-R2", "0-X2")
def test_other_tenants_are_served_each_by_itself(harness: Harness) -> None:
    beside = Harness(harness.store, (fresh(), fresh()), clock=Clock(NOW))
    scratch = f"~verify-{uuid4().hex[:8]}"
    for tenant in (harness.tenant, beside.tenant, scratch):
        fill(harness.store, tenant, [(0, 50, "completed"), (0, 1, "completed")])
    assert retention.apply(harness.store, harness.tenant, RetentionRule(keep=0), now=NOW).total == 1
    assert len(left(harness.store, beside.tenant)) == 2
    named = retention.apply_all(harness.store, RetentionRule(keep=0), tenants=[harness.tenant, beside.tenant], now=NOW)
    assert [(one.tenant, one.total) for one in named] == [(harness.tenant, 0), (beside.tenant, 1)]
    # All of them: the other tests' rows are there too, so nothing is removed here.
    every = retention.apply_all(harness.store, RetentionRule(keep=10**6), dry_run=True, now=NOW)
    tenants = [one.tenant for one in every]
    assert {harness.tenant, beside.tenant} <= set(tenants)
    assert scratch not in tenants
    assert "*" not in tenants


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (RetentionRule(keep=-1), "keep must not be negative"),
        (RetentionRule(young=-DAY), "an age must not be negative"),
        (RetentionRule(batch=0), "a batch must be at least 1"),
    ],
    ids=["keep", "age", "batch"],
)
def test_a_rule_that_is_none_is_refused(harness: Harness, rule: RetentionRule, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        retention.apply(harness.store, harness.tenant, rule, now=NOW)
