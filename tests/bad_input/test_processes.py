"""What needs a process of its own: remedies of messages, followed; streams, arguments and bytes of the system."""

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql
from pymongo import MongoClient
from pymongo.database import Database

from migrator.config import MongoSettings, PostgresSettings, Settings
from migrator.testing.servers.mongo import MongoServer
from tests.copying import EVERY_ID, contents, number, quarantine, run, run_of, settings_for, write_config

USAGE = 2
UNVERIFIED = 4
QUARANTINE = 8
UNREACHABLE = 16
SECRET = "hunter2"


@pytest.fixture
def settings(mongo_database: Database[Any], scheduler_dsn: str) -> Settings:
    """A good configuration and one document."""
    mongo_database["runs"].insert_one(run_of(_id="r1"))
    return replace(settings_for(mongo_database, scheduler_dsn), mongo=_quick(mongo_database, scheduler_dsn))


def _quick(database: Database[Any], dsn: str) -> MongoSettings:
    return replace(settings_for(database, dsn).mongo, timeout=timedelta(milliseconds=500))


def call(folder: Path, settings: Settings, *arguments: str) -> tuple[int, str, str]:
    """Run a command; whatever it answers, it must not print a password."""
    config = write_config(folder, settings)
    status, out, err = run(*arguments, "--config", str(config), cwd=folder)
    for secret in (SECRET, urlsplit(settings.postgres.dsn or "").password, urlsplit(settings.mongo.uri or "").password):
        assert not secret or secret not in out + err
    return status, out, err


def refusal(folder: Path, settings: Settings, *arguments: str, status: int) -> str:
    """Run a command that must fail with this status; return its one line."""
    got, out, err = call(folder, settings, *arguments)
    assert (got, out) == (status, ""), err
    assert "Traceback" not in err
    (line,) = [one for one in err.splitlines() if one.startswith("migrator: ")]
    assert err.splitlines()[-1] == line
    assert re.fullmatch(r"migrator: [a-z-].*[^.]", line), "lower case, no full stop"
    return line.removeprefix("migrator: ")


@pytest.fixture(scope="module")
def guarded(auth_server: MongoServer) -> MongoServer:
    """MongoDB with authentication."""
    with MongoClient[Any](auth_server.uri) as client:
        client["guarded"]["runs"].insert_one(run_of(_id="r1"))
        client.admin.command("createUser", "nobody", pwd=SECRET, roles=[])
        client.admin.command("createUser", "reader", pwd=SECRET, roles=[{"role": "read", "db": "guarded"}])
    return auth_server


def _as(guarded: MongoServer, settings: Settings, user: str, password: str) -> Settings:
    uri = f"mongodb://{user}:{password}@127.0.0.1:{guarded.port}/?replicaSet=rs0&authSource=admin"
    return replace(settings, mongo=MongoSettings(uri=uri, database="guarded", timeout=timedelta(seconds=5)))


def test_a_wrong_password_of_the_source(guarded: MongoServer, settings: Settings, tmp_path: Path) -> None:
    wrong = _as(guarded, settings, "reader", f"{SECRET}x")
    line = refusal(tmp_path, wrong, "backfill", status=UNREACHABLE)
    assert line == "the source refuses the user or the password of mongo.uri"


def test_a_wrong_password_of_the_target(settings: Settings, scheduler_dsn: str, tmp_path: Path) -> None:
    parts = urlsplit(scheduler_dsn)
    with psycopg.connect(scheduler_dsn) as connection:
        connection.execute(sql.SQL("DROP ROLE IF EXISTS wrong_password"))
        connection.execute(sql.SQL("CREATE ROLE wrong_password LOGIN PASSWORD 'other'"))
    wrong = replace(
        settings,
        postgres=PostgresSettings(
            dsn=f"postgresql://wrong_password:{SECRET}@{parts.hostname}:{parts.port}{parts.path}"
        ),
    )
    line = refusal(tmp_path, wrong, "backfill", status=UNREACHABLE)
    assert line == "the target refuses the user or the password of postgres.dsn"


def test_missing_rights_on_the_source(guarded: MongoServer, settings: Settings, tmp_path: Path) -> None:
    for command in ("inspect", "backfill", "plan"):
        line = refusal(tmp_path, _as(guarded, settings, "nobody", SECRET), command, status=UNREACHABLE)
        assert line.startswith("the source denies a right: not authorized on guarded")
        assert line.endswith("the copy needs the role read on the database")


def test_the_role_read_is_enough(guarded: MongoServer, settings: Settings, tmp_path: Path) -> None:
    assert call(tmp_path, _as(guarded, settings, "reader", SECRET), "backfill")[0] == 0
    assert call(tmp_path, _as(guarded, settings, "reader", SECRET), "parity")[0] == 0


def test_missing_rights_on_the_target(settings: Settings, scheduler_dsn: str, tmp_path: Path) -> None:
    parts = urlsplit(scheduler_dsn)
    with psycopg.connect(scheduler_dsn) as connection:
        connection.execute(sql.SQL("DROP ROLE IF EXISTS outsider"))
        connection.execute(sql.SQL("CREATE ROLE outsider LOGIN PASSWORD {}").format(sql.Literal(SECRET)))
    dsn = f"postgresql://outsider:{SECRET}@{parts.hostname}:{parts.port}{parts.path}"
    wrong = replace(settings, postgres=PostgresSettings(dsn=dsn))
    for command in ("backfill", "parity"):
        assert refusal(tmp_path, wrong, command, status=USAGE) == (
            "the target's user outsider is not a member of scheduler_migration; as an administrator run:"
            ' GRANT "scheduler_migration" TO "outsider"'
        )
    with psycopg.connect(scheduler_dsn) as connection:
        connection.execute("GRANT scheduler_migration TO outsider")
    assert call(tmp_path, wrong, "backfill")[0] == 0


