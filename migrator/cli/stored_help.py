"""The help of every command, printed without loading the command: its module would load both drivers.

``help.json`` holds what each command tells click's formatter; ``recorded`` makes it, and a test compares it with the
commands. Lines are broken for the terminal when the help is printed.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

Call: TypeAlias = tuple[str, list[Any]]
"""A method of the formatter, and what it is called with."""

PATH: Final = Path(__file__).with_name("help.json")
_WIDEST: Final = 10_000
"""Characters of a line: nothing is cut off in what is stored."""


class _HelpRecorder(click.HelpFormatter):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__(width=_WIDEST)
        self.calls: list[Call] = []

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:  # noqa: ARG002 - click's signature
        self.calls.append(("write_usage", [args]))

    def write_heading(self, heading: str) -> None:
        self.calls.append(("write_heading", [heading]))

    def write_paragraph(self) -> None:
        self.calls.append(("write_paragraph", []))

    def write_text(self, text: str) -> None:
        self.calls.append(("write_text", [text]))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:  # noqa: ARG002 - as above
        self.calls.append(("write_dl", [[list(row) for row in rows]]))

    def indent(self) -> None:
        self.calls.append(("indent", []))

    def dedent(self) -> None:
        self.calls.append(("dedent", []))


def recorded(command: click.Command, context: click.Context) -> list[Call]:
    """Return the calls that a command makes of the formatter."""
    recorder = _HelpRecorder()
    command.format_help(context, recorder)
    return recorder.calls


def help_text(context: click.Context, arguments: Sequence[str]) -> str | None:
    """Return the help that arguments ask for; None if they are more than names of commands and ``--help``.

    ``context`` is that of the group ``migrator``, which says the name of the program and the width.
    """
    if not arguments or arguments[-1] not in context.help_option_names:
        return None
    calls = json.loads(PATH.read_text(encoding="utf-8")).get(" ".join(arguments[:-1]))
    if calls is None:
        return None
    formatter = context.make_formatter()
    for method, given in calls:
        if method == "write_usage":
            formatter.write_usage(" ".join([context.command_path, *arguments[:-1]]), *given)
        elif method == "write_dl":
            formatter.write_dl([(name, text) for name, text in given[0]])
        else:
            getattr(formatter, method)(*given)
    return formatter.getvalue().rstrip("\n")
