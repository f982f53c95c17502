"""Expected rows beside stored ones: every byte counts, and only rows with an expected id do."""

import random
from typing import Any, TypeAlias

import pytest

from migrator.sources import load_profile
from migrator.testing.demo import COLLECTIONS as GENERATORS
from migrator.testing.demo import Plan
from migrator.testing.demo.plan import Counts
from migrator.values import document as documents
from tests import native_codec
from tests.both_codecs import native_reader
from tests.stellaops_documents import CONTEXT, fresh

TableRows: TypeAlias = Any
"""``migrator_speedups.rows.TableRows``, of a package that may be absent."""
RUNS = load_profile("stellaops").by_name()["runs"]


def expected_rows(raws: list[bytes]) -> TableRows:
    reader = native_reader(RUNS, CONTEXT)
    answers = [True] * 8  # every reference leads where it says
    return reader.codec.read(b"".join(raws), frozenset(), answers).tables[0]


def unequal(expected: TableRows, stored: list[bytes]) -> list[int]:
    from migrator_speedups.comparison import Comparison  # noqa: PLC0415 - may be absent

    comparison = Comparison(expected, [], expected.positions())
    comparison.read(iter(stored))
    return list(comparison.unequal())


@pytest.fixture(scope="module")
def expected() -> TableRows:
    found = expected_rows(list(GENERATORS["runs"](Plan(seed=7, counts=Counts(20, 300, *[0] * 10), plain=True))))
    assert found.count > 100
    return found


def stored_of(expected: TableRows) -> list[bytes]:
    return [expected.row_bytes(index) for index in range(expected.count)]


def test_stored_rows_are_found_in_any_order(expected: TableRows) -> None:
    stored = stored_of(expected)
    random.Random(1).shuffle(stored)
    assert unequal(expected, stored) == []
    assert unequal(expected, [memoryview(one) for one in stored]) == []  # type: ignore[misc] # as psycopg gives them


def test_every_byte_of_a_row_counts(expected: TableRows) -> None:
    stored = stored_of(expected)
    for at in range(len(stored[3])):
        changed = bytearray(stored[3])
        changed[at] ^= 1
        found = unequal(expected, [*stored[:3], bytes(changed), *stored[4:]])
        assert found == [expected.positions()[3]], at


def test_rows_that_are_missing_longer_or_shorter(expected: TableRows) -> None:
    stored = stored_of(expected)
    assert unequal(expected, []) == expected.positions()
    assert unequal(expected, stored[1:]) == [expected.positions()[0]]
    assert unequal(expected, [stored[0] + b"\0", stored[1][:-1], *stored[2:]]) == expected.positions()[:2]


def test_what_has_no_expected_id_is_passed_over(expected: TableRows) -> None:
    stored = stored_of(expected)
    strange = [b"", b"\xff\xff", stored[0][:10], stored[0][:6] + bytes(16) + stored[0][22:], bytes(2000)]
    assert unequal(expected, strange + stored) == []


def test_the_row_of_another_tenant_with_the_same_id_is_not_the_row_of_the_document(expected: TableRows) -> None:
    stored = stored_of(expected)
    tenant_at = 22 + 4
    other = stored[5][:tenant_at] + b"X" + stored[5][tenant_at + 1 :]
    assert unequal(expected, [*stored[:5], other, *stored[6:]]) == [expected.positions()[5]]
    assert unequal(expected, [*stored, other]) == []


def test_documents_of_several_tenants_may_have_one_id() -> None:
    name = "run_" + "5" * 32
    raws = [
        documents.encode({**fresh("runs"), "_id": name, "id": name, "tenantId": tenant}) for tenant in ("a", "b", "c")
    ]
    read = expected_rows(raws)
    assert read.count == 3
    stored = stored_of(read)
    assert unequal(read, stored) == []
    assert unequal(read, [stored[2], stored[0]]) == [read.positions()[1]]


def test_ids_are_the_text_of_an_array(expected: TableRows) -> None:
    from migrator_speedups.comparison import Comparison  # noqa: PLC0415 - may be absent

    found = Comparison(expected, [], expected.positions()).ids()
    assert found == ("{" + ",".join(one.hex() for one in expected.ids()) + "}", "uuid")
    assert Comparison(expected_rows([]), [], []).ids() == ("{}", "uuid")
    assert unequal(expected_rows([]), stored_of(expected)) == []
    numbered = [b"\0\2\0\0\0\x08" + one.to_bytes(8, "big", signed=True) + b"\xff\xff\xff\xff" for one in (7, -7)]
    assert Comparison(expected_rows([]), numbered, [0, 1]).ids() == ("{7,-7}", "bigint")


def test_rows_behind_those_of_the_table_are_compared_like_them(expected: TableRows) -> None:
    from migrator_speedups.comparison import Comparison  # noqa: PLC0415 - may be absent

    stored = stored_of(expected)
    more = [one[:6] + bytes([number]) * 16 + one[22:] for number, one in enumerate(stored[:3])]
    for wrong in range(3):
        comparison = Comparison(expected, more, [*expected.positions(), 1_000, 1_001, 1_002])
        assert comparison.count == expected.count + 3
        assert comparison.ids()[0].endswith("00" * 16 + "," + "01" * 16 + "," + "02" * 16 + "}")
        comparison.read([*stored, *more[:wrong], more[wrong][:-1] + b"?", *more[wrong + 1 :]])
        assert list(comparison.unequal()) == [1_000 + wrong]


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([b""], 1),
        ([b"\0"], 1),
        ([b"\0\1\0\0\0\x04text"], 1),
        ([b"\0\1\0\0\0\x10" + bytes(15)], 1),
        ([b"\0\1\xff\xff\xff\xff" + bytes(16)], 1),
        ([b"\0\1\0\0\0\x10" + bytes(16)], 0),
        ([b"\0\1\0\0\0\x10" + bytes(16)], 2),
        ([b"\0\1\0\0\0\x10" + bytes(16), b"\0\1\0\0\0\x08" + bytes(8)], 2),
    ],
)
def test_what_is_no_row_is_refused(rows: list[bytes], count: int) -> None:
    native_codec.needed()
    from migrator_speedups.comparison import Comparison  # noqa: PLC0415 - may be absent

    with pytest.raises(ValueError, match="expected"):
        Comparison(expected_rows([]), rows, list(range(count)))
