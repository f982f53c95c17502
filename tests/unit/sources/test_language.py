"""What a mapping file can say beyond the plainest fields: each with the values of a hostile source, by both codecs."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import bson
import msgspec
import pytest
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId

from migrator import cron
from migrator.errors import ConfigurationError
from migrator.pipeline.transform import decode_document, rebuild
from migrator.sources.mapping import file
from migrator.sources.mapping.converters import CONVERTERS
from migrator.sources.mapping.file import load_mapping
from migrator.sources.mapping.language import WEEKDAYS, Field
from migrator.sources.profile import Collection, Context, Document, Profile, Rejected
from migrator.values import document as documents
from migrator.values import remainder
from migrator.values.canonical import same
from tests.both_codecs import compare

NOON = datetime(2026, 11, 22, 12)  # noqa: DTZ001 - as BSON dates are read
CONTEXT = Context(as_of=NOON.replace(tzinfo=UTC), default_tenant="house", zone="Europe/Vienna")
HEAD = '[source]\nname = "acme"\n'
RUNS = (
    HEAD
    + """
[collections.runs]
tables = ["runs"]
[collections.runs.constants]
runs.state = "queued"
[collections.runs.fields]
made = { to = "runs.created_at" }
"""
)


def profile(tmp_path: Path, text: str) -> Profile:
    path = tmp_path / "acme.toml"
    path.write_text(text, encoding="utf-8")
    return load_mapping(path)


def mistakes(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        profile(tmp_path, text)
    return str(caught.value)


def travel(collection: Collection, document: Document) -> tuple[Any, set[str]]:
    """Return the first row, and the fields that are in its remainder; the rows and the remainder give all back."""
    raw = bson.encode(document)
    decoded = decode_document(collection, CONTEXT, raw)
    decoded.serialize()
    rows = tuple(row.record for row in decoded.serialized)
    assert same(rebuild(collection, rows), documents.decode(raw))
    return rows, {entry.field for entry in remainder.entries(collection.remainder(rows))}


def reason(collection: Collection, document: Document) -> str:
    with pytest.raises(Rejected) as caught:
        travel(collection, document)
    return f"{caught.value.reason} {caught.value.path}"


NUMBER_AS_TEXT = RUNS + 'worker = { to = "runs.worker_id", type = "int" }\n'


@pytest.mark.parametrize(
    ("value", "text", "left"),
    [
        (7, "7", set()),
        (0, "0", set()),
        (-3, "-3", set()),
        (Int64(2**40), "1099511627776", set()),
        (Int64(2**63 - 1), "9223372036854775807", set()),
        (Int64(7), "7", {"worker"}),
        (7.0, "7", {"worker"}),
        (-0.0, "0", {"worker"}),
        (None, None, {"worker"}),
    ],
)
def test_a_number_fills_a_text_column_with_its_digits(
    tmp_path: Path, value: object, text: str | None, left: set[str]
) -> None:
    [collection] = profile(tmp_path, NUMBER_AS_TEXT).collections
    document = {"_id": "r", "made": NOON, "worker": value}
    [row], found = travel(collection, document)
    assert (row.worker_id, found) == (text, left)
    # null is in the remainder, which the native codec learns; another type of number is for the Python codec
    assert compare(collection, CONTEXT, [bson.encode(document)]).plain == ([] if left and value is not None else [0])


NOT_WHOLE: tuple[object, ...] = (1.5, float("nan"), float("inf"), 2.0**63, "7", True, Decimal128("7"), [7], {}, NOON)


def test_what_is_no_whole_number_is_quarantined(tmp_path: Path) -> None:
    [collection] = profile(tmp_path, NUMBER_AS_TEXT).collections
    for value in (*NOT_WHOLE, Code("7")):
        document = {"_id": "r", "made": NOON, "worker": value}
        assert reason(collection, document) == "wrong-type worker"
        assert compare(collection, CONTEXT, [bson.encode(document)]).plain == []


@pytest.mark.parametrize("text", ["", "007", "+7", "7 ", "\u0667", "9223372036854775808", "w-1"])
def test_a_text_that_is_no_number_is_not_written(tmp_path: Path, text: str) -> None:
    """As a row that was created in PostgreSQL may hold it."""
    [collection] = profile(tmp_path, NUMBER_AS_TEXT).collections
    [row], _ = travel(collection, {"_id": "r", "made": NOON, "worker": 7})
    assert "worker" not in collection.encode((type(row)(**{**_columns(row), "worker_id": text}),))


def _columns(row: Any) -> dict[str, Any]:  # noqa: ANN401 - any record
    return {name: getattr(row, name) for name in row.__struct_fields__}


TYPED_JSON = (
    RUNS
    + """
