"""However a job or a log line is changed: it is set aside, or it comes back and its rows are what the tables take."""

import contextlib
import json
import math
from datetime import timedelta
from typing import Any

import bson
import msgspec
import pytest
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from migrator import states
from migrator.pipeline.transform import decode_document, rebuild
from migrator.records import Record
from migrator.sources.agenda import PROFILE
from migrator.sources.profile import Rejected
from migrator.values import document as documents
from migrator.values import identity, jsonb
from migrator.values.canonical import same
from tests.agenda_documents import (
    CONTEXT,
    NOON,
    REAL,
    SECOND,
    Document,
    Trip,
    created_4,
    every_4,
    hokify,
    hokify_run,
    job_6,
    log_6,
    pulse,
    pulse_run,
    real,
    travel,
)
from tests.cron_lines import DEEP
from tests.strategies_bson import keys, values

settings.register_profile(
    "agenda", deadline=None, max_examples=200 if DEEP else 100, suppress_health_check=[HealthCheck.too_slow]
)
PROFILE_OF_TESTS = settings.get_profile("agenda")

BASES: list[tuple[str, Document]] = [
    *((collection, documents.decode(raw)) for folder, collection in REAL for raw in real(folder, collection)),
    *(("agendaJobs", one) for one in (created_4(), every_4(), hokify(), hokify_run(), job_6())),
    *(("pulseJobs", one) for one in (pulse(), pulse_run())),
    ("agenda_logs", log_6()),
]
FIELDS = sorted(
    {name for collection in PROFILE.collections for name in collection.known if "." not in name and "[" not in name}
)

moments = st.integers(-3, 3).map(lambda seconds: NOON + seconds * SECOND)
likely = st.one_of(
    moments,
    moments.map(lambda moment: moment.isoformat() + "Z"),
    st.just(DatetimeMS(2**55)),
    st.integers(-30, 30),
    st.sampled_from([0.0, -0.0, 2.5, 5e9, math.nan, math.inf, Int64(3), 2**31 - 1, Int64(2**40), True, False, None]),
    st.sampled_from(["", "a\0b", "single", "once", "fixed", "5 minutes", "30 2 * * 1-5", "@hourly", "90000", "3:30pm"]),
    st.sampled_from(["UTC", "Europe/Vienna", "Middle/Earth", "warn", "not a cron", "6b005affa4375445fe12232e"]),
    st.sampled_from([[0, 6], {"type": "fixed", "delay": 5}, Code("x"), {}, []]),
)


@st.composite
def changed(draw: st.DrawFn) -> tuple[str, Document]:
    """Draw a document with some of its fields dropped, nulled, replaced or added, in any order."""
    collection, base = draw(st.sampled_from(BASES))
    document = dict(base)
    for _ in range(draw(st.integers(1, 5))):
        action = draw(st.sampled_from(["drop", "null", "likely", "likely", "any", "add"]))
        name = draw(st.sampled_from([one for one in FIELDS if one != "_id"]))
        if action == "drop":
            document.pop(name, None)
        elif action == "null":
            document[name] = None
        elif action == "likely":
            document[name] = draw(likely)
        elif action == "any":
            document[name] = draw(values())
        else:
            document[draw(keys())] = draw(values())
    if draw(st.booleans()):
        document = {name: document[name] for name in draw(st.permutations(list(document)))}
    return collection, document


@settings(PROFILE_OF_TESTS)
@given(changed())
def test_a_changed_document_is_set_aside_or_comes_back(case: tuple[str, Document]) -> None:
    collection, document = case
    trip, path = outcome(document, collection)
    if trip is not None:
        hold(trip)
    else:
        assert path.split(".")[0].removesuffix("[]") in FIELDS, "the path names a field that the profile knows"


@settings(PROFILE_OF_TESTS)
@given(changed())
def test_what_postgresql_gives_back_says_the_same(case: tuple[str, Document]) -> None:
    collection, document = case
    kind = PROFILE.by_name()[collection]
    with contextlib.suppress(Rejected):
        prepared = decode_document(kind, CONTEXT, bson.encode(document))
        prepared.serialize()
        rows = tuple(respelled(row.record) for row in prepared.serialized)
        assert same(rebuild(kind, rows), prepared.content)


def outcome(document: Document, collection: str) -> tuple[Trip | None, str]:
    """Return the way of a document there and back, or the path at which it was set aside."""
    try:
        return travel(document, collection), ""
    except Rejected as reason:
        assume(reason.reason != "not-round-trip")
        return None, reason.path


def respelled(row: Record) -> Record:
    """Return the row with its jsonb texts as the server spells them: spaces, and keys in an order of its own."""
    changes: dict[str, Any] = {}
    for name in row.__struct_fields__:
        value = getattr(row, name)
        if isinstance(value, bytes):
            changes[name] = json.dumps(backwards(jsonb.decode(value)), separators=(", ", ": ")).encode()
    return msgspec.structs.replace(row, **changes)


def backwards(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return {name: backwards(value[name]) for name in reversed(value)}
    return [backwards(one) for one in value] if isinstance(value, list) else value


def hold(trip: Trip) -> None:
    """Hold the rows to the constraints of their tables."""
    if trip.schedule is not None:
        schedule = trip.schedule
        assert schedule.status in states.SCHEDULE
        assert 0 <= (schedule.priority or 0) <= 100
        assert schedule.retry_strategy in (None, *states.RETRY_STRATEGIES)
        assert schedule.enabled == (trip.document.get("disabled") is not True)
    if trip.trigger is not None:
        trigger = trip.trigger
        assert trip.schedule is not None
        assert trigger.schedule_id == trip.schedule.id
        given_columns = {
            "cron": (trigger.cron_expression, trigger.cron_dialect),
            "interval": (trigger.interval_ms, trigger.anchor),
            "one_time": (trigger.run_at,),
        }
        for kind, columns in given_columns.items():
            assert all((column is not None) == (trigger.kind == kind) for column in columns)
        assert trigger.interval_ms is None or 0 < trigger.interval_ms < 2**63
        assert trigger.start_at is None or trigger.end_at is None or trigger.end_at > trigger.start_at
        assert not (trigger.enabled and not trip.schedule.enabled)
    if trip.run is not None:
        run = trip.run
        assert run.state in states.RUN
        assert run.duration_ms is None or run.duration_ms >= 0
        assert run.trigger_id is None or run.scheduled_at is None or run.attempt is not None
        assert (run.lease_expires_at is not None) == (run.state == "running")
        assert run.finished_at is None or run.state in ("completed", "error")
        assert run.started_at == run.created_at
    for row in (trip.schedule, trip.trigger, trip.run, trip.log):
        for name in () if row is None else row.__struct_fields__:
            value = getattr(row, name)
            assert not hasattr(value, "tzinfo") or value.utcoffset() == timedelta(0)


@pytest.mark.parametrize("collection", ["agendaJobs", "pulseJobs", "agenda_logs"])
@settings(PROFILE_OF_TESTS)
@given(values())
def test_an_id_of_any_type_is_found_again(collection: str, key: Any) -> None:  # noqa: ANN401 - any BSON value
    base = log_6() if collection == "agenda_logs" else created_4()
    trip, _ = outcome(base | {"_id": key}, collection)
    assert trip is not None
    # Not the same bits: every NaN is one _id to MongoDB too, and the remainder keeps which it was.
    assert identity.source_id(trip.encoded["_id"]) == identity.source_id(trip.document["_id"])
