"""Legal changes of rows, as pure functions that every backend calls: runs, graph events, summaries."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from migrator import states
from migrator.constraints import most_of
from migrator.errors import TransitionError
from migrator.records import REMAINDER_KEY, GraphJob, GraphJobEvent, Run, RunSummary, Schedule
from migrator.store.validation import check_known, check_transition, duration_ms
from migrator.values import jsonb
from migrator.values.identity import row_id
from migrator.values.times import format_iso

if TYPE_CHECKING:
    from migrator.store.queue import Finish


_LARGEST: Final = 2**63 - 1
"""Of the numbers that a document of MongoDB holds."""
_LONGEST_MS: Final = timedelta.max // timedelta(milliseconds=1)

LAST_NUMBER = "lastRunNumber"
"""Member of a summary's counters: the highest run number ever given."""

TOTALS: Mapping[str, str] = {
    "deltas": "totalDeltas",
    "newCriticals": "totalNewCriticals",
    "newHigh": "totalNewHigh",
    "newMedium": "totalNewMedium",
    "newLow": "totalNewLow",
}
"""Member of a run's stats to the member of a summary's counters that adds it up (whole numbers only)."""


def check_update(expected: str, state: str) -> None:
    """Raise ``TransitionError`` unless a run that is ``expected`` may be written as ``state``."""
    if expected != state:
        check_transition("run", expected, state)
    elif states.is_terminal(states.RUN, state):
        raise TransitionError(f"a run that is {state} does not change any more")


def advanced_run(stored: Run, run: Run, now: datetime) -> Run:
    """Return the row that ``Runs.update`` writes over ``stored``."""
    ended = states.is_terminal(states.RUN, run.state)
    started = stored.started_at or run.started_at or (now if run.state == "running" else None)
    finished = (run.finished_at or now) if ended else None
    return msgspec.structs.replace(
        run,
        source=stored.source,
        source_id=stored.source_id,
        extra=stored.extra,
        created_at=stored.created_at,
        run_number=stored.run_number,
        started_at=started,
        finished_at=finished,
        duration_ms=duration_ms(started, finished),
        stats=merged_stats(stored.stats, run.stats),
        updated_at=now,
    )


def retry_after(retry: Run, ended: Run) -> Run:
    """Return a retry as it is inserted after the stored run that ends: without a trigger if that run has none now."""
    return retry if ended.trigger_id is not None else msgspec.structs.replace(retry, trigger_id=None)


def cancelled_run(stored: Run, reason: str, now: datetime) -> Run:
    """Return a live run as ``Runs.cancel`` changes it."""
    return msgspec.structs.replace(
        stored,
        state="cancelled",
        finished_at=now,
        duration_ms=duration_ms(stored.started_at, now),
        error=reason,
        lease_expires_at=None,
        updated_at=now,
    )


def claimed_run(stored: Run, worker_id: str, until: datetime, now: datetime) -> Run:
    """Return a queued run as ``Queue.claim`` changes it; ``until`` is the end of its lease."""
    started = stored.started_at or now
    return msgspec.structs.replace(
        stored,
        state="running",
        worker_id=worker_id,
        fence=(stored.fence or 0) + 1,
        lease_expires_at=until,
        started_at=started,
        duration_ms=duration_ms(started, stored.finished_at),
        updated_at=now,
    )


def ended_run(stored: Run, end: "Finish", now: datetime) -> Run:
    """Return a run that the worker still holds as ``Queue.finish`` changes it."""
    return msgspec.structs.replace(
        stored,
        state=end.state,
        result=end.result,
        error=end.error,
        error_detail=end.error_detail,
        finished_at=now,
        duration_ms=duration_ms(stored.started_at, now),
        lease_expires_at=None,
        updated_at=now,
    )


def released_run(stored: Run, now: datetime) -> Run:
    """Return a run that the worker still holds as ``Queue.release`` changes it."""
    return msgspec.structs.replace(
        stored, state="queued", worker_id=None, lease_expires_at=None, started_at=None, duration_ms=None, updated_at=now
    )


def is_held(run: Run, worker_id: str | None, fence: int) -> bool:
    """Return whether a run is running under this worker and fence; null counts as the empty text, and as 0."""
    return run.state == "running" and (run.worker_id or "", run.fence or 0) == (worker_id or "", fence)


def is_expired(run: Run, schedule: Schedule | None, now: datetime) -> bool:
    """Return whether a run is running past its lease, or past its schedule's timeout; a null one is never over."""
    if run.state != "running":
        return False
    if run.lease_expires_at is not None and run.lease_expires_at <= now:
        return True
    timeout = None if schedule is None else schedule.timeout_ms
    if timeout is None or run.started_at is None:
        return False
    return (now - run.started_at) >= timedelta(milliseconds=min(timeout, _LONGEST_MS))


