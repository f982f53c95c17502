"""``quarantine drop``: a person gives documents up. They stay visible, and return to quarantine when they change."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from tests.copying import run, run_of, settings_for, write_config

QUARANTINE = 8
WHO = ("--who", "ann", "--reason", "test data of 2019")


@pytest.fixture
def config(mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path) -> Path:
    """Three documents that cannot become rows, two of them for one reason, and one that can."""
    mongo_database["runs"].insert_many(
        [run_of(_id="r0"), run_of(_id="r1", state="odd"), run_of(_id="r2", state="odd"), run_of(_id="r3", error=7)]
    )
    config = write_config(tmp_path, settings_for(mongo_database, scheduler_dsn))
    assert call(config, "backfill")[0] == QUARANTINE
    return config


def call(config: Path, *arguments: str) -> tuple[int, str]:
    status, out, err = run(*arguments, "--config", str(config), cwd=config.parent)
    assert "Traceback" not in err, err
    return status, out or err


def quarantined(config: Path, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(call(config, "quarantine", "list", "--json", *options)[1])
    return found


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [one["source_id"] for one in found]


def test_dropped_documents_are_left_out_on_purpose_and_listed_with_who_and_why(
    config: Path, mongo_database: Database[Any], scheduler_dsn: str
) -> None:
    status, said = call(config, "quarantine", "drop", "--code", "unknown-value", "--dry-run", *WHO)
    assert (status, said.splitlines()[-1]) == (0, "2 documents would be dropped; nothing was written")
    assert quarantined(config, "--dropped") == []
    status, said = call(config, "quarantine", "drop", "--code", "unknown-value", *WHO)
    assert (status, said.splitlines()[0]) == (
        0,
        "dropped 2 documents from quarantine: ann decided it, because test data of 2019",
    )
    assert ids(quarantined(config)) == ["r3"]
    assert [(one["source_id"], one["dropped_by"]) for one in quarantined(config, "--dropped")] == [
        ("r1", "ann"),
        ("r2", "ann"),
    ]
    assert call(config, "quarantine", "drop", "runs", "r3", *WHO)[0] == 0
    status, said = call(config, "parity")
    assert status == 0, said
    assert said.endswith("compared 4 documents: 1 equal, 3 dropped from quarantine\n")
    assert "dropped from quarantine, by a person's decision: 3" in call(config, "status")[1]

    status, out = call(config, "verify", "--only", "parity", "--json")
    result = json.loads(out)["evidence"]
    assert not status & QUARANTINE
    assert result["quarantine"] == []
    assert [(one["kind"], one["who"], one["why"]) for one in result["decisions"]] == [
        ("quarantine drop", "ann", "test data of 2019"),
        ("quarantine drop", "ann", "test data of 2019"),
    ]
    [check] = [one for one in result["checks"] if one["id"] == "parity.quarantine"]
    assert check["outcome"]["status"] == "passed"
    [panel] = check["panels"]
    assert [row[:6] for row in panel["rows"]] == [
        ["runs", key, code, path, "ann", "test data of 2019"]
        for key, code, path in (
            ("r1", "unknown-value", "state"),
            ("r2", "unknown-value", "state"),
            ("r3", "wrong-type", "error"),
        )
    ]
    [runs] = [one for one in result["collections"] if one["collection"] == "runs"]
    assert (runs["quarantined"], runs["skipped"]) == (0, {"dropped": 3})

    # a copy leaves the decision as it is; a document that changes is another question
    mongo_database["runs"].update_one({"_id": "r1"}, {"$set": {"state": "stranger"}})
    mongo_database["runs"].update_one({"_id": "r2"}, {"$set": {"state": "completed"}})
    assert call(config, "parity")[0] & 1  # the ledger speaks of documents that are not those of the source
    assert call(config, "backfill")[0] == QUARANTINE
    assert ids(quarantined(config)) == ["r1"]
    assert ids(quarantined(config, "--dropped")) == ["r3"]
    status, said = call(config, "parity")
    assert (status, said.splitlines()[-1]) == (
        QUARANTINE,
        "compared 4 documents: 2 equal, 1 quarantined, 1 dropped from quarantine",
    )
    with psycopg.connect(scheduler_dsn) as connection:
        rows = connection.execute("SELECT source_id, state, dropped_by FROM migration.quarantine ORDER BY 1").fetchall()
    assert rows == [("r1", "open", None), ("r2", "resolved", None), ("r3", "dropped", "ann")]


NAMING_NOTHING = (
    (WHO, "name what is given up: COLLECTION SOURCE_ID, COLLECTION, or --code CODE"),
    (("runs", "r1", "--who", "ann"), "say who and why (--reason missing)"),
    (("runs", "r0", *WHO), "no document in quarantine is meant by that"),
    (("rnus", *WHO), "unknown collection rnus"),
    (("runs", "--code", "odd", *WHO), "unknown code odd; known: bad-date, "),
)


def test_a_call_that_names_nothing_drops_nothing(config: Path) -> None:
    for options, words in NAMING_NOTHING:
        status, said = call(config, "quarantine", "drop", *options)
        assert status == 2
        assert words in said
    assert ids(quarantined(config, "--dropped")) == []
    assert len(quarantined(config)) == 3
