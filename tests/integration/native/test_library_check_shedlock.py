"""The area ``library`` of ``verify`` for ShedLock: its own statements on a scratch copy of its table."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.result import not_applicable
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from migrator.targets.library import Interpreter, LibraryRequest, PostgresStore, answer, make_tables
from tests.copying import settings_for
from tests.forked_probes import altered
from tests.library_checks import checked, execute, told

Document = dict[str, Any]
UNTIL = datetime(2026, 11, 24, 12, 0, 0, 123_000)  # noqa: DTZ001 - as BSON has it
HOUR = timedelta(hours=1)


def lock(name: object, until: datetime = UNTIL, **changes: Any) -> Document:  # noqa: ANN401 - of a document
    """Return a document as ``MongoLockProvider`` writes one."""
    return {"_id": name, "lockUntil": until, "lockedAt": until - HOUR, "lockedBy": "old"} | changes


LOCKS = (
    lock("a"),
    lock("b", UNTIL + timedelta(milliseconds=1)),
    lock("c", UNTIL - HOUR),
    lock("d", UNTIL + timedelta(seconds=30)),
    lock("live", UNTIL + 9 * HOUR, lockedBy="a\0b", more=1),
    lock("for ever", datetime(9999, 12, 31, 23, 59, 59, 999_000)),  # noqa: DTZ001 - as above
    lock("old", datetime(1969, 12, 31, 23, 59, 59, 1_000)),  # noqa: DTZ001 - as above
)
UNFIT = (lock("n" * 65), lock(7), lock("open", lockUntil=None), lock("host", lockedBy="h" * 256))


@pytest.fixture
def settings(mongo_database: Database[Document], postgres_dsn: str) -> Settings:
    mongo_database["shedLock"].insert_many([*LOCKS, *UNFIT])
    make_tables("shedlock", PostgresStore(postgres_dsn), Interpreter())
    made = settings_for(mongo_database, postgres_dsn, profile="shedlock", target=TargetSettings(name="shedlock"))
    revisions.upgrade(postgres_dsn, branches=(revisions.TOOL,))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        # the time of a session is another one: the digits must be in UTC all the same
        connection.execute(f"ALTER DATABASE \"{connection.info.dbname}\" SET timezone = 'Asia/Tokyo'")
        native_target.prepare(connection, load_target("shedlock"), made.target)
    assert backfill(made, Scope()).quarantined == len(UNFIT)
    return made


def everything(settings: Settings) -> tuple[Any, ...]:
    """Return the rows and documents that the examination must leave as they are."""
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        rows = connection.execute("SELECT xmin::text, shedlock::text FROM shedlock ORDER BY name").fetchall()
        databases = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE '%migrator_%'").fetchall()
    return rows, databases


@pytest.mark.proves("6-T7")
def test_each_lock_is_listed_and_taken_by_one_when_it_has_expired(settings: Settings) -> None:
    before = everything(settings)
    checks = checked(settings)
    assert {name: told(check) for name, check in checks.items()} == {name: [] for name in checks}
    assert {name: check.outcome for name, check in checks.items() if check.outcome.status != "passed"} == {
        "fires": not_applicable("locks do not fire")
    }
    counts = checks["entries"].counts
    assert (counts["listed in the source"], counts["listed in the copy"]) == (len(LOCKS), len(LOCKS))
    assert counts["in quarantine"] == len(UNFIT)
    work = checks["work"].counts
    assert (work["entries that were due"], work["entries that were not"]) == (6, 1), "all but the one for ever"
    assert work["executions"] == 3 + 6, "three have expired at the first instant, and all six at the last one"
    locks = checks["locks"].counts
    assert (locks["held by another process"], locks["executed beside them"]) == (2, 1)
    assert everything(settings) == before


@pytest.mark.proves("6-T7")
def test_rows_that_differ_are_found_in_the_list_of_the_library(settings: Settings) -> None:
    for statement in (
        "UPDATE shedlock SET lock_until = lock_until + interval '1 ms' WHERE name = 'a'",
        "UPDATE shedlock SET locked_at = locked_at + interval '9 hours', locked_by = 'new' WHERE name = 'b'",
        "UPDATE shedlock SET lock_until = 'infinity' WHERE name = 'd'",
        "UPDATE shedlock SET lock_until = '12000-01-01' WHERE name = 'old'",
        "DELETE FROM shedlock WHERE name = 'c'",
        "INSERT INTO shedlock SELECT 'more', lock_until, locked_at, locked_by FROM shedlock LIMIT 1",
    ):
        execute(settings, statement)
    check = checked(settings, "entries")["entries"]
    says = "the library says something else of {} in PostgreSQL"
    assert told(check) == [
        ("a", "library-differs", says.format("lock_until")),
        ("b", "library-differs", says.format("locked_at, locked_by")),
        ("c", "library-missing", "the library does not list it in PostgreSQL"),
        ("d", "library-differs", says.format("lock_until")),
        ("more", "library-extra", "the library lists it in PostgreSQL alone"),
        ("old", "library-differs", says.format("lock_until")),
    ]
    assert check.outcome.status == "failed"


ALTERED = """
from probes import shedlock
{change}
"""
"""The probe, with other statements."""
REPLACED = "shedlock.{0} = shedlock.{0}.replace({1!r}, {2!r})"
EXPIRED = ("shedlock.lock_until <= %(now)s", "lock_until <= %(now)s")
CHANGES: dict[str, tuple[str, set[str], set[str]]] = {
    "a live lock is taken": (
        "; ".join(
            REPLACED.format(name, text, "true") for name, text in zip(("INSERT", "UPDATE"), EXPIRED, strict=True)
        ),
        {"library-unasked", "library-twice"},
        {"library-lock"},
    ),
    "no lock is taken": (
        "; ".join(
            REPLACED.format(name, text, "false") for name, text in zip(("INSERT", "UPDATE"), EXPIRED, strict=True)
        ),
        {"library-idle"},
        {"library-lock"},
    ),
    "a lock has expired when it is taken": ("shedlock.MOST -= shedlock.MOST", {"library-twice"}, set()),
}
"""What is changed → the causes that are found in the work, and in the locks."""


@pytest.mark.proves("6-T7")
@pytest.mark.parametrize("name", CHANGES)
def test_statements_that_do_something_else_are_found(name: str, settings: Settings, tmp_path: Path) -> None:
    change, in_work, in_locks = CHANGES[name]
    checks = checked(altered(settings, ALTERED.format(change=change), tmp_path), "work", "locks")
    assert {cause for _, cause, _ in told(checks["work"])} == in_work
    assert {cause for _, cause, _ in told(checks["locks"])} == in_locks


def test_the_table_is_made_by_the_statement_of_the_manual_once(postgres_dsn: str) -> None:
    for _ in range(2):
        made = make_tables("shedlock", PostgresStore(postgres_dsn), Interpreter())
        assert made[0] == {"kind": "prepared", "tables": ["shedlock"]}
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        native_target.require_tables(connection, load_target("shedlock"), TargetSettings(name="shedlock"))
    assert answer("shedlock", LibraryRequest(do="entries", store=PostgresStore(postgres_dsn)))[0]["kind"] == "done"
