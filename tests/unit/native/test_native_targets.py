"""Documents for a library's own table through both codecs: texts, numbers and bytes that only such a table holds."""

import math
from typing import Any, Final

import bson
import pytest
from bson.binary import Binary
from bson.int64 import Int64
from bson.objectid import ObjectId

from migrator.sources import native_profile
from migrator.values import document as documents
from tests.apscheduler_documents import real
from tests.both_codecs import compare
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
        ({"other": 1}, False),
    ],
)
def test_what_the_native_codec_takes(changes: dict[str, Any], is_plain: bool) -> None:  # noqa: FBT001 - a parameter
    assert (compare(JOBS, CONTEXT, [documents.encode(JOB | changes)]).plain == [0]) is is_plain
