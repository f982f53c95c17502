"""Shadow reads: compared off the caller's path, counted, reported, and never the caller's trouble."""

from collections.abc import Callable, Iterator
from threading import Event
from typing import Any, Literal, get_type_hints
from uuid import uuid4

import msgspec
import pytest
from pymongo.database import Database

from migrator.config import MongoSettings, PersistenceSettings
from migrator.errors import TransitionError
from migrator.records import GraphJob, Handler
from migrator.store import open_store, protocols
from migrator.store.postgres.store import PostgresStore
from migrator.store.protocols import RunQuery, ScheduleQuery
from migrator.store.shadow_reads import READS, Mismatch, ShadowCounts, ShadowedStore
from migrator.testing.servers.mongo import MongoServer
from migrator.values import jsonb
from migrator.values.times import format_iso
from tests.schema_rows import connect
from tests.store_postgres import NOW, graph_job, opened, run, schedule, settings, trigger

WRITES = {
    "schedules": {"upsert", "change_status", "change", "soft_delete"},
    "triggers": {"held", "upsert", "move", "delete_of_schedule"},
    "runs": {"held", "create", "update", "cancel", "cancel_of_schedule", "remove"},
    "graph_jobs": {"insert", "try_replace", "append_event"},
    "policy_jobs": {"insert", "try_replace", "lease"},
    "impact_snapshots": {"insert"},
    "execution_logs": {"append"},
    "run_summaries": {"recompute"},
    "audit": {"append"},
    "handlers": {"upsert", "delete"},
    "statistics": set(),
}

Sides = tuple[PostgresStore, PostgresStore]


@pytest.fixture
def sides(new_scheduler_dsn: Callable[[], str]) -> Iterator[Sides]:
    with opened(new_scheduler_dsn()) as one, opened(new_scheduler_dsn()) as other:
        yield one, other


def both(sides: Sides, call: Callable[[protocols.Session], Any]) -> None:
    for side in sides:
        with side.session("a", now=NOW) as session:
            call(session)


def shadowed(sides: Sides, heard: list[Mismatch], **more: Any) -> ShadowedStore:  # noqa: ANN401 - whatever it takes
    return ShadowedStore(sides[0], lambda: sides[1], report=heard.append, **more)


def test_every_method_of_every_repository_reads_or_writes() -> None:
    repositories = {
        name: get_type_hints(member.fget)["return"]
        for name, member in vars(protocols.Session).items()
        if isinstance(member, property) and name not in {"tenant", "now"}
    }
    assert repositories.keys() == READS.keys() == WRITES.keys()
    for name, protocol in repositories.items():
        methods = {method for method in vars(protocol) if not method.startswith("_")}
        assert methods == READS[name] | WRITES[name], name
        assert not READS[name] & WRITES[name]


def test_answers_that_are_the_same_are_counted_and_not_reported(sides: Sides) -> None:
    one, job, heard = schedule(payload=b'{"a":1.0,"b":[2]}'), graph_job(), list[Mismatch]()
    both(sides, lambda session: session.schedules.upsert(one))
    both(sides, lambda session: session.graph_jobs.insert(job))
    both(sides, lambda session: session.graph_jobs.try_replace(msgspec.structs.replace(job, status=1), "pending"))
    with connect(sides[1].settings.postgres.dsn or "") as other:  # the other side's events are numbered otherwise
        other.execute("UPDATE scheduler.graph_job_events SET id = id + 7")
        other.execute("UPDATE scheduler.schedules SET source = 'x/y', source_id = '1', extra = '[]'")
    store = shadowed(sides, heard)
    with store.session("a", now=NOW) as session:
        assert session.schedules.get(one.id) == session.schedules.list(ScheduleQuery(statuses=("scheduled",)))[0]
        assert session.runs.list(RunQuery(limit=3)).runs == ()
        assert session.schedules.get(uuid4()) is None
        assert session.schedules.count(ScheduleQuery()) == 1
        assert len(session.graph_jobs.events(job.id)) == 1
    store.wait_until_compared()
    assert (store.counts(), heard) == (ShadowCounts(same=6), [])
    store.close()


