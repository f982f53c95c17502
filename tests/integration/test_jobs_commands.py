"""``migrator jobs`` through the command line, the same on both databases; and what it refuses to change."""

import json
import re
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import psycopg
import pytest
from click.testing import CliRunner
from pymongo import MongoClient

from migrator.cli import cli, job_views
from migrator.config import MongoSettings, PersistenceSettings, PostgresSettings, Settings, load_settings
from migrator.errors import BackendMovedError, ConflictError, RefusedError, UnreachableError, UsageError
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.records import Handler, Schedule, WorkerRecord
from migrator.scheduler import firing
from migrator.scheduler.client import Scheduler
from migrator.scheduler.models import Job, ScheduleRequest
from migrator.scheduler.operations import Jobs
from migrator.scheduler.process import retain
from migrator.scheduler.worker import Scope as WorkerScope
from migrator.scheduler.worker import scope_metadata
from migrator.store import open_readable_store, open_scheduler_store, prepare
from migrator.store.epoch import Epoch
from migrator.store.mongo import epoch as mongo_epoch
from migrator.store.postgres import epoch as postgres_epoch
from migrator.store.protocols import Store
from migrator.store.queue import HandlerFilter
from migrator.testing.servers.mongo import MongoServer
from tests import foreign_history
from tests.conftest import fresh_name
from tests.copying import run_of, settings_for
from tests.integration.test_process_harmless import target_rows
from tests.stellaops_documents import fresh

BACKENDS = ["postgres", "mongo"]


class Place:
    """A database with a tenant of its own for each test, and the command line on it."""

    def __init__(self, settings: Settings, store: Store, variables: dict[str, str]) -> None:
        self.settings, self.store, self.variables = settings, store, variables
        self.tenant = f"t-{uuid4().hex[:8]}"

    def client(self, tenant: str | None = None) -> Scheduler:
        return Scheduler(self.store, tenant or self.tenant)

    def make(self, name: str, tenant: str | None = None, **values: Any) -> Job:  # noqa: ANN401 - fields have all types
        least: dict[str, Any] = {"handler_name": "copy", "cron": "30 2 * * *", "created_by": "ann"}
        return self.client(tenant).schedule(ScheduleRequest(name=name, **least | values))

    def fail(self, job: Job, state: Any = "error", error: str = "refused: no such host") -> UUID:  # noqa: ANN401 - a word
        """Let a run of the job end in this state, for good; return its id."""
        tenant = job.schedule.tenant_id
        run = self.client(tenant).trigger_now(job.id)
        (claim,) = (one for one in self.client(tenant).claim("w", 100) if one.run.id == run.id)
        assert self.client(tenant).finish(claim, state, error=None if state == "completed" else error, final=True)
        return run.id

    def audit(self, job: Job) -> tuple[str, str, str | None]:
        """Return action, actor and message of the newest entry of a job."""
        with self.store.session(job.schedule.tenant_id) as session:
            (entry,) = session.audit.list(1, schedule_id=job.id)
        assert entry.actor is not None
        return entry.action, json.loads(entry.actor)["actorId"], entry.message

    def call(self, words: str, *arguments: str) -> tuple[int, str, str]:
        """Return status, standard output and standard error; raise what the command raises."""
        done = CliRunner().invoke(cli, ["jobs", *words.split(), *arguments], env=self.variables)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, done.stderr

    def json(self, words: str, *arguments: str, status: int = 0) -> Any:  # noqa: ANN401 - a JSON document
        found, said, _ = self.call(words, *arguments, "--json")
        assert found == status, said
        return json.loads(said)

    def state(self, job: Job) -> str | None:
        found = self.client(job.schedule.tenant_id).get(job.id)
        return None if found is None else found.schedule.status


@pytest.fixture(scope="module", params=BACKENDS)
def opened(
    request: pytest.FixtureRequest,
    mongo_server: MongoServer,
    clusters: Any,  # noqa: ANN401 - of the session
) -> Iterator[Place]:
    backend, name = request.param, fresh_name()
    variables = {"MIGRATOR_PERSISTENCE__SCHEDULER": backend}
    cluster = clusters.get(18)
    dsn = cluster.scheduler() if backend == "postgres" else ""
    if backend == "postgres":
        variables["MIGRATOR_POSTGRES__DSN"] = dsn
    else:
        variables |= {"MIGRATOR_MONGO__URI": mongo_server.uri, "MIGRATOR_MONGO__DATABASE": name}
    settings = Settings(
        mongo=MongoSettings(uri=mongo_server.uri, database=name),
        postgres=PostgresSettings(dsn=dsn or None),
        persistence=PersistenceSettings(scheduler=backend),
    )
    with open_scheduler_store(settings) as store:
        prepare(store, lambda _: True)
        yield Place(settings, store, variables)
    if backend == "postgres":
        cluster.drop(dsn)
    else:
        with MongoClient[dict[str, Any]](mongo_server.uri) as client:
            client.drop_database(name)


