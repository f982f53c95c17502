"""Pages of runs are by key: every run once, whatever is inserted meanwhile."""

from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import states
from migrator.errors import UsageError
from migrator.records import Run
from migrator.store.protocols import RunQuery, SessionStore
from tests.contract.rows import NOW, SECOND, fresh, ids, run, schedule

TIMES = st.integers(-2, 2).map(lambda seconds: NOW + SECOND * seconds)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "state": st.sampled_from([*states.RUN]),
            "created_at": TIMES,
            "trace_id": st.sampled_from([None, "a", "b"]),
            "schedule_id": st.booleans(),
        }
    ),
    max_size=9,
)
FILTERS = st.fixed_dictionaries(
    {
        "states": st.just(()) | st.lists(st.sampled_from([*states.RUN]), max_size=3, unique=True).map(tuple),
        "created_after": st.none() | TIMES,
        "created_before": st.none() | TIMES,
        "trace_id": st.sampled_from([None, None, "a"]),
        "schedule_id": st.booleans(),
    }
)


def newest_first(rows: list[Run]) -> list[UUID]:
    return ids(sorted(sorted(rows, key=lambda row: row.id), key=lambda row: row.created_at, reverse=True))


def pages(store: SessionStore, tenant: str, limit: int, **filters: Any) -> list[UUID]:  # noqa: ANN401 - filters have all types
    """Return the ids of all pages, each read in a session of its own."""
    found: list[UUID] = []
    cursor: tuple[datetime, UUID] | None = None
    while True:
        with store.session(tenant, now=NOW) as session:
            page = session.runs.list(RunQuery(limit=limit, cursor=cursor, **filters))
        assert len(page.runs) <= limit
        found += ids(page.runs)
        cursor = page.cursor
        if cursor is None:
            return found
        assert len(page.runs) == limit
        assert cursor == (page.runs[-1].created_at, page.runs[-1].id)


@pytest.mark.proves("0-T2.4.1", "0-T2.4.3", "1-G3")
@settings(max_examples=20, deadline=None)
@given(rows=ROWS, filters=FILTERS, limit=st.integers(1, 4))
def test_all_pages_together_are_what_a_walk_over_all_finds(
    store: SessionStore, rows: list[dict[str, Any]], filters: dict[str, Any], limit: int
) -> None:
    tenant = fresh()
    of = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        made = [
            session.runs.create(run(tenant, **columns | {"schedule_id": of.id if columns["schedule_id"] else None}))
            for columns in rows
        ]
    filters = filters | {"schedule_id": of.id if filters["schedule_id"] else None}
    expected = [
        row
        for row in made
        if (row.state in filters["states"] or not filters["states"])
        and (filters["created_after"] is None or row.created_at > filters["created_after"])
        and (filters["created_before"] is None or row.created_at < filters["created_before"])
        and filters["trace_id"] in {None, row.trace_id}
        and filters["schedule_id"] in {None, row.schedule_id}
    ]
    assert pages(store, tenant, limit, **filters) == newest_first(expected)


@pytest.mark.proves("0-T2.4.3")
def test_what_is_inserted_meanwhile_neither_repeats_nor_hides_a_run(store: SessionStore, tenant: str) -> None:
    rows = [run(tenant, created_at=NOW - SECOND * (place // 2)) for place in range(7)]
    with store.session(tenant, now=NOW) as session:
        for row in rows:
            session.runs.create(row)
    found: list[UUID] = []
    cursor: tuple[datetime, UUID] | None = None
    while True:
        with store.session(tenant, now=NOW) as session:
            page = session.runs.list(RunQuery(limit=2, cursor=cursor))
            found += ids(page.runs)
            session.runs.create(run(tenant, created_at=NOW + SECOND))
            session.runs.create(run(tenant, created_at=NOW - SECOND * 9))
            cursor = page.cursor
        if cursor is None or len(found) > 40:
            break
        if len(found) >= len(rows):
            break
    assert [identity for identity in found if identity in set(ids(rows))] == newest_first(rows)
    assert len(set(found)) == len(found)


@pytest.mark.proves("0-T2.4.3", "1-G3")
def test_runs_of_one_instant_are_paged_by_id(store: SessionStore, tenant: str) -> None:
    rows = [run(tenant) for _ in range(7)]
    with store.session(tenant, now=NOW) as session:
        for row in rows:
            session.runs.create(row)
    assert pages(store, tenant, 3) == sorted(ids(rows))


@pytest.mark.proves("0-T2.4.3")
def test_the_last_page_says_that_it_is_the_last(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        assert session.runs.list(RunQuery()).cursor is None
        for _ in range(4):
            session.runs.create(run(tenant))
        assert session.runs.list(RunQuery(limit=3)).cursor is not None
        assert session.runs.list(RunQuery(limit=4)).cursor is None
        assert session.runs.list(RunQuery(limit=5)).cursor is None


@pytest.mark.proves("0-T2.4.1")
@pytest.mark.parametrize("query", [RunQuery(limit=0), RunQuery(limit=-1), RunQuery(states=("queued", "no such"))])
def test_a_query_that_makes_no_sense_is_refused(query: RunQuery, store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session, pytest.raises(UsageError):
        session.runs.list(query)
