"""Rows of a native target are copied straight into the library's table where that stores what the function stores."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
import pytest
from bson import Binary, Int64
from pymongo.database import Database

from migrator.config import Settings
from migrator.pipeline import completion
from migrator.pipeline.backfill import backfill
from migrator.pipeline.bulk_load import BulkLoad
from migrator.pipeline.plan import Scope
from migrator.pipeline.target import NativeTables
from migrator.schema import native_target, revisions
from migrator.schema.direct_copy import direct_copy
from migrator.sources import profile_of
from migrator.targets import load_target
from tests import native_codec
from tests.copying import mapped_settings, quarantine
from tests.tailing import compared

pytestmark = pytest.mark.usefixtures("native")

DDL: Final = """
CREATE SCHEMA depot;
CREATE TYPE depot.color AS ENUM ('red', 'green');
CREATE TABLE depot.parts (
    id varchar(20) PRIMARY KEY, title varchar(30) NOT NULL UNIQUE, shade depot.color, share real, due timestamp(3),
    at timestamptz, more jsonb, data bytea, tags text[], score double precision, small smallint, whole integer,
    large bigint, flag boolean, doubled integer GENERATED ALWAYS AS (whole * 2) STORED,
    noted timestamptz NOT NULL DEFAULT now());
"""
MAPPING: Final = """
[source]
name = "depot"

[target]
name = "depot"
schema = "depot"

[target.tables.parts]
key = ["id"]
unique = [["title"]]

[target.tables.parts.columns]
id = "varchar(20) not null"
title = "varchar(30) not null"
shade = { type = "depot.color", words = ["red", "green"] }
share = "real"
due = "timestamp(3)"
at = "timestamptz"
more = "jsonb"
data = "bytea"
tags = "text[]"
score = "double precision"
small = "smallint"
whole = "integer"
large = "bigint"
flag = "boolean"

[collections.jobs]
tables = ["parts"]

[collections.jobs.fields]
_id = { to = "parts.id" }
title = { to = "parts.title" }
shade = { to = "parts.shade" }
share = { to = "parts.share" }
due = { to = "parts.due" }
at = { to = "parts.at" }
more = { to = "parts.more" }
data = { to = "parts.data" }
tags = { to = "parts.tags" }
score = { to = "parts.score" }
small = { to = "parts.small" }
whole = { to = "parts.whole" }
large = { to = "parts.large" }
flag = { to = "parts.flag" }
"""


@pytest.fixture
def native() -> None:
    native_codec.needed()


@pytest.fixture
def settings(mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path) -> Settings:
    """Tables of a user's own, prepared, and five documents: of every type, of none, and odd ones."""
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(DDL)
    made = mapped_settings(mongo_database, postgres_dsn, tmp_path, MAPPING, "depot")
    profile_of(made.source, made.target)
    revisions.upgrade(postgres_dsn, branches=(revisions.TOOL,))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target("depot"), made.target)
    mongo_database["jobs"].insert_many(
        [
            {
                "_id": "full",
                "title": "größer",
                "shade": "green",
                "share": 0.1,
                "due": datetime(2026, 11, 24, 1, 2, 3, 4_000, tzinfo=UTC),
                "at": datetime(1969, 1, 2, tzinfo=UTC),
                "more": {"b": 1, "a": [1.5, None, "x"]},
                "data": Binary(b"\x00\xff"),
                "tags": ["x", "", "y"],
                "score": -1.25e300,
                "small": -7,
                "whole": 2**31 - 1 >> 1,
                "large": Int64(-(2**63)),
                "flag": True,
                "further": {"kept": "in the remainder"},
            },
            {"_id": "empty", "title": "none"},
            {"_id": "nul", "title": "a\0b", "tags": []},  # the Python codec reads it
            {"_id": "null", "title": "nulls", "shade": None, "share": None, "more": None},
            {"_id": "small", "title": "small", "share": 0.5, "small": Int64(3), "flag": False},
        ]
    )
    return made


