"""Runs change by compare-and-set, along the machine's edges; their times and stats follow rules."""

from datetime import timedelta
from threading import Barrier, Thread
from typing import Any
from uuid import uuid4

import pytest

from migrator import states
from migrator.errors import ConflictError, NotFoundError, TransitionError, UsageError
from migrator.records import Run
from migrator.store.protocols import SessionStore
from migrator.values import jsonb
from tests.contract.rows import NOW, SECOND, bare, changed, ids, run, schedule, trigger
from tests.state_squares import STATES, is_allowed
from tests.state_squares import TERMINAL as ENDS

LATER = NOW + SECOND
TERMINAL = [state for state in STATES["run"] if state in ENDS["run"]]
LIVE = [state for state in STATES["run"] if state not in TERMINAL]


def created(store: SessionStore, tenant: str, **columns: Any) -> Run:  # noqa: ANN401 - columns have all types
    with store.session(tenant, now=NOW) as session:
        return session.runs.create(run(tenant, **columns))


def updated(store: SessionStore, row: Run, expected: str) -> Run:
    """Update a run that is ``expected``, a second later; return what is stored then."""
    with store.session(row.tenant_id, now=LATER) as session:
        assert session.runs.update(row, expected) is True
        found = session.runs.get(row.id)
        assert found is not None
        return found


@pytest.mark.proves("0-T2.4.2", "1-G3")
@pytest.mark.parametrize("state", STATES["run"])
def test_every_pair_of_states_is_as_the_specification_says(state: str, store: SessionStore, tenant: str) -> None:
    for follower in STATES["run"]:
        row = created(store, tenant, state=state)
        legal = is_allowed("run", state, follower) or (state == follower and state in LIVE)
        with store.session(tenant, now=LATER) as session:
            if legal:
                assert session.runs.update(changed(row, state=follower), state) is True
            else:
                with pytest.raises(TransitionError):
                    session.runs.update(changed(row, state=follower), state)
            found = session.runs.get(row.id)
            assert found is not None
            assert found.state == (follower if legal else state)
            if not legal:
                assert found == row


@pytest.mark.proves("0-T2.4.2")
def test_a_writer_whose_knowledge_is_old_gets_false_and_changes_nothing(store: SessionStore, tenant: str) -> None:
    row = created(store, tenant)
    with store.session(tenant, now=LATER) as session:
        assert session.runs.update(changed(row, state="running", worker_id="one"), "queued") is True
    with store.session(tenant, now=LATER) as session:
        assert session.runs.update(changed(row, state="running", worker_id="two"), "queued") is False
        found = session.runs.get(row.id)
        assert found is not None
        assert found.worker_id == "one"


