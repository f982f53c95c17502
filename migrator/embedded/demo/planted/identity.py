"""Ids of every type that MongoDB allows, and ids that meet."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp

from migrator.embedded.demo.planted.item import TENANT, Nursery, Planted, loaded, quarantined
from migrator.embedded.demo.streams import hexadecimal

_MOMENT = datetime(2025, 11, 2, 8, tzinfo=UTC).replace(tzinfo=None)


def ids(nursery: Nursery) -> Iterator[Planted]:
    """Yield the documents with odd ids."""
    for identifier in _every_type(nursery.plan.seed):
        run: dict[str, Any] = {**nursery.fresh("runs"), "_id": identifier, "id": identifier}
        if not isinstance(identifier, str):
            del run["id"]
        yield loaded("id-type", "runs", run, residue=False)
    run = nursery.fresh("runs")
    run["id"] = f"run_{hexadecimal(nursery.plan.seed, 'another', 0)}"
    yield loaded("id-mismatch", "runs", run, "id-mismatch")
    yield from _meeting(nursery)
    yield from _locks(nursery)


def _every_type(seed: int) -> tuple[Any, ...]:
    return (
        7,
        "7",
        Int64(1 << 40),
        7.25,
        True,
        None,
        "null",
        "",
        '{"_id": 7}',
        "with\x00nul",
        ObjectId("65a0f00dfeedc0ffee000001"),
        Decimal128("7.50"),
        Binary(UUID(hexadecimal(seed, "binary", 0)).bytes, 4),
        Binary(b"\x00raw"),
        _MOMENT,
        Timestamp(1_761_955_200, 1),
        {"tenant": TENANT, "n": 1},
        {"n": 1, "tenant": TENANT},
        MinKey(),
        MaxKey(),
        "läuft-" + "x" * 3000,
    )


def _meeting(nursery: Nursery) -> Iterator[Planted]:
    """Two spellings of one UUID: the first in ``_id`` order stays; digits sort before ``run_``."""
    digits = "0" + hexadecimal(nursery.plan.seed, "meeting", 0)[1:]
    for number, identifier in enumerate((str(UUID(digits)), f"run_{digits}")):
        run = nursery.fresh("runs")
        run["_id"] = run["id"] = identifier
        if number == 0:
            yield loaded("ids-meet", "runs", run, residue=False)
        else:
            yield quarantined("ids-meet", "runs", run, "duplicate-id")


def _locks(nursery: Nursery) -> Iterator[Planted]:
    lock = nursery.fresh("locks")
    lock.update(_id=f"{TENANT}/forever", resource="forever", tenantId=TENANT)
    del lock["expiresAt"]
    yield loaded("lock-without-expiry", "locks", lock, residue=False)
