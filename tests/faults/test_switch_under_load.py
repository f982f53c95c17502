"""A scheduler keeps working while it is copied, followed, switched and taken back, and while its processes are killed.

Real processes of ``migrator run``, and of ``migrator tail``, over one configuration file: nobody tells them about the
switch. The judge (``tests.contract.assignment``) wants every slot to have fired once, whichever side it fired on.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from migrator.config import Settings, load_settings
from migrator.cutover import rollback
from migrator.embedded.mongo import MongoServer
from migrator.parity.recorded import compared, is_clean
from migrator.pipeline import progress
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.records.run import Run
from migrator.store import open_scheduler_store
from migrator.store.queries import RunQuery
from migrator.values import jsonb
from tests.conftest import fresh_name
from tests.contract.assignment import Slot, once_each
from tests.cron_lines import DEEP
from tests.cutting_over import APPLICATION, Scene, scene
from tests.store_postgres import schedule, trigger
from tests.tailing import differences

STEP = timedelta(milliseconds=500)
SCHEDULES = 4
PATIENCE_S = 90
LOOKS_EVERY_S = 0.2
SEEDS = range(20) if DEEP else range(1)
SCHEDULER = """
[scheduler]
poll_ms = 100
lease_ms = 4000
heartbeat_ms = 500
dead_after_ms = 3000
leader_ttl_ms = 2000
sweep_ms = 500
stop_within_ms = 3000
"""


@pytest.fixture(scope="module")
def server() -> Iterator[MongoServer]:
    with MongoServer.start(auth=True, fast=True) as started:
        yield started


def started(ready: Scene, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start ``migrator`` in a process group of its own; what it says goes into a file."""
    with (ready.folder / "said").open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "migrator", *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all it started, at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def said(ready: Scene) -> str:
    """Return the last that the processes have said."""
    return (ready.folder / "said").read_text()[-4_000:]