def stored(dsn: str) -> list[Sequence[Any]]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT (to_jsonb(stored) - 'noted')::text, to_jsonb(origin)::text FROM depot.parts AS stored"
            " FULL JOIN migration_depot.parts_origins AS origin ON key_id = stored.id ORDER BY stored.id"
        ).fetchall()
    return list(rows)


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the tables of which rows were appended from a stage."""
    tables: list[str] = []
    append = BulkLoad._append_from_stage

    def recorded(self: BulkLoad, record: Any, table: Any, rows: Any) -> None:  # noqa: ANN401 - passed on
        tables.append(table.name)
        append(self, record, table, rows)

    monkeypatch.setattr(BulkLoad, "_append_from_stage", recorded)
    return tables


@pytest.mark.proves("6-T11")
def test_both_ways_store_the_same_rows(
    settings: Settings, postgres_dsn: str, staged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert backfill(settings, Scope()).quarantined == 0
    assert staged == []
    direct = stored(postgres_dsn)
    assert len(direct) == 5
    assert all(library and origin for library, origin in direct)
    assert compared(settings) == []
    assert backfill(settings, Scope()).written == 0
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE depot.parts, migration_depot.parts_origins")
    monkeypatch.setattr(NativeTables, "direct_copy", lambda *_: None)
    backfill(settings, Scope())
    assert staged == ["parts"]
    assert stored(postgres_dsn) == direct


@pytest.mark.proves("6-T11")
def test_a_key_of_two_documents_quarantines_the_second_alone(
    settings: Settings, mongo_database: Database[Any], postgres_dsn: str
) -> None:
    mongo_database["jobs"].insert_one({"_id": "second", "title": "none"})
    result = backfill(settings, Scope())
    assert (result.complete, result.quarantined) == (True, 1)
    assert [(key, reason) for _, key, reason, _, _ in quarantine(postgres_dsn)] == [("second", "duplicate-key")]
    assert len(stored(postgres_dsn)) == 5


def changed(change: str, settings: Settings) -> None:
    """Change the table as its owner may, and prepare the target anew."""
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        connection.execute("DROP SCHEMA migration_depot CASCADE")  # its views would keep the table from being changed
        connection.execute(change.encode())
        native_target.prepare(connection, load_target("depot"), settings.target)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE depot.parts ALTER due TYPE timestamptz(3)",
        "ALTER TABLE depot.parts RENAME TO others; CREATE VIEW depot.parts AS TABLE depot.others",
        "CREATE DOMAIN depot.word AS text; ALTER TABLE depot.parts ALTER title TYPE depot.word",
    ],
)
def test_a_table_that_takes_no_such_copy_is_filled_by_the_function(
    change: str, settings: Settings, postgres_dsn: str, staged: list[str]
) -> None:
    changed(change, settings)
    assert backfill(settings, Scope()).quarantined == 0
    assert staged == ["parts"]
    assert len(stored(postgres_dsn)) == 5


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE depot.parts ALTER whole TYPE bigint, DROP doubled",
        "ALTER TABLE depot.parts ALTER share TYPE numeric",
        "ALTER TABLE depot.parts ALTER more TYPE json",
        "ALTER TABLE depot.parts ALTER score TYPE numeric",
        "CREATE RULE noted AS ON INSERT TO depot.parts DO ALSO NOTIFY parts",
        (
            "ALTER TABLE depot.parts RENAME TO others; CREATE FOREIGN DATA WRAPPER nowhere;"
            "CREATE SERVER nowhere FOREIGN DATA WRAPPER nowhere; CREATE FOREIGN TABLE depot.parts (LIKE depot.others)"
            " SERVER nowhere"
        ),
    ],
)
def test_a_table_that_the_function_does_not_fill_either_is_not_filled_with_wrong_bytes(
    change: str, settings: Settings, postgres_dsn: str
) -> None:
    target = load_target("depot")
    with psycopg.connect(postgres_dsn) as connection:
        assert direct_copy(connection, target.by_name["parts"], target, settings.target) is not None
    changed(change, settings)
    with psycopg.connect(postgres_dsn) as connection:
        assert direct_copy(connection, target.by_name["parts"], target, settings.target) is None


def test_a_table_with_policies_for_the_tool_is_filled_by_the_function(settings: Settings, postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        target = load_target("depot")
        table = target.by_name["parts"]
        assert direct_copy(connection, table, target, settings.target) is not None
        connection.execute("CREATE ROLE depot_clerk; GRANT USAGE ON SCHEMA depot, migration_depot TO depot_clerk")
        connection.execute("GRANT SELECT, INSERT ON depot.parts, migration_depot.parts_origins TO depot_clerk")
        connection.execute("SET ROLE depot_clerk")
        assert direct_copy(connection, table, target, settings.target) is not None
        connection.execute("RESET ROLE; ALTER TABLE depot.parts ENABLE ROW LEVEL SECURITY; SET ROLE depot_clerk")
        assert direct_copy(connection, table, target, settings.target) is None
        connection.rollback()  # the role, too


def test_triggers_of_the_library_see_what_they_see_of_the_function(
    settings: Settings, postgres_dsn: str, staged: list[str]
) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE depot.seen (id text, path text, writes text, is_known boolean);"
            "CREATE FUNCTION depot.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " INSERT INTO seen VALUES (new.id, current_setting('search_path'), current_setting('migrator.writes'),"
            " EXISTS (SELECT FROM migration_depot.parts_origins WHERE key_id = new.id)); RETURN new; END $$;"
            "CREATE TRIGGER see AFTER INSERT ON depot.parts FOR EACH ROW EXECUTE FUNCTION depot.see()"
        )
    backfill(settings, Scope())
    assert staged == []
    with psycopg.connect(postgres_dsn) as connection:
        seen = connection.execute("SELECT path, writes, is_known, count(*) FROM depot.seen GROUP BY 1, 2, 3").fetchall()
    assert seen == [("depot", "on", True, 5)]


def test_statistics_of_a_librarys_table_are_from_a_smaller_sample(
    settings: Settings, mongo_database: Database[Any], postgres_dsn: str
) -> None:
    # 45 in all: autovacuum takes its own sample from 50 on
    mongo_database["jobs"].insert_many([{"_id": f"more {number}", "title": f"{number}"} for number in range(40)])
    backfill(settings, Scope())
    with psycopg.connect(postgres_dsn) as connection:
        bounds = connection.execute(
            "SELECT schemaname, attname, array_length(histogram_bounds::text::text[], 1) FROM pg_stats"
            " WHERE tablename IN ('parts', 'parts_origins') AND attname IN ('id', 'source_id', 'more') ORDER BY 1, 2"
        ).fetchall()
    entries = completion.STATISTICS_ENTRIES + 1
    assert bounds == [
        ("depot", "id", entries),
        ("migration_depot", "id", entries),
        ("migration_depot", "source_id", entries),
    ]


def test_the_settings_are_as_before_afterwards(settings: Settings, postgres_dsn: str) -> None:
    target = load_target("depot")
    record = target.by_name["parts"].record
    shown = "SELECT current_setting('search_path'), current_setting('migrator.writes', true)"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("SELECT set_config('search_path', '\"$user\", depot', false)")
        with connection.transaction():
            load = BulkLoad(connection, NativeTables(target, settings.target))
            load._append(record, [])
            before = connection.execute(shown).fetchone()
        assert before == ('"$user", depot', "")
        assert connection.execute(shown).fetchone() == ('"$user", depot', "")


def seen(dsn: str) -> list[Any]:
    """Return the rows as the tool sees them."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT to_jsonb(seen)::text FROM migration_depot.parts AS seen ORDER BY id")
        return rows.fetchall()


