"""Documents of ``policy_runs``, in both documented shapes, and of ``policy_jobs``."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import bson

from migrator.embedded.demo.plan import Plan, tenant_of
from migrator.embedded.demo.streams import SPAN, Stream, hexadecimal, stamp

_MODES = ("full", "incremental", "incremental", "simulate")
_PRIORITIES = ("normal", "normal", "normal", "high", "emergency")
_RANKS = {"emergency": 0, "high": 1, "normal": 2}
_RUN_STATES = ("succeeded",) * 12 + ("failed", "failed", "canceled", "running", "queued", "replay_pending")
_JOB_STATES = ("completed",) * 10 + ("failed", "canceled", "pending", "dispatching", "submitted")
_SNAKE_SHARE = 0.2


class _Head(NamedTuple):
    """What both shapes of a policy run tell."""

    number: int
    tenant: str
    state: str
    queued: int
    policy: str


def run_documents(plan: Plan) -> Iterator[bytes]:
    """Yield policy runs; one in five has the older shape with underscores, whose cursors end in ``Z``."""
    stream = plan.stream("policy-runs")
    for number in range(plan.counts.policy_runs):
        head = _Head(
            number,
            tenant_of(stream),
            stream.pick(_RUN_STATES),
            stream.below(SPAN),
            f"P-{stream.between(1, 40)}",
        )
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


def job_documents(plan: Plan) -> Iterator[bytes]:
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
