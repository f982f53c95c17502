"""Rows of binary COPY split into the rows of two tables, against the same said in Python."""

import math
import random
import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

import pytest

from migrator.values.copy_format import HEADER, TRAILER
from tests import native_codec

Cells = Sequence[bytes | None]
RowSplit: TypeAlias = Any
"""``migrator_speedups.row_split.RowSplit``, of a package that may be absent."""
FIRST = ((3, False), (0, False), (2, True))
SECOND = ((0, False), (1, False))


@pytest.fixture(scope="module", autouse=True)
def _native() -> None:
    native_codec.needed()


def split(
    fields: int, first: Sequence[tuple[int, bool]], second: Sequence[tuple[int, bool]], shared: int = -1
) -> RowSplit:
    from migrator_speedups import row_split  # noqa: PLC0415 - may be absent

    return row_split.RowSplit(fields, first, second, shared)


def row(cells: Cells) -> bytes:
    made = struct.pack("!h", len(cells))
    for cell in cells:
        made += struct.pack("!i", -1) if cell is None else struct.pack("!i", len(cell)) + cell
    return made


def cells_of(rows: bytes, fields: int) -> list[list[bytes | None]]:
    """Return the cells of the rows of a whole binary COPY."""
    assert rows.startswith(HEADER)
    assert rows.endswith(TRAILER)
    place, found = len(HEADER), []
    while place < len(rows) - len(TRAILER):
        assert struct.unpack_from("!h", rows, place) == (fields,)
        place += 2
        cells: list[bytes | None] = []
        for _ in range(fields):
            (length,) = struct.unpack_from("!i", rows, place)
            place += 4
            cells.append(None if length < 0 else rows[place : place + length])
            place += max(length, 0)
        found.append(cells)
    return found


def real(cell: bytes | None) -> bytes | None:
    return None if cell is None else struct.pack("!f", *struct.unpack("!d", cell))


def test_each_table_takes_its_fields_in_its_order() -> None:
    chosen = random.Random(5)
    rows: list[Cells] = [
        [
            chosen.choice([None, chosen.randbytes(chosen.choice((0, 1, 16)))]),
            chosen.choice([None, chosen.randbytes(chosen.choice((0, 300)))]),
            chosen.choice([None, *(struct.pack("!d", number) for number in (0.0, -0.0, 0.1, -3e38, 1e-40, math.inf))]),
            chosen.randbytes(3),
        ]
        for _ in range(500)
    ]
    first, second = split(4, FIRST, SECOND).split(b"".join(map(row, rows)), HEADER)
    assert first == HEADER + b"".join(row([cells[3], cells[0], real(cells[2])]) for cells in rows) + TRAILER
    assert second == HEADER + b"".join(row([cells[0], cells[1]]) for cells in rows) + TRAILER


def test_no_row_is_a_copy_of_none() -> None:
    assert split(4, FIRST, SECOND).split(b"", HEADER) == (HEADER + TRAILER,) * 2


def test_a_number_that_is_not_a_number_stays_one() -> None:
    first, _ = split(1, ((0, True),), ((0, False),)).split(row([struct.pack("!d", math.nan)]), b"")
    assert math.isnan(struct.unpack("!f", first[6:10])[0])


@pytest.mark.parametrize("number", [3.5e38, -1e300, 1e-300, -1e-46])
def test_a_number_that_the_server_refuses_is_refused(number: float) -> None:
    with pytest.raises(OverflowError):
        split(1, ((0, True),), ((0, False),)).split(row([struct.pack("!d", number)]), HEADER)


def test_what_ends_within_a_row_is_refused() -> None:
    whole = row([b"ab", None, struct.pack("!d", 1.5), b"xyz"])
    made = split(4, FIRST, SECOND)
    for end in range(1, len(whole)):
        with pytest.raises(ValueError, match=r"^byte \d+: "):
            made.split(whole + whole[:end], HEADER)


def test_a_row_of_another_number_of_fields_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^byte 0: expected a row of 4 fields"):
        split(4, FIRST, SECOND).split(row([b"a"] * 5), HEADER)


def test_a_number_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^field 0: expected a number of 8 bytes"):
        split(1, ((0, True),), ((0, False),)).split(row([b"1234"]), HEADER)


@pytest.mark.parametrize("fields", [((4, False),), ((-1, False),), ((0, False), (0, False)), ()])
def test_fields_that_a_row_does_not_have_are_refused(fields: Sequence[tuple[int, bool]]) -> None:
    with pytest.raises(ValueError, match="field"):
        split(4, fields, SECOND)


SHARING = ((0, False), (1, False))


def test_a_value_that_comes_again_stands_once() -> None:
    value, other = b"a" * 64, b"b" * 8192
    made = split(2, ((0, False),), SHARING, 1)
    first, second = made.split(b"".join(row([b"%d" % n, cell]) for n, cell in enumerate([value, value, value])), HEADER)
    assert cells_of(first, 1) == [[b"0"], [b"1"], [b"2"]]
    (shared_id, shared), *more = made.take_shared()
    assert (shared, more) == (value, [])
    assert cells_of(second, 3) == [[b"0", value, None], [b"1", None, shared_id], [b"2", None, shared_id]]
    _, second = made.split(b"".join(row([b"3", cell]) for cell in (value, other, other)), HEADER)
    (other_id, shared), *more = made.take_shared()
    assert (shared, more, len(other_id), other_id != shared_id) == (other, [], 16, True)
    assert cells_of(second, 3) == [[b"3", None, shared_id], [b"3", other, None], [b"3", None, other_id]]
    assert made.take_shared() == []


@pytest.mark.parametrize("value", [None, b"", b"a" * 63, b"a" * 8193])
def test_no_value_a_short_one_and_a_long_one_stay_in_their_rows(value: bytes | None) -> None:
    made = split(2, ((0, False),), SHARING, 1)
    _, second = made.split(row([b"x", value]) * 4, HEADER)
    assert cells_of(second, 3) == [[b"x", value, None]] * 4
    assert made.take_shared() == []


def test_every_value_is_found_again_whichever_are_shared() -> None:
    chosen = random.Random(11)
    values = [chosen.randbytes(chosen.choice((10, 64, 300))) for _ in range(5_000)]
    made, known, shared_rows = split(2, ((0, False),), SHARING, 1), dict[bytes, bytes](), 0
    for _ in range(40):
        cells = [chosen.choice(values[: chosen.choice((2, 50, 5_000))]) for _ in range(chosen.randrange(400))]
        _, second = made.split(b"".join(row([b"k", cell]) for cell in cells), HEADER)
        for shared_id, value in made.take_shared():
            assert known.setdefault(shared_id, value) is value
        for cell, (_, stored, shared_id) in zip(cells, cells_of(second, 3), strict=True):
            assert (stored is None) != (shared_id is None)
            assert (stored if shared_id is None else known[shared_id]) == cell
            shared_rows += shared_id is not None
    assert shared_rows > 1_000
    assert len(known) <= 256


def test_a_field_that_the_second_table_does_not_take_is_not_shared() -> None:
    with pytest.raises(ValueError, match=r"^field 1: "):
        split(3, ((1, False),), ((0, False), (2, False)), 1)