@pytest.fixture
def place(opened: Place) -> Place:
    return Place(opened.settings, opened.store, opened.variables)


@pytest.mark.proves("5-A2")
def test_a_list_has_state_next_fire_last_outcome_and_the_total(place: Place) -> None:
    jobs = [place.make(f"nightly {n}", tags=("night",)) for n in range(3)]
    place.make("hourly", cron="0 * * * *", enabled=False)
    place.fail(jobs[1])
    status, said, _ = place.call(f"list --tenant {place.tenant}")
    lines = said.splitlines()
    assert (status, lines[0].split()[:4], len(lines)) == (0, ["id", "tenant", "name", "state"], 6)
    assert [line.split("  ")[2].strip() for line in lines[1:5]] == ["hourly", "nightly 0", "nightly 1", "nightly 2"]
    assert "paused, disabled" in lines[1]
    assert lines[2].rstrip().endswith("Z  -")
    assert "error 2" in lines[3]
    assert lines[5].startswith("1 to 4 of 4 jobs in ")
    assert place.call(f"list --tenant {place.tenant} --limit 2")[1].splitlines()[-1].endswith("next page: --offset 2")
    found = place.json(f"list --tenant {place.tenant} --limit 2 --offset 2")
    assert ([one["name"] for one in found["jobs"]], found["total"]) == (["nightly 1", "nightly 2"], 4)
    assert found["jobs"][0]["last_run"]["state"] == "error"
    for chosen, names in (
        (("--name", "nightly [12]"), ["nightly 1", "nightly 2"]),
        (("--name", "*ly", "--state", "paused"), ["hourly"]),
        (("--tag", "night", "--limit", "1"), ["nightly 0"]),
        (("--state", "running"), []),
        (("--handler", "copy", "--handler", "no such", "--limit", "1"), ["hourly"]),
        (("--handler", "no such"), []),
    ):
        found = place.json(f"list --tenant {place.tenant}", *chosen)
        assert [one["name"] for one in found["jobs"]] == names
    assert place.json(f"list --tenant {place.tenant} --name *", "--limit", "1", "--offset", "3")["total"] == 4


def test_a_job_that_fires_once_is_listed_as_queued_until_a_worker_has_its_run(place: Place) -> None:
    client = place.client()
    job = client.schedule_once(ScheduleRequest(name="import", handler_name="copy", created_by="ann"))
    assert len(place.store.queue.fire_due(firing.plan, 10, tenants=[place.tenant])) == 1
    of_tenant = ("--tenant", place.tenant)

    def listed(state: str) -> list[tuple[str, str]]:
        return [(one["name"], one["state"]) for one in place.json("list", *of_tenant, "--state", state)["jobs"]]

    assert (listed("queued"), listed("running"), place.state(job)) == ([("import", "queued")], [], "running")
    assert place.json(f"show {job.id}")["state"] == "queued"
    assert "  state: queued\n" in place.call(f"show {job.id}")[1]
    (tried,) = place.json("pause --dry-run", *of_tenant, "--state", "queued")["jobs"]
    assert (tried["outcome"], tried["state"]) == ("allowed", "queued")
    (paused,) = place.json("pause", *of_tenant, "--state", "queued", "--yes")["jobs"]
    assert (paused["outcome"], paused["state"]) == ("done", "paused")
    assert client.claim("w", 100) == []
    (resumed,) = place.json(f"resume {job.id}")["jobs"]
    assert resumed["state"] == "queued"
    both = place.json("list", *of_tenant, "--state", "queued", "--state", "running", "--limit", "1")
    assert [one["state"] for one in both["jobs"]] == ["queued"]
    (claim,) = client.claim("w", 100)
    assert (listed("queued"), listed("running")) == ([], [("import", "running")])
    assert place.json(f"pause {job.id}", status=1)["jobs"][0]["outcome"] == "refused"
    assert client.finish(claim, "completed")


def test_a_list_goes_on_with_the_next_tenant(place: Place) -> None:
    tenants = sorted(f"{place.tenant}-{n}" for n in range(2))
    for tenant in tenants:
        for n in range(2):
            place.make(f"job {n}", tenant)
    of_both = [part for one in tenants for part in ("--tenant", one)]
    seen = []
    for offset in range(0, 4, 3):
        found = place.json("list --limit 3", "--offset", str(offset), *of_both)
        assert found["total"] == 4
        seen += [(one["tenant"], one["name"]) for one in found["jobs"]]
    assert seen == [(tenant, f"job {n}") for tenant in tenants for n in range(2)]


