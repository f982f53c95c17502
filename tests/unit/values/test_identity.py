"""Ids: golden values first, since a change here separates every migrated database from its source."""

from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import bson
import pytest
from bson.binary import Binary
from bson.code import Code
from bson.int64 import Int64
from bson.objectid import ObjectId

from migrator.values import identity
from migrator.values.canonical import same

OBJECT_ID = '{"_id": {"$oid": "6b005afb90137d020b32ec6e"}}'

GOLDEN_ROWS = [
    ("runs", "tenant-a", "runs", "run:P-7:2025", "e854bed5-9877-5ff6-b94e-b98595aeb71a"),
    ("runs", "tenant-b", "runs", "run:P-7:2025", "1e51757f-8f2f-514e-8b04-211e8313c75a"),
    ("schedules", "tenant-a", "schedules", "sch_20251018a", "6f6eb6c1-3078-51e8-8847-0cdcffafad44"),
    (
        "runs",
        "tenant-a",
        "runs",
        '{"_id": {"$oid": "6b005afb90137d020b32ec6e"}}',
        "39228a8a-44a3-5dc3-94c8-499490e2978b",
    ),
    ("audit", "*", "audit", '{"_id": null}', "144f44eb-01fe-52a9-9aad-8de422eb063b"),
    ("audit", "é", "audit", "ü", "eb14cb7f-7653-52a6-96b8-6899331b3c99"),
]

GOLDEN_SOURCE_IDS: list[tuple[Any, str]] = [
    ("run:P-7", "run:P-7"),
    ("", ""),
    ("null", "null"),
    ("1", "1"),
    ("{", '{"_id": "{"}'),
    ('{"_id": null}', '{"_id": "{\\"_id\\": null}"}'),
    ("a\0b", '{"_id": "a\\u0000b"}'),
    ("é", "é"),
    (None, '{"_id": null}'),
    (True, '{"_id": true}'),
    (1, '{"_id": {"$numberInt": "1"}}'),
    (Int64(1), '{"_id": {"$numberLong": "1"}}'),
    (1.0, '{"_id": {"$numberDouble": "1.0"}}'),
    (-0.0, '{"_id": {"$numberDouble": "-0.0"}}'),
    (float("nan"), '{"_id": {"$numberDouble": "NaN"}}'),
    (ObjectId("6b005afb90137d020b32ec6e"), '{"_id": {"$oid": "6b005afb90137d020b32ec6e"}}'),
    (Binary(bytes(16), 4), '{"_id": {"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAA==", "subType": "04"}}}'),
    ({"b": 1, "a": None}, '{"_id": {"b": {"$numberInt": "1"}, "a": null}}'),
    ({"a": None, "b": 1}, '{"_id": {"a": null, "b": {"$numberInt": "1"}}}'),
    (Code("x", {"$oid": None}), '{"_id": {"$code": "x", "$scope": {"$$oid": null}}}'),
    ({"$oid": "6b00"}, '{"_id": {"$$oid": "6b00"}}'),
    ({"$$oid": {"$ref": "c", "$id": 1}}, '{"_id": {"$$$oid": {"$$ref": "c", "$$id": {"$numberInt": "1"}}}}'),
]


@pytest.mark.parametrize(("table", "tenant", "collection", "source_id", "expected"), GOLDEN_ROWS)
def test_computed_row_ids_never_change(table: str, tenant: str, collection: str, source_id: str, expected: str) -> None:
    assert identity.row_id(table, tenant, collection, source_id) == UUID(expected)


def test_a_computed_id_is_a_plain_uuid5() -> None:
    namespace = uuid5(uuid5(NAMESPACE_URL, "urn:migrator:scheduler"), "runs")
    assert identity.row_id("runs", "t", "c", "s") == uuid5(namespace, "t\0c\0s")


@pytest.mark.parametrize(("value", "expected"), GOLDEN_SOURCE_IDS)
def test_source_ids_never_change_and_are_read_back(value: Any, expected: str) -> None:  # noqa: ANN401 - any BSON value
    assert identity.source_id(value) == expected
    assert same({"_id": identity.parse_source_id(expected)}, {"_id": value})


