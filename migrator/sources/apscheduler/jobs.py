"""Job documents of APScheduler 3: each becomes a schedule, and the trigger that makes it fire.

All that a job says stands in ``job_state``, a pickle, which is read by ``pickles`` and never unpickled. The pickle is
kept as it is (``metadata.job_state``, base64): ``encode`` gives it back and never writes one.
"""

import calendar
from base64 import b64encode
from binascii import a2b_base64
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from bson.binary import Binary

from migrator.records import Record, Schedule, Trigger
from migrator.sources import pickles
from migrator.sources.apscheduler.triggers import Timing, timing_of
from migrator.sources.pickled_values import instant_of, plain, text_of
from migrator.sources.pickles import ImportRefusedError, PickledDict, PickleRefusedError
from migrator.sources.profile import Context, Decoded, Document, Note, Rejected, Rows
from migrator.sources.shapes import indexed
from migrator.sources.tenants import tenant_of
from migrator.values import identity, jsonb

NAME: Final = "apscheduler"
JOBS: Final = "jobs"
VERSION: Final = 1
"""Of a job's state: the only one that APScheduler 3 writes and takes."""
DEFAULT_GRACE: Final = 1
"""Seconds; what the library sets if nobody says anything."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST: Final = 2**31 - 1


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a pickled job says."""

    id: Any
    func: str
    trigger: Any
    executor: str | None
    args: list[Any] | tuple[Any, ...]
    kwargs: PickledDict
    name: str
    misfire_grace_time: int | None
    coalesce: bool
    max_instances: int
    next_run_time: datetime | None


def decode(document: Document, context: Context) -> Decoded:
    """Return the rows of a job: its schedule, and its trigger if the target can evaluate it.

    Raises ``Rejected`` for a document without a readable pickle, and without a tenant.
    """
    for name in ("_id", "next_run_time", "job_state"):
        if name not in document:
            raise Rejected("missing-field", name, "a value")
    source_id = identity.source_id(document["_id"])
    due = moment_of(document["next_run_time"])
    state = state_of(document["job_state"])
    job = _job(state)
    notes: list[Note] = []
    tenant = tenant_of(None, context, [], path="")
    if job.id != document["_id"]:
        notes.append(Note("id-mismatch", "job_state.id"))
    if job.next_run_time != due:
        notes.append(Note("next-run-mismatch", "next_run_time"))
    timing = timing_of(job.trigger, notes)
    origin: dict[str, Any] = {"tenant_id": tenant, "source": f"{NAME}/{JOBS}", "source_id": source_id}
    schedule = Schedule(
        id=identity.row_id("schedules", tenant, JOBS, source_id, keep_uuid=True),
        **origin,
        name=indexed(job.name, "job_state.name"),
        enabled=due is not None,
        status="paused" if due is None else "pending" if timing.columns is None else "scheduled",
        handler_name=job.func,
        handler_type="function",
        queue=job.executor,
        payload=jsonb.encode({"args": plain(job.args), "kwargs": plain(job.kwargs)}),
        max_concurrency=job.max_instances,
        metadata=jsonb.encode(_facts(bytes(document["job_state"]), timing, due)),
    )
    rows: tuple[Record, ...] = (schedule,)
    if timing.columns is not None:
        origin["id"] = identity.row_id("triggers", tenant, JOBS, source_id, keep_uuid=True)
        rows = (schedule, _trigger(job, timing, due, notes, schedule_id=schedule.id, **origin))
    return Decoded(rows, tuple(notes))


def _facts(pickle: bytes, timing: Timing, due: datetime | None) -> dict[str, Any]:
    """Return the members without a column: the pickle, and without a trigger those that it would hold."""
    facts: dict[str, Any] = {"job_state": b64encode(pickle).decode()}
    if timing.columns is None:
        facts["trigger"] = timing.spec
        if due is not None:
            facts["next_run_time"] = seconds_of(due)
    return facts


def _trigger(job: Job, timing: Timing, due: datetime | None, notes: list[Note], **origin: Any) -> Trigger:  # noqa: ANN401 - ids and texts
    columns = dict(timing.columns or {})
    start, end = columns.get("start_at"), columns.get("end_at")
    enabled = due is not None
    if start is not None and end is not None and end <= start:
        notes.append(Note("empty-window", "job_state.trigger.end_date"))
        columns["start_at"] = columns["end_at"] = None
        enabled = False
    return Trigger(
        **origin,
        **columns,
        enabled=enabled,
        next_fire_at=due,
        misfire_policy=_policy(job),
        misfire_grace_ms=_grace(job),
        source_spec=jsonb.encode(timing.spec),
    )


