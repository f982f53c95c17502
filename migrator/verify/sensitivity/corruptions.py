"""Every class of corruption, and the planted faults that only behaviour can show."""

from typing import Final

from migrator.verify.sensitivity.books import BOOKS
from migrator.verify.sensitivity.firing import FIRING
from migrator.verify.sensitivity.model import Corruption
from migrator.verify.sensitivity.objects import OBJECTS
from migrator.verify.sensitivity.rows import ROWS
from migrator.verify.sensitivity.values import VALUES

CORRUPTIONS: Final[tuple[Corruption, ...]] = (*ROWS, *VALUES, *FIRING, *BOOKS, *OBJECTS)
"""The classes, in the order of the page; behaviour checks append theirs here (``model``, extension point)."""

LATER: Final[tuple[str, ...]] = (
    "retry never re-dispatched",
    "resume fires immediately / resets phase unasked",
    "release of another owner's lock",
    "two leaders",
    "reaped leader continues",
    "job starved by re-scheduling",
    "success rate by two definitions",
    "down migration that fails on real rows",
    "row moved after cutover lost by rollback",
)
"""Planted faults of the list of capabilities that no stored row shows: they wait for behaviour classes."""
