"""``migrator scheduler metrics`` and ``migrator scheduler retention`` on a real server."""

import json
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from migrator.cli import cli
from migrator.errors import UsageError
from migrator.scheduler import retention
from migrator.scheduler.archive import read_archive
from migrator.store.postgres.store import PostgresStore
from migrator.store.protocols import RunQuery
from tests.contract.rows import run, schedule
from tests.copying import run as run_process
from tests.gates import FOLDER
from tests.store_postgres import opened


@pytest.fixture
def store(scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresStore]:
    monkeypatch.setenv("MIGRATOR_POSTGRES__DSN", scheduler_dsn)
    monkeypatch.setenv("MIGRATOR_PERSISTENCE__SCHEDULER", "postgres")
    with opened(scheduler_dsn) as store:
        yield store


def old_runs(store: PostgresStore, tenant: str, count: int) -> None:
    now = store.now()
    with store.session(tenant) as session:
        of = session.schedules.upsert(schedule(tenant))
        for n in range(count):
            session.runs.create(
                run(tenant, schedule_id=of.id, created_at=now - timedelta(days=40 + n), state="completed")
            )


def call(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--age", "1000000000d", 'expected a duration of at most "36500d"'),
        ("--age", "36501d", 'expected a duration of at most "36500d"'),
        ("--age", "30", 'expected a duration with its unit, such as "500ms", "30s", "5m", "2h" or "7d"'),
        ("--keep", str(2**31), f"{2**31} is not in the range"),
    ],
)
def test_retention_refuses_a_number_that_no_calculation_of_time_takes(option: str, value: str, why: str) -> None:
    done = CliRunner().invoke(cli, ["scheduler", "retention", "--dry-run", option, value])
    assert done.exit_code == 2
    assert f"Invalid value for '{option}': {why}" in done.stderr


@pytest.mark.proves("3-R2", "4-C7")
def test_retention_says_what_it_would_remove_and_removes_it(store: PostgresStore) -> None:
    old_runs(store, "a", 5)
    old_runs(store, "b", 1)
    status, said = call("scheduler", "retention", "--keep", "2", "--age", "30d", "--dry-run")
    assert (status, said.splitlines()) == (
        0,
        [
            "a: would remove 3 runs of 1 schedules",
            "b: would remove 0 runs of 0 schedules",
            "would remove 3 runs in total",
        ],
    )
    status, said = call("scheduler", "retention", "--keep", "2", "--tenant", "a", "--json", "--yes")
    (found,) = json.loads(said)
    assert (status, found["tenant"], found["removed"], found["dry_run"]) == (0, "a", 3, False)
    assert sum(found["by_schedule"].values()) == 3
    assert call("scheduler", "retention", "--keep", "2", "--yes")[1].splitlines()[-1] == "removed 0 runs in total"


