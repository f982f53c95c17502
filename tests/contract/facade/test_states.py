"""The facade and the state machine agree: every action in every state, and no edge that the machine does not have."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from migrator import states
from migrator.errors import RefusedError, TransitionError
from migrator.scheduler.client import Scheduler
from migrator.verify.behaviour.harness import HOUR, Harness
from tests.contract.facade.stored import everything, force_status, status_of
from tests.contract.rows import NOW
from tests.state_squares import STATES, is_allowed

ACTIONS = ["pause", "resume", "cancel", "retry"]
MAY = {
    "pause": {"scheduled"},
    "resume": {"paused"},
    "cancel": {"pending", "scheduled", "running", "paused"},
    "retry": {"failed"},
}
"""The crawler's CanPause, CanResume, CanCancel, CanRetry, written out here a second time."""

LEADS = {"pause": "paused", "resume": "scheduled", "cancel": "cancelled", "retry": "pending"}


def ask(harness: Harness, action: str, schedule_id: object) -> None:
    method = "retry_schedule" if action == "retry" else action
    getattr(harness.facade, method)(schedule_id, now=harness.now)


@pytest.mark.proves("3-T5")
@pytest.mark.parametrize("status", states.SCHEDULE)
@pytest.mark.parametrize(
    "action",
    [
        pytest.param("pause", marks=pytest.mark.proves("3-S50", "3-B5")),
        pytest.param("resume", marks=pytest.mark.proves("3-S51", "3-B6")),
        pytest.param("cancel", marks=pytest.mark.proves("3-S52", "3-B7")),
        pytest.param("retry", marks=pytest.mark.proves("3-S53", "3-B8")),
    ],
)
def test_an_action_is_done_exactly_in_the_states_that_allow_it(harness: Harness, action: str, status: str) -> None:
    job = harness.recurring()
    force_status(harness, job, status)
    before = everything(harness)
    assert states.may_be_asked(action, status) == (status in MAY[action])
    if status in MAY[action]:
        ask(harness, action, job.id)
        assert status_of(harness, job) == LEADS[action]
    else:
        with pytest.raises(TransitionError, match=f"cannot {action} a schedule that is {status}"):
            ask(harness, action, job.id)
        assert everything(harness) == before


@pytest.mark.parametrize("status", states.SCHEDULE)
def test_whatever_is_asked_a_schedule_moves_along_the_edges_of_its_machine(harness: Harness, status: str) -> None:
    """Each method of the facade from each state, as far as the facade reaches."""
    reached: dict[str, str] = {}
    for name, call in CALLS.items():
        job = harness.recurring()
        force_status(harness, job, status)
        with suppress(TransitionError, RefusedError):
            call(harness.facade, job.id)
        found = status_of(harness, job)
        if found != status:
            assert is_allowed("schedule", status, found)
            reached[name] = found
    assert reached == REACHED[status]


CALLS: dict[str, Callable[[Scheduler, UUID], Any]] = {
    "pause": lambda facade, job: facade.pause(job, now=NOW),
    "resume": lambda facade, job: facade.resume(job, now=NOW),
    "cancel": lambda facade, job: facade.cancel(job, now=NOW),
    "retry": lambda facade, job: facade.retry_schedule(job, now=NOW),
    "reschedule": lambda facade, job: facade.reschedule(job, interval=HOUR, now=NOW),
    "disable": lambda facade, job: facade.toggle(job, enabled=False, now=NOW),
    "trigger": lambda facade, job: facade.trigger_now(job, now=NOW),
}

REACHED: dict[str, dict[str, str]] = {
    "pending": {"cancel": "cancelled"},
    "scheduled": {"pause": "paused", "cancel": "cancelled"},
    "running": {"cancel": "cancelled", "reschedule": "scheduled"},
    "paused": {"resume": "scheduled", "cancel": "cancelled"},
    "completed": {"reschedule": "scheduled"},
    "failed": {"retry": "pending"},
    "cancelled": {},
}


def test_the_actions_of_the_machine_lead_along_its_edges() -> None:
    for froms, to in states.SCHEDULE_ACTIONS.values():
        assert all(is_allowed("schedule", status, to) for status in froms)
    for action in ("pause", "cancel"):  # no other way leads there
        froms, to = states.SCHEDULE_ACTIONS[action]
        assert froms == {status for status in STATES["schedule"] if is_allowed("schedule", status, to)}
