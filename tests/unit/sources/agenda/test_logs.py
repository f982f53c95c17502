"""``agenda_logs`` become execution logs that know their job."""

from datetime import UTC

import pytest

from migrator.records import Run, Schedule
from migrator.sources.agenda import PROFILE
from migrator.values import jsonb
from tests.agenda_documents import KEY, NOON, Document, created_4, is_clean, log_6, travel


def test_a_line_points_to_the_rows_of_its_job() -> None:
    job, line = travel(created_4(lastRunAt=NOON)), travel(log_6(), "agenda_logs").log
    assert line is not None
    assert job.run is not None
    assert job.schedule is not None
    assert (line.run_id, line.schedule_id) == (job.run.id, job.schedule.id)
    assert (line.level, line.message, line.logged_at) == ("info", "job succeeded", NOON.replace(tzinfo=UTC))


def test_the_loader_knows_what_is_a_reference() -> None:
    references = PROFILE.by_name()["agenda_logs"].references
    assert {(one.column, one.target, one.required) for one in references} == {
        ("run_id", Run, False),
        ("schedule_id", Schedule, False),
    }


def test_what_has_no_column_is_context() -> None:
    trip = travel(log_6(error="boom", failCount=1, meta={"b": 1, "a": [None]}), "agenda_logs")
    assert trip.log is not None
    assert jsonb.decode(trip.log.context or b"") == {
        "agendaName": "worker-1",
        "duration": 2,
        "error": "boom",
        "event": "success",
        "failCount": 1,
        "jobId": str(KEY),
        "jobName": "mail",
        "meta": {"a": [None], "b": 1},
    }
    assert is_clean(trip)


@pytest.mark.parametrize("level", ["debug", "info", "warn", "error"])
def test_levels_keep_their_names(level: str) -> None:
    trip = travel(log_6(level=level), "agenda_logs")
    assert trip.log is not None
    assert trip.log.level == level
    assert is_clean(trip)


@pytest.mark.parametrize("job", ["", "not hex", "6B005AFFA4375445FE12232E", None])
def test_a_line_may_name_no_job(job: str | None) -> None:
    trip = travel(log_6(jobId=job), "agenda_logs")
    assert trip.log is not None
    hexadecimal = job is not None and job.lower() == str(KEY)
    assert (trip.log.run_id is not None) == hexadecimal
    assert ("unusable-reference" in trip.kinds) == (job is not None and not hexadecimal)


def test_a_bare_line() -> None:
    document: Document = {"_id": 1, "level": "error", "timestamp": NOON}
    trip = travel(document, "agenda_logs")
    assert trip.log is not None
    assert (trip.log.context, trip.log.message) == (None, None)
    assert is_clean(trip)
