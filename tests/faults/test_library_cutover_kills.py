"""A cutover to a library's own tables, and the rollback, killed at their steps: the next call ends as it must."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from migrator import fault_points
from migrator.connections.postgres import open_target
from migrator.cutover import fence, library_cutover, library_rollback, status
from migrator.cutover.journal import CONFIRM_STEP, POINT_OF_NO_RETURN, latest
from migrator.cutover.library_tables import LibraryTables, library_tables
from migrator.exit_status import UNVERIFIED
from tests.agenda_scene import NOW as AGENDA_NOW
from tests.agenda_scene import SECOND, AgendaScene, agenda
from tests.copying import run
from tests.cron_lines import DEEP
from tests.killed_commands import killed_at
from tests.library_scene import NOW, LibraryScene, library, on_mongo, on_postgres

__all__ = ["agenda", "library"]

MOMENTS = ("begun", "done") if DEEP else ("done",)
_CUTOVER = [step for step in library_cutover.STEP_TEXTS if step != CONFIRM_STEP]
CUTOVER = _CUTOVER if DEEP else ["fence", "outbox", POINT_OF_NO_RETURN, "open-target"]
ROLLBACK = library_rollback.STEPS if DEEP else ("rollback-fence", "rollback-remove", *library_rollback.STEPS[-2:])
"""Of the deep profile: every step. The short one kills at those that change one of the two sides."""
OF_AGENDA = (CUTOVER, ROLLBACK) if DEEP else (["outbox", "open-target"], ["rollback-remove"])
"""The steps are the same for every library, so the daily run kills Agenda's at three."""
CARRYING = (fault_points.BEFORE_REVERSE_WRITE, fault_points.AFTER_REVERSE_WRITE, fault_points.AFTER_REVERSE_DROP)


def tables_of(scene: LibraryScene) -> LibraryTables:
    found = library_tables(scene.settings)
    assert found is not None
    return found


def call(scene: LibraryScene, *arguments: str) -> tuple[int, str]:
    ended, out, said = run(*arguments, "--config", str(scene.config), cwd=scene.folder)
    return ended, out + said


def sides(scene: LibraryScene) -> tuple[str, bool, bool, bool]:
    """Return the state of the cutover, and whether MongoDB, PostgreSQL and the outbox are closed, closed, open."""
    tables = tables_of(scene)
    with open_target(scene.settings, autocommit=True) as target:
        found = latest(target)
        assert found is not None
        fenced = fence.is_source_fenced(scene.database, "write-block", ())
        return found.state, fenced, tables.is_closed(target), tables.is_outbox_open(target)


def next_command(scene: LibraryScene) -> str:
    """Return the command that the status names after a kill."""
    need = status.attention(scene.settings)
    assert need is not None
    assert need.commands
    return need.commands[0]


@pytest.mark.slow
@pytest.mark.proves("6-T10")
def test_killed_at_its_steps_there_and_back(library: LibraryScene) -> None:
    for step in CUTOVER:
        for moment in MOMENTS:
            assert killed_at(f"cutover.{step}.{moment}", library, "cutover", "run", "--yes"), (step, moment)
            begun_after = _CUTOVER.index(step) > _CUTOVER.index(POINT_OF_NO_RETURN)
            assert next_command(library) == (status.RUN if begun_after else status.ABORT)
    ended, said = call(library, "cutover", "run", "--yes")
    assert ended == UNVERIFIED, said
    assert sides(library) == ("cut-over", True, False, True)
    assert library.pairs() == library.rows()

    library.work(library.postgres, NOW + timedelta(seconds=5))
    with on_postgres(library) as scheduler:
        scheduler.add_job("json:dumps", "interval", hours=1, args=["new"], id="new", next_run_time=None)
        scheduler.add_job("json:dumps", "interval", hours=1, args=["brief"], id="brief", next_run_time=None)
    for point in CARRYING:
        assert killed_at(point, library, "tail", "--until-caught-up"), point
        library.execute("UPDATE apscheduler_jobs SET next_run_time = next_run_time + 1 WHERE id = 'future'")
    with on_postgres(library) as scheduler:
        scheduler.remove_job("brief")
    before = library.documents()

    for step in ROLLBACK:
        for moment in MOMENTS:
            assert killed_at(f"cutover.{step}.{moment}", library, "rollback", "run", "--yes"), (step, moment)
            assert next_command(library) == status.ROLLBACK
            _, fenced, closed, _ = sides(library)
            assert fenced or closed  # never both open
    ended, said = call(library, "rollback", "run", "--yes")
    assert ended == 0, said
    assert sides(library) == ("rolled-back", False, True, False)
    assert library.pairs() == library.rows()
    assert "new" in library.pairs()
    gone = before.keys() - library.pairs().keys()
    assert {"once-past", "once-late"} <= gone
    assert gone <= exported(library)
    with on_mongo(library) as scheduler:
        scheduler.pause_job("hourly")
    library.follow()
    assert library.pairs() == library.rows()
    assert call(library, "cutover", "plan")[0] == 0


@pytest.mark.slow
@pytest.mark.proves("6-T10")
def test_killed_at_its_steps_there_and_back_with_agenda(agenda: AgendaScene) -> None:
    cutover, rollback = OF_AGENDA
    for step in cutover:
        for moment in MOMENTS:
            assert killed_at(f"cutover.{step}.{moment}", agenda, "cutover", "run", "--yes"), (step, moment)
    ended, said = call(agenda, "cutover", "run", "--yes")
    assert ended == UNVERIFIED, said
    assert sides(agenda) == ("cut-over", True, False, True)
    executed = agenda.executed(agenda.postgres, AGENDA_NOW + SECOND)
    assert executed == ["hourly", "once past", "overdue"]  # each once; the locked and the disabled one not

    for step in rollback:
        for moment in MOMENTS:
            assert killed_at(f"cutover.{step}.{moment}", agenda, "rollback", "run", "--yes"), (step, moment)
            assert next_command(agenda) == status.ROLLBACK
            _, fenced, closed, _ = sides(agenda)
            assert fenced or closed  # never both open
    ended, said = call(agenda, "rollback", "run", "--yes")
    assert ended == 0, said
    assert sides(agenda) == ("rolled-back", False, True, False)
    agenda.follow()
    assert not agenda.differs()
    assert agenda.executed(agenda.mongo, AGENDA_NOW + SECOND) == []  # what PostgreSQL executed is not due again


def exported(scene: LibraryScene) -> set[str]:
    """Return the ids of the documents in the files of all calls of the rollback."""
    files = Path(scene.folder).glob("backups/cutover-*.rollback-1*/removed.jobs.jsonl")
    return {json.loads(line)["_id"] for file in files for line in file.read_text().splitlines()}


@pytest.mark.slow
def test_an_interrupted_cutover_is_undone_by_the_command_that_the_status_names(library: LibraryScene) -> None:
    assert killed_at(f"cutover.{POINT_OF_NO_RETURN}.begun", library, "cutover", "run", "--yes")
    assert sides(library) == ("running", True, False, True)
    command = next_command(library).removeprefix("migrator ").split()
    ended, said = call(library, *command)
    assert ended == 0, said
    assert sides(library) == ("aborted", False, False, False)
    with on_mongo(library) as scheduler:
        scheduler.pause_job("hourly")
