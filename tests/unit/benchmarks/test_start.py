"""``benchmarks/start.py`` names steps that the commands have, and shows what each took."""

from importlib import import_module

import pytest

from benchmarks.programs.start import GROUPS, STEPS
from benchmarks.start import markdown


@pytest.mark.parametrize(("module", "name", "step"), STEPS)
def test_what_ends_a_step_exists(module: str, name: str, step: str) -> None:
    assert callable(getattr(import_module(module), name)), step


@pytest.mark.parametrize(("command", "group"), GROUPS.items())
def test_the_modules_of_a_command_are_imported_before_its_steps(command: str, group: str) -> None:
    assert hasattr(import_module(group), f"{command}_command")


def test_the_median_of_each_step_is_shown() -> None:
    text = markdown(
        {
            "commit": "c",
            "command": "python benchmarks/start.py",
            "machine": {"cores": 2},
            "documents": 1000,
            "milliseconds": {"backfill": {"imports": [3.0, 1.0, 2.0]}},
        }
    )
    assert "for 1,000 documents" in text
    assert "| imports | 2 (1 to 3) |" in text
