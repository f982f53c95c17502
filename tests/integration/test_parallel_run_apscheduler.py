"""Two real schedulers in parallel: APScheduler with its store on MongoDB, and a process of ours on PostgreSQL."""

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from apscheduler.jobstores.mongodb import MongoDBJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from pymongo import MongoClient
from pymongo.database import Database

from migrator.config import PersistenceSettings, Settings
from migrator.cutover import parallel
from migrator.cutover.fired_slots import compare_fired
from migrator.cutover.gates import GateOptions, evaluate
from migrator.cutover.slots import Comparison
from migrator.parity.check import check_parity
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail.loop import Tail
from migrator.records import Run, columns_of
from migrator.schema.decisions import Approval
from migrator.store import open_scheduler_store
from tests.copying import uri_of
from tests.cutting_over import with_cutover
from tests.scheduled_work import lines, tick
from tests.scheduler_processes import Site, stop, until
from tests.tailing import compared, copied

JOBS = [f"every second {number}" for number in range(16)] + [f"cron {number}" for number in range(4)]
RARE = "rare"
SLOTS = 300
BY = Approval("ann", "both run for a while")


AHEAD = """
SELECT count(*) FROM scheduler.triggers AS t WHERE EXISTS (
    SELECT FROM scheduler.runs AS r WHERE r.trigger_id = t.id AND r.scheduled_at > t.next_fire_at
)
"""
"""Triggers of which PostgreSQL has fired more than the old side has taken."""


@pytest.fixture
def old(mongo_database: Database[Any], tmp_path: Path) -> Iterator[BackgroundScheduler]:
    with MongoClient[dict[str, Any]](uri_of(mongo_database)) as client:
        scheduler = BackgroundScheduler(
            jobstores={"default": MongoDBJobStore(mongo_database.name, "jobs", client)}, timezone="UTC"
        )
        scheduler.start()
        for job in JOBS:
            timing = (
                {"trigger": "interval", "seconds": 1} if job.startswith("every") else {"trigger": "cron", "second": "*"}
            )
            scheduler.add_job(tick, id=job, name=job, kwargs={"folder": str(tmp_path), "job": job}, **timing)
        rare = {"folder": str(tmp_path), "job": RARE}
        scheduler.add_job(tick, "cron", id=RARE, name=RARE, kwargs=rare, year=datetime.now(UTC).year + 1)
        try:
            yield scheduler
        finally:
            if scheduler.running:
                scheduler.shutdown()


