"""Changed and corrupted documents through both codecs, from a seed: what the native one takes, the Python one confirms.

``python -m tests.codec_fuzzing --seconds 3600 --seed 1`` goes on until the time is over, a difference is found, or the
process crashes. The last line says how many documents were read. A batch follows from seed and number alone:
``--seed 1 --first 4711 --batches 1`` reads one again.
"""

import argparse
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

import bson

from migrator import native
from migrator.pipeline.references import UncheckedResolver
from migrator.pipeline.transform import transform_documents
from migrator.records import EMPTY
from migrator.sources import load_profile, native_profile
from migrator.sources.mapping.native_plan import NativeReader
from migrator.sources.profile import Collection, Context
from migrator.values import document as documents
from migrator.values.copy_format import codec
from tests import agenda_documents, apscheduler_documents, hostile_documents, modelled_documents, ports
from tests.real_documents import real_documents

CONTEXT: Final = Context(as_of=datetime(2026, 11, 20, 12, tzinfo=UTC), default_tenant="fallback")
BATCH: Final = 48
"""Documents that are read together."""
_AGAIN: Final = 0.2
"""How many of them differ little from one before them: what the codec has learned of that one is used."""
_LENGTHS: Final = (-(2**31), -1, 0, 1, 4, 5, 6, 12, 127, 128, 255, 256, 65_535, 2**24, 2**31 - 5, 2**31 - 1)
_BYTES: Final = bytes(
    (0, 1, 2, 3, 4, 5, 7, 8, 9, 0x0A, 0x10, 0x12, 0x13, 0x20, 0x22, 0x5C, 0x7F, 0x80, 0xC0, 0xE2, 0xFF)
)
_DATES: Final = (
    *(0, -1, 999, 1_000, 946_684_800_000, 1_795_176_000_000, 1_795_176_000_001, 1_795_176_000_500, 1_795_176_001_000),
    *(-62_135_596_800_000, -62_135_596_800_001, 253_402_300_799_999, 253_402_300_200_000, 253_402_300_800_000),
    *(2**63 - 1, -(2**63)),
)
"""Milliseconds since 1970."""
_TEXTS: Final = (
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xe2\x80\x83",
    b"\0",
    b" ",
    b'"',
    b"\\",
    b"\x1f",
    b"0",
    b"Z",
    b"\xf4",
)
_MODELLED: Final = {
    "jobrunr": modelled_documents.JOBRUNR,
    "quartz": modelled_documents.QUARTZ,
    "hangfire": modelled_documents.HANGFIRE,
    "shedlock": modelled_documents.SHEDLOCK,
}


class Case(NamedTuple):
    """A collection with a native codec, and real documents of it."""

    profile: str
    collection: Collection
    context: Context
    reader: NativeReader
    corpus: tuple[bytes, ...]


class Difference(AssertionError):  # noqa: N818 - what is looked for
    """The codecs disagree about a document."""


@cache
def cases() -> tuple[Case, ...]:
    """Return every collection of a source that has a native codec, and those into tables of Agenda and Celery."""
    found = []
    for profile in (*ports.PROFILES, *_MODELLED):
        for collection in load_profile(profile).collections:
            reader: NativeReader | None = None if collection.native is None else collection.native(CONTEXT)
            corpus = tuple(dict.fromkeys(_corpus(profile, collection.name))) if reader is not None else ()
            if reader is not None and corpus:
                found.append(Case(profile, collection, CONTEXT, reader, corpus))
    own = native_profile("agenda", "agenda").by_name()
    for name, made in (
        ("agendaJobs", _agenda_jobs()),
        ("agenda_logs", agenda_documents.real("agenda-6", "agenda_logs")),
    ):
        taken = own[name].native
        if taken is not None:
            found.append(Case("agenda", own[name], CONTEXT, taken(CONTEXT), tuple(made)))
    results = native_profile("celery-results", "celery-results").by_name()["celery_taskmeta"]
    taken = results.native
    if taken is not None:
        found.append(Case("celery-results", results, CONTEXT, taken(CONTEXT), tuple(_celery_results())))
    pickled = apscheduler_documents.COLLECTION
    taken = pickled.native
    if taken is not None:
        found.append(Case("apscheduler", pickled, CONTEXT, taken(CONTEXT), apscheduler_documents.alike()))
    return tuple(found)


