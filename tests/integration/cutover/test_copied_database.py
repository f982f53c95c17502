"""A copy is not a scheduler: what may write to it before the cutover, and what the cutover says about what did."""

import json
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from migrator.cli import cli
from migrator.config import Settings, load_settings
from migrator.cutover import parallel
from migrator.errors import CopyError, MigratorError, RefusedError
from migrator.pipeline.sessions import Sessions, close_cached
from migrator.pipeline.tail.loop import Tail
from migrator.scheduler.client import Scheduler
from migrator.scheduler.handlers import Registry
from migrator.scheduler.models import ScheduleRequest
from migrator.scheduler.process import Worker
from migrator.schema.decisions import Approval
from migrator.store import open_readable_store, open_scheduler_store, open_side, open_store
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.consent import consenting
from tests.cutting_over import Scene, scene
from tests.ordinary_user import hand_over, ordinary_folder
from tests.scheduler_processes import until

BY = Approval("ann", "the day before")
SHORT = (
    '\n[cutover]\nstability = "0s"\nslot_tolerance = "10ms"\nparity_check_max_age = "1d"\n[scheduler]\npoll = "100ms"\n'
)


@pytest.fixture
def ready(request: pytest.FixtureRequest, auth_server: MongoServer, scheduler_dsn: str) -> Iterator[Scene]:
    with (
        ordinary_folder() as folder,
        scene(auth_server, fresh_name(), scheduler_dsn, folder, "other", profile=request.param) as made,
    ):
        made.config.write_text(made.config.read_text() + SHORT)
        hand_over(made.config)
        made.settings = load_settings(str(made.config))
        yield made


def called(site: Scene, command: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, consenting([*shlex.split(command), "--config", str(site.config)]))
    close_cached()
    if isinstance(done.exception, MigratorError):
        return done.exception.exit_status, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def on_postgres(site: Scene, copy: str = "refused") -> Settings:
    return load_settings(
        str(site.config), {"MIGRATOR_PERSISTENCE__SCHEDULER": "postgres", "MIGRATOR_PERSISTENCE__COPY": copy}
    )


def rows(site: Scene, statement: str, *given: object) -> list[Any]:
    with psycopg.connect(site.dsn, autocommit=True) as connection:
        return connection.execute(statement.encode(), given).fetchall()


def written(site: Scene) -> dict[str, list[Any]]:
    return {name: rows(site, f"SELECT t::text FROM scheduler.{name} AS t ORDER BY 1") for name in WRITTEN}


WRITTEN = ("schedules", "triggers", "runs", "execution_logs", "run_summaries", "workers", "locks", "audit", "handlers")
DRY = """SELECT 1 FROM scheduler.runs WHERE source IS NULL AND result = '{"dry_run": true}'"""
REQUEST = ScheduleRequest(name="new", handler_name="copy", cron="30 2 * * *", timezone="UTC", created_by="ann")


def registry_of(site: Scene) -> Registry:
    """Return a registry with every handler of the copy; none is ever called in a parallel run."""
    made, names = Registry(), rows(site, "SELECT DISTINCT coalesce(handler_name, mode) FROM scheduler.schedules")
    for (name,) in names:
        if name:
            made.handler(name)(called_by_mistake)
    return made


def called_by_mistake(**_: object) -> None:
    raise AssertionError("a handler was called that is not idempotent")


@pytest.mark.proves("6-N2")
@pytest.mark.parametrize("ready", ["agenda", "stellaops"], indirect=True)
def test_no_client_and_no_process_works_on_a_copy(ready: Scene) -> None:
    ready.ready()
    before, settings = written(ready), on_postgres(ready)
    why = f"is a copy of {ready.profile}, and no cutover has made it active"
    for open_it in (open_store, open_scheduler_store):
        with pytest.raises(CopyError, match=why):
            open_it(settings)
    with pytest.raises(CopyError, match=why):
        Worker(settings, registry_of(ready)).run("once")
    variables = {"MIGRATOR_PERSISTENCE__SCHEDULER": "postgres"}
    arguments = ["scheduler", "run", "--handlers", "tests.scheduled_work:registry", "--config", str(ready.config)]
    refused = CliRunner().invoke(cli, arguments, env=variables)
    assert isinstance(refused.exception, CopyError)
    assert refused.exception.exit_status == 2
    # what a process that was there before would claim or fire
    with closing(open_side(settings, "postgres")) as store:
        assert store.queue.claim("late", 100, timedelta(minutes=1)) == []
    assert written(ready) == before

    # reading stays possible
    for command in ("scheduler status", "scheduler metrics", "jobs list --backend postgres"):
        done = CliRunner().invoke(cli, [*command.split(), "--config", str(ready.config)], env=variables)
        assert (done.exit_code, done.exception) == (0, None), command
    with closing(open_readable_store(settings)) as store:
        assert store.backend == "postgres"
    assert written(ready) == before


