"""Jobs of APScheduler 3: where each member goes, what is a finding, and that they fire when the library would."""

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec
import pytest
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from bson.binary import Binary

from migrator.cutover.server_gates import reverse_sync
from migrator.records import Trigger
from migrator.scheduler import firing
from migrator.sources import load_profile
from migrator.sources.profile import Context, Rejected
from migrator.values import jsonb
from tests.agenda_documents import CONTEXT
from tests.apscheduler_documents import FILES, document, real, state, travel

PICKLES = "3.11.3"
FINDINGS = {
    "bound-method": None,
    "calendar-interval": ["unevaluable-trigger"],
    "cron-jitter": ["jitter-dropped"],
    "cron-seconds-jitter": ["jitter-dropped"],
    "cron-whole-offset": ["mapped-zone"],
    "interval-30s": ["jitter-dropped"],
    "interval-jitter": ["jitter-dropped"],
    "interval-micros": ["unusable-interval"],
    "or-with-date": ["unevaluable-trigger"],
    "or-with-interval": ["unevaluable-trigger"],
}
"""Id of a job to its findings; None: it is quarantined. The others have none."""


def job(key: str, name: str = PICKLES) -> Any:  # noqa: ANN401 - a trip
    return travel(real(name)[key])


@pytest.mark.parametrize("name", FILES)
def test_what_the_library_wrote_comes_back_byte_for_byte(name: str) -> None:
    for key, found in real(name).items():
        expected = FINDINGS.get(key, [])
        if expected is None:
            with pytest.raises(Rejected, match="refused-import at job_state: expected only imports of trigger, zone"):
                travel(found)
            continue
        trip = travel(found)
        assert trip.is_clean, key
        assert trip.kinds == expected, key
        without = {"unevaluable-trigger", "unusable-interval"} & set(expected)
        assert (trip.trigger is None) == bool(without), key


@pytest.mark.parametrize("name", [name for name in FILES if name != "given"])
def test_all_versions_and_protocols_say_the_same(name: str) -> None:
    first = {key: travel(found) for key, found in real(PICKLES).items() if FINDINGS.get(key, []) is not None}
    for key, found in real(name).items():
        if key not in first or key == "calendar-interval":
            continue
        trip, same = travel(found), first[key]
        if key == "date-fold" and "3.11" not in name:  # what pytz makes of a time that comes twice
            assert trip.trigger is not None
            assert trip.trigger.run_at == datetime(2030, 10, 27, 1, 30, tzinfo=UTC)
            continue
        assert trip.schedule.payload == same.schedule.payload, key
        for column in ("kind", "cron_expression", "cron_dialect", "timezone", "interval_ms", "run_at"):
            assert getattr(trip.trigger, column, None) == getattr(same.trigger, column, None), (key, column)


def test_the_members_of_a_job() -> None:
    trip = job("cron-jitter")
    assert trip.schedule.id
    assert (trip.schedule.name, trip.schedule.handler_name) == ("report", "acme_jobs:report")
    assert (trip.schedule.handler_type, trip.schedule.queue) == ("function", "default")
    assert (trip.schedule.max_concurrency, trip.schedule.status, trip.schedule.enabled) == (3, "scheduled", True)
    assert (trip.trigger.misfire_policy, trip.trigger.misfire_grace_ms) == ("fire_all", 0)
    spec = jsonb.decode(trip.trigger.source_spec)
    assert spec == {"cron": {"hour": "5"}, "timezone": "Europe/Vienna", "jitter": 120}


def test_the_grace_of_a_job() -> None:
    def policy(key: str) -> tuple[str, int | None]:
        trip = job(key)
        return trip.trigger.misfire_policy, trip.trigger.misfire_grace_ms

    assert policy("interval-90s") == ("skip", 30_000)
    assert policy("cron-weekdays") == ("skip", None), "one second is what the library sets if nobody says anything"


def test_a_paused_job_is_a_paused_schedule() -> None:
    trip = job("paused")
    assert (trip.schedule.status, trip.schedule.enabled) == ("paused", False)
    assert (trip.trigger.enabled, trip.trigger.next_fire_at) == (False, None)


def test_a_schedule_without_a_trigger_keeps_what_the_trigger_would_say() -> None:
    trip = job("or-with-interval")
    facts = jsonb.decode(trip.schedule.metadata)
    assert trip.schedule.status == "pending"
    assert facts["trigger"]["or"][0] == {"cron": {"hour": "6"}, "timezone": "Europe/Vienna"}
    assert facts["trigger"]["or"][1]["interval"] == {"seconds": 3600.0}
    assert facts["next_run_time"] == real(PICKLES)["or-with-interval"]["next_run_time"]
    assert set(jsonb.decode(job("cron-all").schedule.metadata)) == {"job_state"}


