"""The targets that a process knows."""

import msgspec
import pytest

from migrator.sources.mapping.tables import needed_columns, types_of
from migrator.targets import native_table, register
from migrator.targets.model import Target
from migrator.targets.reading import read_target


def test_an_equal_target_that_is_loaded_again_keeps_its_records() -> None:
    """Two threads load one mapping: rows of one must be rows of the other."""
    jobs = {"key": ["id"], "columns": {"id": "bigint not null"}}
    tree = {"target": {"name": "twice", "schema": "shop", "tables": {"jobs": jobs}}}
    first, second = (read_target(tree, lambda _key, message: pytest.fail(message)) for _ in range(2))
    assert first is not second
    kept = register(first)
    assert register(second) is kept
    assert native_table("twice/jobs") is kept.by_name["jobs"]
    assert register(second).by_name["jobs"].record is first.by_name["jobs"].record
    changed = msgspec.structs.replace(second, schema="elsewhere")
    assert register(changed) is changed


def test_a_name_stands_for_the_table_that_was_loaded_last() -> None:
    """Two mappings of one process may name their tables alike: nothing is remembered by the name."""

    def target(columns: dict[str, str]) -> Target:
        jobs = {"key": ["number"], "columns": {"number": "bigint not null", **columns}}
        tree = {"target": {"name": "again", "schema": "shop", "tables": {"jobs": jobs}}}
        return read_target(tree, lambda _key, message: pytest.fail(message))

    register(target({"title": "text not null"}))
    assert "title" in types_of("again/jobs")
    assert "title" in needed_columns("again/jobs")
    register(target({"given": "boolean not null"}))
    assert "given" in types_of("again/jobs")
    assert {"title", "given"} & needed_columns("again/jobs") == {"given"}
