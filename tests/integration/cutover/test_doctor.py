"""What the doctor finds: each finding is seen well, and seen red, on real servers."""

import json
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql
from pymongo import MongoClient
from pymongo.database import Database

from migrator.cli import cli
from migrator.config import MongoSettings, Settings
from migrator.cutover.doctor import examine
from migrator.errors import ConfigurationError
from migrator.exit_status import DIFFERENT, TOOL_FAILED, UNVERIFIED
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.copying import run, settings_for, uri_of, write_config
from tests.integration.test_postgres_pooler import pooled
from tests.store_mongo import opened

SOURCE = ("source", "server product", "read", "replica set", "history", "writers of the source", "reverse sync")
TARGET = ("connection", "target", "schema", "cutover", "roles", "writes", "writers of the target", "time zones")
NOWHERE = "postgresql://nobody:x@127.0.0.1:1/nothing"


@pytest.fixture
def settings(auth_server: MongoServer, scheduler_dsn: str, mongo_database: Database[Any]) -> Settings:
    found = settings_for(mongo_database, scheduler_dsn)
    return msgspec.structs.replace(found, mongo=MongoSettings(uri=auth_server.uri, database="scheduler"))


def found(settings: Settings, clock: Callable[[], float] = time.time) -> dict[str, tuple[bool | None, str]]:
    return {one.name: (one.passed, one.words) for one in examine(settings, clock).findings}


def with_dsn(settings: Settings, dsn: str) -> Settings:
    return msgspec.structs.replace(settings, postgres=msgspec.structs.replace(settings.postgres, dsn=dsn))


def test_all_is_well(settings: Settings, tmp_path: Path) -> None:
    status, out, said = run("doctor", "--config", str(write_config(tmp_path, settings)))
    assert status == 0, out + said
    lines = [line.partition(":")[0] for line in out.splitlines()]
    assert lines == [f"ok  {name}" for name in (*SOURCE, *TARGET, "clocks")]
    assert "ok  source: MongoDB 6.0.27, database scheduler\n" in out
    assert "ok  schema: scheduler at 0" in out
    assert settings.postgres.dsn is not None
    assert settings.postgres.dsn not in out
    assert settings.mongo.uri is not None
    assert settings.mongo.uri not in out


def test_one_side_is_not_there_and_the_other_is_told_of(settings: Settings, tmp_path: Path) -> None:
    config = write_config(tmp_path, with_dsn(settings, NOWHERE))
    called = CliRunner().invoke(cli, ["doctor", "--json", "--config", str(config)])
    document = json.loads(called.stdout)
    assert called.exit_code == TOOL_FAILED | UNVERIFIED
    assert document["unreachable"] == ["target"]
    assert [one["name"] for one in document["findings"]] == [*SOURCE, "target", "clocks"]
    away = msgspec.structs.replace(
        settings, mongo=MongoSettings(uri="mongodb://127.0.0.1:1/x", timeout=timedelta(milliseconds=100))
    )
    diagnosis = examine(away)
    assert diagnosis.unreachable == ("source",)
    assert [one.name for one in diagnosis.findings] == ["source", *TARGET, "clocks"]
    assert diagnosis.findings[-1].words.startswith("the target and this machine show the same time")
    nowhere = examine(with_dsn(away, NOWHERE))
    assert [one.name for one in nowhere.findings] == ["source", "target"]


def test_no_source_is_needed_and_a_wrong_setting_is_no_finding(settings: Settings) -> None:
    alone = msgspec.structs.replace(settings, mongo=MongoSettings())
    assert found(alone)["source"] == (True, "not configured ([mongo]): there is no source to copy")
    with pytest.raises(ConfigurationError, match=r"postgres\.dsn is not set"):
        examine(msgspec.structs.replace(alone, postgres=type(alone.postgres)()))


def test_a_source_that_asks_nobody_and_is_no_replica_set(settings: Settings) -> None:
    with MongoServer(fast=True, replica_set=None) as plain:
        one = found(msgspec.structs.replace(settings, mongo=MongoSettings(uri=plain.uri, database="x")))
    assert one["replica set"][0] is False
    passed, words = one["writers of the source"]
    assert passed is False
    assert words.startswith("the server requires no authentication, so the fence cannot stop any user: start")
    assert one["history"][0] is None


