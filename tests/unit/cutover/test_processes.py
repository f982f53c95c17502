"""Who has come over, by ids and by hosts; and the wait for it, on clocks in the test's hand."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from migrator.config import Settings
from migrator.cutover import processes
from migrator.cutover.processes import Arrivals, SchedulerProcess, lines, match_arrivals, wait_for_arrivals

SINCE = datetime(2026, 1, 1, tzinfo=UTC)


def process(number: int, host: str | None) -> SchedulerProcess:
    return SchedulerProcess(id=UUID(int=number), host=host, pid=number)


ONE, TWO, THREE = process(1, "x"), process(2, "x"), process(3, "y")


@pytest.mark.proves("4-X3")
@pytest.mark.parametrize(
    ("here", "missing"),
    [
        ([], [ONE, TWO, THREE]),
        ([ONE, TWO, THREE], []),
        ([TWO], [ONE, THREE]),
        ([TWO, process(7, "x"), process(8, "y")], []),
        ([process(7, "x")], [TWO, THREE]),  # one of two of its host: which one, nobody can tell
        ([process(7, "x"), process(8, "z"), process(9, None)], [TWO, THREE]),
        ([ONE, TWO, process(7, "x")], [THREE]),
    ],
)
def test_a_process_comes_back_by_its_id_or_as_another_of_its_host(
    here: list[SchedulerProcess], missing: list[SchedulerProcess]
) -> None:
    found = match_arrivals([ONE, TWO, THREE], here, SINCE)
    assert found.missing == tuple(missing)
    assert found.complete is (not missing)


def test_what_is_not_known_is_said() -> None:
    unknown = match_arrivals(None, [ONE], SINCE)
    assert unknown.complete
    assert "are not known" in "\n".join(lines(unknown))
    assert not match_arrivals([], [], SINCE).complete  # nobody was there, and nobody is
    some = "\n".join(lines(match_arrivals([ONE, THREE], [ONE], SINCE)))
    assert "PostgreSQL since the cutover: 1\n  x:1 (" in some
    assert "1 have no heartbeat yet: restart them\n  y:3 (" in some
    assert "every process of the old side has a heartbeat" in "\n".join(lines(match_arrivals([ONE], [ONE], SINCE)))


def test_the_wait_ends_when_all_are_there_or_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Arrivals | None] = [*[match_arrivals([ONE], [], SINCE)] * 3, match_arrivals([ONE], [ONE], SINCE)]
    clock = [0.0]

    def wait(seconds: float) -> None:
        clock[0] += seconds

    def wait_for(seconds: float) -> Arrivals | None:
        left = list(answers)
        monkeypatch.setattr(processes, "arrivals", lambda _: left.pop(0))
        return wait_for_arrivals(Settings(), seconds, monotonic=lambda: clock[0], wait=wait)

    found = wait_for(60)
    assert found is not None
    assert found.complete
    assert clock == [3 * processes.POLL_S]
    found = wait_for(processes.POLL_S)
    assert found is not None
    assert not found.complete
    answers = [None]
    assert wait_for(60) is None