class Following:
    """The tail, in a thread of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._stop = settings, threading.Event()
        self._thread = threading.Thread(target=self._run, name="tail of the test")
        self.failed: BaseException | None = None
        self._thread.start()

    def _run(self) -> None:
        try:
            with Tail(self._settings) as tail:
                tail.run(stop=self._stop)
        except BaseException as error:  # noqa: BLE001 - raised where the test ends
            self.failed = error

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.failed is None, self.failed


@pytest.fixture
def settings(old: BackgroundScheduler, mongo_database: Database[Any], scheduler_dsn: str) -> Settings:
    assert old.running
    found = copied(mongo_database, scheduler_dsn, profile="apscheduler")
    return with_cutover(found, slot_tolerance=timedelta(seconds=10), stability=timedelta(0))


def _let_the_copy_go_on(settings: Settings) -> None:
    """Say by the configuration that PostgreSQL goes on: this source has no cutover."""
    persistence = PersistenceSettings(scheduler="postgres", copy="may be changed")
    open_scheduler_store(msgspec.structs.replace(settings, persistence=persistence)).close()


@pytest.mark.proves("4-P1", "4-K3", "4-K2", "4-P2")
def test_two_schedulers_fire_the_same_slots_and_the_new_one_goes_on_where_the_old_one_stops(
    old: BackgroundScheduler, settings: Settings, scheduler_dsn: str, tmp_path: Path
) -> None:
    # This source has no cutover, after which a process may work on the copy.
    site = Site(tmp_path, "postgres", f'copy = "may be changed"\n[postgres]\ndsn = "{scheduler_dsn}"')
    with closing(site), closing(Following(settings)), closing(Sessions(settings)) as sessions:
        target = sessions.target
        began = parallel.begin(target, sessions.profile, BY.who, BY.reason)
        process = site.start(concurrency=50)

        def fired(ended: datetime | None = None) -> Comparison:
            tolerance = settings.cutover.slot_tolerance
            return compare_fired(target, sessions.profile, began, ended or datetime.now(UTC) - tolerance, tolerance)

        def gate(name: str) -> tuple[bool | None, str]:
            return next((one.passed, one.words) for one in parallel.gates(sessions) if one.name == name)

        # The same slots on both sides, all of them inferred; the new side may always be some seconds behind.
        until(lambda: fired().matched >= SLOTS)
        then = datetime.now(UTC)
        found = until(lambda: (now := fired(then)).clean and now)
        assert found.inferred == found.matched
        assert {job for job in JOBS if f"{job} " in lines(tmp_path, "old")} == set(JOBS)
        assert lines(tmp_path, "new") == []  # no handler is marked idempotent: all its runs are dry

        # The documents equal their rows, while both sides fire and the tail follows.
        live = check_parity(settings, Scope())
        assert [one for of in live.collections for one in of.findings] == []
        assert sum(one.matched for one in live.collections) == len(JOBS) + 1

        # A schedule that does not fire holds the gate, until it is waived.
        assert until(lambda: gate("all jobs succeeded")[1].startswith("1 of "))
        assert gate("all jobs succeeded")[0] is False
        parallel.waive(target, [RARE], Approval("ann", "it is yearly"))
        passed, words = gate("all jobs succeeded")
        assert (passed, words.partition("; ")[2]) == (True, "1 waived: rare (ann: it is yearly)")
        assert until(lambda: all(one.passed for one in parallel.gates(sessions)))
        (reverse,) = (
            one
            for one in evaluate(sessions, GateOptions(config=tmp_path / "config.toml"))
            if one.name == "reverse sync"
        )
        assert reverse.passed is False  # a pickle is never written: this source has no cutover

        # The old side stops; what it took by then is compared to the end.
        old.shutdown()
        stopped = {job["_id"]: job["next_run_time"] for job in sessions.source["jobs"].find()}
        before = datetime.fromtimestamp(min(stopped.values()), UTC)
        assert until(lambda: (now := fired(before)).clean and now).matched >= SLOTS

        # Faults: a slot that the new side did not fire, one that it fired twice.
        with psycopg.connect(scheduler_dsn, autocommit=True) as connection:
            # Neither the first slots, from which on is compared, nor the last ones, which the gate does not judge yet.
            middle = (
                "SELECT id, schedule_id, scheduled_at FROM scheduler.runs WHERE source IS NULL AND scheduled_at < %s"
            )
            chosen = connection.execute(
                f"{middle} ORDER BY scheduled_at, id LIMIT 1 OFFSET %s".encode(), (before, 5 * len(JOBS))
            ).fetchone()
            assert chosen is not None
            columns = ", ".join(name for name in columns_of(Run) if name not in {"id", "trigger_id"})
            connection.execute(
                f"INSERT INTO scheduler.runs (id, {columns}) SELECT gen_random_uuid(), {columns} FROM scheduler.runs"
                " WHERE id = %s".encode(),
                chosen[:1],
            )
            assert len(fired(before).duplicate) == 1
            connection.execute("DELETE FROM scheduler.runs WHERE (schedule_id, scheduled_at) = (%s, %s)", chosen[1:])
            assert fired(before).missing == ((("tenant-default", chosen[1]), chosen[2]),)
            assert gate("history recorded")[0] is False

        # The parallel run ends: slots that the old side did not take fire here with their handler, each once.
        assert compared(settings) == []
        _let_the_copy_go_on(settings)
        until(lambda: target.execute(AHEAD).fetchone() == (len(JOBS),))
        done = parallel.end(target, sessions.profile, settings.cutover, BY)
        assert done.freed > 0
        until(lambda: {line.rpartition(" ")[0].rpartition(" ")[0] for line in lines(tmp_path, "new")} >= set(JOBS))
        assert stop(process) == 0, site.log(process)
    called = lines(tmp_path, "new")
    assert len(called) == len(set(called))
    for job in JOBS:
        slots = sorted(line.removeprefix(f"{job} ") for line in called if line.startswith(f"{job} "))
        assert datetime.fromisoformat(slots[0]).timestamp() == pytest.approx(stopped[job], abs=0.001)
