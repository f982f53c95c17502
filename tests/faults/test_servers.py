"""Servers that stop, stay away or fill up in the middle of a copy, and two copies at once."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from pymongo import MongoClient
from pymongo.database import Database

from migrator import fault_points as points
from migrator.config import Settings
from migrator.pipeline import backfill as flow
from migrator.pipeline import ledger
from migrator.pipeline.chunk import copy_chunk
from migrator.pipeline.executors import ChunkJob
from migrator.pipeline.ledger import ChunkResult
from migrator.pipeline.plan import Scope, plan_context
from migrator.schema.revisions import upgrade
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from tests.copying import number, run, run_of, settings_for, write_config
from tests.gates import held
from tests.small_disk import room_of_its_own, small_disk

DOCUMENTS = 8
MINUTE = timedelta(minutes=1)
USAGE = 2
UNREACHABLE = 16
ROWS = "SELECT count(*) FROM scheduler.runs"
DONE = "SELECT count(*) FROM migration.chunks WHERE state = 'done'"


def fill(database: Database[Any], blob: int = 0) -> None:
    database["runs"].insert_many([run_of(_id=f"r{number}", blob="x" * blob) for number in range(DOCUMENTS)])


def in_chunks(database: Database[Any], dsn: str, patience: timedelta = MINUTE) -> Settings:
    settings = settings_for(database, dsn, workers=1, chunk=1)
    copy = replace(settings.copy, patience=patience)
    return replace(settings, mongo=replace(settings.mongo, timeout=timedelta(milliseconds=500)), copy=copy)


def finish(config: Path, dsn: str) -> None:
    status, _, said = run("backfill", "--config", str(config))
    assert (status, number(dsn, ROWS)) == (0, DOCUMENTS), said


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of one's own, to be stopped."""
    with PostgresServer(fast=True) as server:
        yield server


@pytest.fixture
def target(postgres: PostgresServer) -> str:
    dsn = postgres.create_database("target")
    upgrade(dsn)
    return dsn


@pytest.mark.parametrize("point", [points.BEFORE_PLAN, points.AFTER_PLAN_STORED, points.AFTER_LOAD_BEFORE_COMMIT])
def test_the_target_goes_away_and_comes_back(
    point: str, mongo_database: Database[Any], postgres: PostgresServer, target: str, tmp_path: Path
) -> None:
    fill(mongo_database)
    config = write_config(tmp_path, in_chunks(mongo_database, target))
    with held(config, point, tmp_path) as copy:
        postgres.kill()
        copy.go()
        assert "waiting: the target cannot be reached or went away: " in copy.hear("waiting")
        postgres.restart()
        status, _, said = copy.end()
    assert status == 0, said
    assert number(target, ROWS) == DOCUMENTS == number(target, DONE)


def test_a_crash_of_the_target_loses_chunks_and_they_are_copied_again(
    mongo_database: Database[Any], tmp_path: Path
) -> None:
    """A chunk's commit does not wait for the disk. The server writes nothing by itself for ten seconds here."""
    fill(mongo_database)
    with PostgresServer(fast=True, settings={"wal_writer_delay": "10s"}) as postgres:
        target = postgres.create_database("target")
        upgrade(target)
        config = write_config(tmp_path, in_chunks(mongo_database, target))
        with held(config, points.AFTER_COMMIT, tmp_path) as copy:
            assert number(target, DONE) == 1
            postgres.kill()
            copy.go()
            assert "waiting: the target" in copy.hear("waiting")
            postgres.restart()
            assert number(target, DONE) == 0
            status, _, said = copy.end()
        assert status == 0, said
        assert "a crash of the target lost committed chunks (1); they are copied again" in said
        assert f"{DOCUMENTS} documents" in said
        assert number(target, ROWS) == DOCUMENTS == number(target, DONE)


def test_the_target_stays_away(
    mongo_database: Database[Any], postgres: PostgresServer, target: str, tmp_path: Path
) -> None:
    fill(mongo_database)
    config = write_config(tmp_path, in_chunks(mongo_database, target, patience=timedelta(seconds=3)))
    with held(config, points.AFTER_COMMIT, tmp_path) as copy:
        postgres.stop()
        copy.go()
        status, out, said = copy.end()
    assert (status, out) == (UNREACHABLE, ""), said
    assert said.splitlines()[-1].startswith("migrator: the target cannot be reached or went away: ")
    assert "waiting: the target" in said
    assert "Traceback" not in said
    postgres.restart()
    assert number(target, ROWS) == number(target, DONE) == 1
    finish(write_config(tmp_path, in_chunks(mongo_database, target)), target)


@pytest.fixture
def mongo() -> Iterator[MongoServer]:
    """A MongoDB of one's own, to be stopped; what it has acknowledged outlives a stop in good order."""
    with MongoServer(fast=True) as server:
        yield server


