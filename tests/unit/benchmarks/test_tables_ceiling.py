"""The ceiling of ``benchmarks/tables.py``: a copy above it is told, and the recorded ones are below."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tables import CEILING_JOBS, CEILING_S, judged

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "tables.json"


def measured(*seconds: float, jobs: int = CEILING_JOBS) -> dict[str, Any]:
    return {"jobs": jobs, "rounds": [{"backfill_s": one, "parity_s": 1.0} for one in seconds]}


def test_copies_at_the_ceiling_are_no_miss() -> None:
    assert judged(measured(1.0, CEILING_S)) == []


def test_one_copy_above_the_ceiling_is_a_miss() -> None:
    assert judged(measured(1.0, CEILING_S + 0.1))


def test_too_few_jobs_or_no_round_show_nothing() -> None:
    assert judged(measured(1.0, jobs=CEILING_JOBS - 1))
    assert judged(measured())


@pytest.mark.proves("3-A23")
def test_the_recorded_copies_keep_to_the_ceiling() -> None:
    """The figures in the checkout, as measured on a quiet machine with two cores; a new measurement is judged anew."""
    assert judged(json.loads(RESULTS.read_text(encoding="utf-8"))) == []
