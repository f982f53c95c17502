"""Documents for a library's own table through both codecs: texts, numbers and bytes that only such a table holds."""

import math
from datetime import UTC, datetime
from typing import Any, Final

import bson
import pytest
from bson.binary import Binary
from bson.int64 import Int64
from bson.objectid import ObjectId

from migrator.sources import native_profile
from migrator.values import document as documents
from tests import agenda_documents
from tests.apscheduler_documents import real
from tests.both_codecs import compare, native_reader
from tests.real_documents import real_documents
from tests.stellaops_documents import CONTEXT

JOBS: Final = native_profile("apscheduler", "apscheduler").collections[0]
JOB: Final = {"_id": "a", "next_run_time": 1762070400.25, "job_state": b"\x80\x05"}


@pytest.mark.parametrize(
    "version",
    ["3.10.4-pytz-protocol-0", "3.10.4-pytz-protocol-2", "3.11.3-protocol-1", "3.11.3-protocol-3", "3.11.3", "3.6.3"],
)
def test_every_job_of_the_library_is_plain(version: str) -> None:
    jobs = [bson.encode(job) for job in real(version).values()]
    assert compare(JOBS, CONTEXT, jobs).plain == [*range(len(jobs))]


@pytest.mark.parametrize(
    ("changes", "is_plain"),
    [
        ({}, True),
        ({"next_run_time": None}, True),
        ({"next_run_time": -0.0}, True),
        ({"next_run_time": math.inf}, True),
        ({"next_run_time": math.nan}, False),
        ({"next_run_time": 5}, False),
        ({"next_run_time": Int64(5)}, False),
        ({"next_run_time": "5"}, False),
        ({"job_state": b""}, True),
        ({"job_state": Binary(b"x", 0)}, True),
        ({"job_state": Binary(b"x", 2)}, False),
        ({"job_state": Binary(b"x", 128)}, False),
        ({"job_state": "x"}, False),
        ({"job_state": None}, False),
        ({"_id": "x" * 191}, True),
        ({"_id": "x" * 192}, False),
        ({"_id": "\u00e9" * 95}, True),
        ({"_id": "\u00e9" * 191}, False),  # it fits, and is left to the Python codec, because it has more bytes
        ({"_id": ObjectId("0" * 24)}, False),
        ({"_id": "a\0"}, False),
        ({"other": 1}, True),
    ],
)
def test_what_the_native_codec_takes(changes: dict[str, Any], is_plain: bool) -> None:  # noqa: FBT001 - a parameter
    assert (compare(JOBS, CONTEXT, [documents.encode(JOB | changes)]).plain == [0]) is is_plain


IDENTIFIED: Final = (
    ("apscheduler", "apscheduler", "jobs"),
    ("apscheduler4", "apscheduler4", "tasks"),
    ("apscheduler4", "apscheduler4", "schedules"),
    ("celery-results", "celery-results", "celery_taskmeta"),
    ("celery-results", "celery-results", "celery_groupmeta"),
    ("celery-results", "celery-results-5-6", "celery_taskmeta"),
    ("celery-results", "celery-results-5-6", "celery_groupmeta"),
    ("shedlock", "shedlock", "shedLock"),
)
"""Source, target and collection of documents whose ``_id`` is the key by which the library finds the row."""


@pytest.mark.parametrize(("source", "target", "name"), IDENTIFIED)
def test_an_id_that_may_not_be_changed_keeps_no_collection_from_the_native_codec(
    source: str, target: str, name: str
) -> None:
    assert native_reader(native_profile(source, target).by_name()[name], CONTEXT) is not None


AGENDA: Final = native_profile("agenda", "agenda").by_name()["agendaJobs"]
PULSE: Final = native_profile("agenda", "agenda").by_name()["pulseJobs"]
BARE: Final[dict[str, Any]] = {
    "name": "mail",
    "data": {},
    "type": "normal",
    "priority": 0,
    "nextRunAt": None,
    "lockedAt": None,
    **dict.fromkeys(("lastFinishedAt", "failedAt", "failCount", "failReason", "repeatTimezone", "lastRunAt")),
    **dict.fromkeys(("repeatInterval", "repeatAt", "disabled", "progress", "debounceStartedAt", "fork")),
    **dict.fromkeys(("startDate", "endDate", "skipDays", "lastModifiedBy")),
}
"""A job as Agenda 6 inserts it, in the order in which the rows give the fields back."""


