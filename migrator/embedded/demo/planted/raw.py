"""Documents that no driver would write, and one that is almost too large."""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import bson

from migrator.embedded.demo.planted.item import Nursery, Planted, loaded
from migrator.embedded.demo.streams import digest

_LIMIT = 16 * 1024 * 1024
_PLACE = b"\x02spoil\x00\x02\x00\x00\x00x\x00"
"""The element ``spoil: "x"``, to be replaced by something else."""


def raw_documents(nursery: Nursery) -> Iterator[Planted]:
    """Yield the documents whose bytes cannot be read, or would not be the same when written again."""
    yield _spoilt(
        nursery, "duplicate-key-in-document", b"\x10spoil\x00" + _int(1) + b"\x10spoil\x00" + _int(2), "not-round-trip"
    )
    yield _spoilt(nursery, "invalid-utf8", b"\x02spoil\x00" + _int(3) + b"\xc3\x28\x00", "undecodable")
    yield _spoilt(nursery, "malformed-array", b"\x04spoil\x00" + _document(b"\x105\x00" + _int(1)), "not-round-trip")
    yield _spoilt(nursery, "deprecated-type", b"\x0espoil\x00" + _int(2) + b"s\x00", "not-round-trip")
    yield _spoilt(nursery, "deprecated-type", b"\x06spoil\x00", "not-round-trip")


def huge_document(nursery: Nursery) -> Planted:
    """Return a snapshot of just under 16 MB."""
    snapshot = nursery.fresh("impact_snapshots")
    image = dict(snapshot["images"][0])
    room = _LIMIT - 64 * 1024 - len(bson.encode(snapshot))
    amount = room // (len(bson.encode({"12345": image})))
    snapshot["images"] = [{**image, "imageDigest": digest(nursery.plan.seed, "huge", n)} for n in range(amount)]
    snapshot["total"] = amount
    return loaded("huge", "impact_snapshots", snapshot, residue=False)


def _spoilt(nursery: Nursery, kind: str, element: bytes, reason: str) -> Planted:
    document: dict[str, Any] = {**nursery.fresh("runs"), "spoil": "x"}
    raw = _replace(bson.encode(document), element)
    return Planted(kind=kind, collection="runs", id=document["_id"], outcome="quarantined", reason=reason, raw=raw)


def _replace(raw: bytes, element: bytes) -> bytes:
    body = raw[4:-1].replace(_PLACE, element)
    return _document(body)


def _document(body: bytes) -> bytes:
    return _int(len(body) + 5) + body + b"\x00"


_int: Callable[[int], bytes] = struct.Struct("<i").pack
