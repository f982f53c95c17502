"""Fault injection into the demo's data: the fault of each document, and its expected outcome.

The list is the same for every size, so that a reader of the report can follow every single document.
"""

import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

import bson
import msgspec
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS

from migrator.testing.demo import jobs, operations, runs, schedules
from migrator.testing.demo.plan import Counts, Plan, digest, hexadecimal, stamp

__all__ = [
    "FaultyDocument",
    "faulty_documents",
]

DEFAULT_SEED = 20251102
Outcome = Literal["loaded", "quarantined", "skipped"]
Document: TypeAlias = dict[str, Any]
TENANT = "tenant-alpha"
"""Planted documents belong to one tenant, so that they can be looked up together."""
_ENOUGH = Counts(60, 2_000, 60, 60, 120, 90, 90, 40, 30, 10, 40, 0)


class FaultyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document with something wrong in it."""

    kind: str
    """What is wrong, e.g. ``orphan-schedule``; several documents may share a kind."""
    collection: str
    id: Any
    """The document's ``_id``."""
    outcome: Outcome
    reason: str
    """Quarantined: the reason. Skipped: the reason. Loaded: the finding it must cause, empty for none."""
    remainder: bool = False
    """Loaded with a remainder: the columns alone do not give the document back."""
    raw: bytes
    """The document."""


class CleanDocuments:
    """Gives clean documents of every collection to be spoilt; they come from the demo's own generators."""

    def __init__(self, seed: int) -> None:
        self.plan = Plan(seed=seed ^ 0x5EED, counts=_ENOUGH, plain=True)
        self._sources: dict[str, Iterator[bytes]] = {
            "schedules": schedules.documents(self.plan),
            "runs": self._ended_runs(),
            "run_summaries": runs.summaries(self.plan),
            "impact_snapshots": runs.snapshot_documents(self.plan),
            "audit": operations.audit(self.plan),
            "policy_runs": self._camel_policy_runs(),
            "policy_jobs": jobs.policy_job_documents(self.plan),
            "graph_jobs": jobs.graph_job_documents(self.plan),
            "graph_job_events": jobs.graph_event_documents(self.plan),
            "locks": operations.locks(self.plan),
            "workers": operations.workers(self.plan),
            "execution_logs": operations.execution_logs(self.plan),
        }

    def _ended_runs(self) -> Iterator[bytes]:
        for raw in runs.run_documents(self.plan):
            document = bson.decode(raw)
            if document["state"] == "completed" and document["trigger"] == "policy":
                yield raw

    def _camel_policy_runs(self) -> Iterator[bytes]:
        for raw in jobs.policy_run_documents(self.plan):
            document = bson.decode(raw)
            if "runId" in document and document["status"] == "succeeded":
                yield raw

    def fresh(self, collection: str) -> Document:
        """Return a clean document that refers to no other document."""
        document = bson.decode(next(self._sources[collection]))
        if "tenantId" in document and document["tenantId"] != "*":
            document["tenantId"] = TENANT
        if collection != "audit":
            document.pop("scheduleId", None)
        if collection == "impact_snapshots":
            document["selector"]["tenantId"] = TENANT
            document.pop("runId", None)
        if collection == "schedules":
            document["selection"]["tenantId"] = TENANT
            document.pop("deletedAt", None)
            document.pop("deletedBy", None)
        return document


def loaded(
    kind: str, collection: str, document: Document, finding: str = "", *, remainder: bool = True
) -> FaultyDocument:
    """Return a document that must be loaded, with a remainder unless ``remainder`` is false."""
    return FaultyDocument(
        kind=kind,
        collection=collection,
        id=document["_id"],
        outcome="loaded",
        reason=finding,
        remainder=remainder,
        raw=bson.encode(document),
    )


def quarantined(kind: str, collection: str, document: Document, reason: str) -> FaultyDocument:
    """Return a document that must be quarantined for this reason."""
    return FaultyDocument(
        kind=kind,
        collection=collection,
        id=document["_id"],
        outcome="quarantined",
        reason=reason,
        raw=bson.encode(document),
    )


