"""The SQL of docs/tables.md, block by block in its order, in sessions of a user who is a member of both roles."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from migrator import Scheduler, Store, load_settings, open_store
from migrator.values.identity import lock_id
from tests.conftest import Cluster
from tests.schema_rows import connect

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tables.md"
SCHEDULE = UUID("a0000000-0000-4000-8000-000000000001")
ORDERS, CUSTOMERS = UUID("c0000000-0000-4000-8000-000000000001"), UUID("c0000000-0000-4000-8000-000000000002")
KEY = "acme/nightly-report"
Rows = list[dict[str, Any]]


def blocks() -> dict[str, list[str]]:
    """Return the blocks under each heading."""
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    found = {one.partition("\n")[0]: re.findall(r"```sql\n(.*?)```", one, re.DOTALL) for one in sections}
    return {heading: texts for heading, texts in found.items() if texts}


class Reader:
    """Who reads the page: executes its blocks, each in a session of its own, and what others do meanwhile."""

    def __init__(self, dsn: str, admin_dsn: str, store: Store) -> None:
        self.store, self.scheduler = store, Scheduler(store, "acme")
        self._dsn, self.admin_dsn = dsn, admin_dsn
        self._left = blocks()

    def executes(self, heading: str) -> Rows:
        """Execute the next block under a heading; return the rows of its last statement that gives any."""
        text = self._left[heading].pop(0)
        assert text.startswith(("SET ROLE scheduler_service;", "SET ROLE scheduler_dispatcher;"))
        rows: Rows = []
        with psycopg.connect(self._dsn, autocommit=True, row_factory=dict_row) as connection:
            cursor = connection.execute(text.encode())
            while True:
                if cursor.description is not None:
                    rows = cursor.fetchall()
                if not cursor.nextset():
                    return rows

    def meanwhile(self, statement: str, *values: object) -> None:
        with connect(self.admin_dsn) as connection:
            connection.execute(statement.encode(), values)

    @property
    def unread(self) -> dict[str, list[str]]:
        return {heading: texts for heading, texts in self._left.items() if texts}

    def state(self, run: UUID) -> str:
        found = self.scheduler.get_execution(run)
        assert found is not None
        return found.run.state


@pytest.fixture
def reader(any_cluster: Cluster, any_scheduler_dsn: str) -> Iterator[Reader]:
    user = f"application_{uuid4().hex[:8]}"
    with connect(any_scheduler_dsn) as connection:
        connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'".encode())
        connection.execute(f"GRANT scheduler_service, scheduler_dispatcher TO {user}".encode())
    dsn = any_cluster.server.dsn(any_scheduler_dsn.rpartition("/")[2], user=user, password="secret")
    settings = load_settings({"postgres": {"dsn": any_scheduler_dsn}, "persistence": {"scheduler": "postgres"}}, {})
    with open_store(settings) as store:
        yield Reader(dsn, any_scheduler_dsn, store)
    with connect(any_scheduler_dsn) as connection:
        connection.execute(f"DROP ROLE {user}".encode())


def test_the_page_is_read_from_beginning_to_end(reader: Reader) -> None:
    reader.executes("Create a schedule")
    job = reader.scheduler.get(SCHEDULE)
    assert job is not None
    assert (job.schedule.name, [one.kind for one in job.triggers]) == ("nightly copy", ["cron"])
    assert job.next_fire_at is not None

    reader.executes("Queue a run")
    reader.meanwhile("UPDATE scheduler.runs SET available_at = available_at - interval '1 s' WHERE id = %s", ORDERS)
    claimed = reader.executes("Claim runs")
    assert {(row["id"], row["tenant_id"], row["attempt"], row["fence"]) for row in claimed} == {
        (ORDERS, "acme", 1, 1),
        (CUSTOMERS, "acme", 1, 1),
    }
    assert reader.store.queue.claim("another", 10, timedelta(minutes=1)) == []

    assert reader.executes("Renew a lease") == [{"id": ORDERS}]
    reader.executes("Write to the log of a run")
    assert reader.executes("Finish a run") == [{"id": ORDERS}]
    done = reader.scheduler.get_execution(ORDERS)
    assert done is not None
    assert (done.run.state, done.run.result, done.run.lease_expires_at) == ("completed", b'{"rows":3}', None)
    assert done.run.duration_ms is not None
    assert [line.message for line in done.logs] == ["copied 3 rows"]

    [retry] = reader.executes("Finish a run")
    assert (reader.state(CUSTOMERS), reader.state(retry["id"]), retry["attempt"]) == ("error", "queued", 2)
    failed = reader.scheduler.get_execution(CUSTOMERS)
    assert failed is not None
    assert retry["available_at"] - failed.run.finished_at == timedelta(minutes=1)

    reader.executes("Limit the runs of a schedule")
    reader.meanwhile("UPDATE scheduler.runs SET available_at = created_at WHERE id = %s", retry["id"])
    second = reader.scheduler.trigger_now(SCHEDULE)
    [claim] = reader.executes("Limit the runs of a schedule")
    assert (claim["id"], claim["attempt"], claim["fence"]) == (retry["id"], 2, 1)
    assert reader.store.queue.claim("another", 10, timedelta(minutes=1)) == []
    assert reader.state(second.id) == "queued"

    history = reader.executes("Read the history of a schedule")
    assert [row["id"] for row in history] == [second.id, retry["id"], *sorted([ORDERS, CUSTOMERS])]

    assert reader.executes("Take a lock") == []
    assert reader.executes("Take a lock") == [{"fence": 1}]
    lock(reader)
    assert reader.unread == {}


def lock(reader: Reader) -> None:
    """Read on where the lock is held, beside a process of this scheduler that wants it too."""
    assert reader.store.locks.holder("acme", "nightly-report") == ("report service", 1)
    assert reader.store.locks.acquire("acme", "nightly-report", ttl=timedelta(seconds=30)) is None
    assert reader.executes("Take a lock") == [{"fence": 1}]
    assert reader.executes("Take a lock") == [{"held": True}]
    assert reader.executes("Take a lock") == [{"fence": 1}]
    handle = reader.store.locks.acquire("acme", "nightly-report", ttl=timedelta(seconds=30))
    assert handle is not None
    assert handle.fence == 2
    assert handle.release()


def test_a_lock_that_is_free_or_over_is_taken_and_one_that_is_held_is_not(reader: Reader) -> None:
    take = blocks()["Take a lock"][0]

    def taken() -> Rows:
        reader._left["Take a lock"] = [take]
        return reader.executes("Take a lock")

    handle = reader.store.locks.acquire("acme", "nightly-report", ttl=timedelta(minutes=5))
    assert handle is not None
    assert taken() == []
    assert handle.release()
    assert taken() == [{"fence": 2}]
    assert taken() == []
    reader.meanwhile("UPDATE scheduler.locks SET expires_at = now() WHERE key = %s", KEY)
    assert taken() == [{"fence": 3}]


def test_the_id_of_a_lock_is_the_one_that_every_process_computes(reader: Reader) -> None:
    reader.executes("Take a lock")
    reader.executes("Take a lock")
    reader.meanwhile("UPDATE scheduler.locks SET holder = 'same' WHERE key = %s AND lock_id = %s", KEY, lock_id(KEY))
    assert reader.store.locks.holder("acme", "nightly-report") == ("same", 1)


@pytest.mark.parametrize("heading", ["Renew a lease", "Finish a run"])
def test_a_run_that_another_worker_has_is_not_written(reader: Reader, heading: str) -> None:
    for one in ("Create a schedule", "Queue a run", "Claim runs"):
        reader.executes(one)
    reader.meanwhile("UPDATE scheduler.runs SET worker_id = 'another', fence = 2 WHERE id = %s", ORDERS)
    assert reader.executes(heading) == []
    assert reader.state(ORDERS) == "running"


def test_a_claim_leaves_runs_that_may_not_run(reader: Reader) -> None:
    claim = blocks()["Claim runs"][0]
    for one in ("Create a schedule", "Queue a run"):
        reader.executes(one)
    for statement, back in (
        ("enabled = false", "enabled = true"),
        ("status = 'paused'", "status = 'scheduled'"),
        ("handler_name = 'other'", "handler_name = 'copy'"),
        ("max_concurrency = 5", "max_concurrency = NULL"),
        ("deleted_at = now()", "deleted_at = NULL"),
    ):
        reader.meanwhile(f"UPDATE scheduler.schedules SET {statement}")
        reader._left["Claim runs"] = [claim]
        assert reader.executes("Claim runs") == [], statement
        reader.meanwhile(f"UPDATE scheduler.schedules SET {back}")
    reader._left["Claim runs"] = [claim]
    assert len(reader.executes("Claim runs")) == 2


def test_a_claim_passes_over_a_run_that_another_worker_is_claiming(reader: Reader) -> None:
    for one in ("Create a schedule", "Queue a run"):
        reader.executes(one)
    with connect(reader.admin_dsn) as other, other.transaction():
        other.execute("SELECT FROM scheduler.runs WHERE id = %s FOR UPDATE", (ORDERS,))
        assert [row["id"] for row in reader.executes("Claim runs")] == [CUSTOMERS]
