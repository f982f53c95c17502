"""Bad input of a cutover: each is refused with a clear message before anything happens, or survived."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from pymongo.errors import OperationFailure

from migrator.connections.postgres import open_target
from migrator.cutover import config_file, epoch, fence, journal, outbox, server_gates
from migrator.cutover.gates import GateOptions
from migrator.cutover.plan import cutover_plan
from migrator.errors import MigratorError, RefusedError
from migrator.parity.recorded_check import check_and_record, is_clean
from migrator.pipeline.sessions import Sessions, close_cached
from migrator.pipeline.tail.loop import Tail
from migrator.schema.revisions import upgrade
from migrator.store import open_scheduler_store
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from tests.conftest import NEWEST, Clusters, fresh_name
from tests.copying import run
from tests.cutting_over import APPLICATION, Scene, gate, red, scene, with_cutover, with_mongo
from tests.ordinary_user import hand_over, ordinary_folder, ordinary_user

UNREADY, USAGE = 4, 2
HOUR = 3_600.0


@pytest.fixture(scope="module")
def shared(auth_server: MongoServer, clusters: Clusters) -> Iterator[Scene]:
    """One for all tests that end as they began: nothing was switched."""
    cluster = clusters.get(NEWEST)
    dsn = cluster.scheduler()
    with ordinary_folder() as folder, scene(auth_server, fresh_name(), dsn, folder) as made:
        hand_over(made.config)
        made.settings = with_cutover(
            made.settings, max_lag=timedelta(minutes=10)
        )  # the tests go on for longer than 30 s
        made.ready()
        yield made
    cluster.drop(dsn)


@pytest.fixture
def ready(shared: Scene) -> Iterator[Scene]:
    yield shared
    close_cached()
    assert config_file.named_backend(shared.config) == "mongo"
    assert not fence.is_source_fenced(shared.database, "write-block", ())
    with shared.foreign() as foreign:
        foreign.elsewhere.insert_one({})
    with open_target(shared.settings, autocommit=True) as target:
        assert not outbox.is_open(target)
        found = journal.latest(target)
        assert found is None or found.state == "aborted"
    assert [one.name for one in shared.folder.iterdir()] == ["config.toml"]
    open_scheduler_store(shared.settings).close()


def test_nothing_is_red_where_nothing_is_wrong(ready: Scene) -> None:
    assert red(ready.settings, ready.conditions) == {}


def test_no_replica_set(ready: Scene) -> None:
    with MongoServer(auth=True, fast=True, replica_set=None) as plain:
        settings = with_mongo(ready.settings, uri=plain.uri)
        found = red(settings, ready.conditions)
        assert found["replica set"].startswith("the source is no replica set, so it has no change stream")
        assert "has no cluster time at which a change stream could begin" in found["tail"]
        assert not cutover_plan(settings, ready.config, quarantined=0).ready
        uri = {"MIGRATOR_MONGO__URI": plain.uri}
        status, out, said = run("cutover", "plan", "--config", str(ready.config), environment=uri)
        assert (status, "NO  replica set: the source is no replica set" in out) == (UNREADY, True), said
        with Tail(settings) as tail, pytest.raises(RefusedError, match="not a replica set"):
            tail.run("caught-up")


def test_a_history_that_may_not_be_read_is_no_hindrance(ready: Scene) -> None:
    settings = with_mongo(ready.settings, uri=ready.uri_of(APPLICATION))
    passed, words = gate(settings, ready.conditions, "history")
    assert (passed, "may not read local.oplog.rs" in words) == (None, True)


def test_rights_for_the_fence_are_missing(ready: Scene) -> None:
    settings = with_mongo(ready.settings, uri=ready.uri_of(APPLICATION))
    assert "may not see the users of the server" in red(settings, ready.conditions)["fence"]
    admin = ready.database.client.admin
    admin.command("createUser", "half", pwd="secret", roles=["readWriteAnyDatabase", "userAdminAnyDatabase"])
    try:
        words = red(with_mongo(ready.settings, uri=ready.uri_of("half")), ready.conditions)["fence"]
    finally:
        admin.command("dropUser", "half")
    assert words.startswith("the tool's user needs setUserWriteBlockMode and bypassWriteBlockingMode (role restore,")
    assert words.endswith("and serverStatus (role clusterMonitor), or grantRole, revokeRole and inprog")


def test_the_rights_that_the_runbook_names_are_enough(ready: Scene) -> None:
    """And each of them is needed, to be told so before anything happens."""
    admin, name = ready.database.client.admin, ready.database.name
    seeing = [
        {"resource": {"cluster": True}, "actions": ["viewUser", "killAnySession"]},
        {"resource": {"db": "", "collection": ""}, "actions": ["viewUser"]},
    ]
    roles = [
        {"role": "readWrite", "db": name},
        {"role": "read", "db": "local"},
        "restore",
        "clusterMonitor",
        "migratorFence",
    ]
    admin.command("createRole", "migratorFence", privileges=seeing, roles=[])
    admin.command("createUser", "tool", pwd="secret", roles=roles)
    settings = with_mongo(ready.settings, uri=ready.uri_of("tool"))
    settings = with_cutover(settings, tolerated_writers=["admin@admin"])
    try:
        assert red(settings, ready.conditions) == {}
        assert gate(settings, ready.conditions, "fence") == (True, f"write-block; stops {APPLICATION}@admin")
        assert gate(settings, ready.conditions, "history")[0] is True
        for role, words in (("restore", "(role restore,"), ("clusterMonitor", "serverStatus"), (roles[4], "viewUser")):
            admin.command("updateUser", "tool", roles=[one for one in roles if one != role])
            assert words in red(settings, ready.conditions)["fence"]
    finally:
        admin.command("dropUser", "tool")
        admin.command("dropRole", "migratorFence")


@pytest.mark.parametrize(
    ("place", "mode", "words"),
    [("file", 0o400, "cannot be written: make it"), ("folder", 0o500, "so the file cannot be replaced")],
)
def test_a_configuration_that_cannot_be_written(place: str, mode: int, words: str, ready: Scene) -> None:
    where = ready.config if place == "file" else ready.folder
    before = where.stat().st_mode
    with ordinary_user():
        assert "configuration" not in red(ready.settings, ready.conditions)
        where.chmod(mode)
        assert words in red(ready.settings, ready.conditions)["configuration"]
        assert not cutover_plan(ready.settings, ready.config, quarantined=ready.quarantined).ready
        where.chmod(before)


def test_something_else_in_the_place_of_the_backup(ready: Scene) -> None:
    sessions = Sessions(ready.settings)
    backup = config_file.kept_path(ready.config, "cutover", epoch.next_number(sessions))
    sessions.close()
    backup.mkdir()
    assert f"{backup} exists and is not a copy of" in red(ready.settings, ready.conditions)["configuration"]
    backup.rmdir()


def test_no_configuration_file(ready: Scene) -> None:
    there = ready.config.read_text()
    ready.config.unlink()
    with pytest.raises(MigratorError, match="no configuration file"):
        ready.switch()
    with ordinary_user():
        ready.config.write_text(there)


def test_a_source_or_a_target_whose_clock_is_wrong(ready: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the three clocks any one may be the odd one. No setting of the database changes what a session reads."""
    late = GateOptions(config=ready.config, quarantined=ready.quarantined, clock=lambda: time.time() - HOUR)
    words = red(ready.settings, late)["clocks"]
    both = "the source is 3,600.0 s ahead of this machine, the target is 3,600.0 s ahead of this machine"
    assert words == f"{both} (at most 5 s apart)"
    real = journal.database_time
    with monkeypatch.context() as patched:
        patched.setattr(server_gates, "database_time", lambda target: real(target) - timedelta(seconds=HOUR))
        words = red(ready.settings, ready.conditions)["clocks"]
        assert words == "the target is 3,600.0 s behind this machine (at most 5 s apart)"
        words = red(ready.settings, late)["clocks"]
        assert words == "the source is 3,600.0 s ahead of this machine (at most 5 s apart)"
    assert gate(ready.settings, ready.conditions, "clocks")[0] is True


