"""What ``migrator jobs`` prints of jobs, triggers and runs: columns of their records, as JSON and as lines.

What a record holds beyond that (the payload, what a run was given and returned) is not printed.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import msgspec

from migrator.cli.text import count_words, table_lines
from migrator.records import Run, Trigger
from migrator.scheduler import firing
from migrator.scheduler.models import Job
from migrator.scheduler.operations import DATABASES, JobDetails, JobHistory, JobList, ListedJob
from migrator.store.queue import handler_of

View: TypeAlias = dict[str, Any]
"""A JSON object."""

_MILLISECOND: Final = timedelta(milliseconds=1)
_RUN: Final = (
    *("id", "attempt", "state", "cause", "triggered_by", "created_at", "scheduled_at", "started_at", "finished_at"),
    *("duration_ms", "retry_of", "error"),
)
_TRIGGER: Final = ("id", "kind", "enabled", "next_fire_at", "last_fire_at", "fire_count", "max_fires")
_JOB: Final = ("id", "source_id", "name", "enabled")
_DETAILS: Final = (
    *("description", "queue", "priority", "max_retries", "retry_count", "timeout_ms", "max_concurrency"),
    *("created_by", "updated_by"),
)
"""Columns that are members of the same name."""


def _run_view(run: Run) -> View:
    return {name: getattr(run, name) for name in _RUN} | {"number": run.run_number}


def _trigger_view(trigger: Trigger) -> View:
    return {name: getattr(trigger, name) for name in _TRIGGER} | {"timing": _timing(trigger)}


def _job_view(listed: ListedJob) -> View:
    schedule = listed.job.schedule
    return {name: getattr(schedule, name) for name in _JOB} | {
        "tenant": schedule.tenant_id,
        "state": listed.job.state,
        "handler": handler_of(schedule),
        "tags": schedule.tags or (),
        "next_fire_at": listed.job.next_fire_at,
        "last_run": None if listed.last_run is None else _run_view(listed.last_run),
    }


def list_view(found: JobList) -> View:
    """Return a page of jobs as JSON."""
    return msgspec.structs.asdict(found) | {"jobs": [_job_view(one) for one in found.jobs]}


def details_view(details: JobDetails, *, payload: bool) -> View:
    """Return a job as JSON; ``payload``: with its payload."""
    schedule, stats = details.job.schedule, details.stats
    return {
        **_job_view(details),
        **{name: getattr(schedule, name) for name in _DETAILS},
        "triggers": [_trigger_view(one) for one in details.job.triggers],
        "runs": [_run_view(one) for one in details.runs],
        "run_counts": stats.by_state,
        "success_rate": stats.success_rate,
        "avg_duration_ms": None if stats.avg_duration is None else stats.avg_duration / _MILLISECOND,
        "next_fires": details.next_fires,
        "payload": msgspec.Raw(schedule.payload) if payload and schedule.payload is not None else None,
    }


def created_view(job: Job, backend: str, *, dry_run: bool) -> View:
    """Return a job that was created as JSON; one that would be has no id."""
    view = _job_view(ListedJob(job=job, last_run=None))
    return {
        "backend": backend,
        "dry_run": dry_run,
        "job": view
        | {name: getattr(job.schedule, name) for name in _DETAILS}
        | ({"id": None, "source_id": None} if dry_run else {})
        | {"triggers": [_timing(trigger) for trigger in job.triggers]},
    }


def created_line(job: Job, backend: str, *, dry_run: bool) -> str:
    """Return the line for a job that was created, or would be."""
    schedule, (trigger,) = job.schedule, job.triggers
    verb = "would create" if dry_run else "created"
    fires = job.state if job.state != "scheduled" else f"next fire {time_text(job.next_fire_at)}"
    identity = "" if dry_run else f" ({job.id})"
    return (
        f"{verb} in {DATABASES[backend]}: {schedule.tenant_id}/{schedule.name}{identity}, {_timing(trigger)}, {fires}"
    )


def history_view(found: JobHistory) -> View:
    """Return runs of a job as JSON."""
    return msgspec.structs.asdict(found) | {"runs": [_run_view(one) for one in found.runs]}


def list_lines(listed: JobList) -> Iterator[str]:
    """Yield a page of jobs as a table."""
    if listed.jobs:
        rows = [
            (
                str(one.job.id),
                one.job.schedule.tenant_id,
                one.job.schedule.name,
                _state(one),
                time_text(one.job.next_fire_at),
                "-" if one.last_run is None else f"{one.last_run.state} {time_text(one.last_run.finished_at)}",
            )
            for one in listed.jobs
        ]
        yield from table_lines(("id", "tenant", "name", "state", "next fire", "last outcome"), rows)
    last = listed.offset + len(listed.jobs)
    place = f"{listed.offset + 1:,} to {last:,} of " if listed.jobs else ""
    rest = f"; next page: --offset {last}" if listed.jobs and last < listed.total else ""
    yield f"{place}{count_words(listed.total, 'job')} in {DATABASES[listed.backend]}{rest}"


def details_lines(details: JobDetails, *, payload: bool) -> Iterator[str]:
    """Yield a job for a terminal; ``payload``: with its payload."""
    schedule, stats = details.job.schedule, details.stats
    yield f"{schedule.tenant_id}/{schedule.name}"
    facts = {
        "id": schedule.id,
        "id in the source": schedule.source_id,
        "state": _state(details),
        "description": schedule.description,
        "handler": handler_of(schedule),
        "queue": schedule.queue,
        "tags": ", ".join(schedule.tags or ()) or None,
        "priority": schedule.priority,
        "retries": schedule.max_retries,
        "timeout": None if schedule.timeout_ms is None else f"{schedule.timeout_ms:,} ms",
        "runs at a time": schedule.max_concurrency,
        "created by": schedule.created_by,
        "updated by": schedule.updated_by,
    }
    yield from (f"  {name}: {value}" for name, value in facts.items() if value is not None)
    for trigger in details.job.triggers:
        off = "" if trigger.enabled else ", disabled"
        most = f" of {trigger.max_fires:,}" if trigger.max_fires is not None else ""
        yield (
            f"trigger {trigger.id}: {_timing(trigger)}{off}; fired {trigger.fire_count:,}{most},"
            f" last {time_text(trigger.last_fire_at)}, next {time_text(trigger.next_fire_at)}"
        )
    counts = ", ".join(f"{state} {count:,}" for state, count in stats.by_state.items() if count)
    rate = "" if stats.success_rate is None else f"; success rate {stats.success_rate:g} %"
    mean = "" if stats.avg_duration is None else f", {stats.avg_duration / _MILLISECOND:,.0f} ms on average"
    yield f"runs: {sum(stats.by_state.values()):,} ({counts or 'none'}){rate}{mean}"
    yield from (f"  {line}" for line in (run_lines(details.runs) if details.runs else ()))
    yield f"next fires: {', '.join(map(time_text, details.next_fires)) or 'none'}"
    if payload and schedule.payload is not None:
        yield f"payload: {schedule.payload.decode()}"


def run_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Yield runs as a table."""
    rows = [
        (
            str(one.id),
            time_text(one.created_at),
            one.state,
            one.cause or "-",
            "-" if one.attempt is None else str(one.attempt),
            "-" if one.duration_ms is None else f"{one.duration_ms:,} ms",
            one.error or "",
        )
        for one in runs
    ]
    return table_lines(("run", "created", "state", "cause", "attempt", "duration", "error"), rows)


def time_text(at: datetime | None) -> str:
    """Return a time in UTC, to the second; ``-`` for none."""
    return "-" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def _state(found: ListedJob) -> str:
    return found.job.state if found.job.schedule.enabled else f"{found.job.state}, disabled"


def _timing(trigger: Trigger) -> str:
    if trigger.kind == "cron":
        return f"{trigger.cron_expression} ({trigger.cron_dialect}, {trigger.timezone or 'UTC'})"
    if trigger.kind == "interval":
        since = "the end of the last run" if firing.counted_from_completion(trigger) else "the last slot"
        return f"every {trigger.interval} since {since}"
    if trigger.kind == "one_time":
        return "once" if trigger.run_at is None else f"once, {trigger.run_at:%Y-%m-%d %H:%M:%S}Z"
    return f"at each event {trigger.event_name}"