def _celery_results() -> Iterator[bytes]:
    for document in real_documents("celery-results/celery_taskmeta"):
        yield documents.encode(document)
    call = {"name": "shop.add", "args": [1, 2.5, "\u00e9\U0001f600", None, [True]], "kwargs": {"a": {"b": "\x7f\n"}}}
    children = [[["a", [["b", None], None]], None], [["c", None], [[["d", None], None]]]]
    moment = datetime(2026, 11, 24, 1, 2, 3, 4_000)  # noqa: DTZ001 - as BSON has it
    first = {"_id": "a", "status": "SUCCESS", "result": '{"a": 1}', "traceback": None}
    last = {"children": children, "date_done": moment}
    yield documents.encode(first | last | call | {"worker": "w", "retries": 0, "queue": "celery"})
    yield documents.encode({"_id": "b"} | call | first | last)
    for result in (b"\x80\x04K\x05.", b"\x80", b"\x91\x05", "5\n...\n", "5", None):
        yield documents.encode(first | {"result": result} | last)


def _agenda_jobs() -> Iterator[bytes]:
    repeats = agenda_documents.job_6(repeatInterval="5 minutes", repeatTimezone="Europe/Vienna", type="single")
    full = agenda_documents.job_6(
        data={"to": "a", "n": [1, 2.5, 5_000_000_000]}, disabled=True, fork=True, progress=7, skipDays=[1], failCount=2
    )
    yield from agenda_documents.real("agenda-4", "agendaJobs")
    for job in (agenda_documents.job_6(), repeats, full):
        yield documents.encode(job)
        yield documents.encode({name: job[name] for name in ("_id", "name", "type", *sorted({*job} - {"_id"}))})


def _all_agenda_jobs() -> Iterator[bytes]:
    """Yield jobs of each library, so few that those with one outline come again."""
    for folder, name in agenda_documents.REAL:
        if name != "agenda_logs":
            yield from agenda_documents.real(folder, name)
    ran = {"lockedAt": agenda_documents.NOON, "lastRunAt": agenda_documents.NOON}
    ended = {"lastFinishedAt": agenda_documents.NOON, "failedAt": agenda_documents.NOON, "failReason": "no"}
    for repeats in ({}, {"repeatInterval": "5 minutes"}, {"repeatAt": "3:30pm"}, {"type": "single", "disabled": True}):
        for times in ({}, ran, ran | ended, ended | {"startDate": agenda_documents.NOON}):
            for made in (agenda_documents.created_4, agenda_documents.job_6, agenda_documents.hokify):
                yield documents.encode(made(**repeats, **times))


def _corpus(profile: str, collection: str) -> Iterator[bytes]:
    if profile in _MODELLED:
        yield from (bson.encode(one) for one in _MODELLED[profile].get(collection, ()))
        return
    if profile == "agenda":
        yield from _all_agenda_jobs()
    for line in ports.recorded(profile):
        if line.collection == collection and line.what.partition("/")[0] in ("base", "demo", "fixture"):
            yield from (documents.encode(one) for one in line.documents(profile))


@cache
def values() -> tuple[bytes, ...]:
    """Return elements without their names, type first: a value of every kind."""
    found = [element(value) for value in (*hostile_documents.VALUES, *ports.VALUES)]
    deep = b"\x03" + documents.encode({})
    for _ in range(100):
        deep = b"\x03" + _document(b"\x03x\0" + deep[1:])
    found += [deep, b"\x02" + struct.pack("<i", 70_001) + b"x" * 70_000 + b"\0", b"\x06", b"\x0e\x02\0\0\0x\0"]
    found += [b"\x0c\x02\0\0\0c\0" + bytes(12), b"\x13" + bytes(16), b"\x01" + struct.pack("<Q", 0x7FF8000000000001)]
    twice = b"\x10a\0\1\0\0\0\x10a\0\2\0\0\0"
    found += [b"\x03" + _document(twice), b"\x04" + _document(twice), b"\x04" + _document(b"\x10" + b"1\0\1\0\0\0")]
    return tuple(found)