a = { to = "runs.result.a", type = "%s" }
b = { to = "runs.result.b" }
whole = { to = "runs.metadata", type = "%s" }
"""
)


TYPED: dict[str, tuple[object, ...]] = {
    "long": tuple(map(Int64, (0, 5, -(2**63), 2**63 - 1))),
    "int": (0, -1, 2**31 - 1),
    "double": (0.0, 5.0, 2.5, 1e22, 1e300),
    "date": (NOON, NOON.replace(microsecond=123_000)),
    "objectId": (ObjectId("6b005affa4375445fe12232e"),),
    "decimal": tuple(map(Decimal128, ("1.10", "-5", "NaN"))),
}


@pytest.mark.parametrize("kind", sorted(TYPED))
def test_a_value_in_json_comes_back_in_its_type(tmp_path: Path, kind: str) -> None:
    [collection] = profile(tmp_path, TYPED_JSON % (kind, kind)).collections
    for value in TYPED[kind]:
        _, left = travel(collection, {"_id": "r", "made": NOON, "a": value, "b": "x", "whole": value})
        assert left == set(), value


HOSTILE = (None, True, "x", "", "2026-11-22T12:00:00Z", "9" * 400, 5, Int64(5), 5.0, -0.0, 1e300, float("nan"))
HOSTILE_TOO = (
    Decimal128("5"),
    NOON,
    ObjectId("6b005affa4375445fe12232e"),
    [Int64(1)],
    {"a": Int64(1)},
    Code("x"),
    b"x",
)


@pytest.mark.parametrize("kind", sorted(TYPED))
def test_a_value_of_another_type_is_kept_in_the_remainder(tmp_path: Path, kind: str) -> None:
    [collection] = profile(tmp_path, TYPED_JSON % (kind, kind)).collections
    for value in (*HOSTILE, *HOSTILE_TOO):
        travel(collection, {"_id": "r", "made": NOON, "a": value, "b": value, "whole": value})
        compare(collection, CONTEXT, [bson.encode({"_id": "r", "made": NOON, "whole": value})])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('x = { to = "runs.error", type = "date" }', "field x of runs: type: expected one of int, long, double"),
        (
            'x = { to = "runs.error", type = "byte" }',
            "field x of runs: type: expected one of int, long, double, ",
        ),
        ('x = { to = "runs.error", type = "int", trim = true }', "field x of runs: trim: the documents hold numbers"),
        (
            'x = { to = "runs.result", type = "long", holds = "text" }',
            "field x of runs: type: the value is",
        ),
        (
            'x = { to = "runs.error", type = "int", default = 7 }',
            "field x of runs: default: expected a value",
        ),
    ],
)
def test_a_type_that_does_not_fit_is_a_mistake(tmp_path: Path, line: str, expected: str) -> None:
    assert expected in mistakes(tmp_path, RUNS + line + "\n")


LEFT_OUT = (
    RUNS
    + """
