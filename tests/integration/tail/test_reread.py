"""Documents that are read again on request, while a tail runs and without one."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from pymongo.database import Database

from migrator.config import Settings, SourceSettings
from migrator.exit_status import QUARANTINE, USAGE
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.tail.loop import Tail
from tests.copying import number, run, run_of, settings_for, write_config
from tests.integration.tail.test_live_parity import following
from tests.tailing import caught_up, compared, copied

Source = Database[Any]
MAPPING = Path(__file__).parents[2] / "fixtures_data" / "mappings" / "acme.toml"
CAUSES = "SELECT string_agg(source_id || '=' || cause, ' ' ORDER BY source_id) FROM scheduler.runs"


@pytest.fixture
def source(mongo_database: Source) -> Source:
    mongo_database["runs"].insert_many([run_of(_id=f"r{number}") for number in range(4)])
    return mongo_database


@pytest.fixture
def settings(source: Source, scheduler_dsn: str) -> Settings:
    settings = copied(source, scheduler_dsn)
    caught_up(settings)  # it begins before the copy: its first call may read documents that the copy has read
    return settings


def spoil(dsn: str) -> None:
    """Change two rows, remove one, and let one be of a document that does not exist."""
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE scheduler.runs SET error = 'spoiled' WHERE source_id IN ('r0', 'r1')")
        connection.execute("DELETE FROM scheduler.runs WHERE source_id = 'r2'")
        connection.execute("UPDATE scheduler.runs SET source_id = 'ghost' WHERE source_id = 'r3'")


def no_tail(_: Settings) -> AbstractContextManager[object]:
    return nullcontext()


def wrong(settings: Settings) -> set[tuple[str, str]]:
    """Return the documents that differ. While a tail runs, aggregates are not compared."""
    sides = ("row", "missing", "extra")
    return {(key, side) for _, key, side, _ in compared(settings) if side in sides}


WRONG = {("r0", "row"), ("r1", "row"), ("r2", "missing"), ("r3", "row")}


@pytest.mark.proves("6-U8")
@pytest.mark.parametrize("beside", [no_tail, following], ids=["alone", "beside a tail"])
def test_the_named_documents_are_read_again_and_no_others(
    beside: Callable[[Settings], AbstractContextManager[object]],
    source: Source,
    settings: Settings,
    scheduler_dsn: str,
    tmp_path: Path,
) -> None:
    config = ["--config", str(write_config(tmp_path, settings))]
    names = tmp_path / "ids"
    names.write_text("r0\n\nr2\nghost\nr0\n")

    def read_again() -> None:
        spoil(scheduler_dsn)
        status, out, said = run("backfill", "--only", "runs", "--ids", str(names), "--dry-run", *config)
        assert (status, "runs: 3 documents would be read again" in out) == (0, True), said
        assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs WHERE error = 'spoiled'") == 2
        status, out, said = run("backfill", "--only", "runs", "--ids", str(names), *config)
        assert status == 0, said
        assert "runs: 3 documents were read again\nwrote 2 rows, removed 1\n" in out

    with beside(settings):
        read_again()
        source["runs"].insert_one(run_of(_id="r9"))
    caught_up(settings)
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs WHERE source_id = 'r9'") == 1, "it follows on"
    assert wrong(settings) == {("r1", "row"), ("r3", "missing")}, "those that were not named"


@pytest.mark.proves("6-U8")
def test_whole_collections_are_read_again_beside_a_tail(
    source: Source, settings: Settings, scheduler_dsn: str, tmp_path: Path
) -> None:
    config = ["--config", str(write_config(tmp_path, settings))]
    with following(settings):
        spoil(scheduler_dsn)
        status, out, said = run("backfill", "--only", "runs", "--again", "--dry-run", "--json", *config)
        assert (status, json.loads(out)["documents"]) == (0, {"runs": 4}), said
        status, out, said = run("backfill", "--only", "runs", "--again", *config)
        assert status == 0, said
    assert number(scheduler_dsn, "SELECT count(*) FROM migration.pending_documents") == 0
    assert compared(settings) == []
    source["runs"].update_one({"_id": "r3"}, {"$set": {"state": "no such state"}})
    caught_up(settings)
    status, out, _ = run("backfill", "--only", "runs", "--again", *config)
    assert (status, "1 documents of these collections are in quarantine" in out) == (QUARANTINE, True)


@pytest.mark.proves("6-U8")
def test_a_tail_goes_on_with_the_mapping_that_a_copy_was_made_with_meanwhile(
    mongo_database: Source, scheduler_dsn: str, tmp_path: Path
) -> None:
    mapping = tmp_path / "acme.toml"
    mapping.write_text(MAPPING.read_text())
    history = {"org": "house", "status": "ok", "by": 1, "queued": "2026-11-01T00:00:00Z", "job": "none"}
    mongo_database["history"].insert_one(history | {"_id": "h1"})
    base = settings_for(mongo_database, scheduler_dsn)
    settings = replace(base, source=SourceSettings(mapping=str(mapping), default_tenant="house"))
    backfill(settings, Scope())
    with following(settings):
        mapping.write_text(MAPPING.read_text().replace('1 = "cron"', '1 = "api"'))
        backfill(settings, Scope())
        mongo_database["history"].insert_one(history | {"_id": "h2"})
        assert_soon(lambda: compared(settings) == [] and number(scheduler_dsn, ROWS) == 2)
        # before that the tail closes its connections to read the mapping again, and holds no lock for the moment
        with Tail(settings) as second, pytest.raises(Exception, match="another tail"):
            second.run("caught-up")
    with psycopg.connect(scheduler_dsn) as connection:
        assert connection.execute(CAUSES).fetchone() == ("h1=api h2=api",)


ROWS = "SELECT count(*) FROM scheduler.runs"


def assert_soon(condition: Callable[[], bool]) -> None:
    """Ask until it holds; each question waits for the tail."""
    assert any(condition() for _ in range(100))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--again"], "--again needs the collections to read"),
        (["--ids", "{ids}"], "--ids needs the collection of the documents"),
        (["--only", "runs", "--only", "audit", "--ids", "{ids}"], "--ids needs the collection of the documents"),
        (["--only", "runs", "--again", "--ids", "{ids}"], "give one of them"),
        (["--only", "runs", "--again", "--tenant", "a"], "--tenant belongs to a copy"),
        (["--only", "runs", "--again", "--restart"], "--restart belongs to a copy"),
        (["--only", "runs", "--again", "--workers", "2"], "--workers belongs to a copy"),
        (["--only", "nothing", "--again"], "unknown collection nothing"),
        (["--only", "runs", "--ids", "absent"], "absent: "),
        (["--only", "runs", "--ids", "{empty}"], "expected a source id in each line"),
        (
            ["--only", "runs", "--ids", "{ids}"],
            "2 of 3 ids name neither a document of runs nor rows of one: r 0, R1; nothing was written",
        ),
    ],
)
def test_what_cannot_be_read_again_is_refused_before_anything_is_written(
    options: list[str], words: str, settings: Settings, scheduler_dsn: str, tmp_path: Path
) -> None:
    config = ["--config", str(write_config(tmp_path, settings))]
    spoil(scheduler_dsn)
    (tmp_path / "ids").write_text("r 0\nR1\nr0")
    (tmp_path / "empty").write_text("\n \n")
    chosen = [word.format(ids=tmp_path / "ids", empty=tmp_path / "empty") for word in options]
    status, _, said = run("backfill", *chosen, *config, cwd=tmp_path)
    assert (status, words in said) == (USAGE, True), said
    assert wrong(settings) == WRONG


def test_nothing_is_read_again_before_a_copy(source: Source, scheduler_dsn: str, tmp_path: Path) -> None:
    settings = settings_for(source, scheduler_dsn)
    config = ["--config", str(write_config(tmp_path, settings))]
    status, _, said = run("backfill", "--only", "runs", "--again", *config)
    assert (status, "no document can be read again yet: nothing was copied" in said) == (USAGE, True), said
    backfill(settings, Scope(only=("runs",)))
    status, _, said = run("backfill", "--only", "audit", "--again", *config)
    assert (status, "audit was not copied yet: call migrator backfill --only audit" in said) == (USAGE, True), said
