"""The checklist of a parallel operation, computed from the rows: each entry is red once."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from migrator.cutover import parallel
from migrator.pipeline.sessions import Sessions
from tests.copying import settings_for
from tests.cutting_over import COMPARABLE
from tests.store_postgres import opened, run, schedule

NAMES = ("stable", "all jobs succeeded", "history recorded", "no errors", "summaries agree")
RUN = (
    "INSERT INTO scheduler.runs (id, tenant_id, source, source_id, schedule_id, state, scheduled_at, created_at,"
    " finished_at) SELECT gen_random_uuid(), 'a', %s, %s, id, %s, %s, now(), now() FROM scheduler.schedules"
)


@pytest.fixture
def sessions(mongo_database: Database[Any], scheduler_dsn: str) -> Iterator[Sessions]:
    opened = Sessions(settings_for(mongo_database, scheduler_dsn))
    opened.profile = COMPARABLE
    yield opened
    opened.close()


def red(sessions: Sessions, after: timedelta = timedelta(hours=25)) -> set[str]:
    found = parallel.gates(sessions, datetime.now(UTC) + after)
    assert tuple(one.name for one in found) == NAMES
    return {one.name for one in found if one.passed is False}


@pytest.mark.proves("4-K1", "4-K2", "4-K4", "4-P3")
def test_each_entry_is_computed(sessions: Sessions, scheduler_dsn: str) -> None:
    assert parallel.gates(sessions) == []
    parallel.begin(sessions.target, COMPARABLE, "op", "both run")
    at = datetime.now(UTC) + timedelta(seconds=1)
    with psycopg.connect(scheduler_dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO scheduler.schedules (id, tenant_id, name, status, enabled)"
            " VALUES (gen_random_uuid(), 'a', 'n', 'scheduled', true)"
        )
        assert red(sessions) == {"all jobs succeeded", "history recorded"}
        connection.execute(RUN, ("stellaops/runs", "r1", "completed", at))
        assert red(sessions) == {"all jobs succeeded", "history recorded"}
        connection.execute(RUN, (None, None, "completed", at))
        assert red(sessions) == set()
        assert red(sessions, timedelta(hours=23)) == {"stable"}
        connection.execute(RUN, (None, None, "error", at + timedelta(minutes=1)))
        connection.execute("UPDATE scheduler.runs SET finished_at = now() + interval '20 hours' WHERE state = 'error'")
        assert red(sessions) == {"stable", "history recorded", "no errors"}
        connection.execute(
            "UPDATE scheduler.runs SET source = 'stellaops/runs', source_id = 'r2' WHERE state = 'error'"
        )
        assert red(sessions, timedelta(hours=45)) == {"history recorded"}


NEWEST = "(SELECT id FROM scheduler.runs WHERE state = 'completed' ORDER BY created_at DESC LIMIT 1)"
UNTRUE = {
    "a count too high": "UPDATE scheduler.run_summaries SET counters = counters || '{\"completed\": 3}'",
    "a count too low": "UPDATE scheduler.run_summaries SET counters = counters || '{\"completed\": 1}'",
    "a run is gone": "DELETE FROM scheduler.runs WHERE state = 'timeout'",
    "a run ended otherwise": "UPDATE scheduler.runs SET state = 'timeout' WHERE state = 'error'",
    "the last run is gone": f"DELETE FROM scheduler.runs WHERE id = {NEWEST}",
    "another's run is the last one": 'UPDATE scheduler.run_summaries SET last_run = last_run || \'{"runId": "x"}\'',
    "an older run is the last one": "UPDATE scheduler.run_summaries SET last_run = recent -> 1",
    "no run is the last one": "UPDATE scheduler.run_summaries SET last_run = NULL",
    "the last run is in another state": (
        'UPDATE scheduler.run_summaries SET last_run = last_run || \'{"state": "error"}\''
    ),
}
"""What is shown, and is not what the rows are."""


@pytest.mark.proves("4-K5")
@pytest.mark.parametrize("fault", UNTRUE)
def test_a_figure_that_is_not_that_of_the_rows_is_told(sessions: Sessions, scheduler_dsn: str, fault: str) -> None:
    parallel.begin(sessions.target, COMPARABLE, "op", "both run")
    with opened(scheduler_dsn) as store, store.session("a") as session:
        made = session.schedules.upsert(schedule())
        for age, state in enumerate(("completed", "completed", "error", "timeout")):
            at = session.now - timedelta(minutes=1 + age)
            session.runs.create(run(schedule_id=made.id, state=state, created_at=at, finished_at=at, updated_at=at))
        session.run_summaries.recompute(made.id)
        # a run that began since is in no summary yet, and one of the old side arrives whenever the tail brings it
        session.runs.create(run(schedule_id=made.id, state="running", created_at=session.now))
    with psycopg.connect(scheduler_dsn, autocommit=True) as connection:
        connection.execute(RUN, ("stellaops/runs", "r1", "completed", datetime(2025, 1, 1, tzinfo=UTC)))
        assert "summaries agree" not in red(sessions)
        connection.execute("DELETE FROM scheduler.runs WHERE source IS NOT NULL")
        assert "summaries agree" not in red(sessions)
        connection.execute(UNTRUE[fault].encode())
    assert "summaries agree" in red(sessions)
