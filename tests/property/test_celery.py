"""However a real document of Celery, mongodb-queue or mongodb-cron is changed: it is quarantined, or it comes back."""

from datetime import UTC, datetime
from typing import Any

import bson
import msgspec
import pytest
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from migrator.pipeline.transform import decode_document, rebuild
from migrator.sources import load_profile
from migrator.sources.profile import Context, Rejected
from migrator.values import document as documents
from migrator.values import remainder
from migrator.values.canonical import same
from tests.property.test_mapping import assert_storable
from tests.real_documents import real_documents
from tests.strategies_bson import keys, late, made, values

Document = dict[str, Any]

NOON = datetime(2026, 11, 22, 12)  # noqa: DTZ001 - as BSON dates are read
CONTEXT = Context(as_of=NOON.replace(tzinfo=UTC), default_tenant="house", zone="America/New_York")
REAL: dict[str, dict[str, tuple[str, ...]]] = {
    "celerybeat": {"schedules": ("celerybeat-mongo/schedules", "celerybeat-mongo/ticked")},
    "celery-results": {
        "celery_taskmeta": ("celery-results/celery_taskmeta",),
        "celery_groupmeta": ("celery-results/celery_groupmeta",),
    },
    "mongodb-queue": {"queue": ("mongodb-queue/queue", "mongodb-queue/dead")},
    "mongodb-cron": {"jobs": ("mongodb-cron/jobs",)},
}
CASES = [
    (profile, collection, document)
    for profile, collections in REAL.items()
    for collection, files in collections.items()
    for file in files
    for document in real_documents(file)
]
COLLECTIONS = {profile: load_profile(profile).by_name() for profile in REAL}

likely = st.one_of(
    late(Int64, st.integers(-(2**63), 2**63 - 1)),
    st.sampled_from([None, True, 0, -1, 2.5, float("nan"), 1e300, NOON, DatetimeMS(2**55), "", "a\0b", "[NaN]", "{}"]),
    st.sampled_from(["SUCCESS", "SOLVED", "2026-11-22T12:00:00.5Z", "0 30 2 * * *", "5/2", [], {}, [1, "a"]]),
    st.sampled_from(
        [{"every": 5, "period": "days"}, {"every": "5"}, {"period": "weeks"}, {"minute": 5, "hour": "2-1"}]
    ),
    st.sampled_from([{"minute": "0, 30"}, {"minute": "5/2"}, {"minute": None, "_cls": "Crontab"}]),
)


@st.composite
def changed(draw: st.DrawFn) -> tuple[str, str, Document]:
    """Draw a real document with some of its fields dropped, replaced or added."""
    profile, collection, real = draw(st.sampled_from(CASES))
    document = dict(real)
    names = sorted({path.partition(".")[0] for path in COLLECTIONS[profile][collection].known})
    for _ in range(draw(st.integers(0, 4))):
        name = draw(st.sampled_from(names))
        match draw(st.sampled_from(["drop", "likely", "likely", "any", "add"])):
            case "drop" if name != "_id":
                document.pop(name, None)
            case "likely" if name != "_id":
                document[name] = draw(likely)
            case "add":
                document[draw(keys())] = draw(values())
            case _:
                document[name] = draw(values())
    return profile, collection, made(document)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(changed())
def test_a_changed_document_is_quarantined_or_comes_back(case: tuple[str, str, Document]) -> None:
    profile, name, document = case
    collection, raw = COLLECTIONS[profile][name], bson.encode(document)
    try:
        decoded = decode_document(collection, CONTEXT, raw)
        decoded.serialize()
        rows = tuple(row.record for row in decoded.serialized)
    except Rejected as rejected:
        assume(rejected.reason not in ("not-round-trip", "undecodable"))
        return
    assert same(rebuild(collection, rows), documents.decode(raw))
    assert_storable(rows)


LEFT = {
    "celerybeat": {"limits", "tenant_id", "labels", "team", "solar", "kwargs.at"},
    "celery-results": {"result", "children"},
    "mongodb-queue": {"payload", "payload.at", "payload.list[]"},
    "mongodb-cron": {"name", "data", "owner", "tags", "lockedForTest", "interval", "sleepUntil"},
}
"""Fields of real documents of which something stays in the remainder, besides those of documents inserted by hand."""
ODD = {
    "spaces": {"crontab.minute"},  # "0, 30"
    "after": {"start_after"},  # a time that the clock skipped
    "cron-after": {"start_after"},
    "hand-inserted": {"interval._cls", "interval.every", "max_run_count", "total_run_count"},
    "by-hand": {
        "crontab._cls",
        "crontab.day_of_month",
        "crontab.day_of_week",
        "crontab.minute",
        "crontab.month_of_year",
    }
    | {"max_run_count", "total_run_count"},
}


@pytest.mark.parametrize("profile", REAL)
def test_what_stays_in_the_remainder_of_real_documents(profile: str) -> None:
    context = Context(as_of=CONTEXT.as_of, default_tenant="house", zone="Europe/Vienna")
    for owner, name, document in CASES:
        if owner != profile or document.get("date_done", NOON) is None:
            continue
        collection = COLLECTIONS[profile][name]
        decoded = decode_document(collection, context, bson.encode(document))
        decoded.serialize()
        left = {entry.field for entry in remainder.entries(decoded.remainder)}
        assert left <= LEFT[profile] | ODD.get(str(document.get("name")), set()), document["_id"]


def test_a_schedule_that_was_created_here_is_a_document_that_beat_finds() -> None:
    collection = COLLECTIONS["celerybeat"]["schedules"]
    rows = decode_document(collection, CONTEXT, bson.encode(real_documents("celerybeat-mongo/schedules")[1])).rows
    document = collection.encode((msgspec.structs.replace(rows[0], schema_version=None), *rows[1:]))
    assert document["_cls"] == "PeriodicTask"
    assert document["crontab"]["_cls"] == "Crontab"
