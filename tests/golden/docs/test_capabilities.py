"""docs/capabilities.md: which test shows which capability to work; ``UPDATE_GOLDEN=1`` writes it anew.

``capabilities.tsv`` holds the rows that were asked for: id, capability, owner (I: the toolkit does it; V: shown through
the facade, an adapter or a fake; R: only recorded). A row marked I or V must have a test that carries its id in
``pytest.mark.proves``, or stand in ``to_come.tsv`` with what is missing.
"""

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1]
PAGE = TESTS.parent / "docs" / "capabilities.md"
SHOWN = 4
"""Tests named per row; the others are counted."""

HEAD = """\
<!-- Made from the tests: UPDATE_GOLDEN=1 pytest tests/golden/docs writes this page. -->
# Capabilities, and the tests that show them

Every row that the source documents ask for. **I**: the toolkit does it. **V**: shown through the scheduler's facade, an
adapter or a fake, because the servers, pages and brokers are the application's. **R**: recorded in the report only.
`make test ARGS="-k name"` runs a test by its name.
"""


class Row(NamedTuple):
    """A capability that was asked for."""

    id: str
    capability: str
    own: str


def expand(text: str) -> frozenset[str]:
    """Return the single ids that an id stands for: ``1-S1..S8``, ``3-B5/6``, ``0-O1/T2.1.1``, ``0-T2.12.2/4``."""
    system, _, rest = text.partition("-")
    ids: set[str] = set()
    before = ""
    for part in rest.split("/"):
        if part.isdigit():  # the number alone: the last one of what stands before it
            part = re.sub(r"\d+$", part, before)  # noqa: PLW2901 - spelled out
        before = part
        if found := re.fullmatch(r"(.*?)(\d+)\.\.\D*(\d+)", part):
            stem, first, last = found[1], int(found[2]), int(found[3])
            ids |= {f"{system}-{stem}{number}" for number in range(first, last + 1)}
        else:
            ids.add(f"{system}-{part}")
    return frozenset(ids)


@cache
def sections() -> dict[str, list[Row]]:
    """Return the rows by source document."""
    found: dict[str, list[Row]] = {}
    for line in (HERE / "capabilities.tsv").read_text(encoding="utf-8").splitlines():
        first, *others = line.split("\t")
        if first == "#":
            rows = found.setdefault(others[0], [])
        else:
            rows.append(Row(first, others[0], others[1]))
    return found


@cache
def to_come() -> dict[str, str]:
    """Return what is missing, by row."""
    lines = (HERE / "to_come.tsv").read_text(encoding="utf-8").splitlines()
    return {row: missing for row, _, missing in (line.partition("\t") for line in lines)}


def marks() -> Iterator[tuple[str, str]]:
    """Yield every id in a ``proves`` mark, with the test that carries it; the sources are read, nothing is run."""
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tables = {
            target.id: statement.value
            for statement in tree.body
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
            for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
            if isinstance(target, ast.Name)
        }
        name = path.relative_to(TESTS.parent).as_posix()
        for statement in tree.body:
            place = f"{name}::{statement.name}" if isinstance(statement, ast.FunctionDef | ast.ClassDef) else name
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "proves":
                    for argument in node.args:
                        yield from ((text, place) for text in _texts(argument, tables))


def _texts(node: ast.expr, tables: dict[str, ast.expr]) -> Iterator[str]:
    """Yield the texts of an argument: itself, or all values of the tables of the module that it is looked up in."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value
        elif isinstance(each, ast.Name) and each.id in tables:
            table = tables[each.id]
            values = table.values if isinstance(table, ast.Dict) else [table]
            for value in values:
                yield from _texts(value, {})


@cache
def proofs() -> dict[str, tuple[str, ...]]:
    """Return the tests of every row, and check that every id named by a test is one of a row."""
    owners = {single: row.id for rows in sections().values() for row in rows for single in expand(row.id)}
    found: dict[str, set[str]] = {}
    unknown = []
    for text, place in marks():
        for single in expand(text):
            if single in owners:
                found.setdefault(owners[single], set()).add(place)
            else:
                unknown.append(f"{place} proves {text}")
    assert not unknown, "ids of no row: " + "; ".join(unknown)
    return {row: tuple(sorted(places)) for row, places in found.items()}


def page() -> str:
    """Return docs/capabilities.md."""
    every = [row for rows in sections().values() for row in rows]
    asked = [row for row in every if row.own != "R"]
    shown = [row for row in asked if row.id in proofs()]
    waiting = [row for row in asked if row.id in to_come()]
    lines = [HEAD]
    lines.append(
        f"{len(every)} rows; {len(shown)} of the {len(asked)} marked I or V have tests, {len(waiting)} are to come."
    )
    if waiting:
        lines += ["", "## Still to come", "", "| id | capability | what is missing |", "|---|---|---|"]
        lines += [f"| {row.id} | {row.capability} | {to_come()[row.id]} |" for row in waiting]
    for title, rows in sections().items():
        lines += ["", f"## {title}", "", "| id | capability | own | shown by |", "|---|---|---|---|"]
        lines += [f"| {row.id} | {row.capability} | {row.own} | {_shown_by(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _shown_by(row: Row) -> str:
    places = proofs().get(row.id, ())
    if not places:
        return "to come" if row.id in to_come() else "recorded"
    named = ", ".join(f"`{place.removeprefix('tests/')}`" for place in places[:SHOWN])
    return named if len(places) <= SHOWN else f"{named} and {len(places) - SHOWN} more"


def test_every_capability_has_a_test_or_is_listed_as_to_come() -> None:
    missing = [
        f"{row.id} {row.capability}"
        for rows in sections().values()
        for row in rows
        if row.own != "R" and row.id not in proofs() and row.id not in to_come()
    ]
    assert not missing, "neither shown by a test nor listed as to come:\n" + "\n".join(missing)


def test_nothing_that_is_shown_is_listed_as_to_come() -> None:
    known = {row.id for rows in sections().values() for row in rows if row.own != "R"}
    assert set(to_come()) <= known
    assert not set(to_come()) & set(proofs())


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("1-S1..S8", {f"1-S{number}" for number in range(1, 9)}),
        ("3-A1..12", {f"3-A{number}" for number in range(1, 13)}),
        ("1-R5/6", {"1-R5", "1-R6"}),
        ("0-O1/T2.1.1", {"0-O1", "0-T2.1.1"}),
        ("0-T2.12.2/4", {"0-T2.12.2", "0-T2.12.4"}),
        ("2-F3b", {"2-F3b"}),
    ],
)
def test_an_id_stands_for(text: str, ids: set[str]) -> None:
    assert expand(text) == ids


def test_the_page_is_what_the_tests_say() -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), "docs/capabilities.md is not current; UPDATE_GOLDEN=1 writes it"
