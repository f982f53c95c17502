"""A copy into a library's own tables that was killed and called again: each row is there once, and all are equal."""

import json
import signal
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
import pytest
from bson import ObjectId, json_util
from psycopg import sql
from pymongo.database import Database

from migrator import fault_points as points
from migrator.config import TargetSettings
from migrator.exit_status import QUARANTINE
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from tests import quartz_documents, quartz_tables
from tests.copying import kill, run, settings_for, start, write_config
from tests.native_tables import BY_NAME, prepare
from tests.real_documents import DATA, real_documents
from tests.tailing import compared

FOLDER = Path(__file__).parent
POINTS = (points.AFTER_CHUNK_BEGUN, points.AFTER_LOAD_BEFORE_COMMIT, points.AFTER_COMMIT)
Documents = dict[str, list[dict[str, Any]]]
NOON: Final = datetime(2026, 11, 24, 12)  # noqa: DTZ001 - as BSON has it
SHEDLOCK: Final = """CREATE TABLE shedlock (name varchar(64) NOT NULL, lock_until timestamp NOT NULL,
    locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL, PRIMARY KEY (name))"""


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """Documents that are copied into tables of a library, in more than five chunks."""

    target: str
    profile: str = ""
    """Of the source; empty: that of the target's name."""
    documents: Callable[[], Documents]
    make: Callable[[str], object]
    """Makes the tables in an empty database."""
    chunk: int = 8
    options: Mapping[str, Any] = {}


def real(**files: str) -> Callable[[], Documents]:
    """Return a function that reads the documents of each collection from its file."""
    return lambda: {collection: real_documents(name) for collection, name in files.items()}


def apscheduler_4() -> Documents:
    """Return the documents of APScheduler 4, whose file has the collection of each."""
    found: Documents = {}
    for line in (DATA / "apscheduler" / "4.0.0a6-json.jsonl").read_text(encoding="utf-8").splitlines():
        name, document = json.loads(line)
        read = json_util.loads(json.dumps(document), json_options=json_util.CANONICAL_JSON_OPTIONS)
        found.setdefault(name, []).append(read)
    return found


def messages() -> Documents:
    """Return messages that wait, as mongodb-queue writes them."""
    times = [f"{NOON + timedelta(minutes=number):%Y-%m-%dT%H:%M:%S}.000Z" for number in range(15)]
    return {"queue": [{"_id": ObjectId(), "visible": time, "payload": {"at": time}} for time in times]}


def locks() -> Documents:
    """Return locks, as ShedLock writes them."""
    times = {"lockUntil": NOON + timedelta(days=9_000), "lockedAt": NOON}
    return {"shedLock": [{"_id": f"lock {number}", **times, "lockedBy": "host"} for number in range(15)]}


def quartz() -> Documents:
    """Return the documents of Quartz, without those of its processes, which make no rows."""
    names = ("quartz_calendars", "quartz_jobs", "quartz_triggers", "quartz_paused_trigger_groups")
    found = quartz_documents.quartz()
    return {name: found[name] for name in names}


def made(shape: str) -> Callable[[str], object]:
    """Return a function that lets the library make its tables."""
    return partial(prepare, BY_NAME[shape])


