"""Repeating a transaction that another session overtook.

Not stamina: such a conflict is over in milliseconds and is part of the normal course, while stamina reports each retry
through hooks that belong to the whole process, which is the application's.
"""

from collections.abc import Callable
from random import uniform
from time import sleep
from typing import Final, TypeVar

from migrator.errors import OvertakenError

Result = TypeVar("Result")

ATTEMPTS: Final = 30
"""How often a session is begun that other sessions end; the pauses take 0.6 s on average."""


def is_overtaken(error: Exception) -> bool:
    """Whether the transaction may be repeated; a key that is taken stays taken."""
    return isinstance(error, OvertakenError)


def pause(attempt: int, *, longest: float = 0.05) -> None:
    """Wait for a moment that differs from process to process, longer with every attempt; in seconds."""
    sleep(uniform(0, min(longest, 0.001 * 2 ** min(attempt, 20))))  # noqa: S311 - no secret


def repeat(
    act: Callable[[], Result], again: Callable[[Exception], bool], *, attempts: int, longest: float = 0.05
) -> Result:
    """Return the answer of ``act``; call it again, after a pause, where ``again`` says so of its error.

    ``attempts``: how often it is called at most; the last error is raised as it is. ``longest``: the longest pause in
    seconds; 0: none.
    """
    for attempt in range(attempts - 1):
        try:
            return act()
        except Exception as error:
            if not again(error):
                raise
        if longest:
            pause(attempt, longest=longest)
    return act()


def repeat_session(act: Callable[[], Result]) -> Result:
    """Return the answer of ``act``; call it again if another session overtook it, ``ATTEMPTS`` times at most."""
    return repeat(act, is_overtaken, attempts=ATTEMPTS)
