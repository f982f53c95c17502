"""The tests run against servers that somebody started, and leave nothing there."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo import MongoClient

from migrator.testing.servers.foreign import MONGO, POSTGRES
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
SOME = "tests/integration/test_two_databases.py::test_nothing_of_a_second_database_is_written[plan]"


def run_some(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", SOME]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MIGRATOR_"))}
    return subprocess.run(
        command, cwd=ROOT, env=kept | environment, capture_output=True, text=True, check=False, timeout=300
    )


def databases(mongo: MongoServer, postgres: PostgresServer) -> set[str]:
    with MongoClient[Any](mongo.uri) as client, psycopg.connect(postgres.dsn()) as connection:
        rows = connection.execute("SELECT datname FROM pg_database").fetchall()
        return {*client.list_database_names(), *(name for (name,) in rows)}


@pytest.mark.proves("6-U5")
def test_they_work_there_and_leave_nothing(mongo_server: MongoServer, postgres_server: PostgresServer) -> None:
    before = databases(mongo_server, postgres_server)
    with MongoClient[Any](mongo_server.uri) as client:
        written = client.admin.command("serverStatus")["opcounters"]["insert"]
        done = run_some({MONGO: mongo_server.uri, POSTGRES: postgres_server.dsn().removesuffix("/postgres")})
        assert done.returncode == 0, done.stdout + done.stderr
        assert client.admin.command("serverStatus")["opcounters"]["insert"] >= written + 5
    assert "1 passed" in done.stdout
    assert databases(mongo_server, postgres_server) == before


@pytest.mark.parametrize(
    "environment",
    [
        {MONGO: "mongodb://127.0.0.1:9/?serverSelectionTimeoutMS=100"},
        {POSTGRES: "postgresql://postgres:x@127.0.0.1:9"},
    ],
    ids=["MongoDB", "PostgreSQL"],
)
def test_they_do_not_run_elsewhere_where_it_is_not_there(environment: dict[str, str]) -> None:
    done = run_some(environment)
    assert done.returncode, done.stdout
    assert "passed" not in done.stdout
    assert "error" in done.stdout
