"""A source in tables of PostgreSQL, by a mapping file: copied and compared on a real server."""

from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString

import msgspec
import psycopg
import pytest
from psycopg import sql

from migrator.config import CopySettings, PostgresSettings, Settings, SourceSettings
from migrator.parity.check import check_parity
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.tables import TableReader
from migrator.sources import profile_of

Source = psycopg.Connection[tuple[object, ...]]

MAPPING = """
[source]
name = "shelf"

[collections.items]
tables = ["schedules"]

[collections.items.fields]
owner = { as = "tenant" }
title = { to = "schedules.name" }
state = { to = "schedules.status", words = { on = "scheduled", off = "paused" } }
"""


@pytest.fixture
def source(postgres_dsn: str) -> Iterator[Source]:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        yield connection


def settings_for(source: str, target: str, mapping: Path, *, chunk: int = 20_000) -> Settings:
    return Settings(
        source=SourceSettings(mapping=str(mapping), uri=source, default_tenant="acme"),
        postgres=PostgresSettings(dsn=target),
        copy=CopySettings(workers=1, chunk_documents=chunk),
    )


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mapping.toml"
    path.write_text(text)
    return path


TABLE: LiteralString = (
    "CREATE TABLE items (id varchar(191) PRIMARY KEY, owner text, title text, state text, next_run float8, body bytea,"
    " at timestamptz, naive timestamp, day date, amount numeric, key uuid, tags text[], doc jsonb, old json, big int8,"
    " pause interval)"
)


def test_milliseconds_in_texts_are_compared_in_sums_too(
    source: Source, postgres_dsn: str, scheduler_dsn: str, tmp_path: Path
) -> None:
    source.execute("CREATE TABLE items (id int PRIMARY KEY, title text, made text)")
    texts = ["1774834200000", "2026-11-02T08:00:00.123Z", "", None, "-1", "soon"]
    for number, text in enumerate(texts):
        source.execute("INSERT INTO items VALUES (%s, 'title', %s)", (number, text))
    mapping = (
        '[source]\nname = "shelf"\n[collections.items]\ntables = ["schedules"]\n[collections.items.fields]\n'
        'title = { to = "schedules.name" }\n'
        'made = { to = "schedules.created_at", encoding = "milliseconds-text" }\n'
        '[collections.items.constants]\nschedules.status = "scheduled"\n'
    )
    settings = settings_for(postgres_dsn, scheduler_dsn, written(tmp_path, mapping))
    done = backfill(settings, Scope())
    assert (done.rows, done.quarantined) == (5, 1)
    found = check_parity(settings, Scope())
    assert (found.collections[0].matched, found.differs) == (5, False)
    assert [one.measure for one in found.aggregates if one.unverified or one.differing_total] == []


def test_a_table_is_copied_and_compared_with_the_types_of_all_columns(
    source: Source, postgres_dsn: str, scheduler_dsn: str, tmp_path: Path
) -> None:
    source.execute(TABLE)
    source.execute(
        "INSERT INTO items SELECT 'item ' || n, CASE WHEN n % 2 = 0 THEN 'north' END, 'title ' || n,"
        " CASE n % 10 WHEN 9 THEN 'lost' WHEN 3 THEN 'off' ELSE 'on' END, n + 0.25, '\\x00ff',"
        " '2026-03-29 01:30:00.123456+01', '2026-03-29 02:30:00.123456', '2026-03-29', 1.10 * n,"
        " gen_random_uuid(), ARRAY['a', NULL, '{}'], jsonb_build_object('a', 1.5, 'b', 10 ^ 30, 'c', ARRAY[n]),"
        " '{\"a\": 1, \"a\": 2}', 2 ^ 40, '1 day' FROM generate_series(0, 49) AS n"
    )
    source.execute("INSERT INTO items (id, title, state, at) VALUES ('z1', 'a', 'on', 'infinity')")
    source.execute("INSERT INTO items (id, title, state, naive) VALUES ('z2', 'a', 'on', '0044-03-15 12:00:00 BC')")
    settings = settings_for(postgres_dsn, scheduler_dsn, written(tmp_path, MAPPING), chunk=7)
    done = backfill(settings, Scope())
    assert (done.documents, done.rows, done.quarantined, done.chunks) == (52, 47, 5, 8)
    found = check_parity(settings, Scope())
    (items,) = found.collections
    assert (items.documents, items.matched, items.quarantined, found.differs) == (52, 47, 5, False)
    assert found.unverified_because == ""
    assert backfill(settings, Scope()).written == 0
    source.execute("UPDATE items SET amount = amount + 0.01 WHERE id = 'item 4'")
    assert check_parity(settings, Scope()).differs


OWNERS = "(SELECT o.owner FROM {owners} AS o JOIN {shops} AS s ON s.id = o.shop WHERE o.item = this.id)"
"""``owners`` is a collection of the profile, whose table has another name; ``shops`` is a table beside the items."""


@pytest.mark.parametrize("schema", ["shelf", "moved"], ids=["of the profile", "of the settings"])
def test_a_name_in_braces_is_that_of_a_collection_or_of_a_table_in_its_schema(
    schema: str, source: Source, postgres_dsn: str, scheduler_dsn: str, tmp_path: Path
) -> None:
    source.execute("CREATE SCHEMA shelf")
    source.execute("CREATE SCHEMA moved")
    source.execute("CREATE TABLE shelf.owner_of_item AS SELECT 1 AS item, 7 AS shop, 'acme' AS owner")
    source.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
    source.execute("CREATE TABLE items AS SELECT 1 AS id")
    source.execute("CREATE TABLE shops AS SELECT 7 AS id")
    source.execute("ALTER TABLE items ADD PRIMARY KEY (id)")
    settings = settings_for(postgres_dsn, scheduler_dsn, written(tmp_path, MAPPING))
    if schema == "moved":
        settings.source.collections["items"] = "moved.items"
    profile = profile_of(settings.source)
    (items,) = profile.collections
    items = msgspec.structs.replace(items, table="shelf.items", tenant_sql=OWNERS)
    owners = msgspec.structs.replace(items, name="owners", table="shelf.owner_of_item", tenant_sql="")
    reader = TableReader(settings, msgspec.structs.replace(profile, collections=(items, owners)))
    try:
        assert reader.of(items).has_tenant(("acme",), None)
        assert not reader.of(items).has_tenant(("globex",), None)
    finally:
        reader.close()
