"""Figures over schedules and runs: counted by each backend as a walk over all of them counts."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import states
from migrator.errors import UsageError
from migrator.records import Run, Schedule
from migrator.store.protocols import Session, SessionStore
from migrator.store.statistics import Backlog, RunFilter
from tests.contract.rows import MILLISECOND, NOW, SECOND, event_trigger, fresh, run, schedule, trigger

HOUR = timedelta(hours=1)
FEW = settings(max_examples=6, deadline=None)
ERRORS = st.sampled_from([None, "timeout: too long", "timeout: later", "refused", ": empty", "a: b: c"])
DRAWN = st.tuples(
    st.sampled_from([*states.RUN]), st.integers(0, 30), st.none() | st.integers(0, 9), st.integers(0, 5000), ERRORS
)
RUNS = st.lists(DRAWN, max_size=25)


def ended(tenant: str, of: Schedule | None, drawn: tuple[Any, ...]) -> Run:
    """Return a run in a state, made some hours ago, started some hours later, that took some milliseconds."""
    state, hours, waited, lasted, error = drawn
    created = NOW - HOUR * hours
    over = states.is_terminal(states.RUN, state)
    started = None if waited is None or state in {"planning", "queued", "skipped"} else created + HOUR * waited
    return run(
        tenant,
        schedule_id=None if of is None else of.id,
        state=state,
        created_at=created,
        started_at=started,
        finished_at=None if not over else (started or created) + MILLISECOND * lasted,
        error=error if state in {"error", "timeout"} else None,
        available_at=created + HOUR * 12 if state == "queued" and lasted % 2 else None,
    )


def fill(store: SessionStore, tenant: str, drawn: list[Any]) -> tuple[UUID, list[Run]]:
    with store.session(tenant, now=NOW) as session:
        of = session.schedules.upsert(schedule(tenant))
        other = session.schedules.upsert(schedule(tenant))
        owners = [of, of, None, other]
        runs = [session.runs.create(ended(tenant, owners[n % 4], one)) for n, one in enumerate(drawn)]
    with store.session(fresh(), now=NOW) as session:  # rows of another tenant, which count nowhere
        session.runs.create(run(session.tenant, state="running", started_at=NOW))
    return of.id, runs


def walked(runs: list[Run], where: RunFilter) -> list[Run]:
    return [
        one
        for one in runs
        if where.schedule_id in {None, one.schedule_id}
        and (where.since is None or one.created_at >= where.since)
        and (where.until is None or one.created_at < where.until)
    ]


def filters(of: UUID) -> list[RunFilter]:
    early, late = NOW - HOUR * 20, NOW - HOUR * 5
    return [
        RunFilter(),
        RunFilter(schedule_id=of),
        RunFilter(since=early, until=late),
        RunFilter(schedule_id=of, since=late),
        RunFilter(until=early),
    ]


@pytest.mark.proves("3-B9", "3-B10", "2-F16", "2-F18")
@FEW
@given(drawn=RUNS)
def test_runs_are_counted_as_a_walk_over_all_counts_them(store: SessionStore, drawn: list[Any]) -> None:
    tenant = fresh()
    of, runs = fill(store, tenant, drawn)
    with store.session(tenant, now=NOW) as session:
        for where in filters(of):
            found, rows = session.statistics.runs(where), walked(runs, where)
            counts = Counter(one.state for one in rows)
            assert dict(found.by_state) == {state: counts[state] for state in states.RUN}
            assert found.total == len(rows)
            assert found.last_created_at == max((one.created_at for one in rows), default=None)
            assert found.last_started_at == max((one.started_at for one in rows if one.started_at), default=None)
            lasted = sorted(one.duration_ms for one in rows if one.state == "completed" and one.duration_ms is not None)
            assert (found.durations is None) == (not lasted)
            if found.durations is not None:
                durations = found.durations
                assert (durations.count, durations.total) == (len(lasted), sum(lasted))
                assert (durations.least, durations.most) == (lasted[0], lasted[-1])
                for percentile, value in ((50, durations.p50), (95, durations.p95), (99, durations.p99)):
                    assert value in lasted
                    assert 100 * len([one for one in lasted if one <= value]) >= percentile * len(lasted)
                    assert 100 * len([one for one in lasted if one < value]) < percentile * len(lasted)


@FEW
@given(drawn=RUNS)
def test_failures_and_hours_are_counted_as_a_walk_counts_them(store: SessionStore, drawn: list[Any]) -> None:
    tenant = fresh()
    of, runs = fill(store, tenant, drawn)
    with store.session(tenant, now=NOW) as session:
        for where in filters(of):
            rows = walked(runs, where)
            failed: dict[str, list[datetime]] = {}
            for one in rows:
                if one.state in {"error", "timeout"}:
                    pattern = one.state if one.error is None else one.error.split(":")[0]
                    failed.setdefault(pattern, []).append(one.finished_at or one.created_at)
            expected = sorted(((-len(all_), name, max(all_)) for name, all_ in failed.items()))
            found = session.statistics.failures(where, 3)
            assert [(-one.count, one.pattern, one.last_at) for one in found] == expected[:3]
            hours = Counter((one.started_at or one.created_at).hour for one in rows)
            assert dict(session.statistics.hours(where)) == dict(hours)


@FEW
@given(drawn=RUNS)
def test_the_backlog_is_what_waits_and_what_runs(store: SessionStore, drawn: list[Any]) -> None:
    tenant = fresh()
    _, runs = fill(store, tenant, drawn)
    queued = [one.available_at or one.created_at for one in runs if one.state == "queued"]
    ready = [at for at in queued if at <= NOW]
    running = [one for one in runs if one.state == "running"]
    with store.session(tenant, now=NOW) as session:
        assert session.statistics.backlog() == Backlog(
            ready=len(ready),
            delayed=len(queued) - len(ready),
            planning=len([one for one in runs if one.state == "planning"]),
            running=len(running),
            running_schedules=len({one.schedule_id for one in running if one.schedule_id is not None}),
            oldest_ready_at=min(ready, default=None),
        )


def test_a_run_is_ready_at_the_instant_at_which_it_becomes_available(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        session.runs.create(run(tenant, available_at=NOW))
        session.runs.create(run(tenant, available_at=NOW + MILLISECOND))
        found = session.statistics.backlog()
    assert (found.ready, found.delayed) == (1, 1)


@pytest.mark.proves("4-S5")
def test_schedules_are_counted_by_status_without_those_deleted(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        for status in states.SCHEDULE:
            session.schedules.upsert(schedule(tenant, status=status, enabled=status != "paused"))
        gone = session.schedules.upsert(schedule(tenant, status="failed"))
        session.schedules.soft_delete(gone.id, "me")
        found = session.statistics.schedules()
    assert dict(found.by_status) == dict.fromkeys(states.SCHEDULE, 1)
    assert (found.total, found.enabled) == (7, 6)


@pytest.mark.proves("4-S5")
def test_the_next_fires_are_those_of_schedules_that_may_run(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        expected = []
        for n, status in enumerate(states.SCHEDULE):
            of = session.schedules.upsert(schedule(tenant, status=status, name=status))
            fire = session.triggers.upsert(trigger(of, next_fire_at=NOW - SECOND * n))
            session.triggers.upsert(trigger(of, enabled=False))
            session.triggers.upsert(event_trigger(of, "push"))
            if status in {"pending", "scheduled", "running"}:
                expected.append((fire.next_fire_at, of.id, fire.id, status))
        disabled = session.schedules.upsert(schedule(tenant, enabled=False))
        session.triggers.upsert(trigger(disabled))
        found = [(one.at, one.schedule_id, one.trigger_id, one.name) for one in session.statistics.next_fires(10)]
        assert found == expected[::-1]
        assert len(session.statistics.next_fires(2)) == 2


def test_the_empty_tenant_has_statistics_too(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        found = session.statistics.runs(RunFilter())
        assert (found.total, found.durations, found.last_started_at) == (0, None, None)
        assert session.statistics.failures(RunFilter(), 5) == []
        assert session.statistics.hours(RunFilter()) == {}
        assert session.statistics.backlog().ready == 0
        assert session.statistics.schedules().total == 0
        assert session.statistics.next_fires(5) == []


@pytest.mark.parametrize("call", ["failures", "next_fires"])
def test_a_limit_below_one_is_refused(store: SessionStore, tenant: str, call: str) -> None:
    def ask(session: Session) -> Any:  # noqa: ANN401 - either answer
        return session.statistics.next_fires(0) if call == "next_fires" else session.statistics.failures(RunFilter(), 0)

    with store.session(tenant, now=NOW) as session, pytest.raises(UsageError, match="a limit must be at least 1"):
        ask(session)
