"""The cover: whether the cutover could be made, what nobody asked for, and the decisions on the quarantine."""

import re

import msgspec
import pytest

from migrator.report import renderer, wording
from migrator.report.view import arrange
from migrator.result import (
    FAILED,
    PASSED,
    Area,
    Check,
    CutoverState,
    Decision,
    Evidence,
    Measurement,
    Outcome,
    Policy,
    Quarantined,
    Result,
    Run,
    build,
    not_applicable,
    not_asked_for,
    table_panel,
    unverified,
)

OPEN = ("fence", "not met", "no authentication")
MET = ("schema", "met", "at its latest revision")


def result(*outcomes: Outcome, gates: tuple[tuple[str, str, str], ...] | None = (MET,), **more: object) -> Result:
    checks = [
        Check(id=f"parity.{number}", area="parity", title="t", outcome=one) for number, one in enumerate(outcomes)
    ]
    run = Run(name="r")
    if gates is not None:
        checks.append(Check(id="cutover.gates", area="cutover", title="gates", outcome=PASSED, can_fail=False,
                            counts={"gates": len(gates)}))  # fmt: skip
        unmet = sum(one[1] != "met" for one in gates)
        run = Run(
            name="r",
            panels={"cutover.gates": (table_panel("Cutover readiness", ("gate", "now", "why"), gates),)},
            measurements=(Measurement(check="cutover.gates", name="gates not met now", unit="", value=unmet),),
        )
    return build(Evidence(checks=tuple(checks), **more), run)  # type: ignore[arg-type] # fields of the evidence


@pytest.mark.parametrize(
    ("given", "word", "status"),
    [
        (result(PASSED), "yes", "passed"),
        (result(PASSED, gates=(MET, OPEN)), "no", "unverified"),
        (result(FAILED), "no", "failed"),
        (result(FAILED, gates=None), "no", "failed"),
        (result(PASSED, gates=None), "not known", "unverified"),
        (result(unverified("no server")), "not known", "unverified"),
    ],
)
def test_ready_for_the_cutover(given: Result, word: str, status: str) -> None:
    found = wording.readiness(given)
    assert (found.sentence, found.status) == (wording.READY.format(word), status)
    assert found.why


@pytest.mark.proves("0-T2.11.6")
def test_the_open_gates_are_named_with_their_reason() -> None:
    given = result(PASSED, gates=(MET, OPEN))
    assert wording.open_gates(given) == [("fence", "no authentication")]
    assert "fence</b>: no authentication" in renderer.html(given).decode()
    assert "Every gate was met" in renderer.html(result(PASSED)).decode()
    assert "The gates were not evaluated in this run." in renderer.html(result(PASSED, gates=None)).decode()


BEGAN, OPENED, ENDED = (f"2026-11-28T{hour}:00:00+00:00" for hour in (19, 20, 21))


def after_a_cutover(state: str, *outcomes: Outcome) -> Result:
    given = result(*outcomes or (PASSED,), gates=(MET, OPEN) if state == "rolled-back" else None)
    opened = {} if state == "aborted" else {"opened_at": OPENED}
    cutover = CutoverState(state=state, began_at=BEGAN, ended_at=ENDED, **opened)  # type: ignore[arg-type] # as parametrized
    return build(given.evidence, msgspec.structs.replace(given.run, cutover=cutover))


@pytest.mark.parametrize(
    ("given", "sentence", "why", "status"),
    [
        (
            after_a_cutover("finished"),
            "PostgreSQL holds the data since 2026-11-28 20:00:00 UTC.",
            ("The cutover was finished on 2026-11-28 21:00:00 UTC: it cannot be rolled back.",),
            "passed",
        ),
        (
            after_a_cutover("finished", FAILED),
            "PostgreSQL holds the data since 2026-11-28 20:00:00 UTC.",
            ("The cutover was finished on 2026-11-28 21:00:00 UTC: it cannot be rolled back.", "1 check failed."),
            "failed",
        ),
        (
            after_a_cutover("cut-over", unverified("x")),
            "PostgreSQL holds the data since 2026-11-28 20:00:00 UTC.",
            ("The cutover was made; migrator cutover finish has not ended it yet.", "Not everything was verified."),
            "unverified",
        ),
        (
            after_a_cutover("running"),
            "The cutover has begun, 2026-11-28 19:00:00 UTC, and is not complete.",
            (
                "PostgreSQL is open since 2026-11-28 20:00:00 UTC.",
                "migrator cutover status names the command that leads on.",
            ),
            "unverified",
        ),
        (
            after_a_cutover("rolled-back"),
            "Ready for the cutover: no.",
            ("1 of 2 gates is not met: fence.",),
            "unverified",
        ),
    ],
    ids=["finished", "finished, and a check failed", "cut over", "running", "rolled back"],
)
def test_after_a_cutover_the_page_says_since_when_and_not_whether_it_is_ready(
    given: Result, sentence: str, why: tuple[str, ...], status: str
) -> None:
    found = wording.readiness(given)
    assert (found.sentence, found.why, found.status) == (sentence, why, status)
    for page in (renderer.html(given).decode(), renderer.markdown(given).decode()):
        assert sentence in page
        is_over = not sentence.startswith("Ready")
        assert ("Ready for the cutover" not in page) == is_over
        assert ("The gates held for the cutover" in page) == is_over
    assert any("gates" in one for one in wording.basis(given)) != is_over
    assert wording.signed_for(given)[-1] == f"{sentence} A signature does not change that."