def test_how_far_a_clock_is_ahead_is_told_but_for_the_time_of_asking() -> None:
    assert server_gates.clock_offset(10.0, 9.0, 11.0) == 0
    assert server_gates.clock_offset(12.5, 9.0, 11.0) == 1.5
    assert server_gates.clock_offset(6.0, 9.0, 11.0) == -3
    assert server_gates.ClockSkew(source=2.0, target=-3.0).apart == 5
    assert server_gates.ClockSkew(target=-3.0).apart == 3
    assert server_gates.ClockSkew(target=0.04).words == "the target and this machine show the same time"


@pytest.mark.proves("4-X5")
def test_a_writer_that_ignores_the_fence(ready: Scene) -> None:
    admin, name = ready.database.client.admin, f"past_{fresh_name()}"
    passing = {"resource": {"cluster": True}, "actions": ["bypassWriteBlockingMode"]}
    admin.command("createRole", name, privileges=[passing], roles=[{"role": "readWrite", "db": ready.database.name}])
    admin.command("createUser", name, pwd="secret", roles=[name])
    try:
        assert red(ready.settings, ready.conditions) == {"fence": f"write-block does not stop {name}@admin"}
        known = with_cutover(ready.settings, tolerated_writers=[f"{name}@admin"])
        assert red(known, ready.conditions) == {}
        fence.engage_source(ready.database, "write-block", (), timedelta(seconds=20))
        with ready.foreign(name) as past, ready.foreign() as other:
            past.elsewhere.insert_one({})  # the gate is right: this one does get past the fence
            with pytest.raises(OperationFailure):
                other.elsewhere.insert_one({})
    finally:
        fence.lift_source(ready.database, "write-block", ())
        admin.command("dropUser", name)
        admin.command("dropRole", name)


def test_a_target_that_takes_no_writes(auth_server: MongoServer, ready: Scene, tmp_path: Path) -> None:
    name = sql.Identifier(ready.dsn.rpartition("/")[2])
    with psycopg.connect(ready.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
        words = red(ready.settings, ready.conditions)["target"]
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))
    assert words == "the target accepts no writes: default_transaction_read_only is on"
    with PostgresServer() as postgres:  # not a fast one: its log is not enough for a standby
        dsn = postgres.create_database("target")
        upgrade(dsn)
        with scene(auth_server, fresh_name(), dsn, tmp_path, user="other") as other:
            postgres.stop()
            (postgres._data / "standby.signal").touch()
            postgres.restart()
            words = red(other.settings, other.conditions)["target"]
            assert words == "the target is a standby, which accepts no writes: postgres.dsn must name the primary"
            assert not cutover_plan(other.settings, other.config, quarantined=0).ready


def test_a_comparison_beside_it_is_still_clean(ready: Scene) -> None:
    assert is_clean(check_and_record(ready.settings))
