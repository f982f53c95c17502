"""Policy jobs: one per run id, in the order of rank, changed by compare-and-set, leased to one worker each."""

from collections.abc import Callable
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.errors import ConflictError, TransitionError, UsageError
from migrator.records import PolicyJob
from migrator.store.protocols import SessionStore
from tests.contract.rows import MILLISECOND, NOW, SECOND, bare, changed, fresh, ids, policy_job
from tests.state_squares import STATES, is_allowed

LATER = NOW + SECOND
LEASE = timedelta(minutes=1)
STATUSES = STATES["policy job"]


def in_order(jobs: list[PolicyJob]) -> list[PolicyJob]:
    """Sort by rank, highest first, then by queued time, then by id; what is absent comes last."""
    jobs = sorted(jobs, key=lambda job: job.id)
    jobs.sort(key=lambda job: (job.queued_at is None, job.queued_at or NOW))
    jobs.sort(key=lambda job: (job.priority_rank is None, -(job.priority_rank or 0)))
    return jobs


@pytest.mark.proves("0-T2.6.1")
def test_a_job_is_inserted_and_got(store: SessionStore, tenant: str) -> None:
    job = policy_job(tenant, run_id="r-1", metadata=b'{"a":"b"}', policy_version=3)
    with store.session(tenant, now=NOW) as session:
        session.policy_jobs.insert(job)
        found = session.policy_jobs.get(job.id)
        assert found is not None
        assert bare(found) == changed(job, created_at=NOW, updated_at=NOW)
        assert session.policy_jobs.by_run_id("r-1") == found
        assert session.policy_jobs.get(uuid4()) is None
        assert session.policy_jobs.by_run_id("r-2") is None


@pytest.mark.proves("0-T2.6.1")
def test_an_id_and_a_run_id_are_taken_once_per_tenant(store: SessionStore, tenant: str) -> None:
    job = policy_job(tenant, run_id="r-1")
    with store.session(tenant, now=NOW) as session:
        session.policy_jobs.insert(job)
        with pytest.raises(ConflictError):
            session.policy_jobs.insert(policy_job(tenant, run_id="r-1"))
        with pytest.raises(ConflictError):
            session.policy_jobs.insert(policy_job(tenant, id=job.id))
        assert ids(session.policy_jobs.list(None, 9)) == [job.id]
        for _ in range(2):
            session.policy_jobs.insert(policy_job(tenant))  # without a run id nothing is taken
    elsewhere = fresh()
    with store.session(elsewhere, now=NOW) as session:
        session.policy_jobs.insert(policy_job(elsewhere, run_id="r-1"))


@pytest.mark.parametrize(
    "columns",
    [{"status": "no such"}, {"mode": "no such"}, {"priority": "no such"}, {"queued_at": NOW.replace(tzinfo=None)}],
)
def test_a_job_that_the_table_refuses_is_refused_everywhere(
    columns: dict[str, Any], store: SessionStore, tenant: str
) -> None:
    with store.session(tenant, now=NOW) as session:
        with pytest.raises(UsageError):
            session.policy_jobs.insert(policy_job(tenant, **columns))
        assert session.policy_jobs.list(None, 9) == []


JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "status": st.sampled_from(STATUSES),
            "priority_rank": st.none() | st.integers(-1, 2),
            "queued_at": st.none() | st.integers(-1, 1).map(lambda seconds: NOW + SECOND * seconds),
            "available_at": st.none() | st.integers(-1, 1).map(lambda steps: NOW + MILLISECOND * steps),
        }
    ),
    max_size=9,
)


@pytest.mark.proves("0-T2.6.2", "1-G3")
@settings(max_examples=15, deadline=None)
@given(rows=JOBS, limit=st.integers(1, 6))
def test_lists_are_what_a_walk_over_all_finds(store: SessionStore, rows: list[dict[str, Any]], limit: int) -> None:
    tenant = fresh()
    jobs = [policy_job(tenant, **columns) for columns in rows]
    with store.session(tenant, now=NOW) as session:
        for job in jobs:
            session.policy_jobs.insert(job)
        for status in (None, *STATUSES):
            expected = in_order([job for job in jobs if status in {None, job.status}])
            assert ids(session.policy_jobs.list(status, limit)) == ids(expected)[:limit]


@pytest.mark.proves("0-T2.6.2")
@pytest.mark.parametrize(("status", "limit"), [(None, 0), (None, -1), ("no such", 5)])
def test_a_list_that_makes_no_sense_is_refused(
    status: str | None, limit: int, store: SessionStore, tenant: str
) -> None:
    with store.session(tenant, now=NOW) as session, pytest.raises(UsageError):
        session.policy_jobs.list(status, limit)


@pytest.mark.proves("1-G3", "0-T2.6.1")
@pytest.mark.parametrize("status", STATUSES)
def test_every_pair_of_statuses_is_as_the_specification_says(status: str, store: SessionStore, tenant: str) -> None:
    for follower in STATUSES:
        job = policy_job(tenant, status=status, run_id=uuid4().hex)
        after = changed(job, status=follower, last_error="e", updated_at=LATER)
        with store.session(tenant, now=NOW) as session:
            session.policy_jobs.insert(job)
            before = session.policy_jobs.get(job.id)
        with store.session(tenant, now=LATER) as session:
            if is_allowed("policy job", status, follower):
                assert session.policy_jobs.try_replace(after, status) is True
                found = session.policy_jobs.get(job.id)
                assert found is not None
                assert bare(found) == changed(after, created_at=NOW)
            else:
                with pytest.raises(TransitionError):
                    session.policy_jobs.try_replace(after, status)
                assert session.policy_jobs.get(job.id) == before


