"""The pages that are made from the code, byte for byte; ``UPDATE_GOLDEN=1`` writes them anew, to be reviewed."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from migrator import states
from migrator.cli import cli, stored_help
from migrator.records import ALL
from migrator.states import MACHINES, Machine
from tests.golden.docs.api_page import api_page
from tests.golden.docs.fields_page import fields_page
from tests.golden.docs.tables_page import tables_page

DOCS = Path(__file__).resolve().parents[3] / "docs"
WIDTH = 100
NOTICE = "<!-- Made from the code: UPDATE_GOLDEN=1 pytest tests/golden/docs writes this page. -->"

ABOUT = {
    "schedule": "`schedules.status`. Scheduled or paused to pending is a forced run. A completed schedule can be"
    " scheduled\nagain. A failed schedule begins again. Running is a schedule without further slots until its last"
    " run has\nended; it is shown as `queued`, which no row holds, while that run waits for a worker.",
    "run": "`runs.state`. A retry is a new run in state queued, which names the old one in `retry_of`.",
    "graph job": "`graph_jobs.status`, a number; the events in `graph_job_events` have the same numbers.",
    "policy job": "`policy_jobs.status`. Two shapes of document share the table: work items (pending, dispatching,"
    " submitted) and status\ndocuments (queued, running, succeeded). Dispatching to pending is a lost lease.",
}
LISTS = {
    "`schedules.mode`": states.SCHEDULE_MODES,
    "`handlers.handler_type`, `schedules.handler_type`": states.HANDLER_TYPES,
    "`schedules.retry_strategy`": states.RETRY_STRATEGIES,
    "`schedules.on_exhausted`": states.EXHAUSTED_POLICIES,
    "`triggers.kind`": states.TRIGGER_KINDS,
    "`triggers.anchor`": states.TRIGGER_ANCHORS,
    "`triggers.misfire_policy`": states.MISFIRE_POLICIES,
    "`policy_jobs.mode`": states.POLICY_MODES,
    "`policy_jobs.priority`": states.POLICY_PRIORITIES,
    "`workers.kind`": states.WORKER_KINDS,
    "`workers.status`": states.WORKER_STATUSES,
    "`execution_logs.level`": states.LOG_LEVELS,
}

SETS = {
    "schedules whose triggers fire (if enabled and not deleted)": states.SCHEDULE_FIRING,
    "runs that no worker has begun": states.RUN_WAITING,
    "runs that count as live when their schedule fires again": states.RUN_OPEN,
    "runs that did not do their work": states.RUN_FAILED,
    "processes that send heartbeats": states.WORKER_LIVE,
    "processes that have ended": states.WORKER_ENDED,
}


def states_page() -> str:
    """Return docs/states.md."""
    lines = [
        NOTICE,
        "# States",
        "",
        "Four state machines, and the closed lists of values. The CHECK constraints of the schema and this page are",
        "made from `migrator/states.py`. No state can become itself. A state that can become no other is final.",
        "",
        "The copy accepts a document in any of its states, and changes none. A word that is neither a state nor an",
        "alias of one [quarantines](glossary.md#quarantine) the document (`unknown-value`). Everything that writes",
        "afterwards must keep to these transitions.",
    ]
    for name, machine in MACHINES.items():
        lines += ["", f"## {name.capitalize()}", "", ABOUT[name], "", *_graph(machine), "", *_table(name, machine)]
    lines += ["", "## Closed lists", "", "| column | words |", "|---|---|"]
    lines += [f"| {column} | {_words(words)} |" for column, words in LISTS.items()]
    lines += ["", "## Sets of states", "", "| set | states |", "|---|---|"]
    lines += [f"| {what} | {_words(words)} |" for what, words in SETS.items()]
    lines += [
        "",
        "## Open lists and numbers",
        "",
        "`runs.cause` is open text. Another word than these is loaded as it is, and counted:",
        _words(states.RUN_CAUSES) + ".",
        "",
        "`graph_jobs.type` is a number: " + _codes(states.GRAPH_JOB_TYPES) + ".",
        "",
        "Words for `schedules.priority`: " + _codes(states.PRIORITY_WORDS) + ".",
    ]
    return "\n".join(lines) + "\n"


def _graph(machine: Machine) -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    for state in machine:
        for follower in machine:  # in the order of a life, not of a set
            if follower in machine[state]:
                yield f"    {state} --> {follower}"
        if not machine[state]:
            yield f"    {state} --> [*]"
    yield "```"


def _table(name: str, machine: Machine) -> Iterator[str]:
    coded = name == "graph job"
    yield "| state | may become |" if not coded else "| state | number | may become |"
    yield "|---|---|" if not coded else "|---|--:|---|"
    for state in machine:
        followers = _words(one for one in machine if one in machine[state]) or "final"
        number = f" {states.GRAPH_JOB_CODES[state]} |" if coded else ""
        yield f"| `{state}` |{number} {followers} |"


def _words(words: object) -> str:
    assert hasattr(words, "__iter__")
    return ", ".join(f"`{word}`" for word in words)


def _codes(codes: object) -> str:
    assert hasattr(codes, "items")
    return ", ".join(f"{number} `{word}`" for word, number in codes.items())


def cli_page() -> str:
    """Return docs/cli.md."""
    lines = [
        NOTICE,
        "# Command line",
        "",
        "What every command says of itself with `--help`. Results go to standard output, progress and logs to standard",
        "error; `--json` makes the result one JSON document. What the [exit status](exit-status.md) means.",
    ]
    for words, text in _helps(cli, ("migrator",), None):
        level = "#" * min(len(words) + 1, 4)
        lines += ["", f"{level} {' '.join(words)}", "", "```text", text, "```"]
    return "\n".join(lines) + "\n"


def _helps(
    command: click.Command, words: tuple[str, ...], parent: click.Context | None
) -> Iterator[tuple[tuple[str, ...], str]]:
    context = click.Context(
        command,
        info_name=words[-1],
        parent=parent,
        terminal_width=WIDTH,
        **({} if parent else command.context_settings),
    )
    context.max_content_width = WIDTH
    yield words, re.sub(r" +$", "", command.get_help(context), flags=re.MULTILINE)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _helps(inner, (*words, name), context)


PAGES: dict[str, Callable[[], str]] = {
    "states.md": states_page,
    "cli.md": cli_page,
    "api.md": lambda: api_page(NOTICE),
    "tables.md": lambda: tables_page(NOTICE),
    "fields.md": lambda: fields_page(NOTICE),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    page = DOCS / name
    text = PAGES[name]()
    if os.environ.get("UPDATE_GOLDEN"):
        page.write_text(text)
    assert page.read_text() == text, f"docs/{name} is not current; UPDATE_GOLDEN=1 writes it anew"


def _every_command() -> Iterator[tuple[click.Context, tuple[str, ...]]]:
    """Yield the context of each command, with its words; the first is the program's."""
    settings = {**cli.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    left: list[tuple[click.Context, tuple[str, ...]]] = [(click.Context(cli, info_name="migrator", **settings), ())]
    while left:
        context, words = left.pop()
        yield context, words
        if isinstance(context.command, click.Group):
            for name in context.command.list_commands(context):
                inner = context.command.get_command(context, name)
                assert inner is not None
                left.append((click.Context(inner, info_name=name, parent=context), (*words, name)))


def test_the_stored_help_is_what_the_commands_say() -> None:
    commands = sorted(_every_command(), key=lambda one: one[1])
    texts = {" ".join(words): stored_help.recorded(context.command, context) for context, words in commands if words}
    lines = [f"{json.dumps(words)}: {json.dumps(calls, ensure_ascii=False)}" for words, calls in texts.items()]
    stored = "{\n" + ",\n".join(lines) + "\n}\n"
    if os.environ.get("UPDATE_GOLDEN"):
        stored_help.PATH.write_text(stored, encoding="utf-8")
    assert stored_help.PATH.read_text(encoding="utf-8") == stored, "UPDATE_GOLDEN=1 writes migrator/cli/help.json anew"
    root = commands[0][0]
    for context, words in commands[1:]:
        printed = stored_help.help_text(root, [*words, "--help"])
        assert printed == context.command.get_help(context).rstrip("\n"), words
    assert stored_help.help_text(root, ["verify", "--no-such", "--help"]) is None
    assert stored_help.help_text(root, ["--help"]) is None
    assert stored_help.help_text(root, ["verify"]) is None


def test_every_closed_list_is_on_the_page() -> None:
    page = states_page()
    listed = {name for name, value in vars(states).items() if name.isupper() and isinstance(value, tuple)}
    assert len(listed) == len(LISTS) + len(SETS) + 1, "one more for the open list of causes"
    for name in listed:
        for word in getattr(states, name):
            assert f"`{word}`" in page, name


def test_no_sentence_of_the_command_line_is_cut_off() -> None:
    assert [line for line in cli_page().splitlines() if re.search(r"\w\.\.\.$", line)] == []


def test_every_named_column_exists() -> None:
    tables = {record.table: set(record.__struct_fields__) for record in ALL}
    named = re.findall(r"`([a-z_]+)\.([a-z_]+)`", states_page())
    assert len(named) > len(LISTS)
    assert [f"{table}.{column}" for table, column in named if column not in tables[table]] == []
