"""``migrator demo`` as a user calls it: a process of its own, real servers, a report at the end."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.cli.demo import AreaLines
from migrator.report.areas import AREAS
from migrator.testing.demo import faulty_documents

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "demo.txt"


@pytest.mark.slow
@pytest.mark.proves("6-U2")
def test_the_demo_moves_everything_sets_the_planted_aside_and_leaves_a_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "migrator", "demo", "--no-progress", "--report-dir", str(tmp_path)]
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
    assert "──" not in done.stderr  # details are for --verbose
    assert_is_one_screen(done.stdout, done.stderr, folder)
    for said in ("leads", "resigned as leader"):  # by the schedulers that checks drive
        assert said in (folder / "checks.log").read_text()
        assert said not in done.stderr
    assert {"result.json", "report.html", "report.md", "planted.md"} <= {file.name for file in folder.iterdir()}
    evidence = json.loads((folder / "result.json").read_text())["evidence"]
    ended = {check["id"]: check["outcome"]["status"] for check in evidence["checks"]}
    for asked_for in ("crud.lockstep", "performance.load"):  # random calls on both backends, and the load test
        assert ended.pop(asked_for) == "not-asked-for"
    of_a_library = {name for name in ended if name.startswith("library.")}
    assert {ended.pop(name) for name in of_a_library} == {"not-applicable"}
    assert set(ended.values()) == {"passed"}
    assert {name.partition(".")[0] for name in ended} == {*AREAS} - {"library", "sensitivity"}
    listed = (folder / "planted.md").read_text().count("\n| ") - 1
    assert listed == len(faulty_documents())


def assert_is_one_screen(out: str, said: str, folder: Path) -> None:
    """Compare the screen with the golden one: numbers that vary are left out, and the folder is called FOLDER."""
    screen = f"{said}---\n{out}".replace(str(folder), "FOLDER")
    screen = re.sub(r"\d+\.\d+ s$", "SECONDS", screen, flags=re.MULTILINE)
    screen = re.sub(r"127\.0\.0\.1:\d+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{24,64}|\b\d{19}\b", "VARIES", screen)
    screen = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", screen)
    screen = re.sub(r"^ +\d+ measurements? (?:is|are) above the stated ceiling\.\n", "", screen, flags=re.MULTILINE)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(screen, encoding="utf-8")
    assert screen == GOLDEN.read_text(encoding="utf-8"), "UPDATE_GOLDEN=1 writes it anew"
    assert len(screen.splitlines()) <= 70


def test_a_check_that_did_not_pass_is_a_line_of_its_own() -> None:
    said: list[str] = []
    areas = AreaLines(said.append)
    for number, (name, words) in enumerate(
        (
            ("crud.one", "passed (3 ms; 3 ms in total)"),
            ("crud.two", "not asked for (0 ms; 3 ms in total)"),
            ("crud.three", "failed (3 ms; 6 ms in total)"),
            ("library.one", "not applicable (0 ms; 6 ms in total)"),
            ("locking.one", "passed (3 ms; 9 ms in total)"),
        ),
        1,
    ):
        areas(f"verify: {number}/5 {name}: {words}")
    areas.end()
    assert said == [
        "demo: verify: 3/5 crud.three: failed (3 ms; 6 ms in total)",
        "demo: verify: crud: 1 of 2 checks passed",
        "demo: verify: locking: 1 of 1 checks passed",
    ]
