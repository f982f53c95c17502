"""What the tool says while it works."""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from migrator import telemetry
from migrator.progress import Progress
from migrator.redaction import redact
from migrator.telemetry import bytes_text, waiting

COLOURS = re.compile(r"\x1b\[(3[0-9]|9[0-7])")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("mongodb://me:hunter2@host/db", "mongodb://***@host/db"),
        ("mongodb+srv://me:hunter2@host", "mongodb+srv://***@host"),
        ("postgresql://me:hunter2@host/db and postgres://x:y@z", "postgresql://***@host/db and postgres://***@z"),
        ("host=h password=hunter2 dbname=d", "host=h password=*** dbname=d"),
        ("password='hun ter2' user=me", "password=*** user=me"),
        ("PASSWORD: hunter2", "PASSWORD: ***"),
        ("mongodb://host/db", "mongodb://host/db"),
    ],
)
def test_credentials_are_taken_out(text: str, safe: str) -> None:
    assert redact(text) == safe


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (20_700_000, "20.7 MB"), (3e12, "3000.0 GB")]
)
def test_bytes_are_readable(count: float, text: str) -> None:
    assert bytes_text(count) == text


def test_a_line_says_how_much_how_fast_and_how_long_still() -> None:
    progress = Progress("backfill", {"runs": 900, "locks": 100}, stream=io.StringIO())
    progress.add("runs", 250, 300, 1_000_000, 2)
    assert progress.line(progress._began + 5) == (
        "backfill: 250 of about 1,000 documents, 300 rows, 1.0 MB; 50 documents/s, 60 rows/s, 200.0 kB/s; "
        "quarantined 2, 15 s left"
    )
    progress.add("runs", 750, 700, 0, 0)
    assert progress.line(progress._began + 5).endswith("200 documents/s, 200 rows/s, 200.0 kB/s; quarantined 2")


def test_a_terminal_shows_a_bar_for_each_collection_and_why_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    with Progress("backfill", {"runs": 40, "locks": 2, "empty": 0}, stream=stream) as progress:
        progress.add("runs", 10, 10, 10, 0)
        telemetry.say("a line above\x1b[2J")
        progress.waiting("the source at mongodb://me:hunter2@host went away")
    drawn = stream.getvalue()
    assert "runs" in drawn
    assert "10 of about 40" in drawn
    assert "10 of about 42" in drawn  # all
    assert "empty" not in drawn
    assert "a line above\\u001b[2J" in drawn
    assert "waiting: the source at mongodb://***@host went away" in drawn
    assert drawn.count("\x1b[?25l") == drawn.count("\x1b[?25h") == 1  # the cursor is there again
    assert COLOURS.search(drawn)
    assert "backfill: 10 of about 42 documents" in drawn.split("\x1b[?25h")[1]
    assert not telemetry.has_display()


def test_colours_are_left_out_where_nobody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    with Progress("backfill", {"runs": 40}, stream=stream) as progress:
        progress.add("runs", 10, 10, 10, 0)
    assert not COLOURS.search(stream.getvalue())


def test_an_error_takes_the_bars_away_and_writes_no_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with pytest.raises(ZeroDivisionError), Progress("backfill", {"runs": 40}, stream=stream):
        raise ZeroDivisionError
    assert stream.getvalue().count("\x1b[?25l") == stream.getvalue().count("\x1b[?25h") == 1
    assert "documents/s" not in stream.getvalue()
    assert not telemetry.has_display()


def test_elsewhere_lines_are_plain_and_few() -> None:
    stream = io.StringIO()
    with Progress("backfill", {"runs": 2}, stream=stream) as progress:
        progress.add("runs", 1, 1, 10, 0)
        progress._said -= 10  # ten seconds ago
        progress.add("runs", 1, 1, 10, 0)
    first, last = stream.getvalue().splitlines()
    assert re.fullmatch(r"backfill: 2 of about 2 documents, [^\r\x1b]+", first)
    assert re.fullmatch(r"backfill: 2 of about 2 documents, [^\r\x1b]+", last)


@pytest.fixture
def output() -> Iterator[None]:
    before = asdict(telemetry.output_settings())
    yield
    telemetry.set_output(**before)


@pytest.mark.usefixtures("output")
@pytest.mark.parametrize("unwanted", [{"progress": False}, {"verbosity": -1}])
def test_progress_that_is_not_wanted_is_not_shown(unwanted: dict[str, Any]) -> None:
    telemetry.set_output(**unwanted)
    for stream in (io.StringIO(), Terminal()):
        with Progress("backfill", {"runs": 2}, stream=stream) as progress:
            progress._said -= 10
            progress.add("runs", 1, 1, 10, 0)
        assert stream.getvalue() == ""


@pytest.mark.usefixtures("output")
@pytest.mark.parametrize(("verbosity", "said"), [(-1, ["w"]), (0, ["i", "w"]), (1, ["d", "i", "w"])])
def test_what_is_said_depends_on_what_was_asked_for(verbosity: int, said: list[str]) -> None:
    telemetry.set_output(verbosity=verbosity)
    stream = io.StringIO()
    telemetry.say("d", level="debug", stream=stream)
    telemetry.say("i", stream=stream)
    telemetry.say("w", level="warning", stream=stream)
    assert stream.getvalue().split() == said


@pytest.mark.usefixtures("output")
def test_every_line_is_a_json_document_where_that_is_wanted() -> None:
    telemetry.set_output(log_format="json", verbosity=1)
    stream = Terminal()
    with Progress("backfill", {"runs": 2}, stream=stream) as progress:
        progress.add("runs", 1, 1, 10, 0)
        progress.waiting("the source went away")
    lines = [json.loads(line.removeprefix("\r\x1b[K")) for line in stream.getvalue().splitlines()]
    assert [one["level"] for one in lines] == ["debug", "info", "info"]
    assert lines[1]["event"] == "waiting: the source went away"


@pytest.mark.usefixtures("output")
def test_the_log_goes_into_a_file_and_waits_stay_with_the_user(tmp_path: Path) -> None:
    stream = io.StringIO()
    with telemetry.logging_into(tmp_path / "log"):
        telemetry.say("cutover: fence", stream=stream)
        print("leads", file=telemetry.LogStream())  # what structlog prints to
        telemetry.waiting("for the source", stream=stream)
    telemetry.say("after", stream=stream)
    assert (tmp_path / "log").read_text().splitlines() == ["cutover: fence", "leads"]
    assert stream.getvalue().splitlines() == ["waiting: for the source", "after"]


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_reason_for_waiting_stands_in_a_line_of_its_own(stream: io.StringIO) -> None:
    waiting("the source at mongodb://me:hunter2@host went away", stream=stream)
    last = stream.getvalue().split("\x1b[K")[-1].splitlines()[-1]
    assert last == "waiting: the source at mongodb://***@host went away"
