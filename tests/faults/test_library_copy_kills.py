"""A copy into a library's own tables that was killed and called again: each row is there once, and all are equal."""

import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pymongo.database import Database

from migrator import fault_points as points
from migrator.config import TargetSettings
from migrator.exit_status import QUARANTINE
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from tests.copying import kill, run, settings_for, start, write_config
from tests.native_tables import BY_NAME, prepare
from tests.real_documents import real_documents
from tests.tailing import compared

FOLDER = Path(__file__).parent
POINTS = (points.AFTER_CHUNK_BEGUN, points.AFTER_LOAD_BEFORE_COMMIT, points.AFTER_COMMIT)
CHUNK = 8
COPIES = {
    "agenda-3.0": {"agendaJobs": "agenda-6/agendaJobs", "agenda_logs": "agenda-6/agenda_logs"},
    "apscheduler-3.11": {"jobs": "apscheduler/3.11.3"},
    "celery-results-5.7": {
        "celery_taskmeta": "celery-results/celery_taskmeta",
        "celery_groupmeta": "celery-results/celery_groupmeta",
    },
}
"""Shape of a target's tables → each collection with the file of its documents."""


def counts(dsn: str, target: str) -> dict[str, tuple[int, int, int]]:
    """Return the rows of each table of the library, those of the tool beside them, and the documents of these."""
    found = {}
    with psycopg.connect(dsn) as connection:
        for table in load_target(target).tables:
            statement = sql.SQL(
                "SELECT (SELECT count(*) FROM {}), count(*), count(DISTINCT (source, source_id)) FROM {}"
            ).format(sql.Identifier("public", table.name), native_target.origins(table, load_target(target)))
            found[table.name] = connection.execute(statement).fetchall()[0]
    return found


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
@pytest.mark.proves("6-T2", "6-T3", "6-T4")
@pytest.mark.parametrize("shape", COPIES)
def test_killed_between_and_within_chunks(
    shape: str, mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    made, dsn = BY_NAME[shape], postgres_dsn
    documents = {collection: real_documents(name) for collection, name in COPIES[shape].items()}
    for collection, contents in documents.items():
        mongo_database[collection].insert_many(contents)
    prepare(made, dsn)
    settings = settings_for(
        mongo_database, dsn, profile=made.target, chunk=CHUNK, target=TargetSettings(name=made.target)
    )
    revisions.upgrade(dsn, branches=(revisions.TOOL,))
    with psycopg.connect(dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target(made.target), settings.target)
    config = write_config(tmp_path, settings)
    assert [point for point in POINTS if killed_at(config, point, tmp_path / "tally")] == [*POINTS]
    incomplete = sum(rows for rows, _, _ in counts(dsn, made.target).values())
    status, _, said = run("backfill", "--config", str(config))
    assert status in (0, QUARANTINE), said
    done = counts(dsn, made.target)
    assert all(rows == origins == distinct for rows, origins, distinct in done.values()), "each row once"
    with psycopg.connect(dsn) as connection:
        [(left,)] = connection.execute("SELECT count(*) FROM migration.quarantine").fetchall()
    assert sum(rows for rows, _, _ in done.values()) + left == sum(map(len, documents.values()))
    assert 0 < incomplete < sum(rows for rows, _, _ in done.values()), "some chunks were there, and some were not"
    assert compared(settings) == []
    assert run("backfill", "--config", str(config))[0] == status
    assert counts(dsn, made.target) == done