def agenda_job(order: list[str], **changes: Any) -> bytes:  # noqa: ANN401 - any BSON value
    job = {"_id": ObjectId("65a0000000000000000000ff"), **{name: BARE[name] for name in order}} | changes
    return documents.encode({name: value for name, value in job.items() if value is not ...})


@pytest.mark.parametrize(
    ("changes", "is_plain"),
    [
        ({}, True),
        ({"name": "mail\0"}, False),
        ({"name": "x" * 255}, True),
        ({"name": "x" * 256}, False),
        ({"data": None}, True),
        ({"data": "text"}, True),
        ({"data": [1, 2.5, True, None, {"b": 1, "a": "\u00e9"}]}, True),
        ({"data": {"a": 0.0}}, True),
        ({"data": {"a": -0.0}}, False),
        ({"data": {"a": math.nan}}, False),
        ({"data": {"a": ObjectId("0" * 24)}}, False),
        ({"data": {"a": datetime(2026, 1, 1, tzinfo=UTC)}}, False),
        ({"data": {"a": b"x"}}, False),
        ({"data": {"a": Int64(5)}}, False),
        ({"data": {"a": Int64(5_000_000_000)}}, True),
        ({"data": {"a": Int64(2**53 - 1)}}, False),  # it is the same, and is left to the Python codec by its digits
        ({"data": {"a": Int64(2**53 + 1)}}, False),
        ({"data": {"a": Int64(-(2**60))}}, False),
        ({"data": {"a": "x\0"}}, False),
        ({"data": {"$date": "2026-01-01"}}, False),
        ({"data": ...}, True),
        ({"type": "single"}, True),
        ({"type": "once"}, False),
        ({"type": None}, False),
        ({"disabled": True}, True),
        ({"disabled": False}, False),
        ({"disabled": ...}, True),
        ({"fork": True, "progress": 7}, True),
        ({"progress": 0}, True),
        ({"progress": 50.5}, True),
        ({"progress": 0.1}, False),
        ({"progress": -0.0}, False),
        ({"progress": 1.0}, False),
        ({"progress": math.inf}, True),
        ({"progress": math.nan}, True),
        ({"progress": 2**24 + 1}, False),
        ({"progress": Int64(7)}, False),
        ({"progress": 1e300}, False),
        ({"repeatInterval": "5 minutes", "repeatTimezone": "Europe/Vienna"}, True),
        ({"repeatInterval": 5000}, False),
        ({"repeatInterval": ""}, True),
        ({"repeatAt": "3:30pm", "failCount": 2, "failReason": "no\nroute"}, True),
        ({"skipDays": []}, True),
        ({"skipDays": [1, "a", None]}, True),
        ({"skipDays": "2 days"}, False),
        ({"skipDays": {"a": 1}}, False),
        ({"startDate": datetime(2026, 1, 1, tzinfo=UTC)}, True),
        ({"startDate": 5}, False),
        ({"lockedAt": datetime(1969, 1, 1, tzinfo=UTC)}, True),
        ({"_id": "text"}, False),
        ({"_id": ObjectId("f" * 24)}, True),
        ({"shouldSaveResult": False}, True),
        ({"shouldSaveResult": True}, False),  # a loss that is counted by name
        ({"shouldSaveResult": 0}, False),
        ({"shouldSaveResult": None}, True),
        ({"result": 5}, False),
        ({"attempts": 0}, True),
        ({"attempts": Int64(0)}, False),
    ],
)
def test_what_the_native_codec_takes_for_agendas_own_table(changes: dict[str, Any], is_plain: bool) -> None:  # noqa: FBT001 - a parameter
    order = [step.key.decode() for step in native_reader(AGENDA, CONTEXT).plan.steps]
    assert {*order} == {*BARE}
    job = agenda_job(order, **changes)
    assert (compare(AGENDA, CONTEXT, [job]).plain == [0]) is is_plain