def with_status(schedule: Schedule, status: str, now: datetime) -> Schedule:
    """Return a schedule whose status the queue changes."""
    completed = now if status == "completed" else schedule.completed_at
    return msgspec.structs.replace(schedule, status=status, updated_at=now, completed_at=completed)


def can_become(status: str, follower: str) -> bool:
    """Return whether a schedule's status may become another one, in one step or by way of running."""
    check_known("schedule state", states.SCHEDULE, (follower,))
    steps = states.SCHEDULE[status]
    return follower in steps or ("running" in steps and follower in states.SCHEDULE["running"] - {status})


def merged_stats(stored: bytes | None, given: bytes | None) -> bytes | None:
    """Return a run's stats: of each number the greater, and no member lost; the rest as given."""
    if stored is None or given is None or stored == given:
        return stored if given is None else given
    before, after = jsonb.decode(stored), jsonb.decode(given)
    if not isinstance(before, dict) or not isinstance(after, dict):
        return given
    merged = dict(before)
    for name, value in after.items():
        known = before.get(name)
        merged[name] = max(known, value) if _number(known) and _number(value) else value
    return jsonb.encode(merged)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def graph_event(job: GraphJob, now: datetime) -> GraphJobEvent:
    """Return the event of a status change: the source's envelope around the job; the backend assigns its id."""
    kinds = {code: kind for kind, code in states.GRAPH_JOB_TYPES.items()}
    names = {code: word for word, code in states.GRAPH_JOB_CODES.items()}
    body: Any = jsonb.decode(job.payload)
    if isinstance(body, dict):
        body = {name: value for name, value in body.items() if name not in {"_id", REMAINDER_KEY}}
    prefix = "gbj" if job.type == states.GRAPH_JOB_TYPES["build"] else "goj"
    payload = {
        "kind": f"scheduler.graph.job.{names[job.status]}",
        "tenant": job.tenant_id,
        "ts": format_iso(now),
        "payload": {
            "jobType": kinds[job.type],
            "job": {"id": f"{prefix}_{job.id.hex}"} | body if isinstance(body, dict) else body,
            "status": names[job.status],
            "occurredAt": format_iso(now),
        },
    }
    return GraphJobEvent(
        id=0, job_id=job.id, tenant_id=job.tenant_id, status=job.status, payload=jsonb.encode(payload), created_at=now
    )


def summary_id(tenant: str, schedule_id: UUID) -> UUID:
    """Return the id of a summary created here: that of the document ``<tenant>:sch_<hex>``."""
    return row_id("run_summaries", tenant, "run_summaries", f"{tenant}:sch_{schedule_id.hex}")


def summary(
    identity: UUID,
    tenant: str,
    schedule_id: UUID,
    *,
    counts: Mapping[str, int],
    totals: Mapping[str, int],
    newest: Sequence[Run],
    last_number: int,
    now: datetime,
) -> RunSummary:
    """Return a schedule's summary.

    ``counts`` are runs by state, ``totals`` sums by member of stats (see ``TOTALS``); zeros may be left out in both.
    ``newest`` are the newest runs, newest first; ``last_number`` is the highest run number ever, 0 if there was none.
    """
    entries = [_entry(run) for run in newest]
    counters: dict[str, int] = {"total": sum(counts.values())}
    counters |= {state: counts.get(state, 0) for state in states.RUN}
    counters |= {total: min(max(totals.get(member, 0), -_LARGEST), _LARGEST) for member, total in TOTALS.items()}
    counters[LAST_NUMBER] = last_number
    return RunSummary(
        id=identity,
        tenant_id=tenant,
        schedule_id=schedule_id,
        updated_at=now,
        last_run=jsonb.encode(entries[0]) if entries else None,
        recent=jsonb.encode(entries),
        counters=jsonb.encode(counters),
    )


def run_number(number: int) -> int | None:
    """Return the number of a run; None for one that is larger than its column holds: such a run has no number."""
    return number if number <= most_of("runs.run_number") else None


def whole_number(value: object) -> int:
    """Return a member of stats as it counts in ``TOTALS``: a whole number as it is, any other value as 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _entry(run: Run) -> dict[str, object]:
    stats: Any = jsonb.decode(run.stats) if run.stats is not None else {}
    deltas = stats.get("deltas") if isinstance(stats, dict) else None
    entry: dict[str, object | None] = {
        "runId": run.source_id or f"run_{run.id.hex}",
        "trigger": run.cause,
        "state": run.state,
        "createdAt": format_iso(run.created_at),
        "startedAt": None if run.started_at is None else format_iso(run.started_at),
        "finishedAt": None if run.finished_at is None else format_iso(run.finished_at),
        "error": run.error,
        "deltas": whole_number(deltas) if deltas is not None else None,
    }
    return {name: value for name, value in entry.items() if value is not None}
