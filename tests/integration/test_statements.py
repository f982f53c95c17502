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
import pytest

import migrator
from migrator.connections.postgres import pin_settings
from migrator.testing.mutations import MUTATIONS
from migrator.testing.mutations.mutation import Sql

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


KEYS = r"(?:id|schedule_id|trigger_id|run_id|retry_of|worker_id|job_id)"
"""Columns that name a row of the schema scheduler, of which the tenant is the other half."""
BY_KEY = re.compile(
    rf"(?<![\w.])(?:\w+\.)?{KEYS}\)?\s*(?:=|<>|IN\b|IS NOT DISTINCT)|(?:=|<>|IN)\s*(?:ANY\s*)?\(?(?:\w+\.)?{KEYS}\b"
)
PART = re.compile(r"\s*(--[^\n]*\n\s*)*(EXISTS\s*)?(SELECT|WITH|INSERT|UPDATE|DELETE|MERGE)\b")
IS_SQL = re.compile(r"\b(SELECT|UPDATE|DELETE FROM|WHERE|JOIN)\s")
WITHOUT_TENANT = {
    "WHERE id = ANY({}::{}[])": "all rows with these ids: the caller finds each by id and tenant",
    "EXISTS (SELECT FROM scheduler.? AS g WHERE g.id = ?.?": "the caller appends the tenant, for both cases",
    "UPDATE scheduler.runs SET lease_expires_at = least(lease_expires_at, $1), updated_at = $1 WHERE state ="
    " 'running' AND worker_id = ANY($2::text[])": "a process of the tenant * executes runs of every tenant",
}
"""Parts of statements that find rows by half of their key → why that is right."""
FINDING_ROWS = ("store", "cutover", "scheduler", "pipeline", "parity", "verify.semantics")
"""The packages whose statements find rows of the scheduler."""


def text_of(node: ast.expr, names: dict[str, object]) -> str:
    """Return a string as far as it is known in its source; ``?`` stands for what is known only when it is executed."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            text_of(part.value if isinstance(part, ast.FormattedValue) else part, names) for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return text_of(node.left, names) + text_of(node.right, names)
    value = names.get(node.id) if isinstance(node, ast.Name) else None
    return value if isinstance(value, str) else "?"


def parts(text: str) -> Iterator[str]:
    """Yield a statement and each query inside it, every one without the queries inside that."""
    levels = [""]
    for character in text:
        if character == "(":
            levels.append("")
        elif character == ")" and len(levels) > 1:
            inside = levels.pop()
            if PART.match(inside):
                yield inside
                levels[-1] += "()"
            else:
                levels[-1] += f"({inside})"
        else:
            levels[-1] += character
    yield "(".join(levels)


def by_half_a_key(text: str) -> list[str]:
    """Return the parts of a statement that compare an id, and no tenant."""
    return [
        plain
        for part in parts(text)
        if BY_KEY.search(part) and "tenant" not in part and "migration." not in part
        for plain in (" ".join(part.split()),)
        if plain not in WITHOUT_TENANT
    ]


def texts(package: str) -> Iterator[tuple[str, str]]:
    """Yield place and text of each string in a package that holds SQL, also of parts of statements."""
    for name in modules():
        if name.startswith(f"migrator.{package}."):
            module = importlib.import_module(name)
            tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
            for node in every_string(tree):
                text = text_of(node, vars(module))
                if IS_SQL.search(text):
                    yield f"{name}:{node.lineno}", text


def every_string(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) or (
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
        ):
            yield node
        else:
            yield from every_string(node)


@pytest.mark.proves("6-N5")
@pytest.mark.parametrize("package", FINDING_ROWS)
def test_every_statement_finds_rows_by_id_and_tenant(package: str) -> None:
    wrong = [f"{place}: {part}" for place, text in texts(package) for part in by_half_a_key(text)]
    assert not wrong, "\n".join(wrong)


def test_every_exception_is_one_of_a_statement() -> None:
    every = [" ".join(part.split()) for package in FINDING_ROWS for _, text in texts(package) for part in parts(text)]
    assert [part for part in WITHOUT_TENANT if part not in every] == []


@pytest.mark.parametrize(
    "planted",
    [
        "UPDATE scheduler.workers SET status = 'dead' FROM silent WHERE id = silent_id RETURNING id",
        "UPDATE scheduler.locks SET fence = fence + 1 FROM found WHERE id = found_id AND key = %s",
        "SELECT id::text FROM scheduler.triggers WHERE schedule_id = ANY(%s::uuid[])",
        "WHERE run_id = %s ORDER BY logged_at",
        "SELECT 1 FROM scheduler.runs AS r JOIN scheduler.schedules AS s ON s.id = r.schedule_id",
        "SELECT tenant_id FROM (SELECT * FROM scheduler.runs WHERE retry_of = %s) AS retries WHERE tenant_id = %s",
        "DELETE FROM scheduler.runs WHERE schedule_id IN (SELECT id FROM scheduler.schedules WHERE tenant_id = %s)",
    ],
)
def test_a_statement_that_finds_rows_by_their_id_alone_is_seen(planted: str) -> None:
    assert by_half_a_key(planted)
