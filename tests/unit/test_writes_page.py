"""docs/writes.md: every command has its row, and what is said to write nothing is held to it by a test."""

import re
from pathlib import Path

import click

from migrator.cli import cli
from tests.integration.test_reading_commands import COMMANDS, RECORDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "writes.md"
NOTHING = "\N{EN DASH}"
WITHOUT_A_TARGET = {"config", "report", "servers", "source", "demo"}
"""Commands that know no target, or only one of their own."""


def rows() -> dict[str, list[str]]:
    """Return command → its cells."""
    lines = re.findall(r"^\| `(.+?)` \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {command: cells.split(" | ") for command, cells in lines}


def names(command: click.Command, context: click.Context, before: str = "") -> set[str]:
    if not isinstance(command, click.Group):
        return {before}
    found = {before} if before and command.invoke_without_command else set()
    for name in command.list_commands(context):
        one = command.get_command(context, name)
        assert one is not None
        found |= names(one, context, f"{before} {name}".strip())
    return found


def test_every_command_has_a_row() -> None:
    named = {command.partition(" --")[0] for command in rows()}
    assert named == names(cli, click.Context(cli))
    assert all(len(cells) == 5 for cells in rows().values())


def test_what_writes_nothing_into_either_database_is_held_to_that() -> None:
    tested = {key.partition(" --")[0]: key for key in COMMANDS if key not in RECORDS}
    reading = {
        command.partition(" --")[0]
        for command, cells in rows().items()
        if set(cells[:4]) == {NOTHING} and command.split()[0] not in WITHOUT_A_TARGET
    }
    assert {one for one in reading if not any(key.startswith(one) for key in tested)} == {"cutover report"}


def test_only_scratch_databases_that_are_allowed_are_made_on_the_source_s_server() -> None:
    found = rows()
    assert found["verify"][:2] == [NOTHING, NOTHING]
    assert NOTHING not in found["verify --scratch-on-source"][:2]
