"""The area ``library`` of ``verify`` for pgmq and procrastinate: pending work, each entry named by its document."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from bson import Int64, ObjectId
from bson.binary import Binary
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.result import not_applicable
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from migrator.targets.library import LIBRARIES
from tests.copying import settings_for
from tests.forked_probes import altered
from tests.library_checks import checked, execute, told
from tests.native_tables import BY_NAME, Made, prepare, python

Document = dict[str, Any]
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
IDS = {name: ObjectId(f"65a0000000000000000000{number:02x}") for number, name in enumerate("abcdefgh", 1)}


class Kept(msgspec.Struct, frozen=True):
    """A target of pending work, and what its table calls things."""

    made: Made
    tables: tuple[str, ...]
    tries: str
    time: str
    payload: str
    """Of SQL: the payload of a row."""
    differing: tuple[str, str, str]
    """How the findings call tries, time and payload."""
    more: str
    """A statement that adds a row without a document."""
    altered: str
    """The statements that let the probe do wrong: ``a`` is executed twice, ``b`` is not, and what is not due is."""
    options: Mapping[str, str] = {}


PGMQ = Kept(
    made=BY_NAME["pgmq-1.13"],
    tables=("pgmq.q_queue", "pgmq.q_dead_queue"),
    tries="read_ct",
    time="vt",
    payload="message",
    differing=("read_ct", "due", "message"),
    more="INSERT INTO pgmq.q_queue (vt, message) VALUES (now(), '{}') RETURNING 'q_queue:' || msg_id",
    altered="""
taken = module._taken

def wrong(client, queues):
    for table, message in taken(client, queues):
        name = isinstance(message.message, dict) and message.message.get("name")
        for _ in range({"a": 2, "b": 0}.get(name, 1)):
            yield table, message

module._taken = wrong
""",
)
PROCRASTINATE = Kept(
    made=BY_NAME["procrastinate-3.10"],
    tables=("public.procrastinate_jobs",),
    tries="attempts",
    time="scheduled_at",
    payload="args->'payload'",
    differing=("attempts", "due", "args"),
    more="INSERT INTO procrastinate_jobs (task_name, queue_name) VALUES ('more', 'q') RETURNING id::text",
    altered="""
stand_in = module._stand_in

def wrong(lines):
    execute = stand_in(lines)
    async def task(context, **given):
        name = isinstance(given.get("payload"), dict) and given["payload"].get("name")
        for _ in range({"a": 2, "b": 0}.get(name, 1)):
            await execute(context, **given)
    return task

