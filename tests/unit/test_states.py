"""The four machines over their full squares, written out here a second time as the specification words them."""

import pytest

from migrator import states

ALLOWED = {
    "schedule": "pending>scheduled pending>running pending>cancelled scheduled>running scheduled>paused"
    " scheduled>cancelled scheduled>pending paused>scheduled paused>cancelled paused>pending running>completed"
    " running>failed running>scheduled running>cancelled completed>scheduled failed>pending",
    "run": "planning>queued planning>cancelled planning>error queued>running queued>cancelled queued>error"
    " queued>skipped running>completed running>error running>cancelled running>timeout",
    "graph job": "pending>queued pending>running pending>failed pending>canceled queued>running queued>failed"
    " queued>canceled running>completed running>failed running>canceled",
    "policy job": "pending>dispatching dispatching>submitted submitted>completed queued>running running>succeeded"
    " dispatching>pending replay_pending>queued"
    " pending>failed dispatching>failed submitted>failed queued>failed running>failed replay_pending>failed"
    " pending>canceled dispatching>canceled submitted>canceled queued>canceled running>canceled"
    " replay_pending>canceled",
}
TERMINAL = {
    "schedule": {"cancelled"},
    "run": {"completed", "error", "cancelled", "timeout", "skipped"},
    "graph job": {"completed", "failed", "canceled"},
    "policy job": {"succeeded", "completed", "failed", "canceled"},
}
SIZES = {"schedule": 7, "run": 8, "graph job": 6, "policy job": 10}


@pytest.mark.parametrize("name", states.MACHINES)
@pytest.mark.proves("3-T1")
def test_exactly_these_transitions_are_allowed(name: str) -> None:
    """0-T2.4.2, 1-G3: the full square of states."""
    machine = states.MACHINES[name]
    assert len(machine) == SIZES[name]
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
