"""Adding up the chunks of a comparison."""

import itertools

import pytest

from migrator.parity import model
from migrator.parity.model import CollectionComparison, ColumnCount, Merged, merge, tally_of
from migrator.result import Finding, Loss, Quarantined, Tally


def orphans(count: int, *keys: str) -> Tally:
    return Tally(
        severity="explained", cause="orphan", collection="runs", path="schedule_id", title="t", count=count, keys=keys
    )


def lost(count: int) -> Loss:
    return Loss(collection="runs", path="name", kind="nul", count=count, kept=True)


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
        excluded=(f"x{number}", f"y{number}"),
        rows=7,
        without_remainder=5,
        with_remainder=1,
        tallies={"row": (tally_of("runs", "time", number, table="runs", path=f"p{number % 2}"),)},
        findings=tuple(
            Finding(
                severity="difference",
                collection="runs",
                key=f"r{number}{n}",
                side="row",
                table="runs",
                path="a",
                cause="time",
            )
            for n in range(3)
        ),
        notes=(orphans(2, *(f"k{number}{n}" for n in range(4))),),
        losses=(lost(1),),
        quarantine=(
            Quarantined(collection="runs", reason="bad-date", path="a", expected="b", count=1, keys=(f"q{number}",)),
        ),
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
    assert [one.key for one in whole.findings] == ["r10", "r11", "r12", "r20"]
    assert [(side, one.path, one.count) for side, one in whole.tallied()] == [("row", "p0", 2), ("row", "p1", 4)]
    assert whole.notes == (orphans(6, "k10", "k11", "k12", "k13", "k20"),)
    assert whole.losses == (lost(3),)
    assert whole.quarantine[0].count == 3
    assert whole.columns == (ColumnCount(table="runs", column="state", compared=21, differing=3),)
    assert whole.excluded == ("x1", "x2", "x3", "y1", "y2", "y3")
    assert whole.unverified == "gone"


def test_a_document_that_is_nowhere_makes_the_sum_uneven() -> None:
    assert not CollectionComparison(collection="runs", tables=("runs",), documents=2, matched=1).balanced


def test_nothing_cannot_be_added_up() -> None:
    with pytest.raises(ValueError, match="nothing to merge"):
        merge([], listed=1)


def test_chunks_that_come_in_one_by_one_add_up_to_the_same() -> None:
    parts = [part(number) for number in range(1, 41)]
    merged = Merged(4)
    for one in parts:
        merged.add(one)
    assert merged.whole() == merge(parts, listed=4)


def test_ids_are_kept_all_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of them would be of no use: the aggregates would count documents that have no row."""
    monkeypatch.setattr(model, "KEPT_CHARACTERS", 8)
    few, more = merge([part(1), part(2)], listed=4), [part(number) for number in range(1, 41)]
    assert (few.excluded, few.excluded_total) == (("x1", "x2", "y1", "y2"), 4)
    merged = Merged(4)
    for one in more:
        merged.add(one)
    assert (merged.whole().excluded, merged.whole().excluded_total) == ((), 80)
