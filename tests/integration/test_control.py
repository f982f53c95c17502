"""``migrator control``: what is set while a copy, a parity check, a tail or a cutover runs."""

import json
import re
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pymongo import MongoClient
from pymongo.database import Database

from migrator import fault_points
from migrator.config import HookSettings, MongoSettings, Settings, SourceSettings
from migrator.connections.postgres import open_target
from migrator.cutover import config_file, fence, rollback
from migrator.cutover.gates import GateOptions
from migrator.cutover.status import cutover_status
from migrator.errors import DeniedError, RefusedError, UsageError
from migrator.parity.check import check_parity
from migrator.parity.recorded_check import check_and_record
from migrator.pipeline import control, hooks, throttle
from migrator.pipeline.backfill import backfill
from migrator.pipeline.executors import SPARE_JOBS
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import SourceSessions
from migrator.pipeline.source_load import replication_lag, source_load
from migrator.pipeline.tail.loop import Tail
from migrator.schema.decisions import Approval
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.copying import number, run, run_of, settings_for, write_config
from tests.cutting_over import Scene, gate, own_scene

ANNA = Approval("anna", "nightly batch")
DOCUMENTS = 20
PENDING = "SELECT count(*) FROM migration.chunks WHERE state = 'pending'"
AT_A_TIME = 1 + SPARE_JOBS

Listener = Callable[[str], None]