def test_the_fields_may_stand_in_any_order() -> None:
    """Agenda 6 inserts in its own order, and the server sorts the fields of an upsert after those of its query."""
    order = [step.key.decode() for step in native_reader(AGENDA, CONTEXT).plan.steps]
    upserted = ["name", "type", *sorted({*BARE} - {"name", "type"})]
    for names in (order, [*BARE], upserted, order[::-1]):
        job = agenda_job(names, disabled=True, repeatInterval="5 minutes", data={"b": 1, "a": [2]})
        assert compare(AGENDA, CONTEXT, [job]).plain == [0]
        assert compare(AGENDA, CONTEXT, [agenda_job(names, other=1)]).plain == [0]
        assert compare(AGENDA, CONTEXT, [agenda_job(names, name=...)]).plain == []
        again = job[4:-1] + b"\x0afork\0\0"  # a field that is there twice
        assert compare(AGENDA, CONTEXT, [(len(again) + 4).to_bytes(4, "little") + again]).plain == []


def test_the_jobs_of_agenda_6_are_plain_as_far_as_the_python_codec_has_no_remainder() -> None:
    compared = compare(AGENDA, CONTEXT, agenda_documents.real("agenda-6", "agendaJobs"))
    assert compared.plain == compared.clean != []


@pytest.mark.parametrize("version", ["agenda-4", "agenda-5", "hokify-6"])
def test_the_jobs_of_other_libraries_are_plain_with_what_they_leave_out(version: str) -> None:
    """A result, an interval that is a number, days in words and types that JSON lacks are for the Python codec."""
    jobs = agenda_documents.real(version, "agendaJobs")
    compared = compare(AGENDA, CONTEXT, jobs)
    handed = {documents.decode(jobs[index])["name"] for index in compared.handed}
    assert handed <= {"with-result", "numeric-interval", "windowed", "odd-data"}
    assert compared.remainders.keys() == {*compared.plain} != set()


def test_the_jobs_of_pulse_are_plain_unless_a_loss_is_counted_of_them() -> None:
    """Every job has ``attempts`` and ``backoff``; 0 and null say nothing. One that ran has counts, which are a loss."""
    jobs = agenda_documents.real("pulse-1", "pulseJobs")
    compared = compare(PULSE, CONTEXT, jobs)
    read = [documents.decode(jobs[index]) for index in compared.plain]
    assert len(read) > 1
    assert all(job["attempts"] == 0 and job["backoff"] is None and "runCount" not in job for job in read)


@pytest.mark.parametrize(
    ("changes", "is_plain"),
    [
        ({}, True),
        ({"jobId": "mail"}, True),
        ({"jobId": agenda_documents.KEY}, False),  # its text is written
        ({"jobId": str(agenda_documents.KEY).upper()}, False),
        ({"jobId": f"00000000-0000-0000-0000-{'0' * 12}"}, False),
        ({"jobId": "a\0"}, False),
        ({"jobId": "x" * 256}, False),
        ({"jobId": 5}, False),
        ({"duration": None}, True),
        ({"meta": {"a": 1}}, True),
        ({"meta": {"a": Int64(2**53 + 1)}}, False),
        ({"level": "x" * 11}, False),
    ],
)
def test_which_lines_of_agenda_6_are_plain(changes: dict[str, Any], is_plain: bool) -> None:  # noqa: FBT001 - a parameter
    logs = native_profile("agenda", "agenda").by_name()["agenda_logs"]
    line = bson.encode(agenda_documents.log_6(**changes))
    assert (compare(logs, CONTEXT, [line]).plain == [0]) is is_plain


RESULT: Final[dict[str, Any]] = {
    "_id": "11350d49-e53a-4121-ac28-b2d2dffd301b",
    "status": "SUCCESS",
    "result": '{"a": 1}',
    "traceback": None,
    "children": [[["a", None], None]],
    "date_done": datetime(2026, 11, 24, 1, 2, 3, 4_000),  # noqa: DTZ001 - as BSON has it
    "name": "shop.add",
    "args": [1, "a"],
    "kwargs": {"b": None},
    "worker": "w",
    "retries": 0,
    "queue": "celery",
}


