"""The commands on a native target: what each says, and which are refused."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.exit_status import UNVERIFIED, USAGE
from tests.copying import run, settings_for, write_config
from tests.integration.native.test_library_check import documents


@pytest.fixture
def settings(mongo_database: Database[Any], postgres_dsn: str) -> Settings:
    mongo_database["jobs"].insert_many(documents())
    return settings_for(
        mongo_database, postgres_dsn, profile="apscheduler", target=TargetSettings(name="apscheduler", schema="app")
    )


def make_table(settings: Settings) -> None:
    dsn = settings.postgres.dsn or ""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA app")
    store = SQLAlchemyJobStore(url=dsn.replace("postgresql://", "postgresql+psycopg://"), tableschema="app")
    store.start(None, "default")
    store.shutdown()


def test_from_an_empty_database_to_a_report(settings: Settings, tmp_path: Path) -> None:
    config = ["--config", str(write_config(tmp_path, settings))]
    status, _, said = run("backfill", *config, cwd=tmp_path)
    assert (status, "call migrator target prepare" in said) == (USAGE, True)
    status, _, said = run("target", "prepare", *config, cwd=tmp_path)
    assert (status, "the target has no table app.apscheduler_jobs" in said) == (USAGE, True)
    make_table(settings)
    status, out, _ = run("target", "prepare", "--dry-run", *config, cwd=tmp_path)
    assert (status, "nothing was written" in out) == (0, True)
    status, out, said = run("doctor", *config, cwd=tmp_path)
    assert "NO  prepared: the target apscheduler is not prepared: call migrator target prepare" in out, said
    for command in ("target prepare", "doctor", "plan", "backfill", "parity", "tail --until-caught-up"):
        status, out, said = run(*command.split(), *config, cwd=tmp_path)
        assert status == 0, command + out + said
    status, out, said = run("verify", "--json", *config, cwd=tmp_path)
    assert status in (0, UNVERIFIED), said
    outcomes = {check["id"]: check["outcome"]["status"] for check in json.loads(out)["evidence"]["checks"]}
    assert {name for name, state in outcomes.items() if state == "failed"} == set()
    states = {name: state for name, state in outcomes.items() if name.startswith("parity.")}
    assert {name for name, state in states.items() if state not in ("passed", "not-applicable")} == set()
    assert {state for name, state in outcomes.items() if name.startswith(("crud", "locking"))} == {"not-applicable"}
    assert {outcomes[f"library.{part}"] for part in ("entries", "fires", "work")} == {"passed"}


def test_what_is_about_the_schema_of_the_tool_is_refused_in_words(settings: Settings, tmp_path: Path) -> None:
    config = ["--config", str(write_config(tmp_path, settings))]
    for command in (
        "cutover parallel --who a --reason b",
        "cutover clean-copy --who a --reason b --yes",
        "scheduler status",
        "jobs list",
    ):
        status, out, said = run(*command.split(), *config, cwd=tmp_path)
        assert (status, "the target apscheduler is tables of a library" in said) == (USAGE, True), command + out + said


def test_a_row_of_another_program_and_a_changed_ledger_are_found_without_the_schema_of_the_tool(
    settings: Settings, tmp_path: Path
) -> None:
    make_table(settings)
    config = ["--config", str(write_config(tmp_path, settings))]
    for command in ("target prepare", "backfill"):
        status, out, said = run(*command.split(), *config, cwd=tmp_path)
        assert status == 0, command + out + said
    only = ["--only", "parity.foreign", "--only", "parity.ledger", "--only", "parity.quarantine"]
    assert set(_outcomes(tmp_path, *only, *config).values()) == {"passed"}
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        assert connection.execute("SELECT to_regnamespace('scheduler') IS NULL").fetchone() == (True,)
        connection.execute("INSERT INTO app.apscheduler_jobs VALUES ('of another', NULL, '')")
        connection.execute("UPDATE migration.chunks SET documents = documents + 1")
    outcomes = _outcomes(tmp_path, *only, *config)
    assert [outcomes[name] for name in ("parity.foreign", "parity.ledger")] == ["failed", "failed"]


def _outcomes(folder: Path, *arguments: str) -> dict[str, str]:
    """Return the states of the checks that a verification makes."""
    _, out, said = run("verify", "--json", *arguments, cwd=folder)
    assert out, said
    checks = json.loads(out)["evidence"]["checks"]
    return {check["id"]: check["outcome"]["status"] for check in checks}
