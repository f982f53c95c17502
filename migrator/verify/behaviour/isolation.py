"""Scenarios of area isolation: a tenant sees, and changes, nothing of another one, by whichever call."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import msgspec
from psycopg import errors, sql

from migrator import records
from migrator.errors import ConflictError, DeniedError, MigratorError, NotFoundError, StoreError
from migrator.records import AuditEntry, ExecutionLog, GraphJob, Handler, ImpactSnapshot, PolicyJob, Run
from migrator.scheduler.models import Job
from migrator.scratch import inner_store
from migrator.store.postgres.store import PostgresStore
from migrator.store.protocols import RunQuery, ScheduleQuery
from migrator.verify.behaviour.harness import HOUR, MINUTE, Harness
from migrator.verify.behaviour.scenarios import Observations


def facade(harness: Harness, observed: Observations) -> None:
    """Ask as the other tenant, with ids of the first one, through the facade."""
    job, run = _first_tenant_rows(harness)
    other = harness.facade_of(harness.other)
    before = (harness.job(job), harness.runs(job))
    now = harness.now
    observed.expect("get sees nothing", None, other.get(job.id, now=now))
    observed.expect("get_execution sees nothing", None, other.get_execution(run.id, now=now))
    observed.expect("list sees nothing", (0, 0), (other.list(now=now).total, len(other.list(now=now).jobs)))
    observed.expect("an event wakes nobody there", 0, len(other.trigger_event("push", now=now).runs))
    metrics = other.metrics(now=now)
    observed.expect(
        "metrics count nothing", (0, 0, 0), (metrics.jobs.total, metrics.executions.total, metrics.queue.size)
    )
    calls: dict[str, Callable[[], Any]] = {
        "history": lambda: other.history(job.id, now=now),
        "stats": lambda: other.stats(job.id, now=now),
        "pause": lambda: other.pause(job.id, now=now),
        "resume": lambda: other.resume(job.id, now=now),
        "cancel": lambda: other.cancel(job.id, now=now),
        "toggle": lambda: other.toggle(job.id, enabled=False, now=now),
        "update": lambda: other.update(job.id, name="taken", now=now),
        "reschedule": lambda: other.reschedule(job.id, interval=MINUTE, now=now),
        "unschedule": lambda: other.unschedule(job.id, now=now),
        "trigger_now": lambda: other.trigger_now(job.id, now=now),
        "retry": lambda: other.retry(run.id, now=now),
        "retry_schedule": lambda: other.retry_schedule(job.id, now=now),
    }
    for what, call in calls.items():
        observed.expect_refused(f"{what} finds nothing", NotFoundError, call)
    observed.expect("the first tenant's rows are as they were", before, (harness.job(job), harness.runs(job)))


def repositories(harness: Harness, observed: Observations) -> None:
    """Ask as the other tenant, with ids of the first one, every repository."""
    job, run = _first_tenant_rows(harness)
    trigger = harness.job(job).triggers[0]
    own: dict[str, Any] = {
        "graph": GraphJob(
            id=harness.new_id(),
            tenant_id=harness.tenant,
            type=0,
            status=5,
            payload=b"{}",
            created_at=harness.now,
            updated_at=harness.now,
        ),
        "policy": PolicyJob(id=harness.new_id(), tenant_id=harness.tenant, policy_id="P", status="pending", run_id="r"),
        "snapshot": ImpactSnapshot(id=harness.new_id(), tenant_id=harness.tenant, run_id=run.id),
        "line": ExecutionLog(
            id=harness.new_id(), tenant_id=harness.tenant, run_id=run.id, logged_at=harness.now, level="info"
        ),
        "audit": AuditEntry(
            id=harness.new_id(), tenant_id=harness.tenant, category="scheduler", action="x", occurred_at=harness.now
        ),
        "handler": Handler(id=harness.new_id(), tenant_id=harness.tenant, name="own", handler_type="function"),
    }
    with harness.session() as session:
        session.graph_jobs.insert(own["graph"])
        session.policy_jobs.insert(own["policy"])
        session.impact_snapshots.insert(own["snapshot"])
        session.execution_logs.append([own["line"]])
        session.audit.append(own["audit"])
        session.handlers.upsert(own["handler"])
        session.run_summaries.recompute(job.id)
    with harness.session(harness.other) as session:
        seen: dict[str, Any] = {
            "schedules.get": session.schedules.get(job.id),
            "schedules.list": [*session.schedules.list(ScheduleQuery())],
            "schedules.due": [*session.schedules.due(10)],
            "triggers.get": session.triggers.get(trigger.id),
            "triggers.of_schedule": [*session.triggers.of_schedule(job.id)],
            "triggers.of_event": [*session.triggers.of_event("push")],
            "runs.get": session.runs.get(run.id),
            "runs.list": [*session.runs.list(RunQuery()).runs],
            "runs.pending": [*session.runs.pending(10)],
            "runs.of_schedule": [*session.runs.of_schedule(job.id, 10)],
            "graph_jobs.get": session.graph_jobs.get("build", own["graph"].id),
            "graph_jobs.list": [*session.graph_jobs.list("build", None, 10)],
            "policy_jobs.get": session.policy_jobs.get(own["policy"].id),
            "policy_jobs.by_run_id": session.policy_jobs.by_run_id("r"),
            "policy_jobs.list": [*session.policy_jobs.list(None, 10)],
            "impact_snapshots.get": session.impact_snapshots.get(own["snapshot"].id),
            "impact_snapshots.of_run": [*session.impact_snapshots.of_run(run.id)],
            "execution_logs.of_run": [*session.execution_logs.of_run(run.id)],
            "run_summaries.get": session.run_summaries.get(job.id),
            "audit.list": [*session.audit.list(10)],
            "handlers.get": session.handlers.get("own"),
        }
        for what, answer in seen.items():
            observed.expect_true(f"{what} sees nothing", answer is None or answer == [])
        observed.expect("change finds nothing", None, session.schedules.change(job.id, description="taken"))
        observed.expect(
            "change_status finds nothing", None, session.schedules.change_status(job.id, "scheduled", "paused")
        )
        observed.expect_false("soft_delete finds nothing", session.schedules.soft_delete(job.id, "other"))
        observed.expect("cancel finds nothing", None, session.runs.cancel(run.id, "taken"))
        observed.expect_false(
            "move finds nothing", session.triggers.move(trigger.id, trigger.next_fire_at, harness.now)
        )
    for what, call in _forbidden_writes(harness, job, run).items():
        if what.startswith("refer"):
            observed.expect_refused(what, MigratorError, call)
        else:
            with suppress(ConflictError):  # PostgreSQL's keys carry the tenant, so there it is a row of its own
                call()
    with harness.session() as session:
        observed.expect(
            "the first tenant's rows are as they were",
            (job.schedule, trigger, run),
            (session.schedules.get(job.id), session.triggers.get(trigger.id), session.runs.get(run.id)),
        )


def _forbidden_writes(harness: Harness, job: Job, run: Run) -> dict[str, Callable[[], Any]]:
    """Return attempts to write a row under an id of the first tenant, after one that refers to its schedule."""

    def write(act: Callable[[Any], Any]) -> Callable[[], Any]:
        def call() -> Any:  # noqa: ANN401 - as the act answers
            with harness.session(harness.other) as session:
                return act(session)

        return call

    mine = msgspec.structs.replace(job.schedule, tenant_id=harness.other, name="taken")
    stolen = msgspec.structs.replace(run, tenant_id=harness.other, schedule_id=None)
    refers = Run(
        id=harness.new_id(), tenant_id=harness.other, state="queued", created_at=harness.now, schedule_id=job.id
    )
    return {
        "refer to a schedule of the other": write(lambda session: session.runs.create(refers)),
        "the id of a schedule is taken": write(lambda session: session.schedules.upsert(mine)),
        "the id of a run is taken": write(lambda session: session.runs.create(stolen)),
    }


def rows(harness: Harness, observed: Observations) -> None:
    """Ask PostgreSQL itself, in the service's role, for rows of the first tenant: as the other one, and as none."""
    job, run = _first_tenant_rows(harness)
    harness.run_once()
    store = inner_store(harness.store)
    if not isinstance(store, PostgresStore):
        return
    tables = [record.table for record in records.ALL]
    for bound, who in ((harness.other, "the other tenant"), (None, "no tenant")):
        with store.pool.transaction(tenant=harness.other) as (connection, _):
            if bound is None:
                connection.execute("SELECT set_config('app.tenant_id', '', true)")
            for table in tables:
                name = sql.Identifier("scheduler", table)
                count = connection.execute(
                    sql.SQL("SELECT count(*) FROM {} WHERE tenant_id = %s").format(name), (harness.tenant,)
                ).fetchone()
                observed.expect(f"{table}: {who} sees no row", 0, count[0] if count else None)
    with store.pool.transaction(tenant=harness.tenant) as (connection, _):
        count = connection.execute("SELECT count(*) FROM scheduler.schedules").fetchone()
        observed.expect(
            "bound to the first one, its own rows and no others are there", 1 + 1, count[0] if count else None
        )
    for what, statement, given in (
        (
            "insert",
            # a whole row: if row-level security lets it pass, nothing else may refuse it
            "INSERT INTO scheduler.handlers (id, tenant_id, name, handler_type) VALUES (%s, %s, 'x', 'function')",
            (harness.new_id(), harness.tenant),
        ),
        ("update", "UPDATE scheduler.schedules SET name = 'taken' WHERE id = %s", (job.id,)),
        ("delete", "DELETE FROM scheduler.runs WHERE id = %s", (run.id,)),
    ):
        observed.expect(
            f"{what}: a row of the first tenant is not written", 0, _written(store, harness.other, statement, given)
        )


def _written(store: PostgresStore, tenant: str, statement: str, given: tuple[Any, ...]) -> int:
    try:
        with store.pool.transaction(tenant=tenant) as (connection, _):
            return connection.execute(cast("Any", statement), given).rowcount
    except (errors.InsufficientPrivilege, DeniedError, StoreError):
        return 0


def _first_tenant_rows(harness: Harness) -> tuple[Job, Run]:
    """Give the first tenant a schedule, a handler of an event, and a queued run."""
    job = harness.every(HOUR)
    harness.facade.on_event("push", "work", now=harness.now)
    run = harness.facade.trigger_now(job.id, now=harness.now)
    return harness.job(job), run