def references(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    """Yield the orphans and the duplicates."""
    yield from _orphans(nursery)
    for name in ("nightly scan", "weekly scan"):
        for _ in range(2):
            schedule = nursery.fresh("schedules") | {"name": name}
            yield loaded("duplicate-name", "schedules", schedule, "duplicate-name", remainder=False)
    yield from _duplicate_keys(nursery)


def _orphans(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    seed = nursery.plan.seed
    for number, missing in enumerate(
        (f"sch_{hexadecimal(seed, 'gone', 0)}", "sch_20240131-gone", "sch_deleted by hand")
    ):
        run = _with(nursery.fresh("runs"), "scheduleId", missing, after="tenantId")
        run |= {"trigger": "cron", "createdAt": stamp(number * 60_000)}
        yield loaded("orphan-schedule", "runs", run, "orphan")
    for number in range(2):
        run = nursery.fresh("runs") | {"retryOf": f"run_{hexadecimal(seed, 'expired', number)}"}
        yield loaded("orphan-retry", "runs", run, "orphan")
    missing = f"run_{hexadecimal(seed, 'expired', 9)}"
    snapshot = _with(nursery.fresh("impact_snapshots"), "runId", missing, after="tenantId")
    yield loaded("orphan-run", "impact_snapshots", snapshot, "orphan")
    log = nursery.fresh("execution_logs") | {"runId": f"run_{hexadecimal(seed, 'expired', 10)}"}
    yield loaded("orphan-run", "execution_logs", log, "orphan")
    event = nursery.fresh("graph_job_events")
    event["tenant"] = event["payload"]["job"]["tenantId"] = TENANT
    event["payload"]["job"]["id"] = f"gbj_{hexadecimal(seed, 'gone', 1)}"
    yield quarantined("orphan-job", "graph_job_events", event, "orphan")


def _duplicate_keys(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    """Of two documents for one key the first in ``_id`` order stays."""
    schedule = nursery.fresh("schedules")
    yield loaded("schedule-of-the-duplicates", "schedules", schedule, remainder=False)
    for number, prefix in enumerate(("a", "b")):
        summary = nursery.fresh("run_summaries") | {"_id": f"{prefix}-summary-of-one-schedule"}
        summary = _with(summary, "scheduleId", schedule["_id"], after="tenantId")
        yield _first_stays("duplicate-summary", "run_summaries", summary, number)
    for number, identifier in enumerate((ObjectId("65a000000000000000000001"), ObjectId("65a000000000000000000002"))):
        lock = nursery.fresh("locks") | {"_id": identifier, "resource": "planner", "tenantId": TENANT}
        lock["expiresAt"] = lock["expiresAt"].replace(year=2124)
        yield _first_stays("duplicate-lock", "locks", lock, number)
    for number, prefix in enumerate(("a", "b")):
        job = nursery.fresh("policy_jobs") | {"_id": f"{prefix}-policy-job", "id": f"{prefix}-policy-job"}
        job = _with(job, "runId", "run:P-7:2025-10-26:auto", after="priorityRank")
        yield _first_stays("duplicate-policy-run", "policy_jobs", job, number)


def _first_stays(
    kind: str, collection: str, document: Document, number: int, reason: str = "duplicate-key"
) -> FaultyDocument:
    if number == 0:
        return loaded(kind, collection, document, remainder=False)
    return quarantined(kind, collection, document, reason)


def _with(document: Document, name: str, value: object, *, after: str) -> Document:
    """Return the document with a field where the source writes it."""
    changed: Document = {}
    for key, old in document.items():
        if key == name:
            continue
        changed[key] = old
        if key == after:
            changed[name] = value
    return changed


Field: TypeAlias = str | tuple[str, str]
"""The name of a field, or those of a field and a member of it."""
Change: TypeAlias = tuple[Field, Any]
"""A field and its new value; ``_GONE`` removes it, and a function makes the value of the old one."""

_GONE: Final = object()
_FAR = DatetimeMS(8_640_000_000_000_000)
"""The last instant of a JavaScript date, in the year 275760."""


class _Fault(NamedTuple):
    """A fault that is a change of a clean document: of some fields, or by a function."""

    kind: str
    collection: str
    changes: tuple[Change, ...] | Callable[[Document], Document]
    reason: str = ""
    quarantined: bool = False
    remainder: bool = True


def _fault(
    kind: str, collection: str, field: Field, value: object, finding: str = "", *, clean: bool = False
) -> _Fault:
    """Return the fault of a document that must be loaded with a remainder, or without one if it is ``clean``."""
    return _Fault(kind, collection, ((field, value),), finding, remainder=not clean)


def _rejected(kind: str, collection: str, field: Field, value: object, reason: str) -> _Fault:
    """Return the fault of a document that must be quarantined."""
    return _Fault(kind, collection, ((field, value),), reason, quarantined=True)


def _date(old: str) -> datetime:
    return datetime.fromisoformat(old).astimezone(UTC).replace(tzinfo=None, microsecond=0)


def _zulu(old: str) -> str:
    return old.replace("+00:00", "Z")


def _seven_digits(old: str) -> str:
    return old[:19] + ".9999999+00:00"


def _with_times_swapped(run: Document) -> Document:
    return run | {"startedAt": run["finishedAt"], "finishedAt": run["startedAt"]}


def _with_old_cron_field(schedule: Document) -> Document:
    return {("whenCron" if key == "cronExpression" else key): value for key, value in schedule.items()}


_UNKNOWN: Final = {"shard": Int64(3), "ratio": Decimal128("0.10"), "blob": Binary(b"\x00\x01")}

TIMES: Final = (
    _fault("date-type", "runs", "createdAt", _date),
    _fault("date-type", "runs", "finishedAt", _date),
    _fault("date-type", "schedules", "updatedAt", _date),
    _fault("date-type", "audit", "occurredAt", _date),
    _fault("date-zulu", "runs", "createdAt", _zulu),
    _fault("date-zulu", "graph_jobs", "createdAt", _zulu, clean=True),  # its payload keeps the document as it is
    _fault("date-zulu", "policy_runs", "queuedAt", _zulu),
    _fault("date-offset", "runs", "createdAt", "2025-05-01T02:00:00.25+02:00"),
    _fault("seven-digits", "runs", "createdAt", _seven_digits),
    _fault("seven-digits", "policy_jobs", "updatedAt", _seven_digits),
    _fault("seven-digits", "audit", "occurredAt", _seven_digits),
    _fault("far-date-elsewhere", "runs", "archivedAt", _FAR),
    _rejected("date-naive", "runs", "createdAt", "2025-05-01T02:00:00", "bad-date"),
    _rejected("date-undecodable", "runs", "finishedAt", _FAR, "bad-date"),
    _rejected("date-impossible", "runs", "createdAt", "2025-02-30T02:00:00+00:00", "bad-date"),
    _rejected("date-words", "schedules", "updatedAt", "yesterday", "bad-date"),
)
VALUES: Final = (
    _fault("unknown-field", "runs", "legacyCursor", _UNKNOWN),
    _Fault("unknown-field", "runs", (("pattern", Regex("^CVE-", "i")), ("ts", Timestamp(1_761_955_200, 7)))),
    _fault("unknown-field", "runs", "a.b", {"$set": {"c": 1}}),
    _fault("unknown-field", "schedules", "owner", {"team": "platform"}),
    _fault("explicit-null", "runs", "error", None),
    _fault("explicit-null", "schedules", "limits", None),
    _fault("nul-text", "runs", "error", "unexpected\x00byte"),
    _fault("nul-text", "schedules", "name", "scan \x00 edge"),
    _fault("nul-json", "runs", "reason", {"manualReason": "asked\x00twice"}),
    _fault("nan", "policy_jobs", ("inputs", "environment"), lambda old: old | {"threshold": float("nan")}),
    _fault("nan", "policy_runs", ("inputs", "environment"), lambda old: old | {"limit": float("inf")}),
    _fault("negative-zero", "policy_runs", ("inputs", "environment"), lambda old: old | {"offset": -0.0}),
    _fault("int64", "runs", ("stats", "candidates"), Int64),
    _rejected("wrong-type", "runs", ("stats", "queued"), "7", "wrong-type"),
    _rejected("wrong-type", "schedules", "enabled", "yes", "wrong-type"),
    _rejected("unknown-state", "runs", "state", "paused", "unknown-value"),
    _rejected("unknown-state", "policy_jobs", "status", "exploded", "unknown-value"),
    _Fault("finished-before-started", "runs", _with_times_swapped, reason="finished-before-started", remainder=False),
    _fault("negative-stats", "runs", ("stats", "newHigh"), -3, "negative-stats", clean=True),
)
SPELLINGS: Final = (
    _fault("alias", "graph_jobs", "status", "cancelled", clean=True),
    _fault("alias", "policy_jobs", "status", "cancelled", "alias"),
    _fault("alias", "schedules", "mode", "analysisonly", "alias"),
    _Fault("alias-field", "schedules", _with_old_cron_field, reason="alias"),
    _fault("renamed-service", "runs", "trigger", "feedser", "alias"),
    _fault("renamed-service", "runs", "trigger", "vexer", "alias"),
    _fault("old-schema-version", "runs", "schemaVersion", "scheduler.run@0", "unknown-schema-version", clean=True),
    _fault("blank-schema-version", "runs", "schemaVersion", "  "),
    _fault("no-schema-version", "runs", "schemaVersion", _GONE, clean=True),
    _fault("cron-unevaluable", "schedules", "cronExpression", "every day at noon", "unevaluable-cron"),
    _fault("cron-unevaluable", "schedules", "cronExpression", "61 * * * *", "unevaluable-cron"),
    _fault("zone-unknown", "schedules", "timezone", "Mars/Olympus_Mons", "unknown-zone"),
    _fault("zone-windows", "schedules", "timezone", "W. Europe Standard Time", "mapped-zone"),
    _fault("zone-windows", "schedules", "timezone", "Pacific Standard Time", "mapped-zone"),
    _rejected("no-tenant", "runs", "tenantId", _GONE, "no-tenant"),
    _Fault(
        "no-tenant",
        "schedules",
        (("tenantId", _GONE), (("selection", "tenantId"), _GONE)),
        reason="no-tenant",
        quarantined=True,
    ),
)


def changed(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    """Yield the documents with odd times and values, and those that say it differently."""
    for fault in (*TIMES, *VALUES, *SPELLINGS):
        document = nursery.fresh(fault.collection)
        if callable(fault.changes):
            document = fault.changes(document)
        else:
            for field, value in fault.changes:
                _change(document, field, value)
        if fault.quarantined:
            yield quarantined(fault.kind, fault.collection, document, fault.reason)
        else:
            yield loaded(fault.kind, fault.collection, document, fault.reason, remainder=fault.remainder)


def _change(document: Document, field: Field, value: Any) -> None:  # noqa: ANN401 - any BSON value, or a function
    *parents, name = (field,) if isinstance(field, str) else field
    place: Document = document[parents[0]] if parents else document
    if value is _GONE:
        del place[name]
    else:
        place[name] = value(place[name]) if callable(value) else value


_MOMENT = datetime(2025, 11, 2, 8, tzinfo=UTC).replace(tzinfo=None)


def ids(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    """Yield the documents with odd ids, and a lock without expiry."""
    seed = nursery.plan.seed
    for identifier in _every_type(seed):
        run = nursery.fresh("runs") | {"_id": identifier, "id": identifier}
        if not isinstance(identifier, str):
            del run["id"]
        yield loaded("id-type", "runs", run, remainder=False)
    run = nursery.fresh("runs") | {"id": f"run_{hexadecimal(seed, 'another', 0)}"}
    yield loaded("id-mismatch", "runs", run, "id-mismatch")
    # Two spellings of one UUID: the first in _id order stays; digits sort before run_.
    digits = "0" + hexadecimal(seed, "meeting", 0)[1:]
    for number, identifier in enumerate((str(UUID(digits)), f"run_{digits}")):
        run = nursery.fresh("runs") | {"_id": identifier, "id": identifier}
        yield _first_stays("ids-meet", "runs", run, number, "duplicate-id")
    lock = nursery.fresh("locks") | {"_id": f"{TENANT}/forever", "resource": "forever", "tenantId": TENANT}
    del lock["expiresAt"]
    yield loaded("lock-without-expiry", "locks", lock, remainder=False)


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


_LIMIT = 16 * 1024 * 1024
_PLACE = b"\x02spoil\x00\x02\x00\x00\x00x\x00"
"""The element ``spoil: "x"``, to be replaced by something else."""
_int: Callable[[int], bytes] = struct.Struct("<i").pack


def _bson(body: bytes) -> bytes:
    return _int(len(body) + 5) + body + b"\x00"


ELEMENTS: Final[tuple[tuple[str, bytes, str], ...]] = (
    ("duplicate-key-in-document", b"\x10spoil\x00" + _int(1) + b"\x10spoil\x00" + _int(2), "not-round-trip"),
    ("invalid-utf8", b"\x02spoil\x00" + _int(3) + b"\xc3\x28\x00", "undecodable"),
    ("malformed-array", b"\x04spoil\x00" + _bson(b"\x105\x00" + _int(1)), "not-round-trip"),
    ("deprecated-type", b"\x0espoil\x00" + _int(2) + b"s\x00", "not-round-trip"),
    ("deprecated-type", b"\x06spoil\x00", "not-round-trip"),
)
"""Elements that cannot be read, or would not be the same when written again; and the reason for the quarantine."""


def raw_documents(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    """Yield the documents with such an element."""
    for kind, element, reason in ELEMENTS:
        document = nursery.fresh("runs") | {"spoil": "x"}
        raw = _bson(bson.encode(document)[4:-1].replace(_PLACE, element))
        yield msgspec.structs.replace(quarantined(kind, "runs", document, reason), raw=raw)


def huge_document(nursery: CleanDocuments) -> FaultyDocument:
    """Return a snapshot of just under 16 MB."""
    snapshot = nursery.fresh("impact_snapshots")
    image = dict(snapshot["images"][0])
    room = _LIMIT - 64 * 1024 - len(bson.encode(snapshot))
    amount = room // (len(bson.encode({"12345": image})))
    snapshot["images"] = [{**image, "imageDigest": digest(nursery.plan.seed, "huge", n)} for n in range(amount)]
    snapshot["total"] = amount
    return loaded("huge", "impact_snapshots", snapshot, remainder=False)


@cache
def faulty_documents(seed: int = DEFAULT_SEED, *, huge: bool = False) -> tuple[FaultyDocument, ...]:
    """Return every planted document; ``huge`` adds one close to MongoDB's limit of 16 MB."""
    nursery = CleanDocuments(seed)
    items = [item for maker in (references, changed, ids, raw_documents) for item in maker(nursery)]
    if huge:
        items.append(huge_document(nursery))
    return tuple(items)
