"""What the tool says while it works."""

import io
import re

import pytest

from migrator.telemetry import Progress, bytes_text, redact, waiting


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
    progress = Progress("backfill", 1_000, stream=io.StringIO())
    progress.add(250, 300, 1_000_000, 2)
    assert progress.line(progress._began + 5) == (
        "backfill: 250 of about 1,000 documents, 300 rows, 1.0 MB; 50 documents/s, 60 rows/s, 200.0 kB/s; "
        "quarantined 2, 15 s left"
    )
    progress.add(750, 700, 0, 0)
    assert progress.line(progress._began + 5).endswith("200 documents/s, 200 rows/s, 200.0 kB/s; quarantined 2")


def test_a_line_rewrites_itself_on_a_terminal() -> None:
    stream = Terminal()
    progress = Progress("backfill", 2, stream=stream, every=0)
    progress.add(1, 1, 10, 0)
    progress.add(1, 1, 10, 0)
    progress.close()
    assert stream.getvalue().count("\n") == 1
    assert [line[:10] for line in stream.getvalue().split("\r\x1b[K")[1:]] == ["backfill: "] * 3


def test_elsewhere_lines_are_plain_and_few() -> None:
    stream = io.StringIO()
    progress = Progress("backfill", 2, stream=stream, every=1_000_000)
    progress.add(1, 1, 10, 0)
    progress.close()
    assert re.fullmatch(r"backfill: 1 of about 2 documents, [^\r\x1b]+\n", stream.getvalue())


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_reason_for_waiting_stands_in_a_line_of_its_own(stream: io.StringIO) -> None:
    progress = Progress("backfill", 2, stream=stream, every=0)
    progress.add(1, 1, 10, 0)
    waiting("the source at mongodb://me:hunter2@host went away", stream=stream)
    last = stream.getvalue().split("\x1b[K")[-1].splitlines()[-1]
    assert last == "waiting: the source at mongodb://***@host went away"
