"""What issue 5 lists as bad input: each is refused with a clear word before anything happens, or survived."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg import sql
from pymongo.database import Database
from pymongo.errors import OperationFailure

from migrator import signals
from migrator.config import Settings, load_settings
from migrator.cutover import clocks, configfile, epoch, fence, forward, journal, outbox, rollback, window
from migrator.cutover.gates import Conditions, gates
from migrator.cutover.outlook import outlook
from migrator.embedded.mongo import MongoServer
from migrator.embedded.postgres import PostgresServer
from migrator.errors import MigratorError, RefusedError, SwitchedError
from migrator.parity.recorded import compared, is_clean
from migrator.pipeline.sessions import Sessions, close_kept
from migrator.store import open_scheduler_store
from migrator.store.postgres.connection import open_target
from migrator.store.postgres.migrate import upgrade
from tests.conftest import NEWEST, Clusters, fresh_name
from tests.copying import run
from tests.cutting_over import APPLICATION, Scene, scene
from tests.gates import held
from tests.ordinary_user import hand_over, ordinary_folder, ordinary_user

UNREADY, USAGE = 4, 2
HOUR = 3_600.0


@pytest.fixture(scope="module")
def server() -> Iterator[MongoServer]:
    with MongoServer.start(auth=True, fast=True) as started:
        yield started


@pytest.fixture(scope="module")
def shared(server: MongoServer, clusters: Clusters) -> Iterator[Scene]:
    """One for all tests that end as they began: nothing was switched."""
    cluster = clusters.get(NEWEST)
    dsn = cluster.scheduler()
    with ordinary_folder() as folder, scene(server, fresh_name(), dsn, folder) as made:
        hand_over(made.config)
        made.settings = with_cutover(made.settings, max_lag_s=600)  # the tests go on for longer than 30 s
        made.ready()
        yield made
    cluster.drop(dsn)


@pytest.fixture
def ready(shared: Scene) -> Iterator[Scene]:
    yield shared
    close_kept()
    assert configfile.backend_in(shared.config) == "mongo"
    assert not fence.is_engaged(shared.database, "write-block", ())
    with shared.foreign() as foreign:
        foreign.elsewhere.insert_one({})
    with open_target(shared.settings, autocommit=True) as target:
        assert not outbox.is_open(target)
        found = journal.newest(target)
        assert found is None or found.state == "aborted"
    assert [one.name for one in shared.folder.iterdir()] == ["config.toml"]
    open_scheduler_store(shared.settings).close()


@contextmanager
def own_scene(server: MongoServer, dsn: str) -> Iterator[Scene]:
    """One for a test that switches."""
    with ordinary_folder() as folder, scene(server, fresh_name(), dsn, folder, "its_own") as made:
        hand_over(made.config)
        made.ready()
        yield made


def with_cutover(settings: Settings, **changes: object) -> Settings:
    return msgspec.structs.replace(settings, cutover=msgspec.structs.replace(settings.cutover, **changes))


def with_mongo(settings: Settings, **changes: object) -> Settings:
    return msgspec.structs.replace(settings, mongo=msgspec.structs.replace(settings.mongo, **changes))


def red(settings: Settings, conditions: Conditions) -> dict[str, str]:
    """Return the gates that hold up the switch, and why; a switch is refused for just these."""
    sessions = Sessions(settings)
    try:
        found = {one.name: one.words for one in gates(sessions, conditions) if one.passed is False}
    finally:
        sessions.close()
    if found:
        with pytest.raises(RefusedError, match="the switch is not made: ") as refused:
            forward.run(settings, conditions)
        assert all(f"{name}: " in str(refused.value) for name in found)
    return found


def gate(settings: Settings, conditions: Conditions, name: str) -> tuple[bool | None, str]:
    sessions = Sessions(settings)
    try:
        return next((one.passed, one.words) for one in gates(sessions, conditions) if one.name == name)
    finally:
        sessions.close()


def test_nothing_is_red_where_nothing_is_wrong(ready: Scene) -> None:
    assert red(ready.settings, ready.conditions) == {}


def test_no_replica_set(ready: Scene) -> None:
    with MongoServer.start(auth=True, fast=True, replica_set=None) as plain:
        settings = with_mongo(ready.settings, uri=plain.uri)
        found = red(settings, ready.conditions)
        assert found["replica set"].startswith("the source is no replica set, so nobody can follow it")
        assert "has no time that its changes could be followed from" in found["tail"]
        assert not outlook(settings, ready.config, quarantined=0).ready
        uri = {"MIGRATOR_MONGO__URI": plain.uri}
        status, out, said = run("cutover", "plan", "--config", str(ready.config), environment=uri)
        assert (status, "NO  replica set: the source is no replica set" in out) == (UNREADY, True), said
        status, out, said = run("tail", "--until-caught-up", "--config", str(ready.config), environment=uri)
        assert (status, out) == (USAGE, ""), said
        assert "replica set" in said


def fill_history(database: Database[Any], until: Callable[[], bool]) -> None:
    while not until():
        database["filler"].insert_many([{"blob": "x" * 500_000} for _ in range(10)])


def test_a_history_that_is_too_short_for_the_switch(scheduler_dsn: str, tmp_path: Path) -> None:
    """The oplog of a megabyte: behind the tail, too small for a switch, behind the last comparison."""
    parameters = {"minOplogTruncationPoints": "1"}
    with (
        MongoServer.start(auth=True, fast=True, oplog_mb=1, parameters=parameters) as short,
        scene(short, fresh_name(), scheduler_dsn, tmp_path) as ready,
    ):
        ready.ready()
        assert gate(ready.settings, ready.conditions, "history")[0] is True
        oplog = ready.database.client.local["oplog.rs"]

        def lost() -> bool:
            return "the tail stands before that" in gate(ready.settings, ready.conditions, "history")[1]

        fill_history(ready.database.client["elsewhere"], lost)
        assert "and the tail stands before that" in red(ready.settings, ready.conditions)["history"]
        status, _, said = run("tail", "--until-caught-up", "--config", str(ready.config))
        assert status == 0, said
        assert "and a switch may need 60 s: enlarge the oplog" in red(ready.settings, ready.conditions)["history"]
        patient = with_cutover(ready.settings, max_lag_s=1, max_pause_s=1)
        oldest = oplog.find_one(sort=[("$natural", 1)])["ts"].time  # type: ignore[index] # never empty
        while time.time() < oldest + 3:
            ready.database.client["elsewhere"].command("ping")
        ready.database.client["elsewhere"]["filler"].insert_one({})
        with psycopg.connect(ready.dsn) as connection:
            connection.execute("UPDATE migration.comparisons SET result = result || '{\"seconds\": 0.5}'")
        passed, words = gate(patient, ready.conditions, "history")
        assert (passed, "everything is compared behind the fence" in words) == (True, True), words
        with psycopg.connect(ready.dsn) as connection:
            connection.execute("UPDATE migration.comparisons SET result = result || '{\"seconds\": 90}'")
        assert "which took 90 s: call migrator cutover compare" in red(patient, ready.conditions)["history"]


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
    [("file", 0o400, "cannot be written: make it"), ("folder", 0o500, "so the file cannot be replaced whole")],
)
def test_a_configuration_that_cannot_be_written(place: str, mode: int, words: str, ready: Scene) -> None:
    where = ready.config if place == "file" else ready.folder
    before = where.stat().st_mode
    with ordinary_user():
        assert "configuration" not in red(ready.settings, ready.conditions)
        where.chmod(mode)
        assert words in red(ready.settings, ready.conditions)["configuration"]
        assert not outlook(ready.settings, ready.config, quarantined=ready.quarantined).ready
        where.chmod(before)


def test_something_else_in_the_place_of_the_backup(ready: Scene) -> None:
    sessions = Sessions(ready.settings)
    backup = configfile.kept_as(ready.config, "cutover", epoch.following(sessions))
    sessions.close()
    backup.mkdir()
    assert f"{backup} is in the way" in red(ready.settings, ready.conditions)["configuration"]
    backup.rmdir()


def test_no_configuration_file(ready: Scene) -> None:
    there = ready.config.read_text()
    ready.config.unlink()
    with pytest.raises(MigratorError, match="no configuration file"):
        ready.switch()
    with ordinary_user():
        ready.config.write_text(there)


@pytest.mark.proves("4-X6")
def test_a_configuration_that_becomes_read_only_behind_the_return(
    server: MongoServer, scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may write on either side until it is mended; then the same call finishes."""
    real = epoch.close_source
    with own_scene(server, scheduler_dsn) as ready:

        def locked(sessions: Sessions, number: int) -> None:
            real(sessions, number)
            ready.folder.chmod(0o500)

        monkeypatch.setattr(epoch, "close_source", locked)
        with ordinary_user():
            for _ in range(2):
                with pytest.raises(MigratorError, match="to name postgres: Permission denied; mend it"):
                    ready.switch()
                assert configfile.backend_in(ready.config) == "mongo"
                assert fence.is_engaged(ready.database, "write-block", ())
                with pytest.raises(SwitchedError):
                    open_scheduler_store(ready.settings)
                with pytest.raises(RefusedError, match="point of no return is passed: call cutover run again"):
                    forward.abort(ready.settings)
            monkeypatch.undo()
            ready.folder.chmod(0o700)
        done = ready.switch()
        assert (done.resumed, done.cutover.state) == (True, "switched")
        store = open_scheduler_store(load_settings(str(ready.config)))
        assert store.backend == "postgres"
        store.close()


