"""Values that columns cannot hold, or that no column carries."""

from collections.abc import Iterator

from bson import Binary, Decimal128, Int64, Regex, Timestamp

from migrator.embedded.demo.planted.item import Nursery, Planted, loaded, quarantined

_NAN = float("nan")


def values(nursery: Nursery) -> Iterator[Planted]:
    """Yield the documents with odd values."""
    yield from _unknown_fields(nursery)
    yield from _unstorable(nursery)
    yield from _types(nursery)
    yield from _order_of_times(nursery)


def _unknown_fields(nursery: Nursery) -> Iterator[Planted]:
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


def _unstorable(nursery: Nursery) -> Iterator[Planted]:
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


def _types(nursery: Nursery) -> Iterator[Planted]:
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


def _order_of_times(nursery: Nursery) -> Iterator[Planted]:
    run = nursery.fresh("runs")
    run["startedAt"], run["finishedAt"] = run["finishedAt"], run["startedAt"]
    yield loaded("finished-before-started", "runs", run, "finished-before-started", residue=False)
    run = nursery.fresh("runs")
    run["stats"]["newHigh"] = -3
    yield loaded("negative-stats", "runs", run, "negative-stats", residue=False)
