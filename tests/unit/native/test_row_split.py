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


def split(fields: int, first: Sequence[tuple[int, bool]], second: Sequence[tuple[int, bool]]) -> RowSplit:
    from migrator_speedups import row_split  # noqa: PLC0415 - may be absent

    return row_split.RowSplit(fields, first, second)


def row(cells: Cells) -> bytes:
    made = struct.pack("!h", len(cells))
    for cell in cells:
        made += struct.pack("!i", -1) if cell is None else struct.pack("!i", len(cell)) + cell
    return made


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
