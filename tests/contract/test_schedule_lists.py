"""Lists of schedules: every filter, order and page against a walk over all of them."""

from datetime import datetime, timedelta
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import states
from migrator.errors import UsageError
from migrator.records import Schedule, Trigger
from migrator.store.protocols import ScheduleQuery, SessionStore, SortKey
from tests.contract.rows import NOW, SECOND, event_trigger, fresh, ids, schedule, trigger

FEW = settings(max_examples=15, deadline=None)
TIMES = st.integers(-2, 2).map(lambda seconds: NOW + SECOND * seconds)
TAGS = st.none() | st.lists(st.sampled_from("abc"), unique=True).map(tuple)
NAMES = st.text("aBß%_\\İ", min_size=1, max_size=4)

SCHEDULES = st.fixed_dictionaries(
    {
        "status": st.sampled_from([*states.SCHEDULE]),
        "enabled": st.booleans(),
        "handler_name": st.sampled_from([None, "mail", "sync"]),
        "tags": TAGS,
        "created_at": TIMES,
        "created_by": st.sampled_from([None, "me", "you"]),
        "priority": st.sampled_from([None, 0, 49, 50, 51, 100]),
        "name": NAMES,
    }
)
FIRES = st.lists(st.tuples(st.none() | TIMES, st.booleans(), st.sampled_from(["interval", "event"])), max_size=2)
DATA = st.lists(st.tuples(SCHEDULES, FIRES), min_size=2, max_size=7, unique_by=lambda drawn: drawn[0]["name"])

TAG_FILTERS = st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True).map(tuple)
STATUS_FILTERS = st.lists(st.sampled_from([*states.SCHEDULE]), min_size=1, max_size=4, unique=True).map(tuple)
KIND_FILTERS = st.lists(st.sampled_from(["interval", "event", "cron"]), min_size=1, max_size=2, unique=True).map(tuple)
HANDLER_FILTERS = st.lists(st.sampled_from(["mail", "sync", "none"]), min_size=1, max_size=2, unique=True).map(tuple)
FILTERS = st.one_of(
    st.fixed_dictionaries({"statuses": STATUS_FILTERS}),
    st.fixed_dictionaries({"kinds": KIND_FILTERS}),
    st.fixed_dictionaries({"handlers": HANDLER_FILTERS}),
    st.fixed_dictionaries({"enabled": st.booleans()}),
    st.fixed_dictionaries({"tags_any": TAG_FILTERS}),
    st.fixed_dictionaries({"tags_all": TAG_FILTERS}),
    st.fixed_dictionaries({"created_after": TIMES}),
    st.fixed_dictionaries({"created_before": TIMES}),
    st.fixed_dictionaries({"next_fire_after": TIMES}),
    st.fixed_dictionaries({"next_fire_before": TIMES}),
    st.fixed_dictionaries({"name_contains": NAMES}),
    st.fixed_dictionaries({"created_by": st.sampled_from(["me", "you"])}),
)
QUERIES = st.builds(lambda one, other: ScheduleQuery(**one | other), FILTERS, FILTERS | st.just({}))
"""One filter or two: more together leave nothing over."""

ORDERS = [(sort, descending) for sort in get_args(SortKey) for descending in (True, False)]


class Walk:
    """What a query should answer, by looking at every schedule."""

    def __init__(self, rows: list[Schedule], triggers: list[Trigger]) -> None:
        self.rows, self.triggers = rows, triggers

    def fire(self, row: Schedule) -> datetime | None:
        fires = [each.next_fire_at for each in self.triggers if each.schedule_id == row.id and each.enabled]
        return min((fire for fire in fires if fire is not None), default=None)

    def passes(self, row: Schedule, query: ScheduleQuery) -> bool:
        kinds = {each.kind for each in self.triggers if each.schedule_id == row.id}
        fire, tags, created = self.fire(row), set(row.tags or ()), row.created_at
        verdicts = [
            row.status in query.statuses or not query.statuses,
            bool(kinds & set(query.kinds)) or not query.kinds,
            row.handler_name in query.handlers or not query.handlers,
            query.enabled in {None, row.enabled},
            bool(tags & set(query.tags_any)) or not query.tags_any,
            tags.issuperset(query.tags_all),
            query.created_after is None or (created is not None and created > query.created_after),
            query.created_before is None or (created is not None and created < query.created_before),
            query.next_fire_after is None or (fire is not None and fire > query.next_fire_after),
            query.next_fire_before is None or (fire is not None and fire < query.next_fire_before),
            query.name_contains is None or query.name_contains.lower() in row.name.lower(),
            query.created_by in {None, row.created_by},
        ]
        return all(verdicts)

    def order(self, rows: list[Schedule], sort: str, *, descending: bool) -> list[Schedule]:
        def value(row: Schedule) -> Any:  # noqa: ANN401 - one type per column
            if sort == "next_fire_at":
                return self.fire(row)
            return (50 if row.priority is None else row.priority) if sort == "priority" else getattr(row, sort)

        rows = sorted(rows, key=lambda row: row.id)
        known = sorted((row for row in rows if value(row) is not None), key=value)
        if descending:  # equal ones stay in the order of their ids
            known = sorted(known, key=lambda row: [value(other) > value(row) for other in known].count(True))
        return known + [row for row in rows if value(row) is None]


