"""Documents of ``graph_jobs``, ``graph_job_events``, ``policy_runs`` in both shapes, and ``policy_jobs``."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import bson

from migrator.testing.demo.plan import SPAN, Plan, Stream, digest, hexadecimal, stamp, tenant_of

_STATES = ("completed",) * 10 + ("failed", "canceled", "running", "queued", "pending", "pending")
_ENDED = ("completed", "failed", "canceled")
_OVERLAY_SHARE = 3
"""One graph job in three is an overlay."""


def graph_job_documents(plan: Plan) -> Iterator[bytes]:
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


def graph_event_documents(plan: Plan) -> Iterator[bytes]:
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


_MODES = ("full", "incremental", "incremental", "simulate")
_PRIORITIES = ("normal", "normal", "normal", "high", "emergency")
_RANKS = {"emergency": 0, "high": 1, "normal": 2}
_RUN_STATES = ("succeeded",) * 12 + ("failed", "failed", "canceled", "running", "queued", "replay_pending")
_JOB_STATES = ("completed",) * 10 + ("failed", "canceled", "pending", "dispatching", "submitted")
_SNAKE_SHARE = 0.2


_Head: TypeAlias = tuple[int, str, str, int, str]
"""What both shapes of a policy run tell: number, tenant, state, when it was queued, policy."""


def policy_run_documents(plan: Plan) -> Iterator[bytes]:
    """Yield policy runs; one in five has the older shape with underscores, whose cursors end in ``Z``."""
    stream = plan.stream("policy-runs")
    for number in range(plan.counts.policy_runs):
        tenant, state = tenant_of(stream), stream.pick(_RUN_STATES)
        head = (number, tenant, state, stream.below(SPAN), f"P-{stream.between(1, 40)}")
        snake = stream.chance(_SNAKE_SHARE)
        yield bson.encode(_snake_run(stream, head) if snake else _camel_run(plan, stream, head))


def _camel_run(plan: Plan, stream: Stream, head: _Head) -> dict[str, Any]:
    index, tenant, state, queued, policy = head
    identifier = f"run:{policy}:{stamp(queued)[:10]}:{index}"
    document: dict[str, Any] = {
        "_id": identifier,
        "schemaVersion": "scheduler.policy-run-status@1",
        "runId": identifier,
        "tenantId": tenant,
        "policyId": policy,
        "policyVersion": stream.between(1, 30),
        "mode": stream.pick(_MODES),
        "status": state,
        "priority": stream.pick(_PRIORITIES),
        "queuedAt": stamp(queued),
    }
    started = queued + stream.below(60_000)
    seconds = stream.between(1, 900)
    if state not in ("queued", "replay_pending"):
        document["startedAt"] = stamp(started)
    if state in ("succeeded", "failed", "canceled"):
        document["finishedAt"] = stamp(started + 1000 * seconds)
    if state == "succeeded" and stream.chance(0.3):
        document["determinismHash"] = "sha256:" + hexadecimal(plan.seed, "determinism", index) * 2
    if state == "failed":
        document["errorCode"] = "ERR_POL_004"
        document["error"] = "rule evaluation exceeded its budget"
    document["attempts"] = stream.between(1, 3)
    if stream.chance(0.1):
        document["traceId"] = hexadecimal(plan.seed, "trace", index)
    document["metadata"] = {"source": stream.pick(("console", "cli", "scheduler"))}
    document["stats"] = _stats(stream, seconds)
    document["inputs"] = _inputs(stream, queued)
    return document


def _snake_run(stream: Stream, head: _Head) -> dict[str, Any]:
    index, tenant, state, queued, policy = head
    zulu = _zulu(queued)
    stats = _stats(stream, stream.between(1, 900))
    return {
        "_id": f"run:{policy}:{zulu}:{index:04x}",
        "tenant": tenant,
        "policy_id": policy,
        "policy_version": stream.between(1, 30),
        "mode": stream.pick(_MODES),
        "status": state,
        "inputs": {
            "sbom_set": _sboms(stream),
            "advisory_cursor": _zulu(max(queued - 60_000, 0)),
            "vex_cursor": _zulu(max(queued - 30_000, 0)),
            "env": {"exposure": stream.pick(("internal", "internet"))},
        },
        "stats": {
            "components": stats["components"],
            "rules_fired": stats["rulesFired"],
            "findings_written": stats["findingsWritten"],
            "vex_overrides": stats["vexOverrides"],
            "quieted": stats["quieted"],
        },
    }


def policy_job_documents(plan: Plan) -> Iterator[bytes]:
    """Yield policy work items; the ones in flight carry a lease."""
    stream = plan.stream("policy-jobs")
    for index in range(plan.counts.policy_jobs):
        yield bson.encode(_job(plan, stream, index))


def _job(plan: Plan, stream: Stream, index: int) -> dict[str, Any]:
    state = stream.pick(_JOB_STATES)
    priority = stream.pick(_PRIORITIES)
    policy = f"P-{stream.between(1, 40)}"
    created = stream.below(SPAN)
    updated = created + stream.below(600_000)
    document: dict[str, Any] = {
        "_id": f"prj_{hexadecimal(plan.seed, 'policy-job', index)}",
        "schemaVersion": "scheduler.policy-run-job@1",
        "id": f"prj_{hexadecimal(plan.seed, 'policy-job', index)}",
        "tenantId": tenant_of(stream),
        "policyId": policy,
        "policyVersion": stream.between(1, 30),
        "mode": stream.pick(_MODES),
        "priority": priority,
        "priorityRank": _RANKS[priority],
    }
    if stream.chance(0.8):
        document["runId"] = f"run:{policy}:{stamp(created)[:10]}:job-{index}"
    document["requestedBy"] = stream.pick(("user:cli", "user:ops", "system:schedule"))
    document["metadata"] = {"source": "scheduler"}
    document["inputs"] = _inputs(stream, created)
    document["queuedAt"] = stamp(created)
    document["status"] = state
    document["attemptCount"] = 0 if state == "pending" else stream.between(1, 4)
    if state != "pending":
        document["lastAttemptAt"] = stamp(updated)
    if state == "failed":
        document["lastError"] = "policy engine answered 503"
    document["createdAt"] = stamp(created)
    document["updatedAt"] = stamp(updated)
    document["availableAt"] = stamp(created + 1000)
    if state in ("submitted", "completed"):
        document["submittedAt"] = stamp(updated)
    if state == "completed":
        document["completedAt"] = stamp(updated + 5000)
    if state == "dispatching":
        document["leaseOwner"] = f"worker-{stream.between(1, 12)}"
        document["leaseExpiresAt"] = stamp(updated + 60_000)
    document["cancellationRequested"] = state == "canceled"
    if state == "canceled":
        document["cancellationRequestedAt"] = stamp(updated)
        document["cancellationReason"] = "superseded by a newer policy version"
        document["cancelledAt"] = stamp(updated + 1000)
    return document


def _inputs(stream: Stream, instant: int) -> dict[str, Any]:
    return {
        "sbomSet": _sboms(stream),
        "advisoryCursor": stamp(max(instant - 60_000, 0)),
        "vexCursor": stamp(max(instant - 30_000, 0)),
        "environment": {"exposure": "internal", "sealed": stream.chance(0.5), "zones": {"count": stream.between(1, 5)}},
        "captureExplain": stream.chance(0.3),
    }


def _sboms(stream: Stream) -> list[str]:
    return sorted({f"sbom:S-{stream.between(1, 900)}" for _ in range(stream.between(1, 6))})


def _stats(stream: Stream, seconds: int) -> dict[str, Any]:
    components = stream.between(10, 20_000)
    return {
        "components": components,
        "rulesFired": components // 3,
        "findingsWritten": components // 7,
        "vexOverrides": stream.below(50),
        "quieted": stream.below(80),
        "durationSeconds": seconds + stream.below(1000) / 1000,
    }


def _zulu(instant: int) -> str:
    return stamp(instant - instant % 1000)[:19] + "Z"