def test_the_source_goes_away_and_comes_back(mongo: MongoServer, scheduler_dsn: str, tmp_path: Path) -> None:
    with MongoClient[Any](mongo.uri) as client:
        fill(client["source"])
        config = write_config(tmp_path, in_chunks(client["source"], scheduler_dsn))
    with held(config, points.AFTER_CHUNK_BEGUN, tmp_path) as copy:
        mongo.stop()
        copy.go()
        line = copy.hear("waiting")
        assert line.startswith(f"waiting: the source cannot be reached: 127.0.0.1:{mongo.port}")
        mongo.restart()
        status, _, said = copy.end()
    assert status == 0, said
    assert number(scheduler_dsn, ROWS) == DOCUMENTS


def test_the_source_stays_away(mongo: MongoServer, scheduler_dsn: str, tmp_path: Path) -> None:
    with MongoClient[Any](mongo.uri) as client:
        fill(client["source"])
        config = write_config(tmp_path, in_chunks(client["source"], scheduler_dsn, patience=timedelta(seconds=3)))
    with held(config, points.AFTER_CHUNK_BEGUN, tmp_path) as copy:
        mongo.stop()
        copy.go()
        status, out, said = copy.end()
    assert (status, out) == (UNREACHABLE, ""), said
    assert said.splitlines()[-1].startswith("migrator: the source cannot be reached: ")
    assert "Traceback" not in said
    assert number(scheduler_dsn, ROWS) == 0
    mongo.restart()
    with MongoClient[Any](mongo.uri) as client:
        finish(write_config(tmp_path, in_chunks(client["source"], scheduler_dsn)), scheduler_dsn)


def test_a_second_backfill_at_the_same_time_is_refused(
    mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path
) -> None:
    fill(mongo_database)
    config = write_config(tmp_path, in_chunks(mongo_database, scheduler_dsn))
    with held(config, points.AFTER_CHUNK_BEGUN, tmp_path) as copy:
        status, out, said = run("backfill", "--config", str(config))
        assert (status, out) == (USAGE, "")
        assert said == "migrator: another backfill is writing to this target; wait for it, or end it\n"
        copy.go()
        assert copy.end()[0] == 0
    assert number(scheduler_dsn, ROWS) == DOCUMENTS


def test_two_workers_on_one_chunk_copy_it_once(mongo_database: Database[Any], scheduler_dsn: str) -> None:
    """As happens when the target goes away, takes the lock of the backfill along, and somebody starts another one."""
    fill(mongo_database)
    settings = settings_for(mongo_database, scheduler_dsn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "_run_level", lambda *_: False)
        plan = flow.backfill(settings, Scope()).plan
    results: list[ChunkResult] = []
    with psycopg.connect(scheduler_dsn) as first, psycopg.connect(scheduler_dsn, autocommit=True) as watch:
        (chunk,) = ledger.chunks_of(first, plan.id)
        job = ChunkJob(settings=settings, plan=plan, context=plan_context(plan), chunk=chunk, begun="")
        assert ledger.take_chunk(first, plan.id, "runs", 0)
        second = threading.Thread(target=lambda: results.append(copy_chunk(job)))
        second.start()
        while second.is_alive() and watch.execute("SELECT FROM pg_locks WHERE NOT granted").fetchone() is None:
            pass
        ledger.finish_chunk(first, plan.id, ChunkResult(collection="runs", ordinal=0), b"", plan.as_of, "first")
        first.commit()
        second.join()
    assert [one.already for one in results] == [True]
    assert number(scheduler_dsn, ROWS) == 0


def test_a_full_disk(mongo_database: Database[Any], postgres: PostgresServer, target: str, tmp_path: Path) -> None:
    fill(mongo_database, blob=3_000_000)
    config = write_config(tmp_path, in_chunks(mongo_database, target))
    with small_disk(postgres._directory.path / "disk", 12) as disk:
        room_of_its_own(target, disk)
        with psycopg.connect(target, autocommit=True) as connection:
            connection.execute("ALTER TABLE scheduler.runs ALTER COLUMN extra SET STORAGE EXTERNAL")
            connection.execute("ALTER TABLE scheduler.runs SET TABLESPACE small")
        status, out, said = run("backfill", "--config", str(config))
        assert (status, out) == (UNREACHABLE, ""), said
        line = said.splitlines()[-1]
        assert line.startswith("migrator: the target is out of disk space: could not extend file")
        assert line.endswith("free some and call again")
        kept = number(target, ROWS)
        assert 0 < kept == number(target, DONE) < DOCUMENTS
        with psycopg.connect(target, autocommit=True) as connection:
            connection.execute("ALTER TABLE scheduler.runs SET TABLESPACE pg_default")
        finish(config, target)
        postgres.stop()
