"""Agenda 4, 5 and 6, hokify's fork and Pulse: schedulers for Node that keep their jobs in MongoDB.

One profile serves all of them. A job document is definition, state and last run in one; ``variants`` tells which
library wrote it. ``docs/sources-agenda.md`` says where each field goes.
"""

from functools import partial

from migrator.records import ExecutionLog, Run, Schedule, Trigger, WorkerRecord, attach_extra, remainder_of
from migrator.sources.agenda import jobs, logs, names, origin
from migrator.sources.agenda.aggregates import JOB_MEASURES, LOG_MEASURES
from migrator.sources.agenda.shapes import Job, Log
from migrator.sources.profile import Closing, Collection, Profile, Reference
from migrator.sources.shapes import known_paths


def _jobs(name: str, *, keep_uuid: bool) -> Collection:
    return Collection(
        name=name,
        tables=(Schedule, Trigger, Run),
        decode=partial(jobs.decode, collection=name, keep_uuid=keep_uuid),
        encode=jobs.encode,
        measures=JOB_MEASURES,
        attach=attach_extra,
        remainder=remainder_of,
        known=known_paths(Job),
    )


def _logs(name: str, jobs_name: str) -> Collection:
    return Collection(
        name=name,
        tables=(ExecutionLog,),
        decode=partial(logs.decode, collection=name, jobs=jobs_name),
        encode=logs.encode,
        references=(
            Reference(record=ExecutionLog, column="run_id", target=Run, collection=jobs_name, named=logs.job_named),
            Reference(
                record=ExecutionLog, column="schedule_id", target=Schedule, collection=jobs_name, named=logs.job_named
            ),
        ),
        after=(jobs_name,),
        measures=LOG_MEASURES,
        attach=attach_extra,
        remainder=remainder_of,
        known=known_paths(Log),
    )


_JOB_COLLECTIONS = (names.JOBS, names.PULSE_JOBS)

PROFILE = Profile(
    name=names.NAME,
    version=1,
    collections=(
        _jobs(names.JOBS, keep_uuid=True),
        _jobs(names.PULSE_JOBS, keep_uuid=False),
        _logs(names.LOGS, names.JOBS),
    ),
    closing=(
        Closing(
            record=WorkerRecord,
            pipelines=(
                *((name, origin.distinct("lastModifiedBy")) for name in _JOB_COLLECTIONS),
                (names.LOGS, origin.distinct("agendaName")),
            ),
            make=origin.derive_workers,
        ),
    ),
)
"""The profile, with the collection names of the libraries; ``[source] collections`` maps them to a deployment's own."""
