"""The native codec beside the Python codec: which documents it takes, and the rows that it makes of them."""

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any, Final

import bson
import msgspec
import pytest
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from msgspec.structs import replace

from migrator.pipeline.references import UncheckedResolver
from migrator.pipeline.transform import ReadBatch, transform_documents
from migrator.sources import load_profile
from migrator.sources.mapping.codec import profile_of_mapping
from migrator.sources.mapping.language import Case, Field, Mapped, SourceMapping
from migrator.sources.profile import Collection, Context, DeclaredLoss, Document
from migrator.testing.demo import COLLECTIONS as GENERATORS
from migrator.testing.demo import Plan
from migrator.testing.demo.plan import Counts
from migrator.values import document as documents
from migrator.values import identity
from tests import ports
from tests.both_codecs import compare, native_reader
from tests.stellaops_documents import CONTEXT, fresh

STELLAOPS: Final = load_profile("stellaops").by_name()
PLANNED: Final = (
    "schedules",
    "runs",
    "impact_snapshots",
    "audit",
    "run_summaries",
    "execution_logs",
    "workers",
    "handlers",
)
AS_OF: Final = CONTEXT.as_of
HEX: Final = "0e5d7c1a9b3f4e6d8c2b1a0f9e8d7c6b"


@pytest.mark.parametrize("name", PLANNED)
def test_both_codecs_agree_about_every_recorded_document(name: str) -> None:
    """Every field of every base document, with each value of a list of awkward ones, as ``tests.ports`` makes them."""
    taken = read = 0
    for line in ports.recorded("stellaops"):
        if line.collection != name:
            continue
        raws = [documents.encode(document) for document in line.documents("stellaops")]
        found = compare(STELLAOPS[name], ports.CONTEXTS[line.context], raws)
        taken += len(found.plain)
        read += len(raws)
    assert 0 < taken < read


@pytest.mark.parametrize("name", [name for name in PLANNED if name in GENERATORS])
def test_what_an_ordinary_database_holds_is_plain(name: str) -> None:
    plan = Plan(seed=7, counts=Counts(20, 200, 40, 20, 20, 20, 20, 20, 12, 6, 40, 20), plain=True)
    found = compare(STELLAOPS[name], CONTEXT, list(GENERATORS[name](plan)))
    assert found.plain == found.clean
    assert len(found.plain) > 0.8 * (len(found.plain) + len(found.handed))


@pytest.mark.parametrize(
    ("name", "field", "largest"),
    [
        ("runs", "attempt", 2**31 - 1),
        ("runs", "runNumber", 2**31 - 1),
        ("runs", "fence", Int64(2**63 - 1)),
        ("policy_runs", "attempts", 2**31 - 1),
        ("policy_jobs", "attemptCount", 2**31 - 1),
        ("triggers", "fireCount", Int64(2**63 - 1)),
        ("locks", "fence", Int64(2**63 - 1)),
        ("schedules", "retryCount", 2**31 - 1),
    ],
)
def test_a_counter_to_which_one_cannot_be_added_is_quarantined_by_both_codecs(
    name: str, field: str, largest: int
) -> None:
    collection = STELLAOPS[name]
    base = {"_id": "trig_1", "tenantId": "t", "scheduleId": "sch_1", "kind": "interval", "intervalMs": Int64(1)}
    made = base | {"anchor": "fixed_rate", "enabled": True} if name == "triggers" else fresh(name)
    raws = [documents.encode({**made, field: type(largest)(value)}) for value in (largest - 1, largest)]
    fits, too_large = transform_documents(collection, CONTEXT, UncheckedResolver(), b"".join(raws))
    assert (fits.rejected, too_large.rejected and too_large.rejected.reason) == (None, "out-of-range")
    if collection.native is not None and collection.native(CONTEXT) is not None:
        assert 1 not in compare(collection, CONTEXT, raws).plain


