"""Tables of a user's own, described in a mapping file: copied, compared, followed, with keys of every kind."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bson import Binary, Decimal128, Int64, ObjectId
from pymongo.database import Database

from migrator.config import Settings, SourceSettings, TargetSettings
from migrator.connections.postgres import Connection
from migrator.errors import ConfigurationError, RefusedError
from migrator.parity.check import check_parity
from migrator.parity.repair import apply_repair
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.schema import native_target, revisions
from migrator.sources import profile_of
from migrator.targets import load_target
from migrator.targets.catalogue import Shape
from migrator.targets.model import Target
from tests.copying import mapped_settings, quarantine
from tests.tailing import caught_up, compared, differences

DDL = """
CREATE TYPE color AS ENUM ('red', 'green');
CREATE SCHEMA shop;
CREATE SEQUENCE shop.entry_numbers;
CREATE TABLE shop.entries (
    id bigint PRIMARY KEY, title varchar(10) NOT NULL, shade color NOT NULL, share real, due timestamp, took interval,
    body json, more jsonb, data bytea, tags text[], score double precision, small smallint, rule_id integer NOT NULL,
    UNIQUE (title));
CREATE TABLE shop.rules (id serial PRIMARY KEY, line text NOT NULL, changed timestamptz NOT NULL DEFAULT now());
"""
MAPPING = """
[source]
name = "acme"

[target]
name = "acme"
schema = "shop"

[target.tables.entries]
key = ["id"]
made = "sequence"
sequence = "shop.entry_numbers"
unique = [["title"]]
references = { rule_id = "rules" }

[target.tables.entries.columns]
id = "bigint not null"
title = "varchar(10) not null"
shade = { type = "color not null", words = ["red", "green"] }
share = "real"
due = "timestamp"
took = "interval"
body = "json"
more = "jsonb"
data = "bytea"
tags = "text[]"
score = "double precision"
small = "smallint"
rule_id = "integer not null"

[target.tables.rules]
key = ["id"]
made = "sequence"

[target.tables.rules.columns]
id = "integer not null"
line = "text not null"

[collections.jobs]
tables = ["entries", "rules"]

