"""The backup of MongoDB holds what was there when the fence closed, whoever writes to PostgreSQL meanwhile."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from migrator import fault_points
from migrator.config import load_settings
from migrator.connections.postgres import open_target
from migrator.cutover import backup, outbox, reverse_sync, rollback
from migrator.cutover.journal import Journal, latest
from migrator.cutover.procedure import backup_folder
from migrator.errors import RefusedError
from migrator.pipeline.sessions import Sessions
from migrator.store import open_scheduler_store
from tests.copying import kill, start
from tests.cutting_over import Scene
from tests.store_postgres import schedule

WAITS = "waiting: the reverse sync begins when the cutover has backed MongoDB up"


def dump(scene: Scene) -> dict[str, tuple[int, str]]:
    """Return the digest of every collection of the profile as MongoDB holds it now."""
    sessions = Sessions(scene.settings)
    try:
        return {one.name: backup.fingerprint(sessions, one.name) for one in sessions.profile.collections}
    finally:
        sessions.close()


def backed_up(folder: Path) -> dict[str, tuple[int, str]]:
    return {one.collection: (one.documents, one.sha256) for one in backup.verified_manifest(folder).parts}


def write_to_postgres(scene: Scene) -> None:
    store = open_scheduler_store(load_settings(str(scene.config)))
    with store.session("a") as session:
        for number in range(3):
            session.schedules.upsert(schedule(name=f"since {number}"))
    store.close()


class Output(threading.Thread):
    """Reads what a process writes, and remembers when a line of it stood there."""

    def __init__(self, process: "subprocess.Popen[str]", line: str) -> None:
        super().__init__(daemon=True)
        self._process, self._line = process, line
        self.seen = threading.Event()
        self.lines: list[str] = []

    def run(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip())
            if line.startswith(self._line):
                self.seen.set()


@pytest.mark.slow
@pytest.mark.proves("4-B3")
def test_the_backup_is_what_stood_there_at_the_fence_while_a_tail_runs(
    ready: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = start("tail", "--config", str(ready.config))
    output = Output(tail, WAITS)
    output.start()
    at_fence: dict[str, tuple[int, str]] = {}

    def listen(point: str) -> None:
        if point == f"{fault_points.CUTOVER_PREFIX}fence.done":
            at_fence.update(dump(ready))
        if point == f"{fault_points.CUTOVER_PREFIX}backup.begun":
            write_to_postgres(ready)
            with open_target(ready.settings, autocommit=True) as target:
                assert outbox.backlog(target)[0]
                while outbox.backlog(target)[0] and not output.seen.wait(0.1):
                    assert tail.poll() is None, output.lines

    try:
        monkeypatch.setattr(fault_points, "_listen", listen)
        done = ready.switch()
        monkeypatch.undo()
        kept = backed_up(backup_folder(ready.settings, done.cutover))
        assert kept == {name: found for name, found in at_fence.items() if name in kept}
        assert all(found[0] == 0 for name, found in at_fence.items() if name not in kept)
        assert dump(ready) != at_fence, "the reverse sync went on after the backup"
    finally:
        kill(tail)
        output.join()
        for pipe in (tail.stdout, tail.stderr):
            assert pipe is not None
            pipe.close()


def test_the_reverse_sync_waits_for_the_backup_and_a_rollback_does_not(
    ready: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "planted")

    with monkeypatch.context() as patched:
        patched.setattr(backup, "export_source", fails)
        with pytest.raises(OSError, match="planted"):
            ready.switch()
    write_to_postgres(ready)
    with pytest.raises(RefusedError, match="the reverse sync begins when the cutover has backed MongoDB up"):
        reverse_sync.run(ready.settings, noted_by_now=True)
    with monkeypatch.context() as patched:  # a rollback begins, carries everything, and fails
        patched.setattr(rollback, "_check", fails)
        with pytest.raises(OSError, match="planted"):
            rollback.run(ready.settings, ready.config, 1)
    assert ready.switch().resumed
    with open_target(ready.settings, autocommit=True) as target:
        found = latest(target)
        assert found is not None
        [step] = [one for one in Journal(target, found).steps() if one.step == "backup"]
    assert step.detail == {"skipped": "the reverse sync had begun, so MongoDB is not as it was at the fence"}
    with pytest.raises(RefusedError, match="holds no backup"):
        rollback.run(ready.settings, ready.config, 3)
    rollback.run(ready.settings, ready.config, 1)


def test_a_backup_is_on_the_disk_before_it_counts(ready: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    steps: list[str] = []
    real, rename = os.fsync, Path.rename

    def fsync(handle: int) -> None:
        flushed.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        real(handle)

    def renamed(self: Path, target: Path) -> Path:
        if self.suffix == ".part":
            steps.extend(["renamed", *flushed])
            flushed.clear()
        return rename(self, target)

    def listen(point: str) -> None:
        if point == f"{fault_points.CUTOVER_PREFIX}backup.done":
            steps.extend(["done", *flushed])

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", renamed)
    monkeypatch.setattr(fault_points, "_listen", listen)
    folder = backup_folder(ready.settings, ready.switch().cutover)
    monkeypatch.undo()
    part = folder.with_name(f".{folder.name}.part")
    before, after = steps[: steps.index("done")], steps[steps.index("done") :]
    assert {str(part / one.name) for one in folder.iterdir()} | {str(part)} <= set(before)
    assert {str(folder.parent), str(folder.parent.parent)} <= set(after)
