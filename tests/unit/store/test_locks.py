"""How long a process waits for a lock, and how long it trusts one, by a clock that the test moves."""

from datetime import timedelta

import pytest

from migrator.store import locks
from migrator.store.locks import Deadline, Trust

TIMEOUT = timedelta(seconds=2)
TTL = timedelta(seconds=60)


class Clock:
    """Stands in for ``time.monotonic``."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(locks, "monotonic", made)
    return made


@pytest.mark.proves("0-T2.8.3")
def test_a_wait_is_over_when_its_timeout_is_and_not_before(clock: Clock) -> None:
    deadline = Deadline(TIMEOUT)
    clock.now += 1.5
    assert deadline.left() == pytest.approx(0.5)
    assert not deadline.over()
    clock.now += 0.5
    assert deadline.left() == 0
    assert deadline.over()


@pytest.mark.proves("0-T2.8.3")
def test_a_single_try_is_over_at_once_and_a_wait_without_limit_never(clock: Clock) -> None:
    assert Deadline(timedelta(0)).over()
    endless = Deadline(None)
    clock.now += 1e9
    assert endless.left() is None
    assert not endless.over()


@pytest.mark.proves("0-T2.8.4")
def test_a_holder_trusts_its_lock_for_three_quarters_of_the_ttl_from_the_start_of_the_attempt(clock: Clock) -> None:
    began = clock.now
    clock.now += 10  # the answer took so long
    trust = Trust(began, TTL)
    clock.now = began + 44.9
    assert trust.lasts()
    clock.now = began + 45
    assert not trust.lasts()
    trust.extend(clock.now, TTL)
    assert trust.lasts()