@pytest.fixture
def settings(mongo_database: Database[Any], scheduler_dsn: str) -> Settings:
    mongo_database["runs"].insert_many([run_of(_id=f"r{one:02}") for one in range(DOCUMENTS)])
    return settings_for(mongo_database, scheduler_dsn, chunk=2)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is set be read at each look, and nothing wait for long."""
    for place in (control, throttle):
        monkeypatch.setattr(place, "READ_EVERY_S", 0.001)
    monkeypatch.setattr(throttle, "LONGEST_S", 0.001)


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Callable[[Listener], None]:
    """Name what is called at each named point of this process."""
    return lambda listener: monkeypatch.setattr(fault_points, "_listen", listener)


def put(settings: Settings, name: str, value: float | None = None) -> None:
    with open_target(settings, autocommit=True) as target:
        control.put(target, {name: value}, ANNA)


def remove(settings: Settings, name: str) -> None:
    with open_target(settings, autocommit=True) as target:
        assert control.remove(target, [name], ANNA) == [name]


def test_a_copy_is_paused_while_it_runs_and_resumed(
    settings: Settings, scheduler_dsn: str, listening: Callable[[Listener], None], capsys: pytest.CaptureFixture[str]
) -> None:
    waited: list[int] = []

    def passed(point: str) -> None:
        if point == fault_points.AFTER_CHUNKS_SUBMITTED:
            put(settings, control.PAUSE)
        if point == fault_points.THROTTLED:
            waited.append(number(scheduler_dsn, PENDING))
            if waited[-1] == DOCUMENTS / 2 - AT_A_TIME:  # what was submitted has ended
                remove(settings, control.PAUSE)

    listening(passed)
    done = backfill(settings, Scope())
    assert (done.complete, done.documents) == (True, DOCUMENTS)
    assert min(waited) == DOCUMENTS / 2 - AT_A_TIME
    assert "waiting: paused by anna since " in capsys.readouterr().err


def test_a_paused_copy_can_be_interrupted_and_is_finished_later(
    settings: Settings, scheduler_dsn: str, listening: Callable[[Listener], None]
) -> None:
    def passed(point: str) -> None:
        if point == fault_points.THROTTLED:
            raise KeyboardInterrupt

    put(settings, control.PAUSE)
    listening(passed)
    assert backfill(settings, Scope()).complete is False
    assert number(scheduler_dsn, PENDING) == DOCUMENTS / 2
    listening(lambda _: None)
    remove(settings, control.PAUSE)
    assert backfill(settings, Scope()).documents == DOCUMENTS


def test_parity_check_and_tail_wait_too_and_a_check_under_the_fence_does_not(
    settings: Settings,
    mongo_database: Database[Any],
    listening: Callable[[Listener], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    backfill(settings, Scope())
    passed: list[str] = []

    def resume(point: str) -> None:
        if point in (fault_points.THROTTLED, fault_points.PAUSED):
            passed.append(point)
            remove(settings, control.PAUSE)

    listening(resume)
    put(settings, control.PAUSE)
    assert not check_parity(settings, Scope(), throttled=False).differs
    assert passed == []
    assert not check_parity(settings, Scope()).differs
    assert passed == [fault_points.THROTTLED]
    put(settings, control.PAUSE)
    mongo_database["runs"].insert_one(run_of(_id="later"))
    with Tail(settings, can_be_paused=True) as tail:
        assert tail.run("caught-up").written == 1
    assert passed == [fault_points.THROTTLED, fault_points.PAUSED]
    assert "the oplog keeps all changes from here until it is full" in capsys.readouterr().err


def test_the_commands_say_what_is_in_force_and_record_who_and_why(
    settings: Settings, scheduler_dsn: str, tmp_path: Path
) -> None:
    config = write_config(tmp_path, settings)
    who = ("--who", "anna", "--reason", "nightly batch")

    def call(*arguments: str) -> tuple[int, list[str]]:
        status, out, err = run(*arguments, "--config", str(config), cwd=tmp_path)
        assert "Traceback" not in err
        return status, (out or err).splitlines()

    assert call("control", "show")[1] == [
        "not paused",
        "max_rate: no limit, of the configuration",
        "max_replication_lag: no limit, of the configuration",
        "max_source_load: no limit, of the configuration",
        "cutover not postponed",
    ]
    assert call("control", "pause", "--dry-run", *who)[1] == ["would set pause; nothing was written"]
    (tmp_path / "away").mkdir()
    away = write_config(
        tmp_path / "away", msgspec.structs.replace(settings, mongo=MongoSettings(uri="mongodb://no.example/x"))
    )
    assert run("control", "set", "max_rate=1", "--config", str(away), cwd=tmp_path)[0] == 0  # the source is not asked
    status, said = call("control", "set", "max_rate=500", "max_source_load=9000", *who)
    assert (status, said[1].partition(" since ")[0]) == (0, "max_rate: 500 documents a second, set by anna")
    status, said = call("control", "set", "max_replication_lag=10s", *who)
    assert (status, said) == (
        2,
        ["migrator: copy.max_replication_lag cannot be measured: the replica set rs0 has no secondary that answers"],
    )
    assert call("control", "set", "max_rat=1")[1] == ["migrator: unknown limit max_rat; did you mean max_rate?"]
    assert call("control", "set", "max_replication_lag=10")[0] == 2
    assert call("control", "pause", *who)[1][0].startswith("paused by anna since ")
    found = call("status")[1]
    assert found[0].startswith("max_rate: 500 documents a second, set by anna since ")
    assert found[1].startswith("max_source_load: 9,000 active clients and queued operations, set by anna since ")
    assert found[2].startswith("PAUSED by anna since ")
    assert found[2].endswith(" (nightly batch): migrator control resume ends it")
    assert call("control", "resume")[1][0] == "not paused"
    shown = json.loads("\n".join(call("control", "clear", "--json")[1]))
    assert shown == {
        "limits": {name: {"set": None, "value": 0.0} for name in control.LIMITS},
        "pause": None,
        "postpone_cutover": None,
    }
    assert number(scheduler_dsn, "SELECT count(*) FROM migration.decisions WHERE kind = 'control'") == 7


def test_a_limit_that_cannot_be_measured_is_refused_before_anything_is_written(
    settings: Settings, scheduler_dsn: str
) -> None:
    with open_target(settings, autocommit=True) as target:
        control.put(target, {"max_replication_lag": 10.0}, ANNA)
    with pytest.raises(RefusedError, match="has no secondary that answers"):
        backfill(settings, Scope())
    assert number(scheduler_dsn, "SELECT count(*) FROM migration.plans") == 0


TELL = """
import pathlib, sys
with pathlib.Path(sys.argv[1]).open("a") as file:
    file.write(sys.stdin.read() + chr(10))
if sys.argv[2:]:
    sys.exit(sys.argv[2])