def remainders(dsn: str) -> dict[str, tuple[bool, bool]]:
    """Return source id → whether its remainder stands in its origin, and whether its origin names a shared one."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT source_id, extra IS NOT NULL, shared IS NOT NULL FROM migration_depot.parts_origins"
        )
        return {source_id: (own, shared) for source_id, own, shared in rows}


OWN, SHARED_ONE = (True, False), (False, True)


@pytest.fixture
def alike(settings: Settings, mongo_database: Database[Any]) -> Settings:
    """Twelve more documents with one long remainder, and three with another one each; chunks of four."""
    kept = {"unknown": "a field that no column takes " * 4}
    made = [{"_id": f"t{number:02}", "title": f"{number}", **kept} for number in range(12)]
    made += [{"_id": f"u{number}", "title": f"u{number}", "unknown": f"{number} " * 40} for number in range(3)]
    mongo_database["jobs"].insert_many(made)
    return msgspec.structs.replace(settings, copy=msgspec.structs.replace(settings.copy, chunk_documents=4))


def test_a_remainder_that_comes_again_is_stored_once(
    settings: Settings,
    alike: Settings,
    mongo_database: Database[Any],
    postgres_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backfill(alike, Scope())
    stored_as = remainders(postgres_dsn)
    by_form = {form: [key for key, held in stored_as.items() if held == form] for form in stored_as.values()}
    assert by_form.keys() == {OWN, SHARED_ONE}
    assert len(by_form[SHARED_ONE]) >= 8  # all but the first of each chunk
    assert all(key.startswith("t") for key in by_form[SHARED_ONE])
    with psycopg.connect(postgres_dsn) as connection:
        counts = connection.execute(
            "SELECT count(*), count(DISTINCT id), count(DISTINCT extra) FROM migration_depot._remainders"
        ).fetchone()
    assert counts is not None
    assert counts[1:] == (1, 1)
    assert compared(alike) == []
    assert backfill(alike, Scope()).written == 0
    direct = seen(postgres_dsn)

    one = by_form[SHARED_ONE][0]
    title = f"{int(one.removeprefix('t'))}"
    mongo_database["jobs"].update_one({"_id": one}, {"$set": {"title": "changed"}})
    assert compared(alike) != []
    assert backfill(alike, Scope()).written == 1
    assert remainders(postgres_dsn)[one] == OWN
    assert compared(alike) == []
    mongo_database["jobs"].update_one({"_id": one}, {"$set": {"title": title}})
    backfill(alike, Scope())

    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE depot.parts, migration_depot.parts_origins, migration_depot._remainders")
    monkeypatch.setattr(NativeTables, "direct_copy", lambda *_: None)
    backfill(settings, Scope())  # one chunk, in this process
    assert set(remainders(postgres_dsn).values()) == {OWN}
    assert seen(postgres_dsn) == direct


def test_a_shared_remainder_that_is_missing_or_another_is_a_difference(alike: Settings, postgres_dsn: str) -> None:
    backfill(alike, Scope())
    shared = sum(form == SHARED_ONE for form in remainders(postgres_dsn).values())
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("UPDATE migration_depot._remainders SET extra = '{}'")
        assert len(compared(alike)) == shared
        connection.execute("DELETE FROM migration_depot._remainders")
    assert len(compared(alike)) == shared
