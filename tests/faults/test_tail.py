"""A tail that was killed, whose servers went away, beside a copy that was killed too: it ends as a fresh copy does.

The oracle is a copy made at the end: rows and quarantine must be the same, byte for byte. ``TAIL_ROUNDS`` makes the
random test longer (deep profile: 40).
"""

import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bson.raw_bson import DEFAULT_RAW_BSON_OPTIONS
from pymongo import MongoClient
from pymongo.database import Database

from migrator import fault_points as points
from migrator.config import Settings
from migrator.pipeline.tail.loop import Tail, TailResult
from migrator.schema.revisions import upgrade
from migrator.testing.demo import Size
from migrator.testing.demo.seed import seed
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from tests.copying import kill, run, run_of, settings_for, start, write_config
from tests.tailing import assert_as_a_fresh_copy, caught_up, compared, copied
from tests.workload import Workload

FOLDER = Path(__file__).parent
TAIL_POINTS = [getattr(points, name) for name in dir(points) if name.startswith("TAIL_")]
COPY_POINTS = [points.AFTER_CHUNK_BEGUN, points.AFTER_LOAD_BEFORE_COMMIT, points.AFTER_COMMIT]
ROUNDS = int(os.environ.get("TAIL_ROUNDS", "4"))
SEED = int(os.environ.get("TAIL_SEED", "20261120"))
OF_EACH = 25
CHUNK = 20
QUARANTINE = 8


@pytest.fixture(scope="module")
def demo(mongo_client: MongoClient[Any]) -> Iterator[Database[Any]]:
    database = mongo_client["tail_demo"]
    seed(database, Size.SMALL)
    yield database
    mongo_client.drop_database(database)


@pytest.fixture
def source(demo: Database[Any], mongo_database: Database[Any]) -> Database[Any]:
    """Some of everything that the demo has, from both ends of each collection: its planted troubles among them."""
    for name in demo.list_collection_names():
        raw = demo[name].with_options(codec_options=DEFAULT_RAW_BSON_OPTIONS)
        some = [*raw.find().sort("_id", 1).limit(OF_EACH), *raw.find().sort("_id", -1).limit(OF_EACH)]
        target = mongo_database[name].with_options(codec_options=DEFAULT_RAW_BSON_OPTIONS)
        target.insert_many({one.raw: one for one in some}.values())
    return mongo_database


def killing(point: str, count: int, tally: Path) -> dict[str, str]:
    tally.unlink(missing_ok=True)
    return {
        "MIGRATOR_FAULT_POINTS": "listener:passed",
        "PYTHONPATH": str(FOLDER),
        "KILL_AT": point,
        "KILL_COUNT": str(count),
        "KILL_TALLY": str(tally),
    }


def ended(process: subprocess.Popen[str]) -> bool:
    """Wait for its end; tell whether it was killed."""
    try:
        said = "".join(process.communicate(timeout=300))
    finally:
        kill(process)
    assert process.returncode in {-signal.SIGKILL, 0, 4, QUARANTINE, 4 | QUARANTINE}, said
    return process.returncode < 0


def test_killed_at_every_point(
    source: Database[Any], scheduler_dsn: str, new_scheduler_dsn: Callable[[], str], tmp_path: Path
) -> None:
    settings = copied(source, scheduler_dsn)
    config = str(write_config(tmp_path, settings))
    workload = Workload(source, SEED)
    for point in TAIL_POINTS:
        workload.run(40)
        environment = killing(point, 1, tmp_path / "tally")
        process = start("tail", "--until-caught-up", "--config", config, environment=environment)
        assert ended(process), f"{point} was never passed"
    caught_up(settings)
    assert compared(settings) == []
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


def test_killed_at_random_beside_a_copy_that_is_killed_too(
    source: Database[Any], scheduler_dsn: str, new_scheduler_dsn: Callable[[], str], tmp_path: Path
) -> None:
    settings = settings_for(source, scheduler_dsn, workers=1, chunk=CHUNK)
    config = str(write_config(tmp_path, settings))
    dice = random.Random(SEED)
    workload = Workload(source, SEED + 1)
    ended(start("backfill", "--config", config, environment=killing(points.AFTER_COMMIT, 2, tmp_path / "copy tally")))
    for _ in range(ROUNDS):
        workload.run(20)
        tail = start(
            "tail",
            "--until-caught-up",
            "--config",
            config,
            environment=killing(dice.choice(TAIL_POINTS), dice.randint(1, 2), tmp_path / "tail tally"),
        )
        workload.run(20)
        if dice.random() < 0.5:
            environment = killing(dice.choice(COPY_POINTS), dice.randint(1, 9), tmp_path / "copy tally")
            ended(start("backfill", "--config", config, environment=environment))
        if dice.random() < 0.3:
            dice.choice([workload.drop, workload.swap])(dice.choice(["runs", "schedules", "graph_jobs", "audit"]))
        workload.run(20)
        ended(tail)
    status, _, said = run("backfill", "--config", config)
    assert status in {0, QUARANTINE}, said
    workload.run(20)
    caught_up(settings)
    assert compared(settings) == []
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


@pytest.fixture
def mongo() -> Iterator[MongoServer]:
    with MongoServer(fast=True) as server:
        yield server


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer(fast=True) as server:
        yield server


def following(settings: Settings, stop: threading.Event, results: list[TailResult]) -> threading.Thread:
    """Start a tail in a thread, and wait until it follows."""
    follows = threading.Event()

    def follow() -> None:
        with Tail(settings) as tail:
            tail.run("caught-up")
            follows.set()
            results.append(tail.run(None, stop))

    thread = threading.Thread(target=follow)
    thread.start()
    follows.wait()
    return thread


def test_elections_and_restarts_of_both_servers(mongo: MongoServer, postgres: PostgresServer) -> None:
    dsn = postgres.create_database("target")
    upgrade(dsn)
    stop = threading.Event()
    results: list[TailResult] = []
    with MongoClient[Any](mongo.uri) as client:
        source = client["source"]
        source["runs"].insert_many([run_of(_id=f"r{number}") for number in range(9)])
        settings = copied(source, dsn)
        thread = following(settings, stop, results)
        source["runs"].delete_one({"_id": "r0"})
        client.admin.command("replSetStepDown", 1, force=True)
        source["runs"].delete_one({"_id": "r1"})
        postgres.kill()
        source["runs"].update_one({"_id": "r2"}, {"$set": {"note": 1}})
        postgres.restart()
        source["runs"].insert_one(run_of(_id="new"))
        mongo.stop()
        mongo.restart()
        source["runs"].delete_one({"_id": "r3"})
        stop.set()
        thread.join()
        assert len(results) == 1
        caught_up(settings)
        assert compared(settings) == []