[collections.audit_old]
left_out = "kept in the archive"
"""
)


def test_a_collection_is_left_out_with_its_reason(tmp_path: Path) -> None:
    found = profile(tmp_path, LEFT_OUT)
    assert [one.name for one in found.collections] == ["runs"]
    assert found.left_out == {"audit_old": "kept in the archive"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LEFT_OUT + 'tables = ["audit"]\n', "collection audit_old: tables: the collection is left out, and nothing"),
        (LEFT_OUT.replace('"kept in the archive"', "true"), "collection audit_old: left_out: expected the reason"),
        (LEFT_OUT.replace("kept in the archive", " "), "collection audit_old: left_out: expected the reason"),
        (LEFT_OUT.replace("kept in the archive", "a\\nb"), "collection audit_old: left_out: expected the reason"),
        (HEAD + "[collections.a]\nleft_out = 'x'\n", "expected at least one collection that is not left out"),
        (
            LEFT_OUT.replace("made =", 'job = { to = "runs.schedule_id", collection = "audit_old" }\nmade ='),
            "field job of runs: the collection audit_old is left out",
        ),
    ],
)
def test_a_collection_that_is_left_out_says_nothing_else(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in mistakes(tmp_path, text)


def test_signs_are_of_the_profile_and_decide_no_row(tmp_path: Path) -> None:
    signed = profile(tmp_path, RUNS + '[signs]\nruns = ["made", "state"]\n')
    assert signed.signs == {"runs": ("made", "state")}
    assert signed.version == profile(tmp_path, RUNS).version


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[signs]\nrnus = ["made"]\n', "signs: no collection rnus; did you mean runs?"),
        ("[signs]\nruns = []\n", "signs of runs: expected a list of names of fields"),
        ('[signs]\nruns = "made"\n', "signs of runs: expected a list of names of fields"),
        ("[signs]\nruns = [1]\n", "signs of runs: expected a list of names of fields"),
    ],
)
def test_signs_that_are_none_are_a_mistake(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in mistakes(tmp_path, RUNS + text)


def week(days: str, name: str = "days") -> str:
    """Return a mapping of schedules whose documents hold days of the week."""
    return f"""{HEAD}
