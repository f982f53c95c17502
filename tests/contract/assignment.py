"""Judges whether everything that was due happened exactly once, as Jepsen's checker for Chronos does.

What was due is known beforehand; what happened is read from the store, or from what handlers wrote down. Each of the
one must be matched to exactly one of the other::

    verdict = slots(due, runs)
    assert verdict.clean, verdict
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Generic, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from migrator.records import Run

K = TypeVar("K", bound=Hashable)

Slot: TypeAlias = tuple[UUID, datetime]
"""A trigger, and when it was to fire."""

SHOWN = 5
"""Examples per kind in the words of a verdict."""


class Verdict(msgspec.Struct, Generic[K], frozen=True):
    """How what happened matches what was due."""

    matched: int
    """Due ones that happened once."""
    missing: tuple[K, ...] = ()
    """Due, and did not happen."""
    extra: tuple[K, ...] = ()
    """Happened, and was not due."""
    duplicate: tuple[K, ...] = ()
    """Was due, and happened more than once."""

    @property
    def clean(self) -> bool:
        return not (self.missing or self.extra or self.duplicate)

    def __str__(self) -> str:
        faults = {"missing": self.missing, "extra": self.extra, "duplicate": self.duplicate}
        said = [f"{len(found)} {what}: {', '.join(map(str, found[:SHOWN]))}" for what, found in faults.items() if found]
        return "; ".join([f"{self.matched} matched", *said])


def once_each(due: Iterable[K], happened: Iterable[K]) -> Verdict[K]:
    """Match two lists of keys, in the order in which they are given."""
    expected, counts = list(dict.fromkeys(due)), Counter(happened)
    wanted = set(expected)
    return Verdict(
        matched=sum(counts[key] == 1 for key in expected),
        missing=tuple(key for key in expected if not counts[key]),
        extra=tuple(key for key in counts if key not in wanted),
        duplicate=tuple(key for key in expected if counts[key] > 1),
    )


def slots(due: Iterable[Slot], runs: Iterable[Run]) -> Verdict[Slot]:
    """Match due slots to runs; retries belong to the slot of their first attempt, runs without a slot to none.

    An attempt that is there twice, or without the one before it, makes its slot a duplicate or an extra one too.
    """
    attempts: dict[Slot, list[int]] = {}
    for run in runs:
        if run.trigger_id is not None and run.scheduled_at is not None:
            attempts.setdefault((run.trigger_id, run.scheduled_at), []).append(run.attempt or 0)
    happened: list[Slot] = []
    strays: list[Slot] = []
    for slot, numbers in attempts.items():
        happened += [slot] * max(Counter(numbers).values())
        if set(numbers) != set(range(1, max(numbers) + 1)):
            strays.append(slot)
    verdict = once_each(due, happened)
    return msgspec.structs.replace(verdict, extra=tuple(dict.fromkeys([*verdict.extra, *strays])))


def every(trigger_id: UUID, first: datetime, period: timedelta, until: datetime) -> Iterator[Slot]:
    """Yield the slots of a trigger with a fixed period, up to and including ``until``."""
    while first <= until:
        yield trigger_id, first
        first += period
