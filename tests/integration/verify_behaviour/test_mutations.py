"""Each planted fault of behaviour turns the checks red that the page says, and their findings say what is wrong."""

from typing import Any, cast

import psycopg
import pytest

from migrator.config import Settings
from migrator.testing.mutations.behaviour import BEHAVIOUR_MUTATIONS
from migrator.testing.mutations.mutation import Mutation, ScratchCopy
from migrator.verify.check import CheckContext
from tests.integration.verify_behaviour.conftest import SHOWS, SPECS

SAYS = {
    "one extra fire": "bounds: 3: exactly as often as it may",
    "a single fire is completed before it ran": "one time: queued, and not completed",
    "what is resumed fires at once": "pause and resume: resumed: no surprise",
    "a change of something else moves the next fire": "other changes: a change of name moves no fire",
    "each start of a process puts intervals off": "restarts: a start does not delay it",
    "what is disabled fires on": "disabled schedules: disabled: nothing fires any more",
    "a late failure overwrites a cancelled run": "cancellation: cancelled it stays, for the same reason",
    "a repetition that nobody begins": "failure and retry: handed over when its delay is over, and not before",
    "a single fire that failed is not repeated": "failure and retry: it is repeated, and completed then",
    "a slot runs twice": "at the same time: every slot has one run",
    "numbers of runs begin anew after retention": "numbers: no number comes twice, though no run is left",
    "a lock is released by who lost it": "fencing tokens: the old holder cannot release",
    "a live holder's lock is cleared": "fencing tokens: a live holder's lock is not cleared",
    "two lead at once": "leadership: one leads",
    "a leader writes on when its term is over": "leadership: a reaped leader commits nothing",
    "success has two definitions": "history and statistics: cancelled runs do not count in the success rate",
    "a live worker is declared dead": "heartbeats: the silent one is dead",
    "a forbidden step is answered as done": "schedules, pair by pair: schedule: pending to paused",
    "a page lacks its last schedule": "lists: all: the schedules",
    "a cron line fires an hour late": (
        "cron across clock changes: 15 */7 * * * in Europe/Berlin, the clock going back"
    ),
    "the log of a run is lost": "from due to done: its log, in order",
    "another tenant's schedule is shown": "through the client: get sees nothing",
    "a policy shows runs to every tenant": "in the service's role: runs: the other tenant sees no row",
}
"""The class, and the expectation of which its check says that it was not met."""


def faults() -> list[Any]:
    """Return a case per fault, marked with what the checks that it turns red are there for."""
    return [
        pytest.param(fault, id=fault.name, marks=pytest.mark.proves("0-T2.11.6", *sorted(set[str]().union(*shown))))
        for fault in BEHAVIOUR_MUTATIONS
        for shown in [[SHOWS.get(check.partition(".")[0], ()) for check in fault.caught_by]]
    ]


@pytest.mark.parametrize("fault", faults())
def test_a_fault_of_behaviour_turns_its_check_red(fault: Mutation, settings: Settings) -> None:
    with psycopg.connect(str(settings.postgres.dsn), autocommit=True) as target:
        fault.apply(ScratchCopy(settings, target, cast("Any", None)))
    context = CheckContext(settings, components=fault.components)
    said = []
    for name in fault.caught_by:
        found = SPECS[name].run(context)
        assert found.outcome.status == "failed", name
        assert found.tallies
        said += [finding.key for finding in found.findings]
    assert SAYS[fault.name] in said


def test_every_class_says_what_it_is_seen_by() -> None:
    assert {*SAYS} == {one.name for one in BEHAVIOUR_MUTATIONS}