def test_two_switches_at_once(server: MongoServer, scheduler_dsn: str) -> None:
    with own_scene(server, scheduler_dsn) as ready:
        before = (f"{signals.CUTOVER}fence.done", ready.folder)
        with held(ready.config, *before, command="cutover run") as first:
            status, out, said = run("cutover", "run", "--config", str(ready.config))
            assert (status, out) == (USAGE, "")
            assert said == "migrator: another cutover, or rollback, of this target is running\n"
            for other in (
                lambda: forward.abort(ready.settings),
                lambda: window.finish(ready.settings),
                lambda: rollback.run(ready.settings, ready.config, 1),
            ):
                with pytest.raises(RefusedError, match="another cutover, or rollback, of this target is running"):
                    other()
            first.go()
            status, out, said = first.end()
        assert status == 0, said
        assert out.startswith("switched to postgres as number 1\n")
        with pytest.raises(RefusedError, match="the switch was made already"):
            ready.switch()


def test_a_source_or_a_target_whose_clock_is_wrong(ready: Scene) -> None:
    """The target's is set wrong really, for this database; of the three clocks any one may be the odd one."""
    late = Conditions(config=ready.config, quarantined=ready.quarantined, clock=lambda: time.time() - HOUR)
    words = red(ready.settings, late)["clocks"]
    both = "the source is 3,600.0 s ahead of this machine, the target is 3,600.0 s ahead of this machine"
    assert words == f"{both} (at most 5 s apart)"
    name = sql.Identifier(ready.dsn.rpartition("/")[2])
    with psycopg.connect(ready.dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA skewed")
        connection.execute("GRANT USAGE ON SCHEMA skewed TO PUBLIC")
        connection.execute(
            "CREATE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS"
            " $$ SELECT pg_catalog.clock_timestamp() - interval '1 hour' $$"
        )
        connection.execute(sql.SQL("ALTER DATABASE {} SET search_path = skewed, pg_catalog").format(name))
        try:
            words = red(ready.settings, ready.conditions)["clocks"]
            assert words == "the target is 3,600.0 s behind this machine (at most 5 s apart)"
            words = red(ready.settings, late)["clocks"]
            assert words == "the source is 3,600.0 s ahead of this machine (at most 5 s apart)"
        finally:
            connection.execute(sql.SQL("ALTER DATABASE {} RESET search_path").format(name))
            connection.execute("DROP SCHEMA skewed CASCADE")
    assert gate(ready.settings, ready.conditions, "clocks")[0] is True


def test_how_far_a_clock_is_ahead_is_told_but_for_the_time_of_asking() -> None:
    assert clocks.ahead(10.0, 9.0, 11.0) == 0
    assert clocks.ahead(12.5, 9.0, 11.0) == 1.5
    assert clocks.ahead(6.0, 9.0, 11.0) == -3
    assert clocks.Ahead(source=2.0, target=-3.0).apart == 5
    assert clocks.Ahead(target=-3.0).apart == 3
    assert clocks.Ahead(target=0.04).words == "the target and this machine show the same time"


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
        fence.engage(ready.database, "write-block", (), timedelta(seconds=20))
        with ready.foreign(name) as past, ready.foreign() as other:
            past.elsewhere.insert_one({})  # the gate is right: this one does get past the fence
            with pytest.raises(OperationFailure):
                other.elsewhere.insert_one({})
    finally:
        fence.lift(ready.database, "write-block", ())
        admin.command("dropUser", name)
        admin.command("dropRole", name)


def test_a_target_that_takes_no_writes(server: MongoServer, ready: Scene, tmp_path: Path) -> None:
    name = sql.Identifier(ready.dsn.rpartition("/")[2])
    with psycopg.connect(ready.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
        words = red(ready.settings, ready.conditions)["target"]
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))
    assert words == "the target takes no writes: default_transaction_read_only is on"
    with PostgresServer.start(fast=True) as postgres:
        dsn = postgres.create_database("target")
        upgrade(dsn)
        with scene(server, fresh_name(), dsn, tmp_path, user="other") as other:
            other.ready()
            postgres.stop()
            (postgres._data / "standby.signal").touch()
            postgres.restart()
            words = red(other.settings, other.conditions)["target"]
            assert words == "the target is a standby, which takes no writes: postgres.dsn must lead to the primary"
            status, out, said = run("cutover", "plan", "--config", str(other.config))
            assert (status, "NO  target: the target is a standby" in out) == (UNREADY, True), said


def test_a_comparison_beside_it_is_still_clean(ready: Scene) -> None:
    assert is_clean(compared(ready.settings))
