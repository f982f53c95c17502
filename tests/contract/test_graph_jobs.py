"""Graph jobs: build and overlay apart, changed by compare-and-set, every change an event in the same transaction."""

from datetime import datetime
from threading import Barrier, Thread
from typing import Any, get_args
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import states
from migrator.errors import ConflictError, NotFoundError, TransitionError, UsageError
from migrator.records import GraphJob
from migrator.store.protocols import GraphType, SessionStore
from migrator.values import jsonb
from migrator.values.times import format_iso
from tests.contract.rows import NOW, SECOND, changed, fresh, graph_event, graph_job, ids
from tests.state_squares import STATES, is_allowed

LATER = NOW + SECOND
KINDS: tuple[GraphType, ...] = get_args(GraphType)
CODES, TYPES = states.GRAPH_JOB_CODES, states.GRAPH_JOB_TYPES
PAYLOAD = b'{"sbomId":"sbom_1"}'


def stored(store: SessionStore, job: GraphJob) -> GraphJob | None:
    kinds = {code: kind for kind, code in TYPES.items()}
    with store.session(job.tenant_id, now=LATER) as session:
        return session.graph_jobs.get(kinds[job.type], job.id)  # type: ignore[arg-type] # one of the two


def same(found: GraphJob | None, job: GraphJob) -> bool:
    """Compare the columns of a job; of the payload its members, since a backend may add its own."""
    if found is None or changed(found, payload=b"", correlation_id=None) != changed(
        job, payload=b"", correlation_id=None
    ):
        return False
    members, expected = jsonb.decode(found.payload), jsonb.decode(job.payload)
    return all(members.get(name) == value for name, value in expected.items())


@pytest.mark.proves("0-T2.5.1", "1-T1")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("build", marks=pytest.mark.proves("1-R1", "1-R5")),
        pytest.param("overlay", marks=pytest.mark.proves("1-R2", "1-R6")),
    ],
)
def test_a_job_is_inserted_and_got_by_its_right_type_only(kind: GraphType, store: SessionStore, tenant: str) -> None:
    job = graph_job(tenant, type=TYPES[kind], payload=PAYLOAD)
    other: GraphType = "overlay" if kind == "build" else "build"
    with store.session(tenant, now=NOW) as session:
        session.graph_jobs.insert(job)
        found = session.graph_jobs.get(kind, job.id)
        assert found is not None
        assert same(found, job)
        assert session.graph_jobs.get(other, job.id) is None
        assert session.graph_jobs.get(kind, uuid4()) is None
        assert session.graph_jobs.list(other, None, 5) == []
        assert session.graph_jobs.events(job.id) == []
        with pytest.raises(UsageError):
            session.graph_jobs.get("no such", job.id)  # type: ignore[arg-type] # the point


@pytest.mark.proves("1-R1", "1-R2", "1-T1")
@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_an_id_is_taken_once_whatever_the_type(
    first: GraphType, second: GraphType, store: SessionStore, tenant: str
) -> None:
    job = graph_job(tenant, type=TYPES[first])
    with store.session(tenant, now=NOW) as session:
        session.graph_jobs.insert(job)
        with pytest.raises(ConflictError):
            session.graph_jobs.insert(changed(job, type=TYPES[second], status=CODES["queued"]))
    assert same(stored(store, job), job)


@pytest.mark.parametrize("columns", [{"type": 2}, {"status": 9}, {"created_at": NOW.replace(tzinfo=None)}])
def test_a_job_that_the_table_refuses_is_refused_everywhere(
    columns: dict[str, Any], store: SessionStore, tenant: str
) -> None:
    with store.session(tenant, now=NOW) as session:
        with pytest.raises(UsageError):
            session.graph_jobs.insert(graph_job(tenant, **columns))
        for kind in KINDS:
            assert session.graph_jobs.list(kind, None, 5) == []


JOBS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from([*CODES]), st.integers(-2, 2).map(lambda s: NOW + SECOND * s)),
    max_size=10,
)


@pytest.mark.proves("1-R7", "1-R8", "0-T2.5.2", "1-G3")
@settings(max_examples=15, deadline=None)
@given(rows=JOBS, limit=st.integers(1, 6))
def test_lists_are_what_a_walk_over_all_finds(
    store: SessionStore, rows: list[tuple[GraphType, str, datetime]], limit: int
) -> None:
    tenant = fresh()
    jobs = [graph_job(tenant, type=TYPES[kind], status=CODES[word], created_at=at) for kind, word, at in rows]
    jobs.sort(key=lambda job: job.id)
    jobs.sort(key=lambda job: job.created_at, reverse=True)
    with store.session(tenant, now=NOW) as session:
        for job in jobs:
            session.graph_jobs.insert(job)
        for kind in KINDS:
            for status in (None, *CODES):
                expected = [
                    job.id
                    for job in jobs
                    if job.type == TYPES[kind] and (status is None or job.status == CODES[status])
                ]
                assert ids(session.graph_jobs.list(kind, status, limit)) == expected[:limit]


