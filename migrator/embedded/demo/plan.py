"""What a demo database holds: how many documents of each kind, for which tenants, on which schedules."""

from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import msgspec

from migrator.embedded.demo.streams import Stream, hexadecimal

TENANTS = ("tenant-alpha", "tenant-beta", "acme", "default", "crème-brûlée")
"""Tenants from the busiest to the quietest."""
_SHARES = (0.42, 0.70, 0.88, 0.97, 1.0)


class Size(StrEnum):
    """How much data: about 20 000, 300 000 and 2 000 000 documents."""

    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"


class Counts(msgspec.Struct, frozen=True):
    """Documents of each kind; run summaries follow from the runs."""

    schedules: int
    runs: int
    impact_snapshots: int
    audit: int
    policy_runs: int
    policy_jobs: int
    graph_jobs: int
    graph_job_events: int
    locks: int
    workers: int
    execution_logs: int
    triggers: int


COUNTS = {
    Size.SMALL: Counts(400, 10_000, 600, 2_600, 1_500, 1_000, 1_200, 1_400, 60, 12, 1_000, 400),
    Size.MEDIUM: Counts(2_500, 150_000, 8_000, 38_000, 22_000, 16_000, 18_000, 24_000, 300, 40, 19_000, 2_500),
    Size.LARGE: Counts(
        10_000, 1_000_000, 55_000, 260_000, 150_000, 105_000, 120_000, 160_000, 1_000, 200, 130_000, 10_000
    ),
}


class ScheduleFacts(NamedTuple):
    """What other collections need to know of a schedule."""

    id: str
    tenant: str
    name: str


class Plan(msgspec.Struct, frozen=True, dict=True):
    """One demo database: its seed and its counts."""

    seed: int
    counts: Counts
    triggers: bool = False
    """Whether there is a ``triggers`` collection: rules besides those that schedule documents state."""
    plain: bool = False
    """Whether every schedule and run has an id that holds a UUID; otherwise some are made by hand."""

    def stream(self, name: str) -> Stream:
        """Return the stream of choices of that name, from its beginning."""
        return Stream(self.seed, name)

    @cached_property
    def schedules(self) -> tuple[ScheduleFacts, ...]:
        """The schedules; most ids come from the API and hold a UUID, some were made by hand."""
        stream = self.stream("schedule-facts")
        return tuple(self._schedule(stream, index) for index in range(self.counts.schedules))

    def _schedule(self, stream: Stream, index: int) -> ScheduleFacts:
        tenant = tenant_of(stream)
        scope = stream.pick(("nightly", "weekly", "hourly", "release", "critical"))
        team = stream.pick(("payments", "platform", "edge", "data", "mobile", "identity"))
        if stream.chance(0.85) or self.plain:
            identifier = f"sch_{hexadecimal(self.seed, 'schedule', index)}"
        else:
            identifier = f"sch_2025{stream.between(1, 12):02}{stream.between(1, 28):02}-{index}"
        return ScheduleFacts(identifier, tenant, f"{scope} {team} scan {index}")


def tenant_of(stream: Stream) -> str:
    """Return a tenant; busy ones more often."""
    value = stream.random()
    for tenant, share in zip(TENANTS, _SHARES, strict=True):
        if value < share:
            return tenant
    return TENANTS[-1]
