"""What a demo database holds: how many documents of each kind, for which tenants, on which schedules, by which choices.

The same seed gives the same bytes, on every machine and in every version of Python. Only ``Random.random`` is used,
because it is the one method whose sequence Python promises to keep. Every collection draws from a stream of its own, so
that a change to one collection leaves the others as they were. Ids are hashes of what they name, so that a child can
name its parent without having seen it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from random import Random
from typing import NamedTuple, TypeVar

import msgspec

T = TypeVar("T")

EPOCH = datetime(2025, 5, 1, tzinfo=UTC)
"""Where the demo's time begins; instants are milliseconds after it."""
DAYS = 184
"""The time that the demo's data spans."""
SPAN = DAYS * 86_400_000

_DATES = [(EPOCH + timedelta(days=day)).strftime("%Y-%m-%dT") for day in range(DAYS + 400)]
_CLOCK = [f"{hour:02}:{minute:02}:{second:02}" for hour in range(24) for minute in range(60) for second in range(60)]
_FRACTIONS = ["+00:00", *(f".{thousandth:03}".rstrip("0") + "+00:00" for thousandth in range(1, 1000))]


class Stream:
    """A named sequence of choices."""

    def __init__(self, seed: int, name: str) -> None:
        self.random = Random(f"{seed}/{name}").random  # noqa: S311 - demo data, not secrets

    def below(self, limit: int) -> int:
        """Return an int in ``range(limit)``."""
        return int(self.random() * limit)

    def between(self, low: int, high: int) -> int:
        """Return an int from ``low`` to ``high``, both included."""
        return low + int(self.random() * (high - low + 1))

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the choices, each as likely as the others."""
        return choices[int(self.random() * len(choices))]

    def chance(self, share: float) -> bool:
        """Return true in about ``share`` of the calls."""
        return self.random() < share

    def digits(self, length: int) -> str:
        """Return ``length`` hexadecimal digits, at most 12."""
        return f"{int(self.random() * (1 << 4 * length)):0{length}x}"


def hexadecimal(seed: int, kind: str, index: int) -> str:
    """Return the 32 hexadecimal digits of the id of the ``index``-th thing of its kind."""
    return blake2b(f"{seed}/{kind}/{index}".encode(), digest_size=16).hexdigest()


def digest(seed: int, kind: str, index: int) -> str:
    """Return a text that stands for the SHA-256 digest of an image or an SBOM."""
    return "sha256:" + blake2b(f"{seed}/{kind}/{index}".encode(), digest_size=32).hexdigest()


def stamp(instant: int) -> str:
    """Return an instant as the scheduler writes it: ISO 8601, ``+00:00``, no trailing zeros in the fraction."""
    return _DATES[instant // 86_400_000] + _CLOCK[instant // 1000 % 86_400] + _FRACTIONS[instant % 1000]


def moment(instant: int) -> datetime:
    """Return an instant as a BSON date's value: naive, UTC."""
    return (EPOCH + timedelta(milliseconds=instant)).replace(tzinfo=None)


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
