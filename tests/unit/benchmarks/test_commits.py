"""How far the code has moved since figures were measured."""

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.harness import commits
from benchmarks.harness.commits import MEASURED, ROOT, commit, passed


@pytest.mark.parametrize("result", MEASURED)
def test_a_recorded_result_names_its_commit_and_folders_that_exist(result: str) -> None:
    recorded = json.loads((ROOT / "benchmarks" / "results" / f"{result}.json").read_text(encoding="utf-8"))
    assert recorded["commit"]
    assert all((ROOT / folder).is_dir() for folder in MEASURED[result])


@pytest.mark.parametrize("since", ["", "unknown", "0" * 40, "no such"])
def test_a_commit_that_the_clone_does_not_have_is_unknown(since: str) -> None:
    assert passed(since, "scheduler") == "unknown"


def test_no_commit_has_passed_since_this_one() -> None:
    here = commit().removesuffix("-dirty")
    assert passed(here, "tables") == ("unknown" if here == "unknown" else "0")


def test_results_that_were_written_before_do_not_mark_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / commits.RESULTS / "runs.md", tmp_path / "code.py"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("before", encoding="utf-8")
    monkeypatch.setattr(commits, "ROOT", tmp_path)
    as_somebody = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), (*as_somebody, "commit", "-qm", "begin")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    clean = commit()
    assert len(clean) >= 7
    files[0].write_text("after", encoding="utf-8")
    assert commit() == clean
    files[1].write_text("after", encoding="utf-8")
    assert commit() == f"{clean}-dirty"
