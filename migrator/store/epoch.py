"""The persistence epoch: which side holds the scheduler's data. It is a lock row on both sides.

The row ``*/persistence`` of ``locks`` names the backend in its metadata; its fence counts the cutovers. Without the row
there was no cutover, and every store works. A store reads the row whenever a session begins. So a process with an old
configuration fails, whatever its file says. Only ``migrator.cutover`` writes the row.
"""

from typing import Final

import msgspec

from migrator.errors import BackendMovedError
from migrator.store.validation import GLOBAL

RESOURCE: Final = "persistence"
KEY: Final = f"{GLOBAL}/{RESOURCE}"
BACKEND: Final = "backend"
"""The member of the row's metadata."""


class Epoch(msgspec.Struct, frozen=True):
    """The content of the row."""

    number: int
    backend: str


def require(found: str | None, own: str) -> None:
    """Raise ``BackendMovedError`` if the row names another backend than the store's own; None: no cutover yet."""
    if found is not None and found != own:
        raise BackendMovedError(
            f"the scheduler's data is in {found} since the last cutover or rollback (lock {KEY}), and this process uses"
            f" {own}: set [persistence] scheduler to {found} and open the store again"
        )
