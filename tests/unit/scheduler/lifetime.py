"""A schedule with one trigger, lived through tick by tick without any store: what ``plan`` decides is simply done."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from migrator.records import Run, Schedule, Trigger
from migrator.scheduler import firing

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def schedule(**columns: Any) -> Schedule:  # noqa: ANN401 - columns have all types
    least: dict[str, Any] = {"id": UUID(int=1), "tenant_id": "acme", "name": "one", "status": "scheduled"}
    return Schedule(**least | columns)


def trigger(**columns: Any) -> Trigger:  # noqa: ANN401 - as above
    """Return a trigger, every minute at a fixed rate unless it says otherwise, as it stands when it is made."""
    least: dict[str, Any] = {"id": UUID(int=2), "tenant_id": "acme", "schedule_id": UUID(int=1)}
    kind: dict[str, Any] = {"kind": "interval", "interval_ms": 60_000, "anchor": "fixed_rate"}
    return Trigger(**least | (kind if "kind" not in columns else {}) | columns)


def cron(line: str, **columns: Any) -> Trigger:  # noqa: ANN401 - as above
    return trigger(kind="cron", cron_expression=line, cron_dialect="debian", **columns)


class Lifetime:
    """Runs start when they are queued and last for ``lasting`` (none: they end at once)."""

    def __init__(self, of: Schedule, made: Trigger, *, now: datetime = START, lasting: timedelta | None = None) -> None:
        planned = firing.first_fire(made, now) if made.next_fire_at is None else made.next_fire_at
        self.schedule, self.trigger = of, msgspec.structs.replace(made, next_fire_at=planned)
        self.now, self.lasting = now, lasting
        self.runs: list[Run] = []
        self._known: set[UUID] = set()
        self._live: list[tuple[datetime, Run]] = []

    def tick(self, now: datetime) -> list[Run]:
        """Let the time be ``now``, end what has ended by then, and fire what is due."""
        self.now = now
        for ends, run in [pair for pair in self._live if pair[0] <= now]:
            self._live.remove((ends, run))
            self.trigger = firing.completed(self.trigger, ends)
        fire = firing.plan(self.schedule, self.trigger, len(self._live), now)
        self.trigger = fire.trigger
        if fire.schedule_status is not None:
            self.schedule = msgspec.structs.replace(self.schedule, status=fire.schedule_status)
        identities = {run.id for run in fire.runs}
        assert len(identities) == len(fire.runs), "a slot fired twice"
        assert self._known.isdisjoint(identities), "a slot fired twice"
        self._known |= identities
        self.runs += fire.runs
        queued = [run for run in fire.runs if run.state == "queued"]
        for run in queued:
            if self.lasting is None:
                self.trigger = firing.completed(self.trigger, now)
            else:
                self._live.append((now + self.lasting, run))
        return list(fire.runs)

    def live_until(self, end: datetime, every: timedelta) -> list[Run]:
        """Tick so often until the end, which is a tick too."""
        while self.now + every <= end:
            self.tick(self.now + every)
        return self.runs

    @property
    def fired(self) -> list[datetime]:
        """Slots whose runs were queued."""
        return [run.scheduled_at for run in self.runs if run.state == "queued" and run.scheduled_at is not None]

    @property
    def skipped(self) -> list[datetime]:
        """Slots whose runs were skipped."""
        return [run.scheduled_at for run in self.runs if run.state == "skipped" and run.scheduled_at is not None]
