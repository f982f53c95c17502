"""One planted document, and where they grow."""

from collections.abc import Iterator
from typing import Any, Literal

import bson
import msgspec

from migrator.embedded.demo import graph, operations, policy, runs, schedules, snapshots
from migrator.embedded.demo.plan import Counts, Plan

DEFAULT_SEED = 20251102
Outcome = Literal["loaded", "quarantined", "skipped"]
TENANT = "tenant-alpha"
"""Planted documents belong to one tenant, so that they can be looked up together."""
_ENOUGH = Counts(60, 2_000, 60, 60, 120, 90, 90, 40, 30, 10, 40, 0)


class Planted(msgspec.Struct, frozen=True, kw_only=True):
    """A document with something wrong in it."""

    kind: str
    """What is wrong, e.g. ``orphan-schedule``; several documents may share a kind."""
    collection: str
    id: Any
    """The document's ``_id``."""
    outcome: Outcome
    reason: str
    """Quarantined: the reason. Skipped: the reason. Loaded: the finding it must cause, empty for none."""
    residue: bool = False
    """Loaded with a residue, i.e. the columns alone do not give the document back."""
    raw: bytes
    """The document."""


class Nursery:
    """Gives clean documents of every collection to be spoilt; they come from the demo's own generators."""

    def __init__(self, seed: int) -> None:
        self.plan = Plan(seed=seed ^ 0x5EED, counts=_ENOUGH, plain=True)
        self._sources: dict[str, Iterator[bytes]] = {
            "schedules": schedules.documents(self.plan),
            "runs": self._ended_runs(),
            "run_summaries": runs.summaries(self.plan),
            "impact_snapshots": snapshots.documents(self.plan),
            "audit": operations.audit(self.plan),
            "policy_runs": self._camel_policy_runs(),
            "policy_jobs": policy.job_documents(self.plan),
            "graph_jobs": graph.job_documents(self.plan),
            "graph_job_events": graph.event_documents(self.plan),
            "locks": operations.locks(self.plan),
            "workers": operations.workers(self.plan),
            "execution_logs": operations.execution_logs(self.plan),
        }

    def _ended_runs(self) -> Iterator[bytes]:
        for raw in runs.documents(self.plan):
            document = bson.decode(raw)
            if document["state"] == "completed" and document["trigger"] == "policy":
                yield raw

    def _camel_policy_runs(self) -> Iterator[bytes]:
        for raw in policy.run_documents(self.plan):
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


def loaded(kind: str, collection: str, document: dict[str, Any], finding: str = "", *, residue: bool = True) -> Planted:
    """Return a document that must be loaded, with a residue unless said otherwise."""
    return Planted(
        kind=kind,
        collection=collection,
        id=document["_id"],
        outcome="loaded",
        reason=finding,
        residue=residue,
        raw=bson.encode(document),
    )


def quarantined(kind: str, collection: str, document: dict[str, Any], reason: str) -> Planted:
    """Return a document that must be set aside for this reason."""
    return Planted(
        kind=kind,
        collection=collection,
        id=document["_id"],
        outcome="quarantined",
        reason=reason,
        raw=bson.encode(document),
    )
