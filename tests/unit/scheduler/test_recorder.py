"""Ids in the order of their making."""

import time
from uuid import RFC_4122

import pytest

from migrator.scheduler.recorder import OrderedIds


def test_ids_rise_within_a_tick_and_when_the_clock_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = OrderedIds()
    nanoseconds = [1_700_000_000_000_000_000] * 3 + [1_600_000_000_000_000_000] * 3 + [1_700_000_000_900_000_000] * 3
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds.pop(0))
    made = [ids.take() for _ in range(9)]
    assert made == sorted(made)
    assert len(set(made)) == 9
    assert {one.int >> 80 for one in made[:6]} == {1_700_000_000_000}
    assert made[6].int >> 80 == 1_700_000_000_900
    assert {(one.version, one.variant) for one in made} == {(7, RFC_4122)}


def test_a_full_millisecond_runs_over_into_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = OrderedIds()
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    made = [ids.take() for _ in range(5_000)]
    assert made == sorted(made)
    assert {one.version for one in made} == {7}