def test_a_decision_without_a_reason_says_nothing_of_one() -> None:
    decisions = (
        Decision(kind="control", who="op", at=BEGAN, why="", tool="t"),
        Decision(kind="rollback", who="op", at=ENDED, why="it is slow.", tool="t"),
    )
    assert wording.basis(result(PASSED, decisions=decisions))[-2:] == [
        "control: decided by op on 2026-11-28 19:00:00 UTC.",
        "rollback: decided by op on 2026-11-28 21:00:00 UTC, because it is slow.",
    ]


def test_an_area_that_does_not_apply_is_named_once_and_its_checks_nowhere() -> None:
    given = result(PASSED, not_applicable("of the scheduler"), gates=None)
    own = tuple(
        msgspec.structs.replace(one, area="locking", id="locking.leases", title="a lease ends", limits=("no clock",))
        if one.outcome.status == "not-applicable"
        else one
        for one in given.evidence.checks
    )
    areas = (
        Area(name="parity", title="P", status="checked"),
        Area(name="locking", title="Locks", status="not-applicable", reason="of the scheduler"),
        Area(name="transitions", title="T", status="not-applicable", reason="of the scheduler"),
    )
    given = build(msgspec.structs.replace(given.evidence, checks=own, areas=areas), given.run)
    view = arrange(given)
    assert [(one.what, one.why) for one in view.gaps] == [("Areas locking and transitions", "of the scheduler")]
    assert view.limits == []
    assert {"transitions", "locking"} & {section.anchor for section, _ in view.sections} == set()
    for page in (renderer.html(given).decode(), renderer.markdown(given).decode()):
        assert "a lease ends" not in page
        assert "1 check: 1 passed." in page
    assert "  not applicable: area locking (of the scheduler)" in wording.terminal_lines(given, "r"), "asked for"


def test_what_nobody_asked_for_is_named_with_its_option() -> None:
    areas = (Area(name="sensitivity", title="S", status="not-asked-for", reason="made only with --sensitivity"),)
    given = result(PASSED, not_asked_for("made only with --behaviour N"), areas=areas)
    assert wording.not_requested(given) == [
        "S (sensitivity): made only with --sensitivity",
        "t (parity.1): made only with --behaviour N",
    ]


LINE = Quarantined(collection="runs", reason="bad-value", path="state", count=3, keys=("a", "b", "c"))


def test_a_document_in_quarantine_waits_for_a_decision() -> None:
    (line,) = arrange(result(PASSED, quarantine=(LINE,))).decide
    assert (line.reason, line.count, line.decision, line.who) == ("bad-value", 3, "", "")
    page = renderer.html(result(PASSED, quarantine=(LINE,))).decode()
    assert "☐ accept ☐ mend ☐ drop" in re.sub(r"<[^>]+>", "", page)


def test_documents_that_were_allowed_are_accepted_up_to_the_number() -> None:
    for allowed, decision in ((3, "accepted"), ("all", "accepted"), (2, "")):
        policy = Policy(allow_quarantined=allowed)  # type: ignore[arg-type] # one of each kind
        (line,) = arrange(result(PASSED, quarantine=(LINE,), policy=policy)).decide
        assert line.decision == decision


def test_documents_that_were_dropped_stand_with_who_and_why() -> None:
    given = result(PASSED)
    columns = ("collection", "_id", "code", "path", "who", "why", "when")
    rows = tuple(("runs", key, "bad-value", "state", "op", "a test document", "2026-11-22") for key in ("x", "y", "z"))
    dropped = Check(id="parity.quarantine", area="parity", title="q", outcome=PASSED,
                    panels=(table_panel("Dropped from quarantine", columns, rows),))  # fmt: skip
    given = build(msgspec.structs.replace(given.evidence, checks=(*given.evidence.checks, dropped)), given.run)
    (line,) = arrange(given).decide
    assert (line.count, line.keys, line.decision, line.who) == (3, ("x", "y"), "dropped", "op, because a test document")
