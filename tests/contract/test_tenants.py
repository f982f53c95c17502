"""Tenant a sees and reaches nothing of tenant b, whatever it asks; and writes nothing for others."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from migrator.errors import ConflictError, NotFoundError, UsageError
from migrator.store.postgres.store import PostgresStore
from migrator.store.protocols import RunQuery, ScheduleQuery, Session, SessionStore
from tests.contract.rows import (
    NOW,
    SECOND,
    changed,
    entry,
    event_trigger,
    fresh,
    graph_event,
    graph_job,
    handler,
    line,
    policy_job,
    run,
    schedule,
    snapshot,
    trigger,
)

LATER = NOW + SECOND
LONG = timedelta(days=1)


class Theirs:
    """A row of every kind, of a tenant of its own."""

    def __init__(self, store: SessionStore) -> None:
        self.tenant = tenant = fresh()
        self.of, self.job, self.policy = schedule(tenant), graph_job(tenant), policy_job(tenant, run_id="theirs")
        self.due, self.event = trigger(self.of), event_trigger(self.of, "push")
        self.snapshot, self.entry, self.handler = snapshot(tenant, total=1), entry(tenant), handler(tenant)
        with store.session(tenant, now=NOW) as session:
            session.schedules.upsert(self.of)
            for each in (self.due, self.event):
                session.triggers.upsert(each)
            self.run = session.runs.create(run(tenant, schedule_id=self.of.id, trace_id="t"))
            self.ended = session.runs.create(run(tenant, state="completed"))
            self.snapshot = changed(self.snapshot, run_id=self.run.id)
            self.line = line(tenant, run_id=self.run.id)
            session.impact_snapshots.insert(self.snapshot)
            session.execution_logs.append([self.line])
            session.graph_jobs.insert(self.job)
            session.graph_jobs.append_event(graph_event(self.job))
            session.policy_jobs.insert(self.policy)
            session.audit.append(self.entry)
            session.handlers.upsert(self.handler)


READS: dict[str, Callable[[Session, Theirs], Any]] = {
    "schedules.get": lambda s, b: s.schedules.get(b.of.id),
    "schedules.by_name": lambda s, b: s.schedules.by_name(b.of.name),
    "schedules.called": lambda s, b: s.schedules.called(b.of.name),
    "schedules.list": lambda s, b: s.schedules.list(ScheduleQuery(include_global=True, name_contains=b.of.name)),
    "schedules.count": lambda s, _: s.schedules.count(ScheduleQuery()),
    "schedules.due": lambda s, _: s.schedules.due(10),
    "triggers.get": lambda s, b: s.triggers.get(b.due.id),
    "triggers.of_schedule": lambda s, b: s.triggers.of_schedule(b.of.id),
    "triggers.of_event": lambda s, _: s.triggers.of_event("push"),
    "runs.get": lambda s, b: s.runs.get(b.run.id),
    "runs.list": lambda s, _: s.runs.list(RunQuery()).runs,
    "runs.list by trace": lambda s, _: s.runs.list(RunQuery(trace_id="t")).runs,
    "runs.list by schedule": lambda s, b: s.runs.list(RunQuery(schedule_id=b.of.id)).runs,
    "runs.pending": lambda s, _: s.runs.pending(10),
    "runs.of_schedule": lambda s, b: s.runs.of_schedule(b.of.id, 10),
    "runs.newest_of": lambda s, b: s.runs.newest_of([b.of.id], ["queued"]),
    "runs.beyond": lambda s, _: s.runs.beyond(0, NOW + LONG, 10),
    "graph_jobs.get": lambda s, b: s.graph_jobs.get("build", b.job.id),
    "graph_jobs.list": lambda s, _: s.graph_jobs.list("build", None, 10),
    "graph_jobs.list by status": lambda s, _: s.graph_jobs.list("build", "pending", 10),
    "graph_jobs.events": lambda s, b: s.graph_jobs.events(b.job.id),
    "policy_jobs.get": lambda s, b: s.policy_jobs.get(b.policy.id),
    "policy_jobs.by_run_id": lambda s, _: s.policy_jobs.by_run_id("theirs"),
    "policy_jobs.list": lambda s, _: s.policy_jobs.list("pending", 10),
    "impact_snapshots.get": lambda s, b: s.impact_snapshots.get(b.snapshot.id),
    "impact_snapshots.of_run": lambda s, b: s.impact_snapshots.of_run(b.run.id),
    "execution_logs.of_run": lambda s, b: s.execution_logs.of_run(b.run.id),
    "run_summaries.get": lambda s, b: s.run_summaries.get(b.of.id),
    "audit.list": lambda s, _: s.audit.list(10),
    "audit.list by schedule": lambda s, _: s.audit.list(10, action="pause"),
    "handlers.get": lambda s, _: s.handlers.get("mail"),
    "handlers.list": lambda s, b: [row for row in s.handlers.list() if row.id == b.handler.id],
}

SILENT: dict[str, Callable[[Session, Theirs], Any]] = {
    "schedules.soft_delete": lambda s, b: s.schedules.soft_delete(b.of.id, "me"),
    "schedules.change_status": lambda s, b: s.schedules.change_status(b.of.id, "scheduled", "paused"),
    "triggers.delete_of_schedule": lambda s, b: s.triggers.delete_of_schedule(b.of.id),
    "runs.update": lambda s, b: s.runs.update(changed(b.run, tenant_id=s.tenant, state="running"), "queued"),
    "runs.cancel": lambda s, b: s.runs.cancel(b.run.id, "x"),
    "runs.cancel_of_schedule": lambda s, b: s.runs.cancel_of_schedule(b.of.id, "x"),
    "runs.remove": lambda s, b: s.runs.remove([b.run.id, b.ended.id]),
    "graph_jobs.try_replace": lambda s, b: s.graph_jobs.try_replace(
        changed(b.job, tenant_id=s.tenant, status=1), "pending"
    ),
    "policy_jobs.try_replace": lambda s, b: s.policy_jobs.try_replace(
        changed(b.policy, tenant_id=s.tenant, status="failed"), "pending"
    ),
    "policy_jobs.lease": lambda s, _: s.policy_jobs.lease("w", 10, LONG),
    "handlers.delete": lambda s, _: s.handlers.delete("mail"),
}

REFUSED: dict[str, tuple[type[Exception], Callable[[Session, Theirs], Any]]] = {
    "triggers.upsert": (NotFoundError, lambda s, b: s.triggers.upsert(changed(b.due, tenant_id=s.tenant))),
    "runs.create for": (NotFoundError, lambda s, b: s.runs.create(run(s.tenant, schedule_id=b.of.id))),
    "runs.create by": (NotFoundError, lambda s, b: s.runs.create(run(s.tenant, trigger_id=b.due.id))),
    "runs.create after": (NotFoundError, lambda s, b: s.runs.create(run(s.tenant, retry_of=b.run.id))),
    "graph_jobs.append_event": (
        NotFoundError,
        lambda s, b: s.graph_jobs.append_event(graph_event(changed(b.job, tenant_id=s.tenant))),
    ),
    "impact_snapshots.insert": (
        NotFoundError,
        lambda s, b: s.impact_snapshots.insert(snapshot(s.tenant, run_id=b.run.id)),
    ),
    "execution_logs.append": (
        NotFoundError,
        lambda s, b: s.execution_logs.append([line(s.tenant, run_id=b.run.id)]),
    ),
    "run_summaries.recompute": (NotFoundError, lambda s, b: s.run_summaries.recompute(b.of.id)),
}

TAKEN: dict[str, Callable[[Session, Theirs], Any]] = {
    "schedules.upsert": lambda s, b: s.schedules.upsert(schedule(s.tenant, id=b.of.id)),
    "runs.create": lambda s, b: s.runs.create(run(s.tenant, id=b.run.id)),
    "graph_jobs.insert": lambda s, b: s.graph_jobs.insert(graph_job(s.tenant, id=b.job.id)),
    "policy_jobs.insert": lambda s, b: s.policy_jobs.insert(policy_job(s.tenant, id=b.policy.id)),
    "audit.append": lambda s, b: s.audit.append(entry(s.tenant, id=b.entry.id)),
}
"""Attempts to use an id of another tenant for an own row."""

WRITES_FOR: dict[str, Callable[[Session, str], Any]] = {
    "schedules.upsert": lambda s, t: s.schedules.upsert(schedule(t)),
    "triggers.upsert": lambda s, t: s.triggers.upsert(trigger(schedule(t))),
    "runs.create": lambda s, t: s.runs.create(run(t)),
    "runs.update": lambda s, t: s.runs.update(run(t, state="running"), "queued"),
    "graph_jobs.insert": lambda s, t: s.graph_jobs.insert(graph_job(t)),
    "graph_jobs.try_replace": lambda s, t: s.graph_jobs.try_replace(graph_job(t, status=1), "pending"),
    "graph_jobs.append_event": lambda s, t: s.graph_jobs.append_event(graph_event(graph_job(t))),
    "policy_jobs.insert": lambda s, t: s.policy_jobs.insert(policy_job(t)),
    "policy_jobs.try_replace": lambda s, t: s.policy_jobs.try_replace(policy_job(t, status="failed"), "pending"),
    "impact_snapshots.insert": lambda s, t: s.impact_snapshots.insert(snapshot(t)),
    "execution_logs.append": lambda s, t: s.execution_logs.append([line(t)]),
    "audit.append": lambda s, t: s.audit.append(entry(t)),
    "handlers.upsert": lambda s, t: s.handlers.upsert(handler(t)),
}


def seen(store: SessionStore, theirs: Theirs) -> dict[str, Any]:
    with store.session(theirs.tenant, now=NOW) as session:
        return {name: read(session, theirs) for name, read in READS.items()}


@pytest.fixture(scope="module")
def theirs(store: SessionStore) -> Theirs:
    return Theirs(store)


@pytest.mark.proves("0-X2", "1-G4")
@pytest.mark.parametrize("name", READS)
def test_a_read_finds_nothing_of_another_tenant(name: str, store: SessionStore, tenant: str, theirs: Theirs) -> None:
    with store.session(theirs.tenant, now=NOW) as session:
        assert READS[name](session, theirs)  # there is something to find
    with store.session(tenant, now=NOW) as session:
        assert not READS[name](session, theirs)


@pytest.mark.proves("0-X2", "1-G4")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.proves("0-T2.3.2")] if name == "schedules.soft_delete" else [])
        for name in SILENT
    ],
)
def test_a_write_does_not_reach_another_tenant_s_rows(
    name: str, store: SessionStore, tenant: str, theirs: Theirs
) -> None:
    before = seen(store, theirs)
    with store.session(tenant, now=LATER) as session:
        assert not SILENT[name](session, theirs)
    assert seen(store, theirs) == before


@pytest.mark.proves("0-X2", "1-G4")
@pytest.mark.parametrize("name", REFUSED)
def test_an_id_of_another_tenant_can_be_neither_used_nor_referred_to(
    name: str, store: SessionStore, tenant: str, theirs: Theirs
) -> None:
    before = seen(store, theirs)
    error, write = REFUSED[name]
    with store.session(tenant, now=LATER) as session, pytest.raises(error):
        write(session, theirs)
    assert seen(store, theirs) == before


@pytest.mark.proves("0-X2", "1-G4")
@pytest.mark.parametrize("name", TAKEN)
def test_an_own_row_with_an_id_of_another_tenant_leaves_that_tenant_s_row_alone(
    name: str, store: SessionStore, tenant: str, theirs: Theirs
) -> None:
    """PostgreSQL's keys carry the tenant, and tell nothing of another one; a collection of MongoDB has one ``_id``."""
    before = seen(store, theirs)
    session: Any
    if isinstance(store, PostgresStore):
        with store.session(tenant, now=LATER) as session:
            TAKEN[name](session, theirs)
    else:
        with store.session(tenant, now=LATER) as session, pytest.raises(ConflictError):
            TAKEN[name](session, theirs)
    assert seen(store, theirs) == before


@pytest.mark.proves("0-X2", "1-G4")
@pytest.mark.parametrize("name", WRITES_FOR)
def test_a_session_writes_for_its_own_tenant_only(name: str, store: SessionStore, tenant: str) -> None:
    for other in (fresh(), "*"):
        with store.session(tenant, now=NOW) as session, pytest.raises(UsageError):
            WRITES_FOR[name](session, other)
    with store.session("*", now=NOW) as session, pytest.raises(UsageError):
        WRITES_FOR[name](session, "*")
