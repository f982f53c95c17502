"""What is read from standard input and printed to standard output.

One JSON object is read:

``library``
    the module of this package that knows the library
``do``
    ``prepare`` (the library makes its tables), ``entries`` (what the library finds), ``fires`` (next fires), ``work``
    (the library executes what is due)
``store``
    ``{"kind": "postgresql", "dsn": …, "schema": …, "tables": {…}}`` or ``{"kind": "mongodb", "uri": …, "database": …,
    "collections": {…}}``; schema, tables and collections are the library's own if omitted
``options``
    what the library is configured with
``now``
    for ``work``: the time that its clock shows, with offset
``windows``
    for ``fires``: pairs of instants with offset; ``limit``: the most fires of an entry in a window; ``entry_seconds``:
    the processor time that one of them may take
``seconds``
    after which the process ends itself
``scratch``
    ``work`` and ``prepare`` are refused unless it is true: they write

JSON lines are printed. Each has ``kind``; the last one is ``done`` with the library's name and version, and the number
of lines of each kind: an output without it is not whole. A line ``failed`` stands for what the library could not do
with one entry. Instead of ``done``: ``missing`` (a module is not installed), ``no`` (the request is refused) and
``broken`` (the library fails as a whole).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import signal
import sys
import threading
import traceback
from collections import Counter
from importlib import metadata
from typing import IO, Any, Callable, Iterator

MISSING = 3
"""Exit status where a module is not installed."""
FAILED = 1
REFUSED = 2
WRITES = frozenset({"prepare", "work"})


class Refused(Exception):  # noqa: N818 - not every refusal is an error of the caller
    """What was asked for cannot be done; the words say why."""


class TooLongError(Exception):
    """The library computes without end, or nearly so."""


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise ``TooLongError`` when what is done has taken so many seconds of processor time; in the main thread alone.

    A trigger whose parts never agree makes some libraries search for ever.
    """

    def stop(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class Lines:
    """Prints the lines of an answer; may be called by several threads."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def put(self, kind: str, **members: Any) -> None:
        """Print one line."""
        line = json.dumps({"kind": kind, **members}, allow_nan=False)
        with self._lock:
            self.counts[kind] += 1
            self._stream.write(line + "\n")
            self._stream.flush()

    def fail(self, key: Any, error: BaseException, **members: Any) -> None:
        """Print that the library could not do something with an entry: the class of the error.

        Its words stay here: they may quote what is stored.
        """
        self.put("failed", id=key, error=type(error).__name__, **members)


def in_threads(number: int, act: Callable[[int, threading.Barrier], None], timeout: float | None = None) -> None:
    """Call ``act(position, barrier)`` in so many threads at one time; raise what the first of them that failed raised.

    ``barrier``: of all of them, broken when one fails; ``timeout``: seconds that one waits at it.
    """
    barrier = threading.Barrier(number, timeout=timeout)
    errors: list[BaseException] = []

    def run(position: int) -> None:
        try:
            act(position, barrier)
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(position,)) for position in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def main() -> int:
    """Read the request, carry it out, print the answer; return the exit status."""
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no line of the answer
    lines = Lines(stream)
    request = json.loads(sys.stdin.buffer.read())
    signal.alarm(request["seconds"])
    if request["do"] in WRITES and request.get("scratch") is not True:
        lines.put("no", words=f"{request['do']} writes, and the request does not say that the tables are scratch")
        return REFUSED
    try:
        probe = importlib.import_module(f"{__package__}.{request['library']}")
        getattr(probe, request["do"])(request, lines)
    except ImportError as error:
        lines.put("missing", module=error.name or str(error)[:200])
        return MISSING
    except Refused as refused:
        lines.put("no", words=str(refused))
        return REFUSED
    except Exception as error:  # noqa: BLE001 - whatever a library raises; what led to it is on standard error
        traceback.print_exc()
        lines.put("broken", error=type(error).__name__, words=str(error)[:1000])
        return FAILED
    versions = {name: metadata.version(name) for name in probe.DISTRIBUTIONS}
    lines.put("done", versions=versions, python=platform.python_version(), counts=dict(sorted(lines.counts.items())))
    return 0
