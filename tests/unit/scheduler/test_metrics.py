"""Figures as Prometheus text, thresholds on them, rates."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from migrator import states
from migrator.errors import UsageError
from migrator.prometheus import Sample, prometheus_text
from migrator.scheduler import queries
from migrator.scheduler.client import Scheduler
from migrator.scheduler.metrics import (
    OPTIONAL_SAMPLES,
    collect_samples,
    crossed,
    parse_threshold,
)
from migrator.store.queue import served_tenants
from migrator.testing.memory.store import MemoryStore
from tests.contract.rows import run, schedule

NOW = datetime(2025, 11, 2, 8, tzinfo=UTC)
READY = [
    Sample(name="runs_ready", help="Waiting.", value=3, labels={"tenant": "b"}),
    Sample(name="runs_ready", help="Waiting.", value=0.5, labels={"tenant": 'a"\\\n'}),
    Sample(name="leader", help="One.", value=1.0),
]


def test_the_text_is_prometheus_s() -> None:
    assert prometheus_text(READY) == (
        "# HELP migrator_leader One.\n"
        "# TYPE migrator_leader gauge\n"
        "migrator_leader 1.0\n"
        "# HELP migrator_runs_ready Waiting.\n"
        "# TYPE migrator_runs_ready gauge\n"
        'migrator_runs_ready{tenant="a\\"\\\\\\n"} 0.5\n'
        'migrator_runs_ready{tenant="b"} 3.0\n'
    )


@pytest.mark.proves("0-T2.12.5", "3-O2")
@pytest.mark.parametrize(
    ("bound", "given", "sentences"),
    [
        ("max", "runs_ready=2", ["runs_ready (tenant b) is 3, max 2"]),
        ("max", "runs_ready=3", []),
        (
            "max",
            "migrator_runs_ready=0",
            ["runs_ready (tenant b) is 3, max 0", 'runs_ready (tenant a"\\\n) is 0.5, max 0'],
        ),
        ("min", "leader=1", []),
        ("min", "leader=2", ["leader is 1, min 2"]),
    ],
)
def test_a_threshold_is_crossed_beyond_it_only(bound: str, given: str, sentences: list[str]) -> None:
    threshold = parse_threshold(bound, given)  # type: ignore[arg-type] # one of the two
    assert list(crossed(READY, [threshold])) == sentences


def test_a_threshold_on_what_there_is_not() -> None:
    with pytest.raises(UsageError, match="no metric speed; there are: leader, runs_ready"):
        list(crossed(READY, [parse_threshold("max", "speed=1")]))
    assert list(crossed(READY, [parse_threshold("max", "speed=1")], {"speed"})) == []
    for wrong in ("speed", "speed=", "speed=fast", ""):
        with pytest.raises(UsageError, match="--max: expected NAME=NUMBER"):
            parse_threshold("max", wrong)


def test_the_metrics_are_those_of_each_tenant_that_the_scheduler_serves() -> None:
    store = MemoryStore(clock=lambda: NOW)
    for tenant in ("a", "b", "~verify-1"):
        with store.session(tenant, now=NOW) as session:
            of = session.schedules.upsert(schedule(tenant))
            session.runs.create(run(tenant, schedule_id=of.id, created_at=NOW))
            session.runs.create(
                run(tenant, schedule_id=of.id, created_at=NOW, started_at=NOW, finished_at=NOW, state="completed")
            )
    assert served_tenants(store.queue) == ["a", "b"]
    found = {
        (one.name, *sorted(one.labels.values())): one.value
        for one in collect_samples(store, served_tenants(store.queue), now=NOW)
    }
    assert found["runs_ready", "a"] == found["runs_ready", "b"] == 1
    assert found["jobs", "a", "scheduled"] == 1
    assert found["success_rate_percent", "a"] == 100
    assert found["run_duration_seconds", "0.95", "b"] == 0
    assert (found["scheduler_leader",], found["scheduler_instances", "alive"]) == (0, 0)
    assert {name for name, *_ in found} >= OPTIONAL_SAMPLES
    empty = {one.name for one in collect_samples(MemoryStore(), ["c"], now=NOW)}
    assert not empty & OPTIONAL_SAMPLES


@pytest.mark.proves("3-B9")
def test_rates_of_nothing_are_none_and_of_something_add_up() -> None:
    nothing = dict.fromkeys(states.RUN, 0)
    assert queries.success_rate(nothing) is queries.failure_rate(nothing) is queries.completed_share(nothing) is None
    some = nothing | {"completed": 2, "error": 1, "running": 3, "skipped": 1, "cancelled": 1}
    assert (queries.success_rate(some), queries.failure_rate(some), queries.completed_share(some)) == (
        66.67,
        33.33,
        25.0,
    )
    assert queries.decided_runs(some) == 3


def test_the_facade_of_an_unknown_run_is_none() -> None:
    assert Scheduler(MemoryStore(), "t").get_execution(uuid4()) is None
