"""The figures per column: who has none, and who should have."""

import msgspec
import pytest

from migrator.config import Settings
from migrator.parity.model import AggregateResult, CollectionComparison, ColumnCount, ParityOutcome
from migrator.result import Result
from migrator.verify.checks import parity
from migrator.verify.checks.parity import COLUMN_CHECKS
from migrator.verify.request import Request
from migrator.verify.runner import verify

RUNS = CollectionComparison(
    collection="runs",
    tables=("runs",),
    documents=1,
    matched=1,
    rows=1,
    columns=(ColumnCount(table="runs", column="reason", compared=1, differing=0),),
)
FILLED = AggregateResult(
    collection="runs", table="runs", measure="column reason filled", kind="sum", tenants=1, compared=1
)
OUTCOME = ParityOutcome(profile="stellaops/1", collections=(RUNS,), aggregates=(), columns=(FILLED,))


def verified(outcome: ParityOutcome, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setattr(parity, "compare", lambda _context: outcome)
    return verify(Settings(), Request(run_name="r"), checks=COLUMN_CHECKS)


@pytest.mark.parametrize(
    ("profile", "columns", "status"),
    [
        ("stellaops/1", (FILLED,), "passed"),
        ("stellaops/1", (), "unverified"),
        ("agenda/1", (), "not-applicable"),
        ("agenda/1", (FILLED,), "passed"),
    ],
)
def test_figures_that_are_not_there_are_doubtful_only_where_some_should_be(
    profile: str, columns: tuple[AggregateResult, ...], status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = msgspec.structs.replace(OUTCOME, profile=profile, columns=columns)
    result = verified(outcome, monkeypatch)
    (check,) = result.evidence.checks
    assert check.outcome.status == status
    assert ("derives every column" in (check.outcome.reason or "")) == (status == "not-applicable")
    assert bool(check.panels) == bool(check.counts) == (status != "not-applicable"), "what does not apply has no table"
    assert bool(result.exit_status() & 4) == (status == "unverified")
