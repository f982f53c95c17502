"""Worker processes of the tail: they apply plain changes, each in a transaction of its own.

The tail's own process reads the events, divides the documents of one collection among the workers, waits for all of
them, and applies what they leave. Then it saves the position, in its own transaction. So the position is never ahead of
the rows. If a process is killed, the events are read again, and applying them again changes nothing.

A worker writes rows only while it shares the lock under which rows are written, and only if the tail that sent the task
still holds the lock of the tail. The tail's own transactions hold the first lock alone. So after a takeover, and after
the death of a worker, no transaction of a lost worker can still write what it read before.
"""

import multiprocessing
import os
import signal
import time
from contextlib import closing, suppress
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, cast

import msgspec
from bson.timestamp import Timestamp

from migrator import fault_points
from migrator.config import Settings
from migrator.connections import advisory_locks
from migrator.pipeline.executors import collector_paused, end_with_parent, interruption_blocked
from migrator.pipeline.ledger import Plan
from migrator.pipeline.locks import TAIL_KEY
from migrator.pipeline.sessions import Sessions, reason_of
from migrator.pipeline.tail.backlog import write_permission
from migrator.pipeline.tail.plain import PlainApplier, PlainResult
from migrator.telemetry import say, shield_streams

LEAST_DOCUMENTS = 100
"""Documents of a batch, for each worker, from which on it is worth asking them."""
TELL_EVERY_S = 60.0
"""How often the same failure of workers is said."""
LOST = "its process ended"
END_S = 1.0
"""How long an idle worker has to end by itself."""


class PlainTask(msgspec.Struct, frozen=True, kw_only=True):
    """Documents whose changes a worker applies if they are plain."""

    plan: Plan
    profile_version: int
    collection: str
    source_ids: list[str]
    not_before: Timestamp
    """Cluster time of the events that name the documents."""
    holder: int
    """Process id of the server's session that holds the lock of the tail."""


class _Worker:
    """A worker process, and the pipe to it."""

    def __init__(self, settings: Settings) -> None:
        context = multiprocessing.get_context("spawn")  # MongoDB's driver has threads, which a forked process lacks
        self.pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_serve, args=(theirs, settings, os.getpid()), name="tail worker", daemon=True
        )
        with interruption_blocked():
            self._process.start()
        theirs.close()
        self._ready = False

    def is_ready(self) -> bool:
        """Return whether the process can be given a task."""
        if not self._ready and self.pipe.poll():
            with suppress(EOFError, OSError):
                self._ready = self.pipe.recv() is None
        return self._ready

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self._process.is_alive()

    def close(self) -> None:
        """End the process; it rolls back what it has not committed."""
        self.pipe.close()
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


class Workers:
    """The worker processes of a tail: started when they are needed first, replaced when they die."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._workers: list[_Worker] = []
        self._told: dict[str, float] = {}
        """Why workers failed, with the time at which that was said."""

    def _tell(self, failure: str) -> None:
        """Say why a worker did not apply what it was given: each reason once a while, since it may stay for hours."""
        now = time.monotonic()
        if now - self._told.get(failure, float("-inf")) >= TELL_EVERY_S:
            self._told[failure] = now
            say(f"tail: a worker applied nothing: {failure}; the tail applies its share by itself", level="warning")

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.pipe.close()  # all at once: each needs a moment
        for worker in self._workers:
            worker.close()
        self._workers.clear()

    def ready(self, documents: int) -> int:
        """Return how many workers can share so many documents; 0: they are too few, or the workers are starting."""
        wanted = self._settings.tail.workers
        if wanted == 1 or documents < LEAST_DOCUMENTS * wanted:
            return 0
        for lost in [one for one in self._workers if not one.is_alive()]:
            lost.close()
            self._workers.remove(lost)
        while len(self._workers) < wanted:
            self._workers.append(_Worker(self._settings))
        return sum(one.is_ready() for one in self._workers)

    def apply(self, task: PlainTask) -> PlainResult:
        """Divide a task among the workers that are ready; what a lost worker was given is left."""
        ready = [one for one in self._workers if one.is_ready()]
        share = -(-len(task.source_ids) // len(ready))
        total = PlainResult(left=[])
        asked: dict[Any, list[str]] = {}
        for number, worker in enumerate(ready):
            some = task.source_ids[number * share : (number + 1) * share]
            try:
                worker.pipe.send(msgspec.structs.replace(task, source_ids=some))
                asked[worker.pipe] = some
            except OSError:
                total.left += some
        while asked:
            for pipe in wait(list(asked)):
                some = asked.pop(pipe)
                try:
                    done: PlainResult = cast("Pipe", pipe).recv()
                except (EOFError, OSError):
                    total.left += some
                    self._tell(LOST)
                    continue
                if done.failure:
                    self._tell(done.failure)
                total.left += done.left
                total.applied += done.applied
                total.written += done.written
        return total


def _serve(pipe: Pipe, settings: Settings, parent: int) -> None:
    """Apply one task after the other, until the tail closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tail handles it
    shield_streams()
    end_with_parent(parent)
    with suppress(EOFError, OSError), closing(_Service(settings)) as service:
        pipe.send(None)
        while True:
            pipe.send(service.apply(pipe.recv()))


def _failure(error: Exception) -> str:
    """Return an error as a sentence without credentials and without values."""
    try:
        return reason_of(error)
    except Exception as unforeseen:  # noqa: BLE001 - what no driver and no part of the tool raises on purpose
        return f"unforeseen: {type(unforeseen).__name__}"


class _Service:
    """The connections of a worker."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sessions: Sessions | None = None
        self._applier: PlainApplier | None = None

    def close(self) -> None:
        """Close the connections."""
        if self._applier is not None:
            self._applier.reader.close()
        if self._sessions is not None:
            self._sessions.close()
        self._applier = self._sessions = None

    def apply(self, task: PlainTask) -> PlainResult:
        """Apply a task in one transaction; leave all of it after an error, which the tail itself will meet, or not."""
        try:
            if self._sessions is None:
                self._sessions = Sessions(self._settings)
            with collector_paused():
                return self._applied(self._sessions, task)
        except Exception as error:  # noqa: BLE001 - the tail's own process meets it again, or does without this one
            with suppress(Exception):
                self.close()
            self._applier = self._sessions = None
            return PlainResult(left=task.source_ids, failure=_failure(error))

    def _applied(self, sessions: Sessions, task: PlainTask) -> PlainResult:
        with sessions.target.transaction():
            sessions.target_tables.require_forward(sessions.target)
            known = None if self._applier is None else self._applier.plan
            answer = write_permission(sessions.target, known, shared=True)
            allowed = (
                answer.plan is not None
                and answer.plan.id == task.plan.id
                and sessions.profile.version == task.profile_version
                and advisory_locks.is_held(sessions.target, TAIL_KEY, by=task.holder)  # after the lock of the rows
            )
            if answer.plan is None or not allowed:
                return PlainResult(left=task.source_ids)
            if self._applier is None or answer.plan is not known:
                if self._applier is not None:
                    self._applier.reader.close()
                self._applier = PlainApplier(sessions, answer.plan)
            self._applier.reader.not_before(task.not_before)
            done = self._applier.apply(sessions.profile.by_name()[task.collection], task.source_ids)
            fault_points.reach(fault_points.WORKER_BEFORE_COMMIT)
        fault_points.reach(fault_points.WORKER_AFTER_COMMIT)
        return done
