"""Raw batches as the tool reads them, against those of the driver's own method."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from pymongo.errors import CursorNotFound, OperationFailure

from migrator import native
from migrator.connections import raw_batches
from migrator.connections.mongo import MongoDatabase
from tests import native_codec

DOCUMENTS = 250


@pytest.fixture
def filled(mongo_database: MongoDatabase) -> MongoDatabase:
    mongo_database["jobs"].insert_many({"_id": number, "text": "x" * number} for number in range(DOCUMENTS))
    return mongo_database


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each reply was taken apart by the native codec."""
    native_codec.needed()
    from migrator_speedups import replies  # noqa: PLC0415 - may be absent

    real, each = replies.without_documents, list[bool]()

    def noted(reply: memoryview) -> tuple[bytes, bytes] | None:
        parts = real(reply)
        each.append(parts is not None)
        return parts

    monkeypatch.setattr(replies, "without_documents", noted)
    return each


@pytest.mark.parametrize(
    ("condition", "projection", "options"),
    [
        ({}, None, {}),
        ({}, None, {"batch_size": 7}),
        ({}, {"_id": 1}, {"batch_size": 100}),
        ({"_id": {"$gte": 240}}, None, {"skip": 3}),
        ({"_id": -1}, None, {}),
    ],
)
def test_batches_are_those_of_the_driver(
    filled: MongoDatabase,
    taken: list[bool],
    condition: Mapping[str, Any],
    projection: Mapping[str, Any] | None,
    options: dict[str, Any],
) -> None:
    jobs = filled["jobs"]
    expected = list(jobs.find_raw_batches(condition, projection, **options))
    assert not taken
    assert list(raw_batches.find_raw_batches(jobs, condition, projection, **options)) == expected
    assert taken
    assert all(taken)


def test_a_session_learns_the_times_of_the_replies(filled: MongoDatabase, taken: list[bool]) -> None:
    with filled.client.start_session(causal_consistency=True) as session:
        times = []
        for _ in range(2):
            filled["jobs"].update_one({"_id": 1}, {"$inc": {"times": 1}})
            list(raw_batches.find_raw_batches(filled["jobs"], {}, session=session))
            assert session.cluster_time is not None
            times.append((session.operation_time, session.cluster_time["clusterTime"]))
    assert all(earlier < later for earlier, later in pairwise(times))
    assert all(taken)


def test_an_error_is_that_of_the_driver(filled: MongoDatabase, taken: list[bool]) -> None:
    with pytest.raises(OperationFailure, match="unknown operator"):
        list(raw_batches.find_raw_batches(filled["jobs"], {"_id": {"$wrong": 1}}))
    cursor = raw_batches.find_raw_batches(filled["jobs"], {}, batch_size=10)
    next(cursor)
    filled.command("killCursors", "jobs", cursors=[cursor.cursor_id])
    with pytest.raises(CursorNotFound):
        next(cursor)
    assert taken == [False, True, False]


def test_a_reply_of_another_driver_is_read_by_the_driver(
    filled: MongoDatabase, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    from migrator_speedups import replies  # noqa: PLC0415 - may be absent

    monkeypatch.setattr(replies, "without_documents", lambda _: None)
    expected = list(filled["jobs"].find_raw_batches({}))
    assert list(raw_batches.find_raw_batches(filled["jobs"], {})) == expected
    assert not taken


def test_without_the_native_codec_the_method_of_the_driver_is_called(
    filled: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "module", lambda: None)
    cursor = raw_batches.find_raw_batches(filled["jobs"], {"_id": {"$lt": 3}})
    assert type(cursor).__module__.startswith("pymongo.")
    assert list(cursor) == list(filled["jobs"].find_raw_batches({"_id": {"$lt": 3}}))
