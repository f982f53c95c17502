"""A scheduler that no shipped source knows, by a mapping file: copied and compared on real servers."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from bson.int64 import Int64
from bson.objectid import ObjectId
from psycopg.rows import TupleRow
from pymongo import MongoClient
from pymongo.database import Database

from migrator.cli.text import sample_lines
from migrator.config import MongoSettings, PostgresSettings, Settings, SourceSettings
from migrator.cutover import server_gates
from migrator.errors import RefusedError, UsageError
from migrator.parity.check import check_parity
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.source_sample import BrokenReference, WordCount, check_source, draft_mapping
from migrator.sources import profile_of
from migrator.testing.servers.mongo import MongoServer
from tests.tailing import caught_up, compared

Document = dict[str, Any]
Target = psycopg.Connection[TupleRow]
MAPPING = Path(__file__).parents[1] / "fixtures_data" / "mappings" / "acme.toml"
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
SECONDS = 1795397400.25


def job(**fields: Any) -> Document:  # noqa: ANN401 - any value of a field
    return {
        "_id": ObjectId(),
        "org": "north",
        "title": "nightly",
        "cron": "30 2 * * 1-5",
        "zone": "Europe/Vienna",
        "active": True,
        "state": "on",
        "created": NOON,
    } | fields


def fill(database: Database[Document]) -> None:
    """Insert jobs, a history and locks of the source of ``MAPPING``, some of which cannot be converted."""
    known = job()
    database["jobs"].insert_many(
        [
            known,
            job(cron=None, every=90.5, next=1795397400.123456, options={"retries": 3, "timeout": 2.5, "colour": "red"}),
            job(active=False, state="off", labels=["a", "b"], payload={"deep": [1, 2.5, NOON]}, priority=Int64(7)),
            job(cron="not a line", grade="pair"),
            job(zone="Mars/Olympus"),
            job(zone="W. Europe Standard Time"),
            job(state="lost"),
            job(org=None),
            job(title=5),
            job(priority=101),
            job(cron=None, more="of no column", options={"retries": None}),
        ]
    )
    begun = Int64(int(NOON.timestamp() * 1000))
    database["history"].insert_many(
        [
            {"_id": 1, "org": "north", "job": known["_id"], "status": "ok", "queued": "2026-11-22T12:00:00+00:00"}
            | {"begun": begun, "ended": Int64(begun + 1_500), "outcome": {"rows": 3}},
            {"_id": 2, "org": "north", "job": ObjectId(), "status": "failed", "queued": "2026-11-22T12:00:00Z"}
            | {"by": 1},
            {"_id": 3, "org": "north", "job": None, "status": "ok", "queued": NOON, "message": "a\0b"},
            {"_id": 4, "org": "north", "status": "ok", "queued": "yesterday"},
            {"_id": 5, "org": "north", "status": "ok", "queued": "2026-11-22T12:00:00+00:00", "begun": 1e300},
            {"_id": 6, "org": "north", "status": "ok", "by": 9, "queued": "2026-11-22T12:00:00+00:00"},
            {"_id": 7, "org": "north", "status": "ok", "by": 2.0, "queued": "2026-11-22T12:00:00+00:00"},
        ]
    )
    later = datetime.now(UTC) + timedelta(days=1)
    database["shedlock"].insert_many(
        [
            {"_id": "sweep", "lockUntil": later, "lockedAt": NOON, "lockedBy": "host-1", "name": "sweep"},
            {"_id": "gone", "lockUntil": NOON, "lockedAt": NOON, "lockedBy": "host-1", "name": "gone"},
        ]
    )


@pytest.fixture
def source(mongo_database: Database[Document]) -> Database[Document]:
    fill(mongo_database)
    return mongo_database


@pytest.fixture
def target(settings: Settings) -> Iterator[Target]:
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        yield connection


@pytest.fixture
def settings(source: Database[Document], mongo_server: MongoServer, scheduler_dsn: str) -> Settings:
    return Settings(
        source=SourceSettings(mapping=str(MAPPING), default_tenant="house"),
        mongo=MongoSettings(uri=mongo_server.uri, database=source.name),
        postgres=PostgresSettings(dsn=scheduler_dsn),
    )


def extras(target: Target, table: str) -> list[dict[str, Any]]:
    rows = target.execute(f"SELECT extra FROM scheduler.{table} ORDER BY source_id".encode()).fetchall()
    return [row[0] for row in rows]


def test_every_document_of_a_mapped_source_is_equal_or_quarantined_for_a_reason(
    settings: Settings, target: Target
) -> None:
    done = backfill(settings, Scope())
    assert done.complete
    assert set(target.execute("SELECT collection, reason, path FROM migration.quarantine").fetchall()) == {
        ("jobs", "unknown-value", "state"),
        ("jobs", "wrong-type", "title"),
        ("jobs", "out-of-range", "priority"),
        ("history", "bad-date", "queued"),
        ("history", "bad-date", "begun"),
        ("history", "unknown-value", "by"),
    }
    assert done.skipped == 1, "the lock that had expired"
    outcome = check_parity(settings, Scope())
    for one in outcome.collections:
        assert (one.collection, one.differing, one.missing, one.extra, one.unverified) == (one.collection, 0, 0, 0, "")
    for figure in outcome.aggregates:
        assert (figure.measure, figure.differing_total, figure.unverified) == (figure.measure, 0, "")
    assert {one.measure for one in outcome.aggregates} >= {
        "active",
        "state",
        "priority",
        "options.delay",
        "grade",
        "by",
        "ended",
    }


def test_what_no_column_holds_is_in_the_remainder(settings: Settings, target: Target) -> None:
    backfill(settings, Scope())
    assert extras(target, "schedules") == [
        {},
        {"+cron": None, "+options.colour": "red"},
        {"priority": {"$long": 7}, "payload.deep[2]": {"$date": "2026-11-22T12:00:00+00:00"}},
        {"+cron": "not a line", "+zone": "Europe/Vienna"},
        {"+cron": "30 2 * * 1-5", "+zone": "Mars/Olympus"},
        {"zone": "W. Europe Standard Time"},
        {"org": None},
        {"+cron": None, "+more": "of no column", "+zone": "Europe/Vienna", "+options": {"retries": None}},
    ]
    runs = target.execute("SELECT schedule_id IS NULL, duration_ms, extra FROM scheduler.runs ORDER BY source_id")
    [known, dangling, without, counted] = runs.fetchall()
    assert known[:2] == (False, 1_500)
    assert known[2].keys() == {"+job"}, "an id that is computed does not lead back to the text"
    assert dangling[0]
    assert counted[2] == {"by": 2.0}, "a number of another type than the mapping writes"
    assert without[2]["message"] == {"$text": ["a", "b"]}


def test_a_trigger_fires_by_what_the_mapping_names(settings: Settings, target: Target) -> None:
    backfill(settings, Scope())
    rows = target.execute(
        "SELECT kind, cron_dialect, interval_ms, timezone, enabled, next_fire_at FROM scheduler.triggers"
        " ORDER BY source_id"
    ).fetchall()
    assert rows[0] == ("cron", "debian", None, "Europe/Vienna", True, None)
    assert rows[1][:3] == ("interval", None, 90_500)
    assert rows[1][5] == datetime.fromtimestamp(1795397400, UTC).replace(microsecond=123456)
    assert len(rows) == 5, "a line or a zone that cannot be evaluated makes no trigger"


def test_the_parity_check_sees_that_a_mapping_was_changed(settings: Settings, tmp_path: Path) -> None:
    backfill(settings, Scope())
    changed = tmp_path / "acme.toml"
    changed.write_text(
        MAPPING.read_text(encoding="utf-8")
        .replace('off = "paused"', 'off = "pending"')
        .replace('pending = "on", ', ""),
        encoding="utf-8",
    )
    other = msgspec.structs.replace(settings, source=SourceSettings(mapping=str(changed), default_tenant="house"))
    outcome = check_parity(other, Scope(only=("jobs",)))
    differing = {one.collection: one.differing for one in outcome.collections}
    assert differing["jobs"] == 1, "the document whose state is off"


def test_a_reference_by_another_field_than_the_id_is_reported(settings: Settings, tmp_path: Path) -> None:
    with MongoClient[Document](settings.mongo.uri or "") as client:
        database = client[settings.mongo.database or ""]
        database["plans"].insert_many(
            [{"_id": number, "slug": f"plan {number}", "cron": "0 3 * * *"} for number in (1, 2)]
        )
        database["done"].insert_many(
            [{"plan": f"plan {1 + number % 2}", "parent": 1, "at": NOON} for number in range(9)]
        )
        database["done"].insert_one({"plan": "gone", "parent": 7, "at": NOON})
    path = tmp_path / "own.toml"
    path.write_text(
        '[source]\nname = "own"\n[collections.plans]\ntables = ["schedules", "triggers"]\n'
        '[collections.plans.constants]\nschedules.status = "scheduled"\n[collections.plans.fields]\n'
        'slug = { to = "schedules.name" }\ncron = { to = "triggers.cron_expression", dialect = "debian" }\n'
        '[collections.done]\ntables = ["runs"]\n[collections.done.constants]\nruns.state = "completed"\n'
        '[collections.done.fields]\nat = { to = "runs.created_at" }\n'
        'plan = { to = "runs.schedule_id", collection = "plans" }\n'
    )
    own = msgspec.structs.replace(settings, source=SourceSettings(mapping=str(path), default_tenant="house"))

    def reported() -> tuple[BrokenReference, ...]:
        found = check_source(own, 100, values=False)
        lines = "\n".join(sample_lines(found))
        references = {one.collection: one.references for one in found.collections}
        assert references["plans"] == ()
        assert ("name no _id of plans" in lines) == bool(references["done"])
        assert ('by = "slug" says that it names them' in lines) == any(one.field for one in references["done"])
        return references["done"]

    assert reported() == (BrokenReference(path="plan", collection="plans", documents=10, dangling=10, field="slug"),)
    path.write_text(path.read_text().replace("plan = {", "parent = {"))
    assert reported() == (BrokenReference(path="parent", collection="plans", documents=10, dangling=1, field=""),)
    with MongoClient[Document](settings.mongo.uri or "") as client:
        client[settings.mongo.database or ""]["done"].delete_one({"parent": 7})
    assert reported() == ()


NAMED = """
[source]
name = "own"
[collections.plans]
tables = ["schedules", "triggers"]
[collections.plans.constants]
schedules.status = "scheduled"
[collections.plans.fields]
slug = { to = "schedules.name" }
cron = { to = "triggers.cron_expression", dialect = "debian" }
[collections.done]
tables = ["runs"]
[collections.done.constants]
runs.state = "completed"
[collections.done.fields]
at = { to = "runs.created_at" }
plan = { to = "runs.schedule_id", collection = "plans", by = "slug" }
"""


def test_a_reference_by_another_field_leads_to_the_row_of_that_document(
    settings: Settings, target: Target, tmp_path: Path
) -> None:
    """Two documents of one name are one row and one in quarantine. The tail follows a document that is renamed."""
    path = tmp_path / "own.toml"
    path.write_text(NAMED)
    own = msgspec.structs.replace(settings, source=SourceSettings(mapping=str(path), default_tenant="house"))
    led = "SELECT r.source_id, s.name FROM scheduler.runs r LEFT JOIN scheduler.schedules s ON s.id = r.schedule_id"
    with MongoClient[Document](settings.mongo.uri or "") as client:
        database = client[settings.mongo.database or ""]
        plans = [{"_id": number, "slug": f"plan {number}", "cron": "0 3 * * *"} for number in (1, 2)]
        database["plans"].insert_many([*plans, {"_id": 3, "slug": "plan 1", "cron": "0 4 * * *"}])
        database["done"].insert_many(
            [{"_id": f"r{number}", "plan": f"plan {number}", "at": NOON} for number in (1, 2, 9)]
        )
        backfill(own, Scope())
        assert dict(target.execute(led.encode()).fetchall()) == {"r1": "plan 1", "r2": "plan 2", "r9": None}
        assert target.execute("SELECT reason FROM migration.quarantine").fetchall() == [("duplicate-id",)]
        assert check_source(own, 100, values=False).collections[1].references == ()
        target.rollback()
        database["plans"].delete_one({"_id": 3})
        database["plans"].update_one({"_id": 2}, {"$set": {"slug": "plan 9"}})
        caught_up(own)
        assert compared(own) == []
    assert dict(target.execute(led.encode()).fetchall()) == {"r1": "plan 1", "r2": None, "r9": "plan 9"}


def test_a_sample_shows_types_and_shows_values_only_if_they_are_asked_for(settings: Settings) -> None:
    for values in (False, True):
        found = check_source(settings, 100, values=values)
        [jobs, history, _] = found.collections
        assert (jobs.documents, jobs.whole, len(jobs.examples)) == (11, True, 3)
        assert {(one.kind, one.path) for one in history.quarantine} == {
            ("bad-date", "begun"),
            ("bad-date", "queued"),
            ("unknown-value", "by"),
        }
        assert jobs.words == (WordCount(path="state", word="lost" if values else "", documents=1),)
        printed = "\n".join(sample_lines(found))
        assert ("nightly" in printed) is values
        assert "jobs: would be quarantined: unknown-value at state: 1 document" in printed


def test_a_database_without_a_collection_of_the_source_is_refused(settings: Settings, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(
        MAPPING.read_text()
        .replace("collections.jobs", "collections.none1")
        .replace('"jobs"', '"none1"')
        .replace("collections.history", "collections.none2")
        .replace("shedlock", "none3")
    )
    changed = msgspec.structs.replace(settings, source=SourceSettings(mapping=str(other)))
    with pytest.raises(RefusedError, match="has no collection of profile acme"):
        check_source(changed, 10, values=False)
    with pytest.raises(RefusedError, match=r"collection none of database .* has no documents"):
        draft_mapping(settings, ("none",), 10, "own")
    with pytest.raises(UsageError, match=r"collection 'a[$]b': expected the name of a collection of MongoDB"):
        draft_mapping(settings, ("a$b",), 10, "own")


def test_a_cutover_of_a_mapped_source_is_refused_if_a_state_has_no_word(settings: Settings, tmp_path: Path) -> None:
    assert server_gates.reverse_sync(profile_of(settings.source, settings.target))[0]
    other = tmp_path / "acme.toml"
    other.write_text(MAPPING.read_text(encoding="utf-8").replace('cancelled = "done" }', "}").replace(", }", " }"))
    may, why = server_gates.reverse_sync(profile_of(SourceSettings(mapping=str(other))))
    assert not may
    assert why.endswith(
        "cannot be written back to MongoDB, so a cutover could not be rolled back and is refused: jobs: a schedule in"
        " the state cancelled cannot be written back: missing-field at state, expected a value for schedules.status"
    )
