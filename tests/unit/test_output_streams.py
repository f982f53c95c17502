"""What stands in a document never reaches a terminal as something that it obeys."""

import io
import json
import re
import sys
from pathlib import Path

import pytest
import structlog

from migrator.cli.options import print_json, print_lines
from migrator.log import logger
from migrator.progress import Progress
from migrator.telemetry import VisibleStream, say, shield_streams, visible

HOSTILE = "\x1b]0;title\x07 \x9b31m \x7f \u202e \u2066 \u2028 \r \0 \ud800 \U000e0041"
SPELLED = "\\u001b]0;title\\u0007 \\u009b31m \\u007f \\u202e \\u2066 \\u2028 \\u000d \\u0000 \\ud800 \\udb40\\udc41"


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def shielded(monkeypatch: pytest.MonkeyPatch) -> tuple[io.BytesIO, io.BytesIO]:
    """Put the streams of a terminal in place, shielded; pytest would replace those of a fixture."""
    out, err = io.BytesIO(), io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Terminal(out, encoding="utf-8", write_through=True))
    monkeypatch.setattr(sys, "stderr", Terminal(err, encoding="utf-8", write_through=True))
    shield_streams()
    return out, err


def test_what_a_terminal_obeys_is_spelled_out() -> None:
    assert visible(HOSTILE) == SPELLED
    assert visible("a\nb\tc") == "a\\u000ab\\u0009c"
    assert visible("plain, Grüße, 日本語, 🎉") == "plain, Grüße, 日本語, 🎉"


def test_a_shielded_stream_lets_only_line_ends_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = shielded(monkeypatch)
    sys.stdout.write(f"{HOSTILE}\n")
    sys.stderr.write(f"{HOSTILE}\n")
    assert [one.getvalue().decode() for one in streams] == [SPELLED + "\n"] * 2


def test_lines_progress_and_log_are_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    structlog.reset_defaults()  # another test may have chosen the form of the log already
    streams = shielded(monkeypatch)
    out, err = streams
    print_lines([f"one\n{HOSTILE}", "two"])
    assert out.getvalue().decode() == f"one\\u000a{SPELLED}\ntwo\n"
    say(f"x\n{HOSTILE}")
    assert err.getvalue().decode() == f"\r\x1b[Kx\\u000a{SPELLED}\n"
    err.seek(0)
    err.truncate()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "400")
    with Progress(HOSTILE, {HOSTILE: 3}) as progress:
        progress.add(HOSTILE, 1, 1, 1, 0)
        progress.waiting(HOSTILE)
        say(HOSTILE)
        logger().info(HOSTILE)
    logger().info(HOSTILE)
    said = err.getvalue().decode()
    of_the_bars = re.compile(r"\x1b\[(\?25[lh]|[0-9;]*[mAK])|\r")
    assert said.count(SPELLED) >= 7
    assert {one for one in of_the_bars.sub("", said) if not one.isprintable()} == {"\n"}


def test_json_stays_the_same_document(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = shielded(monkeypatch)
    value = {HOSTILE.replace("\ud800", ""): ["\x9b", "\u202e", "\x7f", "\\u009b", "ü"]}
    print_json(value)
    said = streams[0].getvalue().decode()
    assert json.loads(said) == value
    assert all(one.isprintable() or one == "\n" for one in said)
    assert "\\u009b" in said
    assert "\\u202e" in said


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_with_fewer_characters_takes_every_text(encoding: str, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding=encoding) as file:
        stream = VisibleStream(file)
        stream.write("日 \ud800\n")
        stream.flush()
    assert (tmp_path / "out").read_bytes() == {"ascii": "日 \\ud800\n".encode(), "latin-1": b"\\u65e5 \\ud800\n"}[
        encoding
    ]


def test_nobody_writes_past_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shielded(monkeypatch)
    assert not hasattr(sys.stdout, "buffer")
    assert sys.stdout.isatty()
    before = sys.stdout
    shield_streams()
    assert sys.stdout is before
