"""Random cron lines, and the changes of the clock around which engines disagree."""

import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

DEEP: Final = os.environ.get("MIGRATOR_TESTS") == "deep"
"""Set ``MIGRATOR_TESTS=deep`` for twenty times as many lines, and for all else that takes too long for every day."""

CHANGES: Final = {
    "UTC": ["2026-03-08T00:00"],
    "America/New_York": ["2026-03-08T07:00", "2026-11-01T06:00"],
    "Europe/Berlin": ["2026-03-29T01:00", "2026-10-25T01:00"],
    "America/Sao_Paulo": ["2018-11-04T03:00", "2018-02-18T02:00"],  # at midnight
    "America/Santiago": ["2026-09-06T04:00", "2026-04-05T03:00"],  # the fold ends at midnight
    "Asia/Amman": ["2017-03-30T22:00", "2017-10-26T22:00"],
    "Africa/Casablanca": ["2024-03-10T02:00", "2024-04-14T02:00"],  # Ramadan: standard time is the summer one
    "Europe/Dublin": ["2026-03-29T01:00", "2026-10-25T01:00"],
    "Asia/Kathmandu": ["2026-01-01T00:00"],  # +05:45, never changes
    "Antarctica/Troll": ["2026-03-29T01:00", "2026-10-25T01:00"],  # by two hours
    "Pacific/Apia": ["2011-12-30T10:00", "2012-03-31T14:00"],  # a whole day is missing
    "Australia/Lord_Howe": ["2017-09-30T15:30", "2017-04-01T15:00"],  # by half an hour
}
"""Zones, and instants (UTC) at which their clock changes."""

_LIST_LENGTHS = (1, 1, 1, 2, 3)


def starts(zone: str, chance: random.Random) -> datetime:
    """Return an instant up to two days before a change of the clock, or up to ten hours after it."""
    change = datetime.fromisoformat(chance.choice(CHANGES[zone])).replace(tzinfo=UTC)
    return change + timedelta(minutes=chance.randint(-3000, 600))


def lines(seed: int, count: int) -> Iterator[str]:
    """Yield lines of five fields with numbers, lists, ranges and steps, all within bounds."""
    chance = random.Random(seed)
    for _ in range(count * 20 if DEEP else count):
        yield " ".join(
            (
                _field(chance, 0, 59, 0.2),
                _field(chance, 0, 23, 0.35),
                _field(chance, 1, 31, 0.6),
                _field(chance, 1, 12, 0.75),
                _field(chance, 0, 6, 0.6),
            ),
        )


def _field(chance: random.Random, low: int, high: int, star: float) -> str:
    if chance.random() < star:
        return "*"
    return ",".join(_item(chance, low, high) for _ in range(chance.choice(_LIST_LENGTHS)))


def _item(chance: random.Random, low: int, high: int) -> str:
    kind = chance.random()
    if kind < 0.5:
        return str(chance.randint(low, high))
    first, last = sorted((chance.randint(low, high), chance.randint(low, high)))
    step = chance.randint(1, (high - low) // 3)
    if kind < 0.75:
        return f"{first}-{last}"
    return f"{first}-{last}/{step}" if kind < 0.9 else f"*/{step}"
