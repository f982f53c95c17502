"""The first page: its figures add up, and it says what is signed, and what was measured above its ceiling."""

import re
from pathlib import Path

import msgspec
import pytest

from migrator.parity.model import CollectionComparison
from migrator.report import renderer, wording
from migrator.report.integrity import read_result
from migrator.result import CollectionCounts, Measurement, Result
from tests.fabricated_cutovers import good
from tests.fabricated_results import clean, troubled

pytestmark = pytest.mark.proves("6-U3")

SAMPLE = Path(__file__).resolve().parents[3] / "reports" / "sample" / "result.json"
CHANGED = "changed in PostgreSQL since the cutover"
PARTS = ("equal", "in quarantine", "not copied, by rule", CHANGED, "missing or not equal")


def cover(result: Result) -> str:
    page = renderer.html(result).decode()
    return page[page.index('<div class="cover">') : page.index('id="sign-off"') + 4_000]


def shown(result: Result) -> dict[str, int]:
    """Return the figures of the first page, as a reader sees them."""
    pairs = re.findall(r"<div[^>]*><dt>(?:<a[^>]*>)?([^<]*)(?:</a>)?</dt><dd>([\d,]+)</dd>", cover(result))
    return {name: int(figure.replace(",", "")) for name, figure in pairs}


@pytest.mark.parametrize("result", [troubled(), read_result(SAMPLE)], ids=["troubled", "sample"])
def test_the_figures_of_the_first_page_add_up(result: Result) -> None:
    figures = shown(result)
    assert figures["documents read"] > 0
    assert sum(figures.get(name, 0) for name in PARTS) == figures["documents read"]
    assert figures["documents read"] == sum(one.documents for one in result.evidence.collections)


@pytest.mark.parametrize("result", [clean(), troubled(), read_result(SAMPLE)], ids=["clean", "troubled", "sample"])
def test_the_checks_of_the_first_page_add_up(result: Result) -> None:
    figures = shown(result)
    words = {name: f"checks {name}" for name in (*wording.STATUS_WORDS.values(), wording.RECORDED)}
    assert sum(figures.get(tile, 0) for tile in words.values()) == figures["checks"]
    parts = [f"{figures[tile]:,} {name}" for name, tile in words.items() if figures.get(tile)]
    text = re.sub(r"<[^>]+>", "", cover(result))
    assert f"{figures['checks']:,} checks: {', '.join(parts)}." in text
    listed = figures.get("checks not asked for", 0) + figures.get("areas not asked for", 0)
    assert listed == len(wording.not_requested(result))
    assert set(re.findall(r"of (\d+) checks", text)) <= {str(figures["checks"])}, "one denominator"


@pytest.mark.parametrize("result", [troubled(), good(), read_result(SAMPLE)], ids=["troubled", "cutover", "sample"])
def test_a_page_has_one_form_of_times(result: Result) -> None:
    text = re.sub(r"<[^>]+>", " ", renderer.html(result).decode())
    times = re.findall(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*(?: UTC)?", text)
    assert times
    assert [one for one in times if not re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d( UTC)?", one)] == []


def test_a_count_has_no_digits_after_the_point() -> None:
    assert [wording.measured(value, unit) for value, unit in ((3.0, ""), (1_234.0, ""), (12.5, ""), (3.0, "ms"))] == [
        "3",
        "1,234",
        "12.5",
        "3.0 ms",
    ]


def with_collections(*collections: CollectionCounts) -> Result:
    result = troubled()
    evidence = msgspec.structs.replace(result.evidence, collections=collections)
    return msgspec.structs.replace(result, evidence=evidence)


def test_documents_whose_rows_were_changed_after_the_cutover_are_among_the_figures() -> None:
    comparison = CollectionComparison(
        collection="runs", tables=("runs",), documents=9, matched=6, quarantined=1, changed=2
    )
    assert comparison.balanced
    result = with_collections(comparison.counts)
    figures = shown(result)
    assert (figures[CHANGED], sum(figures.get(name, 0) for name in PARTS)) == (2, 9)
    assert "2 were changed in PostgreSQL since the cutover, and were not compared" in cover(result)
    unchanged = CollectionComparison(collection="runs", tables=("runs",), documents=6, matched=6)
    assert CHANGED not in shown(with_collections(unchanged.counts))


def test_each_rule_is_named_with_its_documents() -> None:
    counts = CollectionCounts(
        collection="locks", tables=("locks",), documents=12, matched=7, quarantined=2, skipped={"expired lock": 3}
    )
    result = with_collections(counts)
    text = re.sub(r"<[^>]+>", "", cover(result))
    assert "2 are in quarantine; 3 were not copied, by rule (expired lock 3)" in text
    assert (
        "Documents left behind in the source: 2 are in quarantine; 3 were not copied, by rule (expired lock 3)." in text
    )
    assert shown(result)["not copied, by rule"] == 3


def test_the_signer_is_told_what_is_signed_and_in_which_role() -> None:
    result = with_collections(CollectionCounts(collection="runs", tables=("runs",), documents=5, matched=5))
    page, text = cover(result), renderer.markdown(result).decode()
    for words in (
        "No document is left behind in the source.",
        f"{wording.readiness(result).sentence} A signature does not change that.",
        "Executed the migration",
        "Accepts the result",
    ):
        assert words in page
        assert words in text


def test_a_measurement_above_its_ceiling_stands_on_the_first_page() -> None:
    result = troubled()
    over = Measurement(check="performance.load", name="claim", value=12.5, unit="ms", ceiling=10.0)
    run = msgspec.structs.replace(result.run, measurements=(over,))
    assert wording.above_ceiling(over) in cover(msgspec.structs.replace(result, run=run))
    well = msgspec.structs.replace(run, measurements=(msgspec.structs.replace(over, value=9.0),))
    assert "Measured above its ceiling" not in cover(msgspec.structs.replace(result, run=well))