def test_answers_that_differ_are_counted_and_reported_without_their_values(sides: Sides) -> None:
    one, heard = schedule(updated_at=NOW), list[Mismatch]()
    both(sides, lambda session: session.schedules.upsert(one))
    both(sides, lambda session: session.runs.create(run()))
    with sides[0].session("a", now=NOW) as chosen:
        chosen.schedules.upsert(msgspec.structs.replace(one, description="secret", priority=3))
        chosen.runs.create(run())
    store = shadowed(sides, heard)
    with store.session("a", now=NOW) as session:
        found = session.schedules.get(one.id)
        assert found is not None
        assert found.description == "secret"
        session.runs.list(RunQuery())
        session.runs.pending(10)
    store.wait_until_compared()
    assert store.counts() == ShadowCounts(different=3)
    assert heard == [
        Mismatch(tenant="a", read="schedules.get", why="description, priority"),
        Mismatch(tenant="a", read="runs.list", why="rows: 3 against 2"),
        Mismatch(tenant="a", read="runs.pending", why="rows: 2 against 1"),
    ]
    store.close()


def test_reads_after_a_write_of_their_session_are_passed_over(sides: Sides) -> None:
    heard = list[Mismatch]()
    store = shadowed(sides, heard)
    with store.session("a", now=NOW) as session:
        assert session.schedules.count(ScheduleQuery()) == 0
        session.schedules.upsert(schedule())
        assert session.schedules.count(ScheduleQuery()) == 1
    store.wait_until_compared()
    assert (store.counts(), heard) == (ShadowCounts(same=1, passed_over=1), [])
    store.close()


def test_a_session_that_fails_is_not_compared_and_its_error_is_the_caller_s(sides: Sides) -> None:
    store = shadowed(sides, [])
    with pytest.raises(TransitionError), store.session("a") as session:  # noqa: PT012 - the session's end is the point
        session.schedules.list(ScheduleQuery())
        session.schedules.change_status(uuid4(), "cancelled", "scheduled")
    store.wait_until_compared()
    assert store.counts() == ShadowCounts()
    store.close()


def test_trouble_on_the_other_side_is_counted_and_not_felt(sides: Sides, scheduler_dsn: str) -> None:
    heard = list[Mismatch]()
    with opened(scheduler_dsn) as closed:
        pass
    store = ShadowedStore(sides[0], lambda: closed, report=heard.append)
    with store.session("a") as session:
        assert session.schedules.list(ScheduleQuery()) == []
    store.wait_until_compared()
    assert store.counts() == ShadowCounts(failed=1)
    assert [mismatch.why for mismatch in heard] == ["error: UnreachableError"]
    store.close()


def test_a_listener_that_fails_ends_nothing(sides: Sides) -> None:
    def fail(mismatch: Mismatch) -> None:
        raise KeyError(mismatch.read)

    with sides[0].session("a") as chosen:
        chosen.schedules.upsert(schedule())
    store = ShadowedStore(sides[0], lambda: sides[1], report=fail)
    for _ in range(2):
        with store.session("a") as session:
            assert session.schedules.count(ScheduleQuery()) == 1
    store.wait_until_compared()
    assert store.counts() == ShadowCounts(different=2)
    store.close()


def test_a_slow_other_side_holds_nobody_up_and_reads_beyond_the_queue_are_dropped(sides: Sides) -> None:
    asked, go_on = Event(), Event()

    def slow() -> PostgresStore:
        asked.set()
        go_on.wait()
        return sides[1]

    store = ShadowedStore(sides[0], slow, capacity=2)
    with store.session("a") as session:
        session.schedules.count(ScheduleQuery())
    asked.wait()  # one read is being compared, two more fit into the queue
    with store.session("a") as session:
        for _ in range(5):
            session.schedules.count(ScheduleQuery())
    assert store.counts() == ShadowCounts(dropped=3)
    go_on.set()
    store.wait_until_compared()
    assert store.counts() == ShadowCounts(same=3, dropped=3)
    store.close()


