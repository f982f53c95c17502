"""A scheduler's data of any size on either backend, and processes that work on it at the same time."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

import msgspec
import psycopg

from benchmarks.harness.measure import tree_cpu
from migrator.config import Settings, postgres_dsn
from migrator.scheduler.client import Scheduler
from migrator.scheduler.firing import plan
from migrator.store import open_scheduler_store
from migrator.store.protocols import ScheduleQuery, Store
from migrator.store.queue import Claim, Finish
from migrator.verify.timing import RowCounts

TENANT: Final = "bench"
LEASE: Final = timedelta(minutes=5)
POLLED: Final = 10
"""Due triggers that one poll fires."""
CLEANED: Final = 100
"""Runs that one cleanup ends."""
CLAIMS: Final = (1, 10, 100)
POLLS: Final = 2
"""Operations of a task that fire due triggers, each ``POLLED`` a call."""
SINGLE_CLAIMS: Final = 2
"""Operations of a task that claim one run a call, besides ``CLAIMS``."""
PAGE: Final = 50
BATCH: Final = 2_000
PATIENCE_S: Final = 1_800
_spawn = multiprocessing.get_context("spawn")


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What one process does: operations one after the other, each begun by all at the same time."""

    settings: Settings
    instances: int
    calls: int
    """Of each operation, by each process."""
    cleanups: int
    seconds: float = 3.0
    """An operation whose calls take longer is measured with fewer."""
    claims_only: bool = False
    drain: int = 0
    """Claim and complete so many runs instead, ``batch`` at a time."""
    batch: int = 0
    server: int = 0
    """Process id of the server, whose CPU time is counted with each operation; 0: it is not counted."""


class Calls(msgspec.Struct, kw_only=True):
    """The calls of one operation."""

    took: list[float] = []
    """Milliseconds of each call."""
    client_cpu: float = 0.0
    """Seconds of CPU time of the processes that called."""
    server_cpu: float = 0.0
    """Seconds of CPU time of the server while they called."""


# -- filling


def fill_postgres(settings: Settings, tenant: str, amount: RowCounts) -> None:
    """Insert rows, and let the server look at them."""
    from migrator.verify import timing  # noqa: PLC0415 - see ``work``

    with psycopg.connect(postgres_dsn(settings), autocommit=True) as connection:
        timing.insert_rows(connection, tenant, amount)
        connection.execute("VACUUM (ANALYZE) scheduler.schedules, scheduler.triggers, scheduler.runs")
        connection.execute("CHECKPOINT")


def fill_mongo(settings: Settings, tenant: str, amount: RowCounts) -> None:
    """Insert the same as documents of the profile, the indexes being there."""
    from migrator.records import Schedule  # noqa: PLC0415 - see ``work``
    from migrator.store.mongo.places import PLACES, document_of  # noqa: PLC0415 - the driver, only where it is measured
    from migrator.store.mongo.priority import with_priority  # noqa: PLC0415 - as above
    from migrator.store.mongo.store import MongoStore  # noqa: PLC0415 - as above

    store = MongoStore(settings)
    try:
        store.prepare()
        batches: dict[str, list[Any]] = {}
        schedules: dict[UUID, Schedule] = {}
        for record in _records(tenant, amount):
            name = PLACES[type(record)][0].name
            batch = batches.setdefault(name, [])
            document = document_of(record)
            if isinstance(record, Schedule):
                schedules[record.id] = record
            else:
                document = with_priority(document, schedules.get(record.schedule_id))
            batch.append(document)
            if len(batch) == BATCH:
                store.database[name].insert_many(batch, ordered=False)
                batch.clear()
        for name, batch in batches.items():
            if batch:
                store.database[name].insert_many(batch, ordered=False)
    finally:
        store.close()


def _records(tenant: str, amount: RowCounts) -> Iterator[Any]:
    from migrator.records import Run, Schedule, Trigger  # noqa: PLC0415 - as above

    now = datetime.now(UTC).replace(microsecond=0)
    milli = timedelta(milliseconds=1)

    def name(kind: str, number: int) -> UUID:
        return uuid5(NAMESPACE_URL, f"{tenant} {kind} {number}")

    for number in range(1, amount.schedules + 1):
        schedule = name("schedule", number)
        yield Schedule(
            id=schedule,
            tenant_id=tenant,
            name=f"job {number}",
            status="scheduled",
            priority=number % 101 if number <= amount.explicit else None,
            created_at=now,
            updated_at=now,
        )
        distance = number - amount.due if number <= amount.due else 3_600_000 + number
        yield Trigger(
            id=name("trigger", number),
            tenant_id=tenant,
            schedule_id=schedule,
            kind="interval",
            interval_ms=3_600_000,
            anchor="fixed_rate",
            next_fire_at=now + distance * milli,
        )
    for number in range(1, amount.waiting + 1):
        yield Run(
            id=name("waiting", number),
            tenant_id=tenant,
            schedule_id=name("schedule", 1 + number % amount.schedules),
            state="queued",
            cause="schedule",
            available_at=now + (number - amount.waiting) * milli,
            created_at=now,
        )
    for number in range(1, amount.stale + 1):
        yield Run(
            id=name("stale", number),
            tenant_id=tenant,
            schedule_id=name("schedule", 1 + number % amount.schedules),
            state="running",
            cause="schedule",
            worker_id="gone",
            fence=1,
            lease_expires_at=now - number * milli,
            started_at=now - timedelta(minutes=1),
            created_at=now - timedelta(minutes=1),
        )


