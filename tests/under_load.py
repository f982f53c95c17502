"""A scheduler under load: two processes of it, clients, the tail, both servers, and schedules that fire."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final
from uuid import uuid4

import msgspec

from migrator.config import Settings, load_settings
from migrator.store import open_scheduler_store
from migrator.store.protocols import Store
from migrator.testing.servers.postgres import PostgresServer
from migrator.values import jsonb
from tests.acknowledged import every_run
from tests.contract.assignment import Slot
from tests.cutting_over import APPLICATION, Scene
from tests.store_postgres import schedule, trigger
from tests.supervised import Supervised, Watched

TENANT: Final = "load"
STEP: Final = timedelta(seconds=1)
SCHEDULES: Final = 4
SCHEDULER: Final = """
[scheduler]
poll = "200ms"
lease = "6s"
heartbeat = "500ms"
dead_after = "5s"
leader_ttl = "2s"
sweep_every = "1s"
stop_within = "3s"
"""


class Load(Supervised):
    """Two scheduler processes, and clients, over schedules that fire every second."""

    def __init__(self, ready: Scene, postgres: PostgresServer, seed: int, clients: int) -> None:
        super().__init__(ready, postgres, seed)
        self.config = ready.config
        self.config.write_text(self.config.read_text() + SCHEDULER)
        self.folder = ready.folder / "work"
        self.folder.mkdir()
        self._application = {"MIGRATOR_MONGO__URI": ready.uri_of(APPLICATION)}
        self._clients, self._begins_with = 0, clients
        self.triggers = self._schedules()
        self.counted = 0

    def begin(self) -> None:
        """Start everybody, and the supervisor."""
        for number in range(2):
            command = self.migrator("scheduler", "run", "--handlers", "tests.scheduled_work:registry")
            self.start(f"scheduler {number}", command, self._application)
        for _ in range(self._begins_with):
            self._start_client()
        super().begin()

    def _start_client(self) -> None:
        """Start another client: one that was killed does not come back, nobody else knows what it was told."""
        self._clients += 1
        number = str(self._clients)
        program = [sys.executable, "-m", "tests.facade_client"]
        command = [*program, str(self.config), f"client-{number}", str(self.folder), number]
        self.start(f"client {number}", command, self._application)

    def _anew(self, name: str, ended: Watched) -> None:
        if name.startswith("client"):
            self._start_client()
        else:
            super()._anew(name, ended)

    def settings(self) -> Settings:
        """Return the settings of a process of the application."""
        found = load_settings(str(self.config))
        uri = self.ready.uri_of(APPLICATION)
        return msgspec.structs.replace(found, mongo=msgspec.structs.replace(found.mongo, uri=uri))

    def _schedules(self) -> list[Slot]:
        made = []
        with self.store() as store, store.session(TENANT) as session:
            first = store.now() + timedelta(seconds=1)
            for number in range(SCHEDULES):
                one = session.schedules.upsert(
                    schedule(
                        TENANT,
                        name=f"every {number}",
                        handler_name="note",
                        max_retries=50,
                        retry_delay_ms=100,
                        retry_strategy="fixed",
                        payload=jsonb.encode({"folder": str(self.folder)}),
                    )
                )
                fires = trigger(
                    one,
                    id=uuid4(),
                    next_fire_at=first,
                    kind="interval",
                    interval_ms=int(STEP.total_seconds() * 1000),
                    anchor="fixed_rate",
                    start_at=first,
                    misfire_policy="fire_all",
                )
                made.append((session.triggers.upsert(fires).id, first))
        return made

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Open the store that the configuration names now."""
        store = open_scheduler_store(self.settings())
        try:
            yield store
        finally:
            store.close()

    def slots(self) -> list[Slot]:
        """Return the slots that have a first run in state completed, or a completed repetition, on today's side."""
        with self.store() as store, store.session(TENANT) as session:
            runs = every_run(session)
        done = [(run.trigger_id, run.scheduled_at) for run in runs if run.state == "completed"]
        return [(one, at) for one, at in done if one is not None and at is not None]

    def more(self, slots: int) -> None:
        """Wait until so many more slots are done."""
        goal = self.counted + slots
        self.counted = self.until(lambda: count if (count := len(self.slots())) >= goal else 0)

    def due(self) -> list[Slot]:
        """Return every slot up to the last one that was done."""
        last = max(at for _, at in self.slots())
        return [(one, first + STEP * n) for one, first in self.triggers for n in range((last - first) // STEP + 1)]


@contextmanager
def loaded(ready: Scene, postgres: PostgresServer, seed: int, clients: int = 2) -> Iterator[Load]:
    """Yield a load that is not begun yet; nothing of it is left."""
    load = Load(ready, postgres, seed, clients)
    try:
        yield load
    finally:
        load.close()
