"""What the tail must read again: the documents of a whole collection, however many, a batch at a time."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from migrator.connections.postgres import open_target
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tables import TableReader
from migrator.pipeline.tail import backlog
from migrator.pipeline.tail.lookups import RowLookups
from migrator.sources import load_profile, profile_of
from tests.integration.test_table_source import MAPPING, settings_for, written
from tests.store_postgres import settings

MANY = 50_000
BATCHES = 8 * 1024 * 1024
"""Bytes that some batches of source ids take; all of them take three times as many."""


def peak_of(ids: Iterator[str]) -> tuple[int, int]:
    """Return how many ids are yielded, and the bytes that Python held at most meanwhile."""
    tracemalloc.start()
    try:
        count = sum(1 for _ in ids)
        return count, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_documents_that_have_rows_are_read_in_batches(scheduler_dsn: str) -> None:
    profile = load_profile("stellaops")
    with open_target(settings(scheduler_dsn), autocommit=True) as target:
        target.execute(
            "INSERT INTO scheduler.runs (id, tenant_id, state, created_at, source, source_id)"
            " SELECT gen_random_uuid(), 't', 'completed', now(), %s, rpad(n::text, 400, 'x')"
            " FROM generate_series(1, %s) AS n",
            (profile.source_of("runs"), MANY),
        )
        lookups = RowLookups(cast("Sessions", SimpleNamespace(target=target, profile=profile)))
        with target.transaction():
            count, peak = peak_of(lookups.all_of(profile.by_name()["runs"]))
            assert (count, peak < BATCHES) == (MANY, True), peak
            backlog.add(target, {"runs": lookups.all_of(profile.by_name()["runs"])})
            assert backlog.count(target) == MANY


def test_the_keys_of_a_table_are_read_in_batches(postgres_dsn: str, scheduler_dsn: str, tmp_path: Path) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as source:
        source.execute("CREATE TABLE items (id text PRIMARY KEY, owner text, title text, state text)")
        source.execute("INSERT INTO items SELECT rpad(n::text, 400, 'x') FROM generate_series(1, %s) AS n", (MANY,))
    chosen = settings_for(postgres_dsn, scheduler_dsn, written(tmp_path, MAPPING))
    profile = profile_of(chosen.source)
    reader = TableReader(chosen, profile)
    try:
        count, peak = peak_of(reader.of(profile.collections[0]).ids())
    finally:
        reader.close()
    assert (count, peak < BATCHES) == (MANY, True), peak


def test_so_many_documents_are_held_as_one_insert_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "INSERT_DOCUMENTS", 10)
    read = 0
    inserted: list[tuple[int, int]] = []

    def ids() -> Iterator[str]:
        nonlocal read
        for number in range(25):
            read = number + 1
            yield f"document {number}"

    def execute(_statement: str, given: tuple[Any, ...]) -> None:
        inserted.append((read, len(given[2])))

    backlog.add(cast("Any", SimpleNamespace(execute=execute)), {"runs": ids()})
    assert inserted == [(10, 10), (20, 10), (25, 5)]


def test_the_documents_in_quarantine_are_named_by_the_server(scheduler_dsn: str) -> None:
    """Those that are quarantined now, or were dropped from quarantine, of one collection."""
    with open_target(settings(scheduler_dsn), autocommit=True) as target:
        target.execute(
            "INSERT INTO migration.quarantine (profile, profile_version, collection, source_id, source_key, reason,"
            " path, expected, raw, tool_version, state, dropped_by, dropped_because)"
            " SELECT profile, 1, collection, state, sha256(state::bytea), 'r', 'p', 'e', 'x', '1', state,"
            " dropped, dropped"
            " FROM (VALUES ('stellaops', 'runs', 'open', NULL), ('stellaops', 'runs', 'dropped', 'me'),"
            " ('stellaops', 'runs', 'resolved', NULL), ('stellaops', 'audit', 'open', NULL),"
            " ('agenda', 'runs', 'open', NULL)) AS entry (profile, collection, state, dropped)"
        )
        for _ in range(2):
            backlog.add_quarantined(target, "stellaops", "runs")
        backlog.add(target, {"runs": ["open"]})
        assert backlog.take(target, ["runs"], 10) == {"runs": {"open": None, "dropped": None}}
        assert backlog.count(target) == 0
