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

NAMES = ("stable", "all jobs succeeded", "history recorded", "no errors", "figures agree")
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
    found = parallel.checklist(sessions, datetime.now(UTC) + after)
    assert tuple(one.name for one in found) == NAMES
    return {one.name for one in found if one.passed is False}


@pytest.mark.proves("4-K1", "4-K2", "4-K3", "4-K4", "4-K5", "4-P3")
def test_each_entry_is_computed(sessions: Sessions, scheduler_dsn: str) -> None:
    assert parallel.checklist(sessions) == []
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
        connection.execute("DELETE FROM scheduler.runs")
        connection.execute(
            "INSERT INTO scheduler.run_summaries (id, tenant_id, schedule_id, last_run)"
            " SELECT gen_random_uuid(), 'a', id, '{}' FROM scheduler.schedules"
        )
        assert "figures agree" in red(sessions)
