"""The cover: whether the cutover could be made, what nobody asked for, and the decisions on the quarantine."""

import msgspec
import pytest

from migrator.report import renderer, wording
from migrator.report.view import arrange
from migrator.result import (
    FAILED,
    PASSED,
    Area,
    Check,
    Evidence,
    Measurement,
    Outcome,
    Policy,
    Quarantined,
    Result,
    Run,
    build,
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
    assert (found.word, found.status) == (word, status)
    assert found.why


@pytest.mark.proves("0-T2.11.6")
def test_the_open_gates_are_named_with_their_reason() -> None:
    given = result(PASSED, gates=(MET, OPEN))
    assert wording.open_gates(given) == [("fence", "no authentication")]
    assert "fence</b>: no authentication" in renderer.html(given).decode()
    assert "Every gate was met" in renderer.html(result(PASSED)).decode()
    assert "The gates were not evaluated in this run." in renderer.html(result(PASSED, gates=None)).decode()


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
    assert "☐ accept ☐ mend ☐ drop" in renderer.html(result(PASSED, quarantine=(LINE,))).decode()


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