@pytest.mark.parametrize(("value", "expected"), GOLDEN_SOURCE_IDS)
def test_the_id_of_a_raw_document_is_read_and_found_again(value: Any, expected: str) -> None:  # noqa: ANN401 - as above
    raw = bson.encode({"_id": value, "other": "text"})
    assert identity.source_id_of(raw) == expected
    assert identity.id_filter([expected]).raw == bson.encode({"$in": [value]})


def test_an_id_that_is_no_utf8_is_not_taken_as_text() -> None:
    raw = bson.encode({"_id": "abc"}).replace(b"abc", b"\xffbc")
    assert identity.source_id_of(raw).startswith('{"_id": {"$binary"')
    assert identity.source_id_of(raw.replace(b"\xffbc\0", b"abc!")).startswith('{"_id": {"$binary"')


def test_a_text_that_no_id_makes_is_refused() -> None:
    with pytest.raises(ValueError, match="not a source id"):
        identity.parse_source_id('{"id": 1}')


HEX = "3f2b8c1e5d6a47f09b1c2d3e4f5a6b7c"
KEPT = UUID(HEX)


@pytest.mark.parametrize(
    "source_id",
    [
        "3f2b8c1e-5d6a-47f0-9b1c-2d3e4f5a6b7c",
        f"gbj_{HEX}",
        f"a_{HEX}",
        f"graph-job_{HEX}",
        f"policy_run_{HEX}",
        identity.source_id(Binary(KEPT.bytes, 4)),
    ],
)
def test_a_uuid_is_kept(source_id: str) -> None:
    assert identity.row_id("runs", "t", "c", source_id) == KEPT
    assert identity.row_id("runs", "t", "c", source_id, keep_uuid=False) != KEPT


@pytest.mark.parametrize(
    "source_id",
    [
        "3F2B8C1E-5D6A-47F0-9B1C-2D3E4F5A6B7C",
        "{3f2b8c1e-5d6a-47f0-9b1c-2d3e4f5a6b7c}",
        "3f2b8c1e-5d6a-47f0-9b1c-2d3e4f5a6b7c\n",
        "3f2b8c1e-5d6a47f0--9b1c-2d3e4f5a6b7c",
        HEX,
        f"_{HEX}",
        f"gbj_{HEX.upper()}",
        f"gbj_{HEX[:-1]}",
        f"gbj_{HEX}\n",
        f"gbj:{HEX}",
        f"tenant/gbj_{HEX}",
        f"1bj_{HEX}",
        "gbj_3f2b8c1e-5d6a-47f0-9b1c-2d3e4f5a6b7c",
        identity.source_id(Binary(KEPT.bytes, 3)),
        identity.source_id(Binary(KEPT.bytes[:15], 4)),
        identity.source_id({"$binary": {"base64": "PyuMHl1qR/CbHC0+T1prfA==", "subType": "04"}}),
    ],
)
def test_other_spellings_of_a_uuid_are_not_kept(source_id: str) -> None:
    key = identity.row_id("runs", "t", "c", source_id)
    assert key.version == 5
    assert key == identity.row_id("runs", "t", "c", source_id, keep_uuid=False)


def test_a_uuid_made_without_checks_is_like_any_other() -> None:
    made = identity.uuid_of(KEPT.int)
    assert made == KEPT
    assert hash(made) == hash(KEPT)
    assert (str(made), made.bytes, made.is_safe) == (str(KEPT), KEPT.bytes, KEPT.is_safe)


def test_event_ids_and_lock_ids_never_change() -> None:
    source = "stellaops/graph_job_events"
    assert identity.event_id("tenant-a", source, "evt_1") == 7572758977980513753
    assert identity.event_id("tenant-a", source, ObjectId("6b005afb90137d020b32ec6e")) == 7455149805938052158
    assert identity.lock_id("leader") == 8013785722248176571
    assert identity.lock_id("größe") == -4488053461319811238
    assert identity.stable_hash64("tenant-a/scheduler") == 3546318383532670911
    assert identity.stable_hash64("*/leader") == 8802711386235162580
    assert any(identity.stable_hash64(str(number)) < 0 for number in range(9))
