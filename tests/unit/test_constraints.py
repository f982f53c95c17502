"""The constraints that store and mappings check are those of the tables, no more and no less."""

import re

import msgspec
import pytest

from migrator import constraints
from migrator.values.copy_format import column_types
from tests.schema_dump import read_tables

CHECKS = {
    (table.name, name): definition
    for table in read_tables("scheduler").values()
    for name, definition in table.constraints.items()
    if definition.startswith("CHECK")
}


def test_lists_are_those_of_the_tables() -> None:
    found = {}
    for (table, _), definition in CHECKS.items():
        if match := re.fullmatch(r"CHECK \(\((\w+) = ANY \(ARRAY\[(.*)\]\)\)\)", definition):
            members = [one.removesuffix("::text").strip("'") for one in match[2].split(", ")]
            found[f"{table}.{match[1]}"] = members
    listed = {**constraints.WORDS, **constraints.CODES}
    assert found == {column: [str(one) for one in members] for column, members in listed.items()}


def test_kinds_of_triggers_are_those_of_the_table() -> None:
    text = CHECKS["triggers", "ck_triggers_kind_columns"]
    found = re.findall(r"\(\(kind = '(\w+)'::text\) = \((\w+) IS NOT NULL\)\)", text)
    assert found == [(kind, column) for kind, columns in constraints.KIND_COLUMNS.items() for column in columns]


@pytest.mark.parametrize("table", constraints.RECORDS)
def test_bounds_are_those_of_the_types_and_checks(table: str) -> None:
    """Nothing but a CHECK narrows a type; ``runs.duration_ms`` follows from the times of the run."""
    bits = {"int2": 15, "int4": 31, "int8": 63}
    for field in msgspec.structs.fields(constraints.RECORDS[table]):
        kind = column_types(constraints.RECORDS[table])[field.name]
        if kind not in bits:
            continue
        column, widest = f"{table}.{field.name}", (-(1 << bits[kind]), (1 << bits[kind]) - 1)
        narrowed = any(re.search(rf"\b{field.name} (>|<)", text) for (name, _), text in CHECKS.items() if name == table)
        if column in constraints.COUNTERS:
            assert re.search(rf"\({field.name} < '?{widest[1]}\b", CHECKS[table, f"ck_{table}_counters"]), column
            assert constraints.bounds_of(column) == (widest[0], widest[1] - 1), column
            continue
        assert (constraints.bounds_of(column) != widest) == (narrowed and column != "runs.duration_ms"), column