def test_arguments_are_json_where_json_has_them() -> None:
    payload = jsonb.decode(job("arguments").schedule.payload)
    assert payload["args"] == [
        1,
        -(2**40),
        {"$python": "int", "value": "1180591620717411303424"},
        1.5,
        {"$python": "float", "value": "nan"},
        {"$python": "float", "value": "inf"},
        True,
        None,
        "text",
        "nul\ufffdnul",
        {"$python": "bytes", "base64": "AP8="},
        [1, [2]],
    ]
    kwargs = dict(payload["kwargs"]["items"])
    assert payload["kwargs"]["$python"] == "dict", "a member has the name of the mark"
    assert kwargs["set"] == {"$python": "set", "items": ["one"]}
    assert kwargs["when"] == {"$python": "datetime.datetime", "value": "2027-07-01T10:30:00+00:00"}
    assert kwargs["naive"] == {"$python": "datetime.datetime", "value": "2027-07-01T12:30:00.000005"}
    assert kwargs["length"] == {"$python": "datetime.timedelta", "seconds": 86405.0}
    assert kwargs["keys"] == {"$python": "dict", "items": [[1, "a"], [[1, 2], "b"], ["text", "c"]]}
    assert kwargs["$python"] == "no mark"


def test_the_times_of_a_trigger() -> None:
    date = job("date-fold").trigger
    assert (date.kind, date.run_at, date.timezone) == (
        "one_time",
        datetime(2030, 10, 27, 0, 30, tzinfo=UTC),
        "Europe/Vienna",
    )
    window = job("interval-window").trigger
    assert (window.interval_ms, window.anchor) == (3_600_000, "fixed_rate")
    assert (window.start_at, window.end_at) == (
        datetime(2027, 3, 1, 5, tzinfo=UTC),
        datetime(2027, 4, 1, 4, tzinfo=UTC),
    )
    assert job("348c21bc95f843a0abb27dc98c68d84a", "given").trigger.next_fire_at.microsecond == 343893


def test_no_document_is_of_no_tenant() -> None:
    with pytest.raises(Rejected, match="no-tenant"):
        travel(real(PICKLES)["date"], Context(as_of=CONTEXT.as_of))


# The oracle is the library: it unpickles what it wrote, which nobody but a test may do.

CHANGES = [
    datetime(2027, 3, 27, 20, tzinfo=UTC),
    datetime(2027, 10, 30, 20, tzinfo=UTC),
    datetime(2027, 3, 13, 20, tzinfo=UTC),
    datetime(2027, 11, 6, 20, tzinfo=UTC),
    datetime(2028, 2, 28, 12, tzinfo=UTC),
]
"""Evenings before the clock changes in Vienna, and in New York; the end of February in a leap year."""


def of_the_library(trigger: Any, now: datetime) -> Iterator[datetime]:  # noqa: ANN401 - the library has no types
    """Yield the fires that the library computes: each from the one before it, as its scheduler asks."""
    alone = not isinstance(trigger, AndTrigger | OrTrigger)
    fire = trigger.get_next_fire_time(None, now)
    while fire is not None:
        yield fire.astimezone(UTC)
        # asked for the fire after one, a combination of the library does not end
        later = fire.astimezone(UTC) + timedelta(milliseconds=1)
        fire = trigger.get_next_fire_time(fire if alone else None, later)


def of_the_target(trigger: Trigger, now: datetime) -> Iterator[datetime]:
    fire = firing.first_fire(trigger, now - timedelta(microseconds=1))
    while fire is not None:
        yield fire
        trigger = msgspec.structs.replace(trigger, next_fire_at=fire)
        fire = firing.next_fire(trigger, fire)


def without_jitter(trigger: Any) -> Any:  # noqa: ANN401 - the library has no types
    if hasattr(trigger, "jitter"):
        trigger.jitter = None
    for member in getattr(trigger, "triggers", ()):
        without_jitter(member)
    return trigger


FIRING = [key for key in real(PICKLES) if FINDINGS.get(key, []) not in (None, ["unevaluable-trigger"])]


@pytest.mark.parametrize("key", [key for key in FIRING if key not in ("interval-micros", "nested")])
@pytest.mark.proves("5-S2")
def test_it_fires_when_the_library_would(key: str) -> None:
    found = real(PICKLES)[key]
    theirs = without_jitter(pickle.loads(found["job_state"])["trigger"])
    ours = travel(found).trigger
    assert ours is not None
    for now in CHANGES:
        if ours.kind == "one_time":
            assert list(of_the_target(ours, now)) == list(of_the_library(theirs, now)), key
            continue
        expected = list(islice(of_the_library(theirs, now), 30 if key != "and-never" else 1))
        assert list(islice(of_the_target(ours, now), 30 if key != "and-never" else 1)) == expected, (key, now)
        assert expected or key in ("and-never", "cron-window", "interval-window"), "the oracle says something"


