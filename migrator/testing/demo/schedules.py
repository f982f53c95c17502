"""Documents of ``schedules``, and of ``triggers`` for a deployment that has them."""

from collections.abc import Iterator
from typing import Any

import bson

from migrator.testing.demo.plan import SPAN, Plan, ScheduleFacts, Stream, digest, hexadecimal, moment, stamp

_CRONS = ("0 2 * * *", "*/15 * * * *", "30 1 * * 1-5", "0 0 1 * *", "5 4 * * 0", "0 */6 * * *", "45 22 * * 1,3,5")
_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Australia/Lord_Howe", "America/Sao_Paulo")
_USERS = ("user:ops", "user:anna", "user:security", "system:import")
_NAMESPACES = ("payments", "checkout", "search", "billing", "edge", "batch")
_REPOSITORIES = ("registry.example/api", "registry.example/web", "registry.example/worker", "registry.example/cron")
_DAY = 86_400_000


def documents(plan: Plan) -> Iterator[bytes]:
    """Yield the schedules; about one in forty is soft-deleted, which the store marks with a BSON date."""
    stream = plan.stream("schedules")
    for index, schedule in enumerate(plan.schedules):
        yield bson.encode(_schedule(plan, stream, index, schedule))


def _schedule(plan: Plan, stream: Stream, index: int, schedule: ScheduleFacts) -> dict[str, Any]:
    created = stream.below(30 * _DAY)
    updated = created + stream.below(100 * _DAY)
    document: dict[str, Any] = {
        "_id": schedule.id,
        "schemaVersion": "scheduler.schedule@1",
        "id": schedule.id,
        "tenantId": schedule.tenant,
        "name": schedule.name,
        "enabled": not stream.chance(0.15),
        "cronExpression": stream.pick(_CRONS),
        "timezone": stream.pick(_ZONES),
        "mode": "content-refresh" if stream.chance(0.25) else "analysis-only",
        "selection": selector(plan, stream, index, schedule.tenant),
        "onlyIf": _only_if(stream),
        "notify": {
            "onNewFindings": stream.chance(0.9),
            "minSeverity": stream.pick(("low", "medium", "high", "critical")),
            "includeKev": True,
            "includeQuietFindings": stream.chance(0.1),
        },
        "limits": _limits(stream),
        "subscribers": sorted({stream.pick(_USERS), stream.pick(_USERS)}) if stream.chance(0.6) else [],
        "createdAt": stamp(created),
        "createdBy": stream.pick(_USERS),
        "updatedAt": stamp(updated),
        "updatedBy": stream.pick(_USERS),
    }
    if stream.chance(0.025):
        document["deletedAt"] = moment(updated + stream.below(20 * _DAY))
        document["deletedBy"] = "user:ops"
    return document


def selector(plan: Plan, stream: Stream, index: int, tenant: str) -> dict[str, Any]:
    """Return a selector of images; filters that select nothing stay as empty arrays, as the model writes them."""
    scope = stream.pick(("all-images", "by-namespace", "by-repository", "by-digest", "by-labels"))
    return {
        "scope": scope,
        "tenantId": tenant,
        "namespaces": [stream.pick(_NAMESPACES)] if scope == "by-namespace" else [],
        "repositories": [stream.pick(_REPOSITORIES)] if scope == "by-repository" else [],
        "digests": [digest(plan.seed, "selected", index)] if scope == "by-digest" else [],
        "includeTags": ["stable", "v*"] if stream.chance(0.3) else [],
        "labels": [{"key": "env", "values": ["prod", "staging"]}] if scope == "by-labels" else [],
        "resolvesTags": stream.chance(0.2),
    }


def _only_if(stream: Stream) -> dict[str, Any]:
    conditions: dict[str, Any] = {}
    if stream.chance(0.4):
        conditions["lastReportOlderThanDays"] = stream.between(1, 30)
    if stream.chance(0.2):
        conditions["policyRevision"] = f"P-7@{stream.between(1, 40)}"
    return conditions


def _limits(stream: Stream) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if stream.chance(0.5):
        limits["maxJobs"] = stream.pick((100, 1_000, 5_000))
    if stream.chance(0.5):
        limits["ratePerSecond"] = stream.between(1, 50)
    if stream.chance(0.7):
        limits["parallelism"] = stream.pick((2, 4, 8, 16))
    if stream.chance(0.1):
        limits["burst"] = 32
    return limits


def triggers(plan: Plan) -> Iterator[bytes]:
    """Yield triggers in the project's own shape: the columns in camelCase, BSON dates."""
    stream = plan.stream("triggers")
    for index in range(plan.counts.triggers if plan.triggers else 0):
        schedule = plan.schedules[index % len(plan.schedules)]
        identifier = f"trg_{hexadecimal(plan.seed, 'trigger', index)}"
        kind = stream.pick(("cron", "cron", "interval", "one_time", "event"))
        yield bson.encode(
            {
                "_id": identifier,
                "tenantId": schedule.tenant,
                "scheduleId": schedule.id,
                "kind": kind,
                **_timing(stream, kind),
                "enabled": not stream.chance(0.1),
            }
        )


def _timing(stream: Stream, kind: str) -> dict[str, Any]:
    if kind == "cron":
        return {"cronExpression": stream.pick(_CRONS), "timezone": stream.pick(_ZONES)}
    if kind == "interval":
        return {"intervalMs": stream.pick((60_000, 900_000, 86_400_000)), "anchor": "completion"}
    if kind == "one_time":
        return {"runAt": moment(SPAN + stream.below(30 * _DAY))}
    return {"eventName": stream.pick(("sbom.published", "vex.updated"))}
