"""The targets that a process knows."""

import msgspec
import pytest

from migrator.targets import native_table, register
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
