"""A session is one transaction of one tenant: all of it or nothing, at one time."""

from datetime import UTC, timedelta

import pytest

from migrator.errors import ConflictError, MigratorError, NotFoundError, UsageError
from migrator.store.protocols import RunQuery, ScheduleQuery, SessionStore
from tests.contract.rows import NOW, bare, entry, graph_job, handler, line, policy_job, run, schedule, trigger


class Stop(Exception):  # noqa: N818 - the caller's own, not the store's
    pass


def test_what_a_session_wrote_is_there_in_the_next(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        written = session.schedules.upsert(schedule(tenant))
    with store.session(tenant, now=NOW) as session:
        found = session.schedules.get(written.id)
    assert found is not None
    assert bare(found) == bare(written)


@pytest.mark.proves("0-T2.3.1", "0-T2.4.1", "1-R9")
def test_a_session_sees_what_it_wrote(store: SessionStore, tenant: str) -> None:
    of, job = schedule(tenant), graph_job(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        session.triggers.upsert(trigger(of))
        made = session.runs.create(run(tenant, schedule_id=of.id))
        session.graph_jobs.insert(job)
        assert session.schedules.count(ScheduleQuery()) == 1
        assert [found.id for found in session.schedules.due(5)] == [of.id]
        assert [found.id for found in session.runs.list(RunQuery()).runs] == [made.id]
        assert session.graph_jobs.get("build", job.id) is not None


@pytest.mark.proves("1-R9", "0-X2")
def test_a_session_that_raises_leaves_nothing(store: SessionStore, tenant: str) -> None:
    of, waiting, job, policy = schedule(tenant), run(tenant), graph_job(tenant), policy_job(tenant, run_id="once")
    with pytest.raises(Stop), store.session(tenant, now=NOW) as session:  # noqa: PT012 - the session's end is the point
        session.schedules.upsert(of)
        session.triggers.upsert(trigger(of))
        session.runs.create(waiting)
        session.runs.create(run(tenant, schedule_id=of.id))
        session.graph_jobs.insert(job)
        session.policy_jobs.insert(policy)
        session.execution_logs.append([line(tenant, run_id=waiting.id)])
        session.audit.append(entry(tenant))
        session.handlers.upsert(handler(tenant))
        raise Stop
    with store.session(tenant, now=NOW) as session:
        assert session.schedules.get(of.id) is None
        assert session.triggers.of_schedule(of.id) == []
        assert session.runs.list(RunQuery()).runs == ()
        assert session.run_summaries.get(of.id) is None
        assert session.graph_jobs.list("build", None, 10) == []
        assert session.policy_jobs.by_run_id("once") is None
        assert session.execution_logs.of_run(waiting.id) == []
        assert session.audit.list(10) == []
        assert session.handlers.get("mail") is None
        session.runs.create(waiting)  # its id is free


def test_a_change_that_is_rolled_back_leaves_the_row_as_it_was(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant, description="before")
    with store.session(tenant, now=NOW) as session:
        before = session.schedules.upsert(of)
        session.triggers.upsert(trigger(of))
    with pytest.raises(Stop), store.session(tenant, now=NOW) as session:  # noqa: PT012 - as above
        session.schedules.change_status(of.id, "scheduled", "paused", description="after")
        session.schedules.soft_delete(of.id, "me")
        raise Stop
    with store.session(tenant, now=NOW) as session:
        found = session.schedules.get(of.id)
        assert found is not None
        assert bare(found) == bare(before)
        assert [each.enabled for each in session.triggers.of_schedule(of.id)] == [True]


def test_a_refused_call_changes_nothing_and_the_session_goes_on(store: SessionStore, tenant: str) -> None:
    first = schedule(tenant, name="taken")
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(first)
        with pytest.raises(ConflictError):
            session.schedules.upsert(schedule(tenant, name="taken"))
        with pytest.raises(NotFoundError):
            session.triggers.upsert(trigger(schedule(tenant)))
        with pytest.raises(UsageError):
            session.schedules.list(ScheduleQuery(limit=0))
        second = session.schedules.upsert(schedule(tenant))
    with store.session(tenant, now=NOW) as session:
        assert {found.id for found in session.schedules.list(ScheduleQuery())} == {first.id, second.id}


def test_a_refusal_that_the_caller_lets_through_undoes_the_session(store: SessionStore, tenant: str) -> None:
    one = schedule(tenant)
    with pytest.raises(ConflictError), store.session(tenant, now=NOW) as session:  # noqa: PT012 - as above
        session.schedules.upsert(one)
        session.schedules.upsert(schedule(tenant, name=one.name))
    with store.session(tenant, now=NOW) as session:
        assert session.schedules.get(one.id) is None


@pytest.mark.parametrize("tenant", ["", "a\0b"])
def test_a_session_needs_a_tenant(tenant: str, store: SessionStore) -> None:
    with pytest.raises(UsageError), store.session(tenant):
        pass


def test_the_time_of_a_session_is_the_given_one_in_whole_milliseconds(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW.replace(microsecond=123_999)) as session:
        assert session.tenant == tenant
        assert session.now == NOW.replace(microsecond=123_000)
        written = session.schedules.upsert(schedule(tenant))
        assert written.created_at == written.updated_at == session.now
    with pytest.raises(UsageError), store.session(tenant, now=NOW.replace(tzinfo=None)):
        pass


def test_without_a_given_time_the_backend_s_clock_rules(store: SessionStore, tenant: str) -> None:
    before = store.now()
    with store.session(tenant) as session:
        inside = session.now
    after = store.now()
    assert before <= inside <= after
    for instant in (before, inside):
        assert instant.tzinfo is UTC
        assert instant.microsecond % 1000 == 0


def test_a_backend_answers(store: SessionStore) -> None:
    assert store.ping() >= timedelta(0)
    assert store.backend in {"memory", "mongo", "postgres"}


def test_refusals_are_the_tool_s_own_errors(store: SessionStore, tenant: str) -> None:
    """Whatever driver is below: a caller needs to know one family of errors."""
    with store.session(tenant, now=NOW) as session:
        session.audit.append(once := entry(tenant))
        with pytest.raises(MigratorError) as refused:
            session.audit.append(once)
    assert type(refused.value).__module__ == "migrator.errors"
