"""Metrics of a scheduler for machines: samples, thresholds, and the five key metrics.

The key metrics are those that people watch while a scheduler is moved: how many runs, how long they
take, how many fail, how many connections the database has, and how many runs wait, over all tenants of one backend.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from migrator.errors import UnreachableError, UsageError
from migrator.prometheus import PREFIX, Sample
from migrator.scheduler import health, queries
from migrator.scheduler.client import Scheduler
from migrator.scheduler.queries import Metrics
from migrator.store.protocols import Store
from migrator.store.queue import served_tenants
from migrator.store.statistics import RunFilter


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """A bound on every sample of a name."""

    name: str
    bound: Literal["max", "min"]
    value: float

    def crossed_by(self, sample: Sample) -> bool:
        """Whether a sample lies beyond the bound; the bound itself does not."""
        if sample.name != self.name:
            return False
        return sample.value > self.value if self.bound == "max" else sample.value < self.value


def parse_threshold(bound: Literal["max", "min"], given: str) -> Threshold:
    """Return the threshold of ``NAME=VALUE``; raises ``UsageError``."""
    name, _, value = given.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):  # nothing is beyond it, or everything
        raise UsageError(f"--{bound}: expected NAME=NUMBER, a number that is finite")
    return Threshold(name=name.removeprefix(PREFIX), bound=bound, value=number)


def crossed(samples: Sequence[Sample], thresholds: Sequence[Threshold], known: Collection[str] = ()) -> Iterator[str]:
    """Yield a sentence per sample beyond a threshold.

    Raises ``UsageError`` for a name that there is not. ``known`` are names of samples that may be absent now (a rate
    of nothing): they cross no threshold then.
    """
    names = {sample.name for sample in samples}.union(known)
    for threshold in thresholds:
        if threshold.name not in names:
            raise UsageError(f"no metric {threshold.name}; there are: {', '.join(sorted(names))}")
        for sample in samples:
            if threshold.crossed_by(sample):
                labels = ", ".join(f"{label} {value}" for label, value in sorted(sample.labels.items()))
                where = f" ({labels})" if labels else ""
                yield (f"{sample.name}{where} is {_number(sample.value)}, {threshold.bound} {_number(threshold.value)}")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


OPTIONAL_SAMPLES: Final = frozenset({"success_rate_percent", "failure_rate_percent", "run_duration_seconds"})
"""Samples that exist only where runs ended."""


def known_tenants(store: Store, tenants: Sequence[str]) -> Sequence[str]:
    """Return the tenants that were asked for; raise ``UsageError`` for one that has neither schedules nor runs."""
    known = store.queue.tenants() if tenants else ()
    for tenant in tenants:
        if tenant not in known:
            raise UsageError(f"unknown tenant {tenant}: no schedule and no run is of it")
    return tenants


def collect_samples(store: Store, tenants: Sequence[str], *, now: datetime | None = None) -> list[Sample]:
    """Return the samples of these tenants, and of all processes."""
    latency = store.ping()
    status = health.status_of(store, (), silent_for=health.SILENT_FOR, now=now)
    samples = [
        _sample("database_latency_seconds", "Response time of the database.", latency.total_seconds()),
        _sample("scheduler_leader", "1 if a scheduler process is the leader.", float(status.leader is not None)),
        _sample(
            "scheduler_leader_term", "Term of the leader, 0 without one.", status.leader.term if status.leader else 0
        ),
    ]
    for alive, state in ((True, "alive"), (False, "dead")):
        count = len([one for one in status.instances if one.alive is alive])
        help_ = f"Processes by whether they sent a heartbeat in the last {health.SILENT_FOR.total_seconds():g} s."
        samples.append(_sample("scheduler_instances", help_, count, state=state))
    for tenant in tenants:
        samples += _tenant_samples(tenant, Scheduler(store, tenant).metrics(now=now))
    return samples


def _tenant_samples(tenant: str, metrics: Metrics) -> Iterator[Sample]:
    jobs, runs, queue = metrics.jobs, metrics.executions, metrics.queue
    for status in ("pending", "scheduled", "running", "paused", "completed", "failed", "cancelled"):
        yield _sample("jobs", "Schedules by status.", getattr(jobs, status), tenant=tenant, status=status)
    for state in ("successful", "failed", "timeout", "cancelled", "skipped"):
        yield _sample("runs_24h", "Runs made in 24 hours, by state.", getattr(runs, state), tenant=tenant, state=state)
    yield _sample("runs_ready", "Runs queued and available.", queue.size, tenant=tenant)
    yield _sample("runs_delayed", "Runs queued and available later.", queue.delayed, tenant=tenant)
    yield _sample("runs_running", "Runs that are running.", queue.processing, tenant=tenant)
    yield _sample(
        "runs_oldest_wait_seconds",
        "Waiting time of the run that has been available longest.",
        queue.oldest_wait.total_seconds(),
        tenant=tenant,
    )
    performance = metrics.performance
    for name, part, rate in (
        ("success_rate_percent", "Completed", performance.success_rate),
        ("failure_rate_percent", "Failed", performance.failure_rate),
    ):
        if rate is not None:
            yield _sample(name, f"{part} among the runs of 24 hours that completed or failed.", rate, tenant=tenant)
    for quantile, value in (
        ("0.5", performance.p50_duration),
        ("0.95", performance.p95_duration),
        ("0.99", performance.p99_duration),
    ):
        if value is not None:
            yield _sample(
                "run_duration_seconds",
                "Durations of completed runs, 24 hours.",
                value.total_seconds(),
                tenant=tenant,
                quantile=quantile,
            )


def _sample(name: str, help_: str, value: float, **labels: str) -> Sample:
    return Sample(name=name, help=help_, value=value, labels=labels)


KEY_METRICS_WINDOW: Final = timedelta(hours=1)
"""Up to the moment at which they are taken; runs count by when they were made."""


class KeyMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The five, as they were at one moment."""

    taken_at: datetime
    """By the database's clock."""
    runs: int
    """Made in the window."""
    duration_ms: float | None
    """Mean of the completed ones; none where none completed."""
    failure_percent: float | None
    """Of those that have shown whether they succeed; none where none has."""
    connections: int | None
    """Connections to the database (MongoDB: to the server); None if the user may not read them."""
    ready: int
    """Runs that are queued and available, whenever they were made."""