[collections.jobs.fields]
title = { to = "entries.title" }
color = { to = "entries.shade" }
share = { to = "entries.share" }
due = { to = "entries.due" }
took = { to = "entries.took", as = "number" }
body = { to = "entries.body" }
more = { to = "entries.more" }
data = { to = "entries.data" }
tags = { to = "entries.tags" }
score = { to = "entries.score" }
small = { to = "entries.small" }
rule = { to = "rules.line" }
"""
GOOD = {
    "title": "one",
    "color": "red",
    "share": 0.5,
    "due": datetime(2026, 11, 24, 1, 2, 3, 4_000),  # noqa: DTZ001 - as BSON has it
    "took": 90_000_000,
    "body": {"a": [1, 2.5, None]},
    "more": {"id": ObjectId("6565f00d6565f00d6565f00d")},
    "data": Binary(b"\x00\xff"),
    "tags": ["x", "y"],
    "score": 1.1,
    "small": 7,
    "rule": "0 0 * * *",
}


@pytest.fixture
def settings(mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path) -> Settings:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(DDL)
    made = mapped_settings(mongo_database, postgres_dsn, tmp_path, MAPPING, "acme")
    profile_of(made.source, made.target)
    revisions.upgrade(postgres_dsn, branches=(revisions.TOOL,))
    prepare(made)
    return made


def prepare(settings: Settings) -> None:
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        native_target.prepare(connection, load_target("acme"), settings.target)


def rows(
    settings: Settings, columns: str = "title, shade, share, due, took, body, more, data, tags, score, small, line"
) -> Sequence[Any]:
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        return connection.execute(
            f"SELECT {columns} FROM shop.entries JOIN shop.rules ON rules.id = rule_id ORDER BY title"
        ).fetchall()


def job(key: object, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - of a document
    return {"_id": key, **GOOD, "title": str(key)} | changes


@pytest.mark.proves("6-T11")
def test_a_document_becomes_rows_of_both_tables(settings: Settings, mongo_database: Database[Any]) -> None:
    mongo_database["jobs"].insert_one(job("one"))
    assert backfill(settings, Scope()).quarantined == 0
    [row] = rows(settings)
    assert row[:4] == ("one", "red", 0.5, datetime(2026, 11, 24, 1, 2, 3, 4_000))  # noqa: DTZ001 - the column's
    assert row[4].total_seconds() == 90
    assert row[5:] == (
        {"a": [1, 2.5, None]}, {"id": "6565f00d6565f00d6565f00d"}, b"\x00\xff", ["x", "y"], 1.1, 7, "0 0 * * *",
    )  # fmt: skip
    assert compared(settings) == []
    assert backfill(settings, Scope()).written == 0


@pytest.mark.proves("6-T11")
def test_what_a_column_cannot_hold_is_quarantined_alone(settings: Settings, mongo_database: Database[Any]) -> None:
    wrong: dict[str, dict[str, object]] = {
        "too-long": {"title": "eleven long"},
        "unknown-value": {"color": "blue"},
        "out-of-range": {"small": 40_000},
        "out-of-range at share": {"share": 1e300},
        "wrong-type": {"data": "text"},
        "missing-field": {"title": None},
    }
    mongo_database["jobs"].insert_many(
        [
            job("good"),
            *(job(f"bad {key}", title=f"bad {number}") | bad for number, (key, bad) in enumerate(wrong.items())),
        ]
    )
    mongo_database["jobs"].insert_one(job("twice", title="good"))
    assert backfill(settings, Scope()).quarantined == len(wrong) + 1
    assert [row[0] for row in rows(settings)] == ["good"]
    reasons = {(key, reason) for _, key, reason, _, _ in quarantine(settings.postgres.dsn or "")}
    assert reasons == {(f"bad {key}", key.partition(" ")[0]) for key in wrong} | {("twice", "duplicate-key")}
    assert compared(settings) == []


def test_what_a_column_holds_otherwise_is_counted_and_comes_back(
    settings: Settings, mongo_database: Database[Any]
) -> None:
    odd = {"share": 0.1, "small": Int64(3), "score": Decimal128("1.5"), "more": {"at": datetime(2026, 1, 1)}}  # noqa: DTZ001 - BSON
    mongo_database["jobs"].insert_many([job("odd", **odd, further={"x": 1}) | {"score": 5}, job("nul", rule="a\0b")])
    backfill(settings, Scope())
    outcome = check_parity(settings, Scope())
    assert (outcome.differs, differences(outcome)) == (False, [])
    assert {row[0]: (row[2], row[-1]) for row in rows(settings)} == {
        "odd": (pytest.approx(0.1), "0 0 * * *"), "nul": (0.5, "a\ufffdb"),
    }  # fmt: skip


def test_the_tail_follows_and_repair_repairs(settings: Settings, mongo_database: Database[Any]) -> None:
    jobs = mongo_database["jobs"]
    jobs.insert_many([job(name) for name in ("a", "b", "c")])
    backfill(settings, Scope())
    jobs.update_one({"_id": "a"}, {"$set": {"rule": "1 1 * * *", "more": {"n": 1}}})
    jobs.delete_one({"_id": "b"})
    jobs.insert_one(job("d"))
    caught_up(settings)
    assert [(row[0], row[-1]) for row in rows(settings)] == [("a", "1 1 * * *"), ("c", "0 0 * * *"), ("d", "0 0 * * *")]
    assert compared(settings) == []
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        connection.execute("UPDATE shop.entries SET small = 8 WHERE title = 'a'")
        connection.execute("DELETE FROM shop.entries WHERE title = 'c'")
    wrong = {(key, side) for _, key, side, _ in compared(settings) if side != "aggregate"}
    assert wrong == {("a", "row"), ("c", "missing")}
    apply_repair(settings, Scope(), overwrite=True)
    assert compared(settings) == []
    assert [row[0] for row in rows(settings)] == ["a", "c", "d"]


def test_a_copy_compares_the_librarys_tables_once(
    settings: Settings, mongo_database: Database[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in each worker: these are small, and their job is a thread of this process."""
    mongo_database["jobs"].insert_one(job("a"))
    calls: list[str] = []
    compare = native_target.require_tables

    def noted(connection: Connection, target: Target, chosen: TargetSettings) -> Shape | None:
        calls.append("compared")
        return compare(connection, target, chosen)

    monkeypatch.setattr(native_target, "require_tables", noted)
    assert backfill(settings, Scope()).documents == 1
    assert calls == ["compared"]


