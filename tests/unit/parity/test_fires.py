"""The next fires of two rules: equal where they mean the same, and a word for how they differ where they do not."""

from datetime import UTC, datetime

import msgspec
import pytest

from migrator.parity.firing_rules import FiresDifference, FiringRule, compare_fires, stellaops_schedule

SINCE = datetime(2026, 11, 20, tzinfo=UTC)
NIGHTLY = FiringRule(kind="cron", live=True, dialect="cronos", expression="30 2 * * *", zone="Europe/Berlin")
HOURLY = FiringRule(kind="interval", live=True, interval_ms=3_600_000)


@pytest.mark.proves("0-T2.11.3")
@pytest.mark.parametrize(
    ("source", "change", "apart"),
    [
        (NIGHTLY, {}, None),
        (NIGHTLY, {"zone": "W. Europe Standard Time"}, None),
        (NIGHTLY, {"zone": "UTC"}, "zone-shift"),
        (NIGHTLY, {"zone": "Etc/GMT-1"}, "zone-shift"),
        (NIGHTLY, {"live": False}, "never-fires"),
        (msgspec.structs.replace(NIGHTLY, live=False), {"live": True}, "fires-unasked"),
        (NIGHTLY, {"kind": "interval", "interval_ms": 3_600_000, "expression": None}, "another-kind"),
        (HOURLY, {"interval_ms": 7_200_000}, "interval-factor"),
        (msgspec.structs.replace(NIGHTLY, expression="0 9 * * 1"), {"expression": "0 9 * * 2"}, "weekday-shift"),
        (msgspec.structs.replace(NIGHTLY, expression="0 9 13 * 5"), {"dialect": "croniter"}, "day-fields"),
        (NIGHTLY, {"expression": "31 4 * * *"}, "other-fires"),
    ],
)
def test_how_the_fires_of_two_rules_differ(
    source: FiringRule, change: dict[str, object], apart: FiresDifference | None
) -> None:
    assert compare_fires(source, msgspec.structs.replace(source, **change), SINCE).apart == apart


def test_changes_of_the_clock_are_crossed() -> None:
    found = compare_fires(NIGHTLY, NIGHTLY, SINCE)
    assert (found.changes, found.fires) == (2, 36)


def test_a_rule_without_a_trigger_and_a_trigger_without_a_rule() -> None:
    assert compare_fires(NIGHTLY, None, SINCE).apart == "no-trigger"
    assert compare_fires(None, NIGHTLY, SINCE).apart == "trigger-unasked"
    assert compare_fires(msgspec.structs.replace(NIGHTLY, expression="every day"), None, SINCE).apart is None


def test_the_rule_of_a_document_is_read_without_its_decode() -> None:
    read = stellaops_schedule({"whenCron": "0 1 * * *", "timezone": " ", "enabled": True})
    assert read == FiringRule(kind="cron", live=True, dialect="cronos", expression="0 1 * * *")
    assert stellaops_schedule({"cronExpression": " "}) is None
    paused = stellaops_schedule({"cronExpression": "0 1 * * *", "enabled": False})
    assert paused is not None
    assert not paused.live


def test_a_rule_that_cannot_be_evaluated_never_fires_on_either_side() -> None:
    """A trigger document with such a line has a row: both sides know it, and neither fires."""
    sound = FiringRule(kind="cron", live=True, dialect="cronos", expression="0 2 * * *", zone="Europe/Berlin")
    odd = msgspec.structs.replace(sound, zone=" Nowhere ")
    since = datetime(2026, 11, 1, tzinfo=UTC)
    assert compare_fires(odd, odd, since).apart is None
    assert compare_fires(odd, sound, since).apart == "trigger-unasked"
    assert compare_fires(sound, odd, since).apart == "never-fires"
    assert compare_fires(sound, None, since).apart == "no-trigger"