"""
"""Appends what it reads to a file, and fails if it is given a reason."""


def with_hooks(settings: Settings, commands: dict[str, list[str]]) -> Settings:
    return msgspec.structs.replace(settings, hooks=msgspec.structs.replace(HookSettings(), **commands))


def heard(file: Path) -> list[str]:
    """Return the points at which hooks were called."""
    return [json.loads(line)["point"] for line in file.read_text().splitlines()]


def assert_nothing_was_cut_over(scene: Scene) -> None:
    assert config_file.named_backend(scene.config) == "mongo"
    assert not fence.is_source_fenced(scene.database, "write-block", ())
    found = cutover_status(scene.settings).cutover
    assert found is not None
    assert found.state == "aborted"


def test_hooks_of_a_copy_and_a_parity_check(settings: Settings, scheduler_dsn: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    tell = [sys.executable, "-c", TELL, str(told)]
    refusing = with_hooks(settings, {"backfill_started": [*tell, "not now"], "backfill_ended": tell})
    with pytest.raises(
        RefusedError, match=r"^the hook backfill_started ended with status 1 \(not now\): nothing was begun$"
    ):
        backfill(refusing, Scope())
    assert number(scheduler_dsn, "SELECT count(*) FROM migration.plans") == 0
    assert heard(told) == ["backfill_started", "backfill_ended"], "what the first one began, the second one ends"
    told.unlink()
    calling = with_hooks(settings, dict.fromkeys(hooks.commands(HookSettings()), tell))
    assert backfill(calling, Scope(), dry_run=True).documents == DOCUMENTS
    assert not told.exists()
    assert backfill(calling, Scope()).complete
    check_and_record(calling)
    assert heard(told) == ["backfill_started", "backfill_ended", "parity_ended"]
    states = [json.loads(line)["state"] for line in told.read_text().splitlines()]
    assert (states[-2]["documents"], states[-2]["complete"]) == (DOCUMENTS, True)
    assert states[-1] == {"clean": True, "complete": True, "documents": DOCUMENTS, "quarantined": 0}


def test_a_refused_copy_calls_no_hook_and_a_failed_one_both(
    settings: Settings, scheduler_dsn: str, tmp_path: Path, listening: Callable[[Listener], None]
) -> None:
    told = tmp_path / "told"
    calling = with_hooks(
        settings, {point: [sys.executable, "-c", TELL, str(told)] for point in hooks.commands(HookSettings())}
    )
    with pytest.raises(UsageError, match="unknown collection nothing"):
        backfill(calling, Scope(only=("nothing",)))
    assert not told.exists(), "nothing was begun"

    def fail(point: str) -> None:
        if point == fault_points.AFTER_PLAN_STORED:
            raise RuntimeError("planted")

    listening(fail)
    with pytest.raises(RuntimeError, match="planted"):
        backfill(calling, Scope())
    assert heard(told) == ["backfill_started", "backfill_ended"]
    state = json.loads(told.read_text().splitlines()[-1])["state"]
    assert state == {"complete": False, "error": "RuntimeError"}
    told.unlink()
    with pytest.raises(RefusedError, match="was begun"):
        backfill(calling, Scope(only=("schedules",)))
    assert not told.exists(), "the unfinished copy is not continued"
    listening(lambda _: None)
    assert backfill(calling, Scope()).complete
    assert heard(told) == ["backfill_started", "backfill_ended"]
    assert number(scheduler_dsn, "SELECT count(*) FROM migration.plans") == 1


def test_the_load_of_mongodb_needs_a_right_that_the_refusal_names(auth_server: MongoServer) -> None:
    name = fresh_name()
    with MongoClient[dict[str, Any]](auth_server.uri) as client:
        client.admin.command("createUser", name, pwd="secret", roles=[{"role": "read", "db": name}])
        uri = f"mongodb://{name}:secret@127.0.0.1:{auth_server.port}/?authSource=admin&replicaSet=rs0"
        settings = Settings(mongo=MongoSettings(uri=uri, database=name))
        with closing(SourceSessions(settings)) as sessions:
            for measure, setting in ((source_load, "max_source_load"), (replication_lag, "max_replication_lag")):
                with pytest.raises(DeniedError, match=rf"^copy\.{setting} cannot be measured: .*{control_role(name)}"):
                    measure(sessions)
            client.admin.command("grantRolesToUser", name, roles=["clusterMonitor"])
            assert source_load(sessions) >= 0  # it is not denied any more
        client.admin.command("dropUser", name)


def control_role(name: str) -> str:
    """Return the command that the refusal names, as a pattern."""
    command = {"grantRolesToUser": name, "roles": [{"role": "clusterMonitor", "db": "admin"}]}
    return re.escape(f'db.getSiblingDB("admin").runCommand({json.dumps(command)})')


def test_the_load_of_postgresql_is_its_active_sessions(scheduler_dsn: str) -> None:
    role = fresh_name()
    settings = Settings(source=SourceSettings(profile="crawler", uri=scheduler_dsn))
    with psycopg.connect(scheduler_dsn, autocommit=True) as admin, closing(psycopg.connect(scheduler_dsn)) as working:
        with closing(SourceSessions(settings)) as sessions:
            working.pgconn.send_query(b"SELECT pg_sleep(600)")
            assert source_load(sessions) >= 1
            with pytest.raises(RefusedError, match=r"^copy\.max_replication_lag cannot be measured: .* no standby$"):
                replication_lag(sessions)
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'".encode())
        dsn = make_conninfo(scheduler_dsn, user=role, password="secret")
        other = Settings(source=SourceSettings(profile="crawler", uri=dsn))
        try:
            with (
                closing(SourceSessions(other)) as sessions,
                pytest.raises(DeniedError, match=rf"administrator call GRANT pg_read_all_stats TO {role}$"),
            ):
                source_load(sessions)
        finally:
            admin.execute(f"DROP ROLE {role}".encode())


def test_a_postponed_cutover_stops_no_writer_and_continues_when_it_is_allowed(
    auth_server: MongoServer,
    scheduler_dsn: str,
    listening: Callable[[Listener], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with own_scene(auth_server, scheduler_dsn) as scene:
        points: list[str] = []

        def interrupt(point: str) -> None:
            if point == fault_points.CUTOVER_POSTPONED:
                raise KeyboardInterrupt

        def pause(point: str) -> None:
            if point == fault_points.CUTOVER_POSTPONED:
                put(scene.settings, control.PAUSE)
                remove(scene.settings, control.POSTPONE)

        def passed(point: str) -> None:
            points.append(point)
            if point == f"{fault_points.CUTOVER_PREFIX}preflight.done":
                put(scene.settings, control.POSTPONE)  # once more, when the first steps are done
            if point == fault_points.CUTOVER_POSTPONED:
                with scene.foreign() as foreign:
                    foreign["runs"].insert_one(run_of(_id=f"late-{len(points)}"))
                remove(scene.settings, control.POSTPONE)

        put(scene.settings, control.POSTPONE)
        held, words = gate(scene.settings, scene.conditions, "control")
        assert (held, words.partition(" since ")[0]) == (None, "postponed by anna")
        listening(interrupt)
        with pytest.raises(KeyboardInterrupt):
            scene.switch()
        listening(pause)
        with pytest.raises(RefusedError, match="the cutover is refused: control: paused by anna"):
            scene.switch()  # the gates are evaluated again
        assert cutover_status(scene.settings).cutover is None

        remove(scene.settings, control.PAUSE)
        put(scene.settings, control.POSTPONE)
        listening(passed)
        done = scene.switch()
        assert done.cutover.state == "cut-over"
        assert done.compared >= 2  # what was written while it waited
        steps = [one.removeprefix(fault_points.CUTOVER_PREFIX) for one in points]
        assert steps.count(fault_points.CUTOVER_POSTPONED) == 2
        assert steps.index(fault_points.CUTOVER_POSTPONED) < steps.index("preflight.begun")
        last = len(steps) - 1 - steps[::-1].index(fault_points.CUTOVER_POSTPONED)
        assert steps.index("catch-up.begun") < last < steps.index("fence.begun")
        assert "waiting: the cutover is postponed by anna since " in capsys.readouterr().err


def test_hooks_of_a_cutover_and_a_rollback(auth_server: MongoServer, scheduler_dsn: str) -> None:
    with own_scene(auth_server, scheduler_dsn) as scene:
        told = scene.folder / "told"
        tell = [sys.executable, "-c", TELL, str(told)]
        every = dict.fromkeys(hooks.commands(HookSettings()), tell)
        scene.settings = with_hooks(scene.settings, every | {"cutover_before_fence": [*tell, "no"]})
        with pytest.raises(RefusedError, match=r"^the hook cutover_before_fence ended with status 1 \(no\): nothing"):
            scene.switch()
        assert heard(told) == ["cutover_before_fence", "cutover_failed"]
        assert_nothing_was_cut_over(scene)

        scene.settings = with_hooks(scene.settings, every | {"cutover_fenced": [*tell, "no"]})
        done = scene.switch()
        assert heard(told)[2:] == ["cutover_before_fence", "cutover_fenced", "cutover_opened", "cutover_ended"]
        last = json.loads(told.read_text().splitlines()[-1])
        assert (last["id"], last["state"]["cutover"]) == (str(done.cutover.id), "cut-over")
        assert last["state"]["steps"]["point-of-no-return"] == "done"
        assert done.cutover.detail["hook_cutover_fenced"] == "ended with status 1 (no)"
        rollback.run(scene.settings, scene.config, 1)
        assert heard(told)[-1] == "rollback_ended"


def test_a_paused_migration_is_not_cut_over_and_a_cutover_under_way_is_not_paused(
    settings: Settings, scheduler_dsn: str, tmp_path: Path
) -> None:
    config = write_config(tmp_path, settings)
    put(settings, control.PAUSE)
    held, words = gate(settings, GateOptions(config=config), "control")
    assert held is False
    assert words.endswith("(nightly batch): call migrator control resume")
    with psycopg.connect(scheduler_dsn) as connection:
        connection.execute(
            "INSERT INTO migration.cutovers (id, environment, state, config_path, backup_path, tool_version)"
            " VALUES (gen_random_uuid(), 'here', 'running', '', '', '')"
        )
    status, _, err = run("control", "pause", "--config", str(config), cwd=tmp_path)
    assert (status, err) == (
        2,
        "migrator: a cutover is under way, or was interrupted: migrator cutover status names what to call\n",
    )