# -- working


def work(task: Task) -> dict[str, Calls]:
    """Let ``instances`` processes do the task; return operation → calls of all processes.

    A drain is one "operation": the seconds of each process. Raises what a process raised.
    """
    start, answers = _spawn.Barrier(task.instances), _spawn.Queue()
    tasks = [task, *[msgspec.structs.replace(task, server=0)] * (task.instances - 1)]
    processes = [_spawn.Process(target=_instance, args=(each, start, answers)) for each in tasks]
    for process in processes:
        process.start()
    merged: dict[str, Calls] = {}
    try:
        for _ in processes:
            found = answers.get(timeout=PATIENCE_S)
            if isinstance(found, str):
                raise SystemExit(f"a process failed: {found}")
            for name, calls in found.items():
                together = merged.setdefault(name, Calls())
                together.took.extend(calls.took)
                together.client_cpu += calls.client_cpu
                together.server_cpu += calls.server_cpu
    finally:
        for process in processes:
            process.join(timeout=30)
            process.kill()
    return merged


def _instance(task: Task, start: Any, answers: Any) -> None:  # noqa: ANN401 - a barrier and a queue
    try:
        store = open_scheduler_store(task.settings)
        try:
            found = _drained(store, task, start) if task.drain else _timed(store, task, start)
        finally:
            store.close()
        answers.put(found)
    except BaseException as error:  # noqa: BLE001 - said by the one who waits
        start.abort()
        answers.put(f"{type(error).__name__}: {error}")


def _timed(store: Store, task: Task, start: Any) -> dict[str, Calls]:  # noqa: ANN401 - as above
    found = {}
    for name, (calls, call) in _operations(store, task).items():
        took: list[float] = []
        start.wait()  # all have ended the operation before
        served = tree_cpu(task.server) if task.server else 0.0
        start.wait()
        used = time.process_time()
        until = time.perf_counter() + task.seconds
        for _ in range(calls):
            began = time.perf_counter()
            if began > until and took:
                break
            call()
            took.append((time.perf_counter() - began) * 1000)
        used = time.process_time() - used
        start.wait()
        served = tree_cpu(task.server) - served if task.server else 0.0
        found[name] = Calls(took=took, client_cpu=used, server_cpu=served)
    return found


def _operations(store: Store, task: Task) -> dict[str, tuple[int, Callable[[], object]]]:
    worker = str(uuid4())

    def poll() -> None:
        store.queue.fire_due(plan, POLLED)

    def claim(limit: int) -> Callable[[], object]:
        return lambda: store.queue.claim(worker, limit, LEASE)

    def lock() -> None:
        handle = store.locks.acquire(TENANT, worker, ttl=LEASE)
        if handle is not None:
            handle.release()

    def clean() -> None:
        gone = store.queue.expired(CLEANED)
        store.queue.expire([_end(one, one.run.worker_id or "", "timeout") for one in gone])

    def dispatch() -> None:
        poll()
        store.queue.claim(worker, 1, LEASE)

    def finish() -> None:
        store.queue.finish([_end(one, worker, "completed") for one in store.queue.claim(worker, 1, LEASE)])

    claims: dict[str, tuple[int, Callable[[], object]]] = {
        f"claim, batch {limit}": (task.calls, claim(limit)) for limit in CLAIMS
    }
    store.queue.claim(worker, 1, LEASE)  # connections and plans are there
    if task.claims_only:
        return claims
    poll()
    lock()
    facade = Scheduler(store, TENANT)
    one = facade.list(ScheduleQuery(limit=1)).jobs[0].schedule.id
    facade.history(one, limit=PAGE)
    return {
        f"due poll, {POLLED} fire": (task.calls, poll),
        **claims,
        "dispatch, poll and claim": (task.calls, dispatch),
        "overhead, claim and finish one": (task.calls, finish),
        "get one schedule": (task.calls, lambda: facade.get(one)),
        f"list {PAGE} schedules": (task.calls, lambda: facade.list(ScheduleQuery(limit=PAGE))),
        f"history, {PAGE} runs": (task.calls, lambda: facade.history(one, limit=PAGE)),
        "lock, acquire and release": (task.calls, lock),
        f"stale cleanup, {CLEANED} runs": (task.cleanups, clean),
    }


def _drained(store: Store, task: Task, start: Any) -> dict[str, Calls]:  # noqa: ANN401 - as above
    worker = f"{os.getpid()}"
    store.queue.claim(worker, 1, LEASE)
    left = task.drain
    start.wait()
    began = time.perf_counter()
    while left > 0:
        claims = store.queue.claim(worker, min(task.batch, left), LEASE)
        if not claims:
            raise RuntimeError("fewer runs wait than are to be completed")
        left -= len(store.queue.finish([_end(one, worker, "completed") for one in claims]))
    return {"drain": Calls(took=[time.perf_counter() - began])}


def _end(claim: Claim, worker: str, state: Any) -> Finish:  # noqa: ANN401 - one of its words
    return Finish(run_id=claim.run.id, tenant_id=claim.run.tenant_id, worker_id=worker, fence=claim.fence, state=state)
