"""The sentences a person reads first."""

import pytest

from migrator.report import wording
from migrator.report.view import share_bars
from migrator.result import (
    FAILED,
    PASSED,
    Area,
    Check,
    CollectionCounts,
    Evidence,
    Outcome,
    Quarantined,
    Result,
    Run,
    build,
    not_applicable,
    unverified,
)


def result(
    *outcomes: tuple[str, Outcome], errored: bool = False, quarantined: int = 0, areas: tuple[Area, ...] = ()
) -> Result:
    checks = tuple(
        Check(id=f"{area}.{number}", area=area, title="t", outcome=outcome, errored=errored)
        for number, (area, outcome) in enumerate(outcomes)
    )
    quarantine = (Quarantined(collection="runs", reason="r", count=quarantined),) if quarantined else ()
    return build(Evidence(checks=checks, quarantine=quarantine, areas=areas), Run(name="r"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (result(("parity", PASSED)), "Nothing was lost or changed."),
        (
            result(("parity", PASSED), quarantined=3),
            "Everything that was copied is equal; 3 documents could not be converted and are in quarantine.",
        ),
        (
            result(("schema", PASSED), ("parity", not_applicable("fresh start"))),
            "Every check that applies has passed.",
        ),
        (
            result(("schema", FAILED), ("parity", PASSED)),
            "The two sides are not equal: 1 of 2 checks failed.",
        ),
        (
            result(("parity", unverified("x")), errored=True),
            "The verification did not finish: 1 of 1 check ended in an error.",
        ),
        (
            result(("schema", PASSED), ("parity", unverified("x"))),
            "No difference was found, but 1 of 2 checks could not be made.",
        ),
        (
            result(("schema", PASSED), areas=(Area(name="parity", title="P", status="skipped"),)),
            "No difference was found, but parity was left out on request.",
        ),
        (result(), "Nothing was verified: no check was made."),
        (
            result(("schema", PASSED), ("parity", unverified("x")), quarantined=1),
            "No difference was found, but 1 of 2 checks could not be made; 1 document is in quarantine.",
        ),
        (
            result(("schema", FAILED), ("parity", PASSED), quarantined=2),
            "The two sides are not equal: 1 of 2 checks failed; 2 documents are in quarantine.",
        ),
    ],
)
def test_the_verdict_in_one_sentence(given: Result, sentence: str) -> None:
    assert wording.verdict_sentence(given) == sentence


@pytest.mark.parametrize(
    ("area", "word"),
    [
        ("schema", "Not equal"),
        ("parity", "Not equal"),
        ("semantics", "Not equal"),
        ("behaviour", "Failed"),
        ("cutover", "Failed"),
        ("performance", "Failed"),
        ("sensitivity", "Failed"),
    ],
)
def test_only_a_check_of_the_data_says_that_the_two_sides_differ(area: str, word: str) -> None:
    assert wording.verdict_words(result((area, FAILED), ("parity", PASSED))) == word


def test_equality_is_never_claimed_without_a_comparison() -> None:
    for outcome in (not_applicable("fresh start"), unverified("no server")):
        assert "lost or changed" not in wording.verdict_sentence(result(("schema", PASSED), ("parity", outcome)))


def test_what_the_verdict_rests_on_adds_the_documents_up() -> None:
    counts = CollectionCounts(
        collection="runs",
        tables=("runs",),
        documents=1_234,
        matched=1_200,
        quarantined=1,
        skipped={"expired": 30, "a": 3},
    )
    evidence = Evidence(checks=result(("parity", PASSED)).evidence.checks, collections=(counts,))
    assert wording.basis(build(evidence, Run(name="r")))[0] == (
        "1,234 documents of 1 collection were read, and 1,200 of them can be rebuilt from PostgreSQL, typed "
        "and complete; 1 is in quarantine; 33 were not copied, by rule (a 3, expired 30)."
    )


@pytest.mark.parametrize(("value", "text"), [(0, "0 ms"), (999, "999 ms"), (12_400, "12.4 s"), (185_000, "3 min 05 s")])
def test_durations(value: int, text: str) -> None:
    assert wording.milliseconds(value) == text


@pytest.mark.parametrize(
    ("names", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_lists_of_names(names: list[str], text: str) -> None:
    assert wording.listed(names) == text


@pytest.mark.parametrize("text", ["\x00", "\u202e", "\u200b", "\x1b[31m", "a\nb", "\t"])
def test_what_does_not_print_is_spelled_out(text: str) -> None:
    assert wording.visible(text).isprintable()


def test_a_long_key_keeps_its_two_ends() -> None:
    shown = wording.visible("a" * 500 + "b" * 500)
    assert len(shown) < 100
    assert shown.startswith("aaa")
    assert shown.endswith("bbb")


def test_a_part_of_a_bar_that_is_there_can_be_seen_and_the_parts_fill_it() -> None:
    cut = share_bars([("clean", "equal", 1_000_000), ("quarantined", "in quarantine", 1), ("apart", "apart", 0)])
    assert [one.kind for one in cut] == ["clean", "quarantined"]
    assert cut[1].width >= 6
    assert sum(one.width for one in cut) == 1_000
    assert share_bars([("clean", "equal", 0)]) == ()
