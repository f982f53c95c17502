"""Runs: created with numbers, slots and dedupe keys, got, and listed by what waits and by schedule."""

from collections.abc import Callable
from threading import Barrier, Thread
from uuid import uuid4

import pytest

from migrator.errors import ConflictError, NotFoundError, UsageError
from migrator.store.protocols import RunQuery, SessionStore
from tests.contract.rows import NOW, SECOND, bare, changed, fresh, ids, line, run, schedule, snapshot, trigger

LATER = NOW + SECOND


@pytest.mark.proves("0-T2.4.1")
def test_a_run_is_created_and_got(store: SessionStore, tenant: str) -> None:
    one = run(tenant, run_number=77, cause="api", trace_id="t", updated_at=None)
    with store.session(tenant, now=LATER) as session:
        made = session.runs.create(one)
        assert bare(made) == changed(one, run_number=None, updated_at=LATER)
        found = session.runs.get(one.id)
        assert found is not None
        assert bare(found) == bare(made)
        assert session.runs.get(uuid4()) is None


@pytest.mark.proves("0-T2.4.1")
def test_an_id_is_taken_once(store: SessionStore, tenant: str) -> None:
    one = run(tenant)
    with store.session(tenant, now=NOW) as session:
        session.runs.create(one)
        with pytest.raises(ConflictError):
            session.runs.create(changed(one, cause="api"))
        assert len(session.runs.list(RunQuery()).runs) == 1


@pytest.mark.proves("0-T2.4.1")
def test_numbers_count_up_per_schedule(store: SessionStore, tenant: str) -> None:
    one, other = schedule(tenant), schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        for each in (one, other):
            session.schedules.upsert(each)
        given = [session.runs.create(run(tenant, schedule_id=one.id)).run_number for _ in range(3)]
        assert given == [1, 2, 3]
        assert session.runs.create(run(tenant, schedule_id=other.id)).run_number == 1
        assert session.runs.create(run(tenant)).run_number is None
    with store.session(tenant, now=NOW) as session:
        assert session.runs.create(run(tenant, schedule_id=one.id)).run_number == 4


@pytest.mark.proves("0-T2.4.1", "5-A2")
def test_the_newest_run_of_each_schedule_in_some_states(store: SessionStore, tenant: str) -> None:
    busy, idle, live = schedule(tenant), schedule(tenant), schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        for each in (busy, idle, live):
            session.schedules.upsert(each)
        for state, after in (("completed", 0), ("error", 2), ("cancelled", 1), ("queued", 3)):
            session.runs.create(run(tenant, schedule_id=busy.id, state=state, created_at=NOW + SECOND * after))
        session.runs.create(run(tenant, schedule_id=live.id))
        session.runs.create(run(tenant, state="completed"))
    with store.session(tenant, now=NOW) as session:
        every = [live.id, busy.id, idle.id]
        found = session.runs.newest_of(every, ["completed", "cancelled", "error"])
        assert [(one.schedule_id, one.state) for one in found] == [(busy.id, "error")]
        found = session.runs.newest_of(every, ["queued", "completed"])
        assert [(one.schedule_id, one.state) for one in found] == [(live.id, "queued"), (busy.id, "queued")]
        assert session.runs.newest_of([], ["completed"]) == []
        assert session.runs.newest_of([uuid4()], ["completed"]) == []