def test_a_job_is_shown_with_triggers_runs_counts_and_next_fires_and_its_payload_on_request(place: Place) -> None:
    job = place.make("nightly", payload={"days": 7, "secret": "xyzzy"}, timezone="Europe/Berlin")
    place.fail(job)
    place.fail(job, "completed")
    found = place.json("show", str(job.id))
    assert found["payload"] is None
    assert found["run_counts"]["error"] == found["run_counts"]["completed"] == 1
    assert [one["state"] for one in found["runs"]] == ["completed", "error"]
    assert len(found["next_fires"]) == 5
    assert found["next_fires"][0] == found["next_fire_at"] == found["triggers"][0]["next_fire_at"]
    assert found["next_fires"] == sorted(set(found["next_fires"]))
    _, said, _ = place.call("show", str(job.id))
    assert "xyzzy" not in said
    for part in ("30 2 * * * (debian, Europe/Berlin)", "runs: 2 (", "success rate 50 %", "next fires: 2"):
        assert part in said
    assert place.json("show --show-payload", str(job.id))["payload"] == {"days": 7, "secret": "xyzzy"}
    assert '"secret":"xyzzy"' in place.call("show --show-payload", str(job.id))[1]
    place.client().pause(job.id)
    assert place.json("show", str(job.id))["next_fires"] == []


def test_the_history_is_newest_first_and_stays_after_the_job_was_deleted(place: Place) -> None:
    job = place.make("nightly")
    failed, completed = place.fail(job), place.fail(job, "completed")
    found = place.json("history", str(job.id))
    assert [one["id"] for one in found["runs"]] == [str(completed), str(failed)]
    assert (found["runs"][1]["error"], found["more"]) == ("refused: no such host", False)
    assert [one["id"] for one in place.json("history --state error nightly --tenant", place.tenant)["runs"]] == [
        str(failed)
    ]
    newest = place.json("history --limit 1", str(job.id))
    assert (newest["more"], newest["runs"][0]["id"]) == (True, str(completed))
    assert "older runs follow" in place.call("history --limit 1", str(job.id))[1]
    tomorrow = place.store.now() + timedelta(days=1)
    assert place.json("history", str(job.id), "--since", tomorrow.isoformat())["runs"] == []
    assert len(place.json("history", str(job.id), "--since", "2026-01-01")["runs"]) == 2
    with pytest.raises(UsageError, match="no job"):
        place.call("history", str(uuid4()))
    assert place.call("history --since yesterday", str(job.id))[0] == 2
    place.client().unschedule(job.id)
    assert len(place.json("history", str(job.id))["runs"]) == 2


@pytest.mark.proves("5-A2")
def test_every_operation_does_what_the_client_does_and_records_who_and_why(place: Place) -> None:
    job = place.make("nightly")
    named = ("--who", "ben", "--reason", "maintenance")
    status, said, _ = place.call("pause", "nightly", "--tenant", place.tenant, *named)
    assert (status, said) == (0, f"paused: {place.tenant}/nightly ({job.id})\npaused 1 job\n")
    assert place.state(job) == "paused"
    assert place.audit(job) == ("scheduler:job.paused", "ben", "maintenance")
    (done,) = place.json("resume", str(job.id), *named)["jobs"]
    assert (done["outcome"], done["state"], place.state(job)) == ("done", "scheduled", "scheduled")
    assert place.audit(job) == ("scheduler:job.resumed", "ben", "maintenance")
    (done,) = place.json("trigger", str(job.id), *named)["jobs"]
    assert place.json("history", str(job.id))["runs"][0]["id"] == done["run"]
    assert place.audit(job) == ("scheduler:run.queued", "ben", "maintenance")
    place.json("delete --yes", str(job.id), *named)
    assert place.state(job) is None
    assert place.audit(job) == ("scheduler:job.deleted", "ben", "maintenance")
    assert place.json("history", str(job.id))["runs"][0]["state"] == "cancelled"
    other = place.make("hourly")
    place.json("cancel --yes", str(other.id), *named)
    assert (place.state(other), place.audit(other)) == (
        "cancelled",
        ("scheduler:job.cancelled", "ben", "maintenance"),
    )
    place.json("pause", str(place.make("daily").id))
    assert place.call("pause", "daily", "--tenant", place.tenant)[0] == 1


