"""The undo of a cutover fails in part: every part is tried and named, and the command that settles it is tried."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

from migrator import fault_points
from migrator.cli import cli
from migrator.connections.postgres import open_target
from migrator.cutover import cutover, fence, outbox, procedure
from migrator.cutover.journal import latest
from migrator.cutover.undo import UndoError
from migrator.errors import MigratorError, UnreachableError
from migrator.exit_status import DONE, TOOL_FAILED
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.consent import consenting
from tests.cutting_over import Scene, scene

TELL = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"


@pytest.fixture
def ready(auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path) -> Iterator[Scene]:
    """Yield a scene whose sessions wait for a lock for a moment only, and whose hook of failures writes to a file."""
    dsn = make_conninfo(scheduler_dsn, options="-c lock_timeout=200ms")
    with scene(auth_server, fresh_name(), dsn, tmp_path) as made:
        made.ready()
        command = [sys.executable, "-c", TELL, str(tmp_path / "told")]
        hooks = msgspec.structs.replace(made.settings.hooks, cutover_failed=command)
        made.settings = msgspec.structs.replace(made.settings, hooks=hooks)
        made.config.write_text(f"{made.config.read_text()}\n[hooks]\ncutover_failed = {json.dumps(command)}\n")
        yield made


def told(scene: Scene) -> list[dict[str, Any]]:
    """Return the input of the hook, call by call."""
    file = scene.folder / "told"
    return [json.loads(line)["state"] for line in file.read_text().splitlines()] if file.exists() else []


def call(scene: Scene, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, consenting([*arguments, "--config", str(scene.config)]))
    error = done.exception
    status = error.exit_status if isinstance(error, MigratorError) else done.exit_code
    return status, done.output + str(error or "")


def state(scene: Scene) -> str:
    with open_target(scene.settings, autocommit=True) as target:
        found = latest(target)
    assert found is not None
    return found.state


def failing_at(monkeypatch: pytest.MonkeyPatch, step: str, also: Any = lambda: None) -> None:  # noqa: ANN401 - any call
    def listen(point: str) -> None:
        if point == f"{fault_points.CUTOVER_PREFIX}{step}.done":
            also()
            raise RuntimeError("planted")

    monkeypatch.setattr(fault_points, "_listen", listen)


def test_an_outbox_that_cannot_be_closed_is_named_and_the_next_abort_closes_it(
    ready: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(ready.dsn) as reader:
        failing_at(monkeypatch, "outbox", lambda: reader.execute("SELECT FROM scheduler.runs LIMIT 1"))
        with pytest.raises(UndoError) as raised:
            ready.switch()
        monkeypatch.undo()
        said = str(raised.value)
        assert said.startswith("RuntimeError; the undo is not complete: the outbox of PostgreSQL (")
        assert said.endswith("call migrator cutover abort")
        assert "the fence of MongoDB (" not in said
        assert raised.value.exit_status == TOOL_FAILED
        assert state(ready) == "running", "what is not undone is not reported as undone"
        assert not fence.is_source_fenced(ready.database, "write-block", ()), "writers go on"
        [failure] = told(ready)
        assert failure["not_undone"] == ["the outbox of PostgreSQL", "the journal"]
        assert failure["error"] == "RuntimeError"
        status, out = call(ready, "cutover", "status")
        assert "next: migrator cutover abort" in out, out
        status, out = call(ready, "cutover", "abort")
        assert status == TOOL_FAILED, "the session still reads"
        assert "the outbox of PostgreSQL (" in out
        assert "everything is as it was before" not in out
    status, out = call(ready, "cutover", "abort")
    assert (status, state(ready)) == (DONE, "aborted"), out
    with open_target(ready.settings, autocommit=True) as target:
        assert not outbox.is_open(target)
    assert [one["not_undone"] for one in told(ready)] == [["the outbox of PostgreSQL", "the journal"]] * 2 + [[]]


def test_a_fence_that_cannot_be_lifted_calls_the_hook_and_the_rest_is_undone(ready: Scene) -> None:
    def refuses(*_: object) -> None:
        raise UnreachableError("the source answered with error 13")

    with pytest.MonkeyPatch.context() as patched:
        failing_at(patched, "outbox")
        patched.setattr(fence, "lift_source", refuses)
        with pytest.raises(UndoError, match=r"the fence of MongoDB \(the source answered with error 13\)"):
            ready.switch()
    assert fence.is_source_fenced(ready.database, "write-block", ())
    with open_target(ready.settings, autocommit=True) as target:
        assert not outbox.is_open(target), "a part that fails does not keep the others from being undone"
    [failure] = told(ready)
    assert failure["not_undone"] == ["the fence of MongoDB", "the journal"]
    assert procedure.abort(cutover.SchedulerCutover, ready.settings).state == "aborted"
    assert not fence.is_source_fenced(ready.database, "write-block", ())


def test_a_fence_of_postgresql_that_a_rollback_cannot_lift_is_named(ready: Scene) -> None:
    ready.switch()

    def refuses(*_: object) -> None:
        raise psycopg.errors.InsufficientPrivilege("permission denied")

    with pytest.MonkeyPatch.context() as patched:
        failing_at(patched, "rollback-drain")
        patched.setattr(fence, "lift_target", refuses)
        status, out = call(ready, "rollback", "run")
    assert status == TOOL_FAILED
    assert "RuntimeError; the undo is not complete: the fence of PostgreSQL (" in out
    assert out.endswith("call migrator rollback run --level 1")
    status, out = call(ready, "rollback", "run")
    assert status == DONE, out
    assert state(ready) == "rolled-back"
