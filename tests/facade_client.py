"""A program that works through the scheduler's facade until it is told to stop, and keeps a journal of its answers.

``python -m tests.facade_client CONFIG TENANT FOLDER SEED``. It reads the configuration anew whenever its store refuses,
as an application does that follows a switch. A schedule of whose last operation nothing was heard is left alone.
"""

import random
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID, uuid4, uuid5

import msgspec

from migrator.config import load_settings
from migrator.errors import BackendMovedError, MigratorError, UnreachableError
from migrator.scheduler.client import Scheduler
from migrator.scheduler.models import ScheduleRequest
from migrator.store import open_scheduler_store
from migrator.store.protocols import Store
from tests.acknowledged import MAKES, Operation

PACE_S = 0.2
KINDS = ("create", "once", "update", "update", "pause", "run", "run", "run", "event", "event", "cancel", "unschedule")
SPACE = UUID("6f6c4b7e-9a53-4f7e-8d39-0a3a4f1f2c11")
RETRIES = 50
"""More than processes are killed: a run that was lost is repeated."""


class Client:
    """One application; its tenant is its own."""

    def __init__(self, config: str, tenant: str, folder: str, seed: int) -> None:
        self.config, self.tenant, self.folder = config, tenant, folder
        self.dice = random.Random(seed)
        self.over = Event()
        self.number = 0
        self.paused: dict[UUID, bool] = {}
        """The schedules of which it knows how they stand: whether they are paused."""
        self.listener = uuid5(SPACE, tenant)
        self.event = ""
        """The id of an event of which it was not heard whether it was taken; it is told again."""
        self.journal = (Path(folder) / f"{tenant}.journal").open("ab", buffering=0)
        self._store: Store | None = None

    def work(self) -> None:
        """Work until told to stop."""
        while not self.over.is_set():
            try:
                self._prepare()
                break
            except MigratorError:
                self._forget()
            self.over.wait(PACE_S)
        while not self.over.is_set():
            self._once()
            self.over.wait(PACE_S)
        self._forget()

    def _prepare(self) -> None:
        """Make the schedule that listens to events; asked for again and again, it is made once."""
        service = self._service()
        if service.get(self.listener) is None:
            service.on_event(self.tenant, "note", schedule_id=self.listener, name=self.tenant, max_retries=RETRIES)
        service.update(
            self.listener,
            payload={"folder": self.folder},
            retry_delay=timedelta(milliseconds=100),
            retry_strategy="fixed",
        )

    def _service(self) -> Scheduler:
        if self._store is None:
            self._store = open_scheduler_store(load_settings(self.config))
        return Scheduler(self._store, self.tenant)

    def _forget(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _once(self) -> None:
        asked = self._next()
        try:
            service = self._service()
        except MigratorError:
            self._forget()
            return
        self._note(asked)
        try:
            run = self._do(service, asked)
        except UnreachableError as error:
            self._forget()
            self._end(msgspec.structs.replace(asked, answer="lost", why=str(error)))
        except MigratorError as error:
            if isinstance(error, BackendMovedError):
                self._forget()
            self._end(msgspec.structs.replace(asked, answer="refused", why=f"{type(error).__name__}: {error}"))
        else:
            self._end(msgspec.structs.replace(asked, answer="done", run=run))

    def _next(self) -> Operation:
        self.number += 1
        kind = self.dice.choice(KINDS)
        busy = sorted(one for one, paused in self.paused.items() if not paused or kind == "pause")
        if kind not in (*MAKES, "event") and not busy:
            kind = "create"
        if kind in MAKES:
            return self._asked(kind, uuid4(), f"{self.tenant} {self.number}")
        if kind == "event":
            self.event = self.event or f"event {self.tenant} {self.number}"
            return self._asked(kind, self.listener, self.event)
        chosen = self.dice.choice(busy[-20:])
        if kind == "pause" and self.paused[chosen]:
            kind = "resume"
        return self._asked(kind, chosen, f"{self.tenant} {self.number}" if kind == "update" else "")

    def _asked(self, kind: str, schedule: UUID, value: str) -> Operation:
        return Operation(tenant=self.tenant, number=self.number, kind=kind, schedule=schedule, value=value)

    def _do(self, service: Scheduler, asked: Operation) -> UUID | None:
        of, by = asked.schedule, asked.actor
        match asked.kind:
            case "create" | "once":
                self._make(service, asked)
            case "update":
                service.update(of, name=asked.value, by=by)
            case "pause":
                service.pause(of, by=by)
            case "resume":
                service.resume(of, by=by)
            case "cancel":
                service.cancel(of, by=by)
            case "unschedule":
                service.unschedule(of, by=by)
            case "run":
                return service.trigger_now(of, by=by).id
            case "event":
                runs = service.trigger_event(self.tenant, event_id=asked.value, by=by).runs
                return runs[0].id if runs else None
        return None

    def _make(self, service: Scheduler, asked: Operation) -> None:
        common: dict[str, Any] = {
            "id": asked.schedule,
            "name": asked.value,
            "handler_name": "note",
            "created_by": asked.actor,
            "payload": {"folder": self.folder},
            "max_retries": RETRIES,
            "retry_delay": timedelta(milliseconds=100),
            "retry_strategy": "fixed",
            "max_concurrency": None,
        }
        if asked.kind == "once":
            service.schedule_once(ScheduleRequest(**common))
        else:
            ahead = service.store.now() + timedelta(days=1)
            service.schedule(ScheduleRequest(**common, interval=timedelta(hours=1), start_at=ahead))

    def _end(self, told: Operation) -> None:
        """Write the answer down, and what is known from now on."""
        self._note(told)
        if told.kind == "event":
            self.event = "" if told.answer == "done" else self.event
        elif told.answer == "lost" or told.kind in ("cancel", "unschedule"):
            self.paused.pop(told.schedule, None)
        elif told.answer == "done" and told.kind in ("create", "pause", "resume"):
            self.paused[told.schedule] = told.kind == "pause"

    def _note(self, one: Operation) -> None:
        self.journal.write(msgspec.json.encode(msgspec.structs.replace(one, at=time.monotonic())) + b"\n")


if __name__ == "__main__":
    client = Client(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
    signal.signal(signal.SIGTERM, lambda *_: client.over.set())
    client.work()
