"""Whole scheduler processes on real servers: started, watched, stopped, killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any
from uuid import uuid4

from migrator.config import load_settings
from migrator.errors import OvertakenError
from migrator.records import Run, Schedule, Trigger
from migrator.scheduler.leadership import RESOURCE
from migrator.store import open_scheduler_store
from migrator.store.protocols import RunQuery
from migrator.values import jsonb
from tests.owned import OWNED

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 240.0
"""Seconds; reached only where a test fails."""

QUICK: dict[str, Any] = {
    "poll": "50ms",
    "heartbeat": "200ms",
    "lease": "3s",
    "dead_after": "3s",
    "leader_ttl": "3s",
    "sweep_every": "200ms",
}


def until(condition: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the condition gives
    """Ask again and again, until the answer is true; return it."""
    end = monotonic() + PATIENCE
    while not (found := condition()):
        assert monotonic() < end, "what the test waits for did not come"
        Event().wait(0.02)
    return found


class Site:
    """A backend, a folder for handlers to write to, and the processes that run there."""

    def __init__(self, folder: Path, backend: str, server: str) -> None:
        self.folder, self.tenant = folder, f"t-{uuid4().hex[:8]}"
        self._config = folder / "config.toml"
        self._server = f'[persistence]\nscheduler = "{backend}"\n{server}\n'
        self._processes: list[subprocess.Popen[bytes]] = []
        self.store = open_scheduler_store(load_settings(str(self.configured()), {}))

    def configured(self, **scheduler: Any) -> Path:  # noqa: ANN401 - settings have all types
        keys = QUICK | {"handlers": "tests.scheduled_work:registry"} | scheduler
        texts = [
            f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for key, value in keys.items()
        ]
        path = self.folder / f"config-{uuid4().hex}.toml"
        path.write_text(self._server + "[scheduler]\n" + "\n".join(texts) + "\n")
        return path

    def start(self, *arguments: str, **scheduler: Any) -> "subprocess.Popen[bytes]":  # noqa: ANN401 - as above
        command = [
            sys.executable,
            "-m",
            "migrator",
            "scheduler",
            "run",
            "--config",
            str(self.configured(**scheduler)),
            *arguments,
        ]
        log = (self.folder / f"process-{len(self._processes)}.log").open("wb")
        process = subprocess.Popen([*OWNED, *command], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        log.close()
        self._processes.append(process)
        return process

    def log(self, process: "subprocess.Popen[bytes]") -> str:
        return (self.folder / f"process-{self._processes.index(process)}.log").read_text()

    def put(self, handler: str, trigger: dict[str, Any] | None = None, **columns: Any) -> Schedule:  # noqa: ANN401 - as above
        """Make a schedule whose handler writes into the folder, with a trigger, and a queued run where it has none."""
        now = self.store.now()
        payload = jsonb.encode({"folder": str(self.folder)})
        of = Schedule(
            id=uuid4(),
            tenant_id=self.tenant,
            name=uuid4().hex,
            status="scheduled",
            handler_name=handler,
            payload=payload,
            **columns,
        )
        with self.store.session(self.tenant) as session:
            session.schedules.upsert(of)
            if trigger is None:
                run = Run(id=uuid4(), tenant_id=self.tenant, schedule_id=of.id, state="queued", created_at=now)
                session.runs.create(run)
            else:
                least: dict[str, Any] = {"id": uuid4(), "tenant_id": self.tenant, "schedule_id": of.id}
                session.triggers.upsert(Trigger(**least | {"next_fire_at": now} | trigger))
        return of

    def runs(self, of: Schedule | None = None) -> list[Run]:
        """Return the runs, oldest first.

        A process that starts creates indexes. MongoDB refuses transactions meanwhile, so the session is repeated.
        """
        end = monotonic() + PATIENCE
        while True:
            try:
                with self.store.session(self.tenant) as session:
                    found = session.runs.list(RunQuery(schedule_id=None if of is None else of.id, limit=1000)).runs
            except OvertakenError:
                assert monotonic() < end, "the store refuses a session again and again"
                Event().wait(0.02)
            else:
                return sorted(found, key=lambda run: (run.created_at, run.attempt or 0))

    def states(self, of: Schedule | None = None) -> list[str]:
        return [run.state for run in self.runs(of)]

    def leader(self) -> tuple[str, int] | None:
        return self.store.locks.holder("*", RESOURCE)

    def led_by(self, process: "subprocess.Popen[bytes]") -> bool:
        held = self.leader()
        return held is not None and f":{process.pid}:" in held[0]

    def worker_of(self, process: "subprocess.Popen[bytes]") -> str | None:
        """Return the status of a process's row."""
        return next((row.status for row in self.store.workers.list() if row.pid == process.pid), None)

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self.store.close()


def stop(process: "subprocess.Popen[bytes]") -> int:
    """Ask a process to leave, and return its exit status."""
    os.kill(process.pid, signal.SIGTERM)
    return process.wait(PATIENCE)


SECOND = timedelta(seconds=1)
