"""The switch as a whole, and the way back, on a server that asks for passwords."""

import tomllib
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pytest
from click.testing import CliRunner
from pymongo.errors import OperationFailure

from migrator.cli import cli
from migrator.config import Settings, load_settings
from migrator.connections.postgres import open_target
from migrator.cutover import (
    completion,
    journal,
    metrics,
    outbox,
    parallel,
    procedure,
    processes,
    reverse_sync,
    rollback,
)
from migrator.cutover.cutover import CutoverResult
from migrator.cutover.evidence import LAG
from migrator.cutover.plan import cutover_plan
from migrator.cutover.status import cutover_status
from migrator.errors import BackendMovedError, RefusedError
from migrator.pipeline import sessions
from migrator.pipeline.tail.loop import Tail
from migrator.pipeline.tail.metrics import LagHistory
from migrator.records import Run, WorkerRecord
from migrator.report import integrity, renderer, wording
from migrator.result import CutoverRecord, Result
from migrator.scheduler.queries import percent
from migrator.store import open_scheduler_store, open_store
from migrator.store.postgres import parallel_run
from migrator.store.protocols import Store
from migrator.testing.servers.mongo import MongoServer
from migrator.verify.checks.cutover import CHECKS
from migrator.verify.cutover_report import report_into
from migrator.verify.request import Request
from migrator.verify.runner import verify
from tests.conftest import fresh_name
from tests.consent import consenting
from tests.cutting_over import COMPARABLE, Scene, scene
from tests.integration.test_reading_commands import Pair
from tests.scheduler_processes import until
from tests.store_postgres import schedule
from tests.unit.report.test_signing import pair


def recorded(scene: Scene, cutover: UUID) -> list[tuple[str, str, bool]]:
    """Return the steps of a cutover that are on record: name, state, and whether the time of the end is there."""
    with open_target(scene.settings, autocommit=True) as target:
        return [(one.step, one.state, one.ended_at is not None) for one in journal.steps(target, cutover)]


@pytest.mark.proves("0-T2.12.1", "0-T2.12.3", "0-T2.12.4", "4-X1", "4-B1", "1-B1", "1-D1")
def test_there_and_back_and_nothing_is_lost(ready: Scene) -> None:
    ready.config.write_text(f"{ready.config.read_text()}\n[cutover]\nenvironment = 'production'\n")
    ready.settings = load_settings(str(ready.config))
    found = cutover_plan(ready.settings, ready.config, quarantined=ready.quarantined)
    assert [one.name for one in found.gates if one.passed is False] == []
    assert found.ready
    old = open_scheduler_store(ready.settings)
    with old.session("a") as session:
        before = session.schedules.upsert(schedule(name="before"))

    done = ready.switch()

    assert done.cutover.state == "cut-over"
    assert recorded(ready, done.cutover.id) == [(step, "done", True) for step in journal.CUTOVER_STEPS]
    assert 0 < done.pause_s < 20
    assert load_settings(str(ready.config)).persistence.scheduler == "postgres"
    assert "# which" in ready.config.read_text()
    assert tomllib.loads(Path(done.cutover.backup_path).read_text())["persistence"]["scheduler"] == "mongo"
    with pytest.raises(BackendMovedError, match=r"is in postgres since the last cutover or rollback"), old.session("a"):
        pass
    old.close()
    with pytest.raises(BackendMovedError):
        open_store(ready.settings)
    with ready.foreign() as foreign, pytest.raises(OperationFailure):
        foreign.runs.delete_many({})
    new = open_scheduler_store(load_settings(str(ready.config)))
    with new.session("a") as session:
        assert session.schedules.get(before.id) is not None
        after = session.schedules.upsert(schedule(name="after"))
    with pytest.raises(RefusedError, match="there was a cutover already"):
        ready.switch()
    _report_while_open(load_settings(str(ready.config)), done, ready.folder)

    back = rollback.run(ready.settings, ready.config, 1)

    assert back.documents >= 1
    assert load_settings(str(ready.config)).persistence.scheduler == "mongo"
    with pytest.raises(BackendMovedError, match=r"is in mongo since the last cutover or rollback"), new.session("a"):
        pass
    new.close()
    again = open_scheduler_store(load_settings(str(ready.config)))
    with again.session("a") as session:
        assert session.schedules.get(before.id) is not None
        assert session.schedules.get(after.id) is not None
    again.close()
    with ready.foreign() as foreign:
        foreign.runs.insert_one({"_id": "free again"})
    with open_target(ready.settings, autocommit=True) as target:
        assert not outbox.is_open(target)
    assert reverse_sync.FENCE_COLLECTION not in ready.database.list_collection_names()
    with pytest.raises(RefusedError, match="the data is in MongoDB already"):
        rollback.run(ready.settings, ready.config, 1)
    _report_after_rollback(ready)


