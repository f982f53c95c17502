"""What the commands print: the last line of a comparison says everything that its exit status says."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from migrator.cli import cli, parity
from migrator.cli.cutover import WIDTH, _loss_lines
from migrator.cli.parity import parity_lines, parity_total
from migrator.exit_status import DIFFERENT, DONE, QUARANTINE, UNVERIFIED
from migrator.parity import recorded_check
from migrator.parity.causes import CAUSES
from migrator.parity.model import AggregateResult, CollectionComparison, ParityOutcome, tally_of
from migrator.result import Finding


def outcome(*collections: CollectionComparison, aggregates: tuple[AggregateResult, ...] = ()) -> ParityOutcome:
    return ParityOutcome(profile="stellaops/1", collections=collections, aggregates=aggregates)


RUNS = CollectionComparison(collection="runs", tables=("runs",), documents=1_005, matched=1_000, quarantined=5)
DERIVED = CollectionComparison(collection="(derived) workers", tables=("workers",), documents=3, matched=3)


def test_a_comparison_in_which_all_is_equal_says_so_and_nothing_else() -> None:
    assert parity_total(outcome(RUNS, DERIVED)) == "compared 1,005 documents: 1,000 equal, 5 quarantined"


def test_every_kind_of_trouble_is_in_the_last_line() -> None:
    audit = CollectionComparison(
        collection="audit", tables=("audit",), documents=10, matched=1, differing=2, missing=3, extra=4
    )
    locks = CollectionComparison(
        collection="locks", tables=("locks",), documents=7, matched=1, skipped={"expired lock": 6}
    )
    left_out = CollectionComparison(collection="policy_runs", tables=("policy_jobs",), unverified="left out by --only")
    figure = AggregateResult(collection="audit", table="audit", measure="state", kind="group", differing_total=8)
    whole = outcome(audit, locks, left_out, aggregates=(figure,))
    assert parity_total(whole) == (
        "compared 17 documents: 2 equal, 2 different, 3 missing, 4 extra rows, 8 aggregates that differ, "
        "6 skipped by rule, 1 collection not compared"
    )
    assert list(parity_lines(whole))[-1] == parity_total(whole)


def test_a_difference_names_as_much_of_its_place_as_there_is() -> None:
    places = (("", ""), ("runs", ""), ("runs", "state"))
    runs = CollectionComparison(
        collection="runs",
        tables=("runs",),
        tallies={"row": tuple(tally_of("runs", "text", 1, table=table, path=path) for table, path in places)},
        findings=tuple(
            Finding(severity="difference", collection="runs", key="r1", side="row", table=t, path=p, cause="text")
            for t, p in places
        ),
    )
    assert list(parity_lines(outcome(runs)))[2:-1] == [
        "runs: 1 x row document: text",
        # once for each cause
        f"  likely fix: {CAUSES['text'].fix}",
        "runs: 1 x row runs: text",
        "runs: 1 x row runs.state: text",
        "  row document of r1: text",
        "  row runs of r1: text",
        "  row runs.state of r1: text",
    ]


FIGURE = AggregateResult(collection="audit", table="audit", measure="column message filled", kind="sum")


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (ParityOutcome(profile="p/1", collections=(RUNS,)), QUARANTINE),
        (ParityOutcome(profile="p/1", collections=(DERIVED,), columns=(FIGURE,)), DONE),
        (
            ParityOutcome(profile="p/1", collections=(DERIVED,), columns=(replace(FIGURE, differing_total=1),)),
            DIFFERENT,
        ),
        (
            ParityOutcome(profile="p/1", collections=(DERIVED,), aggregates=(replace(FIGURE, differing_total=1),)),
            DIFFERENT,
        ),
        (ParityOutcome(profile="p/1", collections=(DERIVED,), columns=(replace(FIGURE, unverified="no"),)), UNVERIFIED),
    ],
)
def test_the_status_the_lines_and_the_json_say_the_same(
    found: ParityOutcome, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A figure of a column that disagrees is a difference wherever it is said."""
    monkeypatch.setattr(parity, "check_and_record", lambda _settings, **_options: found)
    config = tmp_path / "config.toml"
    config.write_text("")
    called = CliRunner().invoke(cli, ["parity", "--config", str(config)])
    assert called.exit_code == status
    assert ("that differ" in called.stdout) == (status == DIFFERENT)
    assert ("not compared" in called.stdout) == (status == UNVERIFIED)
    assert recorded_check.is_clean(found) == (status != DIFFERENT)


def test_what_has_no_place_after_a_rollback_is_a_list_of_short_lines() -> None:
    losses = [f"{'column ' * 30}{number}" for number in range(8)]
    lines = list(_loss_lines("; ".join(["after a rollback these have no place in MongoDB", *losses])))
    assert lines[0] == "after a rollback these have no place in MongoDB:"
    assert max(map(len, lines)) <= WIDTH
    assert [line for line in lines if line.startswith("  - ")] == [line for line in lines if "- column" in line]
    assert len([line for line in lines if line.startswith("  - ")]) == len(losses)
    assert list(_loss_lines("")) == []
