"""One code for a document in quarantine, wherever it is shown; a dry run claims no quarantine."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from tests.copying import run, run_of, settings_for, write_config

QUARANTINE = 8
ID = "0123456789abcdef0123456789abcdef"
UUID_TEXT = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.fixture
def config(mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path) -> Path:
    """Two documents that want one row id, and one that cannot be decoded."""
    mongo_database["runs"].insert_many(
        [run_of(_id=f"run_{ID}", id=f"run_{ID}"), run_of(_id=UUID_TEXT, id=UUID_TEXT), run_of(_id="r1", state="odd")]
    )
    return write_config(tmp_path, settings_for(mongo_database, scheduler_dsn))


def call(config: Path, *arguments: str) -> tuple[int, str]:
    status, out, err = run(*arguments, "--config", str(config), cwd=config.parent)
    assert "Traceback" not in err, err
    return status, out


def test_the_report_the_list_and_its_filter_speak_of_one_code(config: Path) -> None:
    assert call(config, "backfill")[0] == QUARANTINE
    listed = json.loads(call(config, "quarantine", "list", "--json")[1])
    codes = {(one["collection"], one["reason"], one["path"], one["expected"]) for one in listed}
    assert {code for _, code, _, _ in codes} == {"duplicate-id", "unknown-value"}
    status, out = call(config, "verify", "--only", "parity", "--json")
    assert status & QUARANTINE
    lines = json.loads(out)["evidence"]["quarantine"]
    assert {(one["collection"], one["reason"], one["path"], one["expected"]) for one in lines} == codes
    for one in lines:
        found = json.loads(call(config, "quarantine", "list", "--code", one["reason"], "--json")[1])
        assert sorted(each["source_id"] for each in found) == sorted(one["keys"])


ALLOWING = (
    ("backfill",),
    ("inspect",),
    ("status",),
    ("parity",),
    ("quarantine", "list"),
    ("quarantine", "show", "runs", "r1"),
    ("quarantine", "retry"),
    ("source", "check"),
    ("verify", "--only", "parity"),
)


def test_an_allowance_is_a_ceiling_of_every_command_that_sets_the_bit(config: Path) -> None:
    assert call(config, "backfill")[0] == QUARANTINE  # two documents; inspect and source check see one of them alone
    for command in ALLOWING:
        few = "0" if command[0] in {"inspect", "source"} or "show" in command else "1"
        below, at = (call(config, *command, "--allow-quarantined", allowed)[0] for allowed in (few, "2"))
        assert below == at | QUARANTINE, command
        assert not at & QUARANTINE, command
    assert call(config, "quarantine", "list", "--allow-quarantined", "all")[0] == 0


def test_a_document_that_was_mended_and_not_retried_keeps_its_code(config: Path, mongo_database: Database[Any]) -> None:
    call(config, "backfill")
    mongo_database["runs"].update_one({"_id": "r1"}, {"$set": {"state": "completed"}})
    lines = json.loads(call(config, "parity", "--json")[1])
    (runs,) = [one for one in lines["collections"] if one["collection"] == "runs"]
    assert {one["reason"] for one in runs["quarantine"]} == {"duplicate-id", "unknown-value"}


def test_a_dry_run_claims_no_quarantine(config: Path, scheduler_dsn: str) -> None:
    status, out = call(config, "backfill", "--dry-run")
    assert status == QUARANTINE
    assert "1 document would be quarantined; nothing was written" in out
    assert "in quarantine" not in out
    with psycopg.connect(scheduler_dsn) as target:
        assert target.execute("SELECT count(*) FROM migration.quarantine").fetchone() == (0,)