def _report_after_rollback(ready: Scene) -> None:
    stands = cutover_status(ready.settings).cutover
    assert stands is not None
    assert (stands.environment, stands.state) == ("production", "rolled-back")
    told, _ = report_into(ready.settings, directory=str(ready.folder / "reports"))
    assert wording.verdict_words(told) == "Rolled back"
    assert {one.step for one in record_of(told).steps} >= set(journal.ROLLBACK_STEPS[1])
    assert outcomes(told)["pause"] == "not-applicable"
    assert outcomes(told)["parity"] == "passed"


def record_of(result: Result) -> CutoverRecord:
    assert result.cutover is not None
    return result.cutover


def outcomes(result: Result) -> dict[str, str]:
    """Return how each success criterion ended, by its name."""
    return {one.id.partition(".")[2]: one.outcome.status for one in result.evidence.checks}


def _report_while_open(moved: Settings, done: CutoverResult, folder: Path) -> None:
    """Write the report of a cutover; look at it, and at what turns its criteria red."""
    told, where = report_into(moved, directory=str(folder / "reports"))
    record = record_of(told)
    assert (record.environment, record.state, record.id) == ("production", "cut-over", str(done.cutover.id))
    assert [one.step for one in record.steps] == list(journal.CUTOVER_STEPS)
    assert record.pause_ms == round(done.pause_s * 1000)
    assert record.pause_planned_ms is not None
    assert record.lag_before_s is not None
    assert len(record.backup_digest) == 64
    assert {"copy", "tail", "quarantine"} <= {one.name for one in record.gates}
    # nobody's scheduler has begun here: nothing can be told of processes, runs and slots
    unsure = {"processes", "runs", "single", "on-time"}
    assert {name for name, status in outcomes(told).items() if status == "unverified"} == unsure
    assert {name for name, status in outcomes(told).items() if status != "passed"} == {*unsure, "fires", "tasks"}
    assert outcomes(told)["fires"] == "not-applicable"  # there was no rollback
    # an id of a requirement stands with its words, and what is real now is not called rehearsed
    texts = {one.id: one.text for one in told.evidence.requirements}
    assert texts.keys() == {name for one in told.evidence.checks for name in one.requirements}
    assert all(texts.values())
    assert "4-Z7" not in texts, "that no trigger is overdue is no zero downtime"
    page = (where / "report.html").read_text()
    assert f"{texts['4-Z1']} (4-Z1)" in page
    assert "rehearsed on scratch data" not in page
    assert told.exit_status() == 4
    assert integrity.check_report(where / "result.json").exit_status() == 0
    assert (where.parent / "index.html").exists()

    short = msgspec.structs.replace(moved.cutover, backup_directory="nowhere")
    with open_target(moved, autocommit=True) as target:
        target.execute(
            'UPDATE migration.cutovers SET detail = detail || \'{"pause_limit_s": 0, "reverse_sync_stopped": "x"}\''
        )
        target.execute("UPDATE migration.cutover_steps SET state = 'undone' WHERE step = 'smoke'")
        target.execute(
            "INSERT INTO scheduler.runs (id, tenant_id, source, source_id, state, created_at) VALUES"
            " (gen_random_uuid(), 'a', 'stellaops/runs', 'late', 'completed', now() + interval '1 minute')"
        )
        wrong, _ = report_into(msgspec.structs.replace(moved, cutover=short), directory=str(folder / "reports"))
        target.execute("DELETE FROM scheduler.runs WHERE source_id = 'late'")
        target.execute("UPDATE migration.cutover_steps SET state = 'done' WHERE step = 'smoke'")
        target.execute(
            "UPDATE migration.cutovers SET detail = detail - 'reverse_sync_stopped' || '{\"pause_limit_s\": 30}'"
        )
    failed = {name for name, status in outcomes(wrong).items() if status == "failed"}
    assert failed == {"pause", "rollback", "smoke", "runs", "backup"}


