"""The list of the first 24 hours, as the runbook has it, on a clock in the test's hand: what goes wrong crosses it."""

import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, cast
from uuid import UUID

import pytest

from migrator.errors import UnreachableError
from migrator.records import Run
from migrator.scheduler import metrics
from migrator.scheduler.leadership import RESOURCE
from migrator.scheduler.metrics import Threshold, crossed, parse_threshold
from migrator.store.queue import served_tenants
from migrator.store.validation import GLOBAL
from migrator.testing.memory.store import MemoryStore
from migrator.verify.behaviour.harness import Clock
from tests.contract.rows import NOW, run, schedule

RUNBOOK = Path(__file__).resolve().parents[3] / "docs" / "runbook.md"
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def thresholds() -> Iterator[Threshold]:
    """Yield those of the command that the runbook says to call."""
    (command,) = re.findall(
        r"^    (migrator scheduler metrics (?:.*\\\n)*.*)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE
    )
    words = shlex.split(command.replace("\\\n", " "))[3:]
    for option, given in zip(words[::2], words[1::2], strict=True):
        yield parse_threshold(cast("Literal['max', 'min']", option.removeprefix("--")), given)


class Day:
    """A scheduler that makes ten runs an hour, and is looked at every hour."""

    def __init__(self) -> None:
        self.clock = Clock(NOW)
        self.store = MemoryStore(self.clock)
        self.list = list(thresholds())
        self.leader = self.store.locks.acquire(GLOBAL, RESOURCE, ttl=9 * HOUR + MINUTE)
        with self.store.session("acme") as session:
            self.schedule: UUID = session.schedules.upsert(schedule("acme")).id

    def put(self, state: str, age: timedelta, **columns: Any) -> Run:  # noqa: ANN401 - columns have all types
        at = self.clock.now - age
        with self.store.session("acme") as session:
            return session.runs.create(
                run("acme", schedule_id=self.schedule, state=state, created_at=at, available_at=at, **columns)
            )

    def look(self) -> list[str]:
        """Return the names of the figures that are beyond their bounds."""
        found = metrics.collect_samples(self.store, served_tenants(self.store.queue), now=self.clock.now)
        found += metrics.key_samples(metrics.take_key_metrics(self.store, now=self.clock.now))
        known = metrics.OPTIONAL_SAMPLES | metrics.OPTIONAL_KEY_SAMPLES
        return [sentence.split()[0] for sentence in crossed(found, self.list, known)]


@pytest.mark.proves("3-O2")
def test_what_goes_wrong_in_the_first_day_crosses_the_list_and_what_is_mended_does_not() -> None:
    day = Day()
    told: dict[int, list[str]] = {}
    for hour in range(24):
        ended = day.clock.now - 5 * MINUTE
        for _ in range(10):
            day.put("completed", 6 * MINUTE, started_at=ended - MINUTE, finished_at=ended)
        if hour == 3:
            day.put("error", 6 * MINUTE, started_at=ended - MINUTE, finished_at=ended)
        late = [day.put("queued", 6 * MINUTE) for _ in range(101 if hour == 6 else 0)]
        if found := day.look():
            told[hour] = found
        for one in late:  # somebody mends it before the next look
            with day.store.session("acme") as session:
                session.runs.cancel(one.id, "mended")
        if hour == 20:
            assert day.store.locks.acquire(GLOBAL, RESOURCE, ttl=9 * HOUR) is not None
        day.clock.advance(HOUR)
    no_leader = {hour: ["scheduler_leader"] for hour in range(10, 21)}
    assert told == {
        3: ["overall_failure_rate_percent"],
        6: ["overall_runs_ready", "runs_oldest_wait_seconds"],
        **no_leader,
    }


def test_metrics_that_take_too_long_are_not_waited_for() -> None:
    day, seconds = Day(), iter([0.0, 29.0, 31.0])
    with day.store.session("other") as session:
        session.schedules.upsert(schedule("other"))
    with pytest.raises(UnreachableError, match="of all tenants take longer than 30 s"):
        metrics.take_key_metrics(day.store, within=timedelta(seconds=30), monotonic=lambda: next(seconds))
