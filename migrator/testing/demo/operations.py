"""Documents of ``audit``, ``locks``, ``workers`` and ``execution_logs``."""

from collections.abc import Iterator
from typing import Any

import bson

from migrator.testing.demo import runs
from migrator.testing.demo.plan import DAYS, SPAN, Plan, hexadecimal, moment, stamp

_ACTIONS = ("create", "update", "pause", "resume", "delete", "run-now", "cancel")
_REASONS = ("maintenance", "asked by the owner", "incident 4711", "release freeze")
_LEVELS = ("trace", "debug", "info", "info", "info", "warn", "error")
_MESSAGES = ("planning finished", "image queued", "scan finished", "policy gate passed", "registry answered slowly")
FOREVER = (36_500 - DAYS) * 86_400_000
"""A hundred years on: a lock that expires then is live whenever the demo runs, and its bytes stay the same."""


def audit(plan: Plan) -> Iterator[bytes]:
    """Yield the audit trail of schedules and runs."""
    stream = plan.stream("audit")
    for index in range(plan.counts.audit):
        schedule = stream.pick(plan.schedules)
        identifier = f"audit_{hexadecimal(plan.seed, 'audit', index)}"
        user = stream.pick(("ops", "anna", "security"))
        document: dict[str, Any] = {
            "_id": identifier,
            "id": identifier,
            "tenantId": schedule.tenant,
            "category": "scheduler",
            "action": stream.pick(_ACTIONS),
            "occurredAt": stamp(stream.below(SPAN)),
            "actor": {"actorId": f"user:{user}", "displayName": user.title(), "kind": "user"},
            "entityId": schedule.id,
            "scheduleId": schedule.id,
        }
        if stream.chance(0.3) and plan.counts.runs:
            document["runId"] = runs.run_id(plan, stream.below(plan.counts.runs))
        if stream.chance(0.4):
            document["correlationId"] = f"req-{stream.digits(8)}"
        document["metadata"] = {"reason": stream.pick(_REASONS)}
        if stream.chance(0.2):
            document["message"] = f"schedule «{schedule.name}» was changed"
        yield bson.encode(document)


def locks(plan: Plan) -> Iterator[bytes]:
    """Yield locks: two thirds are live for ever, one third expired long ago."""
    stream = plan.stream("locks")
    for index in range(plan.counts.locks):
        schedule = plan.schedules[index % len(plan.schedules)]
        acquired = stream.below(SPAN)
        expires = acquired + 60_000 if index % 3 == 2 else FOREVER + acquired  # noqa: PLR2004 - one in three
        yield bson.encode(
            {
                "_id": f"{schedule.tenant}/schedule:{schedule.id}/{index}",
                "resource": f"schedule:{schedule.id}/{index}",
                "tenantId": schedule.tenant,
                "owner": f"planner-{stream.between(1, 6)}@host-{stream.between(1, 9)}",
                "acquiredAt": moment(acquired),
                "expiresAt": moment(expires),
            }
        )


def workers(plan: Plan) -> Iterator[bytes]:
    """Yield workers, in the project's own shape: the columns in camelCase, BSON dates."""
    stream = plan.stream("workers")
    for index in range(plan.counts.workers):
        registered = stream.below(SPAN)
        yield bson.encode(
            {
                "_id": f"wrk_{hexadecimal(plan.seed, 'worker', index)}",
                "tenantId": "*",
                "kind": "scheduler" if index % 6 == 0 else "worker",
                "hostname": f"node-{index:03}.example",
                "pid": stream.between(300, 32_000),
                "version": "2.4.1",
                "queues": ["default", "policy"],
                "capacity": stream.pick((4, 8, 16)),
                "status": stream.pick(("active", "active", "active", "draining", "stopped", "dead")),
                "registeredAt": moment(registered),
                "lastHeartbeatAt": moment(registered + stream.below(86_400_000)),
                "metadata": {"zone": stream.pick(("a", "b", "c"))},
            }
        )


def execution_logs(plan: Plan) -> Iterator[bytes]:
    """Yield execution logs, in the project's own shape."""
    stream = plan.stream("execution-logs")
    numbers = list(_first_runs(plan))
    for index in range(plan.counts.execution_logs if numbers else 0):
        fact = numbers[index % len(numbers)]
        document: dict[str, Any] = {
            "_id": f"log_{hexadecimal(plan.seed, 'execution-log', index)}",
            "tenantId": fact.tenant,
            "runId": fact.id,
        }
        if fact.schedule is not None:
            document["scheduleId"] = plan.schedules[fact.schedule].id
        document["loggedAt"] = moment(fact.created + stream.below(60_000))
        document["level"] = stream.pick(_LEVELS)
        document["message"] = stream.pick(_MESSAGES)
        if stream.chance(0.6):
            document["context"] = {"images": stream.below(500), "queue": "default"}
        yield bson.encode(document)


def _first_runs(plan: Plan) -> Iterator[runs.RunFacts]:
    for fact in runs.facts(plan):
        if fact.number * 10 >= plan.counts.execution_logs:
            return
        yield fact
