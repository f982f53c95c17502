"""PostgreSQL's disk fills up in the middle of a switch: really, and at each step of it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import errors, sql

from migrator import fault_points
from migrator.config import load_settings
from migrator.connections.postgres import open_target
from migrator.cutover import config_file, cutover, fence, journal, procedure
from migrator.cutover.journal import latest
from migrator.cutover.undo import UndoError
from migrator.errors import BackendMovedError, RefusedError, UnreachableError
from migrator.schema.revisions import upgrade
from migrator.store import open_scheduler_store
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from tests.conftest import fresh_name
from tests.copying import number, run_of
from tests.cron_lines import DEEP
from tests.cutting_over import Scene, scene
from tests.small_disk import room_of_its_own, small_disk

SAYS = "the target is out of disk space: .*; free some and call again"
BEFORE = ("drain", "parity", "outbox", journal.POINT_OF_NO_RETURN) if DEEP else ("drain", journal.POINT_OF_NO_RETURN)
BEHIND = ("open-target", "reverse-sync") if DEEP else ("open-target",)
DUMMY = "00000000-0000-0000-0000-00000000d15c"


class Disk:
    """The disk that the whole database lies on."""

    def __init__(self, place: Path, dsn: str) -> None:
        self._ballast, self._dsn = place / "ballast", dsn

    def fill(self) -> None:
        """Fill it to the last block, and the journal's own pages to the last row."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute("VACUUM migration.cutovers, migration.cutover_steps")
            connection.execute(
                "INSERT INTO migration.cutovers (id, environment, state, config_path, backup_path, tool_version,"
                " began_at) VALUES (%s, '', 'aborted', '', '', '', '2000-01-01') ON CONFLICT DO NOTHING",
                (DUMMY,),
            )
            with self._ballast.open("ab", buffering=0) as file:
                _until_full(lambda: file.write(b"\0" * 65_536), OSError)
                _until_full(lambda: file.write(b"\0" * 512), OSError)
            row = connection.execute("SELECT coalesce(max(ordinal), 0) FROM migration.cutover_steps").fetchone()
            steps = iter(range(row[0] + 1 if row else 1, 100_000))

            def step() -> None:
                ordinal = next(steps)
                connection.execute(
                    "INSERT INTO migration.cutover_steps (cutover_id, ordinal, step, state, began_at)"
                    " VALUES (%s, %s, %s, 'undone', '2000-01-01')",
                    (DUMMY, ordinal, str(ordinal)),
                )

            _until_full(step, errors.DiskFull)

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink()
        with psycopg.connect(self._dsn) as connection:
            connection.execute("DELETE FROM migration.cutover_steps WHERE cutover_id = %s", (DUMMY,))


def _until_full(write: Callable[[], object], full: type[Exception]) -> None:
    try:
        while True:
            write()
    except full:
        return


@contextmanager
def on_a_small_disk(auth_server: MongoServer, folder: Path) -> Iterator[tuple[Scene, Disk]]:
    with (
        PostgresServer(fast=True) as postgres,
        small_disk(postgres._directory.path / "disk", 48) as place,
    ):
        room_of_its_own(postgres.dsn(), place)
        with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE target TABLESPACE small"))
        dsn = postgres.dsn("target")
        upgrade(dsn)
        with scene(auth_server, fresh_name(), dsn, folder) as ready:
            ready.ready()
            yield ready, Disk(place, dsn)
        postgres.stop()


@contextmanager
def full_at(step: str, disk: Disk, ready: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fill the disk when a step begins; a change comes in just before the fence, to be written."""

    def listen(point: str) -> None:
        if point == f"{fault_points.CUTOVER_PREFIX}fence.begun":
            ready.database.runs.insert_one(run_of(_id=f"late {step}", blob=os.urandom(40_000).hex()))
        if point == f"{fault_points.CUTOVER_PREFIX}{step}.begun":
            disk.fill()

    monkeypatch.setattr(fault_points, "_listen", listen)
    yield
    monkeypatch.undo()


def assert_as_before(ready: Scene) -> None:
    assert config_file.named_backend(ready.config) == "mongo"
    assert not fence.is_source_fenced(ready.database, "write-block", ())
    with ready.foreign() as foreign:
        foreign.elsewhere.insert_one({})
    open_scheduler_store(ready.settings).close()


def state(ready: Scene) -> str:
    with open_target(ready.settings, autocommit=True) as target:
        found = latest(target)
    assert found is not None
    return found.state


@pytest.mark.slow
@pytest.mark.proves("4-X6", "4-X5")
def test_full_at_each_step_of_a_switch(
    auth_server: MongoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with on_a_small_disk(auth_server, tmp_path) as (ready, disk):
        disk.fill()
        with pytest.raises(RefusedError, match=f"target: {SAYS}"):
            ready.switch()
        disk.free()
        for step in BEFORE:
            with full_at(step, disk, ready, monkeypatch), pytest.raises(UndoError, match=SAYS) as raised:
                ready.switch()
            assert "the journal" in raised.value.parts
            assert "the fence of MongoDB" not in raised.value.parts
            assert_as_before(ready)
            with pytest.raises(UndoError, match=SAYS):
                ready.switch()  # still full
            disk.free()
            procedure.abort(cutover.SchedulerCutover, ready.settings)
            assert state(ready) == "aborted"
        for step in BEHIND:
            with full_at(step, disk, ready, monkeypatch), pytest.raises(UnreachableError, match=SAYS):
                ready.switch()
            assert fence.is_source_fenced(ready.database, "write-block", ())
            with pytest.raises(BackendMovedError):
                open_scheduler_store(ready.settings)
            with pytest.raises(RefusedError, match="point of no return is passed"):
                procedure.abort(cutover.SchedulerCutover, ready.settings)
            disk.free()
        done = ready.switch()
        assert (done.resumed, done.cutover.state) == (True, "cut-over")
        late = ready.database.runs.count_documents({"_id": {"$regex": "^late"}})
        assert number(ready.dsn, "SELECT count(*) FROM scheduler.runs WHERE source_id LIKE 'late%'") == late
        assert late == len(BEFORE) + 1
        store = open_scheduler_store(load_settings(str(ready.config)))
        assert store.backend == "postgres"
        store.close()
