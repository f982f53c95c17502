"""Every way to call the copy wrongly: one line that names the thing, the exit status, nothing half done, no secrets."""

import re
from collections.abc import Iterator
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
from migrator.embedded.mongo import MongoServer
from tests.copying import EVERY_ID, contents, number, quarantine, run, run_of, settings_for, write_config

USAGE = 2
UNVERIFIED = 4
QUARANTINE = 8
UNREACHABLE = 16
SECRET = "hunter2"
COMPARING = ("backfill", "parity", "verify", "status", "plan")


@pytest.fixture
def settings(mongo_database: Database[Any], scheduler_dsn: str) -> Settings:
    """A good configuration and one document."""
    mongo_database["runs"].insert_one(run_of(_id="r1"))
    return replace(settings_for(mongo_database, scheduler_dsn), mongo=_quick(mongo_database, scheduler_dsn))


def _quick(database: Database[Any], dsn: str) -> MongoSettings:
    return replace(settings_for(database, dsn).mongo, timeout_ms=500)


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


URIS = {
    "mongodb:/nothing": (USAGE, "mongo.uri is not a MongoDB URI"),
    "postgresql://localhost/x": (USAGE, "mongo.uri is not a MongoDB URI"),
    f"mongodb://me:{SECRET}@127.0.0.1:port/": (USAGE, "mongo.uri is not a MongoDB URI: port contains"),
    f"mongodb://me:{SECRET}/word@127.0.0.1/": (USAGE, "mongo.uri holds an @ or a / that belongs to a user"),
    f"mongodb://me:1/?{SECRET}=x@127.0.0.1/": (USAGE, "mongo.uri: unknown option: ***"),
    f"mongodb://me:{SECRET}@127.0.0.1:9/": (UNREACHABLE, "the source cannot be reached: 127.0.0.1:9: [Errno 111]"),
    "mongodb://127.0.0.1/?tls=true&tlsCAFile=/missing": (USAGE, "its TLS options name cannot be used: No such file"),
    "mongodb://127.0.0.1/?tls=true&tlsCertificateKeyFile=/missing": (USAGE, "its TLS options name cannot be used"),
    "mongodb://127.0.0.1/?tls=true&tlsCAFile=/etc/hostname": (USAGE, "a file that its TLS options name cannot be used"),
}


@pytest.mark.parametrize("uri", URIS)
def test_a_wrong_uri(uri: str, settings: Settings, tmp_path: Path) -> None:
    status, sentence = URIS[uri]
    wrong = replace(settings, mongo=replace(settings.mongo, uri=uri))
    assert sentence in refusal(tmp_path, wrong, "backfill", status=status)


DSNS = {
    f"postgresql://me:{SECRET}/word@localhost/x": (USAGE, "postgres.dsn holds an @ or a / that"),
    f"host=localhost password={SECRET} word dbname=x": (USAGE, "postgres.dsn is not a PostgreSQL DSN"),
    f"host=localhost password=x {SECRET}=1": (USAGE, "postgres.dsn is not a PostgreSQL DSN"),
    f"postgresql://me:{SECRET}@127.0.0.1:9/x": (UNREACHABLE, "the target cannot be reached"),
}


@pytest.mark.parametrize("dsn", DSNS)
@pytest.mark.parametrize("command", [("backfill",), ("schema", "current")])
def test_a_wrong_dsn(command: tuple[str, ...], dsn: str, settings: Settings, tmp_path: Path) -> None:
    status, sentence = DSNS[dsn]
    wrong = replace(settings, postgres=PostgresSettings(dsn=dsn))
    assert sentence in refusal(tmp_path, wrong, *command, status=status)


@pytest.fixture(scope="module")
def guarded() -> Iterator[MongoServer]:
    """MongoDB with authentication."""
    with MongoServer.start(auth=True, fast=True) as server, MongoClient[Any](server.uri) as client:
        client["guarded"]["runs"].insert_one(run_of(_id="r1"))
        client.admin.command("createUser", "nobody", pwd=SECRET, roles=[])
        client.admin.command("createUser", "reader", pwd=SECRET, roles=[{"role": "read", "db": "guarded"}])
        yield server


def _as(guarded: MongoServer, settings: Settings, user: str, password: str) -> Settings:
    uri = f"mongodb://{user}:{password}@127.0.0.1:{guarded.port}/?replicaSet=rs0&authSource=admin"
    return replace(settings, mongo=MongoSettings(uri=uri, database="guarded", timeout_ms=5000))


def test_a_wrong_password_of_the_source(guarded: MongoServer, settings: Settings, tmp_path: Path) -> None:
    wrong = _as(guarded, settings, "reader", f"{SECRET}x")
    line = refusal(tmp_path, wrong, "backfill", status=UNREACHABLE)
    assert line == "the source refuses the user or the password of mongo.uri"


