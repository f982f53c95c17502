"""The benchmarks still run: a tiny round of everything that needs no environment of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cron_lines import DEEP

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ["floor", "backfill", "rerun", "changed", "parity", "python", "script"]
BESIDE = {"runs": {"agendaJobs": 40, "jobs": 40, "agendaJobs-native": 40, "jobs-native": 40}, "impact_snapshots": {}}


@pytest.mark.slow
@pytest.mark.parametrize("collection", ["runs", "impact_snapshots"] if DEEP else ["runs"])
def test_every_tool_moves_every_document(collection: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "backfill.py"), "--documents", "250", "--rounds", "1"]
    command += ["--collection", collection, "--only", ",".join(TOOLS)]
    command += ["--work", str(tmp_path / "work"), "--results", str(tmp_path)]
    beside = BESIDE[collection]
    if beside:
        command += ["--beside", ",".join(f"{name}:{documents}" for name, documents in beside.items())]
        command += ["--growth", "30"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / f"{collection}-250.json").read_text())
    first, *others = result["parts"]
    assert [line["name"] for line in first["lines"]] == TOOLS
    assert all(line["trouble"] is None and len(line["runs"]) == 1 for line in first["lines"])
    measured = {one["collection"]: [line["name"] for line in one["lines"] if line["trouble"] is None] for one in others}
    growth = {"runs": ["backfill", "parity"]} if beside else {}
    assert measured == {name: ["floor", "backfill"] for name in beside} | growth


@pytest.mark.slow
def test_every_operation_of_the_scheduler_is_measured_on_both_backends(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "scheduler.py"), "--triggers", "40", "--instances", "1,2"]
    command += ["--calls", "2", "--drain", "20", "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "scheduler.json").read_text())
    measured = {(line["backend"], line["instances"], line["operation"].partition(",")[0]) for line in result["lines"]}
    operations = {"due poll", "claim", "dispatch", "overhead", "get one schedule", "history", "lock", "stale cleanup"}
    operations.add("list 50 schedules")
    assert measured == {(one, many, name) for one in ("postgres", "mongo") for many in (1, 2) for name in operations}
    assert {line["operation"] for line in result["lines"]} >= {"claim, batch 1", "claim, batch 10", "claim, batch 100"}
    assert all(0 < line["p50"] <= line["p95"] <= line["p99"] for line in result["lines"])
    assert [(one["batch"], one["runs"]) for one in result["throughput"]] == [(10, 20), (100, 20)]
    assert [(one["jobs"], one["complete"]) for one in result["migration"]] == [(40, True)]
    assert result["versions"]["PostgreSQL"]
    assert result["machine"]["cores"]
    text = (tmp_path / "scheduler.md").read_text()
    assert "| 40 | 2 | claim, batch 100 |" in text
    assert "6,000" in text


@pytest.mark.slow
def test_each_stage_of_a_parity_check_is_measured(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "parity.py"), "--documents", "300", "--rounds", "1"]
    command += ["--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "parity.json").read_text())
    assert set(result["processes"]) == {"first load", "nothing changed", "parity check"}
    assert all(set(parts) == {"client", "mongod", "postgres"} for parts in result["stages"].values())
    assert result["stages"]["compare as a worker does"]["client"][0] > 0
    assert "| aggregates of both servers |" in (tmp_path / "parity.md").read_text()