@pytest.mark.parametrize("ready", ["agenda"], indirect=True)
def test_a_rehearsal_is_recorded_and_allows_no_cutover_until_its_rows_are_gone(ready: Scene) -> None:
    ready.ready()
    asked = f"cutover plan --allow-quarantined {ready.quarantined}"
    assert called(ready, asked)[0] == 0
    with closing(open_store(on_postgres(ready, "may be changed"))) as store:
        client = Scheduler(store, rows(ready, "SELECT tenant_id FROM scheduler.schedules LIMIT 1")[0][0])
        made = client.schedule(REQUEST)
        client.trigger_now(made.id, by="ann")
        copied = next(
            one for one in client.list().jobs if one.schedule.source is not None and one.schedule.status == "scheduled"
        )
        client.pause(copied.id, by="ann")
    with closing(open_store(on_postgres(ready))) as store:  # the database says so, whatever a configuration says
        assert Scheduler(store, made.schedule.tenant_id).get(made.id) is not None

    status, said = called(ready, asked)
    assert status == 4
    assert "NO  rows of the copy: the copy may be changed since" in said
    assert "call migrator cutover clean-copy" in said
    refused = called(ready, f"cutover run --allow-quarantined {ready.quarantined} --who ann --reason day")
    assert refused[0] == 2
    assert "rows of the copy" in refused[1]

    before = written(ready)
    status, said = called(ready, "cutover clean-copy --who ann --reason over --dry-run")
    assert status == 0
    assert "runs: 1 rows came neither from the source nor from a parallel run" in said
    assert written(ready) == before
    assert called(ready, "cutover clean-copy --reason over")[0] == 2
    status, said = called(ready, "cutover clean-copy --who ann --reason over --json")
    assert status == 0
    done = json.loads(said)
    exported = {one.name for one in Path(done["folder"]).iterdir()}
    assert exported == {*(f"{table}.jsonl" for table in done["rows"]), "manifest.json"}
    assert str(made.id) in (Path(done["folder"]) / "schedules.jsonl").read_text()
    for table in ("schedules", "triggers", "runs"):
        assert rows(ready, f"SELECT 1 FROM scheduler.{table} WHERE source IS NULL") == []
    with pytest.raises(CopyError):
        open_store(on_postgres(ready))

    # copied rows that the rehearsal changed are found by the comparison, without which the gate stays closed
    assert "NO  rows of the copy: the copy was changed until" in called(ready, asked)[1]
    assert called(ready, "parity")[0] == 1
    assert called(ready, "parity --repair apply")[0] & ~8 == 0
    assert called(ready, asked)[0] == 0


@pytest.mark.parametrize("ready", ["agenda"], indirect=True)
def test_rows_made_by_hand_are_found_before_the_cutover(ready: Scene) -> None:
    ready.ready()
    rows(
        ready,
        "INSERT INTO scheduler.runs (id, tenant_id, state, created_at) SELECT gen_random_uuid(), tenant_id, 'queued',"
        " now() FROM scheduler.schedules LIMIT 1 RETURNING id",
    )
    status, said = called(ready, f"cutover plan --allow-quarantined {ready.quarantined}")
    assert status == 4
    assert "NO  rows of the copy: 1 rows of runs came neither from the source nor from a parallel run" in said
    assert called(ready, "cutover clean-copy --who ann --reason mine")[0] == 0
    assert called(ready, "parity")[0] & ~8 == 0
    assert called(ready, f"cutover plan --allow-quarantined {ready.quarantined}")[0] == 0