def test_no_replica_set(settings: Settings, scheduler_dsn: str, tmp_path: Path) -> None:
    with MongoServer(fast=True, replica_set=None) as plain, MongoClient[Any](plain.uri) as client:
        client["plain"]["runs"].insert_one(run_of(_id="r1"))
        alone = replace(settings, mongo=MongoSettings(uri=plain.uri, database="plain", timeout=timedelta(seconds=5)))
        line = refusal(tmp_path, alone, "backfill", status=USAGE)
        assert line.startswith("the source is not a replica set")
        assert "make it one" in line
        assert number(scheduler_dsn, "SELECT count(*) FROM migration.plans") == 0
        assert call(tmp_path, alone, "backfill", "--no-position")[0] == 0
        assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs") == 1
        assert call(tmp_path, alone, "parity")[0] == 0  # without a cluster time it cannot be put on record


def test_a_database_that_is_wrong_or_empty(settings: Settings, mongo_database: Database[Any], tmp_path: Path) -> None:
    wrong = replace(settings, mongo=replace(settings.mongo, database="no_such"))
    sentence = "database no_such has no collection of profile stellaops; it is empty, or does not exist"
    for command in ("backfill", "inspect"):
        assert refusal(tmp_path, wrong, command, status=USAGE) == sentence
    mongo_database["runs"].rename("executions")
    assert refusal(tmp_path, settings, "backfill", status=USAGE).endswith("stellaops; it has: executions")


def test_a_collection_without_documents(
    settings: Settings, mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path
) -> None:
    mongo_database["runs"].delete_many({})
    for command in ("inspect", "plan", "backfill", "backfill", "parity"):
        status, _, err = call(tmp_path, settings, command)
        assert status == 0, (command, err)
    status, out, _ = call(tmp_path, settings, "verify", "--no-behaviour")
    assert status == UNVERIFIED
    assert "the source holds no document of this profile" in out
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs") == 0


def test_a_target_database_that_does_not_exist(settings: Settings, tmp_path: Path) -> None:
    dsn = str(settings.postgres.dsn).rpartition("/")[0] + "/no_such"
    wrong = replace(settings, postgres=PostgresSettings(dsn=dsn))
    line = refusal(tmp_path, wrong, "backfill", status=UNREACHABLE)
    assert 'database "no_such" does not exist; create the database first' in line


def test_ids_of_every_type_and_a_document_of_sixteen_megabytes(
    settings: Settings, mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path
) -> None:
    mongo_database["runs"].insert_many([run_of(_id=key) for key in EVERY_ID])
    mongo_database["runs"].insert_one(run_of(_id="large", blob="x" * (16 * 1024 * 1024 - 1_500)))
    in_pieces = replace(settings, copy=replace(settings.copy, chunk_documents=3))
    assert call(tmp_path, in_pieces, "inspect")[0] == 0
    assert call(tmp_path, in_pieces, "backfill")[0] == 0
    assert contents(scheduler_dsn)["runs"][0] == len(EVERY_ID) + 2
    assert call(tmp_path, in_pieces, "parity")[0] == 0


def test_what_is_set_aside_is_named_and_everything_else_is_copied(
    settings: Settings, mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path
) -> None:
    mongo_database["runs"].insert_one(run_of(_id="odd", state="exploded"))
    status, out, _ = call(tmp_path, settings, "backfill")
    assert status == QUARANTINE
    assert "1 document is in quarantine: migrator quarantine list" in out
    assert [row[1:4] for row in quarantine(scheduler_dsn)] == [("odd", "unknown-value", "state")]
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs") == 1


def started(folder: Path, settings: Settings, command: str, environment: dict[bytes, bytes] | None = None) -> Any:  # noqa: ANN401 - a finished process
    """Run a line of the shell in which ``migrator`` stands for the tool."""
    config = write_config(folder, settings)
    line = command.replace("migrator", f"{sys.executable} -m migrator") + f" --config {config}"
    return subprocess.run(
        ["/bin/sh", "-c", line],
        capture_output=True,
        check=False,
        env={**os.environb, **(environment or {})},
        cwd=folder,
    )


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        (">/dev/full migrator inspect", 16, "cannot write standard output: no space left on device"),
        (">/dev/full migrator inspect --json", 16, "cannot write standard output: no space left on device"),
        (">&- migrator inspect", 2, "standard output is closed; redirect it to /dev/null"),
        ("2>&- migrator inspect", 0, ""),
        ("<&- migrator inspect", 0, ""),
        ("migrator inspect --only \"$(printf '\\377')\"", 2, "argument 3 is not UTF-8"),
        ("migrator quarantine show runs \"$(printf 'a\\377')\"", 2, "argument 4 is not UTF-8"),
    ],
)
def test_streams_and_bytes(command: str, status: int, words: str, settings: Settings, tmp_path: Path) -> None:
    done = started(tmp_path, settings, command)
    said = done.stderr.decode()
    assert (done.returncode, "Traceback" in said) == (status, False), said
    assert words in said


def test_an_environment_that_is_not_utf_8(settings: Settings, tmp_path: Path) -> None:
    odd = {b"ODD_URI": f"mongodb://u:{SECRET}".encode() + b"\xff@127.0.0.1/"}
    wrong = replace(settings, mongo=replace(settings.mongo, uri=None, uri_env="ODD_URI"))
    done = started(tmp_path, wrong, "migrator inspect", odd)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == USAGE, said
    assert "mongo.uri: expected text in UTF-8" in said
    assert "Traceback" not in said
    assert SECRET not in said
