"""APScheduler's jobs, moved into the table of its own job store for PostgreSQL."""

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from bson import Binary, ObjectId
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.errors import RefusedError
from migrator.parity.check import check_parity
from migrator.parity.repair import apply_repair
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from tests.apscheduler_documents import real
from tests.copying import settings_for


@pytest.fixture
def settings(mongo_database: Database[Any], postgres_dsn: str) -> Settings:
    """A database with the jobs of one version, and one in which the library has made its table."""
    mongo_database["jobs"].insert_many(real("3.11.3").values())
    url = postgres_dsn
    store = SQLAlchemyJobStore(url=url.replace("postgresql://", "postgresql+psycopg://"))
    store.start(None, "default")
    store.shutdown()
    made = settings_for(mongo_database, postgres_dsn, profile="apscheduler", target=TargetSettings(name="apscheduler"))
    revisions.upgrade(postgres_dsn, branches=("migration",))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target("apscheduler"), made.target)
    return made


def stored(dsn: str) -> dict[str, tuple[float | None, bytes]]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT id, next_run_time, job_state FROM apscheduler_jobs").fetchall()
    return {key: (due, bytes(state)) for key, due, state in rows}


def test_every_job_arrives_byte_for_byte(settings: Settings, mongo_database: Database[Any]) -> None:
    result = backfill(settings, Scope())
    assert (result.complete, result.quarantined) == (True, 0)
    assert settings.postgres.dsn is not None
    documents = {job["_id"]: (job["next_run_time"], bytes(job["job_state"])) for job in mongo_database["jobs"].find()}
    assert stored(settings.postgres.dsn) == documents
    found = check_parity(settings, Scope())
    assert (found.differs, found.unverified, found.unverified_because) == (False, False, ""), found
    assert backfill(settings, Scope()).written == 0


def test_a_row_of_others_is_an_extra_row_and_is_not_removed(settings: Settings, postgres_dsn: str) -> None:
    backfill(settings, Scope())
    before = stored(postgres_dsn)
    first, *_ = sorted(before)
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("INSERT INTO apscheduler_jobs (id, job_state) VALUES ('of others', 'x')")
        connection.execute("DELETE FROM migration_apscheduler.apscheduler_jobs_origins WHERE source_id = %s", (first,))
    compared = check_parity(settings, Scope())
    (jobs,) = compared.collections
    assert {(one.side, one.key, one.cause) for one in jobs.findings} == {
        ("extra", first, "foreign-row"),
        ("extra", "of others", "foreign-row"),
        ("missing", first, "missing-row"),
    }
    assert (jobs.extra, [(one.cause, one.count) for one in jobs.tallies["extra"]]) == (2, [("foreign-row", 2)])
    with pytest.raises(RefusedError, match="holds rows that did not come from profile apscheduler \\(2\\)"):
        backfill(settings, Scope())
    apply_repair(settings, Scope())
    assert stored(postgres_dsn).keys() == {*before, "of others"}


ODD: dict[str, tuple[dict[str, Any], str, str]] = {
    "too long": ({"_id": "x" * 192}, "too-long", "_id"),
    "a number": ({"_id": 7}, "wrong-type", "_id"),
    "an object id": ({"_id": ObjectId("6b04cdfebcc0d2a1f0a1b2c3")}, "wrong-type", "_id"),
    "a text as time": ({"_id": "soon", "next_run_time": "soon"}, "wrong-type", "next_run_time"),
    "a date as time": (
        {"_id": "a date", "next_run_time": datetime(2027, 1, 1, tzinfo=UTC)},
        "wrong-type",
        "next_run_time",
    ),
    "no pickle": ({"_id": "no pickle"}, "missing-field", "job_state"),
    "a text as pickle": ({"_id": "text pickle", "job_state": "x"}, "wrong-type", "job_state"),
}
UNREADABLE = b"\x80\x04\x8c\x04nope\x94\x8c\x05Class\x94\x93\x94."
"""A pickle of a class that does not exist."""


@pytest.mark.proves("6-T2")
def test_what_the_table_cannot_hold_is_quarantined_alone(
    settings: Settings, mongo_database: Database[Any], postgres_dsn: str
) -> None:
    sound = {job["_id"] for job in mongo_database["jobs"].find()}
    whole = {"next_run_time": 1.5, "job_state": Binary(b"x", 0)}
    mongo_database["jobs"].insert_many([whole | document for document, _, _ in ODD.values()])
    mongo_database["jobs"].update_one({"_id": "no pickle"}, {"$unset": {"job_state": 1}})
    mongo_database["jobs"].insert_many(
        [
            {"_id": "x" * 191, "next_run_time": float("inf"), "job_state": Binary(UNREADABLE, 0)},
            {"_id": "7", "next_run_time": None, "job_state": Binary(b"", 128), "more": [1, None]},
        ]
    )
    result = backfill(settings, Scope())
    assert (result.complete, result.quarantined) == (True, len(ODD))
    rows = stored(postgres_dsn)
    assert rows.keys() == sound | {"x" * 191, "7"}
    assert rows["x" * 191] == (float("inf"), UNREADABLE)
    assert rows["7"] == (None, b"")
    with psycopg.connect(postgres_dsn) as connection:
        found = connection.execute("SELECT source_id, reason, path FROM migration.quarantine").fetchall()
    assert {row[1:] for row in found} == {(reason, path) for _, reason, path in ODD.values()}
    assert len(found) == len(ODD)
    compared = check_parity(settings, Scope())
    assert (compared.differs, compared.unverified_because) == (False, "")
    assert backfill(settings, Scope()).written == 0
