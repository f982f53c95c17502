"""However a document of a mapped source is changed: it is quarantined, or it comes back and its rows are storable."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64
from bson.objectid import ObjectId
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from migrator import states
from migrator.pipeline.transform import decode_document, rebuild
from migrator.sources.mapping.file import load_mapping
from migrator.sources.profile import Context, Rejected, Skipped
from migrator.values import document as documents
from migrator.values import remainder
from migrator.values.canonical import same
from tests.cron_lines import DEEP
from tests.strategies_bson import keys, late, made, values

Document = dict[str, Any]

MAPPINGS = Path(__file__).parents[1] / "fixtures_data" / "mappings"
PROFILE = load_mapping(MAPPINGS / "acme.toml")
EVERY = load_mapping(MAPPINGS / "every.toml")
"""A mapping with each converter and option that the other one does not use."""
COLLECTIONS = {**PROFILE.by_name(), **EVERY.by_name()}
NOON = datetime(2026, 11, 22, 12)  # noqa: DTZ001 - as BSON dates are read
CONTEXT = Context(as_of=NOON.replace(tzinfo=UTC), default_tenant="house", zone="Europe/Vienna")
BASES: dict[str, Document] = {
    "jobs": {
        "org": "north",
        "title": "nightly",
        "owner": "ann",
        "cron": "30 2 * * 1-5",
        "zone": "Europe/Vienna",
        "next": 1795397400.123456,
        "active": True,
        "state": "on",
        "priority": 7,
        "options": {"retries": 3, "timeout": 2.5},
        "labels": ["a"],
        "payload": {"a": 1},
        "created": NOON,
    },
    "history": {
        "org": "north",
        "job": ObjectId("6b005affa4375445fe12232e"),
        "status": "ok",
        "by": 2,
        "queued": "2026-11-22T12:00:00+00:00",
        "begun": Int64(1795176000000),
        "ended": Int64(1795176000500),
        "message": "done",
        "outcome": [1],
    },
    "shedlock": {"lockUntil": NOON.replace(year=2027), "lockedAt": NOON, "lockedBy": "host", "name": "sweep"},
    "tasks": {
        "id": "t",
        "v": "task@2",
        "tenant": "north",
        "name": "nightly",
        "crontab": {
            "minute": "30",
            "hour": "2",
            "day_of_month": "*",
            "month_of_year": "*",
            "day_of_week": "1-5",
        },
        "zone": "Europe/Vienna",
        "args": "[1,2.5]",
        "kwargs": '{"a": [1, "b"], "c": {}}',
        "attempts": 5,
        "level": 2,
        "due": "1795397400123",
    },
    "periods": {
        "tenant": "north",
        "name": "often",
        "interval": {"every": 90, "period": "seconds"},
        "deleted": NOON,
    },
    "outcomes": {
        "task": "t",
        "cause": "timer",
        "started": "1795397400123",
        "error": {"text": "late"},
    },
    "graph": {"name": "sweep", "halted": NOON, "after": NOON},
    "leases": {"until": NOON.replace(year=2027)},
    "wheels": {
        "form": "wheel",
        "on": False,
        "line": "30 2 * * mon-fri",
        "begin": NOON,
        "seen": "2026-11-22T12:00:00.123Z",
        "most": 0,
        "ended": None,
        "wait": -1,
        "team": ["a", None],
        "deep": {"colour": "red"},
    },
    "turns": {
        "form": "wheel",
        "on": True,
        "turn": {"kind": "turn", "every": 5, "unit": "minutes"},
        "most": 3,
        "ended": NOON,
        "wait": 2.5,
    },
}
"""Document of each collection; some have two."""
SECOND = {"periods": "tasks", "turns": "wheels"}
FIELDS = sorted({name for collection in COLLECTIONS.values() for name in collection.known if name != "_id"})

likely = st.one_of(
    late(Int64, st.integers(-(2**63), 2**63 - 1)),
    late(Code, st.just("x")),
    st.floats(),
    st.sampled_from([NOON, DatetimeMS(2**55), 0.0, -0.0, 2.5, 1, 1.0, -3, 1e300, 101, -1, True, None, "", "a\0b"]),
    st.sampled_from(
        ["on", "off", "ok", "lost", "UTC", "W. Europe Standard Time", "Mars/Olympus", "* * * * *", "north"]
    ),
    st.sampled_from(["task@3", " n ", "secs", "timer", "*/5", "1795397400123", "-1", "9" * 30, "[", '{"b":1,"a":1e5}']),
    st.sampled_from([{"every": 1.5, "period": "minutes"}, {"every": 1}, {"minute": "*/5"}, {"minute": "x"}]),
    st.sampled_from(["counter", {"name": "org"}, {"text": "late"}, {"zone": "UTC"}]),
    st.sampled_from(["2026-11-22T12:00:00Z", "yesterday", [], ["a"], [1], {}, {"retries": 2.5}, "x" * 3_000]),
)


@st.composite
def changed(draw: st.DrawFn) -> tuple[str, Document]:
    """Draw a document with some of its fields dropped, nulled, replaced or added."""
    collection = draw(st.sampled_from(sorted(BASES)))
    document = {
        "_id": draw(st.one_of(values(), st.just("t"), late(ObjectId), st.just("recurring:a"))),
        **BASES[collection],
    }
    for _ in range(draw(st.integers(0, 5))):
        name = draw(st.sampled_from([one.partition(".")[0] for one in FIELDS]))
        action = draw(st.sampled_from(["drop", "likely", "likely", "any", "add"]))
        if action == "drop":
            document.pop(name, None)
        elif action == "likely":
            document[name] = draw(likely)
        else:
            document[name if action == "any" else draw(keys())] = draw(values())
    return SECOND.get(collection, collection), made(document)


@settings(deadline=None, max_examples=300 if DEEP else 150, suppress_health_check=[HealthCheck.too_slow])
@given(changed())
def test_a_changed_document_is_quarantined_or_comes_back(case: tuple[str, Document]) -> None:
    collection, document = case
    rejected, rows, rebuilt = outcome(collection, bson.encode(document))
    if rejected is not None:
        assume(rejected.reason not in ("not-round-trip", "undecodable"))
        assert rejected.path.partition(".")[0].removesuffix("[]") in {"", "_id", *FIELDS}
        assert rejected.expected
    elif rows:
        assert same(rebuilt, documents.decode(bson.encode(document)))
        assert_storable(rows)


def outcome(collection: str, raw: bytes) -> tuple[Rejected | None, tuple[Any, ...], Document]:
    """Return why a document is quarantined, or its rows and the document that they give back."""
    kind = COLLECTIONS[collection]
    try:
        decoded = decode_document(kind, CONTEXT, raw)
        decoded.serialize()
    except Rejected as reason:
        return reason, (), {}
    except Skipped:
        return None, (), {}
    rows = tuple(row.record for row in decoded.serialized)
    return None, rows, rebuild(kind, rows)


def assert_storable(rows: tuple[Any, ...]) -> None:
    """Assert what the constraints of the tables demand."""
    for row in rows:
        if row.table == "schedules":
            assert row.status in states.SCHEDULE
            assert row.priority is None or 0 <= row.priority <= 100
        elif row.table == "triggers":
            assert (row.kind == "cron") == (row.cron_expression is not None) == (row.cron_dialect is not None)
            assert (row.kind == "interval") == (row.interval_ms is not None) == (row.anchor is not None)
            assert row.interval_ms is None or row.interval_ms > 0
        elif row.table == "runs":
            assert row.state in states.RUN
            assert row.duration_ms is None or row.duration_ms >= 0
        elif row.table == "locks":
            assert row.key.startswith(f"{row.tenant_id}/")


@pytest.mark.parametrize("name", sorted(BASES))
def test_a_document_as_the_scheduler_writes_it_leaves_nothing(name: str) -> None:
    """Nothing stays in the remainder but references, whose text an id does not give back, and what nothing maps."""
    collection = COLLECTIONS[SECOND.get(name, name)]
    raw = bson.encode({"_id": "t" if name != "outcomes" else ObjectId("6b005affa4375445fe12232e"), **BASES[name]})
    decoded = decode_document(collection, CONTEXT, raw)
    decoded.serialize()
    unmapped = {"periods": {"id", "deleted"}, "outcomes": {"task", "error"}, "history": {"job"}}
    assert {entry.field for entry in remainder.entries(decoded.remainder)} == unmapped.get(name, set())


def test_each_kind_of_a_collection_has_rows_of_its_own() -> None:
    graph = EVERY.by_name()["graph"]
    documents_ = [
        {"_id": "recurring:1", "name": "a", "line": "* * * * *", "halted": NOON},
        {"_id": "2", "name": "b", "halted": NOON},
        {"_id": "3", "title": "c", "after": NOON},
    ]
    decoded = [graph.decode(one, CONTEXT).rows for one in documents_]
    assert [[row.table for row in rows] for rows in decoded] == [
        ["schedules", "triggers"],
        ["schedules"],
        ["schedules"],
    ]
    assert [graph.encode(rows) for rows in decoded] == [
        {"_id": "recurring:1", "name": "a", "line": "* * * * *"},
        documents_[1],
        {"_id": "3", "title": "c"},
    ]
    with pytest.raises(Skipped, match="kind counter"):
        graph.decode({"_id": 4, "_t": "counter"}, CONTEXT)