@pytest.mark.proves("0-T2.6.1")
def test_a_writer_whose_knowledge_is_old_gets_false(store: SessionStore, tenant: str) -> None:
    job = policy_job(tenant, run_id="r-1")
    with store.session(tenant, now=NOW) as session:
        session.policy_jobs.insert(job)
        assert session.policy_jobs.try_replace(changed(job, status="completed"), "submitted") is False
        assert session.policy_jobs.try_replace(changed(job, status="failed", run_id="r-9"), "pending") is True
        assert session.policy_jobs.try_replace(changed(job, status="canceled"), "pending") is False
        assert session.policy_jobs.try_replace(policy_job(tenant, status="failed"), "pending") is False
        found = session.policy_jobs.get(job.id)
        assert found is not None
        assert (found.status, found.run_id) == ("failed", "r-1")  # the run id stays


@pytest.mark.proves("0-T2.6.2")
@settings(max_examples=15, deadline=None)
@given(rows=JOBS, limit=st.integers(1, 6))
def test_those_are_leased_that_are_pending_and_available_in_order(
    store: SessionStore, rows: list[dict[str, Any]], limit: int
) -> None:
    tenant = fresh()
    jobs = [policy_job(tenant, **columns) for columns in rows]
    with store.session(tenant, now=NOW - SECOND) as session:
        for job in jobs:
            session.policy_jobs.insert(job)
    free = [job for job in jobs if job.status == "pending" and (job.available_at is None or job.available_at <= NOW)]
    with store.session(tenant, now=NOW) as session:
        leased = session.policy_jobs.lease("w", limit, LEASE)
        assert ids(leased) == ids(in_order(free))[:limit]
        for found in leased:
            assert session.policy_jobs.get(found.id) == found
        rest = session.policy_jobs.lease("w", 20, LEASE)
        assert ids(leased) + ids(rest) == ids(in_order(free))


@pytest.mark.proves("0-T2.6.1")
def test_a_leased_job_says_by_whom_until_when_and_how_often(store: SessionStore, tenant: str) -> None:
    first, second = policy_job(tenant, priority_rank=2), policy_job(tenant, priority_rank=1, attempt_count=4)
    with store.session(tenant, now=NOW) as session:
        for job in (first, second):
            session.policy_jobs.insert(job)
    with store.session(tenant, now=LATER) as session:
        leased = session.policy_jobs.lease("worker-1", 2, LEASE)
    taken = {
        "status": "dispatching",
        "last_attempt_at": LATER,
        "lease_owner": "worker-1",
        "lease_expires_at": LATER + LEASE,
        "created_at": NOW,
        "updated_at": LATER,
    }
    assert [bare(job) for job in leased] == [
        changed(job, attempt_count=attempts, **taken) for job, attempts in ((first, 1), (second, 5))
    ]


@pytest.mark.parametrize(("limit", "lease"), [(0, LEASE), (-1, LEASE), (1, timedelta(0)), (1, -LEASE)])
def test_a_lease_that_makes_no_sense_is_refused(limit: int, lease: timedelta, store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        session.policy_jobs.insert(policy_job(tenant))
        with pytest.raises(UsageError):
            session.policy_jobs.lease("w", limit, lease)
        assert len(session.policy_jobs.list("pending", 5)) == 1


@pytest.mark.proves("0-T2.6.1")
def test_workers_at_the_same_time_share_the_jobs_out(store: SessionStore, tenant: str) -> None:
    jobs, workers = [policy_job(tenant) for _ in range(8)], 4
    with store.session(tenant, now=NOW) as session:
        for job in jobs:
            session.policy_jobs.insert(job)
    barrier = Barrier(workers)
    taken: list[tuple[str, UUID]] = []

    def work(name: str) -> None:
        barrier.wait()
        for _ in range(6):
            try:
                with store.session(tenant, now=LATER) as session:
                    leased = session.policy_jobs.lease(name, 2, LEASE)
            except ConflictError:
                continue  # the backend ended this session: nothing of it is kept
            taken.extend((name, job.id) for job in leased)

    threads = [Thread(target=work, args=(f"w{place}",)) for place in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(identity for _, identity in taken) == sorted(ids(jobs))
    with store.session(tenant, now=LATER) as session:
        owners = {job.id: job.lease_owner for job in session.policy_jobs.list("dispatching", 20)}
    assert owners == {identity: name for name, identity in taken}


@pytest.mark.proves("0-X2")
def test_a_global_job_is_got_and_neither_listed_nor_written(
    store: SessionStore, tenant: str, plant: Callable[..., None]
) -> None:
    shared = policy_job("*", run_id=fresh(), created_at=NOW, updated_at=NOW)
    plant(shared)
    with store.session(tenant, now=LATER) as session:
        found = session.policy_jobs.get(shared.id)
        assert found is not None
        assert bare(found) == shared
        assert session.policy_jobs.list(None, 9) == []
        assert session.policy_jobs.lease("w", 9, LEASE) == []
        with pytest.raises(UsageError):
            session.policy_jobs.try_replace(changed(shared, status="failed"), "pending")
        assert session.policy_jobs.try_replace(changed(shared, tenant_id=tenant, status="failed"), "pending") is False
