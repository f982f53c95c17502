"""A second source is refused: another database, whose documents would overwrite the rows of the first, or profile."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.exit_status import DONE, USAGE
from tests.apscheduler_documents import real
from tests.conftest import fresh_name
from tests.copying import contents, run, run_of, settings_for, write_config
from tests.tailing import copied

Source = Database[Any]


@pytest.fixture
def settings(mongo_database: Source, scheduler_dsn: str) -> Settings:
    mongo_database["runs"].insert_many([run_of(_id=f"r{number}") for number in range(3)])
    return copied(mongo_database, scheduler_dsn)


@pytest.fixture
def second(settings: Settings, mongo_database: Source) -> Iterator[Settings]:
    """Yield the settings with another database, which has a document of the same id and one more."""
    other = mongo_database.client[fresh_name()]
    other["runs"].insert_many([run_of(_id="r0", state="error"), run_of(_id="s0")])
    yield replace(settings, mongo=replace(settings.mongo, database=other.name))
    mongo_database.client.drop_database(other.name)


COMMANDS = (
    "plan",
    "backfill",
    "backfill --restart",
    "backfill --dry-run",
    "backfill --only runs --again",
    "tail --until-caught-up",
    "parity --repair plan",
    "parity --repair apply --who me --reason x --yes",
)


@pytest.mark.proves("6-U6")
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_of_a_second_database_is_written(
    command: str, settings: Settings, second: Settings, scheduler_dsn: str, tmp_path: Path
) -> None:
    before = contents(scheduler_dsn)
    status, _, said = run(*command.split(), "--config", str(write_config(tmp_path, second)))
    first, other = settings.mongo.database, second.mongo.database
    assert status == USAGE, said
    assert re.search(f"this target was copied from .*{first}, and the source is .*{other}", said), said
    assert contents(scheduler_dsn) == before


@pytest.mark.proves("6-U6")
@pytest.mark.parametrize("command", [one for one in COMMANDS if "--only" not in one and "tail" not in one])
def test_nothing_of_a_second_profile_is_written(
    command: str, settings: Settings, mongo_database: Source, scheduler_dsn: str, tmp_path: Path
) -> None:
    """Both would have one plan, one parity check and one cutover."""
    mongo_database["agendaJobs"].insert_one({"name": "a", "nextRunAt": datetime(2027, 1, 1)})  # noqa: DTZ001 - as BSON
    other = replace(settings, source=replace(settings.source, profile="agenda"))
    before = contents(scheduler_dsn)
    status, _, said = run(*command.split(), "--config", str(write_config(tmp_path, other)))
    assert status == USAGE, said
    assert "this target holds the copy of the source stellaops" in said, said
    assert "copy agenda into another database of PostgreSQL" in said
    assert contents(scheduler_dsn) == before


def test_two_libraries_come_into_one_database_one_after_the_other(
    mongo_database: Source, postgres_dsn: str, tmp_path: Path
) -> None:
    """As docs/limits.md says: when the first application has changed over, what the tool kept of it is dropped."""
    now = datetime(2026, 11, 29)  # noqa: DTZ001 - as BSON
    mongo_database["jobs"].insert_many(real("3.11.3").values())
    mongo_database["shedLock"].insert_one({"_id": "a", "lockUntil": now, "lockedAt": now, "lockedBy": "me"})
    configs = {}
    for name in ("apscheduler", "shedlock"):
        (tmp_path / name).mkdir()
        target = TargetSettings(name=name)
        configs[name] = write_config(
            tmp_path / name, settings_for(mongo_database, postgres_dsn, profile=name, target=target)
        )

    def call(name: str, command: str) -> tuple[int, str]:
        status, out, said = run(*command.split(), "--config", str(configs[name]), cwd=configs[name].parent)
        return status, out + said

    steps = ("target prepare --make-tables", "backfill", "tail --until-caught-up", "parity")
    assert [call("apscheduler", step)[0] for step in steps] == [DONE] * len(steps)
    assert call("shedlock", steps[0])[0] == DONE, "nothing is copied yet"
    status, said = call("shedlock", "backfill")
    assert (status, "this target holds the copy of the source apscheduler" in said) == (USAGE, True), said
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(DROPPED)
    for step in steps:
        status, said = call("shedlock", step)
        assert status == DONE, said
    with psycopg.connect(postgres_dsn) as connection:
        rows = connection.execute("SELECT (SELECT count(*) FROM apscheduler_jobs), count(*) FROM shedlock").fetchone()
    assert rows == (len(real("3.11.3")), 1)


DROPPED = "DROP SCHEMA migration, migration_apscheduler CASCADE"


def test_the_page_has_the_statement() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
    assert f"`{DROPPED}`" in page
