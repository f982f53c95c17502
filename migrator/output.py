"""Standard output and standard error as the command line needs them: a result that is not received is an error.

Without this a full disk under standard output ends in a traceback and status 120, a reader that has gone in status 1,
and a closed stream in a result that nobody gets, with its file descriptor given to the next connection.
"""

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from migrator.errors import MigratorError, UsageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputError(MigratorError):
    """Standard output cannot be written: its disk is full, or its reader has gone."""


class _OutputStream(io.RawIOBase):
    """The bytes of a stream; once they cannot be written, those that follow are discarded."""

    def __init__(self, descriptor: int, *, required: bool) -> None:
        """Write to ``descriptor``; raise ``OutputError`` once where a stream that is ``required`` cannot be written."""
        self._raw = io.FileIO(descriptor, "w", closefd=False)
        self._required = required
        self._failed = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()

    def write(self, data: "ReadableBuffer", /) -> int | None:
        if not self._failed:
            try:
                return self._raw.write(data)
            except OSError as error:
                self._failed = True
                if self._required:
                    reason = (error.strerror or type(error).__name__).lower()
                    raise OutputError(f"cannot write standard output: {reason}; the result is incomplete") from None
        return memoryview(data).nbytes


def prepare() -> None:
    """Put the streams in order before anything is opened; raises ``UsageError`` where standard output is closed.

    Messages may get lost, and the command is carried out; a result may not.
    """
    for descriptor in range(3):  # a connection that got one of these would be written into
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest that is free
    if sys.stderr is None or sys.stderr is sys.__stderr__:  # not one that a test put there
        sys.stderr = _text(2, sys.stderr.encoding if sys.stderr else "utf-8", required=False)
    if sys.stdout is None:
        raise UsageError("standard output is closed; redirect it to /dev/null where the result is not wanted")
    encoding = sys.stdout.encoding
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(1, encoding, required=True)


def _text(descriptor: int, encoding: str, *, required: bool) -> TextIO:
    """Return a stream of lines; what its encoding lacks is escaped."""
    return io.TextIOWrapper(
        io.BufferedWriter(_OutputStream(descriptor, required=required)),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=True,
    )