def test_no_password_for_the_source(guarded: MongoServer, settings: Settings, tmp_path: Path) -> None:
    mongo = MongoSettings(uri=f"mongodb://127.0.0.1:{guarded.port}/?replicaSet=rs0", database="guarded")
    line = refusal(tmp_path, replace(settings, mongo=mongo), "backfill", status=UNREACHABLE)
    assert line.startswith("the source denies a right: ")


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
            "the target's user outsider is not a member of scheduler_migration; an administrator calls:"
            ' GRANT "scheduler_migration" TO "outsider"'
        )
    with psycopg.connect(scheduler_dsn) as connection:
        connection.execute("GRANT scheduler_migration TO outsider")
    assert call(tmp_path, wrong, "backfill")[0] == 0


def test_no_replica_set(settings: Settings, scheduler_dsn: str, tmp_path: Path) -> None:
    with MongoServer.start(fast=True, replica_set=None) as plain, MongoClient[Any](plain.uri) as client:
        client["plain"]["runs"].insert_one(run_of(_id="r1"))
        alone = replace(settings, mongo=MongoSettings(uri=plain.uri, database="plain", timeout_ms=5000))
        line = refusal(tmp_path, alone, "backfill", status=USAGE)
        assert line.startswith("the source is not a replica set")
        assert "make it one" in line
        assert number(scheduler_dsn, "SELECT count(*) FROM migration.plans") == 0
        assert call(tmp_path, alone, "backfill", "--no-position")[0] == 0
        assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs") == 1


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
    status, out, _ = call(tmp_path, settings, "verify")
    assert status == UNVERIFIED
    assert "the source holds no document of this profile" in out
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs") == 0


def test_a_target_database_that_does_not_exist(settings: Settings, tmp_path: Path) -> None:
    dsn = str(settings.postgres.dsn).rpartition("/")[0] + "/no_such"
    wrong = replace(settings, postgres=PostgresSettings(dsn=dsn))
    line = refusal(tmp_path, wrong, "backfill", status=UNREACHABLE)
    assert 'database "no_such" does not exist; create the database first' in line


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[source]\nprofile = "stellaop"\n', "unknown source profile 'stellaop'; did you mean stellaops?"),
        ("[copy]\nworker = 1\n", "unknown key copy.worker in "),
        ("[copi]\nworkers = 1\n", "unknown section [copi] in "),
        ('[copy]\nworkers = "many"\n', "setting at copy.workers: expected `int`, got `str`; looked in "),
        ("[copy\n", "is not TOML: "),
    ],
)
def test_a_wrong_configuration(text: str, sentence: str, settings: Settings, tmp_path: Path) -> None:
    config = tmp_path / "wrong.toml"
    config.write_text(text)
    environment = {
        "MIGRATOR_MONGO__URI": str(settings.mongo.uri),
        "MIGRATOR_MONGO__DATABASE": str(settings.mongo.database),
        "MIGRATOR_POSTGRES__DSN": str(settings.postgres.dsn),
    }
    status, out, err = run("backfill", "--config", str(config), environment=environment)
    assert (status, out) == (USAGE, "")
    (line,) = err.splitlines()
    assert sentence in line
    status, _, err = run("backfill", "--config", str(tmp_path / "absent.toml"))
    assert (status, "no configuration file" in err) == (USAGE, True)


@pytest.mark.parametrize("command", ["backfill", "parity", "plan", "inspect"])
def test_an_unknown_collection(command: str, settings: Settings, tmp_path: Path) -> None:
    assert call(tmp_path, settings, "backfill")[0] == 0
    for words in ((command, "--only", "rnus"), ("quarantine", "list", "--collection", "rnus")):
        line = refusal(tmp_path, settings, *words, status=USAGE)
        assert line.startswith("unknown collection rnus; profile stellaops has: schedules, ")


@pytest.mark.parametrize("command", COMPARING)
def test_a_schema_that_was_never_migrated(command: str, settings: Settings, postgres_dsn: str, tmp_path: Path) -> None:
    empty = replace(settings, postgres=PostgresSettings(dsn=postgres_dsn))
    line = refusal(tmp_path, empty, command, status=USAGE)
    assert re.fullmatch(r"the target is not migrated \(.+\): call migrator schema upgrade first", line)
    assert not (tmp_path / "reports").exists() or not any((tmp_path / "reports").iterdir())


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
    assert "1 documents are in quarantine: migrator quarantine list" in out
    assert [row[1:4] for row in quarantine(scheduler_dsn)] == [("odd", "unknown-value", "state")]
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs") == 1
