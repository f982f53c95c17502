"""The ceilings of ``benchmarks/scheduler.py``: a figure above one is told, and the recorded figures are below."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scheduler import CEILINGS, CLAIM_AT, CLAIM_P99_OF, JOBS, TOGETHER, Ceiling, claims_judged, judged

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "scheduler.json"
CAPABILITIES = ["2-X15", "3-P1", "3-P2", "3-P3", "3-P4"]
KEPT = ["2-X15", "3-P1", "3-P2", "3-P4"]
"""Whose ceilings the recorded figures keep; the others are told as not shown in docs/capabilities.md."""


def measured(**changes: float) -> dict[str, Any]:
    lines = [
        {
            "backend": "postgres", "triggers": JOBS, "instances": one.instances,
            "operation": f"{one.operation}, so many", "p95": changes.get(one.operation.split()[0], one.milliseconds),
        }
        for one in CEILINGS
    ]  # fmt: skip
    return {"lines": lines, "throughput": [{"triggers": JOBS, "batch": 10, "runs/s": changes.get("rate", 6_000)}]}


def test_figures_at_their_ceilings_are_no_miss() -> None:
    assert judged(measured()) == {name: [] for name in CAPABILITIES}


@pytest.mark.parametrize("ceiling", CEILINGS, ids=lambda one: one.operation)
def test_a_figure_above_its_ceiling_is_a_miss(ceiling: Ceiling) -> None:
    found = judged(measured(**{ceiling.operation.split()[0]: ceiling.milliseconds + 0.1}))
    assert {name for name, missed in found.items() if missed} == {ceiling.capability}


def test_too_few_runs_a_second_are_a_miss() -> None:
    assert judged(measured(rate=5_999))["3-P1"]


def test_what_was_measured_with_less_is_not_judged() -> None:
    for name, value in (("triggers", JOBS - 1), ("instances", TOGETHER + 1), ("backend", "mongo")):
        result = deepcopy(measured())
        for line in (*result["lines"], *result["throughput"]):
            line[name] = value
        assert set(judged(result)) <= {"3-P1"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.proves(name)) for name in KEPT])
def test_the_recorded_figures_keep_to_their_ceilings(name: str) -> None:
    """The figures in the checkout, as measured on a quiet machine with two cores; a new measurement is judged anew."""
    found = judged(json.loads(RESULTS.read_text(encoding="utf-8")))
    assert found[name] == []


@pytest.mark.parametrize("backend", ["postgres", "mongo"])
@pytest.mark.parametrize(("instances", "most"), CLAIM_P99_OF.items())
def test_claims_of_one_run_are_judged_on_both_backends(backend: str, instances: int, most: float) -> None:
    line = {
        "backend": backend, "instances": instances, "operation": "claim, batch 1", "p99": most,
        "backlog": CLAIM_AT, "explicit": 10_000,
    }  # fmt: skip
    slow, batch, short = line | {"p99": most + 0.1}, line | {"operation": "claim, batch 10"}, line | {"backlog": 9}
    assert [met for _, met in claims_judged({"lines": [line, slow, batch, short]})] == [True, False]
