"""Sources that a cutover, or a parallel run, is refused for: before anything is written, and with the reason."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from migrator import fault_points
from migrator.cutover import config_file, fence
from migrator.embedded.mongo import MongoServer
from migrator.errors import MigratorError
from migrator.exit_status import DIFFERENT, TOOL_FAILED, UNVERIFIED, USAGE
from migrator.pipeline import sessions
from migrator.sources import NAMES, comparable_in_parallel, load_profile
from tests.conftest import fresh_name
from tests.copying import contents, run
from tests.cutting_over import Scene, scene

WORDS = "profile agenda has no tested reverse sync, so a cutover could not be rolled back and is refused"


@pytest.fixture(scope="module")
def server() -> Iterator[MongoServer]:
    with MongoServer(auth=True, fast=True) as started:
        yield started


@pytest.fixture
def agenda(server: MongoServer, scheduler_dsn: str, tmp_path: Path) -> Iterator[Scene]:
    with scene(server, fresh_name(), scheduler_dsn, tmp_path, profile="agenda") as made:
        made.ready()
        yield made


def state(scene: Scene) -> tuple[Any, ...]:
    """Return all that either side, and the file, holds."""
    source = {name: sorted(map(repr, scene.database[name].find())) for name in scene.database.list_collection_names()}
    tool = {}
    with psycopg.connect(scene.dsn) as connection:
        for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'migration'").fetchall():
            tool[name] = sorted(map(repr, connection.execute(f"SELECT * FROM migration.{name}").fetchall()))
    return source, contents(scene.dsn), tool, scene.config.read_text(), sorted(scene.folder.iterdir())


def test_a_source_without_a_way_back_is_refused_before_anything_is_written(agenda: Scene) -> None:
    before = state(agenda)
    where = ("--config", str(agenda.config), "--quarantined", str(agenda.quarantined))
    status, out, said = run("cutover", "plan", *where)
    assert status == UNVERIFIED, said
    assert f"NO  reverse sync: {WORDS}" in out
    assert out.splitlines()[-1] == "not ready, because of reverse sync; nothing was changed"
    status, out, said = run("cutover", "run", *where)
    assert (status, out) == (USAGE, "")
    assert said.startswith(f"migrator: the cutover is refused: reverse sync: {WORDS}")
    assert state(agenda) == before
    assert config_file.named_backend(agenda.config) == "mongo"
    assert not fence.is_source_fenced(agenda.database, "write-block", ())
    status, out, said = run("doctor", "--config", str(agenda.config))
    assert status == DIFFERENT, out + said
    assert f"NO  reverse sync: {WORDS}" in out


def test_the_gate_asks_a_property_of_the_source() -> None:
    assert [name for name in NAMES if load_profile(name).reverse_sync] == ["stellaops"]


@pytest.mark.parametrize("profile", ["stellaops", "agenda"])
def test_a_parallel_run_that_cannot_be_compared_is_refused(
    profile: str, server: MongoServer, scheduler_dsn: str, tmp_path: Path
) -> None:
    assert comparable_in_parallel() == ()
    with scene(server, fresh_name(), scheduler_dsn, tmp_path, profile=profile) as one:
        before = state(one)
        status, out, said = run("cutover", "parallel", "--who", "op", "--reason", "both", "--config", str(one.config))
        assert (status, out) == (USAGE, "")
        assert f"a parallel run of profile {profile} cannot be compared: its runs do not name the slot" in said
        assert "can be compared: no source of this version" in said
        assert state(one) == before


@pytest.fixture
def trapped(agenda: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A cutover that an older version made, which had no such gate, and whose reverse sync met its own smoke test."""
    note = "INSERT INTO migration.outbox (table_name, row_id) VALUES ('run_summaries', gen_random_uuid())"

    def older(point: str) -> None:
        if point == f"{fault_points.CUTOVER_PREFIX}reverse-sync.begun":
            with psycopg.connect(agenda.dsn) as connection:
                connection.execute(note)
            raise MigratorError("profile agenda has no collection for rows of run_summaries born here")

    with monkeypatch.context() as patched:
        passes = msgspec.structs.replace(load_profile("agenda"), reverse_sync=True)
        patched.setattr(sessions, "profile_of", lambda _: passes)
        patched.setattr(fault_points, "_listen", older)
        with pytest.raises(MigratorError, match="run_summaries born here"):
            agenda.switch()
    sessions.close_cached()
    return agenda


def next_commands(scene: Scene) -> list[list[str]]:
    status, out, said = run("cutover", "status", "--config", str(scene.config))
    lines = [line for line in out.splitlines() if ": migrator " in line and line.startswith(("next", "or, if"))]
    assert bool(status & UNVERIFIED) is bool(lines), out + said
    return [shlex.split(line.partition(": ")[2]) for line in lines]


@pytest.mark.parametrize("way", ["back", "on"])
def test_a_source_that_an_older_version_trapped_is_led_out(way: str, trapped: Scene) -> None:
    again = next_commands(trapped)[0]
    assert again[:3] == ["migrator", "cutover", "run"]
    status, out, said = run(*again[1:])
    assert status == UNVERIFIED, out + said
    assert "the reverse sync stopped: profile agenda has no collection" in out
    with psycopg.connect(trapped.dsn) as connection:  # the application works, and a tail would stop
        connection.execute("UPDATE scheduler.schedules SET name = name || '!'")
    assert run("tail", "--until-caught-up", "--config", str(trapped.config))[0] == TOOL_FAILED
    back, on = next_commands(trapped)
    assert back[:5] == ["migrator", "rollback", "run", "--level", "3"]
    assert on[:4] == ["migrator", "cutover", "finish", "--now"]
    status, out, said = run(*(back if way == "back" else on)[1:])
    assert status == 0, out + said
    assert next_commands(trapped) == []
    assert config_file.named_backend(trapped.config) == ("mongo" if way == "back" else "postgres")
    assert not fence.is_source_fenced(trapped.database, "write-block", ())
    with trapped.foreign() as foreign:
        foreign["agendaJobs"].update_one({}, {"$set": {"name": "free again"}})
