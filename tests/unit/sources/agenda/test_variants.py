"""Each library writes its own shape; a document nobody else touched needs no remainder and keeps its order."""

import bson
import pytest

from tests.agenda_documents import (
    KEY,
    NOON,
    SECOND,
    Document,
    created_4,
    every_4,
    hokify,
    hokify_run,
    is_clean,
    job_6,
    log_6,
    pulse,
    pulse_run,
    travel,
)

RAN_4: Document = {"nextRunAt": None, "lockedAt": None, "lastRunAt": NOON}
CLEAN = {
    "5, waiting": ("agenda-4", created_4()),
    "5, no data": ("agenda-4", created_4(data=None)),
    "5, locked and not begun": ("agenda-4", created_4(lockedAt=NOON)),
    "5, running": ("agenda-4", created_4(nextRunAt=None, lockedAt=NOON, lastRunAt=NOON + SECOND)),
    "5, done": ("agenda-4", created_4(**RAN_4, lastFinishedAt=NOON + SECOND)),
    "5, failed": (
        "agenda-4",
        created_4(**RAN_4, failCount=1, failReason="no", failedAt=NOON, lastFinishedAt=NOON),
    ),
    "5, null result": (
        "agenda-4",
        created_4(shouldSaveResult=True, **RAN_4, lastFinishedAt=NOON, result=None),
    ),
    "5, stopped before it finished": ("agenda-4", created_4(**RAN_4)),
    "5, every": ("agenda-4", every_4()),
    "5, every, ran": ("agenda-4", every_4(lockedAt=None, lastRunAt=NOON, lastFinishedAt=NOON)),
    "5, every, runs again": (
        "agenda-4",
        every_4(lockedAt=NOON + 3 * SECOND, lastRunAt=NOON + 2 * SECOND, lastFinishedAt=NOON),
    ),
    "5, every, locked again": (
        "agenda-4",
        every_4(lockedAt=NOON + 3 * SECOND, lastRunAt=NOON, lastFinishedAt=NOON + SECOND),
    ),
    "5, every, recovered": (
        "agenda-4",
        every_4(
            lockedAt=None,
            lastRunAt=NOON + SECOND,
            failCount=1,
            failReason="once",
            failedAt=NOON,
            lastFinishedAt=NOON + 2 * SECOND,
        ),
    ),
    "5, once": ("agenda-4", created_4(type="once")),
    "hokify, waiting": ("hokify", hokify()),
    "hokify, disabled": (
        "hokify",
        {name: value for name, value in hokify().items() if name != "lastModifiedBy"}
        | {"disabled": True, "lastModifiedBy": "worker-1"},
    ),
    "hokify, time of day, disabled": (
        "hokify",
        {
            "_id": KEY,
            "name": "mail",
            "data": {},
            "type": "normal",
            "priority": 0,
            "nextRunAt": NOON,
            "repeatAt": "3:30pm",
            "disabled": True,
            "lastModifiedBy": "w",
        },
    ),
    "hokify, done": ("hokify", hokify_run()),
    "hokify, failed": (
        "hokify",
        hokify_run(failCount=2, failReason="no", failedAt=NOON + SECOND, progress=12.5),
    ),
    "hokify, running": ("hokify", hokify_run(lockedAt=NOON, lastFinishedAt=None)),
    "hokify, locked": ("hokify", hokify(lockedAt=NOON)),
    "hokify, every": (
        "hokify",
        {
            "_id": KEY,
            "name": "mail",
            "type": "single",
            "data": {},
            "lastModifiedBy": "w",
            "nextRunAt": NOON,
            "priority": 10,
            "repeatInterval": "30 2 * * 1-5",
            "repeatTimezone": None,
        },
    ),
    "pulse, waiting": ("pulse", pulse()),
    "pulse, no retries": ("pulse", pulse(attempts=0, backoff=None, shouldSaveResult=False)),
    "pulse, failed": ("pulse", pulse_run()),
    "pulse, done": (
        "pulse",
        pulse(
            nextRunAt=None,
            lockedAt=None,
            lastRunAt=NOON,
            finishedCount=1,
            lastFinishedAt=NOON,
            result={"rows": 3},
            runCount=1,
        ),
    ),
    "6, waiting": ("agenda-6", job_6()),
    "6, forked": ("agenda-6", job_6(fork=True)),
    "6, debounced": ("agenda-6", job_6(debounceStartedAt=NOON)),
    "6, done": ("agenda-6", job_6(nextRunAt=None, lastRunAt=NOON, lastFinishedAt=NOON)),
    "6, unnamed instance": ("agenda-6", job_6(lastModifiedBy=None)),
}


@pytest.mark.parametrize(("variant", "document"), CLEAN.values(), ids=CLEAN)
def test_what_a_library_writes_needs_no_remainder(variant: str, document: Document) -> None:
    trip = travel(document, "pulseJobs" if variant == "pulse" else "agendaJobs")
    assert trip.schedule is not None
    assert trip.schedule.schema_version == variant
    assert is_clean(trip)
    assert bson.encode(trip.encoded) == bson.encode(document)


def test_the_first_run_put_off_is_remembered() -> None:
    order = ["_id", "name", "type", "data", "endDate", "lastModifiedBy", "lastRunAt", "nextRunAt"]
    document = every_4(lastRunAt=None)
    document = {name: document[name] for name in [*order, *(name for name in document if name not in order)]}
    trip = travel(document)
    assert is_clean(trip)
    assert bson.encode(trip.encoded) == bson.encode(document)


def test_a_unique_job_is_known_by_its_order() -> None:
    document = {
        "_id": KEY,
        "data": {"customer": "c1"},
        "name": "mail",
        "lastModifiedBy": "w",
        "nextRunAt": NOON,
        "priority": 0,
        "shouldSaveResult": False,
        "type": "normal",
    }
    trip = travel(document)
    assert is_clean(trip)
    assert bson.encode(trip.encoded) == bson.encode(document)


@pytest.mark.parametrize("disabled", [None, False])
def test_absent_null_and_false_mean_enabled(disabled: bool | None) -> None:  # noqa: FBT001 - a parameter of pytest
    for document in (created_4(), hokify(), job_6(), pulse()):
        trip = travel(document | {"disabled": disabled})
        assert trip.schedule is not None
        assert trip.trigger is not None
        assert trip.schedule.enabled
        assert trip.trigger.enabled
        assert trip.schedule.status == "scheduled"
        written = "disabled" in trip.encoded
        assert is_clean(trip) == (written and disabled is None), "the original stays as remainder"


def test_an_unknown_field_stays() -> None:
    assert travel(created_4(owner="me")).remainder == b'{"+owner":"me"}'
    assert travel(log_6(owner="me"), "agenda_logs").remainder == b'{"+owner":"me"}'


def test_everything_a_job_may_miss() -> None:
    trip = travel({"_id": KEY, "name": "mail"})
    assert trip.schedule is not None
    assert (trip.schedule.payload, trip.schedule.priority, trip.schedule.metadata) == (None, 50, None)
    assert (trip.trigger, trip.run) == (None, None)
    assert trip.schedule.status == "completed"
