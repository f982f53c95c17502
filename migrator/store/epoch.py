"""The persistence epoch: which side holds the scheduler's data, as a lock row on both sides says.

The row ``*/persistence`` of ``locks`` names the backend in its metadata; its fence counts the switches. Without the row
there was never a switch, and everything is allowed. A store looks at it whenever a session begins, so that a process
with an old configuration fails closed, whatever its file says. Only ``migrator.cutover`` writes it.
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
    """What the row says."""

    number: int
    backend: str


def require(found: str | None, own: str) -> None:
    """Raise ``BackendMovedError`` where the row names another backend than the store's own; none: no switch ever."""
    if found is not None and found != own:
        raise BackendMovedError(
            f"the scheduler's data is in {found} since the last switch (lock {KEY}), and this process was configured"
            f" for {own}: set [persistence] scheduler to {found} and open the store anew"
        )