[collections.jobs]
tables = ["schedules", "triggers"]
[collections.jobs.constants]
schedules.status = "scheduled"
[collections.jobs.fields]
name = {{ to = "schedules.name" }}
{name} = {{ to = "triggers.cron_expression", as = "weekdays", {days} }}
"""


OFF = [False] * 6
NAMED = week('time = "at"')
FLAGS = week('time = "at", time_format = "HH:MM:SS.mmmZ", first = "sun", holds = "text"')
"""As Parse writes them."""
NUMBERED = week('time = "when.at", time_format = "HH:MM:SS", type = "int", words = { 1 = "mon", 2 = "tue", 7 = "sun" }')


@pytest.mark.parametrize(
    ("text", "fields", "line"),
    [
        (NAMED, {"days": ["mon", "wed"], "at": "09:30"}, "30 9 * * mon,wed"),
        (NAMED, {"days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "at": "00:00"}, "0 0 * * *"),
        (FLAGS, {"days": ["1", "0", "0", "0", "0", "0", "1"], "at": "23:59:00.000Z"}, "59 23 * * sat,sun"),
        (FLAGS, {"days": ["1"] * 7, "at": "09:05:00.000Z"}, "5 9 * * *"),
        (NUMBERED, {"days": [1, 7], "when": {"at": "09:30:00"}}, "30 9 * * mon,sun"),
        (week('time = "at", first = "mon"'), {"days": [0, 1, 0, 0, 0, 0, 0], "at": "01:02"}, "2 1 * * tue"),
        (
            week('time = "at", first = "wed", holds = "flag"'),
            {"days": [True] + [False] * 6, "at": "01:02"},
            "2 1 * * wed",
        ),
    ],
)
def test_weekdays_and_a_time_are_a_cron_line(tmp_path: Path, text: str, fields: Document, line: str) -> None:
    """The line fires on those days, and the document comes back without a remainder."""
    [collection] = profile(tmp_path, text).collections
    (_, trigger), left = travel(collection, {"_id": "j", "name": "n", **fields})
    assert (trigger.cron_expression, trigger.cron_dialect, left) == (line, "debian", set())
    fires = cron.next_fires("debian", line, "UTC", datetime(2026, 11, 22, tzinfo=UTC), 14)
    named = line.rsplit(maxsplit=1)[-1]
    assert {f"{fire:%a}".lower() for fire in fires} == (set(WEEKDAYS) if named == "*" else set(named.split(",")))


@pytest.mark.parametrize(
    ("text", "fields", "left"),
    [
        (NAMED, {"days": [], "at": "09:30"}, {"days", "at"}),
        (NAMED, {"days": None, "at": "09:30"}, {"days", "at"}),
        (NAMED, {"at": "09:30"}, {"at"}),
        (NAMED, {"days": [], "at": "noon"}, {"days", "at"}),
        (FLAGS, {"days": ["0"] * 7, "at": "23:59:00.000Z"}, {"days", "at"}),
        (FLAGS, {"days": ["1"] * 7, "at": "23:59:30.000Z"}, {"days", "at"}),
        (FLAGS, {"days": ["1"] * 7, "at": "23:59:00.001Z"}, {"days", "at"}),
    ],
)
def test_what_no_cron_line_says_makes_no_trigger(tmp_path: Path, text: str, fields: Document, left: set[str]) -> None:
    [collection] = profile(tmp_path, text).collections
    rows, found = travel(collection, {"_id": "j", "name": "n", **fields})
    assert (len(rows), found) == (1, left)


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        (NAMED, {"days": ["mon"]}, "missing-field at"),
        (NAMED, {"days": ["mon"], "at": None}, "missing-field at"),
        (NAMED, {"days": ["mon"], "at": 930}, "bad-date at"),
        (NAMED, {"days": ["mon"], "at": Code("09:30")}, "bad-date at"),
        (NAMED, {"days": ["mon"], "at": "24:00"}, "bad-date at"),
        (NAMED, {"days": ["mon"], "at": "9:30"}, "bad-date at"),
        (NAMED, {"days": ["mon"], "at": "09:30\n"}, "bad-date at"),
        (NAMED, {"days": ["mon"], "at": "\u0660\u0669:30"}, "bad-date at"),
        (NAMED, {"days": ["mon"], "at": "09:30:00.000Z"}, "bad-date at"),
        (NAMED, {"days": ["Mon"], "at": "09:30"}, "unknown-value days[]"),
        (NAMED, {"days": [Code("mon")], "at": "09:30"}, "wrong-type days[]"),
        (NAMED, {"days": [1], "at": "09:30"}, "wrong-type days[]"),
        (NAMED, {"days": [["mon"]], "at": "09:30"}, "wrong-type days[]"),
        (NAMED, {"days": "mon", "at": "09:30"}, "wrong-type days"),
        (NAMED, {"days": {"0": "mon"}, "at": "09:30"}, "wrong-type days"),
        (FLAGS, {"days": ["1"] * 6, "at": "23:59:00.000Z"}, "wrong-type days"),
        (FLAGS, {"days": ["1"] * 8, "at": "23:59:00.000Z"}, "wrong-type days"),
        (FLAGS, {"days": [1] * 7, "at": "23:59:00.000Z"}, "wrong-type days"),
        (FLAGS, {"days": ["2"] * 7, "at": "23:59:00.000Z"}, "wrong-type days"),
        (NUMBERED, {"days": ["1"], "when": {"at": "09:30:00"}}, "wrong-type days[]"),
        (NUMBERED, {"days": [1.5], "when": {"at": "09:30:00"}}, "unknown-value days[]"),
        (NUMBERED, {"days": [True], "when": {"at": "09:30:00"}}, "wrong-type days[]"),
        (NUMBERED, {"days": [3], "when": {"at": "09:30:00"}}, "unknown-value days[]"),
        (NUMBERED, {"days": [1], "when": "09:30:00"}, "wrong-type when"),
        (week('time = "at", first = "mon"'), {"days": [True] * 7, "at": "01:02"}, "wrong-type days"),
        (week('time = "at", first = "mon"'), {"days": [2.5] * 7, "at": "01:02"}, "wrong-type days"),
    ],
)
def test_odd_weekdays_are_quarantined(tmp_path: Path, text: str, fields: Document, expected: str) -> None:
    [collection] = profile(tmp_path, text).collections
    assert reason(collection, {"_id": "j", "name": "n", **fields}) == expected


def test_weekdays_in_another_spelling_are_kept_in_the_remainder(tmp_path: Path) -> None:
    odd: tuple[tuple[str, Document], ...] = (
        (NAMED, {"days": ["wed", "mon"], "at": "09:30"}),
        (NAMED, {"days": ["mon", "mon"], "at": "09:30"}),
        (NUMBERED, {"days": [Int64(1)], "when": {"at": "09:30:00"}}),
        (NUMBERED, {"days": [1.0], "when": {"at": "09:30:00"}}),
    )
    for text, fields in odd:
        [collection] = profile(tmp_path, text).collections
        rows, left = travel(collection, {"_id": "j", "name": "n", **fields})
        assert (len(rows), left) in ((2, {"days"}), (2, {"days[]"}))


@pytest.mark.parametrize(
    "line", ["0 9 * * 1-5", "*/5 9 * * mon", "0 9 1 * mon", "0 9 * * xyz", "@daily", "0 25 * * mon", ""]
)
def test_a_line_that_says_more_is_not_written(tmp_path: Path, line: str) -> None:
    """As a trigger that was created in PostgreSQL may have it."""
    for text in (NAMED, FLAGS):
        [collection] = profile(tmp_path, text).collections
        at = "09:30" if text is NAMED else "09:30:00.000Z"
        days = ["mon"] if text is NAMED else ["0", "1", "0", "0", "0", "0", "0"]
        (schedule, trigger), _ = travel(collection, {"_id": "j", "name": "n", "days": days, "at": at})
        changed = type(trigger)(**{**_columns(trigger), "cron_expression": line})
        assert "days" not in collection.encode((schedule, changed))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("local = false", "field days of jobs: time: expected the field that holds the time of day"),
        ("time = 5", "field days of jobs: time: expected the field that holds the time of day"),
        ('time = "name"', "field days of jobs: time: the field name is mapped too"),
        ('time = "_id"', "field days of jobs: time: the field _id is mapped too"),
        ('time = "days"', "field days of jobs: time: the field days is mapped too"),
        ('time = "name.at"', "field name.at of jobs: it lies within the field name, which is mapped too"),
        ('time = "at", time_format = "H:M"', "field days of jobs: time_format: expected one of HH:MM, HH:MM:SS, HH:"),
        (
            'time = "at", first = "monday"',
            "field days of jobs: first: expected one of mon, tue, ",
        ),
        ('time = "at", first = "mon", type = "int"', "field days of jobs: type: the documents hold flags (first)"),
        ('time = "at", first = "mon", words = { a = "mon" }', "field days of jobs: words: the documents hold flags"),
        ('time = "at", first = "mon", holds = "list"', "field days of jobs: holds: expected one of text, flag"),
        ('time = "at", holds = "text"', "field days of jobs: holds: expected first, the day of the first flag"),
        ('time = "at", words = { Mo = "mond" }', "field days of jobs: words: no day mond; did you mean mon?"),
        ('time = "at", words = { Mo = ["mon"] }', "field days of jobs: words: no day ['mon']"),
        ('time = "at", words = {}', "field days of jobs: words: expected"),
        ('time = "at", type = "int"', "field days of jobs: words: the documents hold numbers (type): expected one"),
        ('time = "at", dialect = "debian"', "field days of jobs: unknown key dialect"),
        ('time = "at", time_format = "HH:MM:SS.mmmZ", local = true', "field days of jobs: local: a time with Z is"),
    ],
)
def test_weekdays_that_cannot_be_read_are_a_mistake(tmp_path: Path, options: str, expected: str) -> None:
    assert expected in mistakes(tmp_path, week(options))


NAMED_JOBS = (
    HEAD
    + """