@pytest.mark.proves("5-D1", "3-R2")
def test_retention_removes_nothing_unless_somebody_says_so(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_runs(store, "a", 5)
    asked = ["scheduler", "retention", "--keep", "2"]
    with pytest.raises(UsageError, match="nothing was removed: add --yes to the command"):
        call(*asked)
    with pytest.raises(UsageError, match="contradict each other"):
        call(*asked, "--yes", "--dry-run")
    tomorrow, today = (store.now() + timedelta(days=1)).date(), store.now().date()
    monkeypatch.setenv("MIGRATOR_SCHEDULER__RETENTION_FROM", tomorrow.isoformat())
    with pytest.raises(UsageError, match="nothing was removed"):
        call(*asked)
    assert call(*asked, "--dry-run")[1].splitlines()[-1] == "would remove 3 runs in total"
    monkeypatch.setenv("MIGRATOR_SCHEDULER__RETENTION_FROM", today.isoformat())
    assert call(*asked, "--dry-run")[1].splitlines()[-1] == "would remove 3 runs in total"
    assert call(*asked)[1].splitlines()[-1] == "removed 3 runs in total"
    monkeypatch.delenv("MIGRATOR_SCHEDULER__RETENTION_FROM")
    assert call(*asked) == (0, "a: would remove 0 runs of 0 schedules\nwould remove 0 runs in total\n")
    old_runs(store, "b", 3)
    with pytest.raises(UsageError) as refused:  # the remedy that it names is followed as it is written
        call(*asked)
    assert call(*asked, "--yes" if "add --yes" in str(refused.value) else "")[1].endswith("removed 1 runs in total\n")


def test_retention_keeps_what_the_configuration_says(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    old_runs(store, "a", 5)  # 40 to 44 days old
    monkeypatch.setenv("MIGRATOR_SCHEDULER__RETENTION_KEEP", "1")
    monkeypatch.setenv("MIGRATOR_SCHEDULER__RETENTION_AGE", "42d")

    def removed(*arguments: str) -> str:
        return call("scheduler", "retention", "--dry-run", *arguments)[1].splitlines()[-1]

    assert removed() == "would remove 3 runs in total"  # 42 days and older
    assert removed("--age", "0s") == "would remove 4 runs in total"
    assert removed("--keep", "4") == "would remove 1 runs in total"
    monkeypatch.delenv("MIGRATOR_SCHEDULER__RETENTION_KEEP")
    assert removed() == "would remove 0 runs in total"


def test_retention_archives_what_it_removes(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old_runs(store, "a", 5)
    asked = ["scheduler", "retention", "--keep", "2"]
    with pytest.raises(UsageError, match="none is not a folder"):
        call(*asked, "--archive", str(tmp_path / "none"), "--dry-run")
    assert call(*asked, "--archive", str(tmp_path), "--dry-run")[0] == 0
    assert [*tmp_path.iterdir()] == []
    removed = json.loads(call(*asked, "--archive", str(tmp_path), "--yes", "--json")[1])
    (file,) = tmp_path.iterdir()
    assert removed[0]["archives"] == [{"path": str(file), "runs": 3, "logs": 0}]
    assert len([*read_archive(file)]) == 3
    monkeypatch.setenv("MIGRATOR_SCHEDULER__RETENTION_ARCHIVE", str(tmp_path))
    assert call(*asked[:2], "--keep", "1", "--yes")[1].endswith("removed 1 runs in total\n")
    assert len([*tmp_path.iterdir()]) == 2


def test_no_line_of_a_log_is_added_to_a_run_while_it_is_archived(
    store: PostgresStore, scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old_runs(store, "a", 1)
    key_share = "SELECT 1 FROM scheduler.runs FOR KEY SHARE NOWAIT"  # what an insert of a line asks for
    refused: list[psycopg.Error] = []

    def asks(_handle: int) -> None:
        with psycopg.connect(scheduler_dsn) as connection, pytest.raises(psycopg.errors.LockNotAvailable) as raised:
            connection.execute(key_share)
        refused.append(raised.value)

    monkeypatch.setattr(os, "fsync", asks)
    rule = retention.RetentionRule(keep=0)
    assert retention.apply(store, "a", rule, archive=tmp_path).total == 1
    assert refused


def test_killed_between_the_archive_and_the_removal(store: PostgresStore, scheduler_dsn: str, tmp_path: Path) -> None:
    """The rows are there, and so is the file; the next call writes another one."""
    old_runs(store, "a", 3)
    environment = {
        "MIGRATOR_POSTGRES__DSN": scheduler_dsn,
        "MIGRATOR_PERSISTENCE__SCHEDULER": "postgres",
        "MIGRATOR_FAULT_POINTS": "listener:passed",
        "PYTHONPATH": str(FOLDER),
        "KILL_AT": "retention_archived",
        "KILL_COUNT": "1",
        "KILL_TALLY": str(tmp_path / "tally"),
    }
    folder = tmp_path / "archive"
    folder.mkdir()
    asked = ["scheduler", "retention", "--keep", "0", "--yes", "--archive", str(folder)]
    status, said, _ = run_process(*asked, environment=environment)
    assert (status, said) == (-signal.SIGKILL, "")
    with store.session("a") as session:
        runs = session.runs.list(RunQuery(descending=False)).runs
    assert len(runs) == 3
    assert call(*asked)[1].endswith("removed 3 runs in total\n")
    files = sorted(folder.iterdir())
    assert [[one.run for one in read_archive(file)] for file in files] == [[*runs], [*runs]]


@pytest.mark.proves("0-T2.12.5", "3-O2")
def test_metrics_are_text_and_end_otherwise_past_a_threshold(store: PostgresStore) -> None:
    with store.session("a") as session:
        of = session.schedules.upsert(schedule("a"))
        for _ in range(3):
            session.runs.create(run("a", schedule_id=of.id, created_at=store.now() - timedelta(minutes=1)))
    status, said = call("scheduler", "metrics")
    assert status == 0
    assert 'migrator_runs_ready{tenant="a"} 3' in said
    assert "# TYPE migrator_database_latency_seconds gauge" in said
    assert call("scheduler", "metrics", "--max", "runs_ready=3", "--min", "success_rate_percent=99")[0] == 0
    assert call("scheduler", "metrics", "--max", "runs_ready=2")[0] == 1
    assert call("scheduler", "metrics", "--min", "scheduler_leader=1")[0] == 1
    status, said = call("scheduler", "metrics", "--max", "runs_oldest_wait_seconds=30", "--json", "--tenant", "a")
    found = json.loads(said)
    assert (status, len(found["crossed"])) == (1, 1)
    assert {sample["labels"].get("tenant", "a") for sample in found["samples"]} == {"a"}
    with pytest.raises(UsageError, match="no metric speed"):
        call("scheduler", "metrics", "--max", "speed=1")
