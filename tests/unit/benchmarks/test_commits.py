"""How far the code has moved since figures were measured."""

import json

import pytest

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