def element(value: Any) -> bytes:  # noqa: ANN401 - any BSON value
    """Return type and bytes of a value."""
    encoded = bson.encode({"": value})[4:-1]
    return encoded[:1] + encoded[2:]


def _document(body: bytes) -> bytes:
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def batch_of(case: Case, stream: random.Random) -> list[bytes]:
    """Return changed documents, some that are as they were, and some that differ from one before in a few bytes."""
    found: list[bytes] = []
    for _ in range(BATCH):
        raw = stream.choice(case.corpus)
        if found and stream.random() < _AGAIN:
            found.append(framed(stream.choice((_same, _bytes, _text, _dates))(case, stream, stream.choice(found))))
            continue
        for _ in range(stream.choice((0, 1, 1, 1, 2, 3))):
            raw = stream.choice((_element, _element, _element, _bytes, _bytes, _text, _length, _slice, _dates))(
                case, stream, raw
            )
            raw = framed(raw)
        found.append(raw)
    return found


def framed(raw: bytes) -> bytes:
    """Return the bytes with the length that they have, so that the documents after them are found."""
    raw = raw if len(raw) >= 5 else bytes(5)
    return struct.pack("<i", len(raw)) + raw[4:]


def _elements(raw: bytes) -> list[bytes]:
    """Return the elements of a document that can be decoded; nothing of another."""
    try:
        read = documents.decode(raw)
        whole = [bson.encode({name: value})[4:-1] for name, value in read.items()]
    except (
        documents.Undecodable,
        bson.errors.BSONError,
        OverflowError,
        UnicodeError,
        RecursionError,
        ValueError,
        TypeError,
    ):
        return []
    return whole


def _element(case: Case, stream: random.Random, raw: bytes) -> bytes:
    """Change one field: its value, its name, its place, how often it is there."""
    parts = _elements(raw)
    if not parts:
        return raw
    place = stream.randrange(len(parts))
    name = parts[place][1 : parts[place].index(b"\0", 1) + 1]
    other = _elements(stream.choice(case.corpus))
    donor = stream.choice(other) if other else parts[place]
    end = len(name) + 1
    match stream.randrange(9):
        case 0 | 1:
            value = stream.choice(values())
            parts[place] = value[:1] + name + value[1:]
        case 2:
            parts[place] = donor[:1] + name + donor[donor.index(b"\0", 1) + 1 :]
        case 3:
            parts[place] = donor
        case 4:
            parts.insert(stream.randrange(len(parts) + 1), donor)
        case 5:
            stream.shuffle(parts)
        case 6:
            parts[place] = (
                parts[place][:1] + stream.choice((b"other\0", b"other\0", b"$x.y\0", b"\0")) + parts[place][end:]
            )
        case 7:
            parts[place] = b"\x0a" + name
        case _:
            del parts[place]
    return _document(b"".join(parts))


def _bytes(_case: Case, stream: random.Random, raw: bytes) -> bytes:
    changed = bytearray(raw)
    for _ in range(stream.choice((1, 1, 1, 2, 5))):
        place = stream.randrange(4, len(changed)) if len(changed) > 4 else 0
        match stream.randrange(3):
            case 0:
                changed[place] ^= 1 << stream.randrange(8)
            case 1:
                changed[place] = stream.choice(_BYTES)
            case _:
                changed[place] = (changed[place] + stream.choice((1, -1))) % 256
    return bytes(changed)


def _same(_case: Case, _stream: random.Random, raw: bytes) -> bytes:
    return raw


def _dates(_case: Case, stream: random.Random, raw: bytes) -> bytes:
    """Put other times in place of dates, some of them the same, or as far away as any."""
    parts = _elements(raw)
    for place, part in enumerate(parts):
        if part[:1] == b"\x09" and stream.random() < 0.7:
            parts[place] = part[:-8] + struct.pack("<q", stream.choice(_DATES))
    return _document(b"".join(parts)) if parts else raw