def execute(statement: str, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(statement.encode())


ZONES: Final = {"timezone": "Europe/Vienna", "host_timezone": "UTC"}
COPIES: Final = (
    Copy(
        target="agenda",
        documents=real(agendaJobs="agenda-6/agendaJobs", agenda_logs="agenda-6/agenda_logs"),
        make=made("agenda-3.0"),
    ),
    Copy(target="apscheduler", documents=real(jobs="apscheduler/3.11.3"), make=made("apscheduler-3.11")),
    Copy(
        target="celery-results",
        documents=real(
            celery_taskmeta="celery-results/celery_taskmeta", celery_groupmeta="celery-results/celery_groupmeta"
        ),
        make=made("celery-results-5.7"),
    ),
    Copy(
        target="sqlalchemy-celery-beat",
        profile="celerybeat",
        documents=real(schedules="celerybeat-mongo/ticked"),
        make=made("sqlalchemy-celery-beat-0.9"),
        options=ZONES,
        chunk=2,
    ),
    Copy(
        target="django-celery-beat",
        profile="celerybeat",
        documents=real(schedules="celerybeat-mongo/ticked"),
        make=made("django-celery-beat-2.9"),
        options=ZONES,
        chunk=2,
    ),
    Copy(target="apscheduler4", documents=apscheduler_4, make=made("apscheduler4-4.0.0a6"), chunk=2),
    Copy(target="shedlock", documents=locks, make=partial(execute, SHEDLOCK), chunk=2),
    Copy(target="quartz", documents=quartz, make=quartz_tables.make, options=quartz_documents.OPTIONS, chunk=1),
    Copy(target="pgmq", profile="mongodb-queue", documents=messages, make=made("pgmq-1.13"), chunk=2),
    Copy(
        target="procrastinate",
        profile="mongodb-queue",
        documents=messages,
        make=made("procrastinate-3.10"),
        options={"task": "app.tasks.work"},
        chunk=2,
    ),
)


def counts(dsn: str, target: str) -> dict[str, tuple[int, int, int]]:
    """Return the rows of each table of the library, those of the tool beside them, and the documents of these."""
    described = load_target(target)
    found = {}
    with psycopg.connect(dsn) as connection:
        for table in described.tables:
            statement = sql.SQL(
                "SELECT (SELECT count(*) FROM {}), count(*), count(DISTINCT (source, source_id)) FROM {}"
            ).format(sql.Identifier(described.schema, table.name), native_target.origins(table, described))
            found[table.name] = connection.execute(statement).fetchall()[0]
    return found


def documents_with_rows(dsn: str, target: str) -> int:
    """Return the number of documents that have a row in any table."""
    described = load_target(target)
    origins = [
        sql.SQL("SELECT source, source_id FROM {}").format(native_target.origins(table, described))
        for table in described.tables
    ]
    with psycopg.connect(dsn) as connection:
        statement = sql.SQL("SELECT count(*) FROM ({}) AS documents").format(sql.SQL(" UNION ").join(origins))
        return int(connection.execute(statement).fetchall()[0][0])


def killed_at(config: Path, point: str, tally: Path) -> bool:
    """Run a backfill that is killed at the second passing of a point; tell whether it was."""
    tally.unlink(missing_ok=True)
    environment = {
        "MIGRATOR_FAULT_POINTS": "listener:passed",
        "PYTHONPATH": str(FOLDER),
        "KILL_AT": point,
        "KILL_COUNT": "2",
        "KILL_TALLY": str(tally),
    }
    process = start("backfill", "--config", str(config), environment=environment)
    try:
        said = "".join(process.communicate(timeout=300))
    finally:
        kill(process)
    assert process.returncode in {-signal.SIGKILL, 0, QUARANTINE}, said
    return process.returncode < 0


@pytest.mark.slow
@pytest.mark.proves("6-T2", "6-T3", "6-T4", "6-T5", "6-T6", "6-T7", "6-T8", "6-T9")
@pytest.mark.parametrize("copy", [pytest.param(copy, id=copy.target) for copy in COPIES])
def test_killed_between_and_within_chunks(
    copy: Copy, mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    dsn, documents = postgres_dsn, copy.documents()
    for collection, contents in documents.items():
        mongo_database[collection].insert_many(contents)
    copy.make(dsn)
    settings = settings_for(
        mongo_database,
        dsn,
        profile=copy.profile or copy.target,
        chunk=copy.chunk,
        target=TargetSettings(name=copy.target, options=dict(copy.options)),
    )
    revisions.upgrade(dsn, branches=(revisions.TOOL,))
    with psycopg.connect(dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target(copy.target), settings.target)
    config = write_config(tmp_path, settings)
    assert [point for point in POINTS if killed_at(config, point, tmp_path / "tally")] == [*POINTS]
    incomplete = sum(rows for rows, _, _ in counts(dsn, copy.target).values())
    status, _, said = run("backfill", "--config", str(config))
    assert status in (0, QUARANTINE), said
    done = counts(dsn, copy.target)
    assert all(rows == origins == distinct for rows, origins, distinct in done.values()), "each row once"
    with psycopg.connect(dsn) as connection:
        [(left,)] = connection.execute("SELECT count(*) FROM migration.quarantine").fetchall()
    assert documents_with_rows(dsn, copy.target) + left == sum(map(len, documents.values()))
    assert 0 < incomplete < sum(rows for rows, _, _ in done.values()), "some chunks were there, and some were not"
    assert compared(settings) == []
    assert run("backfill", "--config", str(config))[0] == status
    assert counts(dsn, copy.target) == done
