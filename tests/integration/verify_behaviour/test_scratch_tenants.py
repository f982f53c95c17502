"""The scratch tenants go in every case, also after SIGKILL; whatever is not theirs stays byte for byte."""

import multiprocessing
from collections.abc import Iterator
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, cast
from uuid import uuid4

import msgspec
import psycopg
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from migrator import records
from migrator.config import PostgresSettings, Settings
from migrator.errors import RefusedError
from migrator.records import WorkerRecord
from migrator.scratch import HELD, Components, leftover_tenants, new_scratch_tenant, remove_leftovers, scratch_tenants
from migrator.store import open_side
from migrator.store.protocols import Store
from migrator.testing.servers.postgres import PostgresServer
from migrator.verify.behaviour.harness import START, Harness
from migrator.verify.check import CheckContext
from migrator.verify.request import Request
from migrator.verify.runner import verify
from tests.integration.verify_behaviour.conftest import SPECS
from tests.store_postgres import run, schedule, trigger

BACKENDS = ("postgres", "mongo")


def real(settings: Settings, backend: str) -> list[bytes]:
    """Return every row, or document, byte for byte."""
    if backend == "mongo":
        with MongoClient[RawBSONDocument](str(settings.mongo.uri), document_class=RawBSONDocument) as client:
            database = client[str(settings.mongo.database)]
            return sorted(bytes(raw.raw) for name in database.list_collection_names() for raw in database[name].find())
    with psycopg.connect(str(settings.postgres.dsn)) as target:
        texts = [
            f"{record.table} {row[0]} {row[1]}"
            for record in records.ALL
            for row in target.execute(f"SELECT xmin::text, t::text FROM scheduler.{record.table} AS t".encode())
        ]
    return sorted(text.encode() for text in texts)


def furnish(store: Store) -> None:
    """Write what a live scheduler has: due triggers, queued runs, a worker, a lock that is over."""
    for tenant in ("acme", "~verify", "~verify-of-somebody"):
        row = schedule(tenant)
        with store.session(tenant) as session:
            session.schedules.upsert(row)
            session.triggers.upsert(trigger(row))
            session.runs.create(run(tenant, schedule_id=row.id))
        store.locks.acquire(tenant, "work", ttl=timedelta(milliseconds=1))
    store.workers.register(WorkerRecord(id=uuid4(), tenant_id="*", kind="worker", status="active", hostname="host-1"))


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(settings: Settings, backend: str) -> Iterator[Store]:
    opened = open_side(settings, backend)
    try:
        yield opened
    finally:
        opened.close()


def on(backend: str) -> Request:
    return Request(backend=cast("Any", backend), scratch_on_source=True)


def test_real_tenants_are_not_touched(store: Store, settings: Settings, backend: str) -> None:
    furnish(store)
    before = real(settings, backend)
    context = CheckContext(settings, on(backend))
    for name in ("crud.schedules", "execution.single", "workers.heartbeats", "locking.fences"):
        assert SPECS[name].run(context).outcome.status == "passed"
    assert real(settings, backend) == before


def linger(settings: Settings, backend: str, pipe: Connection) -> None:
    """Be in the middle of a verification, for ever."""
    with scratch_tenants(settings, backend, Components(), new_scratch_tenant()) as place:
        harness = Harness.of(place, "lingering")
        harness.cron()
        harness.now = START + timedelta(minutes=5)
        harness.run_once()
        place.store.workers.register(WorkerRecord(id=harness.new_id(), tenant_id="*", kind="worker", status="active"))
        place.store.locks.acquire(place.tenants[0], "work", ttl=timedelta(hours=1))
        pipe.send(place.base)
        pipe.recv()


def test_what_a_killed_verification_left_is_removed_by_the_next(store: Store, settings: Settings, backend: str) -> None:
    furnish(store)
    before = real(settings, backend)
    mine, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=linger, args=(settings, backend, theirs), daemon=True)
    process.start()
    name = mine.recv()
    assert leftover_tenants(store) == [name]
    assert remove_leftovers(store) == [], "it is alive"
    assert len(real(settings, backend)) > len(before)
    process.kill()
    process.join()
    if backend == "mongo":  # nothing tells of its end there: the lock has to be over
        over(settings, name)
    context = CheckContext(settings, on(backend))
    assert SPECS["transitions.schedule"].run(context).outcome.status == "passed"
    assert leftover_tenants(store) == []
    assert real(settings, backend) == before


def over(settings: Settings, name: str) -> None:
    """Let the lock of a verification be as old as it would be after an hour."""
    with MongoClient[dict[str, Any]](str(settings.mongo.uri)) as client:
        locks = client[str(settings.mongo.database)]["locks"]
        (found,) = locks.find({"_id": {"$regex": f"^{name}/"}})
        times = {key: value - 2 * HELD for key, value in found.items() if hasattr(value, "tzinfo")}
        locks.update_one({"_id": found["_id"]}, {"$set": times})


def test_it_goes_also_when_the_script_fails(store: Store, settings: Settings, backend: str) -> None:
    def fail() -> None:
        with scratch_tenants(settings, backend, Components(), new_scratch_tenant()) as place:
            Harness.of(place, "failing").cron()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert leftover_tenants(store) == []
    assert real(settings, backend) == []


def test_the_fence_lets_nothing_through(settings: Settings, backend: str) -> None:
    with scratch_tenants(settings, backend, Components(), new_scratch_tenant()) as place:
        for call in (
            lambda: place.store.session("acme"),
            lambda: place.store.purge("acme"),
            lambda: place.store.queue.fire_due(lambda *_: pytest.fail("fired"), 1),
            lambda: place.store.queue.claim("w", 1, HELD),
            lambda: place.store.queue.expired(1, tenants=("acme",)),
            lambda: place.store.locks.acquire("*", "scheduler-leader", ttl=HELD),
        ):
            with pytest.raises(RefusedError):
                call()


def test_who_may_not_remove_it_does_not_begin(settings: Settings, postgres_server: PostgresServer) -> None:
    name = str(settings.postgres.dsn).rpartition("/")[2]
    with psycopg.connect(postgres_server.dsn(), autocommit=True) as admin:
        admin.execute("CREATE ROLE meagre LOGIN PASSWORD 'meagre' IN ROLE scheduler_service, scheduler_dispatcher")
    try:
        poor = msgspec.structs.replace(
            settings, postgres=PostgresSettings(dsn=postgres_server.dsn(name, user="meagre", password="meagre"))
        )
        result = verify(poor, Request(run_name="r", only=("crud", "workers")))
        statuses = {one.id: one.outcome for one in result.evidence.checks if one.id != "crud.lockstep"}
        assert {one.status for one in statuses.values()} == {"unverified"}
        assert {one.reason for one in statuses.values()} == {
            "the target's user meagre is not a member of scheduler_migration; as an administrator run"
        }
        assert {one.grant for one in statuses.values()} == {'GRANT "scheduler_migration" TO "meagre"'}
    finally:
        with psycopg.connect(postgres_server.dsn(), autocommit=True) as admin:
            admin.execute("DROP ROLE meagre")
    assert real(settings, "postgres") == []
