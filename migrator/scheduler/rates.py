"""Rates over counts of runs: one definition of success, and what the source systems call so under names of its own.

Percentages with two decimals, as the sources give them; none where there is nothing to divide by.
"""

from collections.abc import Mapping

from migrator.states import RUN_FAILED


def judged(by_state: Mapping[str, int]) -> int:
    """Return how many runs have shown whether they succeed: completed, error, timeout."""
    return by_state["completed"] + failed(by_state)


def failed(by_state: Mapping[str, int]) -> int:
    """Return how many runs did not do their work: error, timeout."""
    return sum(by_state[state] for state in RUN_FAILED)


def success_rate(by_state: Mapping[str, int]) -> float | None:
    """Return the share of completed runs among those judged: what success rate means here.

    Runs that were cancelled, skipped, or have not ended say nothing either way.
    """
    return percent(by_state["completed"], judged(by_state))


def failure_rate(by_state: Mapping[str, int]) -> float | None:
    """Return the share of failed runs among those judged."""
    return percent(failed(by_state), judged(by_state))


def completed_share(by_state: Mapping[str, int]) -> float | None:
    """Return the share of completed runs among all, live ones too: source 002, and 003 for one job, call it success."""
    return percent(by_state["completed"], sum(by_state.values()))


def percent(part: int, whole: int) -> float | None:
    """Return a percentage with two decimals."""
    return None if not whole else round(100 * part / whole, 2)
