"""The rights that the fence of PostgreSQL revokes are no difference of the schema; every other right is."""

import pytest

from migrator.cutover.fenced_rights import _is_revoked
from migrator.schema.catalogue import Difference

GRANT = "scheduler.runs grant scheduler_service"


@pytest.mark.parametrize(
    ("name", "kind", "expected", "found", "revoked"),
    [
        (GRANT, "changed", "delete, insert, select, update (id, state)", "select", True),
        (GRANT, "changed", "insert, select", "select", True),
        (GRANT, "changed", "insert, select, update (id, state)", "insert, select", False),
        (GRANT, "changed", "insert, select", "insert", False),
        (GRANT, "changed", "insert, select", "select, truncate", False),
        (GRANT, "missing", "insert, select", None, False),
        (GRANT, "extra", None, "select", False),
        ("scheduler.runs column state", "changed", "insert, select", "select", False),
    ],
)
def test_only_rights_to_write_are_those_of_the_fence(
    name: str, kind: str, expected: str | None, found: str | None, *, revoked: bool
) -> None:
    one = Difference(name, kind, expected, found)  # type: ignore[arg-type] # one of each kind
    assert _is_revoked(one) is revoked
