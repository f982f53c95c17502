"""The runner: every check's outcome reaches the result, also when the check ends in an error."""

import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from migrator.cli import cli
from migrator.config import MongoSettings, Settings
from migrator.errors import ConfigurationError, RefusedError, UnreachableError, UsageError
from migrator.exit_status import UNVERIFIED
from migrator.report import run_folder
from migrator.report.areas import AREAS
from migrator.result import (
    FAILED,
    PASSED,
    Measurement,
    Outcome,
    Panel,
    Quarantined,
    Result,
    not_applicable,
    unverified,
)
from migrator.verify.check import CheckContext, CheckResult, CheckSpec, outcome_of
from migrator.verify.registry import EVERY_CHECK
from migrator.verify.request import Request
from migrator.verify.runner import planned_checks, verify

NOWHERE = Settings(mongo=MongoSettings())


def spec(name: str, outcome: Outcome | None = None, error: Exception | None = None) -> CheckSpec:
    def run(context: CheckContext) -> CheckResult:
        with context.timed("shared"):
            pass
        if error is not None:
            raise error
        return CheckResult(outcome=outcome or PASSED)

    return CheckSpec(id=name, title="it holds", run=run)


def run(*specs: CheckSpec, request: Request | None = None) -> Result:
    return verify(NOWHERE, request or Request(run_name="r"), checks=specs)


@pytest.mark.parametrize("outcome", [PASSED, FAILED, unverified("x"), not_applicable("y")])
def test_outcomes_are_kept(outcome: Outcome) -> None:
    result = run(spec("schema.a", outcome))
    assert [check.outcome for check in result.evidence.checks] == [outcome]
    assert not result.evidence.checks[0].errored


def test_an_unreachable_server_leaves_its_check_unverified_and_the_others_go_on() -> None:
    result = run(spec("schema.a", error=UnreachableError("the target went away")), spec("schema.b"))
    first, second = result.evidence.checks
    assert first.outcome == unverified("the target went away")
    assert first.errored
    assert second.outcome == PASSED
    assert result.exit_status() == 20


def test_a_refusal_is_unverified_without_being_a_failure_of_the_tool() -> None:
    result = run(spec("parity.a", error=RefusedError("nothing was copied yet")))
    assert result.exit_status() == 4


def test_a_fault_of_a_check_is_unverified_and_logged(capsys: pytest.CaptureFixture[str]) -> None:
    result = run(spec("schema.a", error=KeyError("secret value")))
    assert result.evidence.checks[0].outcome == unverified("the check itself is faulty: KeyError")
    assert result.exit_status() == 20
    assert "verify.check_broke" in capsys.readouterr().err


def test_missing_settings_end_the_verification() -> None:
    with pytest.raises(ConfigurationError):
        run(spec("schema.a", error=ConfigurationError("postgres.dsn is not set")))


@pytest.mark.parametrize(
    ("request_", "made", "skipped"),
    [
        (Request(), ["schema.a", "parity.a"], set()),
        (Request(only=("schema",)), ["schema.a"], {"parity"}),
        (Request(skip=("schema",)), ["parity.a"], {"schema"}),
        (Request(only=("schema", "parity"), skip=("parity",)), ["schema.a"], {"parity"}),
    ],
)
def test_areas_that_were_left_out_are_skipped_never_passed(
    request_: Request, made: list[str], skipped: set[str]
) -> None:
    result = run(spec("schema.a"), spec("parity.a"), request=request_)
    assert [check.id for check in result.evidence.checks] == made
    standing = {area.name: area.status for area in result.evidence.areas}
    assert {name for name, one in standing.items() if one == "skipped"} == skipped
    assert result.exit_status() == (4 if skipped else 0)
    assert result.evidence.policy.only == request_.only


def test_a_single_check_is_made_and_the_rest_of_its_area_is_left_out() -> None:
    chosen, other = EVERY_CHECK[0].id, EVERY_CHECK[1].id
    assert chosen.partition(".")[0] == other.partition(".")[0]
    request = Request(only=(chosen,))
    assert [one.id for one in planned_checks(request)] == [chosen]
    found = run(spec(chosen), spec(other), request=request)
    assert [check.id for check in found.evidence.checks] == [chosen]
    [area] = [one for one in found.evidence.areas if one.name == chosen.partition(".")[0]]
    assert (area.status, area.reason) == ("skipped", f"left out by --only, but for {chosen}")
    assert found.evidence.policy.only == (chosen,)
    assert found.exit_status() == UNVERIFIED


def test_the_load_test_belongs_to_what_is_chosen() -> None:
    for only in (("performance",), ("performance.load",), ()):
        assert "performance.load" in {one.id for one in planned_checks(Request(only=only, load=True))}
    for only in (("schema",), ("performance.connections",)):
        with pytest.raises(UsageError, match="--load is a test of the area performance"):
            planned_checks(Request(only=only, load=True))


def test_a_check_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^--only schema\.no: no such check; --only schema --dry-run lists those"):
        planned_checks(Request(only=("schema.no",)))
    with pytest.raises(UsageError, match=r"^--only skema\.no: no such area"):
        planned_checks(Request(only=("skema.no",)))