def test_a_fresh_start_is_active_by_itself_and_needs_a_schema(scheduler_dsn: str, postgres_dsn: str) -> None:
    variables = {"MIGRATOR_PERSISTENCE__SCHEDULER": "postgres"}
    with closing(open_store(load_settings({"postgres": {"dsn": scheduler_dsn}}, variables))) as store:
        client = Scheduler(store, "a")
        job = client.schedule(REQUEST)
        client.trigger_now(job.id, by="ann")
        assert len(client.claim("worker", limit=5)) == 1
    with pytest.raises(RefusedError, match="call migrator schema upgrade first"):
        open_store(load_settings({"postgres": {"dsn": postgres_dsn}}, variables))


def fired_by_agenda(site: Scene, name: str, slot: datetime) -> None:
    """Let the old scheduler take a slot: the next fire moves on, as Agenda moves it."""
    site.database["agendaJobs"].update_one(
        {"name": name}, {"$set": {"nextRunAt": slot + timedelta(days=1), "lastRunAt": slot, "lastFinishedAt": slot}}
    )


@pytest.mark.proves("4-P1", "4-P2", "3-R2")
@pytest.mark.parametrize("ready", ["agenda"], indirect=True)
def test_the_documented_parallel_run_blocks_neither_the_cutover_nor_the_rollback(ready: Scene) -> None:
    jobs = ["parallel-0", "parallel-1", "parallel-2"]
    ready.ready()
    with closing(Sessions(ready.settings)) as sessions, Tail(ready.settings) as tail:
        began = parallel.begin(sessions.target, sessions.profile, BY.who, BY.reason)
        slot = began.replace(microsecond=0) + timedelta(seconds=3)
        ready.database["agendaJobs"].insert_many(
            {"name": name, "data": {}, "type": "normal", "priority": 0, "nextRunAt": slot, "repeatTimezone": "UTC"}
            | {"repeatInterval": f"{slot:%S %M %H} * * *", "lockedAt": None, "lastModifiedBy": None}
            for name in jobs
        )
        tail.run("caught-up")
        worker = Worker(on_postgres(ready), registry_of(ready))
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(worker.run)
            until(lambda: running.done() or len(rows(ready, DRY)) == len(jobs))
            worker.stop()
            assert running.result().completed == len(jobs)
        for name in jobs:
            fired_by_agenda(ready, name, slot)
        tail.run("caught-up")
        # a job that a person makes on the new side meanwhile is not lost by a rollback
        with closing(open_store(on_postgres(ready))) as store:
            tenant = rows(ready, "SELECT tenant_id FROM scheduler.schedules LIMIT 1")[0][0]
            Scheduler(store, tenant).schedule(REQUEST)
        rare = rows(ready, "SELECT id::text FROM scheduler.schedules WHERE NOT name = ANY(%s)", jobs)
        parallel.waive(sessions.target, [one for (one,) in rare], BY)
    before = {one["name"]: one for one in ready.database["agendaJobs"].find({"name": {"$in": jobs}})}
    assert called(ready, "parity")[0] & ~8 == 0
    status, said = called(ready, f"cutover plan --allow-quarantined {ready.quarantined}")
    assert status == 0, said
    status, said = called(ready, f"cutover run --allow-quarantined {ready.quarantined} --who ann --reason day")
    assert status == 0, said
    # a change of such a schedule does not make the dry run its last run
    rows(ready, "UPDATE scheduler.schedules SET description = 'seen' WHERE name = 'parallel-0' RETURNING 1")
    status, said = called(ready, "rollback plan")
    assert status == 0, said
    status, said = called(ready, "rollback run --who ann --reason back")
    assert status == 0, said
    after = {one["name"]: one for one in ready.database["agendaJobs"].find({"name": {"$in": jobs}})}
    told = ("lastRunAt", "lastFinishedAt", "failedAt", "nextRunAt", "runCount")
    assert {name: [one.get(key) for key in told] for name, one in after.items()} == {
        name: [one.get(key) for key in told] for name, one in before.items()
    }
    assert ready.database["agendaJobs"].count_documents({"name": "copy"}) == 1
    assert "not in MongoDB: runs: " in said  # the dry runs are exported
    with Tail(ready.settings) as tail:
        tail.run("caught-up")
    status, said = called(ready, "parity")
    assert status == 0, said
    assert called(ready, "cutover status")[0] == 0
    assert rows(ready, "SELECT 1 FROM scheduler.runs WHERE source IS NULL") == []