@pytest.mark.proves("5-A2")
def test_a_retry_takes_a_run_or_a_job_whose_last_run_failed(place: Place) -> None:
    job = place.make("nightly")
    with_id = place.fail(job)
    (done,) = place.json("retry", str(with_id), "--who", "ben", "--reason", "host is back")["jobs"]
    newest = place.json("history", str(job.id))["runs"][0]
    assert (newest["id"], newest["retry_of"], newest["triggered_by"]) == (done["run"], str(with_id), "ben")
    assert place.audit(job) == ("scheduler:job.execution.retry_scheduled", "ben", "host is back")
    (done,) = place.json("retry", str(with_id), status=1)["jobs"]
    assert done["message"] == f"run {with_id} was retried before: retry the newest attempt"
    (done,) = place.json("retry", str(job.id), status=1)["jobs"]
    assert (done["outcome"], done["message"]) == ("refused", "the last run is queued: nothing to retry")
    (claim,) = (one for one in place.client().claim("w", 100) if one.run.schedule_id == job.id)
    place.client().finish(claim, "timeout", final=True)
    assert place.json("retry --dry-run", str(job.id))["jobs"][0]["outcome"] == "allowed"
    (done,) = place.json("retry", str(job.id))["jobs"]
    assert place.json("history", str(job.id))["runs"][0]["retry_of"] == str(claim.run.id)
    (done,) = place.json("retry", str(place.make("new").id), status=1)["jobs"]
    assert done["message"] == "the job has no run: nothing to retry"
    with place.store.session(place.tenant) as session:
        for status in ("running", "failed"):
            before = "scheduled" if status == "running" else "running"
            assert session.schedules.change_status(job.id, before, status)
    assert place.json("retry --dry-run", str(job.id))["jobs"][0]["outcome"] == "allowed"
    place.json("retry", str(job.id))
    assert place.state(job) == "pending"


@pytest.mark.proves("5-A2")
def test_many_jobs_are_changed_one_by_one_and_one_that_is_refused_stops_no_other(place: Place) -> None:
    jobs = [place.make(f"nightly {n}", tags=("night",)) for n in range(4)]
    place.client().pause(jobs[1].id)
    chosen = ("--tenant", place.tenant, "--tag", "night")
    before = place.json("list", *chosen)
    tried = place.json("pause --dry-run", *chosen, status=1)
    assert ([one["outcome"] for one in tried["jobs"]], tried["dry_run"]) == (
        ["allowed", "refused", "allowed", "allowed"],
        True,
    )
    _, said, _ = place.call("pause --dry-run", *chosen)
    assert said.splitlines()[-2:] == ["would pause 3 jobs, refused 1", "nothing was written"]
    assert place.json("list", *chosen) == before
    with pytest.raises(RefusedError, match="there is no terminal to answer on: add --yes"):
        place.call("pause", *chosen)
    assert place.json("list", *chosen) == before
    done = place.json("pause --yes", *chosen, status=1)
    assert done["counts"] == {"done": 3, "refused": 1}
    assert done["jobs"][1]["message"] == "cannot pause a schedule that is paused"
    assert {place.state(one) for one in jobs} == {"paused"}
    assert place.json("list --state paused", *chosen)["total"] == 4


@pytest.mark.parametrize("words", ["pause A B", "cancel A", "delete A", "trigger --tenant T", "resume --name A"])
def test_what_concerns_many_jobs_and_what_cannot_be_undone_asks(words: str, place: Place) -> None:
    place.make("A")
    place.make("B")
    scope = () if "--tenant" in words else ("--tenant", place.tenant)
    before = place.json("list --tenant", place.tenant)
    with pytest.raises(RefusedError, match="asks before it begins"):
        place.call(words.replace(" T", f" {place.tenant}"), *scope)
    assert place.json("list --tenant", place.tenant) == before


