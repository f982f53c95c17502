"""The scenarios of ``migrator verify`` on every backend of the suite, each in a tenant of its own.

What a scenario asserts, no test of the facade, the worker or the sweeper repeats. Here they run on the model in memory
(``MIGRATOR_TESTS=deep``: on every backend); on MongoDB and PostgreSQL they run through their checks, in
``tests/integration/verify_behaviour``.
"""

from typing import Any

import pytest

from migrator.scratch import ScopedStore, TenantScope
from migrator.store.protocols import Store
from migrator.verify.behaviour import crud, execution, isolation, locking, triggers, workers
from migrator.verify.behaviour.harness import Harness
from migrator.verify.behaviour.scenarios import Observations, Scenario, ScenarioCheck
from migrator.verify.registry import EVERY_CHECK
from tests.contract.rows import fresh

ELSEWHERE = (locking.contention, isolation.rows)
"""Need several processes, or PostgreSQL: they run through their checks alone."""
SHOWS = {
    crud.schedule_lifecycle: ("0-T2.11.1", "2-F1", "4-J7", "4-S1"),
    triggers.one_time: ("2-F2", "2-X9"),
    triggers.bounds: ("2-F3", "2-F3b", "2-F3c"),
    triggers.intervals: ("2-X9",),
    triggers.misfires: ("2-F3d",),
    triggers.pause_and_resume: ("2-F10", "2-F11", "3-B5", "3-B6"),
    triggers.disabled: ("4-S2",),
    triggers.events: ("2-F6", "2-F7", "2-X8"),
    workers.leases: ("0-T2.9.3", "3-B4", "3-B12", "3-C4"),
    execution.retries: ("2-X1",),
    execution.one_time_failure: ("4-C5", "2-X1"),
    execution.timeouts: ("2-X2", "4-C4"),
    execution.cancellation: ("2-F12", "3-B7", "3-C6"),
    execution.concurrency_limit: ("2-X7", "4-C6"),
}
"""What a scenario shows besides what its check does."""

SCENARIOS = [
    pytest.param(
        scenario,
        id=f"{spec.id}: {scenario.name}",
        marks=[pytest.mark.proves(*SHOWS[scenario.run])] if scenario.run in SHOWS else [],
    )
    for spec in EVERY_CHECK
    if isinstance(spec.run, ScenarioCheck)
    for scenario in spec.run.scenarios
    if scenario.run not in ELSEWHERE
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_is_as_it_must_be(scenario: Scenario, at_work: Store) -> None:
    observed, tenants = Observations(), (fresh(), fresh())
    scoped: Any = ScopedStore(at_work, TenantScope(tenants[0], tenants))  # the workers of other tests are not seen
    scenario.run(Harness(scoped, tenants, scenario.name), observed)
    assert observed.failures == []
    assert observed.expected > 0
