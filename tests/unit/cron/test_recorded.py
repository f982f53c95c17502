"""What engines answered, recorded once with the libraries themselves (see ``data/README.md``)."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from migrator.cron import CronError, next_fire, next_fires
from migrator.cron.agenda import interval_ms

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize(
    ("library", "dialect"),
    [
        ("croner-9.1.0", "croner"),
        ("cron-parser-5.10.5", "agenda"),
        ("cron-parser-3.5.0", "agenda"),
        ("croniter-7.0.0", "croniter"),
    ],
)
@pytest.mark.proves("0-T2.11.3")
def test_fires_are_those_the_library_gave(library: str, dialect: str) -> None:
    wrong = []
    answers = [json.loads(line) for line in (DATA / f"{library}.jsonl").read_text().splitlines()]
    for line, zone, start, expected in answers:
        try:
            fires = next_fires(dialect, line, zone, datetime.fromtimestamp(start, UTC), len(expected or "?"))
            found: list[int] | None = [int(fire.timestamp()) for fire in fires]
        except CronError:
            found = None
        if found != expected:
            wrong.append((line, zone, start, expected, found))
    assert len(answers) > 200
    assert wrong == []


def test_intervals_are_those_the_library_gave() -> None:
    for line in (DATA / "human-interval-2.0.1.jsonl").read_text().splitlines():
        text, expected = json.loads(line)
        # a fraction of a millisecond is cut off
        assert interval_ms(text) == (None if expected is None or abs(expected) > 8.64e15 else int(expected)), text


@pytest.mark.parametrize("line", ["0 0 * * *", "30 0 * * *"])
def test_a_gap_at_midnight_is_moved_as_the_newest_cron_parser_moves_it(line: str) -> None:
    """cron-parser 3.5 and 4.9 (Agenda 4 and 5) leave the day out; 5.10 (Agenda 6) does not."""
    start = datetime(2018, 11, 4, 1, 0, tzinfo=UTC)
    minute = int(line.split(maxsplit=1)[0])
    assert next_fires("agenda", line, "America/Sao_Paulo", start, 1) == [datetime(2018, 11, 4, 3, minute, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("line", "zone", "start", "fold"),
    [
        (
            "30 1 1 11 6",
            "America/New_York",
            datetime(2026, 10, 31, tzinfo=UTC),
            datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
        ),
        (
            "30 2 25 10 6",
            "Europe/Berlin",
            datetime(2026, 10, 24, 12, tzinfo=UTC),
            datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
        ),
    ],
)
def test_croniter_fires_once_in_a_fold_where_croniter_does(
    line: str, zone: str, start: datetime, fold: datetime
) -> None:
    """In one search, and from each fire."""
    fires = next_fires("croniter", line, zone, start, 5)
    assert fires[0] == fold
    assert fires[1] - fires[0] > timedelta(days=1)
    moment = start
    for fire in fires:
        found = next_fire("croniter", line, zone, moment)
        assert found == fire
        moment = fire
