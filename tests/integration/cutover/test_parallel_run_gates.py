"""The checklist of a parallel operation, computed from the rows: each entry is red once."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from migrator.config import CutoverSettings
from migrator.cutover import parallel
from migrator.errors import RefusedError, UsageError
from migrator.pipeline.sessions import Sessions
from migrator.schema.decisions import Approval
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


SCHEDULE = (
    "INSERT INTO scheduler.schedules (id, tenant_id, source, source_id, name, status, enabled)"
    " VALUES (gen_random_uuid(), 'a', 'stellaops/schedules', %(name)s, %(name)s, 'scheduled', true) RETURNING id"
)
TRIGGER = (
    "INSERT INTO scheduler.triggers (id, tenant_id, source, source_id, schedule_id, kind, cron_expression,"
    " cron_dialect, timezone)"
    " VALUES (gen_random_uuid(), 'a', 'stellaops/schedules', 's', %s, 'cron', '* * * * *', 'croner', 'UTC')"
)
OLD_RUN = (
    "INSERT INTO scheduler.runs (id, tenant_id, source, source_id, schedule_id, state, cause, started_at, created_at)"
    " VALUES (gen_random_uuid(), 'a', 'stellaops/runs', gen_random_uuid()::text, %s, 'completed', %s, %s, now())"
)


CLEAN = [
    "3 slots matched",
    "3 of them inferred (within 30s)",
    *("0 missing", "0 extra", "0 duplicate", "0 runs of the old side without a slot"),
]


def gate_of(sessions: Sessions, name: str, after: timedelta = timedelta(hours=25)) -> tuple[bool | None, str]:
    found = parallel.gates(sessions, datetime.now(UTC) + after)
    return next((one.passed, one.words) for one in found if one.name == name)


@pytest.mark.proves("4-K3", "4-P1")
def test_a_slot_that_no_run_names_is_inferred_from_the_start_of_the_run(sessions: Sessions, scheduler_dsn: str) -> None:
    parallel.begin(sessions.target, COMPARABLE, "op", "both run")
    slot = (datetime.now(UTC) + timedelta(minutes=5)).replace(second=0, microsecond=0)
    with psycopg.connect(scheduler_dsn, autocommit=True) as connection:
        (schedule,) = connection.execute(SCHEDULE, {"name": "often"}).fetchone() or ()
        connection.execute(TRIGGER, (schedule,))
        for late in (2, 61, 119):
            connection.execute(OLD_RUN, (schedule, "cron", slot + timedelta(seconds=late)))
        connection.execute(OLD_RUN, (schedule, "manual", slot + timedelta(seconds=200)))
        passed, words = gate_of(sessions, "history recorded")
        assert (passed, words[:59]) == (False, "0 slots matched, 0 of them inferred (within 30s), 3 missing")
        for minute in range(3):
            connection.execute(RUN, (None, None, "completed", slot + timedelta(minutes=minute)))
        passed, words = gate_of(sessions, "history recorded")
        assert (passed, words.split(", ")) == (True, CLEAN)
        # what both may still be about to fire is not judged
        young = slot - datetime.now(UTC) + timedelta(seconds=100)
        assert gate_of(sessions, "history recorded", young)[1].startswith("2 slots matched")
        connection.execute(OLD_RUN, (schedule, None, slot + timedelta(minutes=1)))
        assert "1 duplicate" in gate_of(sessions, "history recorded")[1]
        connection.execute("UPDATE scheduler.triggers SET cron_expression = '*/2 * * * *'")
        passed, words = gate_of(sessions, "history recorded")
        assert passed is False
        assert words.endswith("2 runs of the old side without a slot")


@pytest.mark.proves("4-K2", "4-P1")
def test_a_schedule_that_does_not_fire_holds_the_gate_until_it_is_waived(
    sessions: Sessions, scheduler_dsn: str
) -> None:
    target, by, gate = sessions.target, Approval("ann", "it is yearly"), "all jobs succeeded"
    with pytest.raises(RefusedError, match="no parallel run is recorded"):
        parallel.waive(target, ["rare"], by)
    parallel.begin(target, COMPARABLE, "op", "both run")
    with psycopg.connect(scheduler_dsn, autocommit=True) as connection:
        ids = [connection.execute(SCHEDULE, {"name": name}).fetchone() for name in ("rare", "twin", "twin")]
    assert gate_of(sessions, gate) == (False, "3 of 3 schedules have no completed run of the new side")
    with pytest.raises(UsageError, match="no schedule has the id or the name never"):
        parallel.waive(target, ["rare", "never"], by)
    with pytest.raises(UsageError, match="several schedules are called twin: name one by its tenant and id"):
        parallel.waive(target, ["twin"], by)
    assert parallel.waivers(target) == ()
    parallel.waive(target, ["rare", *(str(row[0]) for row in ids[1:] if row)], by)
    passed, words = gate_of(sessions, gate)
    assert (passed, words.count("twin (ann: it is yearly)")) == (True, 2)
    assert words.startswith(
        "0 of 3 schedules have no completed run of the new side; 3 waived: rare (ann: it is yearly)"
    )
    parallel.withdraw_waivers(target, ["rare"], by)
    assert gate_of(sessions, gate)[0] is False
    with pytest.raises(RefusedError, match="schedule rare is not waived"):
        parallel.withdraw_waivers(target, ["rare"], by)
    parallel.end(target, COMPARABLE, CutoverSettings(), Approval("op", "over"))
    parallel.begin(target, COMPARABLE, "op", "once more")
    assert parallel.waivers(target) == ()


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
