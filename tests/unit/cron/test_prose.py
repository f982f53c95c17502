"""A line in words: what its dialect takes it to mean."""

import pytest

from migrator.cron import CronError, describe


@pytest.mark.parametrize(
    ("dialect", "line", "words"),
    [
        ("cronos", "30 2 * * *", "at 02:30 every day"),
        ("cronos", "30 2 * * 1-5", "at 02:30 on Monday to Friday"),
        ("croner", "0 9 * * 1", "at 09:00 on Monday"),
        ("apscheduler", "0 9 * * 1", "at 09:00 on Tuesday"),
        ("cronos", "0 0 13 * 5", "at 00:00 on day 13 of the month, if it is Friday"),
        ("robfig", "0 0 13 * 5", "at 00:00 on day 13 of the month, and on Friday"),
        ("croner", "0 0 1-31 * 1", "at 00:00 every day"),
        ("robfig", "TZ=Asia/Tokyo 0 5 1,15 * *", "at 05:00 on day 1 and 15 of the month in Asia/Tokyo"),
        ("agenda", "* * * * *", "every minute"),
        ("debian", "*/15 * * * *", "every 15 minutes"),
        ("debian", "*/15 9-17 * * 1-5", "every 15 minutes of hour 9-17 on Monday to Friday"),
        ("debian", "0 */6 * * *", "at 00:00, 06:00, 12:00 and 18:00 every day"),
        ("debian", "0 */3 * * *", "on the hour of every 3. hour"),
        ("debian", "0 9,17 * * 1,3,5", "at 09:00 and 17:00 on Monday, Wednesday and Friday"),
        ("debian", "5,7,9-12 * * * *", "at minute 5, 7 and 9-12 of every hour"),
        ("cronos", "*/10 * * * * *", "at second 0, 10, 20, 30, 40 and 50 of every minute"),
        ("cronos", "* * * * * *", "every second of every minute"),
        ("cronos", "0 0 L-3W * *", "at 00:00 on the working day nearest to the last day of the month less 3"),
        ("cronos", "0 0 L-2 * *", "at 00:00 on the last day of the month less 2"),
        ("cronos", "0 0 15W * *", "at 00:00 on the working day nearest to day 15 of the month"),
        (
            "croner",
            "0 0 L * 5#2",
            "at 00:00 on the last day of the month, and on the second Friday of the month",
        ),
        ("croner", "2026-03-04T05:06:07", "at 05:06:07 on day 4 of the month in March in 2026"),
        (
            "apscheduler",
            '{"day": "last fri", "hour": "2", "week": "1-10"}',
            "at 02:00 on the last Friday of the month in week 1-10",
        ),
        ("agenda-at", "3:30pm", "at 15:30 every day"),
    ],
)
def test_lines_in_words(dialect: str, line: str, words: str) -> None:
    assert describe(dialect, line) == words


def test_a_bad_line_has_no_words() -> None:
    with pytest.raises(CronError):
        describe("cronos", "60 * * * *")


def test_a_line_that_its_library_evaluates_has_no_words() -> None:
    with pytest.raises(CronError, match="expected one that is evaluated without its library, not croniter"):
        describe("croniter", "0 0 1 1 *")
