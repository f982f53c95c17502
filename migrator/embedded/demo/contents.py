"""Every collection of the demo, in the order in which it is written."""

from collections.abc import Callable, Iterator

from migrator.embedded.demo import graph, operations, policy, runs, schedules, snapshots
from migrator.embedded.demo.plan import COUNTS, Plan, Size

COLLECTIONS: dict[str, Callable[[Plan], Iterator[bytes]]] = {
    "schedules": schedules.documents,
    "triggers": schedules.triggers,
    "runs": runs.documents,
    "run_summaries": runs.summaries,
    "impact_snapshots": snapshots.documents,
    "audit": operations.audit,
    "policy_runs": policy.run_documents,
    "policy_jobs": policy.job_documents,
    "graph_jobs": graph.job_documents,
    "graph_job_events": graph.event_documents,
    "locks": operations.locks,
    "workers": operations.workers,
    "execution_logs": operations.execution_logs,
}
"""Generators of clean documents as raw BSON; ``triggers`` stays empty unless the plan asks for it."""


def plan_of(size: Size, seed: int, *, triggers: bool = False) -> Plan:
    """Return the plan of a demo database of that size."""
    return Plan(seed=seed, counts=COUNTS[size], triggers=triggers)
