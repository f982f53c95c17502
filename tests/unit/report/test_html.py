"""What the page must never do, and what it must always show."""

import re
from html.parser import HTMLParser

import msgspec
import pytest

from migrator.report import renderer
from migrator.report.view import LISTED_FINDINGS
from migrator.result import (
    FAILED,
    Cell,
    Check,
    Decision,
    Evidence,
    Finding,
    Loss,
    Measurement,
    Panel,
    Quarantined,
    Result,
    Run,
    Tally,
    build,
    unverified,
)
from tests.fabricated_behaviour import behaviour
from tests.fabricated_results import HOSTILE, clean, troubled

VOID = {"meta", "br", "link", "img", "input", "hr"}
SVG_EMPTY = {"path", "rect", "circle", "use", "polyline"}


class Page(HTMLParser):
    """Reads a page: every start tag, ids, targets, text, and whether tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == [], f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SVG_EMPTY
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if not {"style", "title", "script"} & set(self._open):
            self.words.append(data)

    def values(self, attribute: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(attribute)) is not None]

    @property
    def text(self) -> str:
        return re.sub(r"[ \n]+", " ", " ".join(self.words))


def page(result: Result) -> Page:
    return Page(renderer.html(result).decode())


@pytest.mark.parametrize("make", [clean, troubled, behaviour])
def test_nothing_is_fetched_and_nothing_runs(make: object) -> None:
    result = make()  # type: ignore[operator]
    text = renderer.html(result).decode()
    read = page(result)
    assert not {tag for tag, _ in read.tags} & {"link", "img", "iframe", "object", "embed", "base", "form"}
    assert [attributes for tag, attributes in read.tags if tag == "script"] == [{}], "one, and in place"
    assert "default-src 'none'" in read.values("content")[0]
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
    assert all(value.startswith("#") for value in [*read.values("href"), *read.values("xlink:href")])
    assert read.values("src") == []
    assert not re.search(r"https?:|url\(|@import|//[a-z]", text, re.IGNORECASE)


@pytest.mark.parametrize("make", [clean, troubled, behaviour])
def test_every_link_leads_to_a_place_on_the_page_and_every_place_has_its_own_name(make: object) -> None:
    read = page(make())  # type: ignore[operator]
    ids = read.values("id")
    assert len(ids) == len(set(ids))
    assert {value.removeprefix("#") for value in read.values("href")} <= set(ids)
    assert {one for value in read.values("aria-labelledby") for one in value.split()} <= set(ids)


def test_every_check_has_a_place_to_link_to() -> None:
    assert {f"check-{check.id}" for check in troubled().evidence.checks} <= set(page(troubled()).values("id"))


def test_hostile_keys_stay_text() -> None:
    text = renderer.html(troubled()).decode()
    assert text.count("<script>") == 1, "the page's own"
    assert "\u202e" not in text
    assert r"run-\u{202e}<script>alert(1)</script>|`x`\u{a}" in page(troubled()).text


def test_every_image_says_what_it_shows_and_every_table_names_its_columns() -> None:
    read = page(troubled())
    for tag, attributes in read.tags:
        if tag == "svg":
            assert attributes.get("aria-hidden") == "true" or attributes.get("aria-label"), attributes
        if tag == "th":
            assert attributes.get("scope") in ("col", "colgroup", "row", "rowgroup")
    assert ("html", {"lang": "en"}) in read.tags


def test_the_sections_come_in_the_order_of_the_design() -> None:
    order = ["verdict", "proved", "not-asked-for", "not-proved", "unmet-gates", "sign-off", "differences", "quarantine"]
    order += ["coverage", "documents", "cutover", "semantics", "transitions", "behaviour", "locking", "timings"]
    order += ["sensitivity", "losses", "checks", "requirements", "environment", "settled"]
    ids = [one for one in page(troubled()).values("id") if one in order]
    assert ids == order


@pytest.mark.proves("0-T2.11.6")
def test_what_was_not_checked_is_said() -> None:
    text = page(troubled()).text
    for sentence in (
        "too many documents are in quarantine to leave them out one by one",
        "the copy of impact_snapshots is not finished",
        "Area workers: Workers and their heartbeats — left out by --skip",
        "Area execution: Execution of due schedules — not checked by this version of the tool",
        "collection audit_old is in no profile: not copied, so not compared",
    ):
        assert sentence in text, sentence


def test_the_verdict_comes_first_and_the_digest_is_on_the_page() -> None:
    result = troubled()
    text = page(result).text
    assert "The two sides are not equal: 1 of 10 checks failed; 12 documents are in quarantine." in text[:500]
    assert text.count(result.digest) == 1
    assert f'content="{result.digest}"' in renderer.html(result).decode()


def test_an_area_that_this_version_lacks_is_not_passed_over() -> None:
    evidence = clean().evidence
    assert "Not checked by this version of the tool." in page(build(evidence, Run(name="r"))).text


def test_a_hundred_thousand_differences_make_a_small_page() -> None:
    findings = tuple(
        Finding(severity="difference", cause="time", collection="runs", table="runs", key=f"run_{i:032x}", path="a")
        for i in range(100_000)
    )
    tallies = tuple(
        Tally(severity="difference", cause="time", collection="runs", path=f"p{i}", title="a time", count=100)
        for i in range(1_000)
    )
    many = Check(
        id="parity.rows",
        area="parity",
        title="rows",
        outcome=FAILED,
        tallies=tallies,
        findings=findings,
        findings_total=len(findings),
    )
    result = build(Evidence(checks=(many,)), Run(name="r"))
    html = renderer.html(result)
    assert len(html) < 100_000
    assert len(renderer.markdown(result)) < 50_000
    assert html.count(b"run_0000") == LISTED_FINDINGS
    assert "and 99,975 more" in page(result).text


def test_whatever_grows_the_page_stays_small() -> None:
    """Everything a result can have, twenty thousand times, spread over many causes, tables, checks and areas."""
    many = 20_000
    table = Panel(
        kind="table",
        title="t",
        columns=("a", "b", "c"),
        rows=tuple((str(number), number, number + 1) for number in range(many)),
        rows_total=many,
    )
    spans = msgspec.structs.replace(table, kind="spans")
    one = Check(
        id="locking.a",
        area="locking",
        title="t",
        outcome=FAILED,
        cells=tuple(Cell(table=f"t{number}", outcome=unverified("x")) for number in range(20)),
        tallies=tuple(
            Tally(severity=severity, cause=f"c{number % 40}", path=f"p{number}", title=f"t{number % 40}", count=1)
            for number in range(many)
            for severity in ("difference", "explained", "warning")
        ),
        findings=tuple(Finding(severity="warning", cause="c", key=f"k{number}") for number in range(many)),
        findings_total=many,
        panels=(table, spans),
    )
    evidence = Evidence(
        checks=(one,),
        quarantine=tuple(Quarantined(collection="c", reason="r", path=str(number), count=1) for number in range(many)),
        losses=tuple(Loss(collection="c", path=str(number), kind="nul", count=1, kept=True) for number in range(many)),
        left_out=tuple(f"collection {number}" for number in range(many)),
        decisions=tuple(Decision(kind="k", who="w", at="a", why=str(number), tool="t") for number in range(many)),
    )
    points = tuple((str(number), float(number)) for number in range(many))
    measured = tuple(
        Measurement(check="locking.a", name=str(number), unit="ms", value=1.0, points=points if not number else ())
        for number in range(many)
    )
    run = Run(name="r", durations_ms={str(number): number for number in range(many)}, measurements=measured)
    result = build(evidence, run)
    html = renderer.html(result).decode()
    assert len(html) < 1_500_000
    assert len(renderer.markdown(result)) < 800_000
    for cut in ("and 19,800 more", "and 19,975 more", "19,980 shorter steps"):
        assert cut in html, cut


def test_a_key_of_a_megabyte_is_cut() -> None:
    check = msgspec.structs.replace(
        troubled().evidence.checks[2],
        findings=(Finding(severity="difference", cause="time", key="k" * 1_000_000),),
        findings_total=1,
    )
    assert len(renderer.html(build(Evidence(checks=(check,)), Run(name="r")))) < 60_000


def test_markdown_keeps_hostile_keys_inside_their_cell() -> None:
    lines = renderer.markdown(troubled()).decode().splitlines()
    cells = [line for line in lines if "alert" in line]
    assert cells
    for line in cells:
        assert line.startswith("|")
        assert line.endswith("|")
        assert "\u202e" not in line
    assert HOSTILE not in "\n".join(lines)
    widths = {line.replace(r"\|", "").count("|") for line in cells if "time-precision" in line}
    assert widths == {7}


@pytest.mark.proves("0-O6b")
def test_a_fresh_start_says_who_decided_it_and_that_nothing_was_compared() -> None:
    text = page(behaviour()).text
    assert "Fresh start , decided by R. Lind on 2026-11-20 16:58:02 UTC" in text
    assert "because the old history is archived and not needed" in text
    assert "Area parity — fresh start" in text
    assert "Nothing was compared, so losses are not known." in text


def test_how_strong_the_verification_is_stands_beside_the_verdict() -> None:
    text = page(behaviour()).text
    assert "classes of faults caught 47 of 48" in text
    assert "Of 48 classes of faults planted to test this verification, 47 were caught and 1 missed." in text
    assert "Corruptions that no check detected 1 A corruption that no check saw: null for absent" in text
    assert text.index("Corruptions that no check detected") > text.index("Faults of every class are planted")
    assert "classes of faults" not in page(clean()).text


def test_a_failure_outside_the_data_is_not_called_a_difference() -> None:
    text = page(behaviour()).text
    assert "Not everything holds: 2 of 12 checks failed." in text
    assert "No difference was found." not in text
    assert "Failed checks without a difference in the data" in text


def test_requirements_stand_with_their_words_and_their_checks() -> None:
    text = page(troubled()).text
    assert "parity counts, checksums per collection/table 0-X1 failed parity.round-trip , parity.aggregates" in text
    assert "dead worker detection 0-T2.9.3 not verified workers.heartbeats" in text, "its area was left out"
    assert "rollback level 1: switch back 4-B1 not exercised in this run cutover.rollback" in text
    assert "lock renewal 0-T2.8.4 shown by the product's tests integration/test_locks.py::test_renewal" in text
    assert "deploy staging 0-T2.12.2 out of scope The operator deploys." in text
    counts = text[text.index("How it is counted: ") :]
    assert counts.startswith("How it is counted: 7 requirements: ")
    assert (
        "1 shown by the product's tests, 1 not exercised in this run, 2 out of scope. A requirement is passed" in counts
    )


@pytest.mark.proves("5-R2")
def test_the_first_page_names_both_databases_and_what_nobody_asked_for() -> None:
    text = page(troubled()).text
    first = text[: text.index("Differences by cause")]
    for words in (
        "source MongoDB 6.0.27, database stellaops_scheduler, db1.example:27017, db2.example:27017, replica set rs0",
        "target PostgreSQL 18.4, database scheduler, pg.example:5432",
        "environment staging",
        "(sensitivity): made only with --sensitivity",
        "(cutover.rollback): made only with",
        "Ready for the cutover: no. 1 check failed. 1 of 3 gates is not met: fence.",
        "fence : the server requires no authentication",
        "gates of the cutover not met now 1 of 3",
        (
            "2 checks (cutover.downgrade, cutover.configuration) need a right that the tool's user lacks:"
            " the target's user"
        ),
        "checks 10 checks passed 4 checks failed 1 checks not verified 3 checks not asked for 1 checks recorded only 1",
        "areas not asked for 2",
    ):
        assert words in first, words
    assert first.count("ALTER ROLE tool CREATEDB") == 1
