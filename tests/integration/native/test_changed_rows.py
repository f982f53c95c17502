"""What an application did in a library's own tables before any cutover is not overwritten."""

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import psycopg
import pytest
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from bson import ObjectId
from pymongo.database import Database

from migrator.config import Settings, TailSettings, TargetSettings
from migrator.connections.postgres import open_target
from migrator.errors import RefusedError
from migrator.exit_status import USAGE
from migrator.parity.check import check_parity
from migrator.parity.repair import apply_repair, plan_repair
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope, plan_backfill
from migrator.pipeline.quarantine import retry
from migrator.pipeline.tail import positions, workers
from migrator.pipeline.tail.loop import Tail
from migrator.pipeline.tail.reread import read_again
from migrator.pipeline.target import NativeTables
from migrator.schema import decisions, native_target, revisions
from migrator.schema.decisions import UNNAMED
from migrator.sources import profile_of
from migrator.targets import load_target
from migrator.testing.servers import binaries
from tests.agenda_documents import NOON, job_6
from tests.apscheduler_documents import real
from tests.conftest import NEWEST, Cluster, Clusters
from tests.copying import mapped_settings, quarantine, run, settings_for, write_config
from tests.native_tables import BY_NAME, prepare
from tests.tailing import caught_up, compared

Document = dict[str, Any]


class Library(msgspec.Struct, frozen=True):
    """A library with three jobs in MongoDB."""

    name: str
    jobs: tuple[str, str, str]
    shape: str
    collection: str
    table: str
    """Of its jobs."""
    column: str
    """The column that holds the name of a job."""
    field: str
    """The field that holds it."""
    due: str
    """The column that says when a job is due, which the application writes."""
    due_field: str
    later: Any
    """A later time for that field."""

    def documents(self) -> list[Document]:
        if self.name == "agenda":
            return [job_6(_id=ObjectId(), name=name) for name in self.jobs]
        return [real("3.11.3")[name] for name in self.jobs]


LIBRARIES = (
    Library(
        "agenda", ("job 0", "job 1", "job 2"), "agenda-3.0", "agendaJobs", "agenda_jobs", "name", "name",
        "next_run_at", "nextRunAt", NOON + timedelta(days=9),
    ),
    Library(
        "apscheduler", ("cron-all", "interval-90s", "cron-jitter"), "apscheduler-3.11", "jobs", "apscheduler_jobs",
        "id", "_id", "next_run_time", "next_run_time", 1900000000.0,
    ),
)  # fmt: skip


class Scene:
    """A copy of the jobs of a library, without a cutover."""

    def __init__(self, library: Library, database: Database[Any], dsn: str) -> None:
        self.library, self.dsn = library, dsn
        self.jobs = database[library.collection]
        self.jobs.insert_many(library.documents())
        prepare(BY_NAME[library.shape], dsn)
        target = TargetSettings(name=library.name)
        self.settings = settings_for(database, dsn, profile=library.name, target=target)
        revisions.upgrade(dsn, branches=("migration",))
        with psycopg.connect(dsn, autocommit=True) as connection:
            native_target.prepare(connection, load_target(library.name), target)
        assert backfill(self.settings, Scope()).written == len(library.jobs)

    def rows(self) -> list[Any]:
        query = f"SELECT to_jsonb(stored) FROM {self.library.table} AS stored ORDER BY {self.library.column}"
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(query.encode()).fetchall()

    def execute(self, statement: str) -> None:
        """Execute a statement of another program."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())

    def changes(self, job: int = 0) -> None:
        """Change a job as the application does in PostgreSQL."""
        due = "now()" if self.library.name == "agenda" else "extract(epoch FROM now())"
        where = f"WHERE {self.library.column} = '{self.library.jobs[job]}'"
        self.execute(f"UPDATE {self.library.table} SET {self.library.due} = {due} {where}")

    def deletes(self, job: int = 0) -> None:
        """Delete a job as the application does in PostgreSQL."""
        self.execute(f"DELETE FROM {self.library.table} WHERE {self.library.column} = '{self.library.jobs[job]}'")

    def edit(self, job: int = 0) -> None:
        """Change the document of a job."""
        due = {self.library.due_field: self.library.later}
        assert self.jobs.update_one({self.library.field: self.library.jobs[job]}, {"$set": due}).matched_count == 1

    @contextmanager
    def unchanged(self, match: str) -> Iterator[None]:
        """Expect that what happens is refused, and that all rows stay as they are."""
        before = self.rows()
        with pytest.raises(RefusedError, match=match):
            yield
        assert self.rows() == before
        assert quarantine(self.dsn) == []

    def counts(self) -> tuple[int, int]:
        """Return the rows that another program has changed and deleted."""
        target = load_target(self.library.name)
        table = next(table for table in target.tables if table.name == self.library.table)
        with open_target(self.settings, autocommit=True) as connection:
            name = native_target.library_name(table, target, self.settings.target)
            return native_target.rows_of_others(connection, table, target, name)


@pytest.fixture(params=[pytest.param(library, id=library.name) for library in LIBRARIES])
def scene(request: pytest.FixtureRequest, mongo_database: Database[Any], postgres_dsn: str) -> Scene:
    return Scene(request.param, mongo_database, postgres_dsn)


@pytest.fixture
def apscheduler(mongo_database: Database[Any], postgres_dsn: str) -> Scene:
    return Scene(LIBRARIES[1], mongo_database, postgres_dsn)


@pytest.fixture
def looked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the look before the first write see nothing, as if another program wrote just afterwards."""
    monkeypatch.setattr(NativeTables, "guard_changed", lambda *_, **__: None)