module._stand_in = wrong
""",
    options={"task": "app.tasks.work", "queue": "orders"},
)
MOVED_ALL = "stores.MOVED = \"clock_timestamp() + CASE WHEN %s > 0 THEN interval '0' END\"\n"
ALTERED = """
from probes import stores, {probe} as module
{change}
"""
every_target = pytest.mark.parametrize("kept", [PGMQ, PROCRASTINATE], ids=lambda kept: kept.made.target)


def message(name: str, after: timedelta, **changes: Any) -> Document:  # noqa: ANN401 - of a document
    """Return a document as ``add`` of mongodb-queue writes one."""
    visible = (BEGIN + after).strftime("%Y-%m-%dT%H:%M:%S.123Z")
    return {"_id": IDS[name], "visible": visible, "payload": {"name": name}} | changes


MESSAGES = (
    message("a", timedelta()),
    message("b", timedelta(milliseconds=1), tries=2),
    message("c", DAY, payload={"name": "c", "n": 5e9, "big": 1e23, "list": [1, 2.5, None, "\u00fc"]}, ack="1", tries=1),
    message("d", DAY, payload=[datetime(2020, 1, 1), ObjectId(IDS["a"]), Binary(b"x"), Int64(2**53)]),  # noqa: DTZ001 - as BSON has it
    message("e", 357_000 * DAY, tries=7),
    message("f", DAY, payload=None),
    message("g", DAY, deleted="2020-01-01T00:00:00.000Z"),
)
UNFIT = {"_id": ObjectId(), "visible": "soon", "payload": 1}
LETTER = message("h", 2 * DAY, payload={"id": "1", "payload": {"name": "h"}, "tries": 6, "ack": "a"})
Prepared = Callable[[Kept], Settings]


@pytest.fixture
def copied(mongo_database: Database[Document], postgres_dsn: str) -> Prepared:
    """Return a function that copies the messages into the tables of a library."""
    mongo_database["queue"].insert_many([*MESSAGES, UNFIT])
    mongo_database["dead_queue"].insert_one(LETTER)
    mongo_database["jobs"].insert_one({"_id": 1, "sleepUntil": datetime(2020, 1, 1)})  # noqa: DTZ001 - as above

    def copy(kept: Kept) -> Settings:
        prepare(kept.made, postgres_dsn)
        interpreter = str(python(kept.made))
        target = TargetSettings(name=kept.made.target, options=dict(kept.options), interpreter=interpreter)
        settings = settings_for(mongo_database, postgres_dsn, profile="mongodb-queue", target=target)
        revisions.upgrade(postgres_dsn, branches=(revisions.TOOL,))
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            native_target.prepare(connection, load_target(kept.made.target), settings.target)
        assert backfill(settings, Scope()).quarantined == 1
        return settings

    return copy


def everything(settings: Settings, kept: Kept) -> list[Any]:
    """Return the rows and documents that the examination must leave as they are."""
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        tables = [
            connection.execute(f"SELECT xmin::text, stored::text FROM {name} AS stored ORDER BY 2".encode()).fetchall()
            for name in kept.tables
        ]
        scratch = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE '%migrator_%'").fetchall()
    return [*tables, scratch]


def name_of(letter: str, collection: str = "queue") -> str:
    """Return how a finding names the entry of a document."""
    return f"{collection} {json.dumps({'_id': {'$oid': str(IDS[letter])}})}"


@pytest.mark.proves("6-T9")
@every_target
def test_each_pending_message_is_listed_and_taken_once(kept: Kept, copied: Prepared) -> None:
    settings = copied(kept)
    before = everything(settings, kept)
    checks = checked(settings)
    assert {name: told(check) for name, check in checks.items()} == {name: [] for name in checks}
    assert {name: check.outcome for name, check in checks.items() if check.outcome.status != "passed"} == {
        "fires": not_applicable("pending work does not recur")
    }
    counts = checks["entries"].counts
    assert (counts["listed in the source"], counts["listed in the copy"], counts["in quarantine"]) == (7, 7, 1)
    is_job = kept is PROCRASTINATE
    work = checks["work"].counts
    assert (work["entries that were due"], work["entries that were not"]) == ((6, 1) if is_job else (7, 0))
    assert work["executions"] == (5 + 6 if is_job else 5 + 7), "at the time of half of them, and at that of the last"
    locks = checks["locks"].counts
    assert (locks["held by another process"], locks["executed beside them"]) == (3, 2)
    assert everything(settings, kept) == before


@pytest.mark.proves("6-T9")
@every_target
def test_rows_that_differ_are_found_in_the_list(kept: Kept, copied: Prepared) -> None:
    settings, table = copied(kept), kept.tables[0]
    execute(settings, f"UPDATE {table} SET {kept.tries} = 9 WHERE {kept.payload}->>'name' = 'a'")
    execute(settings, f"UPDATE {table} SET {kept.time} = {kept.time} + interval '1 ms' WHERE {kept.tries} = 2")
    column = kept.payload.partition("-")[0]
    changed = f"UPDATE {table} SET {column} = replace({column}::text, '2.5', '2.6')::jsonb"
    execute(settings, f"{changed} WHERE {kept.payload}->>'name' = 'c'")
    execute(settings, f"DELETE FROM {table} WHERE {kept.tries} = 7")
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        [(more,)] = connection.execute(kept.more.encode()).fetchall()
    check = checked(settings, "entries")["entries"]
    says = "the library says something else of {} in PostgreSQL"
    tries, time, payload = kept.differing
    assert told(check) == [
        (more, "library-extra", "the library lists it in PostgreSQL alone"),
        (name_of("a"), "library-differs", says.format(tries)),
        (name_of("b"), "library-differs", says.format(time)),
        (name_of("c"), "library-differs", says.format(payload)),
        (name_of("e"), "library-missing", "the library does not list it in PostgreSQL"),
    ]
    assert check.outcome.status == "failed"


@pytest.mark.proves("6-T9")
@every_target
def test_a_library_that_works_wrongly_is_found(kept: Kept, copied: Prepared, tmp_path: Path) -> None:
    settings = copied(kept)
    script = ALTERED.format(probe=LIBRARIES[kept.made.target].probe, change=MOVED_ALL + kept.altered)
    checks = checked(altered(settings, script, tmp_path), "work", "locks")
    found = {(name, cause) for name, cause, _ in told(checks["work"])}
    assert {(name_of("a"), "library-twice"), (name_of("b"), "library-idle")} <= found
    assert (name_of("e"), "library-unasked") in found, "at the time of half of them"
    assert (name_of("b"), "library-lock") in {(name, cause) for name, cause, _ in told(checks["locks"])}