def test_the_tail_makes_the_index_by_document_which_the_copy_does_without(
    settings: Settings, mongo_database: Database[Any]
) -> None:
    mongo_database["jobs"].insert_one(job("a"))
    backfill(settings, Scope())
    indexed = "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'migration_acme' AND indexdef LIKE %s"
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        assert connection.execute(indexed, ("%(source%",)).fetchall() == []
        for _ in range(2):
            caught_up(settings)
            made = connection.execute(indexed, ("%(source%",)).fetchall()
            assert sorted(table for table, _ in made) == ["entries_origins", "rules_origins"]
            assert all(definition.endswith("USING hash (source_id)") for _, definition in made)


def test_rows_of_others_are_refused_and_stay(settings: Settings, mongo_database: Database[Any]) -> None:
    mongo_database["jobs"].insert_one(job("one"))
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        connection.execute("INSERT INTO shop.rules (line) VALUES ('mine')")
    with pytest.raises(RefusedError, match=r'table "shop"\."rules" holds rows that did not come from profile acme'):
        backfill(settings, Scope())
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        assert connection.execute("SELECT line FROM shop.rules").fetchall() == [("mine",)]


def test_prepared_again_the_rows_and_their_origins_stay(settings: Settings, mongo_database: Database[Any]) -> None:
    mongo_database["jobs"].insert_one(job("one"))
    backfill(settings, Scope())
    prepare(settings)
    assert compared(settings) == []


def test_a_target_that_is_not_prepared_or_not_there_is_refused(settings: Settings) -> None:
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        connection.execute("DROP SCHEMA migration_acme CASCADE")
        with pytest.raises(RefusedError, match="call migrator target prepare"):
            backfill(settings, Scope())
        connection.execute("ALTER TABLE shop.entries DROP COLUMN small")
        with pytest.raises(RefusedError, match="has no column small"):
            prepare(settings)
        connection.execute("ALTER TABLE shop.entries ADD COLUMN small smallint; DROP TABLE shop.rules")
        with pytest.raises(RefusedError, match=r"the target has no table shop\.rules"):
            prepare(settings)


def test_a_mapping_that_describes_another_target_is_refused(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match=r"set target\.name to it"):
        profile_of(settings.source, TargetSettings())


def test_mistakes_in_the_description_are_reported_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(
        MAPPING.replace('key = ["id"]\nmade = "sequence"\nsequence', 'key = ["ib"]\nmade = "sequence"\nsequence')
        .replace('score = "double precision"', 'score = "money"')
        .replace('made = "sequence"\n\n[target.tables.rules.columns]', "[target.tables.rules.columns]")
    )
    with pytest.raises(ConfigurationError) as refused:
        profile_of(SourceSettings(mapping=str(path)), TargetSettings(name="acme"))
    reported = "\n".join(refused.value.lines)
    assert "table entries: key: no column ib; known: id, title" in reported
    assert "column score of entries: values of the type money are not written" in reported
    assert "rules is no table whose key is made" in reported
    assert all(":" in line for line in refused.value.lines)


def test_the_zone_of_naive_times_is_utc(settings: Settings, mongo_database: Database[Any]) -> None:
    mongo_database["jobs"].insert_one(job("one"))
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        database = connection.info.dbname
        connection.execute(f"ALTER DATABASE \"{database}\" SET timezone = 'Asia/Tokyo'")
    backfill(settings, Scope())
    [(due,)] = rows(settings, "due")
    assert due.replace(tzinfo=UTC) == datetime(2026, 11, 24, 1, 2, 3, 4_000, UTC)
