"""Memory, MongoDB and PostgreSQL are told the same at random, and must answer the same.

Short by default. ``LOCKSTEP_STEPS=20000`` goes on until so many calls were made on every side, and prints the count;
``LOCKSTEP_SEED`` repeats a run.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from time import monotonic
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from migrator.verify.behaviour.lockstep import Lockstep, draw
from tests.contract.lockstep.base import Counter
from tests.contract.lockstep.planning import Planning
from tests.contract.lockstep.sides import Side, memory_side, mongo_side, postgres_side
from tests.contract.lockstep.staying import Staying
from tests.contract.lockstep.working import Working

SHORT = 500
STEPS = int(os.environ.get("LOCKSTEP_STEPS", SHORT))
SEED = int(os.environ.get("LOCKSTEP_SEED", "0"))
LENGTH = 100
"""Steps of one example."""

ROUND = 20
"""Examples after which a long run says how far it is."""


class Stores(Staying, Working, Planning):
    """The whole machine at the level of the stores."""


@pytest.fixture(scope="module")
def sides(request: pytest.FixtureRequest) -> Iterator[list[Side]]:
    cluster = request.getfixturevalue("clusters").get(18)
    dsn = cluster.scheduler()
    with ExitStack() as stack:
        yield [
            memory_side(),
            stack.enter_context(mongo_side(request.getfixturevalue("mongo_server").uri)),
            stack.enter_context(postgres_side("pg18", dsn)),
        ]
    cluster.drop(dsn)


def drive(machine: Any, sides: list[Side], capsys: pytest.CaptureFixture[str]) -> Counter:  # noqa: ANN401 - a class of machines
    """Run examples until so many steps were made; print how many."""
    counter, begun, rounds = Counter(), monotonic(), 0
    names = ", ".join(side.name for side in sides)
    while counter.steps < STEPS:
        test = settings(
            max_examples=max(5, min(ROUND, 1 + (STEPS - counter.steps) // LENGTH)),  # the first one is empty
            stateful_step_count=LENGTH,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        factory: Any = seed(SEED + rounds)(lambda: machine(sides, counter))
        run_state_machine_as_test(factory, settings=test)
        rounds += 1
        if rounds % 5 == 0 or counter.steps >= STEPS:
            with capsys.disabled():
                rate = counter.steps / (monotonic() - begun)
                sys.stdout.write(
                    f"\nlockstep of {names} ({machine.__name__}): {counter.steps} steps in {counter.examples} examples,"
                    f" {counter.refused} refused, no divergence; {rate:.0f} per second\n"
                )
                sys.stdout.write(f"effective: {dict(counter.effective.most_common())}\n")
                sys.stdout.flush()
    return counter


@pytest.mark.slow
@pytest.mark.timeout(0 if STEPS > SHORT else 600)
@pytest.mark.proves("0-T2.10.2", "1-G3", "0-R3")
def test_the_backends_answer_as_the_model_does(sides: list[Side], capsys: pytest.CaptureFixture[str]) -> None:
    counter = drive(Stores, sides, capsys)
    assert counter.steps >= STEPS
    assert 0 < counter.refused < counter.steps / 2


@pytest.mark.slow
@pytest.mark.timeout(0 if STEPS > SHORT else 600)
@pytest.mark.proves("0-T2.10.2", "1-G3", "0-R3", "3-T4")
def test_the_facade_answers_the_same_on_every_backend(sides: list[Side], capsys: pytest.CaptureFixture[str]) -> None:
    machine = Lockstep({side.name: side for side in sides})
    for number, begin in enumerate(range(0, STEPS, LENGTH)):
        assert machine.shortened(draw(SEED + number, LENGTH)) is None, f"LOCKSTEP_SEED={SEED + number}"
        if (number + 1) % (ROUND * 5) == 0:
            with capsys.disabled():
                sys.stdout.write(f"\nlockstep of facades: {begin + LENGTH} operations, {machine.refused} refused\n")
                sys.stdout.flush()
    assert 0 < machine.refused < STEPS / 2
