"""Fault injection into the demo's data: the fault of each document, and its expected outcome.

The list is the same for every size, so that a reader of the report can follow every single document.
"""

import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

import bson
import msgspec
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS

from migrator.embedded.demo import jobs, operations, runs, schedules
from migrator.embedded.demo.plan import Counts, Plan, digest, hexadecimal, stamp

__all__ = [
    "FaultyDocument",
    "faulty_documents",
]

DEFAULT_SEED = 20251102
Outcome = Literal["loaded", "quarantined", "skipped"]
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

    def fresh(self, collection: str) -> dict[str, Any]:
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
    kind: str, collection: str, document: dict[str, Any], finding: str = "", *, remainder: bool = True
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


def quarantined(kind: str, collection: str, document: dict[str, Any], reason: str) -> FaultyDocument:
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
    yield from _duplicate_names(nursery)
    yield from _duplicate_keys(nursery)


def _orphans(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    seed = nursery.plan.seed
    for number, missing in enumerate(
        (f"sch_{hexadecimal(seed, 'gone', 0)}", "sch_20240131-gone", "sch_deleted by hand")
    ):
        run = _with(nursery.fresh("runs"), "scheduleId", missing, after="tenantId")
        run["trigger"] = "cron"
        run["createdAt"] = stamp(number * 60_000)
        yield loaded("orphan-schedule", "runs", run, "orphan")
    for number in range(2):
        run = nursery.fresh("runs")
        run["retryOf"] = f"run_{hexadecimal(seed, 'expired', number)}"
        yield loaded("orphan-retry", "runs", run, "orphan")
    missing = f"run_{hexadecimal(seed, 'expired', 9)}"
    snapshot = _with(nursery.fresh("impact_snapshots"), "runId", missing, after="tenantId")
    yield loaded("orphan-run", "impact_snapshots", snapshot, "orphan")
    log = nursery.fresh("execution_logs")
    log["runId"] = f"run_{hexadecimal(seed, 'expired', 10)}"
    yield loaded("orphan-run", "execution_logs", log, "orphan")
    event = nursery.fresh("graph_job_events")
    event["tenant"] = event["payload"]["job"]["tenantId"] = TENANT
    event["payload"]["job"]["id"] = f"gbj_{hexadecimal(seed, 'gone', 1)}"
    yield quarantined("orphan-job", "graph_job_events", event, "orphan")


def _duplicate_names(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    for name in ("nightly scan", "weekly scan"):
        for _ in range(2):
            schedule = nursery.fresh("schedules")
            schedule["name"] = name
            yield loaded("duplicate-name", "schedules", schedule, "duplicate-name", remainder=False)


def _duplicate_keys(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    """Of two documents for one key the first in ``_id`` order stays."""
    schedule = nursery.fresh("schedules")
    yield loaded("schedule-of-the-duplicates", "schedules", schedule, remainder=False)
    for number, prefix in enumerate(("a", "b")):
        summary = nursery.fresh("run_summaries")
        summary["_id"] = f"{prefix}-summary-of-one-schedule"
        summary = _with(summary, "scheduleId", schedule["_id"], after="tenantId")
        yield _first_stays("duplicate-summary", "run_summaries", summary, number)
    for number, identifier in enumerate((ObjectId("65a000000000000000000001"), ObjectId("65a000000000000000000002"))):
        lock = nursery.fresh("locks")
        lock.update(_id=identifier, resource="planner", tenantId=TENANT)
        lock["expiresAt"] = lock["expiresAt"].replace(year=2124)
        yield _first_stays("duplicate-lock", "locks", lock, number)
    for number, prefix in enumerate(("a", "b")):
        job = nursery.fresh("policy_jobs")
        job["_id"] = job["id"] = f"{prefix}-policy-job"
        job = _with(job, "runId", "run:P-7:2025-10-26:auto", after="priorityRank")
        yield _first_stays("duplicate-policy-run", "policy_jobs", job, number)


def _first_stays(kind: str, collection: str, document: dict[str, object], number: int) -> FaultyDocument:
    if number == 0:
        return loaded(kind, collection, document, remainder=False)
    return quarantined(kind, collection, document, "duplicate-key")


def _with(document: dict[str, object], name: str, value: object, *, after: str) -> dict[str, object]:
    """Return the document with a field where the source writes it."""
    changed: dict[str, object] = {}
    for key, old in document.items():
        if key == name:
            continue
        changed[key] = old
        if key == after:
            changed[name] = value
    return changed


_FAR = DatetimeMS(8_640_000_000_000_000)
"""The last instant of a JavaScript date, in the year 275760."""


def times(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    """Yield the documents with odd times."""
    yield from _readable(nursery)
    yield from _unreadable(nursery)


def _readable(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    for collection, field in (
        ("runs", "createdAt"),
        ("runs", "finishedAt"),
        ("schedules", "updatedAt"),
        ("audit", "occurredAt"),
    ):
        document = nursery.fresh(collection)
        document[field] = datetime.fromisoformat(document[field]).astimezone(UTC).replace(tzinfo=None, microsecond=0)
        yield loaded("date-type", collection, document)
    for collection, field in (("runs", "createdAt"), ("graph_jobs", "createdAt"), ("policy_runs", "queuedAt")):
        document = nursery.fresh(collection)
        document[field] = document[field].replace("+00:00", "Z")
        # The payload of a graph job keeps the document as it is.
        yield loaded("date-zulu", collection, document, remainder=collection != "graph_jobs")
    run = nursery.fresh("runs")
    run["createdAt"] = "2025-05-01T02:00:00.25+02:00"
    yield loaded("date-offset", "runs", run)
    for collection, field in (("runs", "createdAt"), ("policy_jobs", "updatedAt"), ("audit", "occurredAt")):
        document = nursery.fresh(collection)
        document[field] = document[field][:19] + ".9999999+00:00"
        yield loaded("seven-digits", collection, document)
    run = nursery.fresh("runs")
    run["archivedAt"] = _FAR
    yield loaded("far-date-elsewhere", "runs", run)


def _unreadable(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    run = nursery.fresh("runs")
    run["createdAt"] = "2025-05-01T02:00:00"
    yield quarantined("date-naive", "runs", run, "bad-date")
    run = nursery.fresh("runs")
    run["finishedAt"] = _FAR
    yield quarantined("date-undecodable", "runs", run, "bad-date")
    run = nursery.fresh("runs")
    run["createdAt"] = "2025-02-30T02:00:00+00:00"
    yield quarantined("date-impossible", "runs", run, "bad-date")
    schedule = nursery.fresh("schedules")
    schedule["updatedAt"] = "yesterday"
    yield quarantined("date-words", "schedules", schedule, "bad-date")


_NAN = float("nan")


def values(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    """Yield the documents with odd values."""
    yield from _unknown_fields(nursery)
    yield from _unstorable(nursery)
    yield from _types(nursery)
    yield from _order_of_times(nursery)


def _unknown_fields(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    run = nursery.fresh("runs")
    run["legacyCursor"] = {"shard": Int64(3), "ratio": Decimal128("0.10"), "blob": Binary(b"\x00\x01")}
    yield loaded("unknown-field", "runs", run)
    run = nursery.fresh("runs")
    run["pattern"] = Regex("^CVE-", "i")
    run["ts"] = Timestamp(1_761_955_200, 7)
    yield loaded("unknown-field", "runs", run)
    run = nursery.fresh("runs")
    run["a.b"] = {"$set": {"c": 1}}
    yield loaded("unknown-field", "runs", run)
    schedule = nursery.fresh("schedules")
    schedule["owner"] = {"team": "platform"}
    yield loaded("unknown-field", "schedules", schedule)
    run = nursery.fresh("runs")
    run["error"] = None
    yield loaded("explicit-null", "runs", run)
    schedule = nursery.fresh("schedules")
    schedule["limits"] = None
    yield loaded("explicit-null", "schedules", schedule)


def _unstorable(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    run = nursery.fresh("runs")
    run["error"] = "unexpected\x00byte"
    yield loaded("nul-text", "runs", run)
    schedule = nursery.fresh("schedules")
    schedule["name"] = "scan \x00 edge"
    yield loaded("nul-text", "schedules", schedule)
    run = nursery.fresh("runs")
    run["reason"] = {"manualReason": "asked\x00twice"}
    yield loaded("nul-json", "runs", run)
    job = nursery.fresh("policy_jobs")
    job["inputs"]["environment"]["threshold"] = _NAN
    yield loaded("nan", "policy_jobs", job)
    run = nursery.fresh("policy_runs")
    run["inputs"]["environment"]["limit"] = float("inf")
    yield loaded("nan", "policy_runs", run)
    run = nursery.fresh("policy_runs")
    run["inputs"]["environment"]["offset"] = -0.0
    yield loaded("negative-zero", "policy_runs", run)


def _types(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    run = nursery.fresh("runs")
    run["stats"]["candidates"] = Int64(run["stats"]["candidates"])
    yield loaded("int64", "runs", run)
    run = nursery.fresh("runs")
    run["stats"]["queued"] = "7"
    yield quarantined("wrong-type", "runs", run, "wrong-type")
    schedule = nursery.fresh("schedules")
    schedule["enabled"] = "yes"
    yield quarantined("wrong-type", "schedules", schedule, "wrong-type")
    run = nursery.fresh("runs")
    run["state"] = "paused"
    yield quarantined("unknown-state", "runs", run, "unknown-value")
    job = nursery.fresh("policy_jobs")
    job["status"] = "exploded"
    yield quarantined("unknown-state", "policy_jobs", job, "unknown-value")


def _order_of_times(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    run = nursery.fresh("runs")
    run["startedAt"], run["finishedAt"] = run["finishedAt"], run["startedAt"]
    yield loaded("finished-before-started", "runs", run, "finished-before-started", remainder=False)
    run = nursery.fresh("runs")
    run["stats"]["newHigh"] = -3
    yield loaded("negative-stats", "runs", run, "negative-stats", remainder=False)


def spellings(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    """Yield the documents that say it differently."""
    yield from _aliases(nursery)
    yield from _versions(nursery)
    yield from _cron(nursery)
    yield from _tenants(nursery)


def _aliases(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    job = nursery.fresh("graph_jobs")
    job["status"] = "cancelled"
    yield loaded("alias", "graph_jobs", job, remainder=False)
    job = nursery.fresh("policy_jobs")
    job["status"] = "cancelled"
    yield loaded("alias", "policy_jobs", job, "alias")
    schedule = nursery.fresh("schedules")
    schedule["mode"] = "analysisonly"
    yield loaded("alias", "schedules", schedule, "alias")
    schedule = {
        ("whenCron" if key == "cronExpression" else key): value for key, value in nursery.fresh("schedules").items()
    }
    yield loaded("alias-field", "schedules", schedule, "alias")
    for old in ("feedser", "vexer"):
        run = nursery.fresh("runs")
        run["trigger"] = old
        yield loaded("renamed-service", "runs", run, "alias")


def _versions(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    run: dict[str, Any] = nursery.fresh("runs")
    run["schemaVersion"] = "scheduler.run@0"
    yield loaded("old-schema-version", "runs", run, "unknown-schema-version", remainder=False)
    run = nursery.fresh("runs")
    run["schemaVersion"] = "  "
    yield loaded("blank-schema-version", "runs", run)
    run = nursery.fresh("runs")
    del run["schemaVersion"]
    yield loaded("no-schema-version", "runs", run, remainder=False)


def _cron(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    for text in ("every day at noon", "61 * * * *"):
        schedule = nursery.fresh("schedules")
        schedule["cronExpression"] = text
        yield loaded("cron-unevaluable", "schedules", schedule, "unevaluable-cron")
    schedule = nursery.fresh("schedules")
    schedule["timezone"] = "Mars/Olympus_Mons"
    yield loaded("zone-unknown", "schedules", schedule, "unknown-zone")
    for zone in ("W. Europe Standard Time", "Pacific Standard Time"):
        schedule = nursery.fresh("schedules")
        schedule["timezone"] = zone
        yield loaded("zone-windows", "schedules", schedule, "mapped-zone")


def _tenants(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    run = nursery.fresh("runs")
    del run["tenantId"]
    yield quarantined("no-tenant", "runs", run, "no-tenant")
    schedule = nursery.fresh("schedules")
    del schedule["tenantId"]
    del schedule["selection"]["tenantId"]
    yield quarantined("no-tenant", "schedules", schedule, "no-tenant")


_MOMENT = datetime(2025, 11, 2, 8, tzinfo=UTC).replace(tzinfo=None)


def ids(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    """Yield the documents with odd ids."""
    for identifier in _every_type(nursery.plan.seed):
        run: dict[str, Any] = {**nursery.fresh("runs"), "_id": identifier, "id": identifier}
        if not isinstance(identifier, str):
            del run["id"]
        yield loaded("id-type", "runs", run, remainder=False)
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


def _meeting(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    """Two spellings of one UUID: the first in ``_id`` order stays; digits sort before ``run_``."""
    digits = "0" + hexadecimal(nursery.plan.seed, "meeting", 0)[1:]
    for number, identifier in enumerate((str(UUID(digits)), f"run_{digits}")):
        run = nursery.fresh("runs")
        run["_id"] = run["id"] = identifier
        if number == 0:
            yield loaded("ids-meet", "runs", run, remainder=False)
        else:
            yield quarantined("ids-meet", "runs", run, "duplicate-id")


def _locks(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    lock = nursery.fresh("locks")
    lock.update(_id=f"{TENANT}/forever", resource="forever", tenantId=TENANT)
    del lock["expiresAt"]
    yield loaded("lock-without-expiry", "locks", lock, remainder=False)


_LIMIT = 16 * 1024 * 1024
_PLACE = b"\x02spoil\x00\x02\x00\x00\x00x\x00"
"""The element ``spoil: "x"``, to be replaced by something else."""


def raw_documents(nursery: CleanDocuments) -> Iterator[FaultyDocument]:
    """Yield the documents whose bytes cannot be read, or would not be the same when written again."""
    yield _spoilt(
        nursery, "duplicate-key-in-document", b"\x10spoil\x00" + _int(1) + b"\x10spoil\x00" + _int(2), "not-round-trip"
    )
    yield _spoilt(nursery, "invalid-utf8", b"\x02spoil\x00" + _int(3) + b"\xc3\x28\x00", "undecodable")
    yield _spoilt(nursery, "malformed-array", b"\x04spoil\x00" + _document(b"\x105\x00" + _int(1)), "not-round-trip")
    yield _spoilt(nursery, "deprecated-type", b"\x0espoil\x00" + _int(2) + b"s\x00", "not-round-trip")
    yield _spoilt(nursery, "deprecated-type", b"\x06spoil\x00", "not-round-trip")


def huge_document(nursery: CleanDocuments) -> FaultyDocument:
    """Return a snapshot of just under 16 MB."""
    snapshot = nursery.fresh("impact_snapshots")
    image = dict(snapshot["images"][0])
    room = _LIMIT - 64 * 1024 - len(bson.encode(snapshot))
    amount = room // (len(bson.encode({"12345": image})))
    snapshot["images"] = [{**image, "imageDigest": digest(nursery.plan.seed, "huge", n)} for n in range(amount)]
    snapshot["total"] = amount
    return loaded("huge", "impact_snapshots", snapshot, remainder=False)


def _spoilt(nursery: CleanDocuments, kind: str, element: bytes, reason: str) -> FaultyDocument:
    document: dict[str, Any] = {**nursery.fresh("runs"), "spoil": "x"}
    raw = _replace(bson.encode(document), element)
    return FaultyDocument(
        kind=kind, collection="runs", id=document["_id"], outcome="quarantined", reason=reason, raw=raw
    )


def _replace(raw: bytes, element: bytes) -> bytes:
    body = raw[4:-1].replace(_PLACE, element)
    return _document(body)


def _document(body: bytes) -> bytes:
    return _int(len(body) + 5) + body + b"\x00"


_int: Callable[[int], bytes] = struct.Struct("<i").pack


def faulty_documents(seed: int = DEFAULT_SEED, *, huge: bool = False) -> tuple[FaultyDocument, ...]:
    """Return every planted document; ``huge`` adds one close to MongoDB's limit of 16 MB."""
    nursery = CleanDocuments(seed)
    makers = (references, times, values, spellings, ids, raw_documents)
    items = [item for maker in makers for item in maker(nursery)]
    if huge:
        items.append(huge_document(nursery))
    return tuple(items)