def test_without_a_source_the_fresh_start_is_named_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIGRATOR_POSTGRES__DSN", "postgresql://127.0.0.1:1/none")
    for options in ([], ["--dry-run"], ["--only", "parity"]):
        with pytest.raises(ConfigurationError, match="say so: migrator verify --fresh-start --who NAME --reason WHY"):
            CliRunner().invoke(cli, ["verify", *options], catch_exceptions=False)
    planned = CliRunner().invoke(cli, ["verify", "--only", "schema", "--dry-run"])
    assert planned.exit_code == 0, "it compares with no source"


def test_the_help_names_every_area() -> None:
    told = " ".join(CliRunner().invoke(cli, ["verify", "--help"]).output.split())
    assert f"The areas: {', '.join(AREAS)}." in told


def test_areas_without_checks_are_absent_and_set_no_bit() -> None:
    result = run(spec("schema.a"))
    standing = {area.name: area.status for area in result.evidence.areas}
    assert list(standing) == list(AREAS)
    assert {name for name, one in standing.items() if one == "absent"} == set(AREAS) - {"schema"}
    assert result.exit_status() == 0


@pytest.mark.parametrize("asked", [{"only": ("pariti",)}, {"skip": ("pariti",)}, {"fail_on": ("pariti",)}])
def test_an_unknown_area_is_refused_with_the_nearest_name(asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no such area; did you mean parity"):
        Request(**asked)


def test_two_runs_differ_only_in_their_run_section() -> None:
    first, second = run(spec("schema.a", FAILED)), run(spec("schema.a", FAILED), request=Request(run_name="other"))
    assert first.evidence == second.evidence
    assert first.digest == second.digest
    assert first.run != second.run


def test_the_parts_that_checks_found_are_put_together() -> None:
    def find(_context: CheckContext) -> CheckResult:
        return CheckResult(
            outcome=PASSED, quarantine=(Quarantined(collection="runs", reason="r", count=2),), left_out=("x",)
        )

    two = [CheckSpec(id=f"parity.{name}", title="t", run=find) for name in "ab"]
    evidence = run(*two).evidence
    assert evidence.quarantined == 4
    assert evidence.left_out == ("x", "x")


def test_what_varies_stands_outside_of_the_digest() -> None:
    def of(value: int) -> Result:
        one = Panel(kind="table", title="t", columns=("n",), rows=((value,),), rows_total=1)
        measured = Measurement(check="schema.a", name="m", unit="ms", value=float(value), ceiling=1.5)
        found = CheckResult(outcome=PASSED, varying=(one,), measurements=(measured,))
        return run(CheckSpec(id="schema.a", title="t", run=lambda _context: found))

    first, second = of(1), of(2)
    assert first.digest == second.digest
    assert first.run.panels["schema.a"][0].rows == ((1,),)
    assert [one.is_over for one in (*first.run.measurements, *second.run.measurements)] == [False, True]


def test_each_check_is_said_with_its_number_its_time_and_the_time_so_far() -> None:
    said: list[str] = []
    verify(NOWHERE, Request(run_name="r"), checks=[spec("schema.a"), spec("schema.b", FAILED)], say=said.append)
    assert [line.rpartition(" (")[0] for line in said] == [
        "verify: 1/2 schema.a: passed",
        "verify: 2/2 schema.b: failed",
    ]
    assert all(line.endswith(" in total)") for line in said)


def test_what_was_asked_for_is_recorded_in_the_order_of_the_areas() -> None:
    asked = Request(
        run_name="r", fail_on=("performance", "no-locking", "crud", "performance"), skip=("parity", "schema")
    )
    policy = run(spec("crud.a"), request=asked).evidence.policy
    assert policy.fail_on == ("crud", "performance")
    assert policy.accepted == ("locking",)
    assert policy.skip == ("schema", "parity")


def test_shared_steps_are_timed_apart() -> None:
    durations = run(spec("schema.a")).run.durations_ms
    assert set(durations) == {"schema.a", "shared"}


def test_wrong_beats_unsure_and_reasons_are_said_once() -> None:
    assert outcome_of(wrong=True, unsure=["x"]) == FAILED
    assert outcome_of(wrong=False, unsure=["x", "", "x", "y"]) == unverified("x; y")
    assert outcome_of(wrong=False) == PASSED


def test_every_check_belongs_to_an_area_and_has_a_name_of_its_own() -> None:
    checks = EVERY_CHECK
    assert len({one.id for one in checks}) == len(checks)
    for one in checks:
        assert one.area in AREAS
        assert one.id.startswith(f"{one.area}.")
        assert one.can_fail or not one.requirements, f"{one.id} cannot fail, so it shows no requirement"
        assert not one.title.endswith(".")
        assert all(limit.endswith(".") for limit in one.limits)


def test_folders_are_never_written_over(tmp_path: Path) -> None:
    assert [run_folder.make(tmp_path, "r").name for _ in range(3)] == ["r", "r-2", "r-3"]
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write reports"):
        run_folder.make(tmp_path / "file", "r")


def test_the_time_of_a_step_is_without_that_of_the_steps_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of all is the time that a report names."""
    readings = iter([0, 1, 5, 8])
    context = CheckContext(Settings())
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(readings) * 1_000_000)
    with context.timed("library"), context.timed("library: fires"):
        pass
    assert context.steps == {"library": 4, "library: fires": 4}