def fill(store: SessionStore, tenant: str, data: list[Any]) -> Walk:
    walk = Walk([], [])
    with store.session(tenant, now=NOW) as session:
        for columns, fires in data:
            row = session.schedules.upsert(schedule(tenant, **columns))
            walk.rows.append(row)
            for fire, enabled, kind in fires:
                made = (
                    event_trigger(row, "push", enabled=enabled)
                    if kind == "event"
                    else trigger(row, next_fire_at=fire, enabled=enabled)
                )
                walk.triggers.append(session.triggers.upsert(made))
    return walk


@pytest.mark.proves("0-T2.3.1")
@FEW
@given(data=DATA, queries=st.lists(QUERIES, min_size=6, max_size=12))
def test_every_filter_answers_as_a_walk_over_all_would(
    store: SessionStore, data: list[Any], queries: list[ScheduleQuery]
) -> None:
    tenant = fresh()
    walk = fill(store, tenant, data)
    with store.session(tenant, now=NOW) as session:
        for query in queries:
            expected = {row.id for row in walk.rows if walk.passes(row, query)}
            assert {row.id for row in session.schedules.list(query)} == expected
            assert session.schedules.count(query) == len(expected)


@pytest.mark.proves("0-T2.3.1", "1-G3")
@FEW
@given(data=DATA, offset=st.integers(0, 5), limit=st.integers(1, 4))
def test_every_order_and_page_is_as_a_walk_over_all_would_give(
    store: SessionStore, data: list[Any], offset: int, limit: int
) -> None:
    tenant = fresh()
    walk = fill(store, tenant, data)
    with store.session(tenant, now=NOW) as session:
        for sort, descending in ORDERS:
            expected = ids(walk.order(walk.rows, sort, descending=descending))
            query = ScheduleQuery(sort_by=sort, descending=descending)
            assert ids(session.schedules.list(query)) == expected, (sort, descending)
            page = ScheduleQuery(sort_by=sort, descending=descending, offset=offset, limit=limit)
            assert ids(session.schedules.list(page)) == expected[offset : offset + limit], (sort, descending)
            assert session.schedules.count(page) == len(expected)
            named = ScheduleQuery(sort_by=sort, descending=descending, offset=offset, limit=limit, name_contains="")
            assert ids(session.schedules.list(named)) == expected[offset : offset + limit], (sort, descending)


@pytest.mark.proves("0-T2.3.1")
def test_bounds_are_exclusive(store: SessionStore, tenant: str) -> None:
    one = schedule(tenant, created_at=NOW)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)
        session.triggers.upsert(trigger(one, next_fire_at=NOW))
        for bound in ("created_after", "created_before", "next_fire_after", "next_fire_before"):
            shift = timedelta(milliseconds=-1 if bound.endswith("after") else 1)
            for instant, expected in ((NOW, 0), (NOW + shift, 1)):
                bounds: dict[str, Any] = {bound: instant}
                assert session.schedules.count(ScheduleQuery(**bounds)) == expected, bound


@pytest.mark.proves("0-T2.3.1")
@pytest.mark.parametrize(
    "query",
    [
        ScheduleQuery(limit=0),
        ScheduleQuery(limit=-1),
        ScheduleQuery(offset=-1),
        ScheduleQuery(statuses=("scheduled", "no such")),
        ScheduleQuery(kinds=("no such",)),
        ScheduleQuery(sort_by="no such"),  # type: ignore[arg-type] # the point
    ],
)
def test_a_query_that_makes_no_sense_is_refused(query: ScheduleQuery, store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session, pytest.raises(UsageError):
        session.schedules.list(query)


def test_a_part_of_a_name_is_no_pattern(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        for name in ("100%", "a_b", "a.b", "a\\b", "ÄPFEL"):
            session.schedules.upsert(schedule(tenant, name=name))
        for part, expected in (("%", "100%"), ("_", "a_b"), (".", "a.b"), ("\\", "a\\b"), ("äpf", "ÄPFEL")):
            found = session.schedules.list(ScheduleQuery(name_contains=part))
            assert [row.name for row in found] == [expected]
        assert session.schedules.count(ScheduleQuery(name_contains="")) == 5


def test_names_are_in_the_order_of_code_points(store: SessionStore, tenant: str) -> None:
    names = ["B", "a", "Z", "ä", "_", "b", "\U0001f600", "\uffee", "a b", "ab"]
    with store.session(tenant, now=NOW) as session:
        for name in names:
            session.schedules.upsert(schedule(tenant, name=name))
        found = session.schedules.list(ScheduleQuery(sort_by="name", descending=False))
        assert [row.name for row in found] == sorted(names)


@pytest.mark.proves("0-T2.3.1")
def test_all_of_some_tags_are_more_than_any_of_them(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        for name, tags in (("none", None), ("no tag", ()), ("one", ("a",)), ("both", ("b", "a")), ("other", ("c",))):
            session.schedules.upsert(schedule(tenant, name=name, tags=tags))
        of_any = session.schedules.list(ScheduleQuery(tags_any=("a", "b")))
        of_all = session.schedules.list(ScheduleQuery(tags_all=("a", "b")))
    assert {row.name for row in of_any} == {"one", "both"}
    assert {row.name for row in of_all} == {"both"}
