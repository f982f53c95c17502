"""What an execution's stated duration is worth beside its times."""

from datetime import datetime, timedelta
from typing import Final

from migrator.sources.profile import Note

_MILLISECOND: Final = timedelta(milliseconds=1)


def duration_of(
    stated: int | None,
    started: datetime | None,
    finished: datetime | None,
    *,
    column: str,
    tolerance: int,
    notes: list[Note],
) -> int | None:
    """Return the duration in milliseconds: the stated one, else what the times say.

    Noted: a stated one that is further than ``tolerance`` (milliseconds) from the times, one that is negative, one that
    had to be computed, and an end before the beginning. The last and a negative one give none.
    """
    elapsed = None if started is None or finished is None else (finished - started) // _MILLISECOND
    if elapsed is not None and elapsed < 0:
        notes.append(Note("finished-before-started", column))
        return None
    if stated is None:
        if elapsed is not None:
            notes.append(Note("duration-computed", column))
        return elapsed
    if stated < 0:
        notes.append(Note("negative-duration", column))
        return None
    if elapsed is not None and abs(stated - elapsed) > tolerance:
        notes.append(Note("duration-mismatch", column))
    return stated