@pytest.mark.parametrize(
    ("changes", "is_plain"),
    [
        ({}, True),
        ({"result": ""}, True),
        ({"result": "7"}, True),
        ({"result": "x"}, False),  # one byte that is a number of MessagePack too
        ({"result": "\u00e9"}, False),
        ({"result": "a\0"}, False),
        ({"result": None}, True),
        ({"result": ...}, False),
        ({"result": "5\n...\n"}, False),  # YAML
        ({"result": b"\x80\x04K\x05."}, False),  # a pickle, and so are the children
        ({"result": b"\x80\x04K\x05.", "children": None, "args": None, "kwargs": None}, True),
        ({"result": b"\x05", "children": None, "args": None, "kwargs": None}, False),
        ({"result": Binary(b"\x80\x04K\x05.", 2), "children": None, "args": None, "kwargs": None}, False),
        ({"result": {"a": 1}}, False),
        ({"children": []}, True),
        ({"children": None}, True),
        ({"children": ...}, True),  # without null, which the rows give back
        ({"args": [-0.0, 1e16, 1e-7, 5e-324, 2**31, '\0\x1f\x7f\u00e9\U0001f600\u2028"\\/']}, True),
        ({"args": [Int64(5)]}, False),
        ({"args": [math.nan]}, False),
        ({"args": [math.inf]}, False),
        ({"args": [b"x"]}, False),
        ({"args": [datetime(2026, 1, 1, tzinfo=UTC)]}, False),
        ({"args": [ObjectId("0" * 24)]}, False),
        ({"args": "(1, 2)"}, True),
        ({"kwargs": {"b": {"z": 1, "a": [{}, []]}}}, True),
        ({"kwargs": {"": 1, "\u00e9": 2}}, True),
        ({"kwargs": {"b": {"__type__": "datetime", "__value__": "2026-01-01"}}}, False),
        ({"kwargs": {"$ref": "a", "$id": 1}}, False),
        ({"kwargs": {f"k{number}": number for number in range(64)}}, True),
        ({"kwargs": {f"k{number}": number for number in range(65)}}, False),
        ({"stamped_headers": ["v"]}, False),
        ({"group_id": "g"}, False),  # a loss that is counted
        ({"other": 1}, True),
    ],
)
def test_which_results_of_celery_are_plain(changes: dict[str, Any], is_plain: bool) -> None:  # noqa: FBT001 - a parameter
    results = native_profile("celery-results", "celery-results").by_name()["celery_taskmeta"]
    document = {name: value for name, value in (RESULT | changes).items() if value is not ...}
    compared = compare(results, CONTEXT, [documents.encode(document)])
    assert (compared.plain == [0]) is is_plain


def test_a_result_that_stands_after_its_children_says_how_they_are_written() -> None:
    results = native_profile("celery-results", "celery-results").by_name()["celery_taskmeta"]
    late = {name: value for name, value in RESULT.items() if name != "result"}
    assert compare(results, CONTEXT, [documents.encode(late | {"result": "{}"})]).plain == []
    batch = [documents.encode(RESULT), documents.encode(late | {"result": "- a\n"})]
    assert compare(results, CONTEXT, batch).plain == [0], "nothing of the document before is left"


def test_every_result_in_json_of_the_library_is_plain_but_of_a_group() -> None:
    results = native_profile("celery-results", "celery-results").by_name()["celery_taskmeta"]
    real = real_documents("celery-results/celery_taskmeta")
    plain = compare(results, CONTEXT, [documents.encode(document) for document in real]).plain
    odd = {"group_id", "parent_id", "stamped_headers"}
    in_json = {
        position
        for position, document in enumerate(real)
        if isinstance(document["result"], str) and odd.isdisjoint(document) and "children" in document
    }
    assert in_json <= {*plain}
