"""Retention: which ended runs may go, and what goes with them."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import states
from migrator.errors import UsageError
from migrator.store.protocols import SessionStore
from tests.contract.rows import NOW, SECOND, bare, changed, fresh, ids, line, run, schedule, snapshot

ROWS = st.lists(
    st.tuples(st.sampled_from([*states.RUN]), st.integers(-3, 3), st.sampled_from([None, 0, 1])), max_size=9
)


@pytest.mark.proves("3-R1")
@settings(max_examples=20, deadline=None)
@given(rows=ROWS, keep=st.integers(0, 3), before=st.integers(-2, 4), limit=st.integers(1, 9))
def test_neither_young_runs_nor_the_newest_ones_of_a_schedule_may_go(
    store: SessionStore, rows: list[Any], keep: int, before: int, limit: int
) -> None:
    tenant = fresh()
    of = [schedule(tenant), schedule(tenant)]
    with store.session(tenant, now=NOW) as session:
        for each in of:
            session.schedules.upsert(each)
        made = [
            session.runs.create(
                run(
                    tenant,
                    state=state,
                    created_at=NOW + SECOND * second,
                    schedule_id=None if place is None else of[place].id,
                )
            )
            for state, second, place in rows
        ]
        expected = [
            row
            for row in made
            if not states.RUN[row.state]
            and row.created_at < NOW + SECOND * before
            and sum(
                other.schedule_id == row.schedule_id
                and (other.created_at > row.created_at or (other.created_at == row.created_at and other.id < row.id))
                for other in made
            )
            >= keep
        ]
        counted = Counter(row.schedule_id for row in expected)
        assert session.statistics.removable(keep, NOW + SECOND * before) == counted
        expected.sort(key=lambda row: (row.created_at, row.id))
        assert ids(session.runs.beyond(keep, NOW + SECOND * before, limit)) == ids(expected)[:limit]


@pytest.mark.parametrize(("keep", "limit"), [(-1, 1), (0, 0), (0, -1)])
def test_retention_that_makes_no_sense_is_refused(keep: int, limit: int, store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session, pytest.raises(UsageError):
        session.runs.beyond(keep, NOW, limit)


def test_ended_runs_are_removed_with_their_logs(store: SessionStore, tenant: str) -> None:
    elsewhere = fresh()
    with store.session(elsewhere, now=NOW) as session:
        theirs = session.runs.create(run(elsewhere, state="completed"))
    with store.session(tenant, now=NOW) as session:
        rows = {state: session.runs.create(run(tenant, state=state)) for state in states.RUN}
        session.execution_logs.append([line(tenant, run_id=row.id) for row in rows.values()])
        ended = [state for state in states.RUN if not states.RUN[state]]
        assert session.runs.remove([*ids(rows.values()), theirs.id]) == len(ended)
        assert session.runs.remove(ids(rows.values())) == 0
        assert session.runs.remove([]) == 0
        for state, row in rows.items():
            gone = state in ended
            assert (session.runs.get(row.id) is None) == gone
            assert (session.execution_logs.of_run(row.id) == []) == gone
    with store.session(elsewhere, now=NOW) as session:
        assert session.runs.get(theirs.id) is not None


def test_held_are_those_that_ended_with_every_line_of_their_logs(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        later, live, first = (
            session.runs.create(run(tenant, state=state, created_at=NOW - SECOND * age))
            for state, age in (("error", 1), ("running", 2), ("completed", 3))
        )
        lines = [line(tenant, run_id=first.id, logged_at=NOW - SECOND * n) for n in range(1001)]
        lines.append(line(tenant, run_id=live.id))
        session.execution_logs.append(lines)
    asked = [later.id, live.id, first.id]
    with store.session(tenant, now=NOW) as session:
        assert ids(session.runs.held(asked)) == [first.id, later.id]
        expected = sorted(lines, key=lambda one: (one.run_id, one.logged_at))
        assert [bare(one) for one in session.execution_logs.of_runs(asked)] == expected
        assert session.execution_logs.of_runs([later.id]) == []
    elsewhere = fresh()
    with store.session(elsewhere, now=NOW) as session:
        assert not session.runs.held(asked)
        assert not session.execution_logs.of_runs(asked)


def test_snapshots_and_retries_stay_without_the_run(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        row = session.runs.create(run(tenant, state="error"))
        again = session.runs.create(run(tenant, retry_of=row.id, attempt=2))
        kept = snapshot(tenant, run_id=row.id, total=3)
        session.impact_snapshots.insert(kept)
        assert session.runs.remove([row.id]) == 1
        found = session.runs.get(again.id)
        assert found is not None
        assert bare(found) == changed(bare(again), retry_of=None)
        stored = session.impact_snapshots.get(kept.id)
        assert stored is not None
        assert bare(stored) == changed(kept, run_id=None)
        assert session.impact_snapshots.of_run(row.id) == []
