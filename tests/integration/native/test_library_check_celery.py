"""The area ``library`` of ``verify`` for Celery's results: ``AsyncResult`` and ``GroupResult`` on both sides."""

from datetime import datetime
from typing import Any

import psycopg
import pytest
from bson import Binary
from msgspec.structs import replace
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.result import not_applicable
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from tests.copying import quarantine, settings_for
from tests.library_checks import checked, execute, told
from tests.native_tables import BY_NAME, Made, prepare, python
from tests.real_documents import real_documents

Document = dict[str, Any]
TASKS, GROUPS = "celery_taskmeta", "celery_groupmeta"
NEW, OLD = BY_NAME["celery-results-5.7"], BY_NAME["celery-results-5-6-5.6"]
both = pytest.mark.parametrize("made", [pytest.param(made, id=made.shape) for made in (NEW, OLD)])
DONE = datetime(2026, 11, 24, 1, 2, 3, 4_000)  # noqa: DTZ001 - as BSON has it


def task(key: object, **changes: Any) -> Document:  # noqa: ANN401 - of a document
    """Return a document as Celery writes one."""
    plain: Document = {"status": "SUCCESS", "result": "5", "traceback": None, "children": [], "date_done": DONE}
    return {"_id": key, **plain} | changes


def copied(made: Made, database: Database[Document], dsn: str) -> Settings:
    """Let the library make its tables, and copy; return the settings, which name its interpreter."""
    prepare(made, dsn)
    target = TargetSettings(name=made.target, interpreter=str(python(made)))
    settings = settings_for(database, dsn, profile="celery-results", target=target)
    revisions.upgrade(dsn, branches=(revisions.TOOL,))
    with psycopg.connect(dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target(made.target), settings.target)
    assert backfill(settings, Scope()).complete
    return settings


def everything(settings: Settings, database: Database[Document]) -> tuple[Any, ...]:
    """Return the rows and documents that the examination must leave as they are."""
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        tasks = connection.execute("SELECT xmin::text, celery_taskmeta::text FROM celery_taskmeta").fetchall()
        groups = connection.execute("SELECT xmin::text, celery_tasksetmeta::text FROM celery_tasksetmeta").fetchall()
        databases = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE '%migrator_%'").fetchall()
    names = sorted(database.list_collection_names())
    indexes = [database[name].index_information() for name in names]
    return sorted(tasks), sorted(groups), databases, names, indexes


@pytest.mark.proves("6-T3")
@both
def test_the_library_says_of_a_copy_what_it_says_of_the_source(
    made: Made, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    for name in (TASKS, GROUPS):
        mongo_database[name].insert_many(real_documents(f"celery-results/{name}"))
    mongo_database[TASKS].insert_many(
        [
            task("nul", traceback="a\0b", result='"a\\u0000b"'),
            task("iso", date_done="2026-11-24T01:02:03.000004+00:00"),
            task("nan", result='{"a": NaN, "d": -0.0}'),
            task("too long", status="S" * 51),
            *([task("plain bytes", result=Binary(b"x", 128))] if made is NEW else []),
        ]
    )
    settings = copied(made, mongo_database, postgres_dsn)
    before = everything(settings, mongo_database)
    checks = checked(settings)
    assert told(checks["entries"]) == []
    assert checks["entries"].outcome.status == "passed"
    counts = checks["entries"].counts
    quarantined = len(quarantine(postgres_dsn))
    assert counts["in quarantine"] == quarantined > 0
    assert counts["listed in the copy"] == counts["listed in the source"] - quarantined > 60
    assert [checks[part].outcome for part in ("fires", "work", "locks")] == [
        not_applicable(f"results {words}") for words in ("do not fire", "are not executed", "are not locked")
    ]
    assert everything(settings, mongo_database) == before


@pytest.mark.proves("6-T3")
@both
def test_rows_that_differ_are_found_in_the_list_of_the_library(
    made: Made, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    mongo_database[TASKS].insert_one(task("state"))
    names = ("done", "result", "missing", "cut", "children", "same")
    mongo_database[TASKS].insert_many([task(name, children=[[["same", None], None]]) for name in names])
    mongo_database[GROUPS].insert_one({"_id": "g", "result": '["same", "done"]', "date_done": DONE})
    settings = copied(made, mongo_database, postgres_dsn)
    for statement in (
        "UPDATE celery_taskmeta SET status = 'STARTED' WHERE task_id = 'state'",
        "UPDATE celery_taskmeta SET date_done = date_done + interval '1 ms' WHERE task_id = 'done'",
        "UPDATE celery_taskmeta SET result = (SELECT result FROM celery_tasksetmeta) WHERE task_id = 'result'",
        "DELETE FROM celery_taskmeta WHERE task_id = 'missing'",
        "UPDATE celery_taskmeta SET result = '\\x80' WHERE task_id = 'cut'",
        "INSERT INTO celery_taskmeta (id, task_id) VALUES (1000, 'more')",
        "UPDATE celery_tasksetmeta SET taskset_id = 'h'",
        *(["UPDATE celery_taskmeta SET children = NULL WHERE task_id = 'children'"] if made is NEW else []),
    ):
        execute(settings, statement)
    check = checked(settings, "entries")["entries"]
    found = {
        key: (cause, words.removeprefix("the library says something else of ")) for key, cause, words in told(check)
    }
    cut = found.pop("cut")
    assert cut[0] == "library-differs"
    assert "the error of the library" in cut[1]
    expected = {
        "state": ("library-differs", "state in PostgreSQL"),
        "done": ("library-differs", "date_done in PostgreSQL"),
        "result": ("library-differs", "result in PostgreSQL"),
        "children": ("library-differs", "children in PostgreSQL"),
        **dict.fromkeys(("missing", "g"), ("library-missing", "the library does not list it in PostgreSQL")),
        **dict.fromkeys(("more", "h"), ("library-extra", "the library lists it in PostgreSQL alone")),
    }
    if made is OLD:  # it has no column for them
        del expected["children"]
    assert found == expected
    assert check.outcome.status == "failed"


def test_the_library_of_the_other_format_leaves_the_area_unverified(
    mongo_database: Database[Document], postgres_dsn: str
) -> None:
    mongo_database[TASKS].insert_one(task("a"))
    settings = copied(NEW, mongo_database, postgres_dsn)
    other = str(python(OLD))
    checks = checked(replace(settings, target=replace(settings.target, interpreter=other)), "entries")
    outcome = checks["entries"].outcome
    assert outcome.status == "unverified"
    assert outcome.reason.startswith(f"the library of {other} makes other tables than the target has")
