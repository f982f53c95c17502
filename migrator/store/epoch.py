"""The persistence epoch: which side holds the scheduler's data. It is a lock row on both sides.

The row ``*/persistence`` of ``locks`` says in its metadata what a database is; its fence counts the cutovers.

- No row: the database was never copied into. Every store works.
- ``backend`` names the other side: a cutover or a rollback moved the data there.
- ``backend`` names this side: it is active.
- PostgreSQL alone, ``copy`` and no ``backend``: the rows are a copy of that source. Nobody may write or claim, except
  in a parallel run, and where ``rehearsal`` says since when rows of the copy may be changed.

A store reads the row whenever a session begins. So a process with an old configuration fails, whatever its file says.
``migrator.cutover`` writes the backend, the copy writes ``copy``, and a store that may change a copy ``rehearsal``.
"""

from typing import Final

import msgspec

from migrator.errors import BackendMovedError, CopyError
from migrator.store.validation import GLOBAL

RESOURCE: Final = "persistence"
KEY: Final = f"{GLOBAL}/{RESOURCE}"
BACKEND: Final = "backend"
"""The member of the row's metadata that names the side which holds the data."""
COPY: Final = "copy"
"""The member that names the source whose copy the database holds."""
REHEARSAL: Final = "rehearsal"
"""The member that holds since when rows of the copy may be changed."""


class Epoch(msgspec.Struct, frozen=True):
    """The content of the row."""

    number: int
    backend: str


class EpochState(msgspec.Struct, frozen=True):
    """What the row of a store's database says; all None: there is no row."""

    backend: str | None = None
    """The side that holds the data; None: there was no cutover."""
    copy: str | None = None
    """The source of a copy that nobody may change. None: there is none, a cutover has moved the data, it is changed in
    a rehearsal, or a parallel run is in progress."""


def copy_words(source: str) -> str:
    """Return the message for a database that is a copy, with the commands that make it another."""
    return (
        f"this PostgreSQL database is a copy of {source}, and no cutover has made it active (lock {KEY}): nothing is"
        " written or claimed here; call migrator cutover run, or migrator cutover parallel before a parallel run; for a"
        ' rehearsal, after which this database allows no cutover, set copy = "may be changed" in [persistence]'
    )


def require(state: EpochState, own: str) -> None:
    """Raise ``BackendMovedError`` if the other side holds the data, ``CopyError`` for a copy that nobody may change."""
    backend = state.backend
    if state.copy is not None:
        raise CopyError(copy_words(state.copy))
    if backend is not None and backend != own:
        raise BackendMovedError(
            f"the scheduler's data is in {backend} since the last cutover or rollback (lock {KEY}), and this"
            " process uses"
            f" {own}: set [persistence] scheduler to {backend} and open the store again"
        )
