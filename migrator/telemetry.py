"""What the tool says: redaction, progress, and the streams through which all output goes."""

import codecs
import re
import sys
import time
import unicodedata
from typing import Any, TextIO, cast

_SECRETS = (
    # up to the last "@": a password may hold one that is not percent-encoded
    (re.compile(r"(?i)\b(mongodb(?:\+srv)?|postgres(?:ql)?)://[^\s'\"]*@"), r"\1://***@"),
    (re.compile(r"(?i)\b(password|passwd|pwd|secret|token|sslpassword)(\s*[=:]\s*)('[^']*'|\S+)"), r"\1\2***"),
)


def redact(text: str) -> str:
    """Take credentials out of a text: those in a URI, and the values of ``password=`` and its like."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def is_utf8(text: str) -> bool:
    """Tell whether a text of the command line or the environment was UTF-8; Python keeps other bytes as surrogates."""
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


class VisibleStream:
    """A text stream that spells out what a terminal would obey (``visible``); only line ends pass as they are.

    It has no ``buffer``, so that nobody writes past it.
    """

    def __init__(self, stream: TextIO) -> None:
        """Write to ``stream``, which takes every character afterwards: what its encoding lacks is spelled out too."""
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            encoding = "utf-8" if codecs.lookup(stream.encoding).name == "ascii" else stream.encoding
            reconfigure(encoding=encoding, errors="backslashreplace")
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text of one or more lines; return the number of its characters."""
        self._stream.write(text if text.isascii() and text.isprintable() else "\n".join(map(visible, text.split("\n"))))
        return len(text)

    def rewrite(self, text: str) -> None:
        """Write a text in place of the line that the cursor is on."""
        self._stream.write(_ERASE_LINE + "\n".join(map(visible, text.split("\n"))))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        """Return an attribute of the stream, but not its bytes."""
        if name in {"buffer", "_stream"}:
            raise AttributeError(name)
        return getattr(self._stream, name)


def shield_streams() -> None:
    """Put a ``VisibleStream`` before standard output and standard error: the one place that all output goes through."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, VisibleStream):
            setattr(sys, name, cast("TextIO", VisibleStream(stream)))


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


def waiting(reason: str, *, stream: TextIO | None = None) -> None:
    """Say why nothing moves."""
    say(f"waiting: {reason}", stream=stream)


def say(text: str, *, stream: TextIO | None = None) -> None:
    """Write a line of its own, over one that rewrites itself if there is one."""
    stream = sys.stderr if stream is None else stream
    line = f"{visible(redact(text))}\n"  # in one piece: several processes share the stream
    if stream.isatty():
        _rewrite(stream, line)
    else:
        stream.write(line)
    stream.flush()


class Progress:
    """Counts what is done and says so: one line that rewrites itself on a terminal, else a plain line now and then."""

    def __init__(self, verb: str, expected: int, *, stream: TextIO | None = None, every: float | None = None) -> None:
        """Expect about ``expected`` documents; write at most every ``every`` seconds (0.2 on a terminal, else 5)."""
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._every = every if every is not None else (0.2 if self._live else 5.0)
        self._verb = verb
        self._expected = expected
        self._began = self._said = time.monotonic()
        self.documents = self.rows = self.bytes = self.quarantined = 0

    def add(self, documents: int, rows: int, size: int, quarantined: int) -> None:
        """Count a finished chunk and say where things stand, unless that was said a moment ago."""
        self.documents += documents
        self.rows += rows
        self.bytes += size
        self.quarantined += quarantined
        now = time.monotonic()
        if now - self._said >= self._every:
            self._said = now
            self._write(self.line(now))

    def waiting(self, reason: str) -> None:
        """Say why nothing moves."""
        waiting(reason, stream=self._stream)

    def line(self, now: float | None = None) -> str:
        """Return the line as it would be written at ``now`` (``time.monotonic``)."""
        spent = max((time.monotonic() if now is None else now) - self._began, 1e-9)
        rate = self.documents / spent
        left = max(self._expected - self.documents, 0)
        eta = f", {left / rate:.0f} s left" if rate and left else ""
        return (
            f"{self._verb}: {self.documents:,} of about {self._expected:,} documents, {self.rows:,} rows, "
            f"{bytes_text(self.bytes)}; {rate:,.0f} documents/s, {self.rows / spent:,.0f} rows/s, "
            f"{bytes_text(self.bytes / spent)}/s; quarantined {self.quarantined:,}{eta}"
        )

    def close(self) -> None:
        """Write the last line."""
        self._write(self.line(), final=True)

    def _write(self, line: str, *, final: bool = False) -> None:
        if self._live:
            _rewrite(self._stream, line + ("\n" if final else ""))
        else:
            self._stream.write(line + "\n")
        self._stream.flush()
