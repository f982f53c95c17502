"""Memory, MongoDB and PostgreSQL are told the same at random, and must answer the same.

Short by default. ``LOCKSTEP_STEPS=20000`` plays so many operations on every side, and says how far it is;
``LOCKSTEP_SEED`` repeats a run.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from migrator.verify.behaviour.lockstep import WORDS, ClientPlayer, Lockstep, draw
from tests.contract.lockstep.planning import Planning
from tests.contract.lockstep.sides import Side, memory_side, mongo_side, postgres_side
from tests.contract.lockstep.staying import Staying
from tests.contract.lockstep.working import Working

SHORT = 500
STEPS = int(os.environ.get("LOCKSTEP_STEPS", SHORT))
SEED = int(os.environ.get("LOCKSTEP_SEED", "0"))
LENGTH = 100
"""Operations of one list."""

ROUND = 100
"""Lists after which a long run says how far it is."""


class Stores(Staying, Working, Planning):
    """Every call at the level of the stores."""


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


def drive(machine: Lockstep[Side], words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Play so many operations; now and then say how far it is."""
    for number, begin in enumerate(range(0, STEPS, LENGTH)):
        assert machine.shortened(draw(SEED + number, LENGTH, words)) is None, f"LOCKSTEP_SEED={SEED + number}"
        if (number + 1) % ROUND == 0:
            with capsys.disabled():
                sys.stdout.write(f"\nlockstep: {begin + LENGTH} operations, {machine.refused} refused\n")
                sys.stdout.flush()
    assert 0 < machine.refused < STEPS / 2


@pytest.mark.slow
@pytest.mark.timeout(0 if STEPS > SHORT else 600)
@pytest.mark.proves("0-T2.10.2", "1-G3", "0-R3")
def test_the_backends_answer_as_the_model_does(sides: list[Side], capsys: pytest.CaptureFixture[str]) -> None:
    drive(Lockstep({side.name: side for side in sides}, Stores), Stores.words(), capsys)
    assert {"fire_due", "claim", "heartbeat", "finish", "release", "expire", "acquire"} <= {*+Stores.effective}


@pytest.mark.slow
@pytest.mark.timeout(0 if STEPS > SHORT else 600)
@pytest.mark.proves("0-T2.10.2", "1-G3", "0-R3", "3-T4")
def test_the_facade_answers_the_same_on_every_backend(sides: list[Side], capsys: pytest.CaptureFixture[str]) -> None:
    drive(Lockstep({side.name: side for side in sides}, ClientPlayer), WORDS, capsys)
