"""U+0000 in a text by which a library finds a row: the document is quarantined, and no row has another key."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec
import psycopg
import pytest
from bson import Binary, ObjectId
from pymongo.database import Database

from migrator.config import TargetSettings
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from tests import quartz_documents, quartz_tables
from tests.copying import quarantine, settings_for
from tests.native_tables import BY_NAME, prepare
from tests.tailing import compared

Document = dict[str, Any]
NUL, REPLACED = "a\0b", "a\ufffdb"
"""The second is what a column that may differ holds for the first."""
NOON: Final = datetime(2026, 11, 24, 12)  # noqa: DTZ001 - as BSON has it
SHEDLOCK: Final = """CREATE TABLE shedlock (name varchar(64) NOT NULL, lock_until timestamp NOT NULL,
    locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL, PRIMARY KEY (name))"""


class Keyed(msgspec.Struct, frozen=True, kw_only=True):
    """A collection, and what of a document becomes a key of the library."""

    target: str
    profile: str = ""
    collection: str
    document: Callable[[str, str], Document]
    """Makes a document from the text of a path, and the path."""
    paths: tuple[str, ...]
    make: Callable[[str], object]
    options: dict[str, Any] = {}
    table: str


def execute(statement: str, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(statement.encode())


def with_id(document: Document) -> Callable[[str, str], Document]:
    return lambda value, _: document | {"_id": value}


def beat_task(value: str, path: str) -> Document:
    interval = {"_cls": "Interval", "every": 1, "period": "hours"}
    plain: Document = {"_id": ObjectId(), "_cls": "PeriodicTask", "name": f"{path}{len(value)}{ord(value[1])}"}
    plain |= {"task": "shop.add", "interval": interval, "args": [], "kwargs": {}, "enabled": True}
    return plain | {"total_run_count": 0, "max_run_count": 0, path: value}


def quartz_job(value: str, path: str) -> Document:
    return quartz_documents.job(ObjectId(), "report") | {path: value}


ZONES: Final[Document] = {"timezone": "UTC", "host_timezone": "UTC"}
PLAIN: Final[Document] = {"task_id": "a:b", "trigger": b"x", "args": b"[]", "kwargs": b"{}", "metadata": {}}
LENGTHS: Final[Document] = {"misfire_grace_time": None, "max_jitter": None, "job_result_expiration_time": 0}
TIMES: Final[Document] = {"next_fire_time": None, "last_fire_time": None, "acquired_by": None, "acquired_until": None}
SCHEDULE: Final = {**PLAIN, **LENGTHS, **TIMES, "paused": False, "coalesce": "latest", "job_executor": "x"}
RESULT: Final[Document] = {"status": "SUCCESS", "result": "5", "traceback": None, "children": [], "date_done": NOON}
KEYED: Final = (
    Keyed(
        target="apscheduler",
        collection="jobs",
        document=with_id({"next_run_time": 1.5, "job_state": Binary(b"x", 0)}),
        paths=("_id",),
        make=partial(prepare, BY_NAME["apscheduler-3.11"]),
        table="apscheduler_jobs",
    ),
    Keyed(
        target="apscheduler4",
        collection="tasks",
        document=with_id(
            {"func": "a:b", "job_executor": "x", "misfire_grace_time": None, "max_running_jobs": None}
            | {"running_jobs": 0, "metadata": {}}
        ),
        paths=("_id",),
        make=partial(prepare, BY_NAME["apscheduler4-4.0.0a6"]),
        table="apscheduler.tasks",
    ),
    Keyed(
        target="apscheduler4",
        collection="schedules",
        document=with_id(SCHEDULE),
        paths=("_id",),
        make=partial(prepare, BY_NAME["apscheduler4-4.0.0a6"]),
        table="apscheduler.schedules",
    ),
    *(
        Keyed(
            target=target,
            profile="celery-results",
            collection=collection,
            document=with_id(document),
            paths=("_id",),
            make=partial(prepare, BY_NAME[shape]),
            table=table,
        )
        for target, shape in (
            ("celery-results", "celery-results-5.7"),
            ("celery-results-5-6", "celery-results-5-6-5.6"),
        )
        for collection, document, table in (
            ("celery_taskmeta", RESULT, "celery_taskmeta"),
            ("celery_groupmeta", {"result": "[]", "date_done": NOON}, "celery_tasksetmeta"),
        )
    ),
    *(
        Keyed(
            target=target,
            profile="celerybeat",
            collection="schedules",
            document=beat_task,
            paths=("name", "task"),
            make=partial(prepare, BY_NAME[shape]),
            options=ZONES,
            table=table,
        )
        for target, shape, table in (
            ("sqlalchemy-celery-beat", "sqlalchemy-celery-beat-0.9", "celery_periodictask"),
            ("django-celery-beat", "django-celery-beat-2.9", "django_celery_beat_periodictask"),
        )
    ),
    Keyed(
        target="quartz",
        collection="quartz_jobs",
        document=quartz_job,
        paths=("keyName", "keyGroup"),
        make=quartz_tables.make,
        options=quartz_documents.OPTIONS,
        table="qrtz_job_details",
    ),
    Keyed(
        target="shedlock",
        collection="shedLock",
        document=with_id({"lockUntil": datetime(2099, 1, 1), "lockedAt": NOON, "lockedBy": "host"}),  # noqa: DTZ001 - as above
        paths=("_id",),
        make=partial(execute, SHEDLOCK),
        table="shedlock",
    ),
)


@pytest.mark.parametrize("keyed", [pytest.param(keyed, id=f"{keyed.target}-{keyed.collection}") for keyed in KEYED])
def test_a_key_that_postgresql_cannot_hold_is_quarantined_alone(
    keyed: Keyed, mongo_database: Database[Any], postgres_dsn: str
) -> None:
    documents = [keyed.document(value, path) for path in keyed.paths for value in (NUL, REPLACED)]
    mongo_database[keyed.collection].insert_many(documents)
    keyed.make(postgres_dsn)
    settings = settings_for(
        mongo_database,
        postgres_dsn,
        profile=keyed.profile or keyed.target,
        target=TargetSettings(name=keyed.target, options=keyed.options),
    )
    revisions.upgrade(postgres_dsn, branches=(revisions.TOOL,))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target(keyed.target), settings.target)
    backfill(settings, Scope())
    reasons = sorted((reason, path) for _, _, reason, path, _ in quarantine(postgres_dsn))
    assert reasons == [("nul", path) for path in sorted(keyed.paths)]
    with psycopg.connect(postgres_dsn) as connection:
        [(count,)] = connection.execute(f"SELECT count(*) FROM {keyed.table}".encode()).fetchall()
    assert count == len(keyed.paths)
    assert compared(settings) == []
