"""Writes in MongoDB in the rollback window and after it: found, named, and refused until a person opens MongoDB."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from pymongo.errors import OperationFailure

from migrator.cli import cli
from migrator.config import load_settings
from migrator.connections.postgres import open_target
from migrator.cutover import completion, fence, late_writes
from migrator.cutover.evidence import cutover_result
from migrator.cutover.fence import FenceKind
from migrator.cutover.journal import latest
from migrator.errors import MigratorError, RefusedError
from migrator.exit_status import DIFFERENT, DONE, USAGE
from migrator.pipeline.sessions import Sessions
from migrator.result import Check, Run
from migrator.schema.decisions import Approval
from migrator.store import open_scheduler_store
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.consent import consenting
from tests.copying import run_of
from tests.cutting_over import Scene, scene
from tests.store_postgres import schedule

BY = Approval("op", "test")
FINISH = ("cutover", "finish", "--now", "--who", "op", "--reason", "test")
HISTORY_LOST = 286
OTHERS = "documents of runs written in MongoDB by others"
PASSES = "passes"
"""A user whom the fence does not stop."""


@pytest.fixture
def ready(auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path) -> Iterator[Scene]:
    with scene(auth_server, fresh_name(), scheduler_dsn, tmp_path) as made:
        admin = made.database.client.admin
        admin.command("createUser", PASSES, pwd="secret", roles=["root"])
        settings = msgspec.structs.replace(made.settings.cutover, tolerated_writers=[f"{PASSES}@admin"])
        made.settings = msgspec.structs.replace(made.settings, cutover=settings)
        made.config.write_text(f'{made.config.read_text()}\n[cutover]\ntolerated_writers = ["{PASSES}@admin"]\n')
        made.ready()
        yield made
        admin.command("dropUser", PASSES)


def call(scene: Scene, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, consenting([*arguments, "--config", str(scene.config)]))
    error = done.exception
    status = error.exit_status if isinstance(error, MigratorError) else done.exit_code
    return status, done.output + (str(error) if isinstance(error, MigratorError) else "")


def work_on_postgres(scene: Scene) -> None:
    with closing(open_scheduler_store(load_settings(str(scene.config)))) as store, store.session("a") as session:
        for number in range(3):
            session.schedules.upsert(schedule(name=f"since {number}"))


def is_fenced(scene: Scene) -> bool:
    with open_target(scene.settings, autocommit=True) as target:
        found = latest(target)
    assert found is not None
    return fence.is_source_fenced(scene.database, found.fence["kind"], found.fence["revoked"])


def writes(scene: Scene) -> bool:
    with scene.foreign() as database:
        try:
            database.runs.insert_one(run_of(_id=f"late {fresh_name()}"))
        except OperationFailure:
            return False
    return True


def old_runs(scene: Scene) -> Check:
    """Return the criterion of the cutover's report that no run was made in MongoDB."""
    report = cutover_result(load_settings(str(scene.config)), Run(name="report"), {})
    (found,) = (one for one in report.evidence.checks if one.id == "success.runs")
    return found


