"""Runs that a real worker process of Celery executes, by the transport and the results of its file system backends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery

from migrator.errors import ConfigurationError
from migrator.records import Run
from migrator.scheduler.celery import HEADER, CelerySystem
from migrator.scheduler.executor import InProcessExecutor
from migrator.scheduler.handlers import Registry, Request
from migrator.testing.memory.store import MemoryStore
from migrator.values import jsonb
from tests.contract.rows import NOW, SECOND, run, schedule
from tests.contract.scheduling.process import Process
from tests.contract.working import put, run_of
from tests.integration.celery_application import application
from tests.scheduler_processes import until

TENANT = "acme"
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def celery_worker(folder: Path) -> Iterator[None]:
    """Run Celery's worker until the block ends."""
    command = [sys.executable, "-m", "celery", "--app", "tests.integration.celery_application", "worker"]
    command += ["--pool", "solo", "--queues", "celery,ad_queue", "--without-gossip", "--without-mingle"]
    with (folder / "worker.log").open("w") as log:
        worker = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "CELERY_FOLDER": str(folder)}, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            worker.send_signal(signal.SIGTERM)
            try:
                worker.wait(20)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


@pytest.fixture
def app(tmp_path: Path) -> Celery:
    return application(tmp_path)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def process(app: Celery, store: MemoryStore) -> Process:
    registry = Registry()
    registry.send_with("celery_task", CelerySystem(app))
    return Process(store, TENANT, InProcessExecutor(registry))


def put_task(store: MemoryStore, handler: str, payload: bytes | None = None, **more: Any) -> Run:  # noqa: ANN401 - columns have all types
    of = schedule(TENANT, handler_name=handler, handler_type="celery_task", payload=payload, **more)
    row = run(TENANT, schedule_id=of.id, available_at=NOW)
    put(store, of, row)
    return row


@pytest.mark.proves("2-X4", "5-A1", "4-C1", "4-Z2")
def test_tasks_go_to_celery_and_their_outcomes_come_back(
    process: Process, store: MemoryStore, tmp_path: Path, app: Celery
) -> None:
    added = put_task(store, "demo.add", b'{"left":2,"right":3}', queue="ad_queue")
    failed = put_task(store, "demo.fail", max_retries=0)
    cancelled = put_task(store, "demo.add", b'{"left":1,"right":1}')
    process.turn()
    states = {one.id: run_of(store, TENANT, one.id) for one in (added, failed, cancelled)}
    assert {one.state for one in states.values()} == {"running"}
    with store.session(TENANT, now=process.clock.now) as session:
        assert session.runs.cancel(cancelled.id, "no longer wanted") is not None
    task_id = states[cancelled.id].external_task_id
    assert task_id is not None
    with celery_worker(tmp_path):
        # A revocation is told to the workers that are there.
        until(lambda: app.control.ping(timeout=0.5))
        process.after(SECOND)

        def ended() -> bool:
            process.turn()
            return not process.worker.active

        until(ended)
    found = run_of(store, TENANT, added.id)
    told = {"sum": 5, "run": str(added.id), "queue": "ad_queue", "task": states[added.id].external_task_id}
    assert (found.state, jsonb.decode(found.result or b"")) == ("completed", told)
    found = run_of(store, TENANT, failed.id)
    assert (found.state, found.error) == ("error", "RuntimeError: no route")
    assert "raise RuntimeError" in (found.error_detail or "")
    assert run_of(store, TENANT, cancelled.id).state == "cancelled"


def test_a_task_that_ignores_its_result_reports_and_is_executed_once(
    process: Process, store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is declared so, and so is every task of the application, in the worker's settings."""
    monkeypatch.setenv("CELERY_IGNORES", "1")
    silent = put_task(store, "demo.silent", jsonb.encode({"folder": str(tmp_path)}))
    failed = put_task(store, "demo.silent-failure", max_retries=0)
    added = put_task(store, "demo.add", b'{"left":2,"right":3}')
    process.turn()
    with celery_worker(tmp_path):

        def ended() -> bool:
            process.turn()
            return not process.worker.active

        until(ended)
    found = run_of(store, TENANT, silent.id)
    assert (found.state, jsonb.decode(found.result or b"")) == ("completed", "reported")
    assert (run_of(store, TENANT, failed.id).error, run_of(store, TENANT, added.id).state) == (
        "RuntimeError: no route",
        "completed",
    )
    process.after(timedelta(hours=1))
    assert (tmp_path / "called").read_text() == "called\n", "nothing timed out, and nothing was sent again"


def test_an_application_without_result_backend_is_refused_unless_its_tasks_report() -> None:
    with pytest.raises(ConfigurationError, match="has no result backend: nobody would learn how a task ended"):
        CelerySystem(Recording())
    assert CelerySystem(Recording(), tasks_report=True).outcome("any") is None


def request_of(fence: int) -> Request:
    return Request(
        run_id=uuid4(),
        tenant_id=TENANT,
        handler_name="demo.add",
        handler_type="celery_task",
        queue=None,
        arguments={},
        asked={"event": "e"},
        attempt=2,
        fence=fence,
        trace_id="t",
        span_id="s",
    )


class Recording(Celery):  # type: ignore[misc] # Celery has no types
    """An application that notes what is sent and revoked."""

    def __init__(self) -> None:
        super().__init__("tests", broker="memory://")
        self.sent: list[dict[str, Any]] = []

    def send_task(self, name: str, **named: Any) -> None:  # noqa: ANN401 - Celery's
        self.sent.append({"name": name, **named})


def test_a_task_says_which_run_it_is_and_has_one_id_for_each_claim() -> None:
    app = Recording()
    system, request = CelerySystem(app, tasks_report=True), request_of(3)
    assert system.send(request) == system.send(request) == app.sent[0]["task_id"]
    assert app.sent[0]["headers"][HEADER] == {
        "runId": str(request.run_id),
        "tenantId": TENANT,
        "fence": 3,
        "attempt": 2,
        "asked": {"event": "e"},
        "traceId": "t",
        "spanId": "s",
    }
    assert app.sent[0]["ignore_result"] is False, "whatever the task says"
    system.send(request_of(4))
    assert app.sent[2]["task_id"] != app.sent[0]["task_id"]
    assert system.outcome(app.sent[0]["task_id"]) is None  # it has no result backend: the task ends its run itself
