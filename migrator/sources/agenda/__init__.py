"""Agenda 4, 5 and 6, hokify's fork and Pulse: schedulers for Node that keep their jobs in MongoDB.

One profile serves all of them. A job document is definition, state and last run in one; ``variants`` tells which
library wrote it. ``docs/sources-agenda.md`` says where each field goes.
"""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from migrator.records.execution_log import ExecutionLog
from migrator.records.residue import attach_extra, residue_of
from migrator.records.run import Run
from migrator.records.schedule import Schedule
from migrator.records.trigger import Trigger
from migrator.records.worker import Worker
from migrator.sources.agenda import jobs, logs, names, rebuild, workers
from migrator.sources.agenda.measures import JOB_MEASURES, LOG_MEASURES
from migrator.sources.agenda.shapes import Job, Log
from migrator.sources.profile import Closing, Collection, Profile, Reference
from migrator.sources.shapes import known_paths

DEFAULT_NAMES: Mapping[str, str] = MappingProxyType({name: name for name in (names.JOBS, names.PULSE_JOBS, names.LOGS)})
"""Every collection of the profile, and what it is called unless the program that uses the library says otherwise."""


def profile(called: Mapping[str, str] = DEFAULT_NAMES) -> Profile:
    """Return the profile for collections of other names; ``called`` maps default names to the real ones.

    Ids are computed from the real name, so one deployment must keep to one spelling.
    """
    real = {**DEFAULT_NAMES, **called}
    job_names = (real[names.JOBS], real[names.PULSE_JOBS])
    return Profile(
        name=names.NAME,
        version=1,
        collections=(
            _jobs(job_names[0], keep_uuid=True),
            _jobs(job_names[1], keep_uuid=False),
            _logs(real[names.LOGS], job_names[0]),
        ),
        closing=(
            Closing(
                record=Worker,
                pipelines=(
                    *((name, workers.distinct("lastModifiedBy")) for name in job_names),
                    (real[names.LOGS], workers.distinct("agendaName")),
                ),
                make=workers.derive_workers,
            ),
        ),
    )


def _jobs(name: str, *, keep_uuid: bool) -> Collection:
    return Collection(
        name=name,
        tables=(Schedule, Trigger, Run),
        decode=partial(jobs.decode, collection=name, keep_uuid=keep_uuid),
        encode=rebuild.encode,
        measures=JOB_MEASURES,
        attach=attach_extra,
        residue=residue_of,
        known=known_paths(Job),
    )


def _logs(name: str, jobs_name: str) -> Collection:
    return Collection(
        name=name,
        tables=(ExecutionLog,),
        decode=partial(logs.decode, collection=name, jobs=jobs_name),
        encode=logs.encode,
        references=(
            Reference(record=ExecutionLog, column="run_id", target=Run),
            Reference(record=ExecutionLog, column="schedule_id", target=Schedule),
        ),
        after=(jobs_name,),
        measures=LOG_MEASURES,
        attach=attach_extra,
        residue=residue_of,
        known=known_paths(Log),
    )


PROFILE = profile()