class KeyMetric(msgspec.Struct, frozen=True, kw_only=True):
    """How one of the five is called."""

    field: str
    """Name of the field of ``KeyMetrics``."""
    words: str
    sample: str
    help: str
    scale: float = 1.0
    """From the field to the sample's unit."""
    wanted: str
    """What people expect to see after the move."""


KEY_METRICS: Final = (
    KeyMetric(
        field="runs",
        words="runs in the last hour",
        sample="overall_runs_1h",
        help="Runs of all tenants made in the last hour.",
        wanted="about the same",
    ),
    KeyMetric(
        field="duration_ms",
        words="mean duration, ms",
        sample="overall_run_duration_seconds",
        help="Mean duration of completed runs of all tenants, last hour.",
        scale=0.001,
        wanted="not longer",
    ),
    KeyMetric(
        field="failure_percent",
        words="failed, percent",
        sample="overall_failure_rate_percent",
        help="Failed among the runs of all tenants that completed or failed, last hour.",
        wanted="near 0",
    ),
    KeyMetric(
        field="connections",
        words="connections to the database",
        sample="database_connections",
        help="Connections to the database; on MongoDB, to the server.",
        wanted="fewer",
    ),
    KeyMetric(
        field="ready",
        words="waiting runs",
        sample="overall_runs_ready",
        help="Runs of all tenants queued and available.",
        wanted="few",
    ),
)

OPTIONAL_KEY_SAMPLES: Final = frozenset(
    {"overall_run_duration_seconds", "overall_failure_rate_percent", "database_connections"},
)
"""Samples that are there only where there is something to tell."""


def take_key_metrics(
    store: Store,
    *,
    now: datetime | None = None,
    within: timedelta = timedelta.max,
    monotonic: Callable[[], float] = time.monotonic,
) -> KeyMetrics:
    """Ask the store for the key metrics of this moment; ``now`` if omitted: the database's clock.

    Tenants are asked one after the other; raises ``UnreachableError`` where that is not done ``within`` so long.
    """
    end = monotonic() + within.total_seconds()
    at = store.now() if now is None else now
    by_state: Counter[str] = Counter()
    lasted = completed = ready = 0
    for tenant in served_tenants(store.queue):
        if monotonic() > end:
            raise UnreachableError(f"the key metrics of all tenants take longer than {within.total_seconds():g} s")
        with store.session(tenant, now=now) as session:
            runs, backlog = (
                session.statistics.runs(RunFilter(since=at - KEY_METRICS_WINDOW)),
                session.statistics.backlog(),
            )
        by_state.update(runs.by_state)
        ready += backlog.ready
        if runs.durations is not None:
            lasted, completed = lasted + runs.durations.total, completed + runs.durations.count
    return KeyMetrics(
        taken_at=at,
        runs=sum(by_state.values()),
        duration_ms=round(lasted / completed, 1) if completed else None,
        failure_percent=queries.failure_rate(by_state),
        connections=store.connections(),
        ready=ready,
    )


def key_samples(metrics: KeyMetrics, *, prefix: str = "", **labels: str) -> Iterator[Sample]:
    """Yield a sample per key metric that is known, for Prometheus."""
    for metric in KEY_METRICS:
        value = getattr(metrics, metric.field)
        if value is not None:
            yield Sample(
                name=prefix + metric.sample, help=metric.help, value=round(value * metric.scale, 6), labels=labels
            )
