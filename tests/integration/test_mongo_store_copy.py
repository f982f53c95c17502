"""What the application writes through the MongoDB store is what the migration reads."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast
from uuid import UUID, uuid4

import msgspec
import pytest
from pymongo.database import Database

from migrator.parity.check import check_parity
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.records import AuditEntry, ExecutionLog, GraphJobEvent, Handler, ImpactSnapshot, Record, WorkerRecord
from migrator.store.mongo.store import MongoStore
from migrator.store.protocols import RunQuery, ScheduleQuery, Session
from tests import store_mongo, store_postgres
from tests.copying import settings_for
from tests.store_postgres import NOW, graph_job, policy_job, run, schedule, trigger

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


class Ids(msgspec.Struct, frozen=True):
    """What was written."""

    schedule: UUID
    trigger: UUID
    run: UUID
    graph_job: UUID
    snapshot: UUID
    policy_job: UUID


def write(session: Session) -> Ids:
    """Fill every repository, most columns set, and take some rows through their lives."""
    one = schedule(
        name="nightly",
        status="scheduled",
        mode="analysis-only",
        selection=b'{"scope":"by-namespace","namespaces":["a","b"]}',
        only_if=b'{"lastReportOlderThanDays":3}',
        notify=b'{"minSeverity":"high","onNewFindings":true}',
        limits=b'{"maxJobs":5}',
        subscribers=("x", "y"),
        handler_name="rescan",
        handler_type="function",
        payload=b'{"deep":{"list":[1,2.5,null,"t"]}}',
        priority=75,
        max_retries=3,
        retry_delay_ms=1000,
        retry_strategy="exponential",
        timeout_ms=60_000,
        max_concurrency=2,
        tags=("red", "green"),
        metadata=b'{"n":1}',
        created_by="user:a",
    )
    session.schedules.upsert(one)
    session.schedules.upsert(schedule(name="gone"))
    paused = session.schedules.upsert(schedule(name="paused"))
    session.schedules.change_status(paused.id, "scheduled", "paused", paused_at=NOW)
    deleted = session.schedules.by_name("gone")
    assert deleted is not None
    session.schedules.soft_delete(deleted.id, "user:b")
    fires = session.triggers.upsert(trigger(one))
    session.triggers.upsert(trigger(one, kind="cron", cron_expression="*/5 * * * *", cron_dialect="cronos"))
    first = session.runs.create(
        run(schedule_id=one.id, trigger_id=fires.id, scheduled_at=NOW, cause="interval", trace_id="t-1", dedupe_key="k")
    )
    started = msgspec.structs.replace(first, state="running", worker_id="w", fence=1, stats=b'{"deltas":2,"queued":9}')
    assert session.runs.update(started, "queued")
    ended = msgspec.structs.replace(started, state="completed", result=b'{"ok":true}', finished_at=NOW + SECOND)
    assert session.runs.update(ended, "running")
    retry = run(schedule_id=one.id, state="queued", retry_of=first.id, created_at=NOW + SECOND, attempt=2)
    session.runs.create(retry)
    session.runs.create(run(state="planning"))
    job = graph_job(payload=b'{"sbom":"s","attempts":2}', correlation_id="c-1")
    session.graph_jobs.insert(job)
    assert session.graph_jobs.try_replace(msgspec.structs.replace(job, status=1, updated_at=NOW + SECOND), "pending")
    session.graph_jobs.append_event(
        GraphJobEvent(id=0, job_id=job.id, tenant_id="a", status=1, payload=b'{"note":1}', created_at=NOW)
    )
    snapshot = ImpactSnapshot(
        id=uuid4(),
        tenant_id="a",
        run_id=first.id,
        selector=b'{"scope":"all-images"}',
        images=b'[{"imageDigest":"sha256:a","tags":["v1"]}]',
        total=1 << 40,
        generated_at=NOW,
    )
    session.impact_snapshots.insert(snapshot)
    work = policy_job(run_id="run:1", priority_rank=3, queued_at=NOW, stats=b'{"components":1}', started_at=NOW)
    session.policy_jobs.insert(work)
    session.policy_jobs.insert(policy_job(run_id="run:2", status="queued"))
    assert [found.id for found in session.policy_jobs.lease("w", 1, SECOND)] == [work.id]
    line = ExecutionLog(id=uuid4(), tenant_id="a", run_id=first.id, logged_at=NOW, level="info", message="m")
    session.execution_logs.append([line, msgspec.structs.replace(line, id=uuid4(), context=b'{"a":[1]}')])
    session.run_summaries.recompute(one.id)
    session.audit.append(
        AuditEntry(
            id=uuid4(),
            tenant_id="a",
            category="schedule",
            action="create",
            occurred_at=NOW,
            actor=b'{"actorId":"u","kind":"user"}',
            schedule_id=one.id,
            run_id=first.id,
            metadata=b'{"k":"v"}',
        )
    )
    session.handlers.upsert(Handler(id=uuid4(), tenant_id="a", name="rescan", handler_type="function", idempotent=True))
    return Ids(one.id, fires.id, first.id, job.id, snapshot.id, work.id)


def work(store: MongoStore) -> None:
    """Claim a run and give it back, claim it again; register a worker; hold one lock, and give another one back."""
    worker = WorkerRecord(
        id=uuid4(), tenant_id="*", kind="worker", hostname="h", queues=("q",), capacity=4, status="active"
    )
    store.workers.register(worker)
    for again in (True, False):
        claims = store.queue.claim(str(worker.id), 9, HOUR, NOW + HOUR)
        assert len(claims) == 1
        if again:
            assert len(store.queue.release(claims, NOW + HOUR)) == 1
    assert store.locks.acquire("a", "planner", ttl=HOUR, holder="me") is not None
    free = store.locks.acquire("*", "leader", ttl=HOUR, holder="me")
    assert free is not None
    assert free.release()


def read(session: Session, ids: Ids) -> dict[str, list[Any]]:
    """Return the answers of every read of every repository."""
    found: dict[str, Any] = {
        "schedule": session.schedules.get(ids.schedule),
        "schedules": session.schedules.list(ScheduleQuery(sort_by="name")),
        "due": session.schedules.due(10),
        "trigger": session.triggers.get(ids.trigger),
        "triggers": session.triggers.of_schedule(ids.schedule),
        "run": session.runs.get(ids.run),
        "runs": session.runs.list(RunQuery()).runs,
        "runs of the schedule": session.runs.of_schedule(ids.schedule, 10),
        "pending": session.runs.pending(10),
        "job": session.graph_jobs.get("build", ids.graph_job),
        "jobs": session.graph_jobs.list("build", "running", 10),
        "events": session.graph_jobs.events(ids.graph_job),
        "policy job": session.policy_jobs.by_run_id("run:1"),
        "policy jobs": session.policy_jobs.list(None, 10),
        "snapshot": session.impact_snapshots.get(ids.snapshot),
        "snapshots": session.impact_snapshots.of_run(ids.run),
        "logs": session.execution_logs.of_run(ids.run),
        "summary": session.run_summaries.get(ids.schedule),
        "audit": session.audit.list(10, schedule_id=ids.schedule),
        "handlers": session.handlers.list(),
    }
    return {what: [_plain(row) for row in _rows(answer)] for what, answer in found.items()}


def _rows(answer: object) -> list[Record]:
    return cast("list[Record]", [*answer] if isinstance(answer, (list, tuple)) else [answer])


def _plain(row: Record) -> Any:  # noqa: ANN401 - a record
    """Return the row without what says where it was created."""
    if "source" in row.__struct_fields__:
        return msgspec.structs.replace(row, source=None, source_id=None, extra=b"{}")
    return row


@pytest.mark.proves("0-T2.3.1")
def test_what_is_written_here_is_copied_clean_and_read_there(
    mongo_database: Database[Any], new_scheduler_dsn: Callable[[], str]
) -> None:
    dsn = new_scheduler_dsn()
    with store_mongo.opened(mongo_database) as store:
        with store.session("a", now=NOW) as session:
            ids = write(session)
        work(store)
        with store.session("a", now=NOW) as session:
            before = read(session, ids)
        documents = {name: mongo_database[name].count_documents({}) for name in mongo_database.list_collection_names()}
    assert all(rows and rows[0] is not None for rows in before.values())
    assert all(documents[name] for name in documents.keys() - {"policy_runs"})

    settings = settings_for(mongo_database, dsn)
    assert backfill(settings, Scope()).complete
    outcome = check_parity(settings, Scope())
    assert all(one.balanced and not (one.differing or one.missing or one.extra) for one in outcome.collections)
    assert sum(one.documents for one in outcome.collections) == sum(documents.values())
    assert not any(figure.differing_total for figure in outcome.aggregates)
    with store_postgres.opened(dsn, copied=True) as target, target.session("a", now=NOW) as session:
        after = read(session, ids)
        tables = (
            "schedules",
            "triggers",
            "runs",
            "policy_jobs",
            "run_summaries",
            "audit",
            "handlers",
            "execution_logs",
            "workers",
            "locks",
        )
        query = " UNION ALL ".join(f"SELECT source_id FROM scheduler.{name} WHERE extra <> '{{}}'" for name in tables)
        unclean = session.connection.execute(query).fetchall()
    for what, rows in before.items():
        assert after[what] == rows, what
    assert unclean == []
