"""The benchmarks still run: a tiny round of everything that needs no environment of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ["floor", "backfill", "rerun", "changed", "parity", "script"]


@pytest.mark.slow
@pytest.mark.parametrize("collection", ["runs", "impact_snapshots"])
def test_every_tool_moves_every_document(collection: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "backfill.py"), "--documents", "250", "--rounds", "1"]
    command += ["--collection", collection, "--only", ",".join(TOOLS)]
    command += ["--work", str(tmp_path / "work"), "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / f"{collection}-250.json").read_text())
    assert [line["name"] for line in result["lines"]] == TOOLS
    assert all(line["trouble"] is None and len(line["runs"]) == 1 for line in result["lines"])