def test_an_update_of_what_is_not_there_is_false_an_illegal_one_an_error(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        assert session.runs.update(run(tenant, state="running"), "queued") is False
        with pytest.raises(TransitionError):
            session.runs.update(run(tenant, state="queued"), "completed")
        with pytest.raises(UsageError):
            session.runs.update(run(tenant, state="running"), "no such")


@pytest.mark.proves("0-T2.4.2")
def test_of_several_writers_at_the_same_time_one_wins(store: SessionStore, tenant: str) -> None:
    row, writers = created(store, tenant), 5
    barrier, won = Barrier(writers), []

    def write(name: str) -> None:
        barrier.wait()
        try:
            with store.session(tenant, now=LATER) as session:
                mine = session.runs.update(changed(row, state="running", worker_id=name), "queued")
        except ConflictError:
            return  # the backend ended this session: nothing of it is kept
        if mine:
            won.append(name)

    threads = [Thread(target=write, args=(f"w{place}",)) for place in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.session(tenant, now=LATER) as session:
        found = session.runs.get(row.id)
    assert found is not None
    assert [found.worker_id] == won


@pytest.mark.proves("0-T2.4.1")
def test_an_update_replaces_all_but_what_the_store_keeps(store: SessionStore, tenant: str) -> None:
    row = created(store, tenant, cause="api", trace_id="t", reason=b'{"manualReason":"x"}')
    other = run(
        tenant, id=row.id, created_at=LATER, run_number=9, cause="event", error="e", metadata=b'{"b":2}', updated_at=NOW
    )
    found = updated(store, other, "queued")
    assert bare(found) == changed(other, created_at=NOW, run_number=row.run_number, updated_at=LATER)


@pytest.mark.proves("0-T2.4.2")
def test_started_at_is_stamped_once(store: SessionStore, tenant: str) -> None:
    given = created(store, tenant)
    assert updated(store, changed(given, state="running", started_at=NOW), "queued").started_at == NOW
    row = updated(store, changed(created(store, tenant), state="running"), "queued")
    assert (row.started_at, row.finished_at, row.duration_ms) == (LATER, None, None)
    with store.session(tenant, now=LATER + SECOND) as session:
        for other in (None, NOW, LATER + SECOND):
            assert session.runs.update(changed(row, started_at=other), "running") is True
        found = session.runs.get(row.id)
        assert found is not None
        assert found.started_at == LATER


@pytest.mark.proves("0-T2.4.2")
@pytest.mark.parametrize("state", TERMINAL)
def test_finished_at_and_the_duration_come_with_the_end(state: str, store: SessionStore, tenant: str) -> None:
    before = "queued" if state == "skipped" else "running"
    row = created(store, tenant, state=before, started_at=None if state == "skipped" else NOW - SECOND)
    found = updated(store, changed(row, state=state, duration_ms=7), before)
    assert (found.finished_at, found.duration_ms) == (LATER, None if state == "skipped" else 2000)
    assert found.updated_at == LATER
    row = created(store, tenant, state=before)
    assert updated(store, changed(row, state=state, finished_at=NOW), before).finished_at == NOW


@pytest.mark.proves("3-A15")
@pytest.mark.parametrize(
    ("lasted", "duration"),
    [(timedelta(0), 0), (timedelta(milliseconds=2500), 2500), (timedelta(microseconds=1999), 1)],
)
def test_the_duration_is_computed_when_a_run_is_made_complete_and_when_it_is_completed(
    lasted: timedelta, duration: int, store: SessionStore, tenant: str
) -> None:
    times = {"started_at": NOW, "finished_at": NOW + lasted}
    assert created(store, tenant, state="completed", **times).duration_ms == duration
    row = created(store, tenant, state="running", started_at=NOW)
    assert row.duration_ms is None
    assert updated(store, changed(row, state="completed", **times), "running").duration_ms == duration


@pytest.mark.proves("0-T2.4.2")
def test_a_live_run_has_no_end_and_times_that_contradict_each_other_give_no_duration(
    store: SessionStore, tenant: str
) -> None:
    row = created(store, tenant)
    found = updated(store, changed(row, state="running", finished_at=LATER, duration_ms=5), "queued")
    assert (found.finished_at, found.duration_ms) == (None, None)
    ended = updated(store, changed(found, state="completed", finished_at=NOW), "running")
    assert (ended.started_at, ended.finished_at, ended.duration_ms) == (LATER, NOW, None)


@pytest.mark.proves("0-T2.4.2")
def test_numbers_in_stats_never_decrease_and_none_is_lost(store: SessionStore, tenant: str) -> None:
    row = created(store, tenant, state="running", stats=b'{"candidates":5,"completed":2,"deltas":1}')
    row = updated(store, changed(row, stats=b'{"candidates":3,"completed":4,"queued":1}'), "running")
    assert jsonb.decode(row.stats or b"") == {"candidates": 5, "completed": 4, "deltas": 1, "queued": 1}
    assert updated(store, changed(row, stats=None), "running").stats == row.stats
    empty = created(store, tenant, state="running")
    assert updated(store, changed(empty, stats=b'{"queued":1}'), "running").stats == b'{"queued":1}'


def test_only_a_reference_that_changes_is_looked_up(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        row = session.runs.create(run(tenant, schedule_id=of.id))
        session.schedules.soft_delete(of.id, "me")
        assert session.runs.update(changed(row, state="running"), "queued") is True
        for column in ("schedule_id", "trigger_id", "retry_of"):
            with pytest.raises(NotFoundError):
                session.runs.update(changed(row, state="running", **{column: uuid4()}), "running")


def test_an_update_cannot_take_another_run_s_slot(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    cause = trigger(of)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        session.triggers.upsert(cause)
        session.runs.create(run(tenant, trigger_id=cause.id, scheduled_at=NOW))
        other = session.runs.create(run(tenant, trigger_id=cause.id, scheduled_at=LATER))
        with pytest.raises(ConflictError):
            session.runs.update(changed(other, scheduled_at=NOW), "queued")
        found = session.runs.get(other.id)
        assert found == other


@pytest.mark.proves("0-T2.4.2")
@pytest.mark.parametrize("state", states.RUN)
def test_a_live_run_is_cancelled_an_ended_one_is_not(state: str, store: SessionStore, tenant: str) -> None:
    row = created(store, tenant, state=state, started_at=NOW, worker_id="w", fence=3, lease_expires_at=LATER)
    with store.session(tenant, now=LATER) as session:
        found = session.runs.cancel(row.id, "enough")
        if state in TERMINAL:
            assert found is None
            assert session.runs.get(row.id) == row
            return
        assert found is not None
        assert bare(found) == changed(
            bare(row),
            state="cancelled",
            error="enough",
            finished_at=LATER,
            updated_at=LATER,
            duration_ms=1000,
            lease_expires_at=None,
        )
        assert session.runs.get(row.id) == found
        assert session.runs.cancel(row.id, "again") is None


@pytest.mark.proves("0-T2.4.2")
def test_all_live_runs_of_a_schedule_are_cancelled(store: SessionStore, tenant: str) -> None:
    of, other = schedule(tenant), schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        for each in (of, other):
            session.schedules.upsert(each)
        rows = [session.runs.create(run(tenant, schedule_id=of.id, state=state)) for state in states.RUN]
        elsewhere = session.runs.create(run(tenant, schedule_id=other.id))
        assert session.runs.cancel_of_schedule(of.id, "enough") == len(LIVE)
        assert session.runs.cancel_of_schedule(of.id, "enough") == 0
        found = session.runs.of_schedule(of.id, 20)
        assert sorted(ids(found)) == sorted(ids(rows))
        assert {each.state for each in found} == set(TERMINAL)
        assert session.runs.get(elsewhere.id) == elsewhere
        assert session.runs.cancel(uuid4(), "x") is None