def _text(_case: Case, stream: random.Random, raw: bytes) -> bytes:
    """Put bytes into a text without changing its length."""
    changed = bytearray(raw)
    text = stream.choice(_TEXTS)
    place = stream.randrange(4, max(5, len(changed) - len(text)))
    changed[place : place + len(text)] = text
    return bytes(changed)


def _length(_case: Case, stream: random.Random, raw: bytes) -> bytes:
    """Put a length that lies where one may stand."""
    changed = bytearray(raw)
    place = stream.randrange(4, max(5, len(changed) - 4))
    near = len(raw) + stream.randrange(-8, 9)
    changed[place : place + 4] = struct.pack("<i", stream.choice((*_LENGTHS, near, stream.randrange(300))))
    return bytes(changed)


def _slice(_case: Case, stream: random.Random, raw: bytes) -> bytes:
    """Cut bytes out, put others in, or let the document end early."""
    place = stream.randrange(4, len(raw)) if len(raw) > 4 else 0
    size = stream.choice((1, 1, 2, 4, 8, 40))
    match stream.randrange(4):
        case 0:
            return raw[:place] + raw[place + size :]
        case 1:
            return raw[:place] + stream.randbytes(size) + raw[place:]
        case 2:
            return raw[:place] + raw[max(4, place - size) : place] + raw[place:]
        case _:
            return raw[:place]


def read(case: Case, raws: Sequence[bytes], excluded: frozenset[bytes] = frozenset()) -> Counter[str]:
    """Read a batch with the native codec, and what it takes with the Python one; raise ``Difference``."""
    found = case.reader.codec.read(b"".join(raws), excluded)
    handed = set(found.handed)
    if found.documents != len(raws) or not handed <= set(range(len(raws))):
        raise Difference("the documents of the batch are not accounted for", case.collection.name)
    taken: dict[int, list[bytes]] = {place: [] for place in range(len(raws)) if place not in handed}
    for table in found.tables:
        positions = table.positions()
        stream = table.copy_bytes()
        if len(positions) != table.count or len(table.ids()) != table.count:
            raise Difference("a table counts its rows in two ways", case.collection.name)
        rows = [table.row_bytes(index) for index in range(table.count)]
        if b"".join(rows) not in stream:
            raise Difference("the rows are not those that are written", case.collection.name)
        for place, row in zip(positions, rows, strict=True):
            if place in handed:
                raise Difference("a document that is handed over has a row", raws[place].hex())
            taken[place].append(row)
    notes = tuple(("finding", note.kind, note.path) for note in getattr(case.reader.plan, "notes", ()))
    remainders = dict(found.remainders)
    places = sorted(taken)
    outcomes = transform_documents(
        case.collection, case.context, UncheckedResolver(), b"".join(raws[place] for place in places)
    )
    for place, outcome in zip(places, outcomes, strict=True):
        _confirm(raws[place], outcome, taken[place], notes, remainders.pop(place, EMPTY))
    if remainders:
        raise Difference("a document without rows has a remainder", case.collection.name)
    return Counter(documents=len(raws), taken=len(taken), remainders=len(found.remainders))


def _confirm(
    raw: bytes,
    outcome: Any,  # noqa: ANN401 - an outcome
    rows: Sequence[bytes],
    notes: tuple[object, ...],
    left: bytes,
) -> None:
    if not outcome.serialized:
        raise Difference("the Python codec rejects a document that the native one takes", outcome, raw.hex())
    if outcome.remainder != left:
        raise Difference("a remainder differs", outcome, left, raw.hex())
    findings = tuple(one for one in outcome.counted if one[0] != "remainder")
    if outcome.links or findings != notes or len(outcome.serialized) != len(rows):
        raise Difference("a document that the native codec takes is not plain", outcome, raw.hex())
    for expected, row in zip(outcome.serialized, rows, strict=True):
        kind = codec(type(expected.record))
        if not kind.equal((expected.head, expected.tail), row):
            raise Difference("a row differs", kind.differing((expected.head, expected.tail), row), raw.hex())


