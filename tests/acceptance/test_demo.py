"""``migrator demo`` as a user calls it: a process of its own, real servers, a report at the end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.report.areas import AREAS
from migrator.testing.demo import faulty_documents


@pytest.mark.slow
def test_the_demo_moves_everything_sets_the_planted_aside_and_leaves_a_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "migrator", "demo", "--report-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 8, done.stderr[-3000:]
    (folder,) = (one for one in tmp_path.iterdir() if one.is_dir())
    quarantined = [item for item in faulty_documents() if item.outcome == "quarantined"]
    assert f"quarantined {len(quarantined)} documents" in done.stdout
    for item in quarantined:
        assert item.kind in done.stdout
    assert "skipped     20 x expired lock" in done.stdout
    assert "Everything that was copied is equal" in done.stdout
    assert f"report: {folder}/report.html" in done.stdout
    assert "not planned" not in done.stderr
    for title in ("census", "plan", "backfill", "verify"):
        assert f"── {title} " in done.stderr
    for said in ("leads", "resigned as leader"):  # by the schedulers that checks drive
        assert said in (folder / "checks.log").read_text()
        assert said not in done.stderr
    assert {"result.json", "report.html", "report.md", "planted.md"} <= {file.name for file in folder.iterdir()}
    evidence = json.loads((folder / "result.json").read_text())["evidence"]
    ended = {check["id"]: check["outcome"]["status"] for check in evidence["checks"]}
    for asked_for in ("crud.lockstep", "performance.load"):  # random calls on both backends, and the load test
        assert ended.pop(asked_for) == "not-asked-for"
    assert set(ended.values()) == {"passed"}
    assert {name.partition(".")[0] for name in ended} == {*AREAS} - {"sensitivity"}
    listed = (folder / "planted.md").read_text().count("\n| ") - 1
    assert listed == len(faulty_documents())
