"""The page about the three systems names every column and every finding."""

import re
from pathlib import Path

import pytest

from migrator.sources.profile import Collection
from tests.other_systems import TABLES as TABLES_WITH_ROWS
from tests.other_systems import shape_of
from tests.table_shapes import columns_of

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "sources-other.md").read_text(encoding="utf-8")
TABLES = [table for table, _ in TABLES_WITH_ROWS]
FILES = [
    *(
        path
        for name in ("orchestrator", "crawler", "support_center")
        for path in (ROOT / f"migrator/sources/{name}").iterdir()
    ),
    ROOT / "migrator/sources/table_columns.py",
]


def section(table: str) -> str:
    """Return the page from where the table's columns are told to the next empty line but one."""
    start = PAGE.index(f"| `{table}` |")
    return PAGE[start : PAGE.index("\n\n", start)]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_is_told_where_it_goes(table: Collection) -> None:
    told = set(re.findall(r"`([a-z_]+)`", section(table.name)))
    assert set(columns_of(shape_of(table))) - told == set()


def test_every_finding_is_told() -> None:
    findings = {
        kind
        for path in FILES
        if path.suffix == ".py"
        for kind in re.findall(r'"((?:[a-z0-9]+-)+[a-z0-9]+)"', path.read_text(encoding="utf-8"))
    } - {"support-center"}
    assert len(findings) > 25
    assert {kind for kind in findings if f"`{kind}`" not in PAGE} == set()
