"""Lists and histories against a walk over everything: filters, orders, pages."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, get_args
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import states
from migrator.errors import NotFoundError, UsageError
from migrator.records import Run
from migrator.scheduler import retention
from migrator.scheduler.client import Scheduler
from migrator.scheduler.models import Job
from migrator.scheduler.retention import RetentionRule
from migrator.store.protocols import ScheduleQuery, SortKey, Store
from migrator.verify.behaviour.harness import MINUTE, Clock, Harness
from tests.contract.rows import NOW, SECOND, fresh, line, run, schedule, trigger

FEW = settings(max_examples=5, deadline=None)
TIMES = st.integers(-3, 3).map(lambda seconds: NOW + SECOND * seconds)
TAGS = st.lists(st.sampled_from("abc"), unique=True, max_size=3).map(tuple)
WORDS = st.sampled_from(["Nightly", "nightly copy", "Weekly", "sweep", "SWEEP"])

DRAWN = st.fixed_dictionaries(
    {
        "status": st.sampled_from([*states.SCHEDULE]),
        "enabled": st.booleans(),
        "tags": TAGS.map(lambda tags: tags or None),
        "created_at": TIMES,
        "created_by": st.sampled_from([None, "me", "you"]),
        "priority": st.sampled_from([None, 0, 50, 75, 100]),
    }
)
FIRE = st.none() | TIMES
JOBS = st.lists(st.tuples(DRAWN, FIRE, WORDS), min_size=3, max_size=9)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "statuses": st.lists(st.sampled_from([*states.SCHEDULE]), min_size=1, max_size=5, unique=True).map(tuple),
        "kinds": st.sampled_from([("interval",), ("cron",), ("interval", "event")]),
        "enabled": st.booleans(),
        "tags_any": st.sampled_from([("a",), ("b", "c")]),
        "tags_all": st.sampled_from([("a",), ("a", "b")]),
        "created_after": TIMES,
        "created_before": TIMES,
        "next_fire_after": TIMES,
        "next_fire_before": TIMES,
        "name_contains": st.sampled_from(["NIGHT", "sweep", "ly"]),
        "created_by": st.sampled_from(["me", "you"]),
    },
)
QUERIES = st.tuples(FILTERS, st.sampled_from(get_args(SortKey)), st.booleans(), st.integers(1, 4), st.integers(0, 4))


def passes(job: Job, where: dict[str, Any]) -> bool:
    row, fire, tags = job.schedule, job.next_fire_at, set(job.schedule.tags or ())
    asked: dict[str, Callable[[Any], bool]] = {
        "statuses": lambda words: row.status in words,
        "kinds": lambda words: any(cause.kind in words for cause in job.triggers),
        "enabled": lambda flag: row.enabled == flag,
        "tags_any": lambda words: bool(tags & set(words)),
        "tags_all": lambda words: tags >= set(words),
        "created_after": lambda at: row.created_at is not None and row.created_at > at,
        "created_before": lambda at: row.created_at is not None and row.created_at < at,
        "next_fire_after": lambda at: fire is not None and fire > at,
        "next_fire_before": lambda at: fire is not None and fire < at,
        "name_contains": lambda part: part.lower() in row.name.lower(),
        "created_by": lambda who: row.created_by == who,
    }
    return all(asked[name](value) for name, value in where.items())


def sort_key(job: Job, sort: str) -> Any:  # noqa: ANN401 - one type per column
    values = {
        "created_at": job.schedule.created_at,
        "next_fire_at": job.next_fire_at,
        "name": job.schedule.name,
        "priority": 50 if job.schedule.priority is None else job.schedule.priority,
    }
    return values[sort]


def ordered(jobs: list[Job], sort: str, *, descending: bool) -> list[Job]:
    jobs = sorted(jobs, key=lambda job: job.id)
    said = [job for job in jobs if sort_key(job, sort) is not None]
    said.sort(key=lambda job: sort_key(job, sort), reverse=descending)  # stable: equal ones stay by id
    return said + [job for job in jobs if sort_key(job, sort) is None]


def fill(store: Store, tenant: str, drawn: list[Any]) -> list[Job]:
    jobs = []
    with store.session(tenant, now=NOW) as session:
        for columns, fire, word in drawn:
            row = session.schedules.upsert(schedule(tenant, **columns, name=f"{word} {uuid4().hex}"))
            causes = [session.triggers.upsert(trigger(row, next_fire_at=fire))] if fire else []
            jobs.append(Job(schedule=row, triggers=tuple(causes)))
        gone = session.schedules.upsert(schedule(tenant))
        session.schedules.soft_delete(gone.id, "me")
    return jobs


@pytest.mark.proves("2-F9", "4-S1")
@FEW
@given(drawn=JOBS, queries=st.lists(QUERIES, min_size=6, max_size=10))
def test_lists_are_what_a_walk_over_all_schedules_gives(at_work: Store, drawn: list[Any], queries: list[Any]) -> None:
    tenant = fresh()
    jobs = fill(at_work, tenant, drawn)
    facade = Scheduler(at_work, tenant)
    for where, sort, descending, limit, offset in queries:
        found = facade.list(
            ScheduleQuery(**where, sort_by=sort, descending=descending, limit=limit, offset=offset), now=NOW
        )
        expected = ordered([job for job in jobs if passes(job, where)], sort, descending=descending)
        assert [job.id for job in found.jobs] == [job.id for job in expected[offset : offset + limit]]
        assert list(found.jobs) == expected[offset : offset + limit]
        assert (found.total, found.limit, found.offset) == (len(expected), limit, offset)


@pytest.mark.proves("2-F8")
def test_a_schedule_is_there_or_not_and_never_another_tenants(harness: Harness) -> None:
    job = harness.recurring()
    assert harness.facade.get(job.id, now=NOW) == job
    assert harness.facade.get(uuid4(), now=NOW) is None
    stranger = Scheduler(harness.store, fresh())
    assert stranger.get(job.id, now=NOW) is None
    assert stranger.list(now=NOW).jobs == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": 0},
        {"limit": -1},
        {"offset": -1},
        {"statuses": ("asleep",)},
        {"kinds": ("lunar",)},
        {"sort_by": "mood"},
        {"created_after": datetime(2025, 1, 1)},  # noqa: DTZ001 - that is what is wrong
    ],
    ids=str,
)
def test_a_list_that_cannot_be_is_refused(harness: Harness, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        harness.facade.list(ScheduleQuery(**wrong), now=NOW)


# -- history

ENDS = st.tuples(
    st.sampled_from([*states.RUN]),
    st.integers(-3, 3),
    st.none() | st.integers(0, 2),
    st.integers(0, 9),
    st.integers(0, 2),
)
PAST = st.lists(ENDS, max_size=12)
PAGES = st.fixed_dictionaries(
    {
        "limit": st.integers(1, 6),
        "offset": st.integers(0, 5),
        "descending": st.booleans(),
        "include_logs": st.booleans(),
    },
    optional={
        "states": st.lists(st.sampled_from([*states.RUN]), min_size=1, max_size=4, unique=True).map(tuple),
        "since": TIMES,
        "until": TIMES,
    },
)


def past(store: Store, tenant: str, job: UUID, drawn: list[Any]) -> list[tuple[Run, int]]:
    """Write runs with so many log lines each; those that did not start have no ``started_at``."""
    found = []
    with store.session(tenant, now=NOW) as session:
        for state, seconds, waited, lasted, lines in drawn:
            created = NOW + SECOND * seconds
            started = None if waited is None or state in {"planning", "queued"} else created + SECOND * waited
            ended = None if not states.is_terminal(states.RUN, state) else (started or created) + SECOND * lasted
            row = session.runs.create(
                run(tenant, schedule_id=job, state=state, created_at=created, started_at=started, finished_at=ended)
            )
            session.execution_logs.append(
                [line(tenant, run_id=row.id, logged_at=NOW + SECOND * n) for n in range(lines)]
            )
            found.append((row, lines))
    return found


@pytest.mark.proves("2-F13", "3-D5", "4-S4", "3-T5")
@FEW
@given(drawn=PAST, pages=st.lists(PAGES, min_size=5, max_size=8))
def test_a_history_is_what_a_walk_over_all_runs_gives(
    at_work: Store, drawn: list[Any], pages: list[dict[str, Any]]
) -> None:
    harness = Harness(at_work, (fresh(), fresh()), clock=Clock(NOW))
    job = harness.recurring()
    rows = past(at_work, harness.tenant, job.id, drawn)
    for page in pages:
        since, until = page.get("since"), page.get("until")
        if since is not None and until is not None and until <= since:
            with pytest.raises(UsageError, match="until must come after since"):
                harness.facade.history(job.id, now=NOW, **page)
            continue
        expected = [
            (row, lines)
            for row, lines in sorted(rows, key=lambda one: one[0].id)
            if ("states" not in page or row.state in page["states"])
            and (since is None or row.created_at >= since)
            and (until is None or row.created_at < until)
        ]
        expected.sort(key=lambda one: one[0].created_at, reverse=page["descending"])
        beyond = page["offset"] + page["limit"]
        found = harness.facade.history(job.id, now=NOW, **page)
        shown = expected[page["offset"] : beyond]
        assert [one.run for one in found.executions] == [row for row, _ in shown]
        assert found.more == (len(expected) > beyond)
        for one, (_, lines) in zip(found.executions, shown, strict=True):
            assert len(one.logs) == (lines if page["include_logs"] else 0)
            assert [entry.logged_at for entry in one.logs] == sorted(entry.logged_at for entry in one.logs)


@pytest.mark.proves("3-B11")
def test_executions_are_made_read_changed_and_removed(harness: Harness) -> None:
    job, other = harness.recurring(), harness.recurring()
    queued = harness.facade.trigger_now(job.id, now=NOW)
    assert [(run.id, run.state) for run in harness.runs(job)] == [(queued.id, "queued")]
    assert harness.run_once() == 1
    stored = harness.facade.get_execution(queued.id, now=NOW)
    assert stored is not None
    assert (stored.run.schedule_id, stored.run.state, stored.run.started_at) == (job.id, "completed", NOW)
    assert harness.runs(other) == []
    gone = retention.apply(harness.store, harness.tenant, RetentionRule(keep=0, young=SECOND), now=NOW + MINUTE)
    assert dict(gone.by_schedule) == {job.id: 1}
    assert harness.facade.get_execution(queued.id, now=NOW) is None
    assert harness.runs(job) == []


@pytest.mark.proves("3-B11")
def test_the_executions_of_a_job_are_listed_and_counted_and_the_latest_one_is_known(harness: Harness) -> None:
    job, other = harness.recurring(), harness.recurring()
    rows = past(harness.store, harness.tenant, job.id, [("completed", n, 0, 1, 0) for n in (3, 9, 5)])
    past(harness.store, harness.tenant, other.id, [("completed", 11, 0, 1, 0)])
    latest = rows[1][0]
    assert [run.id for run in harness.runs(job)] == [rows[n][0].id for n in (0, 2, 1)]
    assert [one.run.id for one in harness.facade.history(job.id, limit=1, now=NOW).executions] == [latest.id]
    stats = harness.facade.stats(job.id, since=NOW - SECOND, until=NOW + 60 * SECOND, now=NOW + 60 * SECOND)
    assert stats.total == 3


@pytest.mark.proves("2-F13")
def test_since_is_inclusive_and_until_is_not(harness: Harness) -> None:
    job = harness.recurring()
    rows = past(harness.store, harness.tenant, job.id, [("completed", second, 0, 1, 0) for second in (-1, 0, 1)])
    found = harness.facade.history(job.id, since=NOW, until=NOW + SECOND, now=NOW)
    assert [one.run.id for one in found.executions] == [rows[1][0].id]


@pytest.mark.proves("2-F13")
def test_runs_that_never_started_stand_where_they_were_made(harness: Harness) -> None:
    job = harness.recurring()
    rows = past(
        harness.store,
        harness.tenant,
        job.id,
        [("completed", 1, 0, 1, 0), ("queued", 2, None, 0, 0), ("completed", 3, 0, 1, 0), ("skipped", 0, None, 0, 0)],
    )
    found = harness.facade.history(job.id, now=NOW)
    assert [one.run.id for one in found.executions] == [rows[n][0].id for n in (2, 1, 0, 3)]


@pytest.mark.proves("2-F14", "3-D7", "3-T5")
def test_an_execution_comes_with_its_log(harness: Harness) -> None:
    job = harness.recurring()
    (row, _), (bare_one, _) = past(
        harness.store, harness.tenant, job.id, [("error", 0, 0, 1, 2), ("queued", 0, None, 0, 0)]
    )
    found = harness.facade.get_execution(row.id, now=NOW)
    assert found is not None
    assert found.run == row
    assert [entry.run_id for entry in found.logs] == [row.id, row.id]
    alone = harness.facade.get_execution(bare_one.id, now=NOW)
    assert alone is not None
    assert alone.logs == ()
    assert harness.facade.get_execution(uuid4(), now=NOW) is None
    assert Scheduler(harness.store, fresh()).get_execution(row.id, now=NOW) is None


@pytest.mark.proves("0-T2.11.5", "2-F14")
def test_what_a_run_did_is_there_to_read(harness: Harness) -> None:
    """From due to claimed to handled to written: run, log, summary."""
    job = harness.recurring()
    harness.advance(MINUTE)
    harness.run_once()
    (one,) = harness.facade.history(job.id, include_logs=True, now=harness.now).executions
    assert (one.run.state, one.run.result, one.run.started_at, one.run.finished_at) == (
        "completed",
        b'{"rows":3}',
        harness.now,
        harness.now,
    )
    assert {entry.message for entry in one.logs} == {"attempt 1 began", "completed"}
    with harness.store.session(harness.tenant, now=harness.now) as session:
        summary = session.run_summaries.get(job.id)
    assert summary is not None
    assert summary.last_run is not None


NAIVE = datetime(2025, 1, 1)  # noqa: DTZ001 - that is what is wrong with it


@pytest.mark.parametrize(
    "wrong",
    [{"limit": 0}, {"limit": -2}, {"offset": -1}, {"states": ("lost",)}, {"since": NAIVE}, {"until": NAIVE}],
    ids=str,
)
def test_a_history_that_cannot_be_is_refused(harness: Harness, wrong: dict[str, Any]) -> None:
    job = harness.recurring()
    with pytest.raises(UsageError):
        harness.facade.history(job.id, now=NOW, **wrong)


def test_the_history_of_a_schedule_that_is_not_there(harness: Harness) -> None:
    with pytest.raises(NotFoundError, match="no schedule"):
        harness.facade.history(uuid4(), now=NOW)
    job = harness.recurring()
    with pytest.raises(NotFoundError):
        Scheduler(harness.store, fresh()).history(job.id, now=NOW)
    assert harness.facade.history(job.id, now=NOW).executions == ()