@pytest.mark.proves("1-R7", "1-R8", "1-G3")
def test_jobs_of_one_instant_are_listed_by_id(store: SessionStore, tenant: str) -> None:
    jobs = [graph_job(tenant) for _ in range(6)]
    with store.session(tenant, now=NOW) as session:
        for job in jobs:
            session.graph_jobs.insert(job)
    for _ in range(2):
        with store.session(tenant, now=NOW) as session:
            assert ids(session.graph_jobs.list("build", None, 6)) == sorted(ids(jobs))


@pytest.mark.proves("1-R7", "1-R8")
@pytest.mark.parametrize(
    ("kind", "status", "limit"),
    [("build", None, 0), ("overlay", None, -1), ("no such", None, 5), ("build", "no such", 5), ("build", "0", 5)],
)
def test_a_list_that_makes_no_sense_is_refused(
    kind: Any,  # noqa: ANN401 - the point
    status: str | None,
    limit: int,
    store: SessionStore,
    tenant: str,
) -> None:
    with store.session(tenant, now=NOW) as session, pytest.raises(UsageError):
        session.graph_jobs.list(kind, status, limit)


@pytest.mark.proves("1-G3", "1-R3", "1-R4")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", STATES["graph job"])
def test_every_pair_of_statuses_is_as_the_specification_says(
    status: str, kind: GraphType, store: SessionStore, tenant: str
) -> None:
    for follower in STATES["graph job"]:
        job = graph_job(tenant, type=TYPES[kind], status=CODES[status])
        after = changed(job, status=CODES[follower], updated_at=LATER)
        legal = is_allowed("graph job", status, follower)
        with store.session(tenant, now=NOW) as session:
            session.graph_jobs.insert(job)
        with store.session(tenant, now=LATER) as session:
            if legal:
                assert session.graph_jobs.try_replace(after, status) is True
            else:
                with pytest.raises(TransitionError):
                    session.graph_jobs.try_replace(after, status)
            assert len(session.graph_jobs.events(job.id)) == legal
        assert same(stored(store, job), after if legal else job)


@pytest.mark.proves("1-R3", "1-R4", "1-T1")
@pytest.mark.parametrize("kind", KINDS)
def test_a_job_is_replaced_only_where_its_status_is_expected(kind: GraphType, store: SessionStore, tenant: str) -> None:
    job = graph_job(tenant, type=TYPES[kind], payload=PAYLOAD)
    running = changed(job, status=CODES["running"], payload=b'{"sbomId":"sbom_2"}', updated_at=LATER)
    with store.session(tenant, now=LATER) as session:
        session.graph_jobs.insert(job)
        assert session.graph_jobs.try_replace(running, "queued") is False
        assert same(session.graph_jobs.get(kind, job.id), job)
        assert session.graph_jobs.try_replace(running, "pending") is True
        assert session.graph_jobs.try_replace(running, "pending") is False
        assert same(session.graph_jobs.get(kind, job.id), running)
        assert len(session.graph_jobs.events(job.id)) == 1
        assert session.graph_jobs.try_replace(changed(running, id=uuid4()), "pending") is False
        with pytest.raises(UsageError):
            session.graph_jobs.try_replace(running, "no such")


@pytest.mark.proves("1-R3", "1-R4")
@pytest.mark.parametrize("kind", KINDS)
def test_a_job_of_the_other_type_is_not_replaced(kind: GraphType, store: SessionStore, tenant: str) -> None:
    job = graph_job(tenant, type=TYPES[kind])
    with store.session(tenant, now=NOW) as session:
        session.graph_jobs.insert(job)
        other = changed(job, type=1 - job.type, status=CODES["running"])
        assert session.graph_jobs.try_replace(other, "pending") is False
        assert session.graph_jobs.events(job.id) == []
    assert same(stored(store, job), job)