def test_closing_compares_what_is_left_and_closes_both_sides(sides: Sides) -> None:
    store = shadowed(sides, [])
    with store.session("a") as session:
        session.schedules.count(ScheduleQuery())
    store.close()
    assert store.counts() == ShadowCounts(same=1)
    for side in sides:
        with pytest.raises(Exception, match="closed"):
            side.ping()


@pytest.mark.proves("0-T2.10.2")
@pytest.mark.parametrize("chosen", ["postgres", "mongo"])
def test_mongodb_and_postgresql_answer_alike_under_the_setting(
    chosen: Literal["postgres", "mongo"], scheduler_dsn: str, mongo_server: MongoServer, mongo_database: Database[Any]
) -> None:
    """What is written to both is read alike from both; what is written to one shows as a difference."""
    both_of = msgspec.structs.replace(
        settings(scheduler_dsn), mongo=MongoSettings(uri=mongo_server.uri, database=mongo_database.name)
    )
    one, cause = schedule(tags=("x",), payload=b'{"a":[1,2.5,null]}'), uuid4()
    ran, job = run(id=uuid4(), schedule_id=one.id, trigger_id=cause), graph_job()
    for backend in ("postgres", "mongo"):
        persistence = PersistenceSettings(scheduler=backend)
        store = open_store(msgspec.structs.replace(both_of, persistence=persistence))
        with store.session("a", now=NOW) as session:
            session.schedules.upsert(one)
            session.triggers.upsert(trigger(one, id=cause))
            session.runs.create(ran)
            session.runs.update(msgspec.structs.replace(ran, state="running", stats=b'{"deltas":2}'), "queued")
            session.run_summaries.recompute(one.id)
            session.graph_jobs.insert(msgspec.structs.replace(job, payload=job_payload(job)))
            session.handlers.upsert(Handler(id=one.id, tenant_id="a", name="mail", handler_type="function"))
        store.close()
    shadow = PersistenceSettings(scheduler=chosen, shadow="read")
    reading = open_store(msgspec.structs.replace(both_of, persistence=shadow))
    assert isinstance(reading, ShadowedStore)
    with reading.session("a", now=NOW) as session:
        session.schedules.get(one.id)
        session.schedules.list(ScheduleQuery(tags_all=("x",)))
        session.schedules.due(10)
        session.triggers.of_schedule(one.id)
        session.runs.list(RunQuery(schedule_id=one.id))
        session.runs.pending(10)
        session.run_summaries.get(one.id)
        session.graph_jobs.list("build", "pending", 10)
        session.handlers.list()
    reading.wait_until_compared()
    assert reading.counts() == ShadowCounts(same=9)
    with reading.session("a", now=NOW) as session:
        session.schedules.soft_delete(one.id, "me")
    with reading.session("a", now=NOW) as session:
        assert session.schedules.get(one.id) is None
    reading.wait_until_compared()
    assert reading.counts() == ShadowCounts(same=9, different=1)
    reading.close()


def job_payload(job: GraphJob) -> bytes:
    """Return the least document of a build job, as the source writes one."""
    identity = f"gbj_{job.id.hex}"
    return jsonb.encode(
        {
            "_id": identity,
            "createdAt": format_iso(job.created_at),
            "id": identity,
            "sbomId": "sbom",
            "schemaVersion": "scheduler.graph-build-job@1",
            "status": "pending",
            "tenantId": job.tenant_id,
        }
    )


@pytest.mark.proves("0-T2.10.1")
def test_the_setting_asks_for_shadow_reads_and_their_trouble_stays_theirs(scheduler_dsn: str) -> None:
    chosen = settings(scheduler_dsn)
    persistence = PersistenceSettings(scheduler="postgres", shadow="read")
    store = open_store(msgspec.structs.replace(chosen, persistence=persistence))  # without any MongoDB to reach
    assert isinstance(store, ShadowedStore)
    with store.session("a") as session:
        assert session.schedules.list(ScheduleQuery()) == []
    store.wait_until_compared()
    assert store.counts() == ShadowCounts(failed=1)
    store.close()
