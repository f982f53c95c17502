"""Both sides beside each other: slots compared, the window of stability."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from migrator.cutover.parallel import compare, stable_since

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ONE, OTHER = UUID(int=1), UUID(int=2)


def test_slots_are_matched_missing_extra_or_duplicate() -> None:
    later = NOON + timedelta(minutes=1)
    found = compare(
        [(ONE, NOON), (ONE, later), (OTHER, NOON)], [(ONE, NOON), (OTHER, NOON), (OTHER, NOON), (OTHER, later)]
    )
    assert found.matched == 1
    assert found.missing == ((ONE, later),)
    assert found.extra == ((OTHER, later),)
    assert found.duplicate == ((OTHER, NOON),)
    assert not found.clean
    assert compare([(ONE, NOON)], [(ONE, NOON)]).clean


@pytest.mark.proves("4-P3")
def test_an_error_begins_the_window_anew() -> None:
    hours = [NOON + timedelta(hours=number) for number in (-5, 3, 20)]
    assert stable_since(NOON, []) == NOON
    assert stable_since(NOON, hours[:1]) == NOON
    assert stable_since(NOON, hours) == hours[2]
