"""Losses by name: what a library's tables cannot hold is declared, told before the copy, counted, and no difference."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bson import Int64
from pymongo.database import Database

from migrator.config import Settings
from migrator.exit_status import UNVERIFIED
from migrator.parity.check import check_parity
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope, plan_backfill
from migrator.result import NAMED_LOSS
from tests.copying import mapped_settings, run, write_config

MAPPING = """
[source]
name = "acme"

[target]
name = "losing"

[target.tables.entries]
key = ["id"]

[target.tables.entries.columns]
id = "text not null"
share = "real"
body = "jsonb"
line = "text"

[collections.jobs]
tables = ["entries"]

[collections.jobs.fields]
_id = { to = "entries.id" }
share = { to = "entries.share", as = "double" }
line = { to = "entries.line" }
options.retries = { to = "entries.body.retries" }

[collections.jobs.lost]
result = "no column for the result of a job"
share = "the column keeps seven digits"
line = "the column has no U+0000"
options = "only the retries have a place"
"""
DOCUMENTS: list[dict[str, Any]] = [
    {"_id": "whole", "share": 0.5, "line": "a", "options": {"retries": 3}},
    {"_id": "nothing to lose", "share": Int64(1), "result": None, "resulting": 1},
    {"_id": "result", "result": {"a": 1}},
    {"_id": "result of another kind", "result": False},
    {"_id": "rounded", "share": 0.1},
    {"_id": "nul", "line": "a\0b"},
    {"_id": "further", "options": {"retries": 3, "more": 1, "other": 2}},
]
LOST = {("result", 2), ("share", 1), ("line", 1), ("options", 1)}


@pytest.fixture
def settings(mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path) -> Settings:
    mongo_database["jobs"].insert_many(DOCUMENTS)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE entries (id text PRIMARY KEY, share real, body jsonb, line text)")
    made = mapped_settings(mongo_database, postgres_dsn, tmp_path, MAPPING, "losing")
    status, _, said = run("target", "prepare", "--config", str(write_config(tmp_path, made)), cwd=tmp_path)
    assert status == 0, said
    return made


def test_a_plan_counts_them_in_a_sample_before_anything_is_written(settings: Settings, tmp_path: Path) -> None:
    [planned] = plan_backfill(settings, Scope()).collections
    assert {(loss.path, loss.documents) for loss in planned.losses} == LOST
    assert {loss.sample for loss in planned.losses} == {len(DOCUMENTS)}
    status, out, _ = run("plan", "--config", str(tmp_path / "config.toml"), cwd=tmp_path)
    line = "jobs: lost to the library: result in 2 of 7 documents looked at: no column for the result of a job"
    assert (status, line in out.splitlines()) == (0, True), out
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (0,)


def test_they_are_counted_and_are_no_difference(settings: Settings, tmp_path: Path) -> None:
    backfill(settings, Scope())
    outcome = check_parity(settings, Scope())
    [jobs] = [one for one in outcome.collections if one.collection == "jobs"]
    assert (outcome.differs, jobs.matched) == (False, len(DOCUMENTS))
    assert {(note.path, note.count) for note in jobs.notes if note.cause == NAMED_LOSS} == LOST
    status, out, _ = run("parity", "--config", str(tmp_path / "config.toml"), cwd=tmp_path)
    line = "jobs: lost to the library: share in 1 documents: the column keeps seven digits"
    assert (status, line in out.splitlines()) == (0, True), out
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        query = "SELECT path, sum(documents)::int FROM migration.notes WHERE kind = %s GROUP BY path"
        assert set(connection.execute(query, (NAMED_LOSS,)).fetchall()) == LOST


def test_a_value_that_is_changed_in_the_remainder_is_a_difference_all_the_same(settings: Settings) -> None:
    backfill(settings, Scope())
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        connection.execute("UPDATE migration_losing.entries_origins SET extra = '{}' WHERE source_id = 'result'")
    outcome = check_parity(settings, Scope())
    assert (outcome.differs, outcome.collections[0].differing) == (True, 1)


def test_the_first_page_of_the_report_names_them(settings: Settings, tmp_path: Path) -> None:
    backfill(settings, Scope())
    config = ["--config", str(tmp_path / "config.toml")]
    status, out, said = run("verify", "--only", "parity", "--json", *config, cwd=tmp_path)
    assert status in (0, UNVERIFIED), said
    tallies = [tally for check in json.loads(out)["evidence"]["checks"] for tally in check["tallies"]]
    assert {(one["path"], one["count"]) for one in tallies if one["cause"] == NAMED_LOSS} == LOST
    [page] = (tmp_path / "reports").glob("*/report.md")
    before, _, _ = page.read_text().partition("## What was not asked for")
    assert "## What the target cannot hold" in before
    assert "- jobs, result, in 2 documents: no column for the result of a job." in before
    [html] = (tmp_path / "reports").glob("*/report.html")
    assert 'id="lost">What the target cannot hold' in html.read_text()
