"""Replies taken apart by the native codec, against the driver's own reading of them."""

import random
from typing import Any

import bson
import pytest
from bson.int64 import Int64
from bson.timestamp import Timestamp

from tests import native_codec

Parts = tuple[bytes, bytes] | None


@pytest.fixture(scope="module", autouse=True)
def _native() -> None:
    native_codec.needed()


def without_documents(reply: bytes | bytearray | memoryview) -> Parts:
    from migrator_speedups import replies  # noqa: PLC0415 - may be absent

    return replies.without_documents(reply)


def reply_of(documents: list[Any], batch: str = "firstBatch", *, id_first: bool = False) -> bytes:
    cursor: dict[str, Any] = {batch: documents, "partialResultsReturned": True}
    rest: dict[str, Any] = {"id": Int64(2**40), "ns": "scheduler.jobs"}
    return bson.encode(
        {
            "cursor": rest | cursor if id_first else cursor | rest,
            "ok": 1.0,
            "$clusterTime": {"clusterTime": Timestamp(5, 6), "signature": {"hash": b"\0" * 20, "keyId": Int64(0)}},
            "operationTime": Timestamp(5, 6),
        }
    )


def some_documents(stream: random.Random) -> list[dict[str, Any]]:
    return [
        {"_id": number, "text": "x" * stream.randrange(60), "inner": {"cursor": [{"firstBatch": []}]}}
        for number in range(stream.choice((0, 1, 2, 9, 11, 101)))
    ]


def test_the_documents_stand_one_after_the_other_and_the_rest_is_as_it_was() -> None:
    stream = random.Random(1)
    for _ in range(200):
        documents = some_documents(stream)
        batch, id_first = stream.choice(("firstBatch", "nextBatch")), stream.random() < 0.5
        parts = without_documents(memoryview(bytearray(reply_of(documents, batch, id_first=id_first))))
        assert parts == (
            reply_of([], batch, id_first=id_first),
            b"".join(bson.encode(document) for document in documents),
        )


@pytest.mark.parametrize(
    "reply",
    [
        {"ok": 0.0, "errmsg": "no", "code": 2},
        {"ok": 1.0, "cursor": 5},
        {"ok": 1.0, "cursor": {"id": 0}},
        {"ok": 1.0, "cursor": {"id": 0, "firstBatch": {"0": {}}}},
        {"ok": 1.0, "cursor": {"id": 0, "firstBatch": [{"a": 1}, 2]}},
        {"ok": 1.0, "cursor": {"id": 0, "firstBatch": ["text"]}},
        {},
    ],
)
def test_another_reply_is_left_to_the_driver(reply: dict[str, Any]) -> None:
    assert without_documents(bson.encode(reply)) is None


def test_no_byte_after_a_damaged_reply_is_read() -> None:
    reply = reply_of([{"_id": 1, "text": "abc"}, {"_id": 2}], id_first=True)
    for size in range(len(reply)):
        assert without_documents(reply[:size]) is None
    taken = 0
    for place in range(len(reply)):
        for value in (0, 1, 4, 5, 0x7F, 0x80, 0xFF):
            damaged = bytearray(reply)
            damaged[place] = value
            parts = without_documents(damaged)
            if parts is not None:
                taken += 1
                assert sum(map(len, parts)) <= len(reply)
    assert taken > len(reply)  # a changed value damages no length


def test_a_length_that_is_not_the_documents_is_refused() -> None:
    reply = bytearray(reply_of([{"_id": 1}]))
    place = reply.index(b"\x030\0") + 3
    assert reply[place] == 14
    reply[place] = 200
    assert without_documents(reply) is None
