"""The faults of ``make planted``: each can be planted in the product as it is, and names tests that exist."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAULTS: list[dict[str, Any]] = tomllib.loads((ROOT / "tests" / "planted" / "faults.toml").read_text())["fault"]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["name"])
def test_a_fault_can_be_planted_and_names_its_tests(fault: dict[str, Any]) -> None:
    assert (ROOT / fault["file"]).read_text(encoding="utf-8").count(fault["text"]) == 1
    assert fault["becomes"] != fault["text"]
    assert fault["tests"]
    assert [name for name in fault["tests"] if not (ROOT / name.partition("::")[0]).exists()] == []
