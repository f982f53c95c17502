"""Every SQL statement of the package is prepared on every PostgreSQL: the server parses and analyses it.

The statements are found in the source: each string that begins with the keyword of one, a new one by itself. Left out:
what ``psycopg.sql`` composes, and f-strings that name a variable of their function; other tests execute those.
"""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psycopg

import migrator
from migrator.connections.postgres import pin_settings
from migrator.verify.sensitivity.matrix import MUTATIONS
from migrator.verify.sensitivity.mutation import Sql

BEGINS = re.compile(r"\s*(--[^\n]*\n\s*)*(SELECT|WITH|INSERT INTO|UPDATE|DELETE FROM|MERGE INTO)\s")
PLACEHOLDER = re.compile(r"%%|%s|%b|%t|%\((\w+)\)[sbt]")
COMPOSED = re.compile(r"\{\w*\}")


def modules() -> Iterator[str]:
    for one in pkgutil.walk_packages(migrator.__path__, "migrator."):
        if not one.name.endswith("__main__"):
            yield one.name


def names(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


def strings(tree: ast.AST, local: frozenset[str] = frozenset()) -> Iterator[ast.expr]:
    """Yield the whole expressions of strings that name no local variable; a part of one is not a statement."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) or (
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
        ):
            if not (names(node, ast.Load) - names(node, ast.Store)) & local:
                yield node
        elif isinstance(node, ast.FunctionDef | ast.Lambda):
            arguments = {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
            yield from strings(node, local | arguments | names(node, ast.Store))
        else:
            yield from strings(node, local)


def statements() -> Iterator[tuple[str, str]]:
    """Yield place and text of each statement."""
    for name in modules():
        module = importlib.import_module(name)
        path = Path(str(module.__file__))
        for node in strings(ast.parse(path.read_text(encoding="utf-8"))):
            try:
                text = eval(compile(ast.Expression(node), str(path), "eval"), vars(module))
            except NameError:
                continue  # the variable of a comprehension
            if isinstance(text, str) and BEGINS.match(text) and not COMPOSED.search(text):
                yield f"{name}:{node.lineno}", text
    for mutation in MUTATIONS:  # composed from a table, a change and a condition
        if isinstance(mutation.apply, Sql):
            yield from ((mutation.name, text) for text in mutation.apply.statements if BEGINS.match(text))


def numbered(text: str) -> str:
    """Return a statement with the server's own placeholders."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        return f"${names.setdefault(match[1] or str(len(names)), len(names) + 1)}"

    return PLACEHOLDER.sub(number, text)


def whole(found: dict[str, str]) -> dict[str, str]:
    """Leave out what is a part of another statement, and is prepared with it."""
    every = "\n;\n".join(found.values())
    return {place: text for place, text in found.items() if every.count(text) == list(found.values()).count(text)}


@cache
def prepared() -> dict[str, str]:
    """Return the statements of the package by their place."""
    return whole(dict(statements()))


def test_statements_are_found() -> None:
    assert len(prepared()) > 250
    assert any(place.startswith("migrator.store.postgres.queue_statements:") for place in prepared())


def test_every_statement_can_be_prepared(any_scheduler_dsn: str) -> None:
    refused = []
    with psycopg.connect(any_scheduler_dsn, autocommit=True) as connection:
        pin_settings(connection)
        connection.execute("CREATE TABLE migration.cutover_probe (filler text)")  # the tool makes it and drops it
        for place, text in prepared().items():
            try:
                connection.execute(b"PREPARE one AS " + numbered(text).encode())
            except psycopg.errors.IndeterminateDatatype:
                continue  # all is known but the type of a parameter, which the driver says
            except psycopg.Error as error:
                refused.append(f"{place}: {error}".strip())
            else:
                connection.execute("DEALLOCATE one")
    assert not refused, "\n".join(refused)
