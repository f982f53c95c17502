"""References to what is not there, and keys that exist twice."""

from collections.abc import Iterator

from bson import ObjectId

from migrator.embedded.demo.planted.item import TENANT, Nursery, Planted, loaded, quarantined
from migrator.embedded.demo.streams import hexadecimal, stamp


def references(nursery: Nursery) -> Iterator[Planted]:
    """Yield the orphans and the duplicates."""
    yield from _orphans(nursery)
    yield from _duplicate_names(nursery)
    yield from _duplicate_keys(nursery)


def _orphans(nursery: Nursery) -> Iterator[Planted]:
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


def _duplicate_names(nursery: Nursery) -> Iterator[Planted]:
    for name in ("nightly scan", "weekly scan"):
        for _ in range(2):
            schedule = nursery.fresh("schedules")
            schedule["name"] = name
            yield loaded("duplicate-name", "schedules", schedule, "duplicate-name", residue=False)


def _duplicate_keys(nursery: Nursery) -> Iterator[Planted]:
    """Of two documents for one key the first in ``_id`` order stays."""
    schedule = nursery.fresh("schedules")
    yield loaded("schedule-of-the-duplicates", "schedules", schedule, residue=False)
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


def _first_stays(kind: str, collection: str, document: dict[str, object], number: int, finding: str = "") -> Planted:
    if number == 0:
        return loaded(kind, collection, document, finding, residue=False)
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