@pytest.mark.proves("0-T2.4.1")
def test_a_number_is_not_given_again_after_retention(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        made = [session.runs.create(run(tenant, schedule_id=of.id, state="completed")) for _ in range(3)]
        assert session.runs.remove(ids(made)) == 3
    with store.session(tenant, now=NOW) as session:
        session.run_summaries.recompute(of.id)
        assert session.runs.create(run(tenant, schedule_id=of.id)).run_number == 4


@pytest.mark.proves("0-T2.4.1")
def test_a_refused_create_takes_no_number(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        first = session.runs.create(run(tenant, schedule_id=of.id))
        with pytest.raises(ConflictError):
            session.runs.create(run(tenant, id=first.id, schedule_id=of.id))
        assert session.runs.create(run(tenant, schedule_id=of.id)).run_number == 2


@pytest.mark.proves("0-T2.4.1")
def test_a_number_is_one_more_than_the_highest_there_is(
    store: SessionStore, tenant: str, plant: Callable[..., None]
) -> None:
    """Migrated runs have numbers, and no counter."""
    of = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
    plant(run(tenant, schedule_id=of.id, run_number=41, state="completed", updated_at=NOW))
    with store.session(tenant, now=NOW) as session:
        assert [session.runs.create(run(tenant, schedule_id=of.id)).run_number for _ in range(2)] == [42, 43]


@pytest.mark.proves("0-T2.4.1")
def test_sessions_at_the_same_time_share_the_numbers_out(store: SessionStore, tenant: str) -> None:
    of, writers = schedule(tenant), 4
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
    barrier = Barrier(writers)

    def write() -> None:
        barrier.wait()
        for _ in range(3):
            while True:
                try:
                    with store.session(tenant, now=NOW) as session:
                        session.runs.create(run(tenant, schedule_id=of.id))
                    break
                except ConflictError:
                    continue  # a backend may end one of two that write the same key; nothing of it is kept

    threads = [Thread(target=write) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.session(tenant, now=NOW) as session:
        numbers = [each.run_number for each in session.runs.of_schedule(of.id, 50)]
    assert sorted(number or 0 for number in numbers) == [*range(1, 3 * writers + 1)]


@pytest.mark.proves("0-X2")
def test_runs_of_a_global_schedule_have_no_number(store: SessionStore, tenant: str, plant: Callable[..., None]) -> None:
    of = schedule("*", name=fresh(), created_at=NOW, updated_at=NOW)
    plant(of)
    with store.session(tenant, now=NOW) as session:
        assert session.runs.create(run(tenant, schedule_id=of.id)).run_number is None
        assert session.run_summaries.get(of.id) is None


@pytest.mark.proves("0-T2.4.1")
def test_a_slot_of_a_trigger_is_taken_once_per_attempt(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    cause, other = trigger(of), trigger(of)
    slot = {"schedule_id": of.id, "trigger_id": cause.id, "scheduled_at": NOW}
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        for each in (cause, other):
            session.triggers.upsert(each)
        first = session.runs.create(run(tenant, **slot))
        assert first.attempt == 1
        for attempt in (None, 1):
            with pytest.raises(ConflictError):
                session.runs.create(run(tenant, **slot | {"attempt": attempt}))
        again = session.runs.create(run(tenant, **slot | {"attempt": 2, "retry_of": first.id, "cause": "retry"}))
        assert (again.attempt, again.retry_of) == (2, first.id)
        session.runs.create(run(tenant, **slot | {"scheduled_at": LATER}))
        session.runs.create(run(tenant, **slot | {"trigger_id": other.id}))
        for _ in range(2):  # a forced run has no slot
            forced = session.runs.create(run(tenant, **slot | {"scheduled_at": None}))
            assert forced.attempt is None


@pytest.mark.proves("0-T2.4.1")
def test_a_dedupe_key_is_taken_once_per_trigger(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    cause, other = trigger(of), trigger(of)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        for each in (cause, other):
            session.triggers.upsert(each)
        session.runs.create(run(tenant, trigger_id=cause.id, dedupe_key="k"))
        with pytest.raises(ConflictError):
            session.runs.create(run(tenant, trigger_id=cause.id, dedupe_key="k"))
        session.runs.create(run(tenant, trigger_id=other.id, dedupe_key="k"))
        session.runs.create(run(tenant, trigger_id=cause.id, dedupe_key="K"))
        for _ in range(2):  # without a trigger the key says nothing
            session.runs.create(run(tenant, dedupe_key="k"))
        assert len(session.runs.list(RunQuery()).runs) == 5


@pytest.mark.proves("0-T2.4.1", "0-X2")
def test_a_run_refers_only_to_what_the_tenant_sees(store: SessionStore, tenant: str) -> None:
    elsewhere = fresh()
    theirs, gone = schedule(elsewhere), schedule(tenant)
    cause = trigger(theirs)
    with store.session(elsewhere, now=NOW) as session:
        session.schedules.upsert(theirs)
        session.triggers.upsert(cause)
        their_run = session.runs.create(run(elsewhere))
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(gone)
        session.schedules.soft_delete(gone.id, "me")
        for columns in (
            {"schedule_id": theirs.id},
            {"schedule_id": uuid4()},
            {"schedule_id": gone.id},
            {"trigger_id": cause.id},
            {"trigger_id": uuid4()},
            {"retry_of": their_run.id},
            {"retry_of": uuid4()},
        ):
            with pytest.raises(NotFoundError):
                session.runs.create(run(tenant, **columns))
        assert session.runs.list(RunQuery()).runs == ()


@pytest.mark.proves("0-X2")
def test_of_what_is_global_only_schedules_and_triggers_are_referred_to(
    store: SessionStore, tenant: str, plant: Callable[..., None]
) -> None:
    of, theirs = schedule("*", name=fresh(), created_at=NOW, updated_at=NOW), run("*", updated_at=NOW)
    cause = trigger(of)
    plant(of, cause, theirs)
    with store.session(tenant, now=NOW) as session:
        made = session.runs.create(run(tenant))
        assert session.runs.update(changed(made, schedule_id=of.id, trigger_id=cause.id), "queued") is True
        assert session.runs.get(theirs.id) is not None
        with pytest.raises(NotFoundError):
            session.runs.create(run(tenant, retry_of=theirs.id))
        with pytest.raises(NotFoundError):
            session.runs.update(changed(made, retry_of=theirs.id), "queued")
        with pytest.raises(NotFoundError):
            session.impact_snapshots.insert(snapshot(tenant, run_id=theirs.id))
        with pytest.raises(NotFoundError):
            session.execution_logs.append([line(tenant, run_id=theirs.id)])
        assert ids(session.runs.list(RunQuery()).runs) == [made.id]
        assert session.runs.cancel(theirs.id, "x") is None


@pytest.mark.proves("0-T2.4.1")
def test_pending_runs_are_the_planning_and_queued_ones_oldest_first(store: SessionStore, tenant: str) -> None:
    states = ["queued", "planning", "running", "queued", "completed", "planning", "cancelled", "queued"]
    rows = [run(tenant, state=state, created_at=NOW + SECOND * (place % 3)) for place, state in enumerate(states)]
    with store.session(tenant, now=NOW) as session:
        for row in rows:
            session.runs.create(row)
        waiting = [row for row in rows if row.state in {"queued", "planning"}]
        expected = ids(sorted(waiting, key=lambda row: (row.created_at, row.id)))
        assert ids(session.runs.pending(10)) == expected
        assert ids(session.runs.pending(2)) == expected[:2]
        for limit in (0, -1):
            with pytest.raises(UsageError):
                session.runs.pending(limit)


@pytest.mark.proves("0-T2.4.1")
def test_runs_of_a_schedule_come_newest_first_ties_by_id(store: SessionStore, tenant: str) -> None:
    of, other = schedule(tenant), schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        for each in (of, other):
            session.schedules.upsert(each)
        rows = [
            session.runs.create(run(tenant, schedule_id=of.id, created_at=NOW + SECOND * (place % 2)))
            for place in range(5)
        ]
        session.runs.create(run(tenant, schedule_id=other.id))
        session.runs.create(run(tenant))
        late = sorted(row.id for row in rows if row.created_at > NOW)
        early = sorted(row.id for row in rows if row.created_at == NOW)
        assert ids(session.runs.of_schedule(of.id, 10)) == [*late, *early]
        assert ids(session.runs.of_schedule(of.id, 3)) == [*late, *early][:3]
        assert session.runs.of_schedule(uuid4(), 10) == []
        with pytest.raises(UsageError):
            session.runs.of_schedule(of.id, 0)


@pytest.mark.parametrize(
    "columns", [{"state": "no such"}, {"duration_ms": -1}, {"created_at": NOW.replace(tzinfo=None)}]
)
def test_a_run_that_the_table_refuses_is_refused_everywhere(
    columns: dict[str, object], store: SessionStore, tenant: str
) -> None:
    with store.session(tenant, now=NOW) as session:
        with pytest.raises(UsageError):
            session.runs.create(run(tenant, **columns))
        assert session.runs.list(RunQuery()).runs == ()