CHANGES: Final[dict[str, Callable[[Document], Any]]] = {
    "an unknown field of a type that is rare": lambda run: run.update(other=Decimal128("1")),
    "a field of our own store": lambda run: run.update(workerId="w"),
    "no tenant": lambda run: run.pop("tenantId"),
    "a blank tenant": lambda run: run.update(tenantId=" "),
    "no state": lambda run: run.pop("state"),
    "an unknown state": lambda run: run.update(state="resting"),
    "an older word": lambda run: run.update(state="canceled"),
    "an unknown cause": lambda run: run.update(trigger="whim"),
    "an unknown version": lambda run: run.update(schemaVersion="scheduler.run@9"),
    "another id inside": lambda run: run.update(id="run_other"),
    "code for a text": lambda run: run.update(error=Code("x")),
    "a blank text": lambda run: run.update(error=""),
    "white space around a text": lambda run: run.update(error="\u2003x"),
    "white space after a text": lambda run: run.update(error="x\u3000"),
    "NUL in a text": lambda run: run.update(error="a\0b"),
    "null for what must be there": lambda run: run.update(state=None),
    "a time with Z": lambda run: run.update(createdAt="2025-11-02T08:00:00Z"),
    "a time with zeros at its end": lambda run: run.update(createdAt="2025-11-02T08:00:00.500+00:00"),
    "a day that is not": lambda run: run.update(createdAt="2025-02-29T08:00:00+00:00"),
    "a BSON date": lambda run: run.update(createdAt=datetime(2025, 11, 2)),  # noqa: DTZ001 - as BSON has it
    "an end before the beginning": lambda run: run.update(
        startedAt="2025-11-02T08:00:00+00:00", finishedAt="2025-11-02T07:00:00+00:00"
    ),
    "a counter below zero": lambda run: run["stats"].update(queued=-1),
    "a long counter": lambda run: run["stats"].update(queued=Int64(1)),
    "a double counter": lambda run: run["stats"].update(queued=1.0),
    "a decimal": lambda run: run["stats"].update(queued=Decimal128("1")),
    "an unknown counter": lambda run: run["stats"].update(other=1),
    "a document for a list": lambda run: run.update(deltas={}),
    "a reference by another prefix": lambda run: run.update(scheduleId=f"job_{HEX}"),
    "a reference in capitals": lambda run: run.update(scheduleId=f"sch_{HEX.upper()}"),
    "a reference that is no UUID": lambda run: run.update(scheduleId="sch_nightly"),
    "an _id that is a number": lambda run: run.update(_id=7),
    "an _id that begins with a brace": lambda run: run.update(_id="{x", id="{x"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_document_with_a_doubt_is_handed_to_the_python_codec(change: str) -> None:
    changed = fresh("runs")
    CHANGES[change](changed)
    raws = [bson.encode(fresh("runs")), bson.encode(changed), bson.encode(fresh("runs"))]
    assert compare(STELLAOPS["runs"], CONTEXT, raws).handed == [1]


KEPT: Final[dict[str, Callable[[Document], Any]]] = {
    "an _id that is no UUID": lambda run: run.update(_id="n\u00e4chtlich", id="n\u00e4chtlich"),
    "an _id in capitals": lambda run: run.update(_id=HEX.upper(), id=HEX.upper()),
    "an _id that is the text of a UUID": lambda run: run.update(
        _id="0e5d7c1a-9b3f-4e6d-8c2b-1a0f9e8d7c6b", id="0e5d7c1a-9b3f-4e6d-8c2b-1a0f9e8d7c6b"
    ),
    "an empty _id": lambda run: run.update(_id="", id=""),
    "another tenant": lambda run: run.update(tenantId=" \u00fcber alles "),
    "the first instant": lambda run: run.update(createdAt="0001-01-01T00:00:00+00:00"),
    "the last instant": lambda run: run.update(createdAt="9999-12-31T23:59:59.999999+00:00"),
    "the day before 2000": lambda run: run.update(createdAt="1999-12-31T23:59:59.000001+00:00"),
    "a leap day": lambda run: run.update(createdAt="2000-02-29T00:00:00.1+00:00"),
    "a text of all planes": lambda run: run.update(error="a\u00e9\u20ac\U0001f600 \u2003 z"),
    "an error that is null": lambda run: run.update(error=None),
    "an unknown field": lambda run: run.update(other=1),
    "an unknown document": lambda run: run.update(other={"at": datetime(2025, 11, 2), "n": [Int64(5), None]}),  # noqa: DTZ001 - as BSON has it
    "unknown fields with odd names": lambda run: run.update({"": 1, "a.b": 2, "$c": 3, "+d": 4, "e[0]": 5, "f~": "g"}),
    "an error left out": lambda run: run.pop("error", None),
    "no times but one": lambda run: [run.pop(name, None) for name in ("startedAt", "finishedAt")],
}


@pytest.mark.parametrize("change", KEPT)
def test_an_ordinary_document_is_plain_whatever_it_says(change: str) -> None:
    changed = fresh("runs")
    KEPT[change](changed)
    assert compare(STELLAOPS["runs"], CONTEXT, [bson.encode(changed)]).plain == [0]


QUEUE: Final = load_profile("mongodb-queue").by_name()["queue"]
SERVERS: Final = load_profile("hangfire").by_name()["hangfire.server"]
DEFAULTED: Final = Context(as_of=AS_OF, default_tenant="acme")
VISIBLE: Final = "2025-11-02T08:00:00.000Z"


@pytest.mark.parametrize(
    ("held", "state"),
    [
        ({"visible": VISIBLE, "payload": {"b": 1, "a": [2]}}, b"queued"),
        ({"visible": VISIBLE, "payload": "x", "ack": "0123", "tries": 1}, b"running"),
        ({"visible": VISIBLE, "payload": 1.5, "ack": "0123", "tries": 2, "deleted": VISIBLE}, b"completed"),
    ],
)
def test_a_choice_takes_the_first_case_that_applies(held: Document, state: bytes) -> None:
    raws = [bson.encode({"_id": ObjectId(), **held})]
    assert compare(QUEUE, DEFAULTED, raws).plain == [0]
    row = native_reader(QUEUE, DEFAULTED).codec.read(raws[0]).tables[0].row_bytes(0)
    assert state in row


def test_a_choice_is_not_misled_by_null_or_by_another_type() -> None:
    fields: list[Document] = [{"deleted": None}, {"deleted": 7}, {"ack": Code("x")}]
    raws = [bson.encode({"_id": ObjectId(), "visible": VISIBLE, "payload": 1, **one}) for one in fields]
    assert compare(QUEUE, DEFAULTED, raws).plain == [0]
    assert b"queued" in native_reader(QUEUE, DEFAULTED).codec.read(raws[0]).tables[0].row_bytes(0)


def _choosing(**changes: Any) -> Mapped:  # noqa: ANN401 - of ``Mapped``
    fields = (
        Field(path="name", columns=("schedules.name",), converter="text"),
        Field(path="inner.on", columns=("schedules.enabled",), converter="flag"),
        Field(path="made", columns=("schedules.created_at",), converter="time"),
    )
    cases = (
        Case(field="inner.on", equals=True, value="scheduled"),
        Case(field="name", equals="never", value="cancelled"),
        Case(value="paused"),
    )
    return Mapped(
        **{"name": "jobs", "tables": ("schedules",), "fields": fields, "choices": {"schedules.status": cases}} | changes
    )


def _collection(mapped: Mapped) -> Collection:
    return profile_of_mapping(SourceMapping(name="chosen", collections=(mapped,)), 1).by_name()["jobs"]


def test_choices_by_words_flags_and_parts_of_documents() -> None:
    made = datetime(2025, 11, 2)  # noqa: DTZ001 - as BSON has it
    documents_ = [
        {"_id": "a", "name": "one", "inner": {"on": True}, "made": made},
        {"_id": "b", "name": "never", "inner": {"on": False}, "made": made},
        {"_id": "c", "name": "neverx", "inner": {"on": False}, "made": made},
        {"_id": "d", "name": "neve", "inner": {"on": False}, "made": made},
    ]
    collection = _collection(_choosing())
    raws = [bson.encode(one) for one in documents_]
    assert compare(collection, DEFAULTED, raws).plain == [0, 1, 2, 3]
    table = native_reader(collection, DEFAULTED).codec.read(b"".join(raws)).tables[0]
    words = [b"scheduled", b"cancelled", b"paused", b"paused"]
    assert all(word in table.row_bytes(index) for index, word in enumerate(words))


def test_what_a_choice_cannot_say_leaves_the_collection_to_the_python_codec() -> None:
    for cases in (
        (Case(field="name", equals=1, value="scheduled"),),
        (Case(field="inner", value="scheduled"),),
        (Case(field="name.x", value="scheduled"),),
        (Case(field="_id", value="scheduled"),),
    ):
        native = _collection(_choosing(choices={"schedules.status": cases})).native
        assert native is not None
        assert native(DEFAULTED) is None


def test_an_id_that_fills_a_column_must_be_a_text() -> None:
    rest = {"WorkerCount": 4, "Queues": ["default"], "StartedAt": AS_OF, "LastHeartbeat": AS_OF}
    raws = [bson.encode({"_id": key, **rest}) for key in ("server:1", ObjectId(), "{x")]
    assert compare(SERVERS, DEFAULTED, raws).plain == [0]


def test_documents_in_quarantine_are_handed_to_the_python_codec() -> None:
    raws = [bson.encode(fresh("runs", _id=f"run_{number}", id=f"run_{number}")) for number in range(3)]
    reader = native_reader(STELLAOPS["runs"], CONTEXT)
    read = reader.codec.read(b"".join(raws), frozenset({b"run_1"}))
    assert read.handed == [1]
    assert read.tables[0].positions() == [0, 2]


def test_a_reference_is_asked_for_once_and_the_documents_that_it_leads_astray_are_handed() -> None:
    schedule, other = f"sch_{HEX}", f"sch_{HEX[::-1]}"
    raws = [
        bson.encode(fresh("runs", _id=f"run_{number}", id=f"run_{number}", scheduleId=named, retryOf=..., other=number))
        for number, named in enumerate((schedule, other, schedule, other, schedule))
    ]
    reader = native_reader(STELLAOPS["runs"], CONTEXT)
    answers: list[dict[bytes, bool] | bool] = [{} for _ in STELLAOPS["runs"].references]
    read = reader.codec.read(b"".join(raws), frozenset(), answers)
    tenant = fresh("runs")["tenantId"].encode()
    asked = [(0, bytes.fromhex(HEX) + tenant), (0, bytes.fromhex(HEX[::-1]) + tenant)]
    assert (read.unknown, read.handed) == (asked, [])
    answers[0] = {asked[0][1]: True, asked[1][1]: False}
    read.apply_answers(answers)
    assert (read.unknown, read.handed, read.tables[0].positions()) == ([], [1, 3], [0, 2, 4])
    assert [position for position, _ in read.remainders] == [0, 2, 4]
    assert reader.codec.read(b"".join(raws), frozenset(), answers).handed == [1, 3]
    answers[0] = False
    assert reader.codec.read(b"".join(raws), frozenset(), answers).handed == [0, 1, 2, 3, 4]


def test_the_rows_that_stay_are_whole_whichever_documents_are_handed() -> None:
    reader = native_reader(STELLAOPS["runs"], CONTEXT)
    named = [f"sch_{number:032x}" for number in range(5)]
    raws = [
        bson.encode(fresh("runs", _id=f"run_{at}", id=f"run_{at}", scheduleId=one, retryOf=..., error="x" * (at + 1)))
        for at, one in enumerate(named)
    ]
    for stays in product((True, False), repeat=len(raws)):
        answers: list[dict[bytes, bool] | bool] = [{} for _ in STELLAOPS["runs"].references]
        read = reader.codec.read(b"".join(raws), frozenset(), answers)
        table = read.tables[0]
        rows = [table.row_bytes(at) for at in range(len(raws))]
        answers[0] = {key: stays[at] for at, (_, key) in enumerate(read.unknown)}
        read.apply_answers(answers)
        left = [at for at, one in enumerate(stays) if one]
        assert table.positions() == left
        assert [table.row_bytes(at) for at in range(table.count)] == [rows[at] for at in left]
        assert table.copy_bytes() == b"".join(rows[at] for at in left)


def test_bytes_that_are_not_one_document_after_the_other_are_refused() -> None:
    reader = native_reader(STELLAOPS["runs"], CONTEXT)
    whole = bson.encode(fresh("runs"))
    for broken in (whole[:-1], whole + b"\0", b"\x04\0\0\0", whole[:4]):
        with pytest.raises(ValueError, match="malformed"):
            reader.codec.read(broken)
    assert reader.codec.read(b"").documents == 0


@pytest.mark.parametrize("name", PLANNED)
def test_corrupted_bytes_never_make_a_row_that_the_python_codec_would_not_make(name: str) -> None:
    chosen = random.Random(name)
    whole = bson.encode(fresh(name))
    raws = [whole]
    for _ in range(600):
        changed = bytearray(whole)
        for _ in range(chosen.choice((1, 1, 1, 2, 5))):
            changed[chosen.randrange(4, len(changed))] = chosen.choice(
                (0, 1, 2, 4, 0x7F, 0x80, 0xFF, chosen.randrange(256))
            )
        raws.append(bytes(changed))
    raws += [cut.to_bytes(4, "little") + whole[4 : cut - 1] + b"\0" for cut in range(5, len(whole), 7)]
    assert 0 in compare(STELLAOPS[name], CONTEXT, raws).plain


FIELDS: Final = (
    Field(path="name", columns=("runs.trace_id",), converter="text"),
    Field(path="kind", columns=("runs.state",), converter="words", words={"ok": "completed", "ko": "error"}),
    Field(path="at.created", columns=("runs.scheduled_at",), converter="time", encoding="seconds"),
    Field(path="at.updated", columns=("runs.available_at",), converter="time", encoding="iso-z"),
    Field(path="took", columns=("runs.duration_ms",), converter="duration", null_value=-1),
    Field(path="worker", columns=("runs.worker_id",), converter="text", default="nobody"),
)


def _mapped(*fields: Field, constants: Document, **options: Any) -> Collection:  # noqa: ANN401 - of ``Mapped``
    mapped = Mapped(
        name="tasks",
        tables=("runs",),
        fields=fields,
        constants={"runs.created_at": AS_OF, **constants},
        measures=(),
        **options,
    )
    return profile_of_mapping(SourceMapping(name="made", collections=(mapped,)), 1).by_name()["tasks"]


def test_a_mapping_with_groups_numbers_and_defaults_is_read_as_its_fields_say() -> None:
    tasks = _mapped(*FIELDS, fixed={"_cls": "Task"}, constants={"runs.cause": "manual"})
    sound = {"_id": ObjectId("65a000000000000000000001"), "_cls": "Task", "name": "n", "kind": "ok"}
    times = {"created": 1_700_000_000.25, "updated": "2025-11-02T08:00:00.000Z"}
    cases: list[tuple[Document, bool]] = [
        ({**sound, "at": times, "took": 5}, True),
        ({**sound, "at": {"created": 1_700_000_000.123457}, "took": 2**40}, True),
        ({**sound, "took": -1}, True),
        ({**sound, "took": 5, "worker": "w"}, True),
        ({**sound, "took": 5, "worker": "nobody"}, False),  # holds the default, which is not written
        (sound, True),  # none is written as -1, and the remainder says that the field is absent
        ({**sound, "took": None}, False),
        ({**sound, "at": {}, "took": 5}, False),
        ({**sound, "at": None, "took": 5}, False),
        ({**sound, "at": {"created": None, "updated": times["updated"]}, "took": 5}, False),
        ({**sound, "name": None, "took": 5, "other": {}, "worker": None}, True),
        ({**sound, "at": {**times, "other": 1}, "took": 5}, False),
        ({**sound, "at": {"updated": "2025-11-02T08:00:00Z"}, "took": 5}, False),
        ({**sound, "at": {"created": 1e300}, "took": 5}, False),
        ({**sound, "at": {"created": 1}, "took": 5}, False),  # written as a double
        ({**sound, "took": 5.0}, False),
        ({**sound, "took": 5, "kind": "eh"}, False),
        ({**sound, "took": 5, "_cls": "Other"}, False),
        ({name: value for name, value in sound.items() if name != "_cls"} | {"took": 5}, False),
        ({**sound, "name": "n" * 2_000, "took": 5}, True),
        ({**sound, "name": "n" * 2_001, "took": 5}, False),
    ]
    found = compare(tasks, CONTEXT, [bson.encode(document) for document, _ in cases])
    assert found.plain == [position for position, (_, is_plain) in enumerate(cases) if is_plain]


def _with(raw: bytes, elements: bytes) -> bytes:
    """Return a document with more elements at its end."""
    return (len(raw) + len(elements)).to_bytes(4, "little") + raw[4:-1] + elements + b"\0"


def _element(name: str, value: object) -> bytes:
    return bson.encode({name: value})[4:-1]


REMAINDERS: Final = [
    (_element("other", 5), b'{"+other":5}'),
    (_element("b", 1) + _element("a", {"x": None}), b'{"+a":{"x":null},"+b":1}'),
    (_element("other", 5) * 2, None),  # a name that is there twice does not survive the decoding
    (_element("name", "n"), None),
    (_element("_id", "n"), None),
    (_element("(inherited)", {}), None),
    (_element("old", "n"), None),
    (_element("later", "n"), None),
    (_element("chosen", 1), None),
    (_element("kept", "n"), b'{"+kept":"n"}'),  # of a loss, the value that says nothing
    (_element("kept", 1), None),
    (_element("gone", {"x": 1}), None),
    (_element("half", 5), None),
    (_element("kept", "nn"), None),
    (_element("gone", None) + _element("kept", None), b'{"+gone":null,"+kept":null}'),  # null is no loss
    (_element("other", {"$ref": "x", "$id": 1}), b'{"+other":{"$object":[["$ref","x"],["$id",1]]}}'),
    (_element("text", "a\0"), b'{"+text":{"$text":["a",""]}}'),
    (b"\x02text\0\x02\0\0\0\xff\0", None),
    (b"\x08flag\0\x02", None),
    (b"\x04list\0\x0c\0\0\0\x105\0\1\0\0\0\0", None),  # the index of the first element is 5
    (b"\x02text\0\xff\xff\xff\x7fa\0", None),
    (b"\x10name without an end", None),
    (b"".join(_element(f"f{number}", number) for number in range(33)), None),
    (_element("long", "x" * 3_000), None),
    (_element("long", "x" * 1_900), b'{"+long":"' + b"x" * 1_900 + b'"}'),
]


LOST: Final = DeclaredLoss(reason="no column")
HALF: Final = DeclaredLoss(reason="no column", unless=5)


@pytest.mark.parametrize(("elements", "left"), REMAINDERS)
def test_fields_that_no_field_of_the_mapping_names_are_the_remainder(elements: bytes, left: bytes | None) -> None:
    name = Field(path="name", columns=("runs.trace_id",), converter="text", also=("old",))
    later = Field(path="later", columns=("runs.worker_id",), converter="text")
    tasks = _mapped(
        name,
        constants={"runs.cause": "manual"},
        rare_fields=(later,),
        choices={"runs.state": (Case(field="chosen.by", value="error"), Case(value="completed"))},
        lost={"kept": DeclaredLoss(reason="no column", unless="n"), "gone.x": LOST, "half": HALF, "half.x": LOST},
    )
    raw = bson.encode({"_id": "a", "name": "n"})
    found = compare(tasks, CONTEXT, [raw, _with(raw, elements), raw])
    assert found.remainders == ({} if left is None else {1: left})
    assert found.handed == ([1] if left is None else [])


def test_many_remainders_are_each_their_own() -> None:
    tasks = _mapped(FIELDS[0], FIELDS[5], constants={"runs.cause": "manual", "runs.state": "error"})
    unknown = [{"other": number % 5_000, "at": [number % 5]} for number in range(6_000)]
    raws = [bson.encode({"_id": str(number), "name": "n", **one}) for number, one in enumerate(unknown)]
    found = compare(tasks, CONTEXT, raws)
    assert found.handed == []
    assert len({*found.remainders.values()}) == 5_000


def test_remainders_that_cannot_be_learned_are_not_asked_for_again_and_again() -> None:
    tasks = _mapped(FIELDS[0], constants={"runs.cause": "manual", "runs.state": "error"})
    plan = native_reader(tasks, CONTEXT).plan
    asked: list[bytes] = []

    def learn(key: bytes) -> None:
        asked.append(key)

    assert plan.remainder is not None
    given = replace(plan, remainder=replace(plan.remainder, learn=learn))
    codec: Any = import_module("migrator_speedups.rows").RowCodec(given)
    raws = [bson.encode({"_id": "a", "name": "n", "other": number}) for number in range(1_000)]
    assert codec.read(b"".join(raws)).handed == [*range(1_000)]
    assert len(asked) == 257


def test_what_a_remainder_keeps_is_counted_of_the_documents_that_the_python_codec_does_not_read() -> None:
    tasks = _mapped(FIELDS[0], constants={"runs.cause": "manual", "runs.state": "error"})
    held: list[Document] = [{"a": 1}, {}, {"a": 1, "b": None}, {"b": None, "name": None}, {"a": 2}]
    raws = [bson.encode({"_id": str(number), "name": "n"} | one) for number, one in enumerate(held)]
    batch = ReadBatch(tasks, CONTEXT, UncheckedResolver(), b"".join(raws), frozenset({b"4"}))
    a, b, name = (("remainder", "added", "a"), ("remainder", "null", "b"), ("remainder", "null", "name"))
    assert batch.counts() == (4, 1, {a: 2, b: 2, name: 1})
    batch.read_in_python({0, 3})
    assert batch.counts() == (2, 1, {a: 1, b: 1})


def test_documents_that_name_no_tenant_are_of_the_configured_one() -> None:
    tasks = _mapped(*FIELDS, constants={})
    raws = [bson.encode({"_id": "a", "name": "n", "kind": "ok", "took": 1})]
    assert compare(tasks, CONTEXT, raws).plain == [0]
    assert tasks.native is not None
    assert tasks.native(Context(as_of=AS_OF)) is None


def test_an_id_follows_from_the_document_as_the_python_codec_computes_it() -> None:
    tasks = _mapped(*FIELDS, constants={})
    reader = native_reader(tasks, CONTEXT)
    texts = ("a", HEX, f"x_{HEX}", f"9_{HEX}", f"x-y_{HEX}", f"\u00e4_{HEX}", "0E5D7C1A-9b3f-4e6d-8c2b-1a0f9e8d7c6b")
    raws = [bson.encode({"_id": text, "name": "n", "kind": "ok", "took": 1}) for text in texts]
    found = reader.codec.read(b"".join(raws)).tables[0].ids()
    expected = partial(identity.row_id, "runs", "fallback", "tasks")
    assert found == [expected(text).bytes for text in texts]


def test_words_that_a_memo_has_no_room_for_are_learned_again() -> None:
    tasks = _mapped(
        Field(
            path="word", columns=("runs.error",), converter="words", words={"a": "b"}, allow_unknown=True, finding=""
        ),
        Field(path="wait", columns=("runs.duration_ms",), converter="duration", unit="seconds"),
        constants={"runs.state": "completed"},
    )
    raws = [bson.encode({"_id": "a", "word": "a", "wait": number % 5_000}) for number in range(10_000)]
    assert compare(tasks, CONTEXT, raws[:200]).handed == []
    assert native_reader(tasks, CONTEXT).codec.read(b"".join(raws)).handed == []


def test_a_memo_that_was_full_keeps_the_values_that_are_read_again_and_again() -> None:
    """A thousand tenants by turns, with as many others that come once: none of the thousand is worked out twice."""
    reader = native_reader(STELLAOPS["runs"], CONTEXT)
    asked: Counter[bytes] = Counter()

    def counted(learn: Callable[[bytes], Any], value: bytes) -> Any:  # noqa: ANN401 - what it learns
        asked[value] += 1
        return learn(value)

    steps = [
        msgspec.structs.replace(one, learn=partial(counted, one.learn))
        if one.operation == "tenant" and one.learn
        else one
        for one in reader.plan.steps
    ]
    row_codec = type(reader.codec)(msgspec.structs.replace(reader.plan, steps=steps))
    rounds = 6
    for number in range(rounds):
        tenants = [name for index in range(1_000) for name in (f"often {index}", f"once {number} {index}")]
        raws = [documents.encode(fresh("runs", tenantId=tenant)) for tenant in tenants]
        assert len(row_codec.read(b"".join(raws)).handed) == 0
        if number in (0, rounds - 1):
            assert compare(STELLAOPS["runs"], CONTEXT, raws).handed == []
    assert len(asked) == 1_000 * (1 + rounds)
    assert set(asked.values()) == {1}


def _of_two_tables(*further: Field, **changes: Any) -> Collection:  # noqa: ANN401 - of ``Mapped``
    mapped = Mapped(
        name="jobs",
        **{"tables": ("schedules", "triggers"), "constants": {"schedules.status": "scheduled"}, **changes},
        fields=(
            Field(path="_id", columns=("schedules.created_at",), converter="id-time"),
            Field(path="name", columns=("schedules.name",), converter="text", required=True),
            Field(path="cron", columns=("triggers.cron_expression",), converter="cron", dialect="croner"),
            Field(path="zone", columns=("triggers.timezone",), converter="zone"),
            Field(path="every", columns=("triggers.interval_ms",), converter="duration"),
            Field(path="at", columns=("triggers.run_at",), converter="time"),
            Field(path="event", columns=("triggers.event_name",), converter="text"),
            Field(path="from", columns=("triggers.start_at",), converter="time"),
            Field(path="to", columns=("triggers.end_at",), converter="time"),
            Field(path="next", columns=("triggers.next_fire_at",), converter="time"),
            *further,
        ),
    )
    return profile_of_mapping(SourceMapping(name="two", collections=(mapped,)), 1).collections[0]


DAY: Final = datetime(2025, 11, 2)  # noqa: DTZ001 - as BSON has it
TRIGGERS: Final[dict[str, tuple[Document, bool]]] = {
    "none": ({}, True),
    "a cron line": ({"cron": "0 2 * * *", "zone": "Europe/Berlin", "next": DAY}, True),
    "a cron line without a zone": ({"cron": "*/5 * * * *"}, True),
    "a text that is no cron line": ({"cron": "soon"}, False),
    "an unknown zone": ({"cron": "0 2 * * *", "zone": "Europe/Nowhere"}, False),
    "an interval": ({"every": 60_000}, True),
    "a time": ({"at": DAY}, True),
    "an event": ({"event": "signup"}, True),
    "an event with a time": ({"event": "signup", "next": DAY}, False),
    "an event with a zone": ({"event": "signup", "zone": "UTC"}, False),
    "two causes": ({"every": 60_000, "at": DAY}, False),
    "a window": ({"every": 60_000, "from": DAY, "to": DAY.replace(month=12)}, True),
    "an empty window": ({"every": 60_000, "from": DAY, "to": DAY}, False),
    "a zone alone": ({"zone": "UTC"}, False),
}


@pytest.mark.parametrize("what", TRIGGERS)
def test_a_document_makes_a_schedule_and_its_trigger(what: str) -> None:
    fields, is_plain = TRIGGERS[what]
    raw = documents.encode({"_id": ObjectId(HEX[:24]), "name": "n", **fields})
    assert (compare(_of_two_tables(), CONTEXT, [raw]).plain == [0]) is is_plain


def test_a_document_that_makes_no_trigger_though_each_should_is_for_the_python_codec() -> None:
    raws = [documents.encode({"_id": ObjectId(HEX[:24]), "name": "n", **fields}) for fields in ({}, {"at": DAY})]
    assert compare(_of_two_tables(expects_trigger=True), CONTEXT, raws).plain == [1]


def test_a_run_names_the_trigger_of_its_document_if_there_is_one() -> None:
    """A row of the third table refers to the second one, which not each document makes."""
    run = Field(path="started", columns=("runs.started_at", "runs.created_at"), converter="time")
    state = Field(path="state", columns=("runs.state",), converter="words", words={"done": "completed"})
    tables = {
        "tables": ("schedules", "triggers", "runs"),
        "constants": {"schedules.status": "scheduled", "runs.cause": "api"},
    }
    collection = _of_two_tables(run, state, **tables)
    base = {"_id": ObjectId(HEX[:24]), "name": "n"}
    raws = [documents.encode(base | more) for more in ({}, {"every": 1_000}, {"started": DAY, "state": "done"})]
    raws.append(documents.encode(base | {"every": 1_000, "started": DAY, "state": "done"}))
    assert compare(collection, CONTEXT, raws).plain == [0, 1, 2, 3]
    for raw, names_trigger in zip(raws[2:], (False, True), strict=True):
        [document] = transform_documents(collection, CONTEXT, UncheckedResolver(), raw)
        row: Any = document.rows[-1]
        assert (row.table, row.trigger_id is not None) == ("runs", names_trigger)


def test_a_run_whose_fields_stand_in_another_order_is_plain() -> None:
    run = fresh("runs")
    names = [name for name in run if name != "_id"]
    orders = (names[::-1], sorted(names), names[3:] + names[:3])
    raws = [bson.encode({"_id": run["_id"]} | {name: run[name] for name in order}) for order in orders]
    assert compare(STELLAOPS["runs"], CONTEXT, raws).handed == []


@pytest.mark.parametrize(
    ("changes", "nulls", "is_plain"),
    [
        ({"tries": 4}, False, True),
        ({"tries": 4}, True, True),
        ({"tries": 3}, False, False),  # of the default, nothing is written
        ({"tries": 0}, False, False),  # the number for none is in the remainder: the row has the default
        ({"tries": 0}, True, False),
        ({"tries": None}, True, True),
        ({}, True, True),  # null would be written: the remainder says that the field is absent
        ({"tries": None}, False, True),
    ],
)
def test_a_number_for_none_beside_a_default(changes: Document, nulls: bool, is_plain: bool) -> None:  # noqa: FBT001 - parameters
    name = Field(path="name", columns=("schedules.name",), converter="text", required=True)
    column = "schedules.max_retries"
    tries = Field(path="tries", columns=(column,), converter="number", null_value=0, default=3, write_null=nulls)
    constants = {"schedules.status": "scheduled"}
    mapped = Mapped(name="notes", tables=("schedules",), fields=(name, tries), constants=constants)
    [collection] = profile_of_mapping(SourceMapping(name="x", collections=(mapped,)), 1).collections
    raw = bson.encode({"_id": "a", "name": "n"} | changes)
    assert (compare(collection, CONTEXT, [raw]).plain == [0]) is is_plain
