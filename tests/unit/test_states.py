"""The product's tables of the four machines, and the squares of the specification (``tests.state_squares``)."""

import pytest

from migrator import states
from tests.state_squares import ALLOWED, STATES, TERMINAL


@pytest.mark.parametrize("name", states.MACHINES)
@pytest.mark.proves("3-T1", "0-T2.4.2", "1-G3")
def test_exactly_these_transitions_are_allowed(name: str) -> None:
    machine = states.MACHINES[name]
    assert set(machine) == set(STATES[name])
    found = {f"{one}>{other}" for one in machine for other in machine if states.may_follow(machine, one, other)}
    assert found == set(ALLOWED[name].split())


@pytest.mark.parametrize("name", states.MACHINES)
def test_followers_are_states_and_nothing_follows_itself_or_an_unknown_state(name: str) -> None:
    machine = states.MACHINES[name]
    for state, followers in machine.items():
        assert followers <= set(machine)
        assert state not in followers
    assert not states.may_follow(machine, "nonsense", next(iter(machine)))


@pytest.mark.parametrize("name", states.MACHINES)
@pytest.mark.proves("3-S54")
def test_terminal_and_live_states_are_each_other_s_rest(name: str) -> None:
    machine = states.MACHINES[name]
    assert {state for state in machine if states.is_terminal(machine, state)} == TERMINAL[name]
    assert set(states.live(machine)) == set(machine) - TERMINAL[name]


def test_codes_of_graph_jobs_are_those_of_the_plan() -> None:
    """1-S3, 1-S4: the plan's list in its order, then pending, which it forgot."""
    assert states.GRAPH_JOB_CODES == {
        "queued": 0,
        "running": 1,
        "completed": 2,
        "failed": 3,
        "canceled": 4,
        "pending": 5,
    }
    assert set(states.GRAPH_JOB_CODES) == set(states.GRAPH_JOB)
    assert states.GRAPH_JOB_TYPES == {"build": 0, "overlay": 1}


def test_priority_words_keep_their_order() -> None:
    """2-E4."""
    assert list(states.PRIORITY_WORDS) == sorted(states.PRIORITY_WORDS, key=states.PRIORITY_WORDS.__getitem__)
