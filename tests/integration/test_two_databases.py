"""A second source database is refused: its documents would overwrite the rows of the first."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pymongo.database import Database

from migrator.config import Settings
from migrator.exit_status import USAGE
from tests.conftest import fresh_name
from tests.copying import contents, run, run_of, write_config
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


@pytest.mark.proves("6-U6")
@pytest.mark.parametrize(
    "command",
    [
        "plan",
        "backfill",
        "backfill --restart",
        "backfill --dry-run",
        "backfill --only runs --again",
        "tail --until-caught-up",
        "parity --repair plan",
        "parity --repair apply --who me --reason x --yes",
    ],
)
def test_nothing_of_a_second_database_is_written(
    command: str, settings: Settings, second: Settings, scheduler_dsn: str, tmp_path: Path
) -> None:
    before = contents(scheduler_dsn)
    status, _, said = run(*command.split(), "--config", str(write_config(tmp_path, second)))
    first, other = settings.mongo.database, second.mongo.database
    assert status == USAGE, said
    assert re.search(f"this target was copied from .*{first}, and the source is .*{other}", said), said
    assert contents(scheduler_dsn) == before