@pytest.mark.proves("6-N3")
@pytest.mark.parametrize("kind", ["write-block", "roles"])
def test_a_forgotten_application_is_refused_until_a_person_opens_mongodb(
    kind: FenceKind, ready: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    survey = fence.survey_source
    monkeypatch.setattr(fence, "survey_source", lambda source, **_: survey(source, prefer=kind))
    if kind == "roles":  # the server's own administrator may grant, and is known not to write
        settings = msgspec.structs.replace(ready.settings.cutover, tolerated_writers=["admin@admin", f"{PASSES}@admin"])
        ready.settings = msgspec.structs.replace(ready.settings, cutover=settings)
    before = ready.database.client.admin.command("usersInfo", ready.user)["users"]
    ready.switch()
    status, said = call(ready, "cutover", "release-source")
    assert (status, "call migrator cutover finish, or migrator rollback run" in said) == (USAGE, True), said
    work_on_postgres(ready)
    assert call(ready, "tail", "--until-caught-up")[0] == DONE
    status, said = call(ready, *FINISH)
    assert status == DONE, said
    assert "finished: the reverse sync has ended; MongoDB stays fenced" in said
    assert "nothing but the reverse sync wrote the scheduler's documents since the cutover" in said
    assert is_fenced(ready)
    assert not writes(ready), "a forgotten application is not told that its write was stored"
    status, said = call(ready, "cutover", "status")
    assert (status, "MongoDB stays fenced until migrator cutover release-source" in said) == (DONE, True), said
    with ready.foreign() as application:
        application.runs.find_one({})
        status, said = call(ready, "cutover", "release-source", "--dry-run")
        assert status == DONE
        assert f"{ready.user}@admin (from 127.0.0.1)" in said, said
        assert said.endswith("nothing was written\n")
    assert not writes(ready), "a dry run opens nothing"
    status, said = call(ready, "cutover", "release-source", "--who", "op", "--reason", "the server serves others")
    assert status == DONE, said
    assert f"{ready.user}@admin" in said.partition("who can write there then: ")[2].splitlines()[0]
    assert "what they write goes nowhere" in said
    assert not is_fenced(ready)
    assert writes(ready)
    assert ready.database.client.admin.command("usersInfo", ready.user)["users"] == before
    assert "MongoDB accepted writes already" in call(ready, "cutover", "release-source")[1]
    with open_target(ready.settings, autocommit=True) as target:
        kinds = target.execute("SELECT who, reason FROM migration.decisions WHERE kind LIKE 'MongoDB released%'")
        assert kinds.fetchall()[0] == ("op", "the server serves others")


@pytest.mark.proves("4-V7")
def test_what_others_wrote_in_the_window_refuses_the_finish_and_is_named(ready: Scene) -> None:
    ready.switch()
    work_on_postgres(ready)
    assert call(ready, "tail", "--until-caught-up")[0] == DONE
    assert old_runs(ready).counts[OTHERS] == 0, "the reverse sync is no old side"
    with ready.foreign(PASSES) as database:
        database.runs.insert_one(run_of(_id="late 1"))
        database.runs.update_one({"_id": "late 1"}, {"$set": {"error": "twice"}})
        with database.client.start_session() as session, session.start_transaction():
            database.schedules.insert_one({"_id": "late 2"}, session=session)
            database.runs.insert_one(run_of(_id="late 3"), session=session)
    status, said = call(ready, "cutover", "status")
    assert status & DIFFERENT, said
    named = "3 documents were written by others than the reverse sync, from "
    assert f"NO  {late_writes.WRITES_GATE}: {named}" in said
    status, said = call(ready, *FINISH)
    assert status == USAGE, said
    assert said.startswith(f"finish is refused: {late_writes.WRITES_GATE}: {named}")
    assert ": runs 2 (late 1, late 3); schedules 1 (late 2);" in said
    assert said.endswith("then call migrator cutover finish --allow-writes 3")
    criterion = old_runs(ready)
    assert (criterion.outcome.status, criterion.counts[OTHERS]) == ("failed", 2)
    status, said = call(ready, *FINISH, "--allow-writes", "2")
    assert status == USAGE, said
    status, said = call(ready, *FINISH, "--allow-writes", "3", "--dry-run", "--json")
    assert next(one["passed"] for one in json.loads(said)["gates"]) is True
    status, said = call(ready, *FINISH, "--allow-writes", "3")
    assert status == DONE, said
    assert f"ok  {late_writes.WRITES_GATE}: {named}" in said


def test_a_user_who_is_connected_is_named_and_a_lost_history_is_said(ready: Scene) -> None:
    done = ready.switch()
    sessions = Sessions(ready.settings)
    try:
        with ready.foreign() as application:
            application.runs.find_one({})
            written, connected = late_writes.gates(sessions, done.cutover)
        assert written.passed is True
        assert connected.passed is None
        assert f"{ready.user}@admin (from 127.0.0.1)" in connected.words
        admin = ready.database.client.admin
        lost = {
            "failCommands": ["aggregate"],
            "errorCode": HISTORY_LOST,
            "namespace": f"{ready.database.name}.$cmd.aggregate",
        }
        admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=lost)
        try:
            written, _ = late_writes.gates(sessions, done.cutover)
        finally:
            admin.command("configureFailPoint", "failCommand", mode="off")
        assert written.passed is None
        assert written.words.startswith("not known: the oplog does not reach back to the cutover (")
        nowhere = msgspec.structs.replace(done.cutover, detail={})
        assert late_writes.gates(sessions, nowhere)[0].passed is None
        brief, _ = late_writes.gates(sessions, done.cutover, seconds=0.0)
        assert (brief.passed, "and not looked at after that" in brief.words) == (None, True)
    finally:
        sessions.close()


def test_documents_that_expire_are_told_apart(ready: Scene) -> None:
    ready.database.runs.create_index("expiresAt", expireAfterSeconds=1)
    done = ready.switch()
    ready.database.runs.delete_one({})
    sessions = Sessions(ready.settings)
    try:
        written, _ = late_writes.gates(sessions, done.cutover)
    finally:
        sessions.close()
    assert written.passed is True
    assert written.words.endswith("; 1 documents of runs were deleted, by its TTL index or by others")


def test_an_interrupted_release_is_continued_as_the_status_says(ready: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    ready.switch()
    completion.finish(ready.settings, early=BY)

    def fails(*_: object) -> None:
        raise RefusedError("planted")

    with monkeypatch.context() as patched:
        patched.setattr(completion, "lift_source_fence", fails)
        with pytest.raises(RefusedError, match="planted"):
            completion.release_source(ready.settings, BY)
    _, said = call(ready, "cutover", "status")
    assert "NOT FINISHED: opening MongoDB was interrupted in step release-source (planted)" in said
    assert "next: migrator cutover release-source --config" in said
    assert call(ready, "cutover", "release-source")[0] == DONE
    assert not is_fenced(ready)
