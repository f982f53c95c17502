"""The cutover to a library's own tables, the rollback and the finish, with the real library at work on both sides."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import psycopg
import pytest
from apscheduler.jobstores.base import JobLookupError
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from migrator.config import Settings
from migrator.connections import advisory_locks
from migrator.connections.postgres import Connection, open_target
from migrator.cutover import fence, library_cutover, library_documents, library_rollback, reverse_sync, status
from migrator.cutover.gates import GateOptions
from migrator.cutover.journal import CONFIRM_STEP, POINT_OF_NO_RETURN, Journal, latest
from migrator.errors import BackendMovedError, RefusedError
from migrator.exit_status import DIFFERENT, UNVERIFIED, USAGE
from migrator.parity.check import check_parity
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import close_cached
from migrator.report import wording
from migrator.report.integrity import check_report, read_result
from migrator.verify.request import Request
from migrator.verify.runner import verify
from tests.copying import run
from tests.cutting_over import with_cutover
from tests.library_scene import NOW, LibraryScene, library, on_mongo, on_postgres
from tests.scheduler_processes import until

__all__ = ["library"]

SECONDS = timedelta(seconds=5)


def call(scene: LibraryScene, *arguments: str) -> tuple[int, str]:
    """Call a command; return its exit status and all that it said."""
    status, out, said = run(*arguments, "--config", str(scene.config), cwd=scene.folder)
    return status, out + said


def executed(lines: list[Any]) -> list[str]:
    return sorted(line["id"] for line in lines if line["kind"] == "execution")


def is_equal(scene: LibraryScene) -> bool:
    close_cached()
    found = check_parity(scene.settings, Scope())
    return not found.differs


@pytest.mark.slow
@pytest.mark.proves("6-T10")
def test_three_times_there_and_back_and_there_for_good(library: LibraryScene) -> None:
    now, seen = NOW, list[str]()
    for turn in range(3):
        seen += there(library, now, turn)
        seen += back(library, now + timedelta(hours=2), turn)
        now += timedelta(hours=3)
    # each slot once: those that recur at every look, and what was due once, on one side alone
    assert [seen.count(name) for name in ("hourly", "overdue", "once-past", "once-late")] == [9, 9, 1, 0]
    for_good(library, now)


def there(scene: LibraryScene, now: datetime, turn: int) -> list[str]:
    """Change over to PostgreSQL, and work there for two hours; return what was executed."""
    succeeds(scene, "cutover", "plan", told="ready: migrator cutover run")
    succeeds(scene, "cutover", "run", "--yes", told="call migrator cutover confirm", ends=UNVERIFIED)
    with refused_by_the_fence(), on_mongo(scene) as scheduler:
        scheduler.remove_job("future")
    lines = executed(scene.work(scene.postgres, now + SECONDS))
    with on_postgres(scene) as scheduler:
        scheduler.add_job("json:dumps", "interval", hours=1, args=["new"], id=f"new-{turn}", next_run_time=None)
    waits = succeeds(scene, "cutover", "status", told="next: migrator cutover confirm", ends=UNVERIFIED)
    assert waits.splitlines()[-1].startswith("or, if that fails: migrator rollback run"), "nothing has failed yet"
    succeeds(scene, "cutover", "confirm", "--who", "ops", "--reason", "looked at it", told="the library reads")
    said = succeeds(scene, "cutover", "status")
    assert "NOT FINISHED" not in said
    assert "runs in the last hour" not in said, "the metrics of the tool's own scheduler"
    succeeds(scene, "tail", "--until-caught-up")
    assert is_equal(scene)
    return lines + executed(scene.work(scene.postgres, now + timedelta(hours=1) + SECONDS))


def back(scene: LibraryScene, now: datetime, turn: int) -> list[str]:
    """Roll back, and work on MongoDB for an hour; return what was executed."""
    succeeds(scene, "rollback", "plan")
    succeeds(scene, "rollback", "run", "--yes")
    assert scene.pairs() == scene.rows()
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="table apscheduler_jobs is closed"):
        scene.execute("UPDATE apscheduler_jobs SET next_run_time = 1")
    lines = executed(scene.work(scene.mongo, now + SECONDS))
    with on_mongo(scene) as scheduler:
        scheduler.add_job("json:dumps", "interval", hours=1, args=["old"], id=f"old-{turn}", next_run_time=None)
        scheduler.remove_job(f"new-{turn}")
    succeeds(scene, "tail", "--until-caught-up")
    assert scene.pairs() == scene.rows()
    succeeds(scene, "parity")
    return lines


def for_good(scene: LibraryScene, now: datetime) -> None:
    """Change over, and finish."""
    finish = ("cutover", "finish", "--now", "--who", "ops", "--reason", "tested")
    succeeds(scene, "cutover", "run", "--yes", ends=UNVERIFIED)
    succeeds(scene, *finish, told="call migrator cutover confirm", ends=USAGE)
    succeeds(scene, "cutover", "confirm")
    succeeds(scene, *finish, told="finished")
    planned = succeeds(scene, "cutover", "plan", ends=UNVERIFIED)
    assert unmet(planned, "alone").startswith("the cutover is finished: the application works on PostgreSQL")
    assert unmet(planned, "fence").startswith("MongoDB refuses writes already")
    succeeds(scene, "parity", told="cannot be told from a difference", ends=USAGE)
    succeeds(scene, "verify", "--only", "parity", told="cannot be told from a difference", ends=UNVERIFIED)
    assert executed(scene.work(scene.postgres, now + SECONDS)) == ["hourly", "interval", "overdue"]
    succeeds(scene, "rollback", "run", "--yes", told="the window was closed", ends=USAGE)
    assert triggers(scene) == []
    succeeds(scene, "cutover", "release-source", "--yes")


def succeeds(scene: LibraryScene, *arguments: str, told: str = "", ends: int = 0) -> str:
    """Call a command, which ends with a status, and says a text; return all that it said."""
    found, said = call(scene, *arguments)
    assert (found, told in said) == (ends, True), said
    return said


def unmet(planned: str, gate: str) -> str:
    """Return the words of a gate that a plan names as not met; empty: it does not."""
    found = [line.removeprefix(f"NO  {gate}: ") for line in planned.splitlines() if line.startswith(f"NO  {gate}: ")]
    return found[0] if found else ""


def triggers(scene: LibraryScene) -> list[Any]:
    return scene.execute("SELECT tgname FROM pg_trigger WHERE starts_with(tgname, 'migrator') ORDER BY 1")


def refused_by_the_fence() -> Any:  # noqa: ANN401 - of pytest
    """Return the context in which the library meets the fence."""
    return pytest.raises((PyMongoError, JobLookupError))


@pytest.mark.proves("6-T10")
def test_a_report_after_the_cutover_says_since_when_and_not_whether_it_is_ready(library: LibraryScene) -> None:
    succeeds(library, "cutover", "run", "--yes", ends=UNVERIFIED)
    since = since_when(library, "The cutover was made; migrator cutover finish has not ended it yet.")
    succeeds(library, "cutover", "confirm")
    succeeds(library, "cutover", "finish", "--now", "--who", "ops", "--reason", "tested")
    assert since_when(library, "it cannot be rolled back.") == since
    [(opened,)] = library.execute(
        "SELECT date_trunc('second', ended_at AT TIME ZONE 'UTC') FROM migration.cutover_steps"
        " WHERE step = 'open-target'"
    )
    assert since == f"PostgreSQL holds the data since {opened} UTC."


@pytest.mark.proves("5-R1")
def test_each_command_of_a_cutover_leaves_a_report_that_is_judged_by_what_holds_for_a_library(
    library: LibraryScene,
) -> None:
    said = succeeds(library, "cutover", "run", "--report", told="report: ", ends=UNVERIFIED)
    done = dict.fromkeys(("gates", "pause", "parity", "backup", "library", "rows", "lag"), "passed")
    done |= {"confirmed": "unverified", "metrics": "not-applicable"}
    assert criteria(library, said) == done
    succeeds(library, "cutover", "confirm")
    assert criteria(library, succeeds(library, "cutover", "report")) == done | {"confirmed": "passed"}
    library.execute("UPDATE apscheduler_jobs SET next_run_time = 7 WHERE id = 'future'")
    succeeds(library, "tail", "--until-caught-up")
    assert criteria(library, succeeds(library, "cutover", "report"))["rows"] == "passed"
    library.database["jobs"].update_one({"_id": "future"}, {"$set": {"next_run_time": 8.0}})
    named = "documents unlike their rows: 1 (jobs future)"
    unlike = succeeds(library, "cutover", "report", told=named, ends=DIFFERENT)
    assert criteria(library, unlike) == done | {"confirmed": "passed", "rows": "failed"}


@pytest.mark.proves("5-R1")
def test_a_rollback_and_the_finish_leave_a_report_too(library: LibraryScene) -> None:
    succeeds(library, "cutover", "run", "--yes", "--no-report", ends=UNVERIFIED)
    assert not (library.folder / "reports").exists()
    back = succeeds(library, "rollback", "run", "--report", told="report: ")
    found = criteria(library, back)
    assert {found[name] for name in ("confirmed", "rows", "backup", "pause")} == {"not-applicable"}
    assert {found[name] for name in ("gates", "parity", "library")} == {"passed"}
    succeeds(library, "tail", "--until-caught-up")
    succeeds(library, "parity")
    succeeds(library, "cutover", "run", "--yes", ends=UNVERIFIED)
    succeeds(library, "cutover", "confirm")
    ended = succeeds(
        library, "cutover", "finish", "--report", "--now", "--who", "ops", "--reason", "tested", told="report: "
    )
    found = criteria(library, ended)
    assert (found["confirmed"], found["rows"]) == ("passed", "not-applicable")


def criteria(scene: LibraryScene, said: str) -> dict[str, str]:
    """Return how the criteria ended in the report that a command has written; its files belong together."""
    [page] = re.findall(r"^report: (.*)$", said, flags=re.MULTILINE)
    file = scene.folder / Path(page).with_name("result.json")
    assert check_report(file).exit_status() == 0
    text = (scene.folder / page).read_text(encoding="utf-8")
    assert "The tool does not measure the scheduler of a library." in text
    checks = read_result(file).evidence.checks
    return {one.id.removeprefix("success."): one.outcome.status for one in checks}


def since_when(scene: LibraryScene, told: str) -> str:
    """Return the words of a report in the place of the readiness, which also says a text; no gate is named in it."""
    result = verify(scene.settings, Request(only=("cutover",)))
    ready = wording.readiness(result)
    assert any(told in one for one in ready.why), ready.why
    assert wording.gates_unmet(result) is None
    assert wording.open_gates(result) == []
    assert not any("because ." in one for one in wording.basis(result))
    return ready.sentence


def test_what_the_tool_writes_is_refused_while_the_application_works_there(library: LibraryScene) -> None:
    library_cutover.run(library.settings, library.conditions)
    before = library.rows()
    with pytest.raises(BackendMovedError, match="the application works on the library's tables since the cutover"):
        backfill(library.settings, Scope())
    ended, said = call(library, "parity", "--repair", "apply", "--who", "a", "--reason", "b")
    assert (ended, "since the cutover" in said) == (USAGE, True), said
    assert library.rows() == before
    ended, said = call(library, "cutover", "abort")
    assert (ended, "migrator rollback run" in said) == (USAGE, True), said
    ended, said = call(library, "rollback", "run", "--yes", "--level", "3")
    assert (ended, "has the level 1 alone" in said) == (USAGE, True), said


def test_the_library_is_not_asked_to_compare_what_the_application_changed(library: LibraryScene) -> None:
    library_cutover.run(library.settings, library.conditions)
    library.execute("UPDATE apscheduler_jobs SET next_run_time = 5 WHERE id = 'future'")
    said = succeeds(library, "verify", "--only", "library.entries", "--only", "library.fires", ends=UNVERIFIED)
    assert "not verified: library.entries, library.fires (the application works on the library's tables" in said


def test_a_confirmation_says_what_was_seen(library: LibraryScene) -> None:
    library_cutover.run(library.settings, library.conditions)
    nothing = succeeds(library, "cutover", "confirm")
    assert "the library reads 7 entries, and cannot restore 1 (broken)\n" in nothing
    assert "nothing was written to the library's tables since the cutover\n" in nothing
    assert "nobody else is connected to the target's database\n" in nothing
    assert "nothing shows that the application works there: start it" in nothing
    with psycopg.connect(library.dsn, application_name="shop"):
        connected = succeeds(library, "cutover", "confirm", "--dry-run")
    assert "nothing was written to the library's tables" in connected
    assert "connected to the database now: postgres (shop, 1)\n" in connected
    assert "nothing shows" not in connected
    library.execute("UPDATE apscheduler_jobs SET next_run_time = 5 WHERE id = 'future'")
    written = succeeds(library, "cutover", "confirm")
    assert "1 row was written to the library's tables since the cutover\n" in written
    assert "nothing shows" not in written


def test_a_change_of_the_library_is_no_difference_and_another_one_is(library: LibraryScene) -> None:
    library_cutover.run(library.settings, library.conditions)
    library.execute("UPDATE apscheduler_jobs SET next_run_time = 5 WHERE id = 'future'")
    library.execute("DELETE FROM apscheduler_jobs WHERE id = 'once-past'")
    library.execute("INSERT INTO apscheduler_jobs VALUES ('new', 1, 'x')")
    assert is_equal(library)
    with psycopg.connect(library.dsn) as connection:
        connection.execute("SET session_replication_role = replica")  # no trigger notes this
        connection.execute("UPDATE apscheduler_jobs SET next_run_time = 5 WHERE id = 'paused'")
    found = check_parity(library.settings, Scope())
    assert [(one.differing, one.missing, one.extra) for one in found.collections] == [(1, 0, 0)]


def with_a_hook_that_stops_nobody(settings: Settings) -> Settings:
    hooks = msgspec.structs.replace(settings.hooks, cutover_before_fence=[shutil.which("true")])
    return msgspec.structs.replace(settings, hooks=hooks)


def test_a_connected_application_is_told_of_and_stops_the_cutover(library: LibraryScene) -> None:
    with on_mongo(library):
        for words, status_then in ((("plan",), UNVERIFIED), (("run", "--yes"), USAGE)):  # a gate, before the fence
            ended, said = call(library, "cutover", *words)
            assert (ended, "the library executes a job before it writes that down" in said) == (status_then, True), said
            assert "fence-closed" not in said
        with pytest.raises(RefusedError, match="stop the application"):
            library_cutover.run(with_a_hook_that_stops_nobody(library.settings), library.conditions)
        with on_mongo(library) as scheduler:  # everything is as it was
            scheduler.pause_job("future")
    assert triggers(library) == []


def test_deleted_documents_are_in_the_export_before_they_are_removed(library: LibraryScene) -> None:
    library.database["jobs"].update_one({"_id": "once-past"}, {"$set": {"ours": "kept"}})
    library.follow()
    library_cutover.run(library.settings, library.conditions)
    before = library.documents()
    library.execute("DELETE FROM apscheduler_jobs WHERE id IN ('once-past', 'future')")
    library.execute("TRUNCATE apscheduler_jobs")
    library.execute("INSERT INTO apscheduler_jobs VALUES ('future', 7, 'x')")
    gates = {gate.name: gate.words for gate in library_rollback.plan_gates(library.settings)}
    assert gates["removed"].startswith("7 documents are exported and removed")
    done = library_rollback.run(library.settings)
    assert (done.removed, [*library.pairs()], library.pairs() == library.rows()) == (7, ["future"], True)
    exported = [json.loads(line) for line in (Path(done.folder) / "removed.jobs.jsonl").read_text().splitlines()]
    assert {one["_id"] for one in exported} == before.keys() - {"future"}
    assert next(one for one in exported if one["_id"] == "once-past")["ours"] == "kept"
    assert "ours" not in library.documents()["future"]


def test_a_reverse_sync_that_runs_does_not_stop_a_rollback_that_removes_documents(library: LibraryScene) -> None:
    library_cutover.run(library.settings, library.conditions)
    stop = Event()

    def carry() -> None:  # as migrator tail does
        try:
            with suppress(RefusedError):  # the rollback closes the outbox
                reverse_sync.run(library.settings, stop=stop)
        finally:
            close_cached()

    with ThreadPoolExecutor() as pool, psycopg.connect(library.settings.postgres.dsn or "", autocommit=True) as target:
        carried = pool.submit(carry)
        try:
            until(lambda: advisory_locks.is_held(target, reverse_sync.LOCK))
            library.execute("DELETE FROM apscheduler_jobs WHERE id = 'once-past'")
            assert library_rollback.run(library.settings).removed == 1
        finally:
            stop.set()
        carried.result(timeout=30)
    assert "once-past" not in library.documents()
    assert library.pairs() == library.rows()


def test_the_files_of_a_call_that_failed_after_it_removed_documents_are_kept(
    library: LibraryScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    library_cutover.run(library.settings, library.conditions)
    library.execute("DELETE FROM apscheduler_jobs WHERE id = 'once-past'")
    remove = library_rollback._remove

    def interrupted(*arguments: Any) -> int:  # noqa: ANN401 - as the function takes them
        remove(*arguments)
        raise RefusedError("interrupted")

    monkeypatch.setattr(library_rollback, "_remove", interrupted)
    with pytest.raises(RefusedError, match="interrupted"):
        library_rollback.run(library.settings)
    monkeypatch.undo()
    library.execute("DELETE FROM apscheduler_jobs WHERE id = 'future'")  # the application works on
    done = library_rollback.run(library.settings)
    folders = sorted(Path(done.folder).parent.glob("*.rollback-1*"))
    lines = [json.loads((folder / "removed.jobs.jsonl").read_text()) for folder in folders]
    assert [line["_id"] for line in lines] == ["once-past", "future"]
    assert library.pairs() == library.rows()


def test_a_row_that_makes_no_document_is_exported_and_is_in_no_copy(library: LibraryScene) -> None:
    library.database["jobs"].insert_one({"_id": "odd", "next_run_time": "soon", "job_state": b"x"})
    library.follow()
    lenient = with_cutover(library.settings, max_quarantined_percent=100)
    library_cutover.run(lenient, GateOptions(config=library.config, quarantined="all"))
    library.execute("INSERT INTO apscheduler_jobs VALUES ('odd', 1, 'y')")
    done = library_rollback.run(library.settings)
    assert done.lost == {"apscheduler/apscheduler_jobs": 1}
    [line] = (Path(done.folder) / "lost.apscheduler_jobs.jsonl").read_text().splitlines()
    assert json.loads(line)["row"]["id"] == "odd"
    assert library.documents()["odd"]["next_run_time"] == "soon"
    assert "odd" not in library.rows()


def test_a_mapping_that_is_not_that_of_the_cutover_stops_the_rollback_before_it_writes(
    library: LibraryScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    library_cutover.run(library.settings, library.conditions)
    library.execute("UPDATE apscheduler_jobs SET next_run_time = 5 WHERE id = 'future'")
    before = library.documents()
    several = "a document of jobs makes rows of several tables"
    with monkeypatch.context() as patched:
        patched.setattr(library_documents, "faults", lambda _: [several])
        words = f"^rows of the library cannot be carried back to MongoDB: {several}. No cutover is made with such"
        with pytest.raises(RefusedError, match=words):
            library_rollback.run(library.settings)
        assert (False, words[1:71]) in {
            (one.passed, one.words[:70]) for one in library_rollback.plan_gates(library.settings)
        }
        with pytest.raises(RefusedError, match=words):
            reverse_sync.run(library.settings, noted_by_now=True)
        assert library.documents() == before
    with on_postgres(library) as scheduler:
        assert scheduler.get_job("future") is not None, "the application continues on PostgreSQL"
    assert library_rollback.run(library.settings).documents == 1
    assert library.documents()["future"]["next_run_time"] == 5


def test_a_writer_that_does_not_end_stops_the_rollback_and_works_on(library: LibraryScene) -> None:
    library_cutover.run(library.settings, library.conditions)
    with psycopg.connect(library.dsn) as writer:
        writer.execute("UPDATE apscheduler_jobs SET next_run_time = 5 WHERE id = 'future'")
        with pytest.raises(Exception, match="lock"):
            library_rollback.run(with_cutover(library.settings, max_pause=timedelta(seconds=4)))
        writer.execute("UPDATE apscheduler_jobs SET next_run_time = 6 WHERE id = 'future'")
    library.execute("UPDATE apscheduler_jobs SET next_run_time = 7 WHERE id = 'future'")
    library_rollback.run(library.settings)
    assert library.pairs()["future"][0] == 7
    with open_target(library.settings, autocommit=True) as target:
        found = latest(target)
        assert found is not None
        assert found.state == "rolled-back"


def test_a_job_that_runs_at_the_fence_is_not_executed_again(library: LibraryScene) -> None:
    """The library writes the next time of a job when it begins to execute it, and nothing when it ends."""
    assert executed(library.work(library.mongo, NOW + SECONDS)) == ["hourly", "interval", "once-past", "overdue"]
    library.follow()
    library_cutover.run(library.settings, library.conditions)
    assert executed(library.work(library.postgres, NOW + 2 * SECONDS)) == []
    assert {key: due for key, (due, _) in library.rows().items() if due is None} == {"paused": None}


def test_every_interrupted_prefix_of_the_steps_names_a_command(library: LibraryScene) -> None:
    """Whatever step was the last, begun or done: the status names what to call next."""
    settings = library.settings
    steps = [step for step in library_cutover.STEP_TEXTS if step != CONFIRM_STEP]
    with open_target(settings, autocommit=True) as target:
        for number, last in enumerate(steps):
            is_before = number <= steps.index(POINT_OF_NO_RETURN)
            journal = begun(target, steps[:number])
            unfinished(journal, last)
            assert named(settings) == ((status.ABORT,) if is_before else (status.RUN, status.ROLLBACK)), last
            journal.end("aborted")
        journal = begun(target, steps)
        assert named(settings) == (status.RUN, status.ROLLBACK)
        journal.end("cut-over")
        assert named(settings) == (status.CONFIRM, status.ROLLBACK)
        unfinished(journal, CONFIRM_STEP)
        assert named(settings) == (status.CONFIRM, status.ROLLBACK)
        with journal.step(CONFIRM_STEP):
            pass
        assert named(settings) is None
        for step in library_rollback.STEPS:
            unfinished(journal, step)
            assert named(settings) == (status.ROLLBACK,), step
            with journal.step(step):
                assert named(settings) == (status.ROLLBACK,), step
        journal.end("rolled-back")
        assert named(settings) is None
        late = with_cutover(settings, confirm_within=timedelta(seconds=1))
        journal = begun(target, steps)
        target.execute("UPDATE migration.cutovers SET state = 'cut-over', ended_at = now() - interval '1 minute'")
        need = status.attention(late)
        assert need is not None
        assert need.words.endswith("cutover.confirm_within (1s) is over")


def begun(target: Connection, done: list[str]) -> Journal:
    """Begin the journal of a cutover some steps of which are done."""
    journal = Journal.begin(target, environment="test", config_path="config.toml", backup_path="")
    for step in done:
        with journal.step(step):
            pass
    return journal


def unfinished(journal: Journal, step: str) -> None:
    """Record that a step was begun, and is not done."""
    with suppress(RefusedError), journal.step(step):
        raise RefusedError("interrupted")


def named(settings: Settings) -> tuple[str, ...] | None:
    need = status.attention(settings)
    return None if need is None else need.commands


def test_writes_that_somebody_else_has_blocked_stop_a_cutover(library: LibraryScene) -> None:
    with MongoClient[dict[str, Any]](library.server.uri) as client:
        client.admin.command({"setUserWriteBlockMode": 1, "global": True})  # as another cutover leaves it
        planned = succeeds(library, "cutover", "plan", ends=UNVERIFIED)
        assert unmet(planned, "fence").startswith("MongoDB refuses writes already")
        said = succeeds(library, "cutover", "run", "--yes", ends=USAGE)
        assert "call migrator cutover release-source with the configuration of that cutover" in said
        state = client.admin.command("serverStatus", repl=1)["repl"]["userWriteBlockMode"]
        assert state == fence.BLOCKED, "the block of the other one stays"
        client.admin.command({"setUserWriteBlockMode": 1, "global": False})
    succeeds(library, "cutover", "plan", told="ready: migrator cutover run")
