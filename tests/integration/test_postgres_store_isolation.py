"""Tenants are kept apart by the store's own conditions, by row-level security where those fail, and in references."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace
from psycopg.sql import SQL, Identifier

from migrator.errors import NotFoundError, UsageError
from migrator.records import AuditEntry, ExecutionLog, GraphJobEvent, Handler, ImpactSnapshot, Schedule, Trigger
from migrator.scheduler.worker import WorkerCore, WorkerOptions
from migrator.store.postgres.repository import Repository
from migrator.store.postgres.store import PostgresSession, PostgresStore
from migrator.store.protocols import RunQuery, ScheduleQuery
from migrator.store.queue import Finish, Fire
from migrator.verify.behaviour.harness import ScriptedExecutor
from tests.schema_rows import LEAST, connect, insert
from tests.store_postgres import NOW, graph_job, opened, policy_job, run, schedule, trigger

Ids = dict[str, Any]
LATER = NOW + timedelta(days=1)


@pytest.fixture
def theirs(any_scheduler_dsn: str) -> Iterator[tuple[PostgresStore, Ids]]:
    """A store, and rows of tenant b in every table: ids by table, and names."""
    with connect(any_scheduler_dsn) as connection:
        ids: Ids = {"schedules": insert(connection, "schedules", "b", name="theirs")}
        ids["triggers"] = insert(
            connection,
            "triggers",
            "b",
            schedule_id=ids["schedules"],
            kind="event",
            event_name="push",
            run_at=None,
        )
        ids["due"] = insert(connection, "triggers", "b", schedule_id=ids["schedules"], next_fire_at=NOW)
        ids["runs"] = insert(connection, "runs", "b", schedule_id=ids["schedules"], trace_id="trace")
        ids["graph_jobs"] = insert(connection, "graph_jobs", "b")
        insert(connection, "graph_job_events", "b", job_id=ids["graph_jobs"])
        ids["policy_jobs"] = insert(connection, "policy_jobs", "b", run_id="their run")
        ids["impact_snapshots"] = insert(connection, "impact_snapshots", "b", run_id=ids["runs"])
        insert(connection, "execution_logs", "b", run_id=ids["runs"])
        insert(connection, "run_summaries", "b", schedule_id=ids["schedules"])
        insert(connection, "audit", "b", schedule_id=ids["schedules"])
        insert(connection, "handlers", "b", name="their handler")
    with opened(any_scheduler_dsn) as store:
        yield store, ids


READS: dict[str, Callable[[PostgresSession, Ids], Any]] = {
    "schedules.get": lambda s, ids: s.schedules.get(ids["schedules"]),
    "schedules.by_name": lambda s, _: s.schedules.by_name("theirs"),
    "schedules.list": lambda s, _: s.schedules.list(ScheduleQuery(include_global=True)),
    "schedules.list by name": lambda s, _: s.schedules.list(ScheduleQuery(name_contains="their")),
    "schedules.count": lambda s, _: s.schedules.count(ScheduleQuery()),
    "schedules.due": lambda s, _: s.schedules.due(10),
    "triggers.get": lambda s, ids: s.triggers.get(ids["triggers"]),
    "triggers.of_schedule": lambda s, ids: s.triggers.of_schedule(ids["schedules"]),
    "triggers.of_event": lambda s, _: s.triggers.of_event("push"),
    "runs.get": lambda s, ids: s.runs.get(ids["runs"]),
    "runs.list": lambda s, _: s.runs.list(RunQuery()).runs,
    "runs.list by trace": lambda s, _: s.runs.list(RunQuery(trace_id="trace")).runs,
    "runs.pending": lambda s, _: s.runs.pending(10),
    "runs.of_schedule": lambda s, ids: s.runs.of_schedule(ids["schedules"], 10),
    "graph_jobs.get": lambda s, ids: s.graph_jobs.get("build", ids["graph_jobs"]),
    "graph_jobs.list": lambda s, _: s.graph_jobs.list("build", None, 10),
    "graph_jobs.list by status": lambda s, _: s.graph_jobs.list("build", "pending", 10),
    "graph_jobs.events": lambda s, ids: s.graph_jobs.events(ids["graph_jobs"]),
    "policy_jobs.get": lambda s, ids: s.policy_jobs.get(ids["policy_jobs"]),
    "policy_jobs.by_run_id": lambda s, _: s.policy_jobs.by_run_id("their run"),
    "policy_jobs.list": lambda s, _: s.policy_jobs.list("pending", 10),
    "impact_snapshots.get": lambda s, ids: s.impact_snapshots.get(ids["impact_snapshots"]),
    "impact_snapshots.of_run": lambda s, ids: s.impact_snapshots.of_run(ids["runs"]),
    "execution_logs.of_run": lambda s, ids: s.execution_logs.of_run(ids["runs"]),
    "run_summaries.get": lambda s, ids: s.run_summaries.get(ids["schedules"]),
    "audit.list": lambda s, _: s.audit.list(10),
    "handlers.get": lambda s, _: s.handlers.get("their handler"),
    "handlers.list": lambda s, _: s.handlers.list(),
}
WRITES: dict[str, Callable[[PostgresSession, Ids], Any]] = {
    "schedules.change_status": lambda s, ids: s.schedules.change_status(ids["schedules"], "scheduled", "paused"),
    "schedules.soft_delete": lambda s, ids: s.schedules.soft_delete(ids["schedules"], "me"),
    "triggers.delete_of_schedule": lambda s, ids: s.triggers.delete_of_schedule(ids["schedules"]),
    "runs.update": lambda s, ids: s.runs.update(run(s.runs._tenant, id=ids["runs"], state="running"), "queued"),
    "runs.cancel": lambda s, ids: s.runs.cancel(ids["runs"], "why"),
    "runs.cancel_of_schedule": lambda s, ids: s.runs.cancel_of_schedule(ids["schedules"], "why"),
    "runs.remove": lambda s, ids: s.runs.remove([ids["runs"]]),
    "graph_jobs.try_replace": lambda s, ids: s.graph_jobs.try_replace(
        graph_job(s.graph_jobs._tenant, id=ids["graph_jobs"], status=1), "pending"
    ),
    "policy_jobs.try_replace": lambda s, ids: s.policy_jobs.try_replace(
        policy_job(s.policy_jobs._tenant, id=ids["policy_jobs"], status="dispatching"), "pending"
    ),
    "policy_jobs.lease": lambda s, _: s.policy_jobs.lease("me", 10, timedelta(minutes=1)),
    "handlers.delete": lambda s, _: s.handlers.delete("their handler"),
}
REFUSED: dict[str, tuple[type[Exception], Callable[[PostgresSession, Ids], Any]]] = {
    # a reference to another tenant → what it raises
    "triggers.upsert of their schedule": (
        NotFoundError,
        lambda s, ids: s.triggers.upsert(trigger(schedule(id=ids["schedules"]))),
    ),
    "runs.create of their schedule": (NotFoundError, lambda s, ids: s.runs.create(run(schedule_id=ids["schedules"]))),
    "runs.create of their trigger": (NotFoundError, lambda s, ids: s.runs.create(run(trigger_id=ids["triggers"]))),
    "runs.create as a retry of theirs": (NotFoundError, lambda s, ids: s.runs.create(run(retry_of=ids["runs"]))),
    "runs.update towards their schedule": (
        NotFoundError,
        lambda s, ids: s.runs.update(
            run(id=s.runs.create(run()).id, schedule_id=ids["schedules"], state="running"), "queued"
        ),
    ),
    "graph_jobs.append_event to theirs": (
        NotFoundError,
        lambda s, ids: s.graph_jobs.append_event(
            GraphJobEvent(id=0, job_id=ids["graph_jobs"], tenant_id="a", status=5, payload=b"{}", created_at=NOW)
        ),
    ),
    "impact_snapshots.insert of their run": (
        NotFoundError,
        lambda s, ids: s.impact_snapshots.insert(ImpactSnapshot(id=uuid4(), tenant_id="a", run_id=ids["runs"])),
    ),
    "execution_logs.append to their run": (
        NotFoundError,
        lambda s, ids: s.execution_logs.append(
            [ExecutionLog(id=uuid4(), tenant_id="a", run_id=ids["runs"], logged_at=NOW, level="info")]
        ),
    ),
    "run_summaries.recompute": (NotFoundError, lambda s, ids: s.run_summaries.recompute(ids["schedules"])),
}
TAKEN: dict[str, Callable[[PostgresSession, Ids], Any]] = {
    # an id of another tenant for an own row: keys carry the tenant, so nothing tells that somebody has it
    "schedules.upsert over theirs": lambda s, ids: s.schedules.upsert(schedule(id=ids["schedules"])),
    "triggers.upsert over theirs": lambda s, ids: s.triggers.upsert(
        trigger(s.schedules.upsert(schedule()), id=ids["triggers"])
    ),
    "runs.create over theirs": lambda s, ids: s.runs.create(run(id=ids["runs"])),
    "graph_jobs.insert over theirs": lambda s, ids: s.graph_jobs.insert(graph_job(id=ids["graph_jobs"])),
    "policy_jobs.insert over theirs": lambda s, ids: s.policy_jobs.insert(policy_job(id=ids["policy_jobs"])),
}


def everything(dsn: str) -> dict[str, list[Any]]:
    with connect(dsn) as connection:
        return {
            table: connection.execute(
                SQL("SELECT t::text FROM {} AS t WHERE tenant_id <> 'a' ORDER BY 1").format(
                    Identifier("scheduler", table)
                )
            ).fetchall()
            for table in LEAST
        }


@pytest.mark.proves("0-X2", "1-G4")
def test_reads_find_nothing_of_another_tenant(theirs: tuple[PostgresStore, Ids]) -> None:
    store, ids = theirs
    with store.session("b", now=LATER) as session:
        assert [name for name, read in READS.items() if not read(session, ids)] == []  # there is something to find
    with store.session("a", now=LATER) as session:
        assert [name for name, read in READS.items() if read(session, ids)] == []


@pytest.mark.proves("0-X2", "1-G4")
def test_writes_do_not_reach_rows_of_another_tenant(theirs: tuple[PostgresStore, Ids]) -> None:
    store, ids = theirs
    before = everything(store.settings.postgres.dsn or "")
    with store.session("a", now=LATER) as session:
        assert [name for name, write in WRITES.items() if write(session, ids)] == []
        for name, (error, write) in REFUSED.items():
            try:
                write(session, ids)
            except error:
                continue
            pytest.fail(name)
    assert everything(store.settings.postgres.dsn or "") == before


@pytest.mark.proves("0-X2", "1-G4")
def test_ids_of_another_tenant_may_be_used_and_its_rows_stay_as_they_are(theirs: tuple[PostgresStore, Ids]) -> None:
    store, ids = theirs
    before = everything(store.settings.postgres.dsn or "")
    with store.session("a", now=LATER) as session:
        for write in TAKEN.values():
            write(session, ids)
        assert session.runs.get(ids["runs"]).tenant_id == "a"  # type: ignore[union-attr] # it is there
    assert everything(store.settings.postgres.dsn or "") == before
    with store.session("b", now=LATER) as session:
        assert session.runs.get(ids["runs"]).tenant_id == "b"  # type: ignore[union-attr] # it is there


@pytest.mark.proves("0-X2")
def test_a_dispatcher_ends_claims_and_numbers_the_runs_of_one_tenant_only(theirs: tuple[PostgresStore, Ids]) -> None:
    """Two tenants with the same ids throughout: schedule, trigger and run."""
    store, ids = theirs
    cause = trigger(schedule("a", id=ids["schedules"]), id=ids["due"], next_fire_at=NOW)
    with store.session("a", now=NOW) as session:
        session.schedules.upsert(schedule("a", id=ids["schedules"], max_concurrency=1))
        session.triggers.upsert(cause)
        mine = session.runs.create(run("a", id=ids["runs"], schedule_id=ids["schedules"]))
    before = everything(store.settings.postgres.dsn or "")

    def plan(schedule: Schedule, trigger: Trigger, live_runs: int, now: datetime) -> Fire:
        assert (schedule.tenant_id, trigger.tenant_id, live_runs) == ("a", "a", 1)
        made = run("a", schedule_id=schedule.id, trigger_id=trigger.id, scheduled_at=now, available_at=LATER)
        return Fire(runs=(made,), trigger=replace(trigger, next_fire_at=LATER), schedule_status="running")

    (fired,) = store.queue.fire_due(plan, 9, NOW, ["a"])
    assert fired.run_number == (mine.run_number or 0) + 1
    (claim,) = store.queue.claim("w", 9, timedelta(minutes=1), LATER, tenants=["a"])
    assert (claim.run.id, claim.run.tenant_id) == (mine.id, "a")
    end = Finish(run_id=mine.id, tenant_id="a", worker_id="w", fence=claim.run.fence or 0, state="completed")
    assert list(store.queue.heartbeat([claim], timedelta(minutes=5), LATER)) == [mine.id]
    assert list(store.queue.finish([replace(end, schedule_status="completed")], LATER)) == [mine.id]
    assert everything(store.settings.postgres.dsn or "") == before
    with store.session("a", now=LATER) as session:
        assert session.schedules.get(ids["schedules"]).status == "completed"  # type: ignore[union-attr] # it is there


@pytest.mark.proves("0-X2")
def test_a_run_with_the_id_of_one_that_is_worked_on_does_not_take_its_place(
    theirs: tuple[PostgresStore, Ids],
) -> None:
    """One process serves both tenants; the second run waits until the first has ended."""
    store, ids = theirs
    executor = ScriptedExecutor(lambda _claim: None)
    share = WorkerOptions(worker_id=uuid4(), lease=timedelta(minutes=5), capacity=9, tenants=("a", "b"))
    worker = WorkerCore(store, executor, share, clock=lambda: NOW)
    assert worker.claim() == 1
    with store.session("a", now=NOW) as session:
        session.runs.create(run("a", id=ids["runs"]))
    assert worker.claim() == 0
    with store.session("a", now=NOW) as session:
        assert session.runs.get(ids["runs"]).state == "queued"  # type: ignore[union-attr] # it is there
    worker.renew()
    assert (executor.cancelled, len(worker.active)) == ([], 1)
    executor.end()
    assert worker.collect() == 1
    with store.session("b", now=NOW) as session:
        assert session.runs.get(ids["runs"]).state == "completed"  # type: ignore[union-attr] # it is there
    assert worker.claim() == 1
    assert [claim.run.tenant_id for claim in executor.taken] == ["b", "a"]


@pytest.mark.proves("0-X2")
def test_row_level_security_holds_even_if_a_query_forgets(theirs: tuple[PostgresStore, Ids]) -> None:
    """The repositories are told the wrong tenant: their own conditions then ask for what is not theirs."""
    store, ids = theirs
    before = everything(store.settings.postgres.dsn or "")
    for name, call in (READS | WRITES).items():
        with store.session("a", now=LATER) as session:
            for repository in vars(session).values():
                if isinstance(repository, Repository):
                    repository._tenant = "b"
            assert not call(session, ids), name
    assert everything(store.settings.postgres.dsn or "") == before


@pytest.mark.proves("0-X2")
def test_statements_without_any_condition_stay_inside_the_tenant(theirs: tuple[PostgresStore, Ids]) -> None:
    store, _ = theirs
    with store.session("a") as session:
        session.runs.create(run())
        assert session.connection.execute("SELECT tenant_id FROM scheduler.runs").fetchall() == [("a",)]
        assert session.connection.execute("UPDATE scheduler.runs SET error = 'x'").rowcount == 1
        assert session.connection.execute("DELETE FROM scheduler.triggers").rowcount == 0


@pytest.mark.proves("0-X2")
@pytest.mark.parametrize("tenant", ["b", "*"])
def test_records_of_another_tenant_are_refused(tenant: str, scheduler_dsn: str) -> None:
    writes: list[Callable[[PostgresSession], Any]] = [
        lambda s: s.schedules.upsert(schedule(tenant)),
        lambda s: s.triggers.upsert(trigger(schedule(tenant))),
        lambda s: s.runs.create(run(tenant)),
        lambda s: s.runs.update(run(tenant, state="running"), "queued"),
        lambda s: s.graph_jobs.insert(graph_job(tenant)),
        lambda s: s.graph_jobs.try_replace(graph_job(tenant, status=1), "pending"),
        lambda s: s.policy_jobs.insert(policy_job(tenant)),
        lambda s: s.policy_jobs.try_replace(policy_job(tenant, status="dispatching"), "pending"),
        lambda s: s.impact_snapshots.insert(ImpactSnapshot(id=uuid4(), tenant_id=tenant)),
        lambda s: s.execution_logs.append([ExecutionLog(id=uuid4(), tenant_id=tenant, logged_at=NOW, level="info")]),
        lambda s: s.audit.append(
            AuditEntry(id=uuid4(), tenant_id=tenant, category="scheduler", action="pause", occurred_at=NOW)
        ),
        lambda s: s.handlers.upsert(Handler(id=uuid4(), tenant_id=tenant, name="mail", handler_type="function")),
    ]
    with opened(scheduler_dsn) as store, store.session("a") as session:
        for write in writes:
            with pytest.raises(UsageError, match="another tenant"):
                write(session)
    with (
        opened(scheduler_dsn) as store,
        store.session("*") as session,
        pytest.raises(UsageError, match=r"tenant \* are not written"),
    ):
        session.schedules.upsert(schedule("*"))


@pytest.mark.proves("0-X2", "2-P1")
def test_rows_for_all_are_seen_and_referred_to_but_not_written(any_scheduler_dsn: str) -> None:
    with connect(any_scheduler_dsn) as connection:
        shared: UUID = insert(connection, "schedules", "*", name="for all")
        cause = insert(connection, "triggers", "*", schedule_id=shared, kind="event", event_name="push", run_at=None)
        insert(connection, "handlers", "*", name="mail")
    before = everything(any_scheduler_dsn)
    with opened(any_scheduler_dsn) as store:
        for tenant in ("a", "b"):
            with store.session(tenant, now=NOW) as session:
                assert session.schedules.get(shared) is not None
                assert session.schedules.by_name("for all") is not None
                assert session.schedules.list(ScheduleQuery()) == []
                assert len(session.schedules.list(ScheduleQuery(include_global=True))) == 1
                assert [found.id for found in session.triggers.of_event("push")] == [cause]
                assert session.handlers.get("mail") is not None
                made = session.runs.create(run(tenant, schedule_id=shared, trigger_id=cause, dedupe_key=tenant))
                assert made.run_number is None  # several tenants run it: none may count the others' runs
                assert session.schedules.soft_delete(shared, "me") is False
                assert session.schedules.change_status(shared, "scheduled", "paused") is None
                assert session.triggers.delete_of_schedule(shared) == 0
                assert session.handlers.delete("mail") is False
                with pytest.raises(NotFoundError):
                    session.triggers.upsert(trigger(schedule(tenant, id=shared)))
    after = everything(any_scheduler_dsn)
    assert {table: rows for table, rows in after.items() if table != "runs"} == {
        table: rows for table, rows in before.items() if table != "runs"
    }


def test_a_missing_policy_would_be_seen(theirs: tuple[PostgresStore, Ids]) -> None:
    """The test of forgetful queries looks at something: with the policy opened they find the row."""
    store, ids = theirs
    with connect(store.settings.postgres.dsn or "") as connection:
        connection.execute("ALTER POLICY tenant_read ON scheduler.runs USING (true)")
    with store.session("a") as session:
        assert not READS["runs.get"](session, ids)
        session.runs._tenant = "b"
        assert READS["runs.get"](session, ids)


@pytest.mark.proves("0-X2")
def test_tags_of_a_row_with_the_same_id_say_nothing_of_the_tenant_s_own(scheduler_dsn: str) -> None:
    everybodys, mine = uuid4(), schedule(tags=("red",))
    with opened(scheduler_dsn) as store:
        with store.session("a") as session:
            session.schedules.upsert(mine)
        with connect(scheduler_dsn) as connection:
            for identity, tags in ((mine.id, ["blue", "red"]), (everybodys, ["blue"])):
                insert(connection, "schedules", "*", id=identity, tags=tags)
        with store.session("a") as session:
            blue = session.schedules.list(ScheduleQuery(tags_any=("blue",), include_global=True))
            red = session.schedules.list(ScheduleQuery(tags_all=("red",), include_global=True))
            assert {(row.id, row.tenant_id) for row in blue} == {(mine.id, "*"), (everybodys, "*")}
            assert sorted((row.id, row.tenant_id) for row in red) == [(mine.id, "*"), (mine.id, "a")]
            assert session.schedules.count(ScheduleQuery(tags_any=("blue", "red"), include_global=True)) == 3