def test_a_process_that_begins_anew_is_not_taken_for_another(ready: Scene) -> None:
    process = WorkerRecord(id=uuid4(), tenant_id="*", kind="scheduler", status="active")
    ready.switch()
    _begin(ready, process)
    rollback.run(ready.settings, ready.config, 1)
    _begin(ready, process)
    with Tail(ready.settings) as tail:
        assert tail.run("caught-up").quarantined == ready.quarantined


def _begin(scene: Scene, process: WorkerRecord) -> None:
    """Register a process where the data is, and let it hold a lock."""
    with closing(open_scheduler_store(load_settings(str(scene.config)))) as store:
        store.workers.register(process)
        assert store.locks.acquire("a", "work", ttl=timedelta(hours=1)) is not None


BOTH_RAN = (
    "INSERT INTO scheduler.runs (id, tenant_id, source, source_id, schedule_id, state, scheduled_at, created_at,"
    " finished_at) SELECT gen_random_uuid(), tenant_id, side, side || schedules.id, schedules.id, 'completed', now(),"
    " made, made FROM scheduler.schedules, (VALUES (NULL, now()), ('stellaops/runs', '2020-01-01')) AS both_sides"
    " (side, made)"
)
"""A slot of every schedule that both sides have fired; the old side's run is none of the last hour."""
SECOND = timedelta(seconds=1)


