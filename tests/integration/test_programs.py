"""The programs of docs/programs, whole, on both backends."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from migrator import (
    Scheduler,
    ScheduleRequest,
    Settings,
    Store,
    load_settings,
    open_store,
    prepare,
)
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.scheduler_processes import PATIENCE, until

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(params=["mongo", "postgres"])
def settings(request: pytest.FixtureRequest) -> Settings:
    """Return settings that are built in code."""
    if request.param == "postgres":
        make: Callable[[], str] = request.getfixturevalue("new_scheduler_dsn")
        return load_settings({"postgres": {"dsn": make()}, "persistence": {"scheduler": "postgres"}}, {})
    server: MongoServer = request.getfixturevalue("mongo_server")
    mongo = {"uri": server.uri, "database": fresh_name()}
    return load_settings({"mongo": mongo, "persistence": {"scheduler": "mongo"}}, {})


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings) as opened:
        prepare(opened)
        yield opened


def environment(settings: Settings) -> dict[str, str]:
    """Return the variables that say what the settings say."""
    named = {
        "PERSISTENCE__SCHEDULER": settings.persistence.scheduler,
        "POSTGRES__DSN": settings.postgres.dsn,
        "MONGO__URI": settings.mongo.uri,
        "MONGO__DATABASE": settings.mongo.database,
        "SCHEDULER__POLL": "50ms",
    }
    return os.environ | {f"MIGRATOR_{name}": value for name, value in named.items() if value is not None}


@pytest.mark.proves("5-A1")
def test_a_client_creates_triggers_claims_finishes_and_reads_the_history(settings: Settings, tmp_path: Path) -> None:
    command = [sys.executable, str(DOCS / "programs" / "client.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment(settings), capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "created nightly copy",
        "run 1 is queued",
        "run 1 is running, claimed by program-1",
        "finished 1 run",
        "history: run 1 completed, asked for by ann",
    ], done.stderr
    assert done.returncode == 0


@pytest.mark.proves("5-A1")
def test_a_worker_executes_runs_until_it_is_told_to_stop(settings: Settings, store: Store, tmp_path: Path) -> None:
    scheduler = Scheduler(store, "acme")
    job = scheduler.schedule_once(
        ScheduleRequest(name="greeting", handler_name="greet", payload={"name": "Ada"}, created_by="ann")
    )
    command = [sys.executable, str(DOCS / "programs" / "worker.py")]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(settings), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as worker:
        try:
            until(lambda: worker.poll() is not None or states(scheduler, job.id) == ["completed"])
            worker.send_signal(signal.SIGTERM)
            output, errors = worker.communicate(timeout=PATIENCE)
        finally:
            worker.kill()
    assert output.splitlines()[-1:] == ["completed 1, failed 0"], errors
    assert worker.returncode == 0
    [execution] = scheduler.history(job.id, include_logs=True).executions
    assert execution.run.result == b'{"greeting":"Hello, Ada!"}'
    assert "attempt 1 for tenant acme" in [line.message for line in execution.logs]
    ended = scheduler.get(job.id)
    assert ended is not None
    assert ended.schedule.status == "completed"


def states(scheduler: Scheduler, schedule: UUID) -> list[str]:
    return [one.run.state for one in scheduler.history(schedule).executions]


def blocks() -> list[str]:
    """Return the Python text of docs/api.md that stands on the page alone, and is no program."""
    programs = [path.read_text() for path in (DOCS / "programs").glob("*.py")]
    found = re.findall(r"```python\n(.*?)```", (DOCS / "api.md").read_text(), re.DOTALL)
    assert [one for one in programs if one not in found] == []
    return [one for one in found if one not in programs]


def test_what_stands_on_the_page_is_executed(settings: Settings, store: Store, tmp_path: Path) -> None:  # noqa: ARG001 - the store makes the indexes
    for text in blocks():
        done = subprocess.run(
            [sys.executable, "-c", text],
            cwd=tmp_path,
            env=environment(settings),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("HealthStatus(")
