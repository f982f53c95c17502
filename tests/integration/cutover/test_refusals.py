"""What a switch refuses, and what it survives, with nothing lost."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import msgspec
import psycopg
import pytest
from click.testing import CliRunner

from migrator.cli import cli
from migrator.config import Settings, load_settings
from migrator.connections.postgres import open_target
from migrator.cutover import (
    backup,
    completion,
    config_file,
    epoch,
    fence,
    outbox,
    procedure,
    rollback,
    write_pause,
)
from migrator.cutover.gates import evaluate
from migrator.cutover.journal import latest
from migrator.cutover.plan import cutover_plan
from migrator.cutover.procedure import backup_folder
from migrator.cutover.status import cutover_status
from migrator.errors import BackendMovedError, MigratorError, RefusedError, UsageError
from migrator.parity.check import check_parity
from migrator.parity.recorded_check import check_and_record, is_clean
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import Sessions, close_cached
from migrator.pipeline.tail.loop import Tail
from migrator.schema.decisions import Approval
from migrator.store import open_scheduler_store
from migrator.values import remainder
from tests.cutting_over import Scene
from tests.store_postgres import schedule


def assert_as_before(scene: Scene) -> None:
    """Nothing was switched, and everybody may write."""
    assert config_file.named_backend(scene.config) == "mongo"
    assert not fence.is_source_fenced(scene.database, "write-block", ())
    with scene.foreign() as foreign:
        foreign.elsewhere.insert_one({})
    with open_target(scene.settings, autocommit=True) as target:
        assert not outbox.is_open(target)
    open_scheduler_store(scene.settings).close()


def with_cutover(settings: Settings, **changes: object) -> Settings:
    return msgspec.structs.replace(settings, cutover=msgspec.structs.replace(settings.cutover, **changes))


def one_gate(scene: Scene, name: str, settings: Settings | None = None) -> tuple[bool | None, str]:
    sessions = Sessions(settings or scene.settings)
    try:
        (found,) = (one for one in evaluate(sessions, scene.conditions) if one.name == name)
    finally:
        sessions.close()
    return found.passed, found.words


@pytest.mark.proves("4-X6")
def test_each_gate_is_red_when_its_condition_is_not_met(ready: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(ready.dsn) as connection:
        connection.execute("UPDATE migration.parity_checks SET started_at = started_at - interval '1 hour'")
    assert (
        one_gate(ready, "parity check", with_cutover(ready.settings, parity_check_max_age=timedelta(seconds=1)))[0]
        is False
    )
    with psycopg.connect(ready.dsn) as connection:
        connection.execute("UPDATE migration.parity_checks SET clean = false")
    assert "found differences" in one_gate(ready, "parity check")[1]
    with psycopg.connect(ready.dsn) as connection:
        connection.execute("DELETE FROM migration.parity_checks")
    assert "there is no complete parity check" in one_gate(ready, "parity check")[1]
    with psycopg.connect(ready.dsn) as connection:
        connection.execute("UPDATE migration.tail SET alarm = 'the position is lost'")
    assert one_gate(ready, "tail") == (False, "alarm: the position is lost; call migrator parity --repair apply")
    with psycopg.connect(ready.dsn) as connection:
        connection.execute("UPDATE migration.plans SET state = 'open'")
    assert one_gate(ready, "copy") == (False, "the copy is unfinished: call migrator backfill")
    monkeypatch.setenv(config_file.VARIABLE, "mongo")
    assert "would override" in one_gate(ready, "configuration")[1]
    with pytest.raises(RefusedError, match=r"the cutover is refused: copy: .*; tail: .*; parity check: "):
        ready.switch()
    monkeypatch.delenv(config_file.VARIABLE)
    assert_as_before(ready)


def test_a_difference_behind_the_fence_ends_the_switch(ready: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    ready.database.runs.update_one({}, {"$set": {"error": "changed since the comparison"}})
    real = procedure.compare

    def disturbed(sessions: Sessions, *rest: object) -> int:
        sessions.target.execute("UPDATE scheduler.runs SET error = 'something else'")
        return real(sessions, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(procedure, "compare", disturbed)
    with pytest.raises(RefusedError, match="differences: runs: "):
        ready.switch()
    assert_as_before(ready)


def test_rows_that_do_not_encode_back_are_refused_under_the_fence_as_by_the_parity_check(
    ready: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are stored as decoded; only encoding them, with their remainder, shows that the document is lost."""
    ready.database.runs.update_one({}, {"$set": {"note": "a field that no column holds"}})
    real = procedure.compare

    def lossy(sessions: Sessions, *rest: object) -> int:
        monkeypatch.setattr(remainder, "apply", lambda rebuilt, _left: rebuilt)
        return real(sessions, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(procedure, "compare", lossy)
    with pytest.raises(RefusedError, match="differences: runs: "):
        ready.switch()
    with ThreadPoolExecutor(1) as pool:
        found = check_parity(ready.settings, Scope(), pool=pool)
        pool.submit(close_cached).result()
    assert ("runs", "document") in {
        (one.collection, finding.side) for one in found.collections for finding in one.findings
    }
    monkeypatch.undo()
    assert_as_before(ready)
    assert ready.switch().cutover.state == "cut-over"


def test_an_extra_row_of_a_changed_document_is_refused_under_the_fence(
    ready: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready.database.runs.update_one({}, {"$set": {"error": "changed since the comparison"}})
    real = procedure.compare

    def doubled(sessions: Sessions, *rest: object) -> int:
        sessions.target.execute("CREATE TEMP TABLE one AS SELECT * FROM scheduler.runs LIMIT 1")
        sessions.target.execute("ALTER TABLE one DROP COLUMN schedule_tenant_id")
        sessions.target.execute("UPDATE one SET id = gen_random_uuid(), run_number = NULL")
        names = sessions.target.execute(
            "SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute"
            " WHERE attrelid = 'one'::regclass AND attnum > 0 AND NOT attisdropped"
        ).fetchone()
        assert names is not None
        sessions.target.execute(f"INSERT INTO scheduler.runs ({names[0]}) SELECT * FROM one".encode())
        return real(sessions, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(procedure, "compare", doubled)
    with pytest.raises(RefusedError, match="differences: runs: "):
        ready.switch()
    assert_as_before(ready)


def test_a_pause_that_would_be_too_long_is_taken_back(ready: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_pause.WritePause, "left", lambda _: -1.0)
    with pytest.raises(RefusedError, match="the write pause would exceed its limit"):
        ready.switch()
    assert_as_before(ready)
    monkeypatch.undo()
    assert ready.switch().cutover.state == "cut-over"


def test_a_target_that_goes_away_before_the_return_and_behind_it(ready: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it, the fence is lifted though the journal cannot say so; behind it, the next call finishes."""
    real = outbox.open_outbox

    def cut(connection: psycopg.Connection[tuple[object, ...]]) -> None:
        connection.close()
        real(connection)

    monkeypatch.setattr(outbox, "open_outbox", cut)
    with pytest.raises(MigratorError):
        ready.switch()
    monkeypatch.undo()
    assert_as_before(ready)

    def lost(sessions: Sessions, number: int, backend: str) -> None:
        if backend == "postgres":
            sessions.target.close()
        _set_target(sessions, number, backend)  # type: ignore[arg-type]

    _set_target = epoch.set_target
    monkeypatch.setattr(epoch, "set_target", lost)
    with pytest.raises(MigratorError):
        ready.switch()
    monkeypatch.undo()
    assert fence.is_source_fenced(ready.database, "write-block", ())
    with pytest.raises(BackendMovedError):
        open_scheduler_store(ready.settings)  # neither side is open to the old configuration
    done = ready.switch()
    assert done.resumed
    assert done.cutover.state == "cut-over"


@pytest.mark.proves("4-Y1")
def test_finish_closes_the_window_when_its_hours_are_over(ready: Scene) -> None:
    with pytest.raises(RefusedError, match="there is no cutover to be finished"):
        completion.finish(ready.settings)
    ready.switch()
    assert rollback.gates(ready.settings, ready.config, 1)[0].passed
    stands = cutover_status(ready.settings)
    until, opened = stands.open_until, next(one.ended_at for one in stands.steps if one.step == "open-target")
    assert until is not None
    assert opened is not None
    assert until - opened == timedelta(hours=48)
    for early in (None, until - timedelta(seconds=1)):
        with pytest.raises(RefusedError, match=r"a rollback is possible until .* UTC \(2d\): call again then, or"):
            completion.finish(ready.settings, now=early)
    early_of_nobody = ["cutover", "finish", "--now", "--who", "op", "--reason", " ", "--config", str(ready.config)]
    with pytest.raises(UsageError, match=r"say who and why \(--reason missing\)"):
        CliRunner().invoke(cli, early_of_nobody, catch_exceptions=False)
    assert fence.is_source_fenced(ready.database, "write-block", ())
    done = completion.finish(ready.settings, now=until)
    assert completion.finish(ready.settings).cleanup == done.cleanup
    said = "\n".join(done.cleanup)
    assert all(what in said for what in ("file", "imports", "dependency", done.cutover.backup_path))
    assert fence.is_source_fenced(ready.database, "write-block", ())
    completion.release_source(ready.settings, Approval("op", "test"))
    assert not fence.is_source_fenced(ready.database, "write-block", ())
    with pytest.raises(RefusedError, match="the window was closed by cutover finish"):
        rollback.run(ready.settings, ready.config, 1)
    with pytest.raises(BackendMovedError):
        open_scheduler_store(ready.settings)  # an old process stays shut out, also without the fence


@pytest.mark.proves("4-B2", "1-B1")
def test_level_two_takes_the_schema_away_with_its_rows_exported(ready: Scene) -> None:
    ready.switch()
    store = open_scheduler_store(load_settings(str(ready.config)))
    with store.session("a") as session:
        written = session.schedules.upsert(schedule(name="since"))
    store.close()
    done = rollback.run(ready.settings, ready.config, 2)
    assert done.lost["scheduler.schedules"] >= 2
    lines = (Path(done.tables) / "scheduler.schedules.jsonl").read_text().splitlines()
    assert len(lines) == done.lost["scheduler.schedules"]
    assert any(str(written.id) in line for line in lines)
    with psycopg.connect(ready.dsn) as connection:
        row = connection.execute("SELECT to_regnamespace('scheduler'), to_regnamespace('migration')").fetchone()
    assert row == (None, None)
    again = open_scheduler_store(load_settings(str(ready.config)))
    assert again.backend == "mongo"
    with again.session("a") as session:
        assert session.schedules.get(written.id) is not None
    again.close()


@pytest.mark.proves("4-B3", "3-O3")
def test_level_three_restores_what_was_there_and_refuses_another_backup(ready: Scene) -> None:
    sessions = Sessions(ready.settings)
    names = [one.name for one in sessions.profile.collections]
    before = {name: backup.fingerprint(sessions, name) for name in names}
    indexes = {name: ready.database[name].index_information() for name in names}
    done = ready.switch()
    store = open_scheduler_store(load_settings(str(ready.config)))
    with store.session("a") as session:
        written = session.schedules.upsert(schedule(name="since"))
    store.close()
    ready.database.schedules.delete_many({})
    folder = backup_folder(ready.settings, done.cutover)
    kept = shutil.copytree(folder, folder.with_name("kept"))
    with (folder / "schedules.bson").open("ab") as file:
        file.write(b"\5\0\0\0\0")
    with pytest.raises(
        RefusedError, match=r"the backup of schedules in .* was changed after it was written: digest differs"
    ):
        rollback.run(ready.settings, ready.config, 3)
    assert config_file.named_backend(ready.config) == "postgres"
    shutil.rmtree(folder)
    kept.rename(folder)
    back = rollback.run(ready.settings, ready.config, 3)
    assert back.lost["scheduler.schedules"] == 1
    assert str(written.id) in (Path(back.folder) / "scheduler.schedules.jsonl").read_text()
    close_cached()
    assert {name: backup.fingerprint(sessions, name) for name in names} == before
    assert {name: ready.database[name].index_information() for name in names} == indexes
    sessions.close()
    assert_as_before(ready)


def test_forward_tools_stay_off_the_rows_behind_the_switch(ready: Scene) -> None:
    ready.switch()
    with pytest.raises(BackendMovedError, match="MongoDB is not current"):
        backfill(ready.settings, Scope())
    ready.database.runs.update_one({}, {"$set": {"error": "by hand"}})
    with Tail(ready.settings) as tail, pytest.raises(BackendMovedError):
        tail.run("caught-up")


def test_there_and_back_and_there_again(ready: Scene) -> None:
    ready.switch()
    store = open_scheduler_store(load_settings(str(ready.config)))
    with store.session("a") as session:
        written = session.schedules.upsert(schedule(name="since"))
    store.close()
    rollback.run(ready.settings, ready.config, 1)
    with Tail(ready.settings) as tail:
        tail.run("caught-up")
    assert is_clean(check_and_record(ready.settings))
    backfill(ready.settings, Scope())
    assert cutover_plan(ready.settings, ready.config, quarantined=ready.quarantined).ready
    ready.switch()
    store = open_scheduler_store(load_settings(str(ready.config)))
    with store.session("a") as session:
        assert session.schedules.get(written.id) is not None
        session.schedules.upsert(schedule(name="once more"))
    store.close()


@pytest.mark.proves("6-U10")
@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("group", [("--only", "runs"), ("--tenant", "a"), ("--only", "runs", "--tenant", "a")])
def test_a_cutover_of_a_group_is_refused_before_anything_is_looked_at(
    ready: Scene, group: tuple[str, ...], command: str
) -> None:
    """The fence would stop the writers of the others too."""
    arguments = ["cutover", command, *(["--yes"] if command == "run" else []), "--config", str(ready.config)]
    options = " and ".join(name for name in ("--only", "--tenant") if name in group)
    with pytest.raises(RefusedError, match=rf"a cutover moves the whole source.* call it without {options}$"):
        CliRunner().invoke(cli, [*arguments, *group], catch_exceptions=False)
    assert_as_before(ready)
    with open_target(ready.settings, autocommit=True) as target:
        assert latest(target) is None
    if command == "plan":  # as the message says
        assert CliRunner().invoke(cli, arguments).exit_code == 0