def test_the_question_shows_the_jobs_and_the_place_and_takes_no_other_answer(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = place.make("nightly")
    monkeypatch.setattr("migrator.cli.confirmation._on_a_terminal", lambda: True)
    called = ["jobs", "cancel", str(job.id)]
    named = place.variables | {"MIGRATOR_CUTOVER__ENVIRONMENT": "billing"}
    done = CliRunner().invoke(cli, called, env=named, input="other\n")
    assert isinstance(done.exception, RefusedError)
    assert str(done.exception) == "the answer is not billing: nothing was done"
    database = place.settings.mongo.database if place.store.backend == "mongo" else "test_"
    for part in ("cancel 1 job, environment billing, ", f"database {database}", f"{place.tenant}/nightly ({job.id})"):
        assert part in done.stderr
    assert place.state(job) == "scheduled"
    assert CliRunner().invoke(cli, called, env=named, input="billing\n").exit_code == 0
    assert place.state(job) == "cancelled"


def test_a_call_that_names_no_job_or_too_many_changes_nothing(place: Place) -> None:
    others = [f"{place.tenant}-{n}" for n in range(2)]
    jobs = [place.make("twin", tenant) for tenant in others]
    both = [part for one in others for part in ("--tenant", one)]
    with pytest.raises(UsageError) as refused:
        place.call("pause twin", *both)
    for job in jobs:
        assert f"{job.schedule.tenant_id}/twin ({job.id})" in str(refused.value)
    assert "2 jobs are called twin: " in str(refused.value)
    for words, why in (
        ("pause", "no job is named"),
        ("delete --yes", "no job is named"),
        (f"pause twin --tenant {others[0]} --tag x", "not both"),
        (f"pause --tenant {others[0]} --state failed", "no job passes the filter"),
        (f"pause absent --tenant {others[0]}", "no job absent: expected an id, a source id or an exact name"),
        (f"pause twi --tenant {others[0]}", "no job twi:"),
        (f"pause {uuid4()}", "no job"),
        ("pause twin --tenant nobody", "unknown tenant nobody"),
    ):
        with pytest.raises(UsageError, match=why):
            place.call(words)
    assert {place.state(job) for job in jobs} == {"scheduled"}
    assert place.call("pause --state unknown")[0] == 2
    assert place.json("pause twin --tenant", others[0])["jobs"][0]["id"] == str(jobs[0].id)
    assert [place.state(job) for job in jobs] == ["paused", "scheduled"]


def test_a_job_that_is_named_twice_is_changed_once(place: Place) -> None:
    job = place.make("nightly")
    done = place.json("pause nightly", str(job.id), "--tenant", place.tenant)
    assert [one["outcome"] for one in done["jobs"]] == ["done"]


def test_a_system_job_is_not_deleted(place: Place) -> None:
    system = Handler(
        id=uuid4(), tenant_id=place.tenant, name="upkeep", handler_type="function", is_system=True, idempotent=False
    )
    place.client().seed_handlers([system])
    job = place.make("upkeep", handler_name="upkeep")
    for words in ("delete --dry-run", "delete --yes"):
        (done,) = place.json(words, str(job.id), status=1)["jobs"]
        assert done["message"].endswith("calls a system handler: disable it instead")
    assert place.state(job) == "scheduled"


def test_an_error_of_the_server_ends_the_operation_and_every_job_is_accounted_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [place.make(f"nightly {n}") for n in range(4)]
    pause, calls = Scheduler.pause, iter(range(9))

    def breaks(client: Scheduler, *arguments: Any, **named: Any) -> Job:  # noqa: ANN401 - those of the method
        if next(calls) == 2:
            raise UnreachableError("the server is gone")
        return pause(client, *arguments, **named)

    monkeypatch.setattr(Scheduler, "pause", breaks)
    place.client().cancel(jobs[1].id)
    done = place.json("pause --yes --tenant", place.tenant, status=17)
    assert [one["outcome"] for one in done["jobs"]] == ["done", "refused", "failed", "not tried"]
    assert done["jobs"][2]["message"] == "the server is gone"
    assert place.state(jobs[3]) == "scheduled"


def test_an_interruption_says_how_far_it_came(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [place.make(f"nightly {n}") for n in range(3)]
    pause, calls = Scheduler.pause, iter(range(9))

    def interrupted(client: Scheduler, *arguments: Any, **named: Any) -> Job:  # noqa: ANN401 - those of the method
        if next(calls) == 1:
            raise KeyboardInterrupt
        return pause(client, *arguments, **named)

    monkeypatch.setattr(Scheduler, "pause", interrupted)
    words = ["jobs", "pause", "--yes", "--tenant", place.tenant]
    done = CliRunner().invoke(cli, words, env=place.variables)
    assert done.exit_code != 0
    assert done.stdout.splitlines()[0] == f"paused: {place.tenant}/nightly 0 ({jobs[0].id})"
    assert "interrupted after 1 of 3 jobs: call it again" in done.stderr
    assert [place.state(one) for one in jobs] == ["paused", "scheduled", "scheduled"]


# -- what is not to be changed


class Pair(Place):
    """A source of another application with its copy; the store is that of the source."""

    def __init__(self, settings: Settings, store: Store, database: Any, dsn: str, config: Path) -> None:  # noqa: ANN401 - of any documents
        super().__init__(settings, store, {"MIGRATOR_CONFIG": str(config)})
        self.database, self.dsn = database, dsn

    def everything(self) -> dict[str, Any]:
        """Return every document and every row."""
        return {**foreign_history.contents(self.database), **target_rows(self.dsn)}

    def own(self) -> Job:
        """Make a job in MongoDB as an application of this tool does."""
        return self.make("own job", "tenant-own")


@pytest.fixture
def pair(mongo_server: MongoServer, scheduler_dsn: str, tmp_path: Path) -> Iterator[Pair]:
    with MongoClient[dict[str, Any]](mongo_server.uri) as client:
        database = client[fresh_name()]
        rows = [
            fresh("schedules", _id=key, id=key, name=f"scan {n}", deletedAt=..., deletedBy=...)
            for n, key in enumerate(("sch_1", f"sch_{uuid4().hex}"))
        ]
        database["schedules"].insert_many(rows)
        settings = settings_for(database, scheduler_dsn)
        assert backfill(settings, Scope()).complete
        config = tmp_path / "config.toml"
        config.write_text(
            f'[mongo]\nuri = "{settings.mongo.uri}"\ndatabase = "{database.name}"\n'
            f'[postgres]\ndsn = "{scheduler_dsn}"\n'
        )
        config.chmod(0o600)
        with open_scheduler_store(settings) as store:
            yield Pair(settings, store, database, scheduler_dsn, config)
        client.drop_database(database.name)


def refused_without_a_write(pair: Pair, words: str, why: str) -> None:
    before = pair.everything()
    with pytest.raises(RefusedError, match=why):
        pair.call(words)
    assert pair.everything() == before


CHANGES = ["pause sch_1", "resume sch_1", "trigger sch_1", "cancel sch_1 --yes", "retry sch_1", "delete sch_1 --yes"]


@pytest.mark.proves("5-D1")
def test_no_operation_changes_a_copy_that_is_not_active(pair: Pair) -> None:
    why = "PostgreSQL holds a copy of stellaops, and no cutover has made it the active backend: MongoDB is the active"
    for words in [*CHANGES, "pause --tenant tenant-a --yes", "pause --tenant tenant-a --dry-run"]:
        refused_without_a_write(pair, f"{words} --backend postgres", why)
    before = pair.everything()
    status, said, told = pair.call("list --backend postgres")
    assert (status, "2 jobs in PostgreSQL" in said) == (0, True)
    assert "no cutover has made it the active backend; it is as of 20" in told
    assert "it is as of 20" in pair.call("show sch_1 --backend postgres")[2]
    assert pair.call("list")[2] == ""
    assert pair.everything() == before


def test_retention_removes_no_run_of_a_copy_that_is_not_active(pair: Pair) -> None:
    why = "PostgreSQL holds a copy of stellaops, and no cutover has made it the active backend"
    place = pair.variables | {"MIGRATOR_PERSISTENCE__SCHEDULER": "postgres"}
    asked, before = ["scheduler", "retention", "--keep", "0", "--age", "0s"], pair.everything()
    for allowed in ([], ["--yes"]):
        with pytest.raises(RefusedError, match=f"no run is removed: {why}"):
            CliRunner().invoke(cli, [*asked, *allowed], env=place, catch_exceptions=False)
    done = CliRunner().invoke(cli, [*asked, "--dry-run"], env=place)
    assert (done.exit_code, why in done.stderr, "would remove" in done.stdout) == (0, True, True)
    settings = load_settings(pair.variables["MIGRATOR_CONFIG"], {"MIGRATOR_PERSISTENCE__SCHEDULER": "postgres"})
    today = msgspec.structs.replace(settings.scheduler, retention_from=date(2026, 1, 1), retention_keep=0)
    with open_readable_store(settings) as store:
        said = retain(msgspec.structs.replace(settings, scheduler=today), store)
    assert said == f"retention removed no run: {why}"
    assert pair.everything() == before
    with psycopg.connect(pair.dsn) as target:
        postgres_epoch.write(target, Epoch(2, "mongo"))  # a rollback
    for words in CHANGES:
        refused_without_a_write(
            pair,
            f"{words} --backend postgres",
            "MongoDB holds the data since the last cutover or rollback: call it with --backend mongo",
        )
    assert "PostgreSQL is not the active backend" in pair.call("list --backend postgres")[2]


def test_retention_removes_no_run_of_another_application(pair: Pair) -> None:
    why = "belong to jobs of another application in MongoDB, which alone may remove them"
    pair.database["runs"].insert_many([run_of(_id=f"r{n}", id=f"r{n}", scheduleId="sch_1") for n in range(3)])
    asked, before = ["scheduler", "retention", "--keep", "0", "--age", "0s"], pair.everything()
    for allowed in ([], ["--yes"]):
        with pytest.raises(RefusedError, match=f"no run is removed: 3 of the runs {why}"):
            CliRunner().invoke(cli, [*asked, *allowed], env=pair.variables, catch_exceptions=False)
    done = CliRunner().invoke(cli, [*asked, "--dry-run"], env=pair.variables)
    assert (done.exit_code, why in done.stderr, "would remove" in done.stdout) == (0, True, True)
    settings = load_settings(pair.variables["MIGRATOR_CONFIG"], {})
    today = msgspec.structs.replace(
        settings.scheduler, retention_from=date(2026, 1, 1), retention_keep=0, retention_age=timedelta(0)
    )
    with open_scheduler_store(settings) as store:
        assert why in retain(msgspec.structs.replace(settings, scheduler=today), store)
    assert pair.everything() == before


def test_after_a_cutover_the_copy_is_changed_and_the_source_is_not(pair: Pair) -> None:
    with psycopg.connect(pair.dsn) as target:
        postgres_epoch.write(target, Epoch(1, "postgres"))
    mongo_epoch.write(pair.database, Epoch(1, "postgres"))
    for words in CHANGES:
        refused_without_a_write(
            pair,
            f"{words} --backend mongo",
            "MongoDB is not the active backend: PostgreSQL holds the data since the last cutover or rollback",
        )
    assert "MongoDB is not the active backend" in pair.call("list --backend mongo")[2]
    found = pair.json("pause --backend postgres sch_1")
    assert [one["outcome"] for one in found["jobs"]] == ["done"]
    status, said, told = pair.call("list --backend postgres --state paused")
    assert (status, "1 job in PostgreSQL" in said, told) == (0, True, "")


def test_a_cutover_in_between_is_noticed_by_the_operation_itself(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    job = pair.own()
    monkeypatch.setattr(Jobs, "require_own", lambda *_: mongo_epoch.write(pair.database, Epoch(1, "postgres")))
    done = pair.json("pause", str(job.id), status=BackendMovedError.exit_status)
    assert done["jobs"][0]["outcome"] == "failed"
    monkeypatch.undo()
    mongo_epoch.forget(pair.database)
    assert pair.state(job) == "scheduled"


@pytest.mark.proves("5-D1")
def test_no_operation_changes_the_documents_of_another_application(pair: Pair) -> None:
    own = pair.own()
    why = r"1 of 1 jobs are documents of another application \(stellaops\) in MongoDB, which alone may change them"
    for words in [*CHANGES, "pause sch_1 --dry-run"]:
        refused_without_a_write(pair, words, why)
    refused_without_a_write(pair, f"pause sch_1 {own.id} --yes", "1 of 2 jobs are documents of another application")
    refused_without_a_write(pair, "pause --name * --yes", "2 of 3 jobs are documents of another application")
    assert pair.json("list")["total"] == 3
    assert pair.json("show sch_1")["name"] == "scan 0"
    pair.json("pause", str(own.id))
    assert pair.state(own) == "paused"


def test_a_live_worker_with_their_handler_makes_documents_those_of_this_tool(pair: Pair) -> None:
    scope = WorkerScope(handlers=HandlerFilter(names=("analysis-only",)))
    row: dict[str, Any] = {"tenant_id": "*", "kind": "scheduler", "status": "active", "capacity": 1}
    everything = WorkerRecord(id=uuid4(), metadata=scope_metadata(WorkerScope()), **row)
    pair.store.workers.register(everything)  # as a verification's, which states no handlers
    refused_without_a_write(pair, "pause sch_1", "documents of another application")
    worker = WorkerRecord(id=uuid4(), metadata=scope_metadata(scope), **row)
    pair.store.workers.register(worker)
    assert pair.json("pause sch_1")["jobs"][0]["state"] == "paused"
    pair.store.workers.stop(worker.id)
    refused_without_a_write(pair, "resume sch_1", "documents of another application")


def test_the_documents_of_another_source_are_named_where_no_job_is_found(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIGRATOR_SOURCE__PROFILE", "agenda")
    with pytest.raises(UsageError, match=r"no job nightly: .*; the documents of agenda in MongoDB belong to that"):
        pair.call("pause nightly")
    status, said, told = pair.call("list --state running")
    assert (status, said) == (0, "0 jobs in MongoDB\n")
    assert "the documents of agenda in MongoDB belong to that application" in told


def created(place: Place, *arguments: str) -> Any:  # noqa: ANN401 - a JSON document
    return place.json("create", "--tenant", place.tenant, "--handler", "copy", *arguments)


@pytest.mark.proves("6-U12")
@pytest.mark.parametrize(
    ("timing", "words"),
    [
        (("--cron", "30 2 * * *", "--timezone", "Europe/Berlin"), "30 2 * * * (debian, Europe/Berlin)"),
        (("--interval", "90s", "--anchor", "completion"), "every 0:01:30 since the end of the last run"),
        (("--once",), "once, "),
        (("--at", "2999-01-02T03:04:05+00:00"), "once, 2999-01-02 03:04:05Z"),
    ],
)
def test_a_job_is_created_as_the_client_creates_it(place: Place, timing: tuple[str, ...], words: str) -> None:
    more: tuple[str, ...] = (
        "--name",
        "nightly",
        "--payload",
        '{"table": "orders"}',
        "--queue",
        "copies",
        "--priority",
        "high",
    )
    more = (
        *more,
        "--max-retries",
        "1",
        "--timeout",
        "2m",
        "--tag",
        "a",
        "--tag",
        "b",
        "--who",
        "ann",
        "--reason",
        "new",
    )
    tried = created(place, *timing, *more, "--dry-run")
    assert (tried["dry_run"], tried["job"]["id"]) == (True, None)
    assert place.client().list().total == 0
    made = created(place, *timing, *more)
    [job] = place.client().list().jobs
    assert made["job"].pop("id") == str(job.id)
    assert tried["job"].pop("id") is None
    assert made["job"]["triggers"][0].startswith(words)
    if timing != ("--once",):
        made["job"].pop("next_fire_at"), tried["job"].pop("next_fire_at")  # an interval begins now
        for job_view in (made["job"], tried["job"]):
            job_view.pop("source_id")
        assert made["job"] == tried["job"]
    schedule = job.schedule
    assert (schedule.name, schedule.handler_name, schedule.queue) == ("nightly", "copy", "copies")
    assert (job.payload, schedule.priority, schedule.max_retries) == ({"table": "orders"}, 75, 1)
    assert (schedule.timeout_ms, schedule.tags, schedule.created_by) == (120_000, ("a", "b"), "ann")
    assert place.audit(job)[1:] == ("ann", "new")


def test_what_the_client_refuses_is_refused_with_its_words_and_nothing_is_written(place: Place) -> None:
    place.make("nightly")
    job = ("--tenant", place.tenant, "--handler", "copy")
    for dry_run in ((), ("--dry-run",)):
        with pytest.raises(ConflictError, match="the name 'nightly' is taken by schedule"):
            place.call("create", *job, "--name", "nightly", "--cron", "0 * * * *", *dry_run)
        for more, words in (
            ((), "a job has one of --cron, --interval, --once, --at"),
            (("--cron", "* * * * *", "--once"), "not --cron and --once"),
            (("--cron", "* * * * *"), "name is missing"),
            (("--name", "x", "--cron", "61 * * * *"), "minute"),
            (("--once", "--max-fires", "2"), "a schedule that fires once has no max_fires"),
            (("--at", "2001-01-01"), "run_at must lie ahead"),
            (("--once", "--payload", "[NaN]"), r"payload\[0\] is no JSON value"),
            (("--once", "--priority", "101"), "priority must be a whole number from 0 to 100"),
        ):
            with pytest.raises(UsageError, match=words):
                place.call("create", *job, *more, *dry_run)
    assert place.client().list().total == 1
    status, _, said = place.call("create", *job, "--once", "--payload", "{secret")
    assert status == 2
    assert "is no JSON" in said
    assert "secret" not in said


def test_a_job_may_be_created_paused_and_its_line_says_when_it_fires(place: Place) -> None:
    job = ("--tenant", place.tenant, "--handler", "copy", "--cron", "0 3 * * *")
    status, said, _ = place.call("create", *job, "--name", "a", "--paused")
    assert status == 0
    assert said.rstrip().endswith("0 3 * * * (debian, UTC), paused")
    [held] = place.client().list().jobs
    assert (held.schedule.status, held.schedule.enabled) == ("paused", False)
    _, said, _ = place.call("create", *job, "--name", "b", "--dry-run")
    assert re.fullmatch(
        rf"would create in \w+: {place.tenant}/b, 0 3 \* \* \* \(debian, UTC\), next fire \S+ 03:00:00Z\n"
        "nothing was written\n",
        said,
    )


def test_a_database_without_a_copy_is_changed(scheduler_dsn: str) -> None:
    settings = Settings(
        postgres=PostgresSettings(dsn=scheduler_dsn), persistence=PersistenceSettings(scheduler="postgres")
    )
    variables = {"MIGRATOR_POSTGRES__DSN": scheduler_dsn, "MIGRATOR_PERSISTENCE__SCHEDULER": "postgres"}
    with open_scheduler_store(settings) as store:
        place = Place(settings, store, variables)
        job = place.make("nightly")
        assert place.json("pause nightly")["jobs"][0]["state"] == "paused"
        with psycopg.connect(scheduler_dsn) as target:
            postgres_epoch.mark_copy(target, "crawler")
        with pytest.raises(RefusedError, match="PostgreSQL holds a copy of crawler"):
            place.call("resume", str(job.id))
        variables["MIGRATOR_SOURCE__URI"] = "postgresql://elsewhere/"
        variables["MIGRATOR_SOURCE__PROFILE"] = "crawler"
        with pytest.raises(RefusedError, match="change the job in crawler itself, or cut over first"):
            place.call("resume", str(job.id))
        with psycopg.connect(scheduler_dsn) as target:
            assert target.execute("SELECT status FROM scheduler.schedules").fetchall() == [("paused",)]
            target.execute(postgres_epoch.DECLARE_REHEARSAL)
        assert place.json("resume", str(job.id))["jobs"][0]["outcome"] == "done"  # as it was declared


def test_the_help_of_every_command_names_its_choices() -> None:
    for command in ("pause", "resume", "trigger", "cancel", "retry", "delete"):
        said = CliRunner().invoke(cli, ["jobs", command, "--help"]).stdout
        for option in ("--tenant", "--tag", "--state", "--name", "--who", "--reason", "--yes", "--dry-run", "--json"):
            assert option in said


def test_a_schedule_record_is_not_printed_whole() -> None:
    """What a job's document holds beyond what an operator needs stands in no field of what is printed."""
    hidden = {"selection", "only_if", "notify", "limits", "subscribers", "metadata", "extra"}
    printed = {*job_views._JOB, *job_views._DETAILS}
    assert not hidden & printed
    assert {"id", "description"} <= printed
    assert hidden <= {*Schedule.__struct_fields__}