class Load:
    """Two scheduler processes, which may be killed, and schedules that fire twice a second."""

    def __init__(self, ready: Scene, seed: int) -> None:
        self.ready, self.dice = ready, random.Random(seed)
        self.config = ready.config
        self.config.write_text(self.config.read_text() + SCHEDULER)
        self.environment = {"MIGRATOR_MONGO__URI": ready.uri_of(APPLICATION), "PYTHONPATH": os.getcwd()}  # noqa: PTH109 - a text
        self.processes: list[subprocess.Popen[bytes]] = []
        self.triggers = self._schedules()
        self.counted = 0

    def settings(self) -> Settings:
        """Return what a process of the application reads now."""
        found = load_settings(str(self.config))
        uri = self.ready.uri_of(APPLICATION)
        return msgspec.structs.replace(found, mongo=msgspec.structs.replace(found.mongo, uri=uri))

    def _schedules(self) -> list[Slot]:
        store = open_scheduler_store(self.settings())
        folder = self.ready.folder / "work"
        folder.mkdir()
        first = store.now() + timedelta(seconds=1)
        made = []
        with store.session("load") as session:
            for number in range(SCHEDULES):
                one = session.schedules.upsert(
                    schedule(
                        "load",
                        name=f"every {number}",
                        handler_name="note",
                        max_retries=5,
                        retry_delay_ms=100,
                        payload=jsonb.encode({"folder": str(folder)}),
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
        store.close()
        return made

    def begin(self) -> None:
        """Start a process of the scheduler."""
        command = ("run", "--handlers", "tests.scheduled_work:registry", "--config", str(self.config))
        self.processes.append(started(self.ready, *command, **self.environment))

    def strike(self) -> None:
        """Kill one of them, and start another one."""
        kill(self.processes.pop(self.dice.randrange(len(self.processes))))
        self.begin()

    def slots(self) -> list[Slot]:
        """Return the slots that have a first run in state completed, or a completed repetition, on today's side."""
        store = open_scheduler_store(self.settings())
        try:
            with store.session("load") as session:
                runs: list[Run] = []
                query = RunQuery(limit=200)
                while True:
                    page = session.runs.list(query)
                    runs += page.runs
                    if page.cursor is None:
                        break
                    query = RunQuery(limit=200, cursor=page.cursor)
        finally:
            store.close()
        done = [(run.trigger_id, run.scheduled_at) for run in runs if run.state == "completed"]
        return [(one, at) for one, at in done if one is not None and at is not None]

    def states(self) -> dict[str, int]:
        """Return how many runs are in each state but completed."""
        store = open_scheduler_store(self.settings())
        try:
            with store.session("load") as session:
                found = session.runs.list(RunQuery(states=("queued", "running", "error", "timeout"), limit=200)).runs
        finally:
            store.close()
        return dict(Counter(f"{one.state} {one.attempt} {one.scheduled_at} {one.error}" for one in found))

    def until(self, more: int) -> None:
        """Wait until so many more slots are done."""
        goal = self.counted + more
        end = time.monotonic() + PATIENCE_S
        while (count := len(self.slots())) < goal:
            assert time.monotonic() < end, f"{count} of {goal}: {said(self.ready)}"
            self.supervise()
        self.counted = count

    def supervise(self) -> None:
        """Start those anew that ended: one that begins while a side is fenced is refused, as a supervisor expects."""
        with suppress(subprocess.TimeoutExpired):
            self.processes[0].wait(LOOKS_EVERY_S)
        for one in [one for one in self.processes if one.poll() is not None]:
            self.processes.remove(one)
            self.begin()

    def end(self) -> None:
        """Stop them in good order."""
        for one in self.processes:
            os.killpg(one.pid, signal.SIGTERM)
        for one in self.processes:
            one.wait(timeout=PATIENCE_S)
        self.processes.clear()


@contextmanager
def loaded(ready: Scene, seed: int) -> Iterator[Load]:
    load = Load(ready, seed)
    try:
        yield load
    finally:
        for one in load.processes:
            kill(one)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.proves("0-T2.10.2", "4-X4", "4-X5", "4-B1")
def test_no_slot_is_missed_or_fired_twice(seed: int, server: MongoServer, scheduler_dsn: str, tmp_path: Path) -> None:
    with scene(server, fresh_name(), scheduler_dsn, tmp_path) as ready, loaded(ready, seed) as load:
        _there_and_back(ready, load)


def _follows(ready: Scene, load: Load) -> None:
    """Wait until the tail has come up with the source: from then on a comparison beside it is exact."""
    end = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < end
        stands = progress.standing(ready.settings).tail
        if stands is not None and stands.follows and stands.behind_s < 3 and not stands.owed:
            return
        load.supervise()


def _there_and_back(ready: Scene, load: Load) -> None:
    load.begin()
    load.begin()
    load.until(8)
    assert backfill(ready.settings, Scope()).complete
    tail = started(ready, "tail", "--config", str(ready.config))
    try:
        load.strike()
        load.until(8)
        _follows(ready, load)
        found = compared(ready.settings)
        assert is_clean(found), (differences(found), found.aggregates)
        done = ready.switch()
        load.until(8)
        load.strike()
        load.until(8)
        back = rollback.run(ready.settings, ready.config, 1)
        load.until(8)
        assert tail.poll() is None, said(ready)
    finally:
        kill(tail)
    last = max(at for _, at in load.slots())
    due = [(one, first + STEP * number) for one, first in load.triggers for number in range((last - first) // STEP + 1)]
    end = time.monotonic() + PATIENCE_S
    while set(due) - set(load.slots()) and time.monotonic() < end:  # what a killed process held is repeated by others
        load.supervise()
    load.end()
    verdict = once_each(due, [slot for slot in load.slots() if slot[1] <= last])
    assert verdict.clean, f"{verdict}; pause {done.pause_s} s, {back.documents} documents carried back; {load.states()}"
