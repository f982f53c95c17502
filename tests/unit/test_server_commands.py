"""docs/server-commands.md against the code: each command, stage and operator of the one is in the other."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "server-commands.md"
LEFT_OUT = {"testing", "probes", "values", "cli", "report", "targets", "javascript.py"}
"""What sends nothing to a source: servers of tests, libraries, BSON that is a remainder, JSON of JavaScript."""
OF_THE_DRIVER = {
    "abort_transaction": "abortTransaction",
    "aggregate": "aggregate",
    "aggregate_raw_batches": "aggregate",
    "bulk_write": "update",
    "commit_transaction": "commitTransaction",
    "count_documents": "aggregate",
    "create_index": "createIndexes",
    "create_indexes": "createIndexes",
    "delete_many": "delete",
    "delete_one": "delete",
    "distinct": "distinct",
    "drop_collection": "drop",
    "estimated_document_count": "count",
    "find_one_and_update": "findAndModify",
    "find_raw_batches": "find",
    "index_information": "listIndexes",
    "insert_many": "insert",
    "insert_one": "insert",
    "list_collection_names": "listCollections",
    "list_collections": "listCollections",
    "list_database_names": "listDatabases",
    "list_indexes": "listIndexes",
    "rename": "renameCollection",
    "replace_one": "update",
    "start_transaction": "commitTransaction",
    "update_many": "update",
    "update_one": "update",
    "watch": "aggregate",
    "with_transaction": "abortTransaction",
}
"""Method of the driver → the command that it sends."""
BY_NAME = {"setUserWriteBlockMode", "create", "createIndexes", "drop", "serverStatus"}
"""Commands whose name the code holds in a constant, or as the first key of a document."""


@cache
def nodes() -> tuple[ast.AST, ...]:
    files = (path for path in sorted((ROOT / "migrator").rglob("*.py")) if not LEFT_OUT & set(path.parts))
    return tuple(node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def called() -> Iterator[tuple[str, ast.Call]]:
    for node in nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr, node


def texts(values: object) -> set[str]:
    return {node.value for node in values if isinstance(node, ast.Constant) and isinstance(node.value, str)}  # type: ignore[attr-defined]


def sent() -> set[str]:
    """Return the commands that the code sends."""
    commands = {OF_THE_DRIVER[name] for name, _ in called() if name in OF_THE_DRIVER}
    for name, call in called():
        if name == "command" and call.args:
            first = call.args[0]
            commands |= texts([first]) | (texts(first.keys[:1]) if isinstance(first, ast.Dict) else set())
    return commands | (BY_NAME & texts(nodes()))


def operators() -> set[str]:
    """Return the keys of documents that begin with a dollar sign."""
    keys = {key for node in nodes() if isinstance(node, ast.Dict) for key in texts(node.keys) if key.startswith("$")}
    return keys | ({"$changeStream"} if any(name == "watch" for name, _ in called()) else set())


def of_page(title: str) -> set[str]:
    """Return the code spans in the first column of a section, or in the whole of one without a table."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return set(re.findall(r"`(\$?[A-Za-z]+)`", " ".join(rows) if rows else section))


@pytest.mark.proves("6-U5")
def test_every_command_stands_on_the_page_and_is_sent() -> None:
    assert sent() == of_page("Commands")


@pytest.mark.proves("6-U5")
def test_every_stage_and_operator_stands_on_the_page_and_is_sent() -> None:
    words = {"storageStats", "allUsers", "idleSessions"}
    assert operators() == (of_page("Stages") | of_page("Operators")) - words


def test_the_code_is_read() -> None:
    assert len(sent()) > 20
    assert {"$setWindowFields", "$currentOp"} < operators()