def _policy(job: Job) -> str:
    """Return the treatment of late runs: APScheduler drops what is later than the grace, and nothing without one."""
    if job.misfire_grace_time is not None:
        return "skip"
    return "fire_once" if job.coalesce else "fire_all"


def _grace(job: Job) -> int | None:
    """Return the grace in milliseconds; None, a minute here, for the library's own default of one second.

    APScheduler sleeps until the very instant of a run. Workers ask from time to time, so one second would skip most.
    """
    if job.misfire_grace_time is None:
        return 0
    return None if job.misfire_grace_time == DEFAULT_GRACE else job.misfire_grace_time * 1_000


def encode(rows: Rows) -> Document:
    """Return the document: the pickle as it was kept, and the next run of the trigger."""
    schedule, trigger = rows[0], rows[1] if len(rows) > 1 else None
    assert isinstance(schedule, Schedule)  # noqa: S101 - the first table
    facts = jsonb.decode(schedule.metadata) if schedule.metadata is not None else {}
    if isinstance(trigger, Trigger):
        due = None if trigger.next_fire_at is None else seconds_of(trigger.next_fire_at)
    else:
        due = facts.get("next_run_time")
    document: Document = {
        "_id": identity.parse_source_id(schedule.source_id or ""),
        "next_run_time": None if due is None else float(due),
    }
    if "job_state" in facts:
        document["job_state"] = a2b_base64(facts["job_state"])
    return document


def moment_of(value: object) -> datetime | None:
    """Return the instant (aware, UTC) of seconds since 1970."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Rejected("wrong-type", "next_run_time", "double or null")
    try:
        return _EPOCH + timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise Rejected("out-of-range", "next_run_time", "seconds since 1970 in the years 1 to 9999") from None


def seconds_of(moment: datetime) -> float:
    """Return seconds since 1970 as APScheduler computes them, rounding included."""
    return calendar.timegm(moment.utctimetuple()) + moment.microsecond / 1_000_000


def state_of(value: object) -> PickledDict:
    """Return the pickled state of a job as plain data."""
    if not isinstance(value, bytes) or (isinstance(value, Binary) and value.subtype != 0):
        raise Rejected("wrong-type", "job_state", "binary")
    try:
        state = pickles.read(bytes(value))
    except ImportRefusedError as refused:
        raise Rejected("refused-import", "job_state", refused.expected) from None
    except PickleRefusedError as refused:
        raise Rejected("bad-pickle", "job_state", refused.expected) from None
    if not isinstance(state, PickledDict):
        raise Rejected("wrong-type", "job_state", "the state of a job")
    return state


_MEMBERS: Final[tuple[tuple[str, tuple[type, ...], str], ...]] = (
    ("func", (str,), "the reference of a function"),
    ("executor", (str, type(None)), "text"),
    ("args", (list, tuple), "a tuple"),
    ("kwargs", (PickledDict,), "a dict"),
    ("name", (str,), "text"),
    ("misfire_grace_time", (int, type(None)), "whole seconds or None"),
    ("coalesce", (bool, int), "bool"),
    ("max_instances", (int,), "a whole number"),
)
_NEEDED: Final = ("id", "trigger", "next_run_time", *(name for name, _, _ in _MEMBERS))
_ALL_NEEDED: Final = frozenset(_NEEDED)


def _job(state: PickledDict) -> Job:
    """Return a job's members; raises ``Rejected`` for the first one that is missing or of a wrong type."""
    members = state.named()
    if members.get("version", VERSION) != VERSION:
        raise Rejected("unknown-value", "job_state.version", str(VERSION))
    if not members.keys() >= _ALL_NEEDED:
        missing = next(name for name in _NEEDED if name not in members)
        raise Rejected("missing-field", f"job_state.{missing}", "a value")
    for name, kinds, expected in _MEMBERS:
        value = members[name]
        kind = type(value)
        if kind not in kinds:
            raise Rejected("wrong-type", f"job_state.{name}", expected)
        if kind is str and not value.isascii():
            text_of(value, f"job_state.{name}")
    for name in ("misfire_grace_time", "max_instances"):
        if members[name] is not None and not 0 < members[name] <= _LONGEST:
            raise Rejected("out-of-range", f"job_state.{name}", f"a whole number from 1 to {_LONGEST}")
    due = members["next_run_time"]
    return Job(
        id=members["id"],
        func=members["func"],
        trigger=members["trigger"],
        executor=members["executor"],
        args=members["args"],
        kwargs=members["kwargs"],
        name=members["name"],
        misfire_grace_time=members["misfire_grace_time"],
        coalesce=bool(members["coalesce"]),
        max_instances=members["max_instances"],
        next_run_time=None if due is None else instant_of(due, "job_state.next_run_time"),
    )
