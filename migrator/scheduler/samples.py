"""The scheduler's figures as samples: per tenant, and of its processes."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from migrator.errors import UsageError
from migrator.scheduler import health
from migrator.scheduler.exposition import Sample
from migrator.scheduler.metrics import Metrics
from migrator.scheduler.service import SchedulerService
from migrator.store.protocols import Store
from migrator.store.queue import SCRATCH
from migrator.store.validation import GLOBAL

SOMETIMES: Final = frozenset({"success_rate_percent", "failure_rate_percent", "run_duration_seconds"})
"""Figures that are there only where runs ended."""


def served(store: Store) -> list[str]:
    """Return the tenants that have schedules or runs, without ``*`` and those of verifications."""
    return [one for one in store.queue.tenants() if one != GLOBAL and not one.startswith(SCRATCH)]


def known_tenants(store: Store, tenants: Sequence[str]) -> Sequence[str]:
    """Return the tenants that were asked for; raise ``UsageError`` for one that has neither schedules nor runs."""
    there = store.queue.tenants() if tenants else ()
    for one in tenants:
        if one not in there:
            raise UsageError(f"unknown tenant {one}: no schedule and no run is of it")
    return tenants


def collect(store: Store, tenants: Sequence[str], *, now: datetime | None = None) -> list[Sample]:
    """Return the figures of these tenants, and of all processes."""
    latency = store.ping()
    status = SchedulerService(store, GLOBAL).status(now=now)
    found = [
        _one("database_latency_seconds", "How long the database took to answer.", latency.total_seconds()),
        _one("scheduler_leader", "1 where a scheduler process leads.", float(status.leader is not None)),
        _one("scheduler_leader_term", "Term of the leader, 0 without one.", status.leader.term if status.leader else 0),
    ]
    for alive, state in ((True, "alive"), (False, "dead")):
        count = len([one for one in status.instances if one.alive is alive])
        help_ = f"Processes by whether they spoke in the last {health.SILENT_FOR.total_seconds():g} s."
        found.append(_one("scheduler_instances", help_, count, state=state))
    for tenant in tenants:
        found += _of_tenant(tenant, SchedulerService(store, tenant).metrics(now=now))
    return found


def _of_tenant(tenant: str, metrics: Metrics) -> Iterator[Sample]:
    jobs, runs, queue = metrics.jobs, metrics.executions, metrics.queue
    for status in ("pending", "scheduled", "running", "paused", "completed", "failed", "cancelled"):
        yield _one("jobs", "Schedules by status.", getattr(jobs, status), tenant=tenant, status=status)
    for state in ("successful", "failed", "timeout", "cancelled", "skipped"):
        yield _one("runs_24h", "Runs made in 24 hours, by state.", getattr(runs, state), tenant=tenant, state=state)
    yield _one("runs_ready", "Runs queued and available.", queue.size, tenant=tenant)
    yield _one("runs_delayed", "Runs queued and available later.", queue.delayed, tenant=tenant)
    yield _one("runs_running", "Runs that are running.", queue.processing, tenant=tenant)
    yield _one(
        "runs_oldest_wait_seconds", "Wait of the run that is available longest.", queue.oldest_wait_s, tenant=tenant
    )
    performance = metrics.performance
    for name, part, rate in (
        ("success_rate_percent", "Completed", performance.success_rate),
        ("failure_rate_percent", "Failed", performance.failure_rate),
    ):
        if rate is not None:
            yield _one(name, f"{part} among the runs of 24 hours that were judged.", rate, tenant=tenant)
    for quantile, value in (
        ("0.5", performance.p50_duration_ms),
        ("0.95", performance.p95_duration_ms),
        ("0.99", performance.p99_duration_ms),
    ):
        if value is not None:
            yield _one(
                "run_duration_seconds",
                "Durations of completed runs, 24 hours.",
                value / 1000,
                tenant=tenant,
                quantile=quantile,
            )


def _one(name: str, help_: str, value: float, **labels: str) -> Sample:
    return Sample(name=name, help=help_, value=value, labels=labels)