def test_rights_that_are_missing(auth_server: MongoServer, settings: Settings) -> None:
    name = fresh_name()
    with MongoClient[dict[str, Any]](auth_server.uri) as client:
        client.admin.command("createUser", name, pwd="x", roles=[{"role": "read", "db": "elsewhere"}])
        uri = f"mongodb://{name}:x@127.0.0.1:{auth_server.port}/?authSource=admin&replicaSet=rs0"
        one = found(msgspec.structs.replace(settings, mongo=MongoSettings(uri=uri, database="scheduler")))
        client.admin.command("dropUser", name)
    assert one["read"][0] is False
    assert one["read"][1].startswith("the source denies a right: ")
    assert one["history"] == (None, "not known: the tool's user may not read local.oplog.rs (role read on local)")
    assert "may not see the users" in one["writers of the source"][1]
    assert settings.postgres.dsn is not None
    with psycopg.connect(settings.postgres.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x'").format(sql.Identifier(name)))
        for schema in ("scheduler", "migration"):
            use = sql.SQL("GRANT USAGE ON SCHEMA {0} TO {1}; GRANT SELECT ON ALL TABLES IN SCHEMA {0} TO {1}")
            connection.execute(use.format(sql.Identifier(schema), sql.Identifier(name)))
        dsn = settings.postgres.dsn
        password = dsn.partition("//")[2].partition(":")[2].partition("@")[0]
        stranger = with_dsn(settings, dsn.replace(f"postgres:{password}", f"{name}:x"))
        one = found(stranger)
        refused = f"the target's user {name} is not a member of scheduler_migration; as an administrator run:"
        assert one["roles"] == (False, f'{refused} GRANT "scheduler_migration" TO "{name}"')
        assert one["writes"][0] is False
        connection.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(name)))


def test_a_target_without_the_schema(settings: Settings, postgres_dsn: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, with_dsn(settings, postgres_dsn))
    called = CliRunner().invoke(cli, ["doctor", "--config", str(config)])
    assert called.exit_code == DIFFERENT
    assert "NO  schema: scheduler at nothing, migration at nothing: call migrator schema upgrade\n" in called.stdout


def test_indexes_that_another_one_replaces_are_named_with_the_command(
    settings: Settings, mongo_database: Database[Any]
) -> None:
    own = msgspec.structs.replace(
        settings, mongo=MongoSettings(uri=uri_of(mongo_database), database=mongo_database.name)
    )
    schedules, triggers = mongo_database["schedules"], mongo_database["triggers"]
    schedules.create_index("handlerName")
    triggers.create_index(["tenantId", "nextFireAt"])
    assert "former indexes" not in found(own), "no index replaces them yet"
    with opened(mongo_database):
        pass
    before = {one.name: set(one.index_information()) for one in (schedules, triggers)}
    passed, words = found(own)["former indexes"]
    assert passed
    assert words == (
        "an earlier version created them, and another index replaces each; once no process of that version runs, drop"
        ' them in mongosh: db.schedules.dropIndex("handlerName_1"); db.triggers.dropIndex("tenantId_1_nextFireAt_1")'
    )
    assert before == {one.name: set(one.index_information()) for one in (schedules, triggers)}
    triggers.drop_index("tenantId_1_nextFireAt_1")
    assert "triggers" not in found(own)["former indexes"][1]
    schedules.drop_index("handlerName_1")
    assert "former indexes" not in found(own)
    schedules.create_index("handlerName", sparse=True)
    assert "former indexes" not in found(own), "an application's own"


def test_zones_that_nobody_knows_and_clocks_that_differ(settings: Settings) -> None:
    assert settings.postgres.dsn is not None
    with psycopg.connect(settings.postgres.dsn) as connection:
        connection.execute(
            "INSERT INTO scheduler.schedules (id, tenant_id, name, status, enabled)"
            " VALUES (gen_random_uuid(), 'a', 'n', 'scheduled', true)"
        )
        for zone in ("Europe/Berlin", "Mars/Base"):
            connection.execute(
                "INSERT INTO scheduler.triggers (id, tenant_id, schedule_id, kind, run_at, timezone, enabled)"
                " SELECT gen_random_uuid(), 'a', id, 'one_time', now(), %s, true FROM scheduler.schedules",
                (zone,),
            )
    one = found(settings, lambda: time.time() - 60)
    assert one["time zones"][0] is False
    assert one["time zones"][1].endswith(" does not know these time zones of triggers: Mars/Base")
    assert one["clocks"][0] is False


@pytest.mark.parametrize(("mode", "well"), [("transaction", False), ("session", True)])
def test_a_pooler_in_between(mode: str, well: bool, settings: Settings, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the test
    assert settings.postgres.dsn is not None
    with pooled(settings.postgres.dsn, mode, tmp_path) as dsn:
        passed, words = found(with_dsn(settings, dsn))["connection"]
    assert passed is well
    assert ("a pool in session mode lies between" in words) == well
