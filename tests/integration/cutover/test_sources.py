"""Sources that a cutover, or a parallel run, is refused for: before anything is written, and with the reason."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from migrator import fault_points
from migrator.cutover import config_file, fence, server_gates
from migrator.errors import MigratorError
from migrator.exit_status import DIFFERENT, TOOL_FAILED, UNVERIFIED, USAGE
from migrator.pipeline import sessions
from migrator.sources import comparable_in_parallel, load_profile
from migrator.sources.write_back import WriteBack, write_back
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.copying import contents, run
from tests.cutting_over import ACME, Scene, scene

WORDS = (
    "profile acme: changes in PostgreSQL cannot be written back to MongoDB, so a cutover could not be rolled back and"
    " is refused: history: a run in the state timeout cannot be written back: missing-field at status, expected a value"
    " for runs.state"
)


@pytest.fixture
def wordless(auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path) -> Iterator[Scene]:
    """A source whose mapping has no word for a run that took too long."""
    mapping = tmp_path / "wordless.toml"
    mapping.write_text(ACME.read_text(encoding="utf-8").replace('timeout = "failed", ', ""), encoding="utf-8")
    with scene(auth_server, fresh_name(), scheduler_dsn, tmp_path, profile=str(mapping)) as made:
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


def test_a_source_without_a_way_back_is_refused_before_anything_is_written(wordless: Scene) -> None:
    before = state(wordless)
    where = ("--config", str(wordless.config), "--allow-quarantined", str(wordless.quarantined))
    status, out, said = run("cutover", "plan", *where)
    assert status == UNVERIFIED, said
    assert f"NO  reverse sync: {WORDS}" in out
    assert out.splitlines()[-1] == "not ready, because of reverse sync; nothing was changed"
    status, out, said = run("cutover", "run", *where)
    assert (status, out) == (USAGE, "")
    assert said.startswith(f"migrator: the cutover is refused: reverse sync: {WORDS}")
    assert state(wordless) == before
    assert config_file.named_backend(wordless.config) == "mongo"
    assert not fence.is_source_fenced(wordless.database, "write-block", ())
    status, out, said = run("doctor", "--config", str(wordless.config))
    assert status == DIFFERENT, out + said
    assert f"NO  reverse sync: {WORDS}" in out


@pytest.mark.parametrize("name", ["stellaops", "agenda"])
def test_a_cutover_of_a_shipped_source_can_be_rolled_back(name: str) -> None:
    assert write_back(load_profile(name)).faults == ()


@pytest.mark.parametrize("profile", ["celerybeat"])
def test_a_parallel_run_that_cannot_be_compared_is_refused(
    profile: str, auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path
) -> None:
    assert comparable_in_parallel() == ("stellaops", "agenda", "apscheduler", "jobrunr")
    with scene(auth_server, fresh_name(), scheduler_dsn, tmp_path, profile=profile) as one:
        before = state(one)
        status, out, said = run("cutover", "parallel", "--who", "op", "--reason", "both", "--config", str(one.config))
        assert (status, out) == (USAGE, "")
        assert f"a parallel run of profile {profile} cannot be compared: nothing in its documents says" in said
        assert "can be compared: stellaops, agenda, apscheduler, jobrunr." in said
        assert state(one) == before


@pytest.fixture
def trapped(wordless: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A cutover that an older version made, which had no such gate, and whose reverse sync met its own smoke test."""
    note = (
        "INSERT INTO migration.outbox (table_name, row_id, tenant_id, source, source_id)"
        " VALUES ('schedules', gen_random_uuid(), 'north', 'other/jobs', 'x')"
    )

    def older(point: str) -> None:
        if point == f"{fault_points.CUTOVER_PREFIX}reverse-sync.begun":
            with psycopg.connect(wordless.dsn) as connection:
                connection.execute(note)
            raise MigratorError("a row of schedules is of other/jobs, which profile acme lacks")

    with monkeypatch.context() as patched:
        patched.setattr(server_gates, "write_back", lambda _: WriteBack())
        patched.setattr(fault_points, "_listen", older)
        with pytest.raises(MigratorError, match="which profile acme lacks"):
            wordless.switch()
    sessions.close_cached()
    return wordless


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
    assert "the reverse sync stopped: a row of schedules is of other/jobs" in out
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
    # who stays on PostgreSQL opens MongoDB by a command of its own, or not at all
    assert fence.is_source_fenced(trapped.database, "write-block", ()) is (way == "on")
    if way == "back":
        with trapped.foreign() as foreign:
            foreign["jobs"].update_one({}, {"$set": {"title": "free again"}})
