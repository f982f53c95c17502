"""Whatever the bytes are, the native codec crashes nothing, and the Python codec makes the same of what it takes."""

import random
import secrets
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.values import document as documents
from migrator.values import identity
from tests import codec_fuzzing, native_codec
from tests.codec_fuzzing import Case, Difference, batch_of, cases, element, framed, fuzz, read
from tests.cron_lines import DEEP
from tests.hostile_documents import VALUES

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 16 * 1024 * 1024
DEPTHS = (1, 50, 98, 99, 100, 101, 150, 400)
"""MongoDB refuses documents in more than a hundred levels; what reads bytes may not rely on it."""


@pytest.fixture(autouse=True, scope="module")
def codec() -> None:
    native_codec.needed()


def test_every_source_with_a_native_codec_is_tried() -> None:
    assert {case.collection.name for case in cases() if case.profile == "stellaops"} >= {"runs", "impact_snapshots"}


def test_changed_and_corrupted_documents() -> None:
    found = fuzz(1, range(900 if not DEEP else 40_000))
    assert 0 < found["remainders"] < found["taken"] < found["documents"]


def nested(depth: int, innermost: bytes = b"", kind: int = 3) -> bytes:
    """Return the bytes of a document, or of a list, in so many levels."""
    body = innermost
    for _ in range(depth):
        inner = struct.pack("<i", len(body) + 5) + body + b"\0"
        body = bytes([kind]) + b"0\0" + inner
    return struct.pack("<i", len(body) + 5) + body + b"\0"


@pytest.mark.parametrize("kind", [3, 4], ids=["documents", "lists"])
def test_documents_in_many_levels(kind: int) -> None:
    for case in cases():
        fields = [*documents.decode(case.corpus[0]), "other"]
        raws = []
        for depth in DEPTHS:
            for value in VALUES[:: len(DEPTHS)]:
                typed = element(value)
                deep = nested(depth, typed[:1] + b"x\0" + typed[1:], kind)
                raws += [_with(case.corpus[0], name, bytes([kind]) + deep) for name in fields]
        read(case, raws)


def test_every_type_in_every_field() -> None:
    for case in cases():
        base = max(case.corpus, key=len) if case.collection.name != "impact_snapshots" else case.corpus[0]
        for name in (*documents.decode(base), "other"):
            read(case, [_with(base, name, value) for value in codec_fuzzing.values()])


def test_documents_cut_at_every_byte() -> None:
    for case in cases():
        raw = min(case.corpus, key=len)
        read(case, [framed(raw[:end]) for end in range(5, len(raw))])


def test_a_document_of_sixteen_megabytes() -> None:
    for case in cases():
        base = case.corpus[0]
        raws = []
        for name in documents.decode(base):
            room = LARGEST - len(base)
            raws.append(_with(base, name, b"\x02" + struct.pack("<i", room + 1) + b"\xc3\xa9" * (room // 2) + b"\0"))
            break
        members = b"".join(b"\x10" + str(number).encode() + b"\0\1\0\0\0" for number in range(200_000))
        raws.append(_with(base, "unknown", b"\x04" + struct.pack("<i", len(members) + 5) + members + b"\0"))
        read(case, raws)


def test_quarantined_ids_are_never_taken() -> None:
    stream = random.Random(3)
    tried = 0
    for case in cases():
        raws = batch_of(case, stream)
        excluded = frozenset(identity.source_id(one).encode() for one in _ids_taken(case, raws))
        left = {identity.source_id(one).encode() for one in _ids_taken(case, raws, excluded)}
        assert excluded.isdisjoint(left)
        tried += bool(excluded)
        read(case, raws, excluded)
    assert tried > len(cases()) / 2


def _ids_taken(case: Case, raws: list[bytes], excluded: frozenset[bytes] = frozenset()) -> list[object]:
    taken = case.reader.codec.read(b"".join(raws), excluded)
    places = {place for table in taken.tables for place in table.positions()}
    return [documents.decode(raws[place])["_id"] for place in sorted(places)]


def _with(raw: bytes, name: str, value: bytes) -> bytes:
    """Return a document with a field of these bytes in place of its own, or at its end."""
    found = b""
    is_there = False
    for key, other in documents.decode(raw).items():
        is_there |= key == name
        typed = value if key == name else element(other)
        found += typed[:1] + key.encode() + b"\0" + typed[1:]
    if not is_there:
        found += value[:1] + name.encode() + b"\0" + value[1:]
    return struct.pack("<i", len(found) + 5) + found + b"\0"


def test_a_difference_is_found() -> None:
    """Rows of one document for another: what compares them must see it."""
    case = next(case for case in cases() if case.collection.name == "runs")
    whole = [raw for raw in case.corpus if case.reader.codec.read(raw).handed == []][:2]

    class Swapped:
        def read(self, _batch: bytes, excluded: frozenset[bytes] = frozenset()) -> object:
            return case.reader.codec.read(b"".join(reversed(whole)), excluded)

    with pytest.raises(Difference, match="a row differs"):
        read(case._replace(reader=type("Reader", (), {"plan": case.reader.plan, "codec": Swapped()})()), whole)


if DEEP:

    def test_other_documents_each_time() -> None:
        fuzz(secrets.randbits(48), range(20_000))

    def test_under_address_sanitizer() -> None:
        program = [sys.executable, str(ROOT / ".ci" / "sanitize"), "--batches", "20000"]
        command = [*program, "--seed", str(secrets.randbits(32))]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stdout[-500:] + done.stderr[-5000:]
