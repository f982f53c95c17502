"""The independent figures: agreement where the data agree, and each way in which they may not."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from bson import Decimal128, Int64, MinKey, ObjectId, Timestamp
from hypothesis import given
from hypothesis import strategies as st
from pymongo.database import Database

from migrator.parity import aggregates as module
from migrator.parity.aggregates import BothSides, compare_aggregates, field_counter
from migrator.parity.model import AggregateResult
from migrator.parity.uniformity import NOTHING, REGULAR_TIME, FieldCounts, Uniformity
from migrator.records import AuditEntry
from migrator.sources import aggregates
from migrator.sources.profile import Collection, Measure, Profile
from migrator.values import document as documents
from migrator.values.identity import source_id, source_id_of

TIME = datetime(2026, 1, 2, 3, 4, 5, 678000)  # noqa: DTZ001 - as pymongo gives it

ENTRIES = Collection(
    name="entries",
    tables=(AuditEntry,),
    decode=lambda _document, _context: pytest.fail("the transform must have no part in this"),
    encode=lambda _rows: pytest.fail("the transform must have no part in this"),
    tenant_expression="$tenant",
    measures=(
        Measure(name="action", kind="group", expression="$action", sql="action"),
        Measure(name="size", kind="sum", expression="$size", sql="(metadata->>'size')::numeric"),
        Measure(
            name="at", kind="time", expression={"$toLong": "$at"}, sql="floor(extract(epoch from occurred_at) * 1000)"
        ),
    ),
)
PROFILE = Profile(name="example", version=1, collections=(ENTRIES,))


@pytest.fixture
def target(scheduler_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(scheduler_dsn, autocommit=True) as connection:
        yield connection


def put(
    target: psycopg.Connection[Any],
    *,
    tenant: str = "a",
    action: str = "made",
    size: str | None = "1",
    at: datetime = TIME,
    source: str = "example/entries",
) -> None:
    target.execute(
        "INSERT INTO scheduler.audit (id, tenant_id, source, source_id, category, action, occurred_at, metadata)"
        " VALUES (gen_random_uuid(), %s, %s, 'x', 'c', %s, %s, jsonb_build_object('size', %s::numeric))",
        (tenant, source, action, at.replace(tzinfo=UTC), size),
    )


def entry(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any BSON value
    return {"tenant": "a", "action": "made", "size": 1, "at": TIME, **fields}


def compared(
    source: Database[Any],
    target: psycopg.Connection[Any],
    profile: Profile,
    excluded: Mapping[str, Sequence[str]],
    **options: Any,  # noqa: ANN401 - of the function
) -> list[AggregateResult]:
    """Compare the aggregates as the parity check does, which has counted the fields of the documents."""
    names = options.get("names", {})
    fields = {
        one.name: counted(source, profile, one, names.get(one.name, one.name), excluded.get(one.name, ()))
        for one in profile.collections
    }
    return compare_aggregates(source, target, profile, excluded, fields=fields, **options)


def counted(
    source: Database[Any], profile: Profile, collection: Collection, name: str, excluded: Sequence[str]
) -> FieldCounts:
    counter = field_counter(profile, collection)
    for batch in source[name].find_raw_batches():
        counter.add(batch)
        for raw in documents.split(batch):
            if source_id_of(raw) in excluded:
                counter.leave_out(raw)
    return counter.counts()


def by_measure(results: list[AggregateResult]) -> dict[str, AggregateResult]:
    return {one.measure: one for one in results}


def differing(results: list[AggregateResult]) -> set[str]:
    return {one.measure for one in results if one.differing_total}


def test_equal_data_give_equal_aggregates(mongo_database: Database[Any], target: psycopg.Connection[Any]) -> None:
    mongo_database["entries"].insert_many(
        [entry(), entry(tenant="b", action="sold", size=Int64(2**40)), entry(size=Decimal128("0.25")), entry(size=None)]
    )
    put(target)
    put(target, tenant="b", action="sold", size=str(2**40))
    put(target, size="0.25")
    put(target, size=None)
    put(target, source="example/other", action="not ours")
    results = compared(mongo_database, target, PROFILE, {})
    assert differing(results) == set()
    assert [(one.measure, one.compared, one.unverified) for one in results] == [
        ("documents", 2, ""),
        ("action", 2, ""),
        ("size", 2, ""),
        ("at", 4, ""),
    ]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"action": "sold"}, {"action"}),
        ({"size": "2"}, {"size"}),
        ({"size": "1.001"}, {"size"}),
        ({"tenant": "b"}, {"documents", "action", "size", "at"}),
        ({"at": TIME.replace(microsecond=679000)}, {"at"}),
        ({"at": TIME.replace(hour=4)}, {"at"}),
    ],
)
def test_each_kind_of_fault_shows_in_its_figure(
    row: dict[str, Any], expected: set[str], mongo_database: Database[Any], target: psycopg.Connection[Any]
) -> None:
    mongo_database["entries"].insert_one(entry())
    put(target, **row)
    assert differing(compared(mongo_database, target, PROFILE, {})) == expected


@pytest.mark.parametrize("value", ["x", "", 0, False, [], {}])
def test_a_value_of_a_field_whose_column_is_empty_everywhere_is_counted(
    value: Any,  # noqa: ANN401 - any BSON value
    mongo_database: Database[Any],
    target: psycopg.Connection[Any],
) -> None:
    """Such fields are searched together; what is found is counted field by field."""
    measures = (NOTE, filled("other", "correlation_id"), KIND)
    collection = msgspec.structs.replace(ENTRIES, measures=(*ENTRIES.measures, *measures))
    profile = Profile(name="example", version=1, collections=(collection,))
    mongo_database["entries"].insert_many([entry(note=None, kind="made"), entry(kind="made")])
    put(target)
    put(target)
    results = by_measure(compared(mongo_database, target, profile, {}))
    assert {name: (one.source_total, one.differing_total) for name, one in results.items() if one.kind == "sum"} == {
        "size": ("2", 0),
        "column note filled": ("0", 0),
        "column other filled": ("0", 0),
        "column kind filled": ("2", 0),
    }
    mongo_database["entries"].update_one({}, {"$set": {"note": value}})
    results = by_measure(compared(mongo_database, target, profile, {}))
    assert differing([*results.values()]) == {"column note filled"}
    assert results["column note filled"].source_total == "1"


def instant(text: str) -> int:
    """Return the time of a text, in milliseconds since 1970."""
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("times", "first", "last"),
    [
        (
            ["2025-05-01T00:00:00.5+00:00", "2025-05-01T00:00:00+00:00"],
            "2025-05-01T00:00:00",
            "2025-05-01T00:00:00.500",
        ),
        (["2025-05-01T00:00:00.44Z", "2025-05-01T00:00:00.442Z"], "2025-05-01T00:00:00.440", "2025-05-01T00:00:00.442"),
        # between the others as texts, and first or last in time
        (["2025-05-01T08:00:00.000Z", "2025-05-01T09:00:00.000+09:00"], "2025-05-01T00:00:00", "2025-05-01T08:00:00"),
        (
            ["2025-05-01T05:00:00.000Z", "2025-05-01t01:00:00.000Z", "2025-05-02T00:00:00.000Z"],
            "2025-05-01T01:00:00",
            "2025-05-02T00:00:00",
        ),
        (
            ["2025-05-01T05:00:00.000Z", "2025-05-01T05:00:00.000Z\n", None],
            "2025-05-01T05:00:00",
            "2025-05-01T05:00:00",
        ),
        # no times
        (["2025-02-28T05:00:00.000Z", "2025-02-30T00:00:00.000Z"], "2025-02-28T05:00:00", "2025-02-28T05:00:00"),
        (["2025-02-28T05:00:00.000Z", "2025-02-28T24:00:00.000Z"], "2025-02-28T05:00:00", "2025-02-28T05:00:00"),
        (["2025-02-28T05:00:00.000Z", "today", "", 5, MinKey()], "2025-02-28T05:00:00", "2025-02-28T05:00:00"),
        (["2025-02-28T05:00:00.000Z", MinKey()], "2025-02-28T05:00:00", "2025-02-28T05:00:00"),
        (["2025-02-28T05:00:00.000Z", None], "2025-02-28T05:00:00", "2025-02-28T05:00:00"),
        # dates
        ([datetime(2025, 5, 1), datetime(2025, 5, 2)], "2025-05-01T00:00:00", "2025-05-02T00:00:00"),  # noqa: DTZ001 - as BSON has it
        (["2025-05-03T00:00:00.000Z", datetime(2025, 5, 2)], "2025-05-02T00:00:00", "2025-05-03T00:00:00"),  # noqa: DTZ001 - as BSON has it
        ([datetime(2025, 5, 2), "2025-05-03T00:00:00.000Z"], "2025-05-02T00:00:00", "2025-05-03T00:00:00"),  # noqa: DTZ001 - as BSON has it
        ([datetime(2025, 5, 2), None, MinKey(), 5, Timestamp(1, 1)], "2025-05-02T00:00:00", "2025-05-02T00:00:00"),  # noqa: DTZ001 - as BSON has it
    ],
)
def test_the_first_and_the_last_time_are_those_of_the_times_not_of_the_texts(
    times: list[Any],
    first: str,
    last: str,
    mongo_database: Database[Any],
    target: psycopg.Connection[Any],
) -> None:
    span = aggregates.span("at", "occurred_at")
    profile = Profile(name="example", version=1, collections=(msgspec.structs.replace(ENTRIES, measures=(span,)),))
    mongo_database["entries"].insert_many([entry(at=time) for time in times])
    put(target)
    sides = dict.fromkeys(("first", "last"), "")
    for difference in by_measure(compared(mongo_database, target, profile, {}))["at"].differing:
        sides[difference.label] = difference.source
    assert sides == {"first": str(instant(f"{first}+00:00")), "last": str(instant(f"{last}+00:00"))}


def _groupings(database: Database[Any]) -> list[dict[str, Any]]:
    """Return the pipelines that grouped documents, as the profiler of MongoDB has them."""
    profiled = database["system.profile"].find({"command.aggregate": "entries"}, sort=[("$natural", 1)])
    return [
        stages
        for one in profiled
        if "$group" in (stages := {k: v for part in one["command"]["pipeline"] for k, v in part.items()})
    ]


@pytest.mark.parametrize(
    "times",
    [
        ("2025-05-01T00:00:00.000Z", "2025-05-01T00:00:00.00Z"),
        (datetime(2025, 5, 1), "2025-05-01T00:00:00.000Z"),  # noqa: DTZ001 - as BSON has it
    ],
)
def test_times_of_one_form_are_read_once_and_all_others_each(
    times: tuple[Any, Any], mongo_database: Database[Any], target: psycopg.Connection[Any]
) -> None:
    span = aggregates.span("at", "occurred_at")
    profile = Profile(name="example", version=1, collections=(msgspec.structs.replace(ENTRIES, measures=(span,)),))
    mongo_database.command("profile", 2)
    for time in times:
        mongo_database["entries"].insert_one(entry(at=time))
        compared(mongo_database, target, profile, {})
    assert ["$addFields" in stages for stages in _groupings(mongo_database)] == [False, True]
    assert mongo_database["system.profile"].count_documents({"command.aggregate": "entries"}) == 2, "the groups alone"


@pytest.mark.parametrize("time", [None, datetime(2025, 5, 1), "2025-05-01T00:00:00.000Z", "no time"])  # noqa: DTZ001 - as BSON has it
def test_a_time_that_no_row_has_is_read_if_a_document_has_a_value(
    time: Any,  # noqa: ANN401 - any BSON value
    mongo_database: Database[Any],
    target: psycopg.Connection[Any],
) -> None:
    span = aggregates.span("at", "NULL::timestamptz")
    profile = Profile(name="example", version=1, collections=(msgspec.structs.replace(ENTRIES, measures=(span,)),))
    mongo_database["entries"].insert_many([entry(at=None), {**entry(), "at": time}, entry(at=None)])
    put(target)
    mongo_database.command("profile", 2)
    results = by_measure(compared(mongo_database, target, profile, {}))
    [stages] = _groupings(mongo_database)
    assert ("a1" in stages["$group"]) == (time is not None)
    has_time = time is not None and time != "no time"
    assert [one.label for one in results["at"].differing] == (["first", "last"] if has_time else [])


def filled(field: str, column: str) -> Measure:
    """Return the number of values of a column."""
    return Measure(
        name=f"column {field} filled",
        kind="sum",
        expression={"$cond": [{"$ne": [{"$ifNull": [f"${field}", None]}, None]}, 1, 0]},
        sql=f"CASE WHEN {column} IS NULL THEN 0 ELSE 1 END",
        field=field,
    )


NOTE = filled("note", "message")
KIND = filled("kind", "action")


@pytest.mark.parametrize(
    ("stored", "one_by_one"),
    [
        ([{"kind": "x"}, {"kind": 0}], set()),
        ([{"kind": "x"}, {"kind": []}, {"kind": {}, "note": None}], set()),
        ([{"kind": "x"}, {"kind": ""}, {"kind": "x", "unknown": 1}], set()),
        ([{"kind": "x"}, {"kind": "x", "note": [None]}], {"note"}),
        ([{"kind": "x"}, {"kind": "x", "note": MinKey()}], {"note"}),
        ([{"kind": "x"}, {"kind": None}], {"kind"}),
        ([{"kind": "x"}, {"kind": "x"}, {}], {"kind"}),
    ],
)
def test_fields_are_counted_one_by_one_if_a_document_is_unlike_the_rows(
    stored: list[dict[str, Any]],
    one_by_one: set[str],
    mongo_database: Database[Any],
    target: psycopg.Connection[Any],
) -> None:
    """The rows say that no document has a note, and that each has a kind."""
    collection = msgspec.structs.replace(ENTRIES, measures=(NOTE, KIND))
    profile = Profile(name="example", version=1, collections=(collection,))
    mongo_database["entries"].insert_many([entry(**one) for one in stored])
    put(target)
    mongo_database.command("profile", 2)
    results = by_measure(compared(mongo_database, target, profile, {}))
    [stages] = _groupings(mongo_database)
    assert {field for field, name in (("note", "s1"), ("kind", "s2")) if name in stages["$group"]} == one_by_one
    given = {field: sum(one.get(field) is not None for one in stored) for field in ("note", "kind")}
    assert {name: one.source_total for name, one in results.items() if one.kind == "sum"} == {
        f"column {field} filled": str(count) for field, count in given.items()
    }


def test_what_could_not_be_computed_as_it_was_supposed_is_computed_again(
    mongo_database: Database[Any], target: psycopg.Connection[Any]
) -> None:
    mongo_database["entries"].insert_one(entry())
    put(target)
    before = BothSides(
        collection="entries", left_out=(), supposed=Uniformity(times=frozenset({"at"})), uncomputable="no time"
    )
    results = compared(mongo_database, target, PROFILE, {}, computed=[before])
    assert {one.unverified for one in results} == {""}
    same = msgspec.structs.replace(before, supposed=NOTHING)
    results = compared(mongo_database, target, PROFILE, {}, computed=[same])
    assert {one.unverified for one in results} == {"no time"}


@pytest.mark.parametrize(("size", "counted"), [(1, 120), (50_000, 50)])
def test_the_first_documents_are_fewer_if_they_are_large(
    size: int, counted: int, mongo_database: Database[Any]
) -> None:
    mongo_database["entries"].insert_many([entry(other="x" * size) for _ in range(120)])
    first = module._Counted(mongo_database["entries"], {}, ()).first([KIND])
    assert (first.documents, set(first.fields)) == (counted, {"kind"})


@pytest.mark.parametrize(
    ("word", "label"),
    [("old", "new"), ("new", "new"), ("a\0b", "a\N{REPLACEMENT CHARACTER}b"), (5, "(none)"), (None, "(none)")],
)
def test_words_are_counted_as_they_are_spelled_now(
    word: Any,  # noqa: ANN401 - any BSON value
    label: str,
    mongo_database: Database[Any],
    target: psycopg.Connection[Any],
) -> None:
    """MongoDB groups by the words as they stand: two spellings of a word are two groups, and are added up."""
    measure = aggregates.free_words("action", "$action", {"old": "new"})
    entries = msgspec.structs.replace(
        ENTRIES, measures=(measure,), tenant_expression=aggregates.tenant(field="$tenant")
    )
    profile = Profile(name="example", version=1, collections=(entries,))
    mongo_database["entries"].insert_many([entry(action=word), entry(action="new"), entry(tenant=" ", action="new")])
    put(target, action="unlike")
    results = by_measure(compared(mongo_database, target, profile, {}, default_tenant="a"))
    counts = {one.label: one.source for one in results["action"].differing if one.label != "unlike"}
    assert counts == ({"new": "3"} if label == "new" else {"new": "2", label: "1"})


@given(
    st.lists(
        st.tuples(
            st.datetimes(datetime(2023, 12, 31), datetime(2024, 3, 1)),  # noqa: DTZ001 - in UTC
            st.sampled_from(["", ".%d", "Z"]),
            st.integers(0, 9),
        ),
        min_size=2,
        max_size=2,
    )
)
def test_regular_texts_are_in_the_order_of_their_times(spelled: list[tuple[datetime, str, int]]) -> None:
    texts: list[str] = []
    for time, form, digits in spelled:
        fraction = f"{time.microsecond:06d}000"
        end = {"": "+00:00", "Z": f".{fraction[:3]}Z"}.get(form, f".{fraction[:digits]}+00:00")
        texts.append(f"{time:%Y-%m-%dT%H:%M:%S}{end}")
    regular = [text for text in texts if REGULAR_TIME.fullmatch(text)]
    assert len(regular) == sum(1 for _, form, digits in spelled if form != ".%d" or digits)
    read = [instant(text) for text in sorted(regular)]
    assert read == sorted(read)


def test_a_figure_that_one_side_lacks_is_a_difference(
    mongo_database: Database[Any], target: psycopg.Connection[Any]
) -> None:
    mongo_database["entries"].insert_one(entry())
    results = by_measure(compared(mongo_database, target, PROFILE, {}))
    line = results["action"].differing[0]
    assert (line.tenant, line.label, line.source, line.target) == ("a", "made", "1", "(none)")


def test_sums_of_fractions_need_not_agree_in_their_last_digits(
    mongo_database: Database[Any], target: psycopg.Connection[Any]
) -> None:
    mongo_database["entries"].insert_many([entry(size=0.1), entry(size=0.2)])
    put(target, size="0.1")
    put(target, size="0.20000000000000001")
    assert differing(compared(mongo_database, target, PROFILE, {})) == set()


@pytest.mark.parametrize(("stored", "expected"), [("0", set()), ("1", {"size"})])
def test_sums_that_a_double_cannot_hold_are_exact(
    stored: str, expected: set[str], mongo_database: Database[Any], target: psycopg.Connection[Any]
) -> None:
    """A sum of integers of 64 bits that has more bits comes as a double, unless decimals are added up."""
    number = {"$cond": [{"$isNumber": "$size"}, "$size", None]}
    sizes = Measure(name="size", kind="sum", expression=number, sql="(metadata->>'size')::numeric")
    profile = Profile(name="example", version=1, collections=(msgspec.structs.replace(ENTRIES, measures=(sizes,)),))
    mongo_database["entries"].insert_many(
        [entry(size=one) for one in (Int64(2**62), Int64(2**62), 1, "1", float("nan"), float("inf"))]
    )
    for size in (str(2**62), str(2**62), "1", stored, None, None):
        put(target, size=size)
    assert differing(compared(mongo_database, target, profile, {})) == expected


@pytest.mark.parametrize("size", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_have_are_left_out_of_sums(
    size: float, mongo_database: Database[Any], target: psycopg.Connection[Any]
) -> None:
    mongo_database["entries"].insert_many([entry(), entry(size=size)])
    put(target)
    put(target, size=None)
    assert differing(compared(mongo_database, target, PROFILE, {})) == set()


@pytest.mark.parametrize(
    "key",
    ["r1", "", '{"a": 1}', 7, Int64(8), 7.5, None, ObjectId("65a000000000000000000002"), {"b": 1, "a": [2]}, TIME],
)
def test_documents_that_are_set_aside_are_left_out_whatever_their_id(
    key: object, mongo_database: Database[Any], target: psycopg.Connection[Any]
) -> None:
    mongo_database["entries"].insert_many([entry(_id="stays"), entry(_id=key, action="odd", size=1000)])
    put(target)
    assert differing(compared(mongo_database, target, PROFILE, {})) >= {"documents", "action", "size"}
    assert differing(compared(mongo_database, target, PROFILE, {"entries": [source_id(key)]})) == set()


def test_ids_are_told_apart_byte_by_byte_whatever_the_collation(
    mongo_database: Database[Any], target: psycopg.Connection[Any]
) -> None:
    mongo_database.create_collection("entries", collation={"locale": "en", "strength": 1})
    mongo_database["entries"].insert_many([entry(_id="Key"), entry(_id="other", action="Made")])
    put(target)
    put(target, action="Made")
    assert differing(compared(mongo_database, target, PROFILE, {"entries": ["KEY"]})) == set()


def test_a_document_without_a_tenant_counts_for_the_default_one(
    mongo_database: Database[Any], target: psycopg.Connection[Any]
) -> None:
    document = entry()
    del document["tenant"]
    mongo_database["entries"].insert_one(document)
    put(target, tenant="$deposit")
    assert differing(compared(mongo_database, target, PROFILE, {}, default_tenant="$deposit")) == set()
    assert "documents" in differing(compared(mongo_database, target, PROFILE, {}, default_tenant="other"))


def test_a_collection_may_have_another_name_in_the_database(
    mongo_database: Database[Any], target: psycopg.Connection[Any]
) -> None:
    mongo_database["renamed"].insert_one(entry())
    put(target)
    assert differing(compared(mongo_database, target, PROFILE, {}, names={"entries": "renamed"})) == set()
    assert compared(mongo_database, target, PROFILE, {}, only=["nothing"]) == []


def test_what_mongodb_cannot_compute_is_unverified_and_not_equal(
    mongo_database: Database[Any], target: psycopg.Connection[Any]
) -> None:
    mongo_database["entries"].insert_one(entry(at="no time"))
    put(target)
    results = compared(mongo_database, target, PROFILE, {})
    assert {one.unverified for one in results} == {"MongoDB could not compute it: ConversionFailure"}
    assert all(one.compared == 0 for one in results)


def test_what_postgresql_cannot_compute_is_unverified_and_the_connection_still_works(
    mongo_database: Database[Any], target: psycopg.Connection[Any]
) -> None:
    mongo_database["entries"].insert_one(entry())
    target.execute(
        "INSERT INTO scheduler.audit (id, tenant_id, source, source_id, category, action, occurred_at, metadata)"
        " VALUES (gen_random_uuid(), 'a', 'example/entries', 'x', 'c', 'made', now(), '{\"size\": \"many\"}')"
    )
    results = compared(mongo_database, target, PROFILE, {})
    assert {one.unverified for one in results} == {"PostgreSQL could not compute it: InvalidTextRepresentation"}
    target.execute("SELECT 1")


def test_too_many_to_leave_out_is_unverified(
    mongo_database: Database[Any], target: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_EXCLUSION", 100)
    mongo_database["entries"].insert_one(entry())
    put(target)
    results = compared(mongo_database, target, PROFILE, {"entries": [f"r{n}" for n in range(20)]})
    assert {one.unverified for one in results} == {"20 documents are quarantined, too many to leave out one by one"}


def test_ten_thousand_documents_can_be_left_out(mongo_database: Database[Any], target: psycopg.Connection[Any]) -> None:
    mongo_database["entries"].insert_many([entry(_id=f"run_{n:032x}", size=n) for n in range(10_000)])
    mongo_database["entries"].insert_one(entry())
    put(target)
    aside = [f"run_{n:032x}" for n in range(10_000)]
    assert differing(compared(mongo_database, target, PROFILE, {"entries": aside})) == set()


def test_a_table_without_a_source_column_is_counted_whole(
    mongo_database: Database[Any], target: psycopg.Connection[Any]
) -> None:
    from migrator.records import GraphJob  # noqa: PLC0415 - of this test alone

    measure = Measure(name="status", kind="group", expression="$status", sql="status")
    jobs = msgspec.structs.replace(ENTRIES, name="jobs", tables=(GraphJob,), measures=(measure,))
    profile = Profile(name="example", version=1, collections=(jobs,))
    mongo_database["jobs"].insert_one({"tenant": "a", "status": 2.0})
    target.execute(
        "INSERT INTO scheduler.graph_jobs (id, tenant_id, type, status, payload, created_at, updated_at)"
        " VALUES (gen_random_uuid(), 'a', 0, 2, '{}', now(), now())"
    )
    assert differing(compared(mongo_database, target, profile, {})) == set()
