"""Bad input in documents: what becomes of each is told by its id, its reason and its place, and never by its values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import bson
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

from tests.bad_input.case import SECRET
from tests.copying import run_of
from tests.stellaops_documents import fresh

LOADED = ""
"""In place of a reason: the document becomes rows, and nothing of it is lost."""


@dataclass(frozen=True)
class Row:
    """One document."""

    wrong: str
    """What is wrong; also its ``_id``, unless that is the fault."""
    collection: str
    document: Any
    reason: str
    path: str = ""


def run(wrong: str, expected: str, place: str = "", /, **changes: Any) -> Row:  # noqa: ANN401 - any BSON value
    """Return a run with changes; those that are None are left out."""
    return Row(wrong, "runs", run_of(_id=wrong, **changes), expected, place)


def schedule(wrong: str, expected: str, place: str = "", /, **changes: Any) -> Row:  # noqa: ANN401 - as above
    return Row(wrong, "schedules", {**fresh("schedules"), "_id": wrong, "name": wrong, **changes}, expected, place)


def without(wrong: str, collection: str, key: str, reason: str) -> Row:
    made = run_of() if collection == "runs" else fresh(collection)
    made = {name: value for name, value in made.items() if name != key}
    return Row(wrong, collection, {**made, "_id": wrong}, reason, key)


def raw(wrong: str, reason: str, change: Mapping[bytes, bytes], path: str = "") -> Row:
    """Return a run whose bytes were changed; the pieces are of one length."""
    content = bson.encode(run_of(_id=wrong, blob="marker-marker", flag=True))
    for old, new in change.items():
        assert len(old) == len(new)
        assert content.count(old) == 1
        content = content.replace(old, new)
    return Row(wrong, "runs", RawBSONDocument(content), reason, path)


def nested(levels: int) -> Any:  # noqa: ANN401 - a document, or what is in the innermost
    return {"d": nested(levels - 1)} if levels else 1


_BODY = bson.encode(run_of(_id="a key twice"))[4:-1] + b"\x10twice\0\1\0\0\0\x10twice\0\2\0\0\0"
TWICE = RawBSONDocument((len(_BODY) + 5).to_bytes(4, "little") + _BODY + b"\0")

DOCUMENTS = [
    # Members that are missing, or of another type
    without("no state", "runs", "state", "missing-field"),
    without("no tenant is the default's", "runs", "tenantId", LOADED),
    without("no creation", "runs", "createdAt", "missing-field"),
    without("no name", "schedules", "name", "missing-field"),
    run("state is a number", "wrong-type", "state", state=7),
    run("state is an array", "wrong-type", "state", state=[SECRET]),
    run("state is a document", "wrong-type", "state", state={"$ne": SECRET}),
    run("state is unknown", "unknown-value", "state", state=SECRET),
    run("state in capitals and blanks", "unknown-value", "state", state=f" {SECRET.upper()} "),
    run("state is a script", "unknown-value", "state", state=Code(SECRET)),
    run("state is a pattern", "wrong-type", "state", state=Regex(SECRET)),
    run("tenant is a number", "wrong-type", "tenantId", tenantId=7),
    run("an empty tenant is the default's", LOADED, "tenantId", tenantId=""),
    run("tenant holds NUL", "nul-in-tenant", "tenantId", tenantId=f"{SECRET}\0"),
    run("stats is a text", "wrong-type", "stats", stats=SECRET),
    run("stats is an array", "wrong-type", "stats", stats=[SECRET]),
    run("a count is a text", "wrong-type", "stats.queued", stats={"queued": SECRET}),
    run("a count is a fraction", "wrong-type", "stats.queued", stats={"queued": 1.5}),
    run("a count is large", LOADED, "stats.queued", stats={"queued": Int64(2**40)}),
    run("a count is NaN", "wrong-type", "stats.queued", stats={"queued": float("nan")}),
    run("a count is a decimal", "wrong-type", "stats.queued", stats={"queued": Decimal128("1E+100")}),
    run("reason is a text", "wrong-type", "reason", reason=SECRET),
    run("deltas is a document", "wrong-type", "deltas", deltas={"x": SECRET}),
    # Dates
    run("creation is no date", "bad-date", "createdAt", createdAt=SECRET),
    run("creation is empty", "bad-date", "createdAt", createdAt=""),
    run("creation has a month 13", "bad-date", "createdAt", createdAt="2026-13-01T00:00:00Z"),
    run("creation has a 30th of February", "bad-date", "createdAt", createdAt="2026-02-30T00:00:00Z"),
    run("creation has an hour 24", "bad-date", "createdAt", createdAt="2026-01-01T24:00:01Z"),
    run("creation without a zone", "bad-date", "createdAt", createdAt="2026-01-01T00:00:00"),
    run("creation is a number", "wrong-type", "createdAt", createdAt=1_700_000_000),
    run("creation is a timestamp", "wrong-type", "createdAt", createdAt=Timestamp(1, 1)),
    run("creation is in the year 10000", "bad-date", "createdAt", createdAt=DatetimeMS(253_402_300_800_000)),
    run("creation is before the common era", "bad-date", "createdAt", createdAt=DatetimeMS(-(2**62))),
    run("start is no date", "bad-date", "startedAt", startedAt=SECRET),
    run("creation is the first instant, as .NET writes none", LOADED, createdAt=DatetimeMS(-62_135_596_800_000)),
    run(
        "creation is a millisecond before the first instant",
        "bad-date",
        "createdAt",
        createdAt=DatetimeMS(-62_135_596_800_001),
    ),
    run("creation is the last instant", LOADED, createdAt=DatetimeMS(253_402_300_799_999)),
    run("end is the first instant, before the start", LOADED, finishedAt=DatetimeMS(-62_135_596_800_000)),
    # Ids
    Row("an id of every kind: null", "runs", run_of(_id=None), LOADED),
    Row("an id of every kind: MinKey", "runs", run_of(_id=MinKey()), LOADED),
    Row("an id of every kind: MaxKey", "runs", run_of(_id=MaxKey()), LOADED),
    Row("an id of every kind: NaN", "runs", run_of(_id=float("nan")), LOADED),
    Row("an id of every kind: empty", "runs", run_of(_id=""), LOADED),
    Row("an id of every kind: a document", "runs", run_of(_id={"a": SECRET[:0], "b": [1]}), LOADED),
    Row("an id of every kind: binary", "runs", run_of(_id=Binary(b"\x00\xff", 128)), LOADED),
    Row("an id of every kind: an ObjectId", "runs", run_of(_id=ObjectId("65a000000000000000000001")), LOADED),
    run("an id with \x1b]0;title\x07", "unknown-value", "state", state=SECRET),
    run("an id with \u202eevil\u2066", "unknown-value", "state", state=SECRET),
    run("an id with\nanother line", "unknown-value", "state", state=SECRET),
    run("an id with \x9b31m and \x7f", "unknown-value", "state", state=SECRET),
    run("an id with \0", "unknown-value", "state", state=SECRET),
    run("an id like a path ../../etc/passwd", "unknown-value", "state", state=SECRET),
    run("an id like SQL'; DROP TABLE scheduler.runs; --", "unknown-value", "state", state=SECRET),
    run("an id like {'$ne': 1}", "unknown-value", "state", state=SECRET),
    run("an id like a template {{7*7}} %s {0}", "unknown-value", "state", state=SECRET),
    # Names of fields
    run("a field with a dollar", LOADED, **{"$set": 1}),
    run("a field with a dot", LOADED, **{"a.b": 1}),
    run("a field without a name", LOADED, **{"": 1}),
    run("a field with control characters", LOADED, **{"\x1b[2J\u202e": 1}),
    run("a field of a kilobyte", LOADED, **{"k" * 1024: 1}),
    run("a field like a column", LOADED, tenant_id="other", id="x"),
    run("a field like a prototype", LOADED, __proto__=1, constructor=2),
    # Values that PostgreSQL does not take as they are
    run("NUL in a text", LOADED, note="a\0b"),
    run("infinity", LOADED, ratio=float("inf")),
    run("a negative zero", LOADED, ratio=-0.0),
    run("a decimal NaN", LOADED, ratio=Decimal128("NaN")),
    run("a hundred levels", LOADED, deep=nested(90)),
    run("a large array", LOADED, many=list(range(20_000))),
    run("a large text", LOADED, text="x" * 1_000_000),
    # Bytes that are no BSON as drivers write it
    raw("bad UTF-8 in a value", "undecodable", {b"marker-marker": b"marker\xff\xfe\xfdker"[:13].ljust(13, b"k")}),
    Row(
        "a key twice",
        "runs",
        TWICE,
        "not-round-trip",
    ),
    # References
    run("a schedule that is not there", LOADED, scheduleId="sch_00000000000000000000000000000001"),
    run("a schedule that is a number", "wrong-type", "scheduleId", scheduleId=7),
    run("a retry of itself", LOADED, retryOf="a retry of itself"),
    # Schedules
    schedule("enabled is a text", "wrong-type", "enabled", enabled=SECRET),
    schedule("cron is a number", "wrong-type", "cronExpression", cronExpression=7),
    schedule("a name of its own is a number", "wrong-type", "name", name=7),
    schedule("mode is unknown", "unknown-value", "mode", mode=SECRET),
]
