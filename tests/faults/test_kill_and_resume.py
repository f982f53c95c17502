"""A copy that was killed and called again ends as one that was never disturbed."""

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from migrator import fault_points as points
from migrator.schema.catalogue import differences
from migrator.testing.demo import Size
from migrator.testing.demo.seed import seed
from tests.conftest import Clusters
from tests.copying import contents, kill, number, quarantine, run, settings_for, start, write_config
from tests.declared_catalogue import declared_once

FOLDER = Path(__file__).parent
POINTS = [
    getattr(points, name) for name in dir(points) if name.startswith(("AFTER_", "BEFORE_")) and "REVERSE" not in name
]
CLOSING = [
    points.AFTER_LINKS_FILLED,
    points.AFTER_LINKS_CLOSED,
    points.AFTER_CONTEST_SETTLED,
    points.AFTER_DUPLICATES_SETTLED,
    points.AFTER_DERIVED_WRITTEN,
    points.AFTER_STATISTICS_TAKEN,
    points.BEFORE_DEFERRED_RESTORED,
    points.AFTER_DEFERRED_BUILT,
]
"""The points behind the chunks, in the order in which a copy passes them; two of them within a transaction."""
LAST = points.AFTER_DEFERRED_RESTORED
"""All is built, and the plan does not say so yet."""
INSIDE = {
    points.AFTER_LINKS_FILLED,
    points.AFTER_CONTEST_SETTLED,
    points.AFTER_DERIVED_WRITTEN,
    points.AFTER_STATISTICS_TAKEN,
    points.AFTER_DEFERRED_BUILT,
    LAST,
}
"""Those that ``test_killed_in_every_closing_pass`` alone goes to."""
WORKERS = 2
IN_CHUNKS = [points.AFTER_CHUNK_BEGUN, points.AFTER_LOAD_BEFORE_COMMIT, points.AFTER_COMMIT]
KILLS = 20
CHUNK = 400
QUARANTINE = 8


class Undisturbed:
    """The demo's data, and what a copy without any fault makes of it."""

    def __init__(self, database: Database[Any], dsn: str, folder: Path) -> None:
        self.database = database
        config = write_config(folder, settings_for(database, dsn, workers=2, chunk=CHUNK))
        status, _, said = run("backfill", "--config", str(config))
        assert status == QUARANTINE, said
        self.contents = contents(dsn)
        self.quarantine = quarantine(dsn)


@pytest.fixture(scope="module")
def undisturbed(
    mongo_client: MongoClient[Any], clusters: Clusters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Undisturbed]:
    database = mongo_client["kill_and_resume"]
    seed(database, Size.SMALL)
    yield Undisturbed(database, clusters.get(18).scheduler(), tmp_path_factory.mktemp("undisturbed"))
    mongo_client.drop_database(database)


def killed_at(config: Path, point: str, count: int, tally: Path) -> bool:
    """Run a backfill that is killed at the n-th passing of a point; tell whether it was."""
    tally.unlink(missing_ok=True)
    process = start(
        "backfill",
        "--config",
        str(config),
        environment={
            "MIGRATOR_FAULT_POINTS": "listener:passed",
            "PYTHONPATH": str(FOLDER),
            "KILL_AT": point,
            "KILL_COUNT": str(count),
            "KILL_TALLY": str(tally),
        },
    )
    try:
        said = "".join(process.communicate(timeout=300))
    finally:
        kill(process)
    assert process.returncode in {-signal.SIGKILL, QUARANTINE}, said
    return process.returncode < 0


def finish(config: Path) -> None:
    status, _, said = run("backfill", "--config", str(config))
    assert status == QUARANTINE, said


def assert_as_undisturbed(dsn: str, undisturbed: Undisturbed) -> None:
    assert contents(dsn) == undisturbed.contents
    assert quarantine(dsn) == undisturbed.quarantine
    assert number(dsn, "SELECT count(*) FROM migration.deferred_ddl WHERE restored_at IS NULL") == 0
    assert number(dsn, "SELECT count(*) FROM migration.pending_links") == 0
    with declared_once():
        assert differences(dsn) == []


@pytest.mark.slow
@pytest.mark.parametrize("point", [point for point in POINTS if point not in INSIDE])
@pytest.mark.proves("0-O6")
def test_killed_once_at_every_point(
    point: str, undisturbed: Undisturbed, new_scheduler_dsn: Callable[[], str], tmp_path: Path
) -> None:
    dsn = new_scheduler_dsn()
    config = write_config(tmp_path, settings_for(undisturbed.database, dsn, workers=2, chunk=CHUNK))
    assert killed_at(config, point, 1, tmp_path / "tally"), f"{point} was never passed"
    finish(config)
    assert_as_undisturbed(dsn, undisturbed)


@pytest.mark.slow
@pytest.mark.proves("0-O6")
def test_killed_twenty_times_at_random(
    undisturbed: Undisturbed, new_scheduler_dsn: Callable[[], str], tmp_path: Path
) -> None:
    """0-O6: resume after a kill at random points."""
    dsn = new_scheduler_dsn()
    config = write_config(tmp_path, settings_for(undisturbed.database, dsn, workers=2, chunk=CHUNK))
    dice = random.Random(20_261_120)
    for _ in range(KILLS):
        assert killed_at(config, dice.choice(IN_CHUNKS), dice.randint(1, 3), tmp_path / "tally")
    finish(config)
    assert_as_undisturbed(dsn, undisturbed)


@pytest.mark.slow
@pytest.mark.proves("0-O6")
def test_killed_in_every_closing_pass(
    undisturbed: Undisturbed, new_scheduler_dsn: Callable[[], str], tmp_path: Path
) -> None:
    """One copy, killed where it fills references, settles contested keys, takes statistics, and builds indexes."""
    dsn = new_scheduler_dsn()
    config = write_config(tmp_path, settings_for(undisturbed.database, dsn, workers=WORKERS, chunk=CHUNK))
    for point in CLOSING:
        assert killed_at(config, point, 1, tmp_path / "tally"), f"{point} was never passed"
    owed = "SELECT count(*) FROM migration.deferred_ddl WHERE restored_at IS NULL"
    left, dice = number(dsn, owed), random.Random(20_261_122)
    assert left > 2 * WORKERS
    # Each thread holds one open transaction at most, so that the last of so many passings follows a commit.
    while killed_at(config, points.AFTER_DEFERRED_BUILT, WORKERS + dice.randint(1, 3), tmp_path / "tally"):
        assert number(dsn, owed) < left
        left = number(dsn, owed)
        if left <= WORKERS:
            assert killed_at(config, LAST, 1, tmp_path / "tally")
    finish(config)
    assert_as_undisturbed(dsn, undisturbed)
