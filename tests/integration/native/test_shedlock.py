"""ShedLock's locks, moved into the table of its JDBC providers, and asked for there by ShedLock's own statements.

No Java is started: the statements are those of ShedLock 7 with ``usingDbTime``
(``PostgresSqlServerTimeStatementsSource`` and ``StorageBasedLockProvider``).
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from bson.datetime_ms import DatetimeMS
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.errors import RefusedError
from migrator.parity.repair import apply_repair
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from tests.copying import quarantine, settings_for
from tests.tailing import caught_up, compared

Document = dict[str, Any]
TABLE = """
CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL,
    locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))
"""
"""As ShedLock's README says for PostgreSQL."""
NOW = "timezone('utc', CURRENT_TIMESTAMP)"
SET = f"""SET lock_until = {NOW} + make_interval(secs => 60), locked_at = {NOW}, locked_by = 'new'
    WHERE shedlock.name = %(name)s AND shedlock.lock_until <= {NOW}"""
ACQUIRE = f"""INSERT INTO shedlock(name, lock_until, locked_at, locked_by)
    VALUES(%(name)s, {NOW} + make_interval(secs => 60), {NOW}, 'new') ON CONFLICT (name) DO UPDATE {SET}"""
UPDATE = f"UPDATE shedlock {SET}"
UNLOCK = f"UPDATE shedlock SET lock_until = {NOW} WHERE name = %(name)s AND locked_by = 'old'"


def lock(name: object, until: datetime, **changes: Any) -> Document:  # noqa: ANN401 - of a document
    """Return a document as ``MongoLockProvider`` writes one."""
    return {"_id": name, "lockUntil": until, "lockedAt": until - timedelta(minutes=5), "lockedBy": "old"} | changes


@pytest.fixture
def settings(mongo_database: Database[Document], postgres_dsn: str) -> Settings:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(TABLE)
        # the time of a session is another one: the digits must be in UTC all the same
        connection.execute(f"ALTER DATABASE \"{connection.info.dbname}\" SET timezone = 'Asia/Tokyo'")
        made = settings_for(mongo_database, postgres_dsn, profile="shedlock", target=TargetSettings(name="shedlock"))
        revisions.upgrade(postgres_dsn, branches=(revisions.TOOL,))
        native_target.prepare(connection, load_target("shedlock"), made.target)
    return made


def rows(settings: Settings) -> Sequence[Any]:
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        return connection.execute("SELECT * FROM shedlock ORDER BY name").fetchall()


def changed(settings: Settings, statement: str, name: str) -> int:
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        return connection.execute(statement.encode(), {"name": name}).rowcount


@pytest.mark.proves("6-T7")
def test_a_live_lock_is_respected_and_an_expired_one_is_taken(
    settings: Settings, mongo_database: Database[Document]
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    live, expired = now + timedelta(minutes=10), now - timedelta(seconds=10)
    mongo_database["shedLock"].insert_many([lock("live", live), lock("expired", expired)])
    assert backfill(settings, Scope()).quarantined == 0
    plain = [time.replace(tzinfo=None) for time in (expired, live)]
    assert rows(settings) == [
        (name, time, time - timedelta(minutes=5), "old") for name, time in zip(("expired", "live"), plain, strict=True)
    ]
    assert compared(settings) == []
    assert backfill(settings, Scope()).written == 0
    for statement in (ACQUIRE, UPDATE):
        assert changed(settings, statement, "live") == 0
    assert changed(settings, ACQUIRE, "expired") == 1
    assert changed(settings, ACQUIRE, "expired") == 0, "it is held now"
    assert changed(settings, ACQUIRE, "unknown") == 1
    assert changed(settings, UNLOCK, "live") == 1, "by the process that holds it"
    assert changed(settings, ACQUIRE, "live") == 1


def test_what_a_column_cannot_hold_is_quarantined_alone(settings: Settings, mongo_database: Database[Document]) -> None:
    until = datetime(2027, 1, 1, 0, 0, 0, 5_000, UTC)
    wrong = {
        ("too-long", "_id"): lock("n" * 65, until),
        ("wrong-type", "_id"): lock(7, until),
        ("missing-field", "lockUntil"): lock("open", until, lockUntil=None),
        ("bad-date", "lockedAt"): lock("text", until, lockedAt="soon"),
        ("too-long", "lockedBy"): lock("host", until, lockedBy="h" * 256),
        ("bad-date", "lockUntil"): lock("far", until, lockUntil=DatetimeMS(2**53)),
    }
    mongo_database["shedLock"].insert_many(
        [*wrong.values(), lock("n" * 64, until), lock("nul", until, lockedBy="a\0b", more=1)]
    )
    backfill(settings, Scope())
    assert {(reason, path) for _, _, reason, path, _ in quarantine(settings.postgres.dsn or "")} == {*wrong}
    assert [(row[0], row[3]) for row in rows(settings)] == [("n" * 64, "old"), ("nul", "a\ufffdb")]
    assert compared(settings) == []


def test_the_tail_follows_and_repair_repairs(settings: Settings, mongo_database: Database[Document]) -> None:
    locks, until = mongo_database["shedLock"], datetime(2027, 1, 1, tzinfo=UTC)
    locks.insert_many([lock(name, until) for name in ("a", "b")])
    backfill(settings, Scope())
    locks.update_one({"_id": "a"}, {"$set": {"lockUntil": until + timedelta(hours=1)}})
    locks.delete_one({"_id": "b"})
    locks.insert_one(lock("c", until))
    caught_up(settings)
    assert [(row[0], row[1].hour) for row in rows(settings)] == [("a", 1), ("c", 0)]
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        connection.execute("UPDATE shedlock SET lock_until = lock_until + interval '9 hours' WHERE name = 'c'")
    assert [(key, side) for _, key, side, _ in compared(settings) if side != "aggregate"] == [("c", "row")]
    apply_repair(settings, Scope(), overwrite=True)
    assert compared(settings) == []


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp(3)"])
def test_times_of_another_type_are_refused(kind: str, postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(TABLE.replace("TIMESTAMP", kind).encode())
        with pytest.raises(RefusedError, match=r"shedlock\.lock_until: type is timestamp.* expected timestamp without"):
            native_target.prepare(connection, load_target("shedlock"), TargetSettings(name="shedlock"))