@pytest.mark.parametrize("ready", ["agenda", "stellaops"], indirect=True)
def test_parity_counts_what_postgresql_changed_since_the_cutover_apart(ready: Scene) -> None:
    ready.ready()
    allowed = f"--allow-quarantined {ready.quarantined}"
    status, said = called(ready, f"cutover run {allowed} --who ann --reason day")
    assert status == 0, said
    ids = [identity for (identity,) in rows(ready, "SELECT id FROM scheduler.schedules ORDER BY status, id")]
    untouched = ids[0]
    with closing(open_store(load_settings(str(ready.config)))) as store:
        client = Scheduler(store, rows(ready, "SELECT tenant_id FROM scheduler.schedules LIMIT 1")[0][0])
        made = client.schedule(REQUEST)
        client.trigger_now(made.id, by="ann")
        for claim in client.claim("worker", limit=100):
            client.finish(claim)
        copied = [one for one in client.list().jobs if one.schedule.source is not None and one.id != untouched]
        for job in copied[:1]:
            client.unschedule(job.id, by="ann")
        for job in [one for one in copied[1:] if one.schedule.status == "scheduled"][:1]:
            client.pause(job.id, by="ann")
    # what a leader writes when it first plans a trigger, of which no row says when it changed
    rows(ready, "UPDATE scheduler.triggers SET next_fire_at = '2099-01-01Z' WHERE next_fire_at IS NULL RETURNING 1")

    def judged() -> tuple[int, str]:
        status, said = called(ready, f"parity {allowed}")
        assert "PostgreSQL is active since 20" in said
        assert "created on PostgreSQL, and not compared: 1 schedules" in said
        return status, said

    # in the window, before and after the changes were carried, and when it is closed
    for step in ((), ("tail --until-caught-up",), ("cutover finish --now --who ann --reason over",)):
        for command in step:
            assert called(ready, command)[0] == 0, command
        status, said = judged()
        assert status & ~4 == 0, said
        assert not copied or " changed on PostgreSQL since the cutover" in said
        assert rows(ready, "SELECT clean, complete FROM migration.parity_checks ORDER BY started_at DESC LIMIT 1") == [
            (True, False)
        ]
    # a row that nobody should have touched is a difference as ever
    rows(ready, "UPDATE scheduler.schedules SET name = name || '!' WHERE id = %s RETURNING 1", untouched)
    status, said = judged()
    assert status & 1, said
    assert "1 different" in said


@pytest.mark.parametrize("ready", ["celerybeat"], indirect=True)
def test_schedules_that_do_not_fire_at_once_are_counted_before_and_after_the_cutover(ready: Scene) -> None:
    ready.ready()
    unplanned = (
        "SELECT count(DISTINCT schedule_id) FROM scheduler.triggers AS t JOIN scheduler.schedules AS s"
        " ON s.id = t.schedule_id WHERE t.next_fire_at IS NULL AND t.enabled AND s.enabled AND t.kind <> 'event'"
    )
    ((bare,),), ((every,),) = (
        rows(ready, unplanned),
        rows(ready, "SELECT count(*) FROM scheduler.schedules WHERE enabled"),
    )
    assert every >= bare > 0
    later = "the first leader of migrator scheduler run that has their handlers computes it, from then on"
    unserved = f"no known process of migrator scheduler run works for {every:,} of {every:,} schedules"
    expected = [
        f"{bare:,} of {every:,} schedules have no next fire: {later}",
        f"{unserved}: they do not fire until one does",
    ]
    status, said = called(ready, f"cutover plan --allow-quarantined {ready.quarantined}")
    assert (status, [line for line in said.splitlines() if line in expected]) == (0, expected), said
    status, said = called(ready, f"cutover run --allow-quarantined {ready.quarantined} --who ann --reason day")
    assert (status, [line for line in said.splitlines() if line in expected]) == (0, expected), said
    assert rows(ready, unplanned) == [(bare,)]

    # a worker that has the handlers of all but one computes them, and is counted
    names = [name for (name,) in rows(ready, "SELECT DISTINCT coalesce(handler_name, mode) FROM scheduler.schedules")]
    registry = Registry()
    for name in names[1:]:
        registry.handler(name)(called_by_mistake)
    Worker(load_settings(str(ready.config)), registry).run("once")
    left = rows(ready, f"{unplanned} AND coalesce(s.handler_name, s.mode) <> %s", names[0])
    assert left == [(0,)]