def called(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, consenting(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def scheduler(store: Store, host: str) -> WorkerRecord:
    """Register a scheduler process."""
    worker = WorkerRecord(
        id=uuid4(), tenant_id="*", kind="scheduler", hostname=host, pid=7, version="1", status="active"
    )
    return store.workers.register(worker)


def worked(store: Store, count: int, state: str) -> None:
    """Make runs, each of which took a second."""
    now = store.now()
    with store.session("a") as session:
        for _ in range(count):
            session.runs.create(
                Run(
                    id=uuid4(),
                    tenant_id="a",
                    state=state,
                    created_at=now - SECOND,
                    started_at=now - SECOND,
                    finished_at=now,
                )
            )


@pytest.mark.proves("4-P2", "4-P4", "4-X3", "4-Y1", "0-T2.12.2", "5-R1")
def test_the_day_of_another_environment_is_watched_to_its_end(
    auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "profile_of", lambda *_: COMPARABLE)
    with scene(auth_server, fresh_name(), scheduler_dsn, tmp_path) as staging:
        staging.config.write_text(
            f"{staging.config.read_text()}\n[cutover]\nenvironment = 'staging'\nstability = '0s'\n"
            "slot_tolerance = '1ms'\n"
        )
        staging.settings, where = load_settings(str(staging.config)), ("--config", str(staging.config))
        with closing(open_scheduler_store(staging.settings)) as old:
            stays, restarted, lost = (scheduler(old, host) for host in ("one", "two", "three"))
            worked(old, 3, "completed")
            worked(old, 1, "error")
        staging.database["run_summaries"].delete_many({})  # its one summary counts runs that are not there
        staging.ready()
        assert "there was no cutover" in called("cutover", "status", *where)[1]
        assert called("cutover", "status", "--wait", "0s", *where)[0] == 4
        with open_target(staging.settings, autocommit=True) as target:
            parallel.begin(target, COMPARABLE, "op", "both run")
            born = target.execute(BOTH_RAN).rowcount // 2
        assert "parallel run since" in called("cutover", "status", *where)[1]

        status, said = called("cutover", "run", "--allow-quarantined", str(staging.quarantined), *where)

        assert status == 0
        assert "of the old side 3 have no heartbeat yet" in said
        moved = load_settings(str(staging.config))
        with open_target(moved, autocommit=True) as target:
            assert parallel_run.since(target) is None  # the switch ends it: every handler runs
        with closing(open_scheduler_store(moved)) as new:
            new.workers.register(stays)
            scheduler(new, "two")
            arrived = cutover_status(moved).arrivals
            assert arrived is not None
            assert (len(arrived.here), [one.host for one in arrived.missing or ()]) == (2, ["three"])
            assert called("cutover", "status", "--wait", "0s", *where)[0] == 4
            begun = new.now()
            until(lambda: new.now() - begun > SECOND)  # what was made a second ago was made in PostgreSQL
            worked(new, 2, "completed")
            waited = processes.wait_for_arrivals(moved, 60, wait=lambda _: void(scheduler(new, "three")))
        assert waited is not None
        assert waited.complete
        assert {stays.id} < {one.id for one in waited.here}
        assert {restarted.id, lost.id}.isdisjoint(one.id for one in waited.here)
        _figures_stand_side_by_side(moved, born, where)
        _the_report_is_signed(staging.folder, where)
        status, said = called("cutover", "finish", "--now", "--who", "op", "--reason", "a rehearsal", *where)
        assert status == 0
        assert said.count("  [ ] ") > 6
        with open_target(moved, autocommit=True) as target:
            ended = journal.latest(target)
            kinds = target.execute("SELECT kind, reason FROM migration.decisions ORDER BY id").fetchall()
        assert ended is not None
        assert (ended.environment, ended.state) == ("staging", "finished")
        assert kinds[-1] == (completion.EARLY_DECISION, "a rehearsal")


def _the_report_is_signed(folder: Path, where: tuple[str, str]) -> None:
    private, public = pair(folder)
    reports = folder / "reports"
    status, said = called("cutover", "report", "--report-dir", str(reports), "--sign-key", str(private), *where)
    (made,) = reports.glob("cutover-*")
    told = integrity.read_result(made / "result.json")
    assert outcomes(told)["processes"] == outcomes(told)["runs"] == "passed"
    assert outcomes(told)["single"] == "unverified"  # no trigger has fired in PostgreSQL yet
    assert status == told.exit_status()
    assert f"report: {made}/report.html" in said
    metric = next(one for one in told.run.measurements if one.name == "runs in the last hour")
    assert [when for when, _ in metric.points] == ["before", "at the cutover", "now"]
    assert integrity.check_report(made / "result.json", public_key=public).exit_status() == 0


def test_dry_runs_around_a_cutover_change_nothing(ready: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cutover that was killed before its point of no return, of one that stands, and of one that is finished."""
    where, by = ("--config", str(ready.config)), ("--who", "op", "--reason", "a rehearsal")
    allowed = ("--allow-quarantined", str(ready.quarantined))
    both = Pair(ready.database.client, ready.database.name, ready.dsn, ready.config)

    def dry(*arguments: str) -> list[str]:
        before, files = both.everything(), {one: one.read_bytes() for one in ready.folder.rglob("*") if one.is_file()}
        done = CliRunner().invoke(cli, [*arguments, "--dry-run", *where], catch_exceptions=False)
        assert both.everything() == before
        assert {one: one.read_bytes() for one in ready.folder.rglob("*") if one.is_file()} == files
        said = done.output.splitlines()
        assert (done.exit_code, said[-1]) == (0, "nothing was written")
        return said[:-1]

    with monkeypatch.context() as planted:
        planted.setattr(parallel, "require_comparable", void)
        assert dry("cutover", "parallel", *by)[0].startswith("would be recorded: ")
    with monkeypatch.context() as planted:
        planted.setattr(procedure, "compare", refuse)
        planted.setattr(procedure, "_undo", lambda *_: None)  # as if killed
        with pytest.raises(RefusedError, match="planted"):
            CliRunner().invoke(
                cli, ["cutover", "run", "--yes", "--no-report", *allowed, *where], catch_exceptions=False
            )
    undone = dry("cutover", "abort")
    assert undone[0] == "would lift the fence, and undo the steps:"
    assert "  fence" in undone
    assert called("cutover", "abort", *where)[0] == 0
    assert called("cutover", "run", *allowed, *where)[0] == 0
    assert dry("tail") == ["would write the documents of 0 changed rows to MongoDB"]
    with pytest.raises(RefusedError, match="a rollback is possible until"):
        dry("cutover", "finish")
    assert dry("cutover", "finish", "--now", *by)[0].startswith("would end the reverse sync")
    done = CliRunner().invoke(cli, ["cutover", "report", "--report-dir", str(ready.folder / "r"), "--dry-run", *where])
    assert (done.output.splitlines()[-1], (ready.folder / "r").exists()) == ("nothing was written", False)
    assert called("cutover", "finish", "--now", *by, *where)[0] == 0
    assert dry("tail")[0].startswith("the cutover is finished")
    assert dry("cutover", "release-source", *by)[0] == "would lift the fence of MongoDB"


def test_each_command_that_changes_the_journal_writes_the_report_at_its_end(
    ready: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = ready.folder / "reports"
    monkeypatch.setenv("MIGRATOR_REPORT__DIRECTORY", str(reports))
    where = ("--report", "--config", str(ready.config))
    run = ("cutover", "run", "--allow-quarantined", str(ready.quarantined), *where)

    def told() -> list[str]:
        """Return the state of the cutover in each report, the oldest first."""
        found = [integrity.read_result(one) for one in reports.glob("cutover-*/result.json")]
        return [record_of(one).state for one in sorted(found, key=lambda one: len(record_of(one).steps))]

    def command(*arguments: str) -> tuple[int | BaseException, str]:
        done = CliRunner().invoke(cli, consenting(arguments))
        failed = done.exception is not None and not isinstance(done.exception, SystemExit)
        return done.exception if failed and done.exception else done.exit_code, done.output

    with Tail(ready.settings) as tail:
        tail._history = LagHistory(every_s=0.0)
        tail.run("caught-up")
    refused, said = command("cutover", "finish", *where)
    assert (str(refused).startswith("there is no cutover"), "report" in said, told()) == (True, False, [])
    with monkeypatch.context() as planted:
        planted.setattr(procedure, "compare", refuse)
        failed, said = command(*run)
    assert str(failed) == "planted"
    assert f"report: {reports}/cutover-" in said
    assert told() == ["aborted"]
    status, said = command(*run)
    (line,) = (one for one in said.splitlines() if one.startswith("report: "))
    page = Path(line.removeprefix("report: "))
    assert (status, page.name, told()) == (0, "report.html", ["aborted", "cut-over"])
    assert page.parent.name in (reports / "index.html").read_text()
    (lag,) = (one for one in integrity.read_result(page.parent / "result.json").run.measurements if one.check == LAG)
    assert len(lag.points) >= 1
    assert "the lag was at most" in page.read_text()
    assert command("cutover", "finish", *where)[1] == ""  # the window is open: nothing was changed
    assert len(told()) == 2
    monkeypatch.setenv("MIGRATOR_REPORT__DIRECTORY", str(ready.config))  # no folder can be made there
    status, said = command("cutover", "finish", "--now", "--who", "op", "--reason", "a rehearsal", "--json", *where)
    assert status == 0
    assert "the report of the cutover was not written: cannot write reports into" in said
    assert '"report": null' in said


def refuse(*_: object) -> int:
    raise RefusedError("planted")


def void(_: object) -> None:
    """Return nothing."""


def _figures_stand_side_by_side(moved: Settings, born: int, where: tuple[str, str]) -> None:
    found = metrics.collect(moved)
    taken = [one for one in (found.before, found.cutover, found.now) if one is not None]
    assert [one.asked for one in taken] == ["MongoDB", "PostgreSQL", "PostgreSQL"]
    three = [one.metrics for one in taken]
    assert [one.runs for one in three] == [4, 4 + born, 6 + born]
    assert {one.duration_ms for one in three} == {1000.0}
    assert [one.failure_percent for one in three] == [25.0, percent(1, 4 + born), percent(1, 6 + born)]
    assert len({one.ready for one in three}) == 1
    assert all(one.connections for one in three)
    with open_target(moved, autocommit=True) as target:
        last = journal.latest(target)
        assert last is not None
        steps = {one.step: one for one in journal.steps(target, last.id)}
    opened = steps["open-target"].ended_at
    assert opened is not None
    assert three[0].taken_at < steps["fence"].began_at < opened < three[1].taken_at  # the pause lies in between

    status, said = called("cutover", "status", "--wait", "0s", *where)
    assert status == 0
    assert "of staging" in said
    assert "every process of the old side has a heartbeat" in said
    assert f"runs in the last hour 4 {4 + born} {6 + born} about the same" in " ".join(said.split())
    status, text = called("scheduler", "metrics", "--max", f"overall_runs_1h={6 + born}", *where)
    assert (status, text.count("migrator_cutover_overall_runs_1h{")) == (0, 2)
    assert 'migrator_cutover_overall_runs_1h{when="before"} 4.0\n' in text
    assert f"migrator_overall_runs_1h {6 + born}.0\n" in text
    assert called("scheduler", "metrics", "--max", "overall_runs_1h=4", *where)[0] == 1

    request = Request(run_name="r", config=Path(where[1]))
    result = verify(moved, request, checks=[one for one in CHECKS if one.id == "cutover.statistics"])
    row = f"| runs in the last hour | 4 | {4 + born} | {6 + born} | about the same |"
    assert row in renderer.markdown(result).decode()
    assert '<th scope="row">runs in the last hour</th><td>4</td>' in renderer.html(result).decode()