WROTE = {"changed": Scene.changes, "deleted": Scene.deletes}
every_write = pytest.mark.parametrize("wrote", WROTE)
EACH_ROW = "another program has changed or deleted rows since the tool wrote them"


def copy(scene: Scene) -> None:
    backfill(scene.settings, Scope())


def copy_again(scene: Scene) -> None:
    read_again(scene.settings, [scene.library.collection])


def follow(scene: Scene) -> None:
    caught_up(scene.settings)


def repair(scene: Scene) -> None:
    apply_repair(scene.settings, Scope())


WRITERS = {"backfill": copy, "backfill --again": copy_again, "tail": follow, "repair": repair}


@every_write
@pytest.mark.parametrize("writer", ["backfill", "repair"])
def test_a_copy_and_a_repair_are_refused_before_they_write(scene: Scene, wrote: str, writer: str) -> None:
    WROTE[wrote](scene)
    scene.edit(0)
    scene.edit(1)
    name = f"public.{scene.library.table}"
    with scene.unchanged(f"^table {name}: another program has {wrote} rows \\(1\\) since the tool wrote them"):
        WRITERS[writer](scene)


@every_write
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.usefixtures("looked_before")
def test_no_row_of_the_application_is_overwritten(scene: Scene, wrote: str, writer: str) -> None:
    WROTE[wrote](scene)
    scene.edit()
    for _ in range(2):  # and again when the command is called again
        with scene.unchanged(f"^table public.{scene.library.table}: {EACH_ROW}"):
            WRITERS[writer](scene)


@pytest.mark.usefixtures("looked_before")
def test_rows_that_were_all_deleted_are_not_inserted_again(scene: Scene) -> None:
    for job in range(3):
        scene.deletes(job)
    assert scene.rows() == []
    with scene.unchanged(EACH_ROW):
        copy(scene)


def test_a_deleted_document_deletes_no_row_that_the_application_changed(scene: Scene) -> None:
    scene.changes()
    scene.jobs.delete_one({scene.library.field: scene.library.jobs[0]})
    with scene.unchanged(EACH_ROW):
        follow(scene)
    backfill(scene.settings, Scope(), overwrite_by=UNNAMED)
    follow(scene)
    assert len(scene.rows()) == 2
    assert compared(scene.settings) == []


def test_a_tail_that_is_refused_keeps_its_position(scene: Scene) -> None:
    scene.edit(1)
    follow(scene)
    with psycopg.connect(scene.dsn) as connection:
        before = positions.tail_state(connection, scene.library.name)
    scene.changes()
    scene.edit(2)
    scene.edit(0)
    with scene.unchanged(EACH_ROW):
        follow(scene)
    with psycopg.connect(scene.dsn) as connection:
        after = positions.tail_state(connection, scene.library.name)
    assert before is not None
    assert after is not None
    assert (after.position, after.alarm) == (before.position, None)
    apply_repair(scene.settings, Scope(), overwrite=True)
    scene.edit(0)
    assert caught_up(scene.settings).reached
    assert compared(scene.settings) == []


