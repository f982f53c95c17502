"""With exactly the rights that the tutorial asks for, nothing fails: a missing right is told once, with its GRANT."""

import json
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg import sql
from pymongo import MongoClient

from migrator.config import MongoSettings, PostgresSettings, Settings
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from tests.conftest import as_new, fresh_name
from tests.copying import run, run_of, settings_for, write_config

UNVERIFIED = 4
PASSWORD = secrets.token_hex(8)


class Place(NamedTuple):
    """Settings of the user with the tutorial's rights, and the way to give it more."""

    settings: Settings
    user: str
    administer: Callable[[str], None]


@pytest.fixture
def guarded(auth_server: MongoServer) -> Iterator[MongoServer]:
    """MongoDB with authentication, with a user that has the role read on one database."""
    with MongoClient[Any](auth_server.uri) as client:
        client["guarded"]["runs"].insert_one(run_of(_id="r1"))
        client.admin.command("createUser", "reader", pwd=PASSWORD, roles=[{"role": "read", "db": "guarded"}])
        yield auth_server
        as_new(auth_server)


@pytest.fixture
def place(guarded: MongoServer, postgres_server: PostgresServer, scheduler_dsn: str) -> Iterator[Place]:
    user = f"copier_{fresh_name()}"
    database = scheduler_dsn.rpartition("/")[2]

    def administer(statement: str) -> None:
        with psycopg.connect(scheduler_dsn, autocommit=True) as admin:
            admin.execute(statement.encode())

    name = sql.Identifier(user)
    with psycopg.connect(scheduler_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(name, sql.Literal(PASSWORD)))
        admin.execute(sql.SQL("GRANT scheduler_migration TO {}").format(name))
    uri = f"mongodb://reader:{PASSWORD}@127.0.0.1:{guarded.port}/?replicaSet=rs0&authSource=admin"
    with MongoClient[Any](guarded.uri) as client:
        settings = settings_for(client["guarded"], scheduler_dsn)
    yield Place(
        Settings(
            source=settings.source,
            mongo=MongoSettings(uri=uri, database="guarded"),
            postgres=PostgresSettings(dsn=postgres_server.dsn(database, user=user, password=PASSWORD)),
            copy=settings.copy,
        ),
        user,
        administer,
    )
    with psycopg.connect(scheduler_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP ROLE {}").format(name))


def verified(folder: Path, settings: Settings, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Run the command; return its status, what it printed, and the result."""
    config = write_config(folder, settings)
    before = set((folder / "reports").glob("*/"))
    status, out, err = run(
        "verify", "--config", str(config), "--report-dir", str(folder / "reports"), *options, cwd=folder
    )
    assert "Traceback" not in err, err
    (made,) = {*(folder / "reports").glob("*/")} - before
    assert PASSWORD not in out + err + (made / "report.html").read_text()
    return status, out, json.loads((made / "result.json").read_text())


def of(result: dict[str, Any], status: str) -> dict[str, str]:
    return {
        one["id"]: one["outcome"]["grant"] for one in result["evidence"]["checks"] if one["outcome"]["status"] == status
    }


@pytest.fixture
def copied(place: Place, tmp_path: Path) -> Place:
    assert run("backfill", "--config", str(write_config(tmp_path, place.settings)), cwd=tmp_path)[0] == 0
    return place


def test_a_missing_right_is_not_verified_and_its_grant_mends_it(copied: Place, tmp_path: Path) -> None:
    """The statements are taken from what is printed, and called literally; afterwards every check is made."""
    status, out, result = verified(tmp_path, copied.settings)
    assert of(result, "failed") == {}, out
    assert [one["id"] for one in result["evidence"]["checks"] if one["errored"]] == [], out
    assert status == UNVERIFIED, out
    lacking = of(result, "unverified")
    assert len(lacking) > 20
    grants = set(lacking.values())
    assert grants == {
        f'GRANT "scheduler_service", "scheduler_dispatcher" TO "{copied.user}"',
        f'ALTER ROLE "{copied.user}" CREATEDB',
    }
    for grant in grants:
        assert out.count(grant) == 1, "said once"
        copied.administer(out[out.index(grant) :].splitlines()[0])
    status, out, result = verified(tmp_path, copied.settings)
    assert of(result, "unverified") == {}, out
    assert {*lacking} <= {*of(result, "passed")}
    assert status == 0, out


def test_so_is_a_right_to_write_scratch_databases_on_the_source(
    copied: Place, guarded: MongoServer, tmp_path: Path
) -> None:
    copied.administer(f'GRANT scheduler_service, scheduler_dispatcher TO "{copied.user}"')
    copied.administer(f'ALTER ROLE "{copied.user}" CREATEDB')
    options = ("--only", "cutover", "--scratch-on-source")
    status, out, result = verified(tmp_path, copied.settings, *options)
    ((check, grant),) = of(result, "unverified").items()
    assert (check, status) == ("cutover.rollback", UNVERIFIED), out
    assert of(result, "failed") == {}
    call_at_mongo(guarded, out[out.index(grant) :].splitlines()[0])
    status, out, result = verified(tmp_path, copied.settings, *options)
    assert "cutover.rollback" in of(result, "passed"), out
    with MongoClient[Any](guarded.uri) as client:
        assert "migrator" not in str(client.list_database_names()), "nothing is left"


def test_and_one_to_write_scratch_tenants_into_the_source(copied: Place, guarded: MongoServer, tmp_path: Path) -> None:
    options = ("--only", "workers", "--backend", "mongo", "--scratch-on-source")
    status, out, result = verified(tmp_path, copied.settings, *options)
    ((check, grant),) = of(result, "unverified").items()
    assert (check, status) == ("workers.heartbeats", UNVERIFIED), out
    call_at_mongo(guarded, out[out.index(grant) :].splitlines()[0])
    status, out, result = verified(tmp_path, copied.settings, *options)
    assert "workers.heartbeats" in of(result, "passed"), out


def test_without_any_right_everything_is_not_verified_and_nothing_is_faulty(
    copied: Place, guarded: MongoServer, tmp_path: Path
) -> None:
    with MongoClient[Any](guarded.uri) as client:
        client.admin.command("revokeRolesFromUser", "reader", roles=[{"role": "read", "db": "guarded"}])
    status, out, result = verified(tmp_path, copied.settings, "--no-behaviour")
    assert status == UNVERIFIED, out
    assert {one["errored"] for one in result["evidence"]["checks"]} == {False}, out
    assert out.count("denies a right: not authorized on guarded to execute command listCollections;") == 1, out
    copied.administer(f'REVOKE scheduler_migration FROM "{copied.user}"')
    status, out, result = verified(tmp_path, copied.settings, "--no-behaviour")
    assert status == UNVERIFIED, out
    assert {one["errored"] for one in result["evidence"]["checks"]} == {False}, out
    assert result["run"]["sides"][1]["server"].startswith("PostgreSQL ")
    grant = f'GRANT "scheduler_migration" TO "{copied.user}"'
    assert out.count(grant) == 1, out
    copied.administer(grant)
    assert run("status", "--config", str(write_config(tmp_path, copied.settings)), cwd=tmp_path)[0] == 0


def call_at_mongo(server: MongoServer, statement: str) -> None:
    """Call ``db.getSiblingDB(name).runCommand(command)`` as an administrator: there is no shell here."""
    found = re.fullmatch(r'db\.getSiblingDB\("(?P<name>\w+)"\)\.runCommand\((?P<command>\{.*\})\)', statement)
    assert found, statement
    with MongoClient[Any](server.uri) as client:
        client[found["name"]].command(json.loads(found["command"]))
