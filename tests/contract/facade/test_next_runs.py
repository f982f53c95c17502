"""When an interval fires next: computed for each unit, and moved by nothing but a fire."""

from datetime import timedelta

import pytest

from migrator.verify.behaviour.harness import MINUTE, Harness

INTERVALS = [timedelta(minutes=7), timedelta(hours=7), timedelta(days=7)]


@pytest.mark.proves("3-A14")
@pytest.mark.parametrize("interval", INTERVALS, ids=["minutes", "hours", "days"])
def test_the_next_run_is_one_interval_away_and_only_a_fire_moves_it(harness: Harness, interval: timedelta) -> None:
    made = harness.now
    job = harness.recurring(interval=interval)
    assert job.next_fire_at == made + interval
    harness.advance(MINUTE)
    changed = harness.facade.update(job.id, description="edited", metadata={"depth": 2}, now=harness.now)
    assert changed.next_fire_at == made + interval
    assert harness.job(job).next_fire_at == made + interval
    harness.run_until(made + interval, step=interval - MINUTE)
    assert harness.run_states(job) == ["completed"]
    assert harness.job(job).next_fire_at == harness.now + interval
