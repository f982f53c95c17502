"""Agenda 4, 5 and 6, hokify's fork and Pulse: schedulers for Node that keep their jobs in MongoDB.

One mapping serves all of them: a field that a library does not know is never there. Node writes an integer beyond 32
bits as a double, so every number here may be one. ``docs/sources-agenda.md`` says where each field goes.
"""

from functools import partial
from typing import Any

import msgspec

from migrator import states
from migrator.records import ExecutionLog, Run, Schedule, WorkerRecord
from migrator.sources.agenda import jobs, logs, workers, write_back
from migrator.sources.agenda.aggregates import JOB_MEASURES, LOG_MEASURES
from migrator.sources.mapping.codec import profile_of_mapping
from migrator.sources.mapping.language import Field, Mapped, SourceMapping
from migrator.sources.mapping.outlines import Outline, native_of
from migrator.sources.profile import DerivedRows, History, NextFire, Reference
from migrator.sources.shapes import Int32

NAME = "agenda"
JOBS = "agendaJobs"
"""Default name of the collection of Agenda 4, 5 and 6 and of hokify's fork."""
PULSE_JOBS = "pulseJobs"
LOGS = "agenda_logs"

_NUMBER = int | float


def _derived(converter: str, *paths: str, shape: Any = None) -> tuple[Field, ...]:  # noqa: ANN401 - an annotation
    """Return fields of one type, from several of which columns follow."""
    return tuple(Field(path=path, converter=converter, shape=shape) for path in paths)


def _context(path: str, converter: str = "text", shape: Any = None) -> Field:  # noqa: ANN401 - an annotation
    """Return a field that has no column of its own: the context of the line holds it under its own name."""
    return Field(path=path, columns=(f"execution_logs.context.{path}",), converter=converter, shape=shape)


_JOB_FIELDS = (
    Field(path="_id", columns=("schedules.created_at",), converter="id-time"),
    Field(path="name", columns=("schedules.handler_name",), converter="text", required=True),
    Field(path="lastModifiedBy", columns=("schedules.updated_by", "runs.worker_id"), converter="text"),
    *_derived("text", "type", "failReason", "repeatTimezone", "repeatAt"),
    *_derived("time", *jobs.TIMES, "debounceStartedAt"),
    *_derived("json", "data", "result", "startDate", "endDate"),
    *_derived("json", "priority", "failCount", "progress", "runCount", "finishedCount", shape=_NUMBER),
    *_derived("json", "repeatInterval", shape=str | _NUMBER),
    *_derived("json", "skipDays", shape=str | list[_NUMBER]),
    *_derived("flag", "disabled", "shouldSaveResult", "fork"),
    Field(path="attempts", columns=("schedules.max_retries",), converter="number", shape=Int32),
    *_derived("json", "backoff", shape=jobs.Backoff),
)
_LOG_FIELDS = (
    Field(
        path="level",
        columns=("execution_logs.level",),
        converter="words",
        words={word: word for word in states.LOG_LEVELS},
        required=True,
    ),
    *(_context(path) for path in ("event", "jobId", "jobName")),
    Field(path="message", columns=("execution_logs.message",), converter="text"),
    *(_context(path, "json", _NUMBER) for path in ("duration", "retryDelay", "retryAttempt")),
    _context("error"),
    _context("failCount", "json", _NUMBER),
    Field(path="timestamp", columns=("execution_logs.logged_at",), converter="time", required=True),
    _context("agendaName"),
    _context("meta", "json", dict[str, Any]),
)


def _jobs(name: str) -> Mapped:
    return Mapped(
        name=name,
        tables=("schedules", "triggers", "runs"),
        fields=_JOB_FIELDS,
        constants={"schedules.handler_type": "function"},
        rows={"runs": ("lastRunAt", "lockedAt")},
        derive=partial(jobs.derive, collection=name, keep_uuid=name == JOBS),
        respell=jobs.respell,
        measures=JOB_MEASURES,
        history=History(
            at="lastFinishedAt",
            empty=("nextRunAt", "lockedAt", "repeatInterval", "repeatAt"),
            begun="lastRunAt",
        ),
    )


_OUTLINE = Outline(
    texts=("name", "lastModifiedBy"),
    times=(*jobs.TIMES, "debounceStartedAt", "startDate", "endDate"),
    json=("data",),
    created="schedules.created_at",
    parents={
        "triggers.schedule_id": "schedules",
        "runs.schedule_id": "schedules",
        "runs.trigger_id": "triggers",
    },
    shifts=(jobs.LOCK_LIFETIME,),
)
"""What the rules of ``jobs`` copy of a job, and do not look at; they compare its times with each other alone."""

MAPPING = SourceMapping(
    name=NAME,
    documents="Agenda 4.4.0, 5.0.0 and 6.2.6, hokify 6.3.0, Pulse 1.6.8",
    collections=(
        _jobs(JOBS),
        _jobs(PULSE_JOBS),
        Mapped(
            name=LOGS,
            tables=("execution_logs",),
            fields=_LOG_FIELDS,
            derive=partial(logs.refer, jobs=JOBS),
            measures=LOG_MEASURES,
            history=History(at="timestamp"),
        ),
    ),
)
_MAPPED = profile_of_mapping(MAPPING, version=1)
_REFERENCES = tuple(
    Reference(record=ExecutionLog, column=column, target=target, collection=JOBS, named=logs.job_named)
    for column, target in (("run_id", Run), ("schedule_id", Schedule))
)

# Agenda 6 makes an ObjectId of every _id.
PROFILE = msgspec.structs.replace(
    _MAPPED,
    signs={
        JOBS: ("name", "type", "nextRunAt", "priority"),
        PULSE_JOBS: ("name", "type", "nextRunAt", "priority"),
        LOGS: ("event", "jobId", "agendaName"),
    },
    slots="moves",
    collections=(
        *(
            msgspec.structs.replace(
                one,
                object_ids=True,
                adapt=write_back.adapt,
                next_fire=NextFire(field="nextRunAt"),
                native=native_of(one, _OUTLINE),
            )
            for one in _MAPPED.collections[:2]
        ),
        msgspec.structs.replace(_MAPPED.collections[2], references=_REFERENCES, after=(JOBS,), new_documents=False),
    ),
    closing=(
        DerivedRows(
            record=WorkerRecord,
            pipelines=(
                (JOBS, workers.distinct("lastModifiedBy")),
                (PULSE_JOBS, workers.distinct("lastModifiedBy")),
                (LOGS, workers.distinct("agendaName")),
            ),
            make=workers.derive_workers,
        ),
    ),
)
"""The profile, with the collection names of the libraries; ``[source] collections`` maps them to a deployment's own."""
