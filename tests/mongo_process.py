"""A process of a scheduler on MongoDB, for tests of several: ``python -m tests.mongo_process TASK URI DATABASE ...``.

It says what it did on standard output, a JSON document per line, the first of which is ``"ready"``; then it waits for a
line on standard input, so that all of a test's processes begin together.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from migrator.config import MongoSettings, PersistenceSettings, Settings
from migrator.errors import LostLockError
from migrator.records import AuditEntry
from migrator.store.mongo.store import MongoStore
from migrator.store.queue import Claim, Finish
from tests import preloaded
from tests.contract.working import each_slot
from tests.store_postgres import NOW

LEASE = timedelta(minutes=5)
ROOT = Path(__file__).parent.parent


class Process:
    """One such process, as its parent sees it."""

    def __init__(self, task: str, uri: str, database: str, *arguments: str) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = preloaded.start(
            preloaded.ON_MONGO, [task, uri, database, *arguments], cwd=ROOT, bufsize=1, **pipes
        )

    def hear(self) -> Any:  # noqa: ANN401 - any JSON
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")

    def end(self) -> None:
        """End it, whatever it does, and close its pipes."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def together(count: int, task: str, uri: str, database: str, *arguments: str) -> Iterator[Sequence[Process]]:
    """Start processes, and let them begin when all are ready; whatever is left of them ends with the block."""
    started = [Process(task, uri, database, *arguments) for _ in range(count)]
    try:
        for one in started:
            assert one.hear() == "ready"
        for one in started:
            one.tell()
        yield started
    finally:
        for one in started:
            one.end()


def _say(what: object) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


def _hold_on() -> None:
    sys.stdin.readline()


def _end(claims: Sequence[Claim], worker: str) -> list[Finish]:
    return [
        Finish(run_id=one.run.id, tenant_id=one.run.tenant_id, worker_id=worker, fence=one.fence, state="completed")
        for one in claims
    ]


def claim(store: MongoStore, batch: str) -> None:
    """Claim runs until none is queued any more; say which."""
    won: list[str] = []
    worker = str(uuid4())
    while store.database["runs"].find_one({"state": "queued"}) is not None:
        won += [str(one.run.id) for one in store.queue.claim(worker, int(batch), LEASE)]
    _say(won)


def limited(store: MongoStore) -> None:
    """Claim and end runs until none is queued; say how many were running at most after each claim."""
    most, won, worker = 0, list[str](), str(uuid4())
    while store.database["runs"].find_one({"state": "queued"}) is not None:
        claims = store.queue.claim(worker, 2, LEASE)
        if claims:
            most = max(most, store.database["runs"].count_documents({"state": "running"}))
            won += [str(one) for one in store.queue.finish(_end(claims, worker))]
    _say([most, won])


def fire(store: MongoStore, batch: str) -> None:
    """Fire what is due until nothing is; say the slots."""
    fired: list[tuple[str, str]] = []
    while store.database["triggers"].find_one({"nextFireAt": {"$lte": NOW}}) is not None:
        runs = store.queue.fire_due(each_slot, int(batch), NOW)
        fired += [(str(run.trigger_id), str(run.scheduled_at)) for run in runs]
    _say(fired)


def contend(store: MongoStore, rounds: str) -> None:
    """Be alone with the lock for some rounds; say the fences. The room has one place: who meets another one fails."""
    fences = []
    for _ in range(int(rounds)):
        handle = store.locks.acquire("*", "room", ttl=LEASE, timeout=None)
        assert handle is not None
        store.database["room"].insert_one({"_id": "inside"})
        store.database["room"].delete_one({"_id": "inside"})
        fences.append(handle.fence)
        assert handle.release()
    _say(fences)


def hold(store: MongoStore, ttl_ms: str) -> None:
    """Take the lock, say its fence, and when told, say what can still be done with it."""
    handle = store.locks.acquire("*", "held", ttl=timedelta(milliseconds=int(ttl_ms)))
    assert handle is not None
    _say(handle.fence)
    _hold_on()
    try:
        with store.session("a") as session:
            session.audit.append(
                AuditEntry(id=uuid4(), tenant_id="a", category="c", action="late", occurred_at=session.now)
            )
            store.locks.guard(session, "*", "held", handle.fence)
        wrote = True
    except LostLockError:
        wrote = False
    _say({"trusted": handle.trusted, "wrote": wrote, "renewed": handle.renew(), "released": handle.release()})


def keep(store: MongoStore) -> None:
    """Claim a run, say its id, and when told, say what can still be done with it."""
    worker = str(uuid4())
    claims = store.queue.claim(worker, 1, timedelta(milliseconds=1))
    _say(str(claims[0].run.id))
    _hold_on()
    kept = [*store.queue.heartbeat(claims, LEASE), *store.queue.finish(_end(claims, worker))]
    _say([*map(str, kept), *map(str, store.queue.release(claims))])


TASKS: dict[str, Callable[..., None]] = {task.__name__: task for task in (claim, limited, fire, contend, hold, keep)}

if __name__ == "__main__":
    name, uri, database, *rest = sys.argv[1:]
    opened = MongoStore(
        Settings(mongo=MongoSettings(uri=uri, database=database), persistence=PersistenceSettings(scheduler="mongo"))
    )
    opened.prepare()
    _say("ready")
    _hold_on()
    TASKS[name](opened, *rest)
    opened.close()
