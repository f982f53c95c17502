"""The codes under which documents are quarantined: all of them are known to ``quarantine list --code``."""

import ast
from collections.abc import Iterator
from pathlib import Path

import migrator
from migrator.pipeline.quarantine import REASONS

RAISING = ("Rejected", "_FaultError")


def given() -> Iterator[str]:
    """Yield every text that the code gives as a reason."""
    for path in Path(migrator.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in RAISING and node.args:
                yield from (
                    one.value
                    for one in ast.walk(node.args[0])
                    if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value
                )


def test_every_reason_is_known() -> None:
    found = set(given())
    assert {"bad-date", "wrong-type", "out-of-range"} <= found, "the test sees none"
    assert found <= set(REASONS)
    assert list(REASONS) == sorted(set(REASONS))
