"""Run summaries: made by the first run, computed from the runs whenever asked."""

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import states
from migrator.errors import NotFoundError, UsageError
from migrator.store.protocols import SessionStore
from migrator.values import jsonb
from tests.contract.rows import NOW, SECOND, fresh, ids, run, schedule

LATER = NOW + SECOND
STATS = st.none() | st.fixed_dictionaries(
    {}, optional={name: st.integers(0, 9) for name in ("deltas", "newCriticals", "newLow", "candidates")}
)
ROWS = st.lists(st.tuples(st.sampled_from([*states.RUN]), st.integers(-2, 2), STATS), min_size=1, max_size=7)


@pytest.mark.proves("0-T2.4.1")
def test_the_first_run_makes_a_summary_that_holds_the_counter(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        assert session.run_summaries.get(of.id) is None
        for number in (1, 2):
            session.runs.create(run(tenant, schedule_id=of.id))
            found = session.run_summaries.get(of.id)
            assert found is not None
            assert (found.tenant_id, found.schedule_id) == (tenant, of.id)
            assert jsonb.decode(found.counters or b"{}")["lastRunNumber"] == number
    with store.session(fresh(), now=NOW) as session:
        assert session.run_summaries.get(of.id) is None


@pytest.mark.proves("0-T2.4.1")
@settings(max_examples=12, deadline=None)
@given(rows=ROWS, recent=st.integers(1, 4))
def test_a_summary_is_what_a_walk_over_the_runs_finds(store: SessionStore, rows: list[Any], recent: int) -> None:
    tenant = fresh()
    of, other = schedule(tenant), schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        for each in (of, other):
            session.schedules.upsert(each)
        session.runs.create(run(tenant, schedule_id=other.id, state="completed", stats=b'{"deltas":99}'))
        made = [
            session.runs.create(
                run(
                    tenant,
                    schedule_id=of.id,
                    state=state,
                    created_at=NOW + SECOND * second,
                    stats=None if stats is None else jsonb.encode(stats),
                    error="e" if state == "error" else None,
                )
            )
            for state, second, stats in rows
        ]
    with store.session(tenant, now=LATER) as session:
        found = session.run_summaries.recompute(of.id, recent)
        assert session.run_summaries.get(of.id) == found
    assert (found.tenant_id, found.schedule_id, found.updated_at) == (tenant, of.id, LATER)
    counters = jsonb.decode(found.counters or b"")
    assert counters["total"] == len(made)
    for state in states.RUN:
        assert counters[state] == sum(row.state == state for row in made)
    for member, total in (("deltas", "totalDeltas"), ("newCriticals", "totalNewCriticals"), ("newLow", "totalNewLow")):
        assert counters[total] == sum((stats or {}).get(member, 0) for _, _, stats in rows)
    assert counters["lastRunNumber"] == len(made)
    newest = sorted(sorted(made, key=lambda row: row.id), key=lambda row: row.created_at, reverse=True)
    entries = jsonb.decode(found.recent or b"")
    assert [entry["runId"] for entry in entries] == [f"run_{identity.hex}" for identity in ids(newest)][:recent]
    assert [entry["state"] for entry in entries] == [row.state for row in newest][:recent]
    assert jsonb.decode(found.last_run or b"") == entries[0]


@pytest.mark.proves("0-T2.4.1")
def test_a_summary_computed_again_is_the_same(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        for _ in range(3):
            session.runs.create(run(tenant, schedule_id=of.id, stats=b'{"deltas":1}'))
        first = session.run_summaries.recompute(of.id)
    with store.session(tenant, now=NOW) as session:
        assert session.run_summaries.recompute(of.id) == first


def test_the_last_number_never_goes_back(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        made = [session.runs.create(run(tenant, schedule_id=of.id, state="completed")) for _ in range(2)]
        session.runs.remove(ids(made))
        found = session.run_summaries.recompute(of.id)
        counters = jsonb.decode(found.counters or b"")
        assert (counters["total"], counters["lastRunNumber"]) == (0, 2)
        assert jsonb.decode(found.recent or b"[]") == []
        assert found.last_run is None


def test_a_schedule_without_runs_has_an_empty_summary_and_none_that_is_not_there(
    store: SessionStore, tenant: str
) -> None:
    of = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        found = session.run_summaries.recompute(of.id)
        assert jsonb.decode(found.counters or b"")["total"] == 0
        with pytest.raises(NotFoundError):
            session.run_summaries.recompute(uuid4())
        for recent in (0, -1):
            with pytest.raises(UsageError):
                session.run_summaries.recompute(of.id, recent)
    with store.session(fresh(), now=NOW) as session, pytest.raises(NotFoundError):
        session.run_summaries.recompute(of.id)


def test_a_deleted_schedule_s_runs_can_still_be_summed_up(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        session.runs.create(run(tenant, schedule_id=of.id))
        session.schedules.soft_delete(of.id, "me")
        found = session.run_summaries.recompute(of.id)
        assert jsonb.decode(found.counters or b"")["total"] == 1