@every_write
def test_a_write_that_is_committed_while_the_tail_waits_for_it(scene: Scene, wrote: str) -> None:
    """The tail has read the row before, and finds another one when it gets the lock."""
    scene.edit()
    where = f"WHERE {scene.library.column} = '{scene.library.jobs[0]}'"
    table, column = scene.library.table, scene.library.column
    statement = {
        "changed": f"UPDATE {table} SET {column} = {column} {where}",
        "deleted": f"DELETE FROM {table} {where}",
    }
    with psycopg.connect(scene.dsn) as application, ThreadPoolExecutor(1) as pool:
        application.execute(statement[wrote].encode())
        tail = pool.submit(follow, scene)
        with psycopg.connect(scene.dsn, autocommit=True) as watcher:
            while watcher.execute(WAITING, (application.info.backend_pid,)).fetchone() == (0,):
                assert not tail.done()
        application.commit()
        with pytest.raises(RefusedError, match=EACH_ROW):
            tail.result()
    assert scene.counts() == ((1, 0) if wrote == "changed" else (0, 1))


WAITING = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"


def test_worker_processes_of_the_tail_overwrite_nothing_either(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(workers, "LEAST_DOCUMENTS", 0)
    is_ready = workers._Worker.is_ready

    def patient(self: workers._Worker) -> bool:
        if not self._ready:
            self.pipe.poll(240)
        return is_ready(self)

    monkeypatch.setattr(workers._Worker, "is_ready", patient)
    scene.settings = msgspec.structs.replace(scene.settings, tail=TailSettings(workers=2))
    with Tail(scene.settings) as tail:
        scene.edit(1)
        tail.run("caught-up")
        scene.changes()
        scene.edit()
        with scene.unchanged(EACH_ROW):
            tail.run("caught-up")
    assert "a worker applied nothing" in capfd.readouterr().err


VACUUMS: dict[str, Callable[[str], str]] = {
    "nothing": lambda _: "SELECT 1",
    "freeze": lambda table: f"VACUUM (FREEZE, ANALYZE) {table}",
    "full": lambda table: f"VACUUM (FULL, FREEZE) {table}",
    "cluster": lambda table: f"CLUSTER {table} USING {table}_pkey",
}


def test_frozen_rows_on_every_server(mongo_database: Database[Any], any_postgres_dsn: str) -> None:
    scene = Scene(LIBRARIES[1], mongo_database, any_postgres_dsn)
    for vacuum in VACUUMS.values():
        scene.execute(vacuum(scene.library.table))
    scene.edit(1)
    follow(scene)
    assert scene.counts() == (0, 0)
    scene.changes()
    for vacuum in VACUUMS.values():
        scene.execute(vacuum(scene.library.table))
    scene.edit()
    with scene.unchanged(EACH_ROW):
        follow(scene)


@pytest.mark.parametrize("vacuum", VACUUMS)
def test_the_tool_writes_over_its_own_rows_again_and_again(scene: Scene, vacuum: str) -> None:
    table = scene.library.table
    beside = f"migration_{scene.library.name}.{table}_origins"

    def vacuumed() -> None:
        assert scene.counts() == (0, 0)
        scene.execute(VACUUMS[vacuum](table))
        if vacuum != "cluster":
            scene.execute(VACUUMS[vacuum](beside))
        assert scene.counts() == (0, 0)

    vacuumed()
    assert backfill(scene.settings, Scope()).written == 0
    for expected in (1, 0):
        scene.edit(0)
        assert backfill(scene.settings, Scope()).written == expected
        vacuumed()
        document = scene.jobs.find_one_and_delete({scene.library.field: scene.library.jobs[1]})
        assert document is not None
        follow(scene)
        vacuumed()
        scene.jobs.insert_one(document)
        follow(scene)
        vacuumed()
    due = {scene.library.due_field: scene.library.later}
    scene.jobs.update_many({}, {"$set": due})
    assert apply_repair(scene.settings, Scope()).written == 2
    vacuumed()
    assert read_again(scene.settings, [scene.library.collection]).written == 0
    assert compared(scene.settings) == []
    scene.changes()
    scene.deletes(1)
    scene.execute(VACUUMS[vacuum](table))
    assert scene.counts() == (1, 1)


def test_the_parity_check_says_who_wrote_what_differs(scene: Scene) -> None:
    scene.changes(0)
    scene.deletes(1)
    scene.edit(2)
    findings = [one for found in check_parity(scene.settings, Scope()).collections for one in found.findings]
    causes = {(one.side, one.path): one.cause for one in findings}
    assert causes["missing", ""] == "deleted-row"
    rows = sorted(one.cause for one in findings if one.path == scene.library.due)
    assert len(rows) == 2, "that of the application, and that of the document"
    assert rows[0] == "foreign-writer"
    assert rows[1] != "foreign-writer"
    assert plan_repair(scene.settings, Scope()).documents[scene.library.collection]
    assert any(
        "has changed rows (1) and deleted rows (1)" in risk for risk in plan_backfill(scene.settings, Scope()).risks
    )


def test_the_command_that_the_refusal_names(scene: Scene, tmp_path: Path) -> None:
    config = str(write_config(tmp_path, scene.settings))
    scene.changes(0)
    scene.deletes(1)
    before = scene.rows()
    status, _, said = run("backfill", "--config", config, cwd=tmp_path)
    assert (status, scene.rows()) == (USAGE, before)
    command = said.strip().rpartition("and call ")[2]
    assert command == native_target.OVERWRITE
    status, _, said = run(*shlex.split(command)[1:], "--dry-run", "--config", config, cwd=tmp_path)
    assert (status, scene.rows()) == (0, before), said
    status, out, said = run(*shlex.split(command)[1:], "--config", config, cwd=tmp_path)
    assert status == 0, out + said
    assert (scene.counts(), len(scene.rows())) == ((0, 0), len(scene.library.jobs))
    assert compared(scene.settings) == []
    with psycopg.connect(scene.dsn) as connection:
        (made,) = decisions.recorded(connection)
    assert (made.kind, list(made.detail["rows"].values())) == (decisions.OVERWRITTEN, [2])


def test_the_option_of_a_repair(apscheduler: Scene, tmp_path: Path) -> None:
    config = str(write_config(tmp_path, apscheduler.settings))
    apscheduler.changes(0)
    apscheduler.deletes(1)
    option = "--overwrite-changed-rows"
    status, _, said = run("parity", option, "--config", config, cwd=tmp_path)
    assert status == USAGE, said
    status, out, said = run("parity", "--repair", "apply", "--yes", option, "--config", config, cwd=tmp_path)
    assert status == 0, out + said
    assert apscheduler.counts() == (0, 0)
    with psycopg.connect(apscheduler.dsn) as connection:
        (made,) = decisions.recorded(connection)
    assert made.detail["overwritten"] == {"apscheduler/apscheduler_jobs": 2}


def test_what_the_application_writes_after_the_option_is_refused_again(scene: Scene) -> None:
    scene.changes()
    backfill(scene.settings, Scope(), overwrite_by=UNNAMED)
    scene.changes()
    with scene.unchanged("changed rows \\(1\\)"):
        copy(scene)


def test_what_apscheduler_itself_does(apscheduler: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library writes a job that has run, and removes one that has run for the last time."""
    application = ModuleType("acme_jobs")
    application.__dict__["report"] = print
    monkeypatch.setitem(sys.modules, "acme_jobs", application)
    store = SQLAlchemyJobStore(apscheduler.dsn.replace("postgresql://", "postgresql+psycopg://"))
    store.start(BackgroundScheduler(), "default")
    job, last = (store.lookup_job(name) for name in apscheduler.library.jobs[:2])
    assert job is not None
    job._modify(next_run_time=job.trigger.get_next_fire_time(job.next_run_time, job.next_run_time))
    store.update_job(job)
    store.remove_job(last.id)
    store.shutdown()
    apscheduler.edit(0)
    for writer in (copy, repair, follow):
        with apscheduler.unchanged("another program has changed"):
            writer(apscheduler)


def test_doctor_and_the_gates_of_a_cutover_name_the_table(apscheduler: Scene, tmp_path: Path) -> None:
    config = str(write_config(tmp_path, apscheduler.settings))
    said = [run(*words, "--config", config, cwd=tmp_path)[1] for words in (("doctor",), ("cutover", "plan"))]
    apscheduler.changes()
    told = [run(*words, "--config", config, cwd=tmp_path) for words in (("doctor",), ("cutover", "plan"))]
    for before, (status, out, _) in zip(said, told, strict=True):
        assert "has changed rows (1)" not in before
        assert status != 0
        assert "table public.apscheduler_jobs: another program has changed rows (1)" in out


def test_a_document_from_quarantine_overwrites_nothing(apscheduler: Scene) -> None:
    """A copy has put it there, and the application has worked with its row since."""
    apscheduler.jobs.update_one({"_id": apscheduler.library.jobs[0]}, {"$set": {"next_run_time": "soon"}})
    assert backfill(apscheduler.settings, Scope()).quarantined == 1
    apscheduler.changes()
    apscheduler.edit()
    before = apscheduler.rows()
    with pytest.raises(RefusedError, match=EACH_ROW):
        retry(apscheduler.settings)
    assert (apscheduler.rows(), len(quarantine(apscheduler.dsn))) == (before, 1)


def in_a_view(folder: Path, database: Database[Any], dsn: str) -> Settings:
    """Return the settings of a copy into a view."""
    settings = mapped_settings(database, dsn, folder, VIEW, "acme")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE held (id text PRIMARY KEY, title text); CREATE VIEW jobs AS TABLE held")
    revisions.upgrade(dsn, branches=("migration",))
    profile_of(settings.source, settings.target)
    with psycopg.connect(dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target("acme"), settings.target)
    return settings


VIEW = """
[source]
name = "acme"
[target]
name = "acme"
[target.tables.jobs]
key = ["id"]
[target.tables.jobs.columns]
id = "text not null"
title = "text"
[collections.jobs]
tables = ["jobs"]
[collections.jobs.fields]
_id = { to = "jobs.id" }
title = { to = "jobs.title" }
"""


def test_nothing_is_seen_through_a_view(tmp_path: Path, mongo_database: Database[Any], postgres_dsn: str) -> None:
    mongo_database["jobs"].insert_many([{"_id": key, "title": key} for key in ("a", "b", "c")])
    settings = in_a_view(tmp_path, mongo_database, postgres_dsn)
    assert backfill(settings, Scope()).written == 3
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("UPDATE held SET title = 'of the application' WHERE id = 'a'")
    assert [one[1:3] for one in compared(settings) if one[2] != "aggregate"] == [("a", "row")]
    assert backfill(settings, Scope()).written == 1
    mongo_database["jobs"].update_one({"_id": "b"}, {"$set": {"title": "later"}})
    mongo_database["jobs"].delete_one({"_id": "c"})
    caught_up(settings)
    assert compared(settings) == []
    assert backfill(settings, Scope(), overwrite_by=UNNAMED).written == 0


def restored(scene: Scene, cluster: Cluster, file: Path, *how: str) -> None:
    """Restore the database of a scene into another one, which takes its place."""
    folder, dsn = binaries.postgres(NEWEST) / "bin", cluster.empty()
    subprocess.run([folder / "pg_dump", "--format=custom", f"--file={file}", scene.dsn], check=True)
    subprocess.run([folder / "pg_restore", *how, f"--dbname={dsn}", file], check=True)
    postgres = msgspec.structs.replace(scene.settings.postgres, dsn=dsn)
    scene.settings, scene.dsn = msgspec.structs.replace(scene.settings, postgres=postgres), dsn


REWRITES: dict[str, tuple[Callable[..., None], int]] = {
    "restored": (restored, 3),
    "restored in one transaction": (lambda *of: restored(*of, "--single-transaction"), 0),
    "rewritten": (lambda scene, *_: scene.execute(f"ALTER TABLE {scene.library.table} SET UNLOGGED"), 3),
}


@pytest.mark.parametrize("rewrite", REWRITES)
def test_what_writes_each_row_anew(apscheduler: Scene, clusters: Clusters, tmp_path: Path, rewrite: str) -> None:
    """The tool takes them for rows of another program, or does not see what another program has changed."""
    cluster, before = clusters.get(NEWEST), apscheduler.dsn
    apscheduler.changes()
    write, changed = REWRITES[rewrite]
    write(apscheduler, cluster, tmp_path / "dump")
    assert apscheduler.counts() == (changed, 0)
    backfill(apscheduler.settings, Scope(), overwrite_by=UNNAMED)
    apscheduler.edit(1)
    follow(apscheduler)
    assert apscheduler.counts() == (0, 0)
    assert compared(apscheduler.settings) == []
    if apscheduler.dsn != before:
        cluster.drop(apscheduler.dsn)