def lying(case: Case, stream: random.Random) -> None:
    """Read a batch whose documents' lengths do not add up: both codecs refuse it, or neither does."""
    raws = [bytearray(stream.choice(case.corpus)) for _ in range(3)]
    chosen = stream.choice(raws)
    chosen[:4] = struct.pack("<i", stream.choice((*_LENGTHS, len(chosen) + stream.randrange(-9, 10))))
    batch = b"".join(raws)[: stream.choice((None, -1, -3, -40))]
    try:
        split = documents.split(batch)
    except documents.Undecodable:
        split = None
    try:
        found = case.reader.codec.read(batch)
    except ValueError:
        if split is not None:
            raise Difference("the native codec alone refuses a batch", batch.hex()) from None
        return
    if split is None or found.documents != len(split):
        raise Difference("the codecs cut a batch into different documents", batch.hex())


def reply(raws: Sequence[bytes], stream: random.Random) -> None:
    """Take a reply with these documents apart, and a damaged one, of which no byte after its end may be read."""
    without_documents = import_module("migrator_speedups.replies").without_documents
    members = b"".join(b"\3%d\0%b" % member for member in enumerate(raws))
    cursor = _document(b"\4nextBatch\0" + _document(members) + b"\x12id\0" + bytes(8))
    whole = _document(b"\3cursor\0" + cursor + b"\1ok\0" + struct.pack("<d", 1.0))
    parts = without_documents(whole)
    if parts is None or parts[1] != b"".join(raws) or len(parts[0]) != len(whole) - len(members):
        raise Difference("the documents of a reply are others", whole.hex())
    damaged = bytearray(whole)
    place = stream.choice((stream.randrange(60), stream.randrange(len(whole)))) % len(whole)
    damaged[place] = stream.choice(_BYTES)
    without_documents(bytes(damaged))
    without_documents(bytes(damaged[: stream.randrange(len(whole))]))


def counts(raws: Sequence[bytes], stream: random.Random) -> None:
    """Count the fields of documents, and of damaged ones, of which no byte after their end may be read."""
    batch = b"".join(raws)
    fields = [(name.encode(), True) for name in ("createdAt", "startedAt", "data", "_id")]
    counter = import_module("migrator_speedups.field_counts").FieldCounter(fields)
    counter.add(batch)
    damaged = bytearray(batch)
    damaged[stream.randrange(len(batch))] = stream.choice(_BYTES)
    for some in (bytes(damaged), bytes(damaged[: stream.randrange(len(batch))])):
        before = (counter.documents, counter.irregular, counter.counts())
        counter.add(some)
        counter.add(some, -1)
        if before != (counter.documents, counter.irregular, counter.counts()):
            raise Difference("documents that are counted no more leave a count", some.hex())
    counter.add(batch, -1)
    if counter.documents or counter.irregular or any(map(any, counter.counts())):
        raise Difference("documents that are counted no more leave a count", batch.hex())


def fuzz(seed: int, numbers: Iterator[int] | range, seconds: float = float("inf")) -> Counter[str]:
    """Read batch after batch; return how many documents were read, and how many the native codec took."""
    total: Counter[str] = Counter()
    until = time.monotonic() + seconds
    for number in numbers:
        if time.monotonic() > until:
            break
        stream = random.Random(f"{seed} {number}")
        case = cases()[number % len(cases())]
        raws = batch_of(case, stream)
        try:
            total += read(case, raws)
            lying(case, stream)
            reply(raws, stream)
            counts(raws, stream)
        except Exception as error:
            error.add_note(f"{case.profile} {case.collection.name}: --seed {seed} --first {number} --batches 1")
            raise
        total["batches"] += 1
    return total


def _main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--batches", type=int, default=sys.maxsize)
    chosen = parser.parse_args()
    if native.module() is None:
        parser.error("the native codec is not built here, or switched off")
    total: Counter[str] = Counter()
    began, first = time.monotonic(), chosen.first
    while first < chosen.first + chosen.batches and (left := chosen.seconds - (time.monotonic() - began)) > 0:
        many = min(1_000, chosen.first + chosen.batches - first)
        total += fuzz(chosen.seed, range(first, first + many), left)
        first += many
        sys.stdout.write(
            f"seed {chosen.seed}: {total['documents']:,} documents, {total['taken']:,} taken,"
            f" {total['remainders']:,} of them with a remainder, no difference\n"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(_main())
