"""Every class of corruption, and the planted faults that only behaviour can show."""

from typing import Final

from migrator.verify.sensitivity.books import BOOKS
from migrator.verify.sensitivity.conduct import CONDUCT
from migrator.verify.sensitivity.firing import FIRING
from migrator.verify.sensitivity.model import Corruption
from migrator.verify.sensitivity.objects import OBJECTS
from migrator.verify.sensitivity.rows import ROWS
from migrator.verify.sensitivity.values import VALUES

CORRUPTIONS: Final[tuple[Corruption, ...]] = (*ROWS, *VALUES, *FIRING, *BOOKS, *OBJECTS, *CONDUCT)
"""The classes, in the order of the page."""

LATER: Final[tuple[str, ...]] = (
    "down migration that fails on real rows",
    "row moved after cutover lost by rollback",
)
"""Planted faults of the list of capabilities that no stored row shows: they wait for classes of the cutover."""
