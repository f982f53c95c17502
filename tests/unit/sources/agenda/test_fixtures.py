"""The real documents: each comes back, and those nobody tampered with need no remainder."""

import bson
import pytest

from migrator.values import remainder
from tests.agenda_documents import REAL, is_clean, real, travel

WITH_REMAINDER = {
    # An interval that is neither cron nor words: no trigger, its text stays.
    "bad-cron": {"repeatInterval", "repeatTimezone", "startDate", "endDate", "skipDays"},
    # What JSON has no value for.
    "odd-data": {"data.nul", "data.nan", "data.inf", "data.date", "data.buf", "data.re"},
}
CASES = [
    pytest.param(collection, raw, id=f"{folder}-{collection}-{number}")
    for folder, collection in REAL
    for number, raw in enumerate(real(folder, collection))
]


@pytest.mark.parametrize(("collection", "raw"), CASES)
def test_a_real_document_comes_back(collection: str, raw: bytes) -> None:
    trip = travel(raw, collection)
    expected = WITH_REMAINDER.get(str(trip.document.get("name")), set())
    assert {entry.field for entry in remainder.entries(trip.remainder)} == expected
    assert is_clean(trip) == (not expected)


@pytest.mark.parametrize(("collection", "raw"), CASES)
def test_a_clean_document_is_written_byte_for_byte(collection: str, raw: bytes) -> None:
    trip = travel(raw, collection)
    # jsonb does not keep the order of the keys in a job's own data: such a document is equal, not byte for byte.
    data = trip.document.get("data")
    ordered = not isinstance(data, dict) or list(data) == sorted(data)
    assert (bson.encode(trip.encoded) == raw) == (is_clean(trip) and ordered)


def test_the_fixtures_hold_what_they_should() -> None:
    assert [len(real(folder, collection)) for folder, collection in REAL] == [20, 11, 26]