[collections.jobs]
tables = ["schedules", "triggers"]
[collections.jobs.constants]
schedules.status = "scheduled"
[collections.jobs.fields]
org = { as = "tenant" }
key = { to = "schedules.name" }
line = { to = "triggers.cron_expression", dialect = "debian" }
[collections.runs]
tables = ["runs"]
[collections.runs.constants]
runs.state = "queued"
[collections.runs.fields]
org = { as = "tenant" }
made = { to = "runs.created_at" }
job = { to = "runs.schedule_id", collection = "jobs", by = "key" }
"""
)


def test_a_reference_names_a_document_by_another_field(tmp_path: Path) -> None:
    """The computed id is that of the row whose document has the value, in the same tenant and the same BSON type."""
    by_name = profile(tmp_path, NAMED_JOBS).by_name()
    jobs, runs = by_name["jobs"], by_name["runs"]
    hostile: tuple[Any, ...] = ("nightly", "", "a\0b", "\u202e", "0e5d7c1a-9b3f-4e6d-8c2b-1a0f9e8d7c6b", "jobs\0key")
    ids: dict[Any, Any] = {}
    for name in hostile:
        schedule, trigger = jobs.decode({"_id": ObjectId(), "org": "t", "key": name, "line": "* * * * *"}, CONTEXT).rows
        [run] = runs.decode({"_id": "r", "org": "t", "made": NOON, "job": name}, CONTEXT).rows
        assert run.schedule_id == schedule.id == trigger.schedule_id  # type: ignore[attr-defined]
        ids[name] = run.schedule_id  # type: ignore[attr-defined]
    assert len({*ids.values()}) == len(hostile)
    for other in (Int64(5), 5.5, {"a": 1}, ObjectId("6b005affa4375445fe12232e"), True):
        [run] = runs.decode({"_id": "r", "org": "t", "made": NOON, "job": other}, CONTEXT).rows
        assert run.schedule_id not in ids.values()  # type: ignore[attr-defined]
    [elsewhere] = runs.decode({"_id": "r", "org": "u", "made": NOON, "job": "nightly"}, CONTEXT).rows
    assert elsewhere.schedule_id != ids["nightly"]  # type: ignore[attr-defined]
    assert reason(runs, {"_id": "r", "org": "t", "made": NOON, "job": ["nightly"]}) == "wrong-type job"


def test_the_ids_of_documents_that_are_named_by_a_field_do_not_follow_from_their_own_id(tmp_path: Path) -> None:
    jobs = profile(tmp_path, NAMED_JOBS).by_name()["jobs"]
    key = "0e5d7c1a-9b3f-4e6d-8c2b-1a0f9e8d7c6b"
    first, second = (jobs.decode({"_id": one, "org": "t", "key": "a"}, CONTEXT).rows[0] for one in (key, "b"))
    assert first.id == second.id != UUID(key)  # type: ignore[attr-defined] # the second is quarantined where it is stored
    assert reason(jobs, {"_id": key, "org": "t"}) == "missing-field key"


@pytest.mark.parametrize("kept", ["jobs", "runs"])
def test_neither_side_of_a_reference_by_a_field_is_guessed_by_the_native_codec(tmp_path: Path, kept: str) -> None:
    text = NAMED_JOBS.replace('tables = ["schedules", "triggers"]', 'tables = ["schedules"]')
    collection = profile(tmp_path, text.replace('line = { to = "triggers.cron_expression", dialect = "debian" }\n', ""))
    found = collection.by_name()[kept]
    document = (
        {"_id": "r", "org": "t", "key": "a"} if kept == "jobs" else {"_id": "r", "org": "t", "made": NOON, "job": "a"}
    )
    assert found.native is not None
    if kept == "jobs":
        assert found.native(CONTEXT) is None
    else:
        assert compare(found, CONTEXT, [bson.encode(document)]).plain == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('by = "key"', 'by = "kye"', "field job of runs: by: jobs has no field kye; did you mean key?"),
        ('by = "key"', 'by = "_id"', "field job of runs: by: jobs has no field _id"),
        ('by = "key"', "by = 5", "field job of runs: by: expected a field of the other collection"),
        ('by = "key"', 'by = "key", id_type = "text"', "field job of runs: by: id_type says how an _id is written"),
        (
            "made =",
            'other = { to = "runs.trigger_id", collection = "jobs" }\nmade =',
            "field other of runs: by: all references to jobs must use one field, not _id, key",
        ),
    ],
)
def test_a_field_that_names_no_document_is_a_mistake(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert expected in mistakes(tmp_path, NAMED_JOBS.replace(old, new))


OPTIONS = {option for converter in CONVERTERS.values() if converter.in_files for option in converter.options}


def test_every_option_of_a_converter_is_checked_and_reaches_the_field() -> None:
    """An option of a file that is neither would be ignored silently."""
    checked = {*file._CHOICES, *file._TYPES, *file._LISTS, "words", "write_as", "default", "dialect", "collection"}
    assert checked >= OPTIONS
    assert {member.name for member in msgspec.structs.fields(Field)} >= OPTIONS


def test_the_type_of_an_id_reaches_the_field(tmp_path: Path) -> None:
    runs = profile(tmp_path, NAMED_JOBS.replace('by = "key"', 'id_type = "text"')).by_name()["runs"]
    key = "0e5d7c1a-9b3f-4e6d-8c2b-1a0f9e8d7c6b"
    rows, left = travel(runs, {"_id": "r", "org": "t", "made": NOON, "job": key})
    assert (rows[0].schedule_id, left) == (UUID(key), set())
