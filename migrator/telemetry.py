"""What the tool says: lines for the user, and the streams through which all output goes."""

import codecs
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TextIO, cast

from migrator.redaction import redact, redact_line

LEVELS: Final = {"debug": -1, "info": 0, "warning": 1}


def is_utf8(text: str) -> bool:
    """Whether a text of the command line or the environment was UTF-8; Python keeps other bytes as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that a terminal obeys, or shows as nothing: controls, directions, lone surrogates, separators."""
_ERASE_LINE = "\r\x1b[K"


def visible(text: str) -> str:
    r"""Return a text as one line that a terminal only shows: what it would obey is spelled out as ``\\u001b``.

    The spelling is JSON's, so that a JSON document whose strings hold such characters stays the same document.
    """
    if text.isprintable():
        return text
    return "".join(one if unicodedata.category(one) not in _INVISIBLE else _spelled(one) for one in text)


def _spelled(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def _visible_and_redacted(line: str) -> str:
    return redact_line(visible(line))


class VisibleStream:
    """A text stream that spells out what a terminal would obey (``visible``); only line ends pass as they are.

    It has no ``buffer``, so that nobody writes past it.
    """

    def __init__(self, stream: TextIO, *, redacting: bool = False) -> None:
        """Write to ``stream``, which takes every character afterwards: what its encoding lacks is spelled out too.

        ``redacting``: take credentials out of each line too, also of those that libraries write.
        """
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            encoding = "utf-8" if codecs.lookup(stream.encoding).name == "ascii" else stream.encoding
            reconfigure(encoding=encoding, errors="backslashreplace")
        self._stream = stream
        self._safe: Callable[[str], str] = _visible_and_redacted if redacting else visible

    def write(self, text: str) -> int:
        """Write a text of one or more lines; return the number of its characters."""
        self._stream.write("\n".join(map(self._safe, text.split("\n"))))
        return len(text)

    def rewrite(self, text: str) -> None:
        """Write a text in place of the line that the cursor is on."""
        self._stream.write(_ERASE_LINE + "\n".join(map(self._safe, text.split("\n"))))

    @property
    def below(self) -> TextIO:
        """Return the stream itself."""
        return self._stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        """Return an attribute of the stream, but not its bytes."""
        if name in {"buffer", "_stream"}:
            raise AttributeError(name)
        return getattr(self._stream, name)


def shield_streams() -> None:
    """Put a ``VisibleStream`` before standard output and standard error: the one place that all output goes through.

    Standard output may be data (a script, a document), which ``cli.options`` redacts by its structure.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, VisibleStream):
            setattr(sys, name, cast("TextIO", VisibleStream(stream, redacting=name == "stderr")))


def _rewrite(stream: TextIO, text: str) -> None:
    """Write over the line that rewrites itself."""
    if isinstance(stream, VisibleStream):
        stream.rewrite(text)
    else:
        stream.write(_ERASE_LINE + text)


def bytes_text(count: float) -> str:
    """Return a number of bytes as people read it: ``12.3 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":  # noqa: PLR2004 - a decimal step
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


class Display(Protocol):
    """What stands on the terminal and is drawn again and again: lines are written above it."""

    def print(self, line: str) -> None:
        """Write a line."""

    def waiting(self, reason: str) -> None:
        """Show why nothing moves."""


@dataclass(kw_only=True)
class OutputSettings:
    """What the caller asked for, and where lines go now. Worker processes get a copy."""

    verbosity: int = 0
    """1 and more: details too; -1: only warnings and errors."""
    log_format: Literal["text", "json"] | None = None
    """None: messages are text; the log is text on a terminal, and JSON elsewhere."""
    progress: bool = True
    log_file: str = ""
    """Where the log goes instead of standard error; empty: to standard error."""


_output = OutputSettings()
_display: Display | None = None


def output_settings() -> OutputSettings:
    """Return how lines are written."""
    return _output


def set_output(**changed: Any) -> None:  # noqa: ANN401 - fields of OutputSettings
    """Change how lines are written."""
    for name, value in changed.items():
        setattr(_output, name, value)


@contextmanager
def logging_into(file: Path) -> Iterator[None]:
    """Write the log, and what commands say that a check calls, into a file; waits and errors stay on standard error."""
    before = _output.log_file
    _output.log_file = str(file)
    try:
        yield
    finally:
        _output.log_file = before


def shows_progress() -> bool:
    """Whether progress is wanted."""
    return _output.progress and _output.verbosity >= 0


def draws_bars(stream: TextIO) -> bool:
    """Whether progress is drawn on a stream."""
    return shows_progress() and stream.isatty() and not writes_json()


def writes_json() -> bool:
    """Whether every line is a JSON document."""
    return _output.log_format == "json"


def set_display(display: Display | None) -> None:
    """Name what stands on the terminal, or that nothing does any more."""
    global _display  # noqa: PLW0603 - there is one terminal
    _display = display


def has_display() -> bool:
    """Whether something stands on the terminal."""
    return _display is not None


def raw_stream(stream: TextIO) -> TextIO:
    """Return the stream below a ``VisibleStream``: for what moves the cursor and makes its own texts visible."""
    return stream.below if isinstance(stream, VisibleStream) else stream


def waiting(reason: str, *, stream: TextIO | None = None) -> None:
    """Say why nothing moves."""
    if _output.verbosity < 0:
        return
    if _display is not None:
        _display.waiting(visible(redact(reason)))
    else:
        write_line(f"waiting: {reason}", stream=stream)


def say(text: str, *, level: Literal["debug", "info", "warning"] = "info", stream: TextIO | None = None) -> None:
    """Write a line for the user; ``debug`` only with ``-v``, and with ``-q`` only a ``warning``."""
    if LEVELS[level] < -_output.verbosity:
        return
    if _output.log_file:
        append_log(f"{visible(redact(text))}\n")
    else:
        write_line(text, level=level, stream=stream)


def write_line(text: str, *, level: str = "info", stream: TextIO | None = None) -> None:
    """Write a line on standard error, over one that rewrites itself if there is one."""
    stream = sys.stderr if stream is None else stream
    line = visible(redact(text))
    if _output.log_format == "json":
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        line = json.dumps({"event": line, "level": level, "timestamp": at}, sort_keys=True)
    if _display is not None:
        _display.print(line)
        return
    line += "\n"  # in one piece: several processes share the stream
    if stream.isatty() and _output.log_format != "json":
        _rewrite(stream, line)
    else:
        stream.write(line)
    stream.flush()


def restore_terminal() -> None:
    """Show the cursor again, which bars hide, where the process ends without taking them away."""
    if _display is not None and sys.stderr is not None and sys.stderr.isatty():
        raw_stream(sys.stderr).write("\n\x1b[?25h")


def append_log(text: str) -> None:
    """Append to the file that the log goes to; several processes write there."""
    descriptor = os.open(_output.log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)


class LogStream:
    """Where the log's lines go: standard error, above what stands on the terminal, or a file."""

    def __init__(self) -> None:
        self._part = ""

    def write(self, text: str) -> int:
        """Take a text; write the lines that are complete."""
        *lines, self._part = (self._part + text).split("\n")
        for line in map(_visible_and_redacted, lines):
            if _output.log_file:
                append_log(f"{line}\n")
            elif _display is not None:
                _display.print(line)
            else:
                sys.stderr.write(f"{line}\n")
        return len(text)

    def flush(self) -> None:
        """Write through."""
        if not _output.log_file and _display is None:
            sys.stderr.flush()