@pytest.mark.proves("1-R9", "1-T1")
def test_a_change_of_status_writes_its_event(store: SessionStore, tenant: str) -> None:
    job = graph_job(tenant, payload=PAYLOAD)
    with store.session(tenant, now=NOW) as session:
        session.graph_jobs.insert(job)
    with store.session(tenant, now=LATER) as session:
        assert session.graph_jobs.try_replace(changed(job, status=CODES["running"]), "pending") is True
        (event,) = session.graph_jobs.events(job.id)
    assert (event.job_id, event.tenant_id, event.created_at) == (job.id, tenant, LATER)
    assert event.status == CODES["running"]
    envelope = jsonb.decode(event.payload)
    assert (envelope["kind"], envelope["tenant"]) == ("scheduler.graph.job.running", tenant)
    assert envelope["ts"] == format_iso(LATER)
    body = envelope["payload"]
    assert (body["jobType"], body["status"], body["job"]["sbomId"]) == ("build", "running", "sbom_1")


@pytest.mark.proves("1-R9")
def test_the_event_is_of_the_same_transaction(store: SessionStore, tenant: str) -> None:
    job = graph_job(tenant)
    with store.session(tenant, now=NOW) as session:
        session.graph_jobs.insert(job)
    with pytest.raises(KeyError), store.session(tenant, now=LATER) as session:  # noqa: PT012 - its end is the point
        assert session.graph_jobs.try_replace(changed(job, status=CODES["running"]), "pending") is True
        assert len(session.graph_jobs.events(job.id)) == 1
        raise KeyError
    with store.session(tenant, now=LATER) as session:
        assert session.graph_jobs.events(job.id) == []
    assert same(stored(store, job), job)


@pytest.mark.proves("1-R9", "1-T1")
def test_events_keep_the_order_in_which_they_were_appended(store: SessionStore, tenant: str) -> None:
    job, other = graph_job(tenant), graph_job(tenant)
    with store.session(tenant, now=NOW) as session:
        for each in (job, other):
            session.graph_jobs.insert(each)
        session.graph_jobs.append_event(graph_event(other))
        # Their own times do not order them.
        given = [graph_event(job, created_at=NOW - SECOND * place, payload=b'{"n":%d}' % place) for place in range(3)]
        made = [session.graph_jobs.append_event(event) for event in given]
        assert [changed(event, id=0) for event in made] == given
        assert len({event.id for event in made}) == 3
    with store.session(tenant, now=NOW) as session:
        assert session.graph_jobs.try_replace(changed(job, status=CODES["queued"]), "pending") is True
        made.append(session.graph_jobs.append_event(graph_event(job, payload=b'{"n":9}')))
        found = session.graph_jobs.events(job.id)
        assert [event.id for event in found if event.status == CODES["pending"]] == [event.id for event in made]
        assert [event.status for event in found] == [CODES[word] for word in (*["pending"] * 3, "queued", "pending")]
        assert len(session.graph_jobs.events(other.id)) == 1


@pytest.mark.proves("1-R9")
def test_an_event_of_no_job_is_refused(store: SessionStore, tenant: str) -> None:
    elsewhere = fresh()
    theirs = graph_job(elsewhere)
    with store.session(elsewhere, now=NOW) as session:
        session.graph_jobs.insert(theirs)
    with store.session(tenant, now=NOW) as session:
        for job_id in (uuid4(), theirs.id):
            with pytest.raises(NotFoundError):
                session.graph_jobs.append_event(graph_event(graph_job(tenant, id=job_id)))
        assert session.graph_jobs.events(theirs.id) == []
    with store.session(elsewhere, now=NOW) as session:
        assert session.graph_jobs.events(theirs.id) == []


@pytest.mark.proves("1-R3", "1-R4", "1-T1")
@pytest.mark.parametrize("kind", KINDS)
def test_of_several_writers_at_the_same_time_exactly_one_is_told_true(
    kind: GraphType, store: SessionStore, tenant: str
) -> None:
    job, writers = graph_job(tenant, type=TYPES[kind]), 6
    with store.session(tenant, now=NOW) as session:
        session.graph_jobs.insert(job)
    barrier, told = Barrier(writers), []

    def write(place: int) -> None:
        barrier.wait()
        mine = False
        try:
            with store.session(tenant, now=LATER) as session:
                after = changed(job, status=CODES["running"], updated_at=LATER + SECOND * place)
                mine = session.graph_jobs.try_replace(after, "pending")
        except ConflictError:
            return  # the backend ended this session: nothing of it is kept
        told.append((place, mine))

    threads = [Thread(target=write, args=(place,)) for place in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [place for place, mine in told if mine]
    assert len(winners) == 1
    found = stored(store, job)
    assert found is not None
    assert found.updated_at == LATER + SECOND * winners[0]
    with store.session(tenant, now=LATER) as session:
        assert len(session.graph_jobs.events(job.id)) == 1
