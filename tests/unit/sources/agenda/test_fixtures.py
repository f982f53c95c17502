"""The real documents: each comes back, and those nobody tampered with need no remainder."""

from typing import Any

import bson
import pytest

from migrator.values import remainder
from tests.agenda_documents import REAL, is_clean, real, travel

BAD_CRON = {
    "agenda-4": ("repeatInterval", "repeatTimezone", "startDate", "endDate", "skipDays"),
    "agenda-5": ("repeatInterval", "repeatTimezone", "startDate", "endDate", "skipDays"),
    "hokify-6": ("repeatInterval", "repeatTimezone"),
    "pulse-1": ("repeatInterval", "repeatTimezone", "startDate", "endDate", "skipDays"),
}
"""Of a job whose interval is neither cron nor words: no trigger, its text stays, and the nulls that go with it."""
ODD_DATA = {
    "agenda-4": ("data.nul", "data.nan", "data.inf", "data.date", "data.buf", "data.re"),
    "agenda-5": ("data.nul", "data.nan", "data.inf", "data.date"),
    "hokify-6": ("data.nul", "data.nan", "data.inf", "data.date"),
    "pulse-1": ("data.nul", "data.nan", "data.inf", "data.date"),
}
"""What JSON has no value for."""
CASES = [
    pytest.param(folder, collection, raw, id=f"{folder}-{collection}-{number}")
    for folder, collection in REAL
    for number, raw in enumerate(real(folder, collection))
]


@pytest.mark.parametrize(("folder", "collection", "raw"), CASES)
def test_a_real_document_comes_back(folder: str, collection: str, raw: bytes) -> None:
    trip = travel(raw, collection)
    odd = {"bad-cron": BAD_CRON, "odd-data": ODD_DATA}.get(str(trip.document.get("name")), {})
    expected = set(odd.get(folder, ()))
    assert {entry.field for entry in remainder.entries(trip.remainder)} == expected
    assert is_clean(trip) == (not expected)


@pytest.mark.parametrize(("folder", "collection", "raw"), CASES)
def test_a_clean_document_is_written_byte_for_byte(folder: str, collection: str, raw: bytes) -> None:
    trip = travel(raw, collection)
    # jsonb does not keep the order of the keys in a job's own data: such a document is equal, not byte for byte.
    ordered = all(_is_sorted(trip.document.get(name)) for name in ("data", "result"))
    # Before it was saved, the program let the job fail; when Pulse saves the progress, ``runCount`` is saved with it.
    usual = trip.document.get("name") != "by-hand" and not (folder == "pulse-1" and "progress" in trip.document)
    assert (bson.encode(trip.encoded) == raw) == (is_clean(trip) and ordered and usual)


def _is_sorted(value: Any) -> bool:  # noqa: ANN401 - any BSON value
    return not isinstance(value, dict) or list(value) == sorted(value)


def test_the_fixtures_hold_what_they_should() -> None:
    counts = {place: len(real(*place)) for place in REAL}
    assert counts == {
        ("agenda-4", "agendaJobs"): 20,
        ("agenda-5", "agendaJobs"): 30,
        ("agenda-6", "agendaJobs"): 11,
        ("agenda-6", "agenda_logs"): 26,
        ("hokify-6", "agendaJobs"): 31,
        ("pulse-1", "pulseJobs"): 33,
    }


VARIANTS = {"agenda-4": "agenda-4", "agenda-5": "agenda-4", "agenda-6": "agenda-6", "hokify-6": "hokify"}


@pytest.mark.parametrize(("folder", "variant"), [*VARIANTS.items(), ("pulse-1", "pulse")])
def test_the_library_is_recognised(folder: str, variant: str) -> None:
    for collection in (one for place, one in REAL if place == folder and one != "agenda_logs"):
        for raw in real(folder, collection):
            schedule = travel(raw, collection).schedule
            assert schedule is not None
            assert schedule.schema_version == variant
