"""Documents of ``graph_jobs`` (builds and overlays) and of ``graph_job_events``."""

from collections.abc import Iterator
from typing import Any

import bson

from migrator.embedded.demo.plan import Plan, tenant_of
from migrator.embedded.demo.streams import SPAN, Stream, digest, hexadecimal, stamp

_STATES = ("completed",) * 10 + ("failed", "canceled", "running", "queued", "pending", "pending")
_ENDED = ("completed", "failed", "canceled")
_OVERLAY_SHARE = 3
"""One graph job in three is an overlay."""


def job_documents(plan: Plan) -> Iterator[bytes]:
    """Yield the graph jobs."""
    for job in _jobs(plan):
        yield bson.encode(job)


def _jobs(plan: Plan) -> Iterator[dict[str, Any]]:
    stream = plan.stream("graph-jobs")
    for index in range(plan.counts.graph_jobs):
        if index % _OVERLAY_SHARE == 2:  # noqa: PLR2004 - the last of each three
            yield _overlay(plan, stream, index)
        else:
            yield _build(plan, stream, index)


def _build(plan: Plan, stream: Stream, index: int) -> dict[str, Any]:
    identifier = f"gbj_{hexadecimal(plan.seed, 'graph-job', index)}"
    state = stream.pick(_STATES)
    sbom = f"sbom_{stream.digits(8)}"
    document: dict[str, Any] = {
        "_id": identifier,
        "schemaVersion": "scheduler.graph-build-job@1",
        "id": identifier,
        "tenantId": tenant_of(stream),
        "sbomId": sbom,
        "sbomVersionId": f"{sbom}_v{stream.between(1, 9)}",
        "sbomDigest": digest(plan.seed, "sbom", index),
    }
    if state == "completed":
        document["graphSnapshotId"] = f"graph_{stream.digits(12)}"
    document["status"] = state
    document["trigger"] = stream.pick(("sbom-version", "sbom-version", "backfill", "manual"))
    _progress(stream, document, state)
    return document


def _overlay(plan: Plan, stream: Stream, index: int) -> dict[str, Any]:
    identifier = f"goj_{hexadecimal(plan.seed, 'graph-job', index)}"
    state = stream.pick(_STATES)
    document: dict[str, Any] = {
        "_id": identifier,
        "schemaVersion": "scheduler.graph-overlay-job@1",
        "id": identifier,
        "tenantId": tenant_of(stream),
        "graphSnapshotId": f"graph_{stream.digits(12)}",
        "buildJobId": f"gbj_{hexadecimal(plan.seed, 'graph-job', index - 2)}",
        "overlayKind": stream.pick(("policy", "advisory", "vex")),
        "overlayKey": f"policy@{stream.between(1, 30)}",
        "subjects": sorted({f"artifact:{stream.digits(6)}" for _ in range(stream.between(1, 4))}),
        "status": state,
        "trigger": stream.pick(("policy", "advisory", "vex", "sbom-version", "manual")),
    }
    _progress(stream, document, state)
    return document


def _progress(stream: Stream, document: dict[str, Any], state: str) -> None:
    created = stream.below(SPAN)
    started = created + stream.below(30_000)
    document["attempts"] = 0 if state in ("pending", "queued") else stream.between(1, 3)
    if stream.chance(0.5):
        document["correlationId"] = f"evt_{stream.digits(8)}"
    document["createdAt"] = stamp(created)
    if state not in ("pending", "queued"):
        document["startedAt"] = stamp(started)
    if state in _ENDED:
        document["completedAt"] = stamp(started + stream.below(600_000))
    if state == "failed":
        document["error"] = "cartographer refused the SBOM: missing root component"
    document["metadata"] = {"sbomeventid": f"evt_{stream.digits(6)}"}


def event_documents(plan: Plan) -> Iterator[bytes]:
    """Yield events of graph jobs that ended: the documented completion envelope, one or two for a job."""
    stream = plan.stream("graph-job-events")
    ended = [job for job in _jobs(plan) if job["status"] in _ENDED][: plan.counts.graph_job_events]
    for index in range(plan.counts.graph_job_events if ended else 0):
        job = ended[index % len(ended)]
        body = {name: value for name, value in job.items() if name != "_id"}
        event = hexadecimal(plan.seed, "graph-event", index)
        identifier = f"{event[:8]}-{event[8:12]}-{event[12:16]}-{event[16:20]}-{event[20:]}"
        document: dict[str, Any] = {
            "_id": identifier,
            "eventId": identifier,
            "kind": "scheduler.graph.job.completed",
            "tenant": job["tenantId"],
            "ts": job["completedAt"],
            "payload": {
                "jobType": "build" if job["id"].startswith("gbj_") else "overlay",
                "job": body,
                "status": "cancelled" if job["status"] == "canceled" else job["status"],
                "occurredAt": job["completedAt"],
            },
        }
        if stream.chance(0.3):
            document["attributes"] = {"region": "eu-central"}
        yield bson.encode(document)
