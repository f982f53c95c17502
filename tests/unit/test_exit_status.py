"""The exit status: every combination of what can be true, one place, the same words everywhere."""

import ast
import itertools
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from migrator import exit_status
from migrator.cli import cli
from migrator.errors import MigratorError, UnreachableError, UsageError
from migrator.exit_status import mask, meaning
from migrator.report import wording
from migrator.report.areas import split_fail_on
from migrator.result import (
    FAILED,
    PASSED,
    Area,
    Cell,
    Check,
    Evidence,
    Measurement,
    Outcome,
    Policy,
    Quarantined,
    Result,
    Run,
    Tally,
    build,
    not_applicable,
    unverified,
)

ROOT = Path(__file__).resolve().parents[2]
FLAGS = (False, True)


def check(name: str, outcome: Outcome, *, area: str = "locking", **more: object) -> Check:
    return Check(id=f"{area}.{name}", area=area, title=name, outcome=outcome, **more)  # type: ignore[arg-type]


WARNING = Tally(severity="warning", cause="slow", title="slow", count=1)
EXPLAINED = Tally(severity="explained", cause="orphan", title="an orphan", count=1)
CIRCUMSTANCES: dict[str, tuple[int, dict[str, tuple[object, ...]]]] = {
    "a failed check": (1, {"checks": (check("failed", FAILED),)}),
    "a failed check that is accepted": (0, {"checks": (check("crud", FAILED, area="crud"),)}),
    "a warning in an area that fails on it": (
        1,
        {"checks": (check("slow", PASSED, area="performance", tallies=(WARNING,)),)},
    ),
    "a warning elsewhere": (0, {"checks": (check("warned", PASSED, area="workers", tallies=(WARNING,)),)}),
    "a explained finding": (0, {"checks": (check("explained", PASSED, tallies=(EXPLAINED,)),)}),
    "a check that could not be made": (4, {"checks": (check("unsure", unverified("no server")),)}),
    "a table that could not be compared": (
        4,
        {"checks": (check("partly", PASSED, cells=(Cell(table="runs", outcome=unverified("x")),)),)},
    ),
    "an area that was left out": (4, {"areas": (Area(name="triggers", title="T", status="skipped"),)}),
    "an area that does not apply": (0, {"areas": (Area(name="cutover", title="C", status="not-applicable"),)}),
    "documents in quarantine": (8, {"quarantine": (Quarantined(collection="runs", reason="bad-date", count=3),)}),
    "a check that errored": (16, {"checks": (check("errored", PASSED, errored=True),)}),
}
ACCEPTED = list(CIRCUMSTANCES).index("a failed check that is accepted")
POLICY = Policy(fail_on=("performance",), accepted=("crud",))


def result_of(chosen: tuple[bool, ...]) -> tuple[Result, int]:
    parts: dict[str, tuple[object, ...]] = {"checks": (check("passed", PASSED), check("na", not_applicable("x")))}
    bits = 0
    for wanted, (bit, given) in zip(chosen, CIRCUMSTANCES.values(), strict=True):
        if wanted:
            bits |= bit
            for name, some in given.items():
                parts[name] = (*parts.get(name, ()), *some)
    return build(Evidence(policy=POLICY, **parts), Run(name="r")), bits  # type: ignore[arg-type]


def test_every_combination_of_circumstances_has_the_sum_of_their_bits() -> None:
    for chosen in itertools.product(FLAGS, repeat=len(CIRCUMSTANCES)):
        result, bits = result_of(chosen)
        assert result.exit_status() == bits, chosen
        word = result.verdict()
        accepted = chosen[ACCEPTED]
        assert (word == "equal") == (bits == 0 and not accepted), chosen
        assert (word == "accepted") == (accepted and not bits & 21), chosen
        assert (word == "different") == bool(bits & 1), chosen
        assert (word == "tool-failed") == (bits & 17 == 16), chosen
        assert (word == "unverified") == (bits & 21 == 4), chosen
        assert ("declared acceptable" in wording.verdict_sentence(result)) == accepted


