"""History of Celery's results and of Agenda's jobs, also in the libraries' own tables, by real queries of MongoDB."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from bson.objectid import ObjectId
from msgspec.structs import replace
from pymongo.database import Database

from migrator.config import Settings
from migrator.parity.check import check_parity
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from tests.copying import quarantine, settings_for
from tests.integration.native.test_celery_results import NEW, prepared, task
from tests.tailing import compared

Source = Database[Any]
Document = dict[str, Any]

NOW = datetime.now(UTC).replace(microsecond=0, tzinfo=None)
OLD, YOUNG = NOW - timedelta(days=45), NOW - timedelta(days=2)
ENDED = ("SUCCESS", "FAILURE", "REJECTED", "REVOKED", "ABORTED", "IGNORED")
LIVE = ("PENDING", "RECEIVED", "RETRY", "STARTED", "PROGRESS")


def with_history(settings: Settings, value: str) -> Settings:
    return replace(settings, copy=replace(settings.copy, history=value))


def left_out(settings: Settings) -> dict[str, int]:
    """Return, by collection, the documents that are left out; the sums add up, and nothing differs."""
    assert compared(settings) == []
    outcome = check_parity(settings, Scope())
    assert all(one.balanced for one in outcome.collections)
    return {one.collection: one.history for one in outcome.collections if one.history}


def column(dsn: str, query: str) -> set[Any]:
    with psycopg.connect(dsn) as connection:
        return {row[0] for row in connection.execute(query.encode())}


def results(database: Source) -> set[str]:
    """Insert results; return those that are not old or have not ended."""
    made = [
        task(f"{state}-{name}", status=state, date_done=at)
        for state in (*ENDED, *LIVE)
        for name, at in (("old", OLD), ("young", YOUNG), ("none", None))
    ]
    database["celery_taskmeta"].insert_many(made)
    database["celery_groupmeta"].insert_one({"_id": "g", "result": "[[], []]", "date_done": OLD})
    return {one["_id"] for one in made} - {f"{state}-old" for state in ENDED}


@pytest.mark.proves("6-U7")
def test_results_of_celery(mongo_database: Source, scheduler_dsn: str) -> None:
    kept = results(mongo_database)
    settings = with_history(settings_for(mongo_database, scheduler_dsn, profile="celery-results"), "30d")
    backfill(settings, Scope())
    aside = {key for _, key, *_ in quarantine(scheduler_dsn)}
    assert column(scheduler_dsn, "SELECT source_id FROM scheduler.runs") | aside == kept
    assert left_out(settings) == {"celery_taskmeta": len(ENDED)}
    assert column(scheduler_dsn, "SELECT entity_id FROM scheduler.audit WHERE category = 'celery'") == {"g"}


@pytest.mark.proves("6-U7")
def test_results_of_celery_in_its_own_tables(mongo_database: Source, postgres_dsn: str) -> None:
    kept = results(mongo_database)
    settings = with_history(prepared(NEW, mongo_database, postgres_dsn), "30d")
    backfill(settings, Scope())
    assert column(postgres_dsn, "SELECT task_id FROM celery_taskmeta") == kept
    assert left_out(settings) == {"celery_taskmeta": len(ENDED)}
    backfill(with_history(settings, "all"), Scope())
    assert len(column(postgres_dsn, "SELECT task_id FROM celery_taskmeta")) == len(kept) + len(ENDED)
    assert compared(settings) == []


@pytest.mark.proves("6-U7")
def test_jobs_of_agenda(mongo_database: Source, scheduler_dsn: str) -> None:
    done = {"type": "normal", "priority": 0, "nextRunAt": None, "lastRunAt": OLD, "lastFinishedAt": OLD}
    jobs: dict[str, Document] = {
        "ended": done,
        "ended, without fields": {"type": "normal", "priority": 0, "lastRunAt": OLD, "lastFinishedAt": OLD},
        "failed": done | {"failedAt": OLD, "failReason": "no", "failCount": 1},
        "young": done | {"lastRunAt": YOUNG, "lastFinishedAt": YOUNG},
        "runs now": done | {"lockedAt": NOW, "lastRunAt": NOW},
        "is locked": done | {"lockedAt": NOW},
        "was cut off": done | {"lastRunAt": OLD + timedelta(hours=1)},
        "is due": done | {"nextRunAt": NOW + timedelta(days=400)},
        "repeats": done | {"type": "single", "repeatInterval": "5 minutes"},
        "repeats at": done | {"type": "single", "repeatAt": "3:30 am"},
        "never ran": {"type": "normal", "priority": 0, "nextRunAt": OLD},
    }
    ids = {name: ObjectId() for name in jobs}
    mongo_database["agendaJobs"].insert_many([{"_id": ids[name], "name": name} | one for name, one in jobs.items()])
    line = {"level": "info", "event": "success", "jobName": "j", "message": "done", "agendaName": "a"}
    mongo_database["agenda_logs"].insert_many(
        [
            line | {"_id": ObjectId(), "jobId": str(ids["ended"]), "timestamp": at, "message": str(index)}
            for index, at in enumerate((OLD, YOUNG))
        ]
    )
    settings = with_history(settings_for(mongo_database, scheduler_dsn, profile="agenda"), "30d")
    result = backfill(settings, Scope())
    assert quarantine(scheduler_dsn) == []
    names = column(scheduler_dsn, "SELECT handler_name FROM scheduler.schedules")
    assert jobs.keys() - names == {"ended", "ended, without fields", "failed"}
    assert left_out(settings) == {"agendaJobs": 3, "agenda_logs": 1}
    assert column(scheduler_dsn, "SELECT run_id IS NULL AND schedule_id IS NULL FROM scheduler.execution_logs") == {
        True
    }
    assert result.dangling > 0, "a line of the log whose job was left out"
    backfill(with_history(settings, "60d"), Scope())
    assert column(scheduler_dsn, "SELECT handler_name FROM scheduler.schedules") == jobs.keys()
    assert column(scheduler_dsn, "SELECT run_id IS NULL FROM scheduler.execution_logs") == {False}
    assert compared(settings) == []
