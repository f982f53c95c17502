"""Progress: a bar for each collection on a terminal, elsewhere a plain line every ten seconds."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self, TextIO

from migrator import telemetry
from migrator.telemetry import bytes_text, visible

EVERY_S: Final = 10.0
"""Seconds between two lines where there is no terminal."""
REDRAWN_S: Final = 0.2


class Progress:
    """Counts what is done, and shows it while the block lasts. Use it as a context manager."""

    def __init__(
        self, verb: str, expected: Mapping[str, int], *, stream: TextIO | None = None, every: float = EVERY_S
    ) -> None:
        """Expect about so many documents of each collection."""
        self._stream = sys.stderr if stream is None else stream
        self._every = every
        self._verb = verb
        self._expected = {visible(name): count for name, count in expected.items()}
        self._began = self._said = time.monotonic()
        self._bars: _Bars | None = None
        self.documents = self.rows = self.bytes = self.quarantined = 0

    def __enter__(self) -> Self:
        """Show it from now on."""
        if telemetry.draws_bars(self._stream):
            self._bars = _Bars(self._verb, self._expected, self._stream)
            telemetry.set_display(self._bars)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing it; write the last line unless it was ended by an error."""
        if self._bars is not None:
            telemetry.set_display(None)
            self._bars.close()
        if kind is None and telemetry.shows_progress():
            self._write()

    def add(self, collection: str, documents: int, rows: int, size: int, quarantined: int) -> None:
        """Count a finished chunk."""
        self.documents += documents
        self.rows += rows
        self.bytes += size
        self.quarantined += quarantined
        telemetry.say(
            f"{self._verb}: {collection}: {documents:,} documents, {rows:,} rows, {quarantined:,} quarantined",
            level="debug",
            stream=self._stream,
        )
        now = time.monotonic()
        if self._bars is not None:
            self._bars.add(visible(collection), documents)
        elif now - self._said >= self._every and telemetry.shows_progress():
            self._said = now
            self._write(now)

    def waiting(self, reason: str) -> None:
        """Say why nothing moves."""
        telemetry.waiting(reason, stream=self._stream)

    def line(self, now: float | None = None) -> str:
        """Return the line as it would be written at ``now`` (``time.monotonic``)."""
        spent = max((time.monotonic() if now is None else now) - self._began, 1e-9)
        rate = self.documents / spent
        expected = sum(self._expected.values())
        left = max(expected - self.documents, 0)
        eta = f", {left / rate:.0f} s left" if rate and left else ""
        return (
            f"{self._verb}: {self.documents:,} of about {expected:,} documents, {self.rows:,} rows, "
            f"{bytes_text(self.bytes)}; {rate:,.0f} documents/s, {self.rows / spent:,.0f} rows/s, "
            f"{bytes_text(self.bytes / spent)}/s; quarantined {self.quarantined:,}{eta}"
        )

    def _write(self, now: float | None = None) -> None:
        telemetry.write_line(self.line(now), stream=self._stream)


class _Bars:
    """Bars of rich: one for each collection, one for all; below them why nothing moves."""

    def __init__(self, verb: str, expected: Mapping[str, int], stream: TextIO) -> None:
        # loaded here: few commands show bars, and all must begin quickly
        from rich.console import Console, Group  # noqa: PLC0415 - it takes a tenth of a second
        from rich.live import Live  # noqa: PLC0415 - as above
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - as above
        from rich.progress import Progress as RichProgress  # noqa: PLC0415 - as above
        from rich.text import Text  # noqa: PLC0415 - as above

        self._text: Any = Text
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:>11,.0f} of about {task.total:,.0f}", markup=False),
            TextColumn("{task.fields[rate]:>9,.0f}/s", markup=False),
            TimeRemainingColumn(),
        )
        self._console = Console(file=telemetry.raw_stream(stream), force_terminal=True, highlight=False)
        self._progress = RichProgress(*columns, console=self._console, auto_refresh=False)
        self._reason = Text("")
        self._began = time.monotonic()
        self._tasks = {
            name: self._progress.add_task(name, total=count, rate=0.0)
            for name, count in expected.items()
            if count or len(expected) == 1
        }
        self._whole = self._progress.add_task(f"{visible(verb)}: all", total=sum(expected.values()), rate=0.0)
        self._live = Live(
            Group(self._progress, self._reason),
            console=self._console,
            refresh_per_second=1 / REDRAWN_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def add(self, collection: str, documents: int) -> None:
        """Count documents; something moves, so nothing is waited for."""
        self._reason.plain = ""
        spent = max(time.monotonic() - self._began, 1e-9)
        for task in (self._tasks.get(collection), self._whole):
            if task is None:
                continue
            self._progress.advance(task, documents)
            done = self._progress.tasks[self._progress.task_ids.index(task)].completed
            self._progress.update(task, rate=done / spent)

    def waiting(self, reason: str) -> None:
        """Show why nothing moves."""
        self._reason.plain = f"waiting: {reason}"

    def print(self, line: str) -> None:
        """Write a line above the bars."""
        self._console.print(self._text(line), soft_wrap=True)

    def close(self) -> None:
        """Take the bars away."""
        self._live.stop()
