"""The table in ``docs/cron.md`` says what the code does: every cell is asked of the dialect itself."""

from datetime import UTC, datetime
from pathlib import Path

from migrator.cron import DIALECTS, CronError, next_fires, validate

PAGE = Path(__file__).resolve().parents[3] / "docs" / "cron.md"
NEW_YORK = "America/New_York"
GAP = datetime(2026, 3, 8, 5, 0, tzinfo=UTC)  # 00:00; 02:00 becomes 03:00
FOLD = datetime(2026, 11, 1, 4, 59, tzinfo=UTC)  # 00:59; 02:00 becomes 01:00
MACROS = ("@daily", "@midnight", "@every_second", "@weekdays")


def takes(dialect: str, line: str) -> bool:
    try:
        validate(dialect, line, None)
    except CronError:
        return False
    return True


def answer(dialect: str, line: str, start: datetime, count: int) -> list[datetime]:
    return next_fires(dialect, line, NEW_YORK, start, count)


def fields(dialect: str) -> str:
    counts = [str(count) for count in range(1, 9) if takes(dialect, " ".join("*" * count))]
    six = answer(dialect, "30 * * * * *", datetime(2026, 1, 1, tzinfo=UTC), 1) if "6" in counts else None
    seconds = "" if six is None else f", seconds {'first' if six[0].second else 'last'}"
    return ", ".join(counts) + seconds


def monday(dialect: str) -> str:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return next(str(day) for day in range(7) if answer(dialect, f"0 12 * * {day}", start, 1)[0].weekday() == 0)


def both_days(dialect: str) -> str:
    start = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
    plain = answer(dialect, "0 12 13 * fri", start, 1)[0].month
    starred = answer(dialect, "0 12 */2 * fri", start, 1)[0].day
    if plain > 3:
        return "and"
    return "or" if starred == 15 else "or; and if one starts with a star"


def macros(dialect: str) -> str:
    return ", ".join(f"`{macro}`" for macro in MACROS if takes(dialect, macro)) or "none"


def in_gap(dialect: str) -> str:
    fire = answer(dialect, "30 2 * * *", GAP, 1)[0]
    return "not that day" if fire.day == 9 else f"{fire.hour - 4:02}:{fire.minute:02}"


def in_fold(dialect: str, line: str) -> str:
    hours = {fire.hour for fire in answer(dialect, line, FOLD, 4) if fire.day == 1 and fire.hour in (5, 6)}
    return {frozenset({5}): "first", frozenset({6}): "second", frozenset({5, 6}): "both"}[frozenset(hours)]


def table() -> list[str]:
    rows = []
    for dialect in DIALECTS:
        if dialect in ("agenda-at", "quartz"):
            continue  # neither takes a line of five fields
        cells = (
            f"`{dialect}`",
            fields(dialect),
            monday(dialect),
            both_days(dialect),
            macros(dialect),
            in_gap(dialect),
            in_fold(dialect, "30 1 * * *"),
            in_fold(dialect, "*/30 * * * *"),
        )
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def test_the_page_has_the_table_of_the_code() -> None:
    page = PAGE.read_text()
    missing = [row for row in table() if row not in page]
    assert missing == []


def test_the_page_names_every_dialect_and_its_source() -> None:
    page = PAGE.read_text()
    for dialect in DIALECTS:
        assert f"### `{dialect}`" in page
    assert page.count("Source: ") == len(DIALECTS)
