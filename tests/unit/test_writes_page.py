"""docs/writes.md: every command has its row, and what is said to write nothing is held to it by a test."""

import re
from pathlib import Path

from tests.command_tree import commands
from tests.integration.test_reading_commands import COMMANDS, RECORDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "writes.md"
NOTHING = "\N{EN DASH}"
WITHOUT_A_TARGET = {"assess", "config", "report", "servers", "source", "target", "demo"}
"""Commands that know no target, or only one of their own."""


def rows(place: int = 0) -> dict[str, list[str]]:
    """Return command → its cells, of the first table, or another one."""
    tables = re.split(r"^\|---.*$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    lines = re.findall(r"^\| `(.+?)` \| (.+) \|$", tables[place].partition("\n\n")[0], re.MULTILINE)
    return {command: cells.split(" | ") for command, cells in lines}


def test_every_command_has_a_row() -> None:
    named = {command.partition(" --")[0] for command in rows()}
    assert named == set(commands())
    assert all(len(cells) == 5 for cells in rows().values())


def test_what_writes_nothing_into_either_database_is_held_to_that() -> None:
    tested = {key.partition(" --")[0]: key for key in COMMANDS if key not in RECORDS}
    reading = {
        command.partition(" --")[0]
        for command, cells in rows().items()
        if set(cells[:4]) == {NOTHING} and command.split()[0] not in WITHOUT_A_TARGET
    }
    assert {one for one in reading if not any(key.startswith(one) for key in tested)} == {"cutover report"}


def test_every_command_that_writes_has_a_dry_run_or_a_reason_why_not() -> None:
    writing = {command for command, cells in rows().items() if set(cells) != {NOTHING} and "--" not in command}
    without = {
        name
        for name, command in commands().items()
        if name in writing and "--dry-run" not in {one for option in command.params for one in option.opts}
    }
    assert without == set(rows(1))


def test_only_scratch_databases_that_are_allowed_are_made_on_the_source_s_server() -> None:
    found = rows()
    assert found["verify"][:2] == [NOTHING, NOTHING]
    assert NOTHING not in found["verify --scratch-on-source"][:2]