def test_what_differs_inside_the_pickle_is_a_finding() -> None:
    trip = travel(document(pickle.dumps(state(id="other", next_run_time=datetime(2026, 1, 1, tzinfo=UTC)))))
    assert trip.kinds == ["id-mismatch", "next-run-mismatch"]
    assert trip.trigger is not None
    assert trip.trigger.next_fire_at == datetime.fromtimestamp(1795397400, UTC)


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"version": 2}, "unknown-value at job_state.version: expected 1"),
        ({"func": "a:\ud800"}, "wrong-type at job_state.func: expected text that UTF-8 can hold"),
        ({"name": "\ud800"}, "wrong-type at job_state.name: expected text that UTF-8 can hold"),
        ({"executor": "\udfff"}, "wrong-type at job_state.executor: expected text that UTF-8 can hold"),
        ({"func": None}, "wrong-type at job_state.func: expected the reference of a function"),
        ({"trigger": None}, "wrong-type at job_state.trigger: expected a trigger of APScheduler"),
        ({"trigger": UTC}, "wrong-type at job_state.trigger: expected the state of a trigger"),
        ({"args": {}}, "wrong-type at job_state.args: expected a tuple"),
        ({"misfire_grace_time": 0}, "out-of-range at job_state.misfire_grace_time"),
        ({"max_instances": True}, "wrong-type at job_state.max_instances"),
        ({"max_instances": 2**40}, "out-of-range at job_state.max_instances"),
        ({"next_run_time": 5}, "wrong-type at job_state.next_run_time: expected a datetime"),
        ({"next_run_time": datetime(2026, 1, 1)}, "bad-date at job_state.next_run_time"),  # noqa: DTZ001 - the case
    ],
)
def test_a_job_that_is_none_is_quarantined(members: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Rejected, match=sentence):
        travel(document(pickle.dumps(state(**members))))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"job_state": "text"}, "wrong-type at job_state: expected binary"),
        ({"job_state": Binary(b"N.", 5)}, "wrong-type at job_state: expected binary"),
        ({"job_state": b"N"}, "bad-pickle at job_state: expected a whole pickle"),
        ({"job_state": b"N."}, "wrong-type at job_state: expected the state of a job"),
        ({"next_run_time": "soon"}, "wrong-type at next_run_time"),
        ({"next_run_time": True}, "wrong-type at next_run_time"),
        ({"next_run_time": 1e300}, "out-of-range at next_run_time"),
        ({"next_run_time": float("nan")}, "out-of-range at next_run_time"),
    ],
)
def test_a_document_that_is_no_job_is_quarantined(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Rejected, match=sentence):
        travel(document(pickle.dumps(state())) | changes)


@pytest.mark.parametrize("name", ["_id", "next_run_time", "job_state"])
def test_a_document_without_a_field_is_quarantined(name: str) -> None:
    found = document(pickle.dumps(state()))
    del found[name]
    with pytest.raises(Rejected, match=f"missing-field at {name}"):
        travel(found)


def test_what_no_column_holds_is_the_remainder() -> None:
    trip = travel(document(pickle.dumps(state())) | {"label": "red", "next_run_time": 1795397400})
    assert not trip.is_clean
    assert trip.kinds == []


def test_a_zone_whose_name_no_database_can_hold_is_quarantined() -> None:
    written = pickle.dumps(state(trigger=CronTrigger(hour=1, timezone="Europe/Vienna")), protocol=4)
    name = "\ud800".encode("utf-8", "surrogatepass")
    odd = written.replace(b"\x8c\rEurope/Vienna", b"\x8c" + bytes([len(name)]) + name)
    assert len(odd) < len(written)
    # the frame that the pickle begins with has another length now
    odd = odd[:2] + odd[11:]
    with pytest.raises(Rejected, match=r"wrong-type at job_state\.trigger\S*: expected text that UTF-8 can hold"):
        travel(document(odd))


def test_a_window_that_is_empty_never_fires() -> None:
    bounds = {"start_date": datetime(2027, 1, 2, tzinfo=UTC), "end_date": datetime(2027, 1, 1, tzinfo=UTC)}
    trip = travel(document(pickle.dumps(state(trigger=CronTrigger(hour=1, timezone=UTC, **bounds)))))
    assert trip.kinds == ["empty-window"]
    assert trip.trigger is not None
    assert (trip.trigger.enabled, trip.trigger.start_at, trip.trigger.end_at) == (False, None, None)


@pytest.mark.parametrize("profile", ["apscheduler", "apscheduler4"])
def test_the_gate_of_the_cutover_says_why_it_refuses(profile: str) -> None:
    met, words = reverse_sync(load_profile(profile))
    assert met is False
    assert words.endswith("which the tool reads as plain data and never writes")
