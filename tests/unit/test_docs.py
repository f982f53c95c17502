"""The hand-written pages against the code: no check, reason or failure is missing, and none is made up."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.sources import NAMES
from migrator.verify.areas import every_check
from tests.integration.test_verify import PARITY_FAULTS, SCHEMA_FAULTS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
AREAS = {"Data": ("parity", PARITY_FAULTS), "Schema": ("schema", SCHEMA_FAULTS)}


def section(page: str, title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section {title}"
    return found[1]


def table(text: str) -> Iterator[list[str]]:
    """Yield the rows of the first table, the head first."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    for number, line in enumerate(lines):
        if number != 1:
            yield [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("title", AREAS)
def test_the_matrix_says_yes_exactly_where_a_test_sees_red(title: str) -> None:
    area, faults = AREAS[title]
    head, *rows = table(section("verifiers.md", title))
    checks = [f"{area}.{name.strip('`')}" for name in head[1:]]
    assert set(checks) <= {spec.id for spec in every_check()}
    seen = {row[0]: {check for check, cell in zip(checks, row[1:], strict=True) if cell == "yes"} for row in rows}
    for fault, (_, red) in faults.items():
        assert seen.pop(fault, None) == red, fault
    assert seen.pop("a document that appeared after the copy", None) in (
        None,
        {"parity.documents", "parity.aggregates"},
    )
    assert {fault: red for fault, red in seen.items() if red} == {}, "yes needs a test"


def test_every_mark_of_a_note_has_its_note() -> None:
    text = section("verifiers.md", "Data")
    for mark in set(re.findall(r"(?:no|yes|sometimes)([¹²³⁴⁵⁶⁷⁸⁹])", text)):
        assert re.search(rf"^- {mark} ", text, re.MULTILINE), mark
    assert not re.search(r"sometimes \|", text), "sometimes needs a note"


def test_every_check_is_in_both_pages() -> None:
    report, verifiers = (DOCS / "report.md").read_text(), (DOCS / "verifiers.md").read_text()
    for spec in every_check():
        assert f"\n| `{spec.id}` |" in report, spec.id
        assert f"`{spec.id}`" in verifiers or f"`{spec.id.partition('.')[2]}`" in verifiers, spec.id
    named = set(re.findall(r"`((?:parity|schema)\.[a-z-]+)`", report + verifiers))
    assert named == {spec.id for spec in every_check()}


def reasons() -> set[str]:
    """Return every reason for which the copy sets a document aside, read from the source."""
    files = [ROOT / "migrator" / "sources" / "shapes.py", *(ROOT / "migrator" / "pipeline").glob("*.py")]
    for name in NAMES:
        files += (ROOT / "migrator" / "sources" / name).glob("*.py")
    found = set()
    for path in files:
        tree = ast.parse(path.read_text())
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Rejected", "Loser"):
                first = node.args[0 if ast.unparse(node.func) == "Rejected" else 1]
                if isinstance(first, ast.Constant):
                    found.add(str(first.value))
                elif isinstance(first, ast.Name) and first.id in constants:
                    found.add(str(constants[first.id]))
    return found


def test_every_reason_of_quarantine_is_explained() -> None:
    listed = {reason for row in table(section("quarantine.md", "Reasons")) for reason in re.findall(r"`(.*?)`", row[0])}
    assert {"bad-date", "not-round-trip", "undecodable", "duplicate-id", "duplicate-key", "orphan"} <= reasons()
    assert listed == reasons()
