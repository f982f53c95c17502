"""The report of a cutover: what it says, that it is a page like the other, and that it can be signed and checked."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from migrator.report import cutover, integrity, junit, renderer, wording
from migrator.result import CutoverRecord, Measurement, Result, build, decode, encode
from tests.fabricated_cutovers import bad, good, record, rolled_back
from tests.unit.report.test_html import page
from tests.unit.report.test_machine_formats import check_junit, read

MAKERS = [good, bad, rolled_back]


@pytest.mark.parametrize("make", MAKERS)
def test_the_page_fetches_nothing_and_its_links_lead_somewhere(make: Callable[[], Result]) -> None:
    found = page(make())
    assert [attributes for tag, attributes in found.tags if tag == "script"] == [{}]
    assert "default-src 'none'" in found.values("content")[0]
    ids = found.values("id")
    assert len(ids) == len(set(ids))
    assert {value.removeprefix("#") for value in found.values("href")} <= set(ids)
    for tag, attributes in found.tags:
        if tag == "svg":
            assert attributes.get("aria-hidden") == "true" or attributes.get("aria-label"), attributes


@pytest.mark.proves("5-R1")
def test_the_first_page_says_what_became_of_it() -> None:
    text = page(good()).text
    for said in (
        "Writers were stopped for 5.12 s; about 4.00 s were planned, and at most 30.00 s were allowed.",
        "The cutover was called by op <ops@example.org>, because ticket 4711.",
        "Under the fence 311 changed documents were compared with the rows, and no difference was found.",
        "Before the fence the tail was 1 second behind MongoDB.",
        "2 things were waived, listed below.",
        "quarantine: 15 documents are quarantined (at most 20)",
        "sha256:" + "ab" * 32,
    ):
        assert said in text, said


def with_lag() -> Result:
    result = good()
    points = tuple((f"2026-11-22T20:{minute:02}:00+00:00", 90.0 if minute == 58 else 1.0) for minute in range(60))
    lag = Measurement(check=cutover.LAG, name="largest lag of the tail", unit="s", value=90.0, points=points)
    run = msgspec.structs.replace(result.run, measurements=(*result.run.measurements, lag))
    return build(result.evidence, run)


def test_the_lag_before_the_cutover_is_drawn_and_written_down() -> None:
    result = with_lag()
    said = "the lag was at most 90 seconds, and 1 second at the last sample; the fence closed at "
    found = page(result)
    assert said in found.text
    assert said in renderer.markdown(result).decode()
    (drawn,) = (one["points"] for tag, one in found.tags if tag == "polyline" and len(one["points"] or "") > 200)
    assert len((drawn or "").split()) == 60
    chart = cutover.lag_chart(result, record())
    assert chart is not None
    assert chart.mark is not None
    assert 900 < chart.mark <= 1000
    assert ("2026-11-22 20:58:00", "90 s") in chart.rows
    assert len(chart.rows) <= cutover.LISTED_SAMPLES
    assert "No lag is recorded" in page(good()).text


@pytest.mark.parametrize(
    ("make", "words", "tone", "status"),
    [
        (good, "Cut over", "passed", 0),
        (bad, "Cut over, with criteria not met", "failed", 5),
        (rolled_back, "Rolled back", "unverified", 0),
    ],
)
def test_the_verdict(make: Callable[[], Result], words: str, tone: str, status: int) -> None:
    result = make()
    assert (wording.verdict_words(result), wording.tone(result), result.exit_status()) == (words, tone, status)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("running", "The cutover of production was interrupted; it must be finished or undone."),
        ("aborted", "The cutover of production was undone before the point of no return; MongoDB holds the data, as before."),  # noqa: E501 - a sentence
        ("finished", "production uses PostgreSQL since 2026-11-22 21:00:07 UTC; the rollback window is closed."),
        ("rolled-back", "production was rolled back on 2026-11-22 21:00:09 UTC: MongoDB holds the data again."),
    ],
)  # fmt: skip
def test_each_state_has_its_sentence(state: str, sentence: str) -> None:
    found = good()
    moved = msgspec.structs.replace(record(), state=state)
    result = build(msgspec.structs.replace(found.evidence, cutover=moved), found.run)
    assert wording.verdict_sentence(result) == sentence


def test_the_pause_is_drawn_beside_the_plan_and_the_limit() -> None:
    def kinds(one: CutoverRecord) -> dict[str, tuple[str, int]]:
        return {bar.label: (bar.kind, bar.width) for bar in cutover.pause_bars(one)}

    assert kinds(record()) == {"planned": ("none", 133), "taken": ("clean", 170), "allowed": ("none", 1000)}
    assert kinds(msgspec.structs.replace(record(), pause_ms=60_000))["taken"] == ("apart", 1000)
    assert cutover.pause_bars(msgspec.structs.replace(record(), pause_ms=None)) == []


def test_the_key_metrics_are_drawn_to_one_scale() -> None:
    (metric,) = cutover.metric_bars(good())
    assert [(bar.label, bar.text, bar.width) for bar in metric.bars] == [
        ("before", "40.0", 976),
        ("at the cutover", "41.0", 1000),
        ("now", "39.0", 951),
    ]


@pytest.mark.parametrize("make", MAKERS)
def test_it_is_stored_rendered_and_checked_like_the_other(make: Callable[[], Result], tmp_path: Path) -> None:
    renderer.write(make(), tmp_path)
    assert decode(encode(make())) == make()
    assert integrity.check_report(tmp_path / "result.json").exit_status() == 0
    check_junit(read(make()))
    assert b"quarantine.empty" not in junit.junit(make())
    stored = (tmp_path / "result.json").read_text()
    (tmp_path / "result.json").write_text(stored.replace('"pause_limit_ms": 30000', '"pause_limit_ms": 90000'))
    assert integrity.check_report(tmp_path / "result.json").exit_status() == 1, "the digest covers the record"


def test_a_verification_has_no_record_and_its_evidence_keeps_its_digest() -> None:
    found = good()
    plain = build(msgspec.structs.replace(found.evidence, cutover=msgspec.UNSET), found.run)
    assert plain.cutover is None
    assert b'"cutover":' not in encode(plain)