def test_the_bits_are_apart_and_each_has_its_words() -> None:
    assert list(exit_status.MEANINGS) == [1, 2, 4, 8, 16]
    names = ("different", "unverified", "quarantine", "tool_failed")
    bits = (1, 4, 8, 16)
    for chosen in itertools.product(FLAGS, repeat=4):
        expected = sum(bit for bit, wanted in zip(bits, chosen, strict=True) if wanted)
        assert mask(**dict(zip(names, chosen, strict=True))) == expected
        assert all((exit_status.MEANINGS[bit] in meaning(expected)) == bool(expected & bit) for bit in bits)
    assert meaning(0) == "everything that was checked is equal"


def test_errors_have_their_bit() -> None:
    assert UsageError.exit_status == exit_status.USAGE
    assert UnreachableError.exit_status == MigratorError.exit_status == exit_status.TOOL_FAILED


SAID_ELSEWHERE = ("mask(", "exit_status()", "done.exit_status", "run_demo(", "parity_status(")
"""What may be given to ``finish``, beside 0: the bits of the one place, or a result that was made of them."""


def test_no_other_module_says_what_a_bit_is() -> None:
    names = {"DIFFERENT", "UNVERIFIED", "QUARANTINE", "TOOL_FAILED", "USAGE", "INTERRUPTED", "UNFINISHED"}
    found = set()
    for path in sorted((ROOT / "migrator").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if isinstance(node.value.value, int) and {ast.unparse(one) for one in targets} & names:
                    found.add(str(path.relative_to(ROOT)))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "finish":
                given = ast.unparse(node.args[0])
                assert given == "0" or any(word in given for word in SAID_ELSEWHERE), f"{path.name}: finish({given})"
    assert found == {"migrator/exit_status.py"}


def test_the_page_and_the_help_name_every_bit() -> None:
    page = (ROOT / "docs" / "exit-status.md").read_text()
    assert all(f"\n| {bit} | " in page for bit in (0, *exit_status.MEANINGS))
    help_text = " ".join(CliRunner().invoke(cli, ["--help"]).output.split())
    assert all(f"{bit} " in help_text for bit in exit_status.MEANINGS)


def test_a_measurement_above_its_ceiling_fails_only_where_that_was_asked_for() -> None:
    slow = check("claim", PASSED, area="performance")

    def status(ceiling: float, *fail_on: str) -> int:
        measured = Measurement(check=slow.id, name="p95", unit="ms", value=12.0, ceiling=ceiling)
        evidence = Evidence(checks=(slow,), policy=Policy(fail_on=fail_on))
        return build(evidence, Run(name="r", measurements=(measured,))).exit_status()

    assert status(10.0) == 0
    assert status(10.0, "performance") == 1
    assert status(12.0, "performance") == 0
    assert status(10.0, "locking") == 0


def test_fail_on_widens_and_narrows() -> None:
    assert split_fail_on(["performance", "no-crud", "performance"]) == (("performance",), ("crud",))
    assert split_fail_on([]) == ((), ())


@pytest.mark.parametrize("area", ["schema", "parity", "semantics", "isolation"])
def test_a_difference_in_the_data_cannot_be_declared_acceptable(area: str) -> None:
    with pytest.raises(UsageError, match=f"--fail-on no-{area}: a difference found there is never acceptable"):
        split_fail_on([f"no-{area}"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["crud", "no-crud"], "contradict each other"),
        (["no-lockin"], "--fail-on no-lockin: no such area; did you mean locking"),
        (["lockin"], "--fail-on lockin: no such area; did you mean locking"),
        (["none"], "no such area"),
    ],
)
def test_what_fail_on_does_not_know_is_refused(given: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        split_fail_on(given)


def test_what_was_accepted_stays_failed_and_is_said() -> None:
    failed = check("crud", FAILED, area="crud")
    result = build(Evidence(checks=(failed,), policy=POLICY), Run(name="r"))
    assert result.exit_status() == 0
    assert result.verdict() == "accepted"
    assert result.statuses()["failed"] == 1
    assert "1 failed check of crud was declared acceptable" in wording.verdict_sentence(result)
    aside = msgspec.structs.replace(
        result.evidence, quarantine=(Quarantined(collection="runs", reason="bad-date", count=1),)
    )
    assert build(aside, result.run).verdict() == "accepted"
    assert build(aside, result.run).exit_status() == 8
