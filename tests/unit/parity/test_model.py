"""Adding up the chunks of a comparison."""

import itertools

import pytest

from migrator.parity.model import (
    CauseCount,
    CollectionComparison,
    ColumnCount,
    Difference,
    LossCount,
    NoteCount,
    QuarantineCount,
    merge,
)


def part(number: int) -> CollectionComparison:
    return CollectionComparison(
        collection="runs",
        tables=("runs",),
        documents=10,
        matched=6,
        differing=1,
        missing=1,
        quarantined=1,
        skipped={"expired": 1},
        excluded=(f"x{number}",),
        rows=7,
        clean=5,
        remainder=1,
        causes=(CauseCount(table="runs", path=f"p{number % 2}", side="row", cause="time", count=number),),
        differences=tuple(
            Difference(collection="runs", source_id=f"r{number}{n}", side="row", table="runs", path="a", cause="time")
            for n in range(3)
        ),
        notes=(NoteCount(kind="orphan", path="schedule_id", count=2, keys=tuple(f"k{number}{n}" for n in range(4))),),
        losses=(LossCount(path="name", kind="nul", count=1),),
        quarantine=(QuarantineCount(reason="bad-date", path="a", expected="b", count=1, keys=(f"q{number}",)),),
        columns=(ColumnCount(table="runs", column="state", compared=7, differing=1),),
        unverified="gone" if number == 2 else "",
    )


def test_the_sum_does_not_depend_on_the_order_of_the_chunks() -> None:
    parts = [part(number) for number in (1, 2, 3)]
    sums = [merge(order, listed=4) for order in itertools.permutations(parts)]
    assert all(one == sums[0] for one in sums)


def test_counts_are_complete_and_lists_are_cut() -> None:
    whole = merge([part(1), part(2), part(3)], listed=4)
    assert (whole.documents, whole.matched, whole.skipped) == (30, 18, {"expired": 3})
    assert whole.balanced
    assert [one.source_id for one in whole.differences] == ["r10", "r11", "r12", "r20"]
    assert [(one.path, one.count) for one in whole.causes] == [("p0", 2), ("p1", 4)]
    assert whole.notes == (
        NoteCount(kind="orphan", path="schedule_id", count=6, keys=("k10", "k11", "k12", "k13", "k20")),
    )
    assert whole.losses == (LossCount(path="name", kind="nul", count=3),)
    assert whole.quarantine[0].count == 3
    assert whole.columns == (ColumnCount(table="runs", column="state", compared=21, differing=3),)
    assert whole.excluded == ("x1", "x2", "x3")
    assert whole.unverified == "gone"


def test_a_document_that_is_nowhere_makes_the_sum_uneven() -> None:
    assert not CollectionComparison(collection="runs", tables=("runs",), documents=2, matched=1).balanced


def test_nothing_cannot_be_added_up() -> None:
    with pytest.raises(ValueError, match="nothing to merge"):
        merge([], listed=1)
