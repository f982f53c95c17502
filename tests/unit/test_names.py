"""Every command, option and key of the configuration that a page, a docstring, a comment or a message names exists."""

import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import msgspec
import pytest

from migrator.cli import cli
from migrator.config import Settings
from migrator.records import ALL
from migrator.verify.registry import EVERY_CHECK

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
CODE = sorted((ROOT / "migrator").rglob("*.py")) + sorted((ROOT / "migrator" / "report" / "templates").glob("*.j2"))
TEXTS = [*PAGES, *CODE, ROOT / "config.example.toml"]

PROSE = {
    "is",
    "was",
    "has",
    "import",
    "evidence",
    "finds",
    "itself",
    "and",
    "or",
    "of",
    "from",
    "dispatcher",
    "lock",
    "wake-ups",
}
"""Words after the name of the tool that are no command: of a sentence, and of the names of sessions."""
SECTIONS = {one.name: one.type for one in msgspec.structs.fields(Settings)}
FILES = {"py", "md", "toml", "html", "json", "sql", "tsv", "xml", "jsonl", "lock", "svg"}


@cache
def groups() -> dict[str, click.Command]:
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def shown_commands(text: str) -> Iterator[str]:
    """Yield what follows the name of the tool, as far as it may be words of a command."""
    text = re.sub(r"migrator run (?:sha256|\{digest)", "", text)  # a line of what is signed
    text = re.sub(r"\\\n\s*", " ", text)  # a command on several lines
    text = re.sub(r"[\"']\s*\n\s*f?[\"']", "", text)  # a string in several parts
    text = re.sub(r"(?<=\w-)\n\s*(?=\w)", "", text)
    text = re.sub(r"(?<=\w)\n\s*(?=[\w-])", " ", text)  # a sentence on several lines
    for found in re.finditer(r"(?<![\w./-])migrator ((?:--)?[a-z][\w-]*(?: (?:\[?--[a-z][\w-]*|[a-z][\w-]*))*)", text):
        yield found[1]


def fault(words: list[str]) -> str:
    """Return the parts of a command that do not exist; empty if all of them do, or if it is prose."""
    if words[0] in PROSE or words[0].startswith("--"):
        return ""
    command: click.Command | None = groups().get(words[0])
    if command is None:
        return words[0]
    rest = words[1:]
    while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]):
        inner = command.get_command(click.Context(command), rest[0])
        if inner is None:
            return "" if command.invoke_without_command or rest[0] in PROSE else f"{words[0]} {rest[0]}"
        command, rest = inner, rest[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    for word in rest:
        if word.lstrip("[").startswith("--") and word.lstrip("[") not in known:
            return f"{' '.join(words[:2])} {word}"
        if not word.lstrip("[").startswith("--"):
            break  # a value, or the sentence goes on
    return ""


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_a_text_names_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [wrong for shown in shown_commands(text) if (wrong := fault(shown.split()))] == []


@cache
def other_names() -> frozenset[str]:
    """Return the other names with a section's name and a dot: tables, functions of the schema, checks."""
    schema = (ROOT / "tests" / "golden" / "schema.sql").read_text(encoding="utf-8")
    functions = re.findall(r"FUNCTION (scheduler\.\w+)", schema)
    return frozenset({f"scheduler.{record.table}" for record in ALL} | {*functions} | {spec.id for spec in EVERY_CHECK})


def is_known(section: str, key: str) -> bool:
    if key in {field.name for field in msgspec.structs.fields(SECTIONS[section])}:
        return True
    if key in FILES or f"{section}.{key}" in other_names():
        return True
    return any(
        importlib.util.find_spec(f"{package}.{section}.{key}") is not None
        for package in ("migrator", "migrator.cli", "migrator.verify", "migrator.verify.checks", "migrator.report")
        if importlib.util.find_spec(f"{package}.{section}") is not None
        and getattr(importlib.util.find_spec(f"{package}.{section}"), "submodule_search_locations", None)
    )


@pytest.mark.parametrize("page", [*PAGES, ROOT / "config.example.toml"], ids=lambda path: path.name)
def test_every_key_of_the_configuration_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(rf"`({'|'.join(SECTIONS)})\.([a-z_]+)`", page.read_text(encoding="utf-8"))
    assert [f"{section}.{key}" for section, key in named if not is_known(section, key)] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("call migrator run", "run"),
        ("call migrator cutover compare-all", "cutover compare-all"),
        ("`migrator parity --mend`", "parity --mend --mend"),
        ('"call migrator"\n    " cutover aborted"', "cutover aborted"),
        ("migrator parity --repair apply, which repairs", ""),
        ("migrator tail", ""),
        ("the copies of migrator itself", ""),
    ],
)
def test_a_command_that_does_not_exist_is_seen(text: str, wrong: str) -> None:
    assert [found for shown in shown_commands(text) if (found := fault(shown.split()))] == ([wrong] if wrong else [])
