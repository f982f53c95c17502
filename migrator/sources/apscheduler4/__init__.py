"""APScheduler 4 (pre-releases): tasks, schedules, jobs and their results in its ``MongoDBDataStore``.

What the store writes plainly is described as a mapping. Triggers, arguments and results are binary values of its
serializer, JSON or pickle, which ``payloads`` reads as plain data. ``docs/sources-apscheduler.md`` says where each
goes.
"""

import msgspec

from migrator.sources.apscheduler4 import payloads
from migrator.sources.mapping.codec import profile_of_mapping
from migrator.sources.mapping.language import Field, Mapped, SourceMapping
from migrator.sources.profile import MONGODB, Measure


def _time(path: str, *columns: str, write_null: bool = True) -> Field:
    return Field(path=path, columns=columns, converter="time", encoding="seconds", write_null=write_null)


MAPPING = SourceMapping(
    name="apscheduler4",
    documents="4.0.0a6, serializers JSON and pickle",
    collections=(
        Mapped(
            name="tasks",
            tables=("handlers",),
            fields=(
                Field(path="_id", columns=("handlers.name",), converter="text"),
                Field(path="func", columns=("handlers.handler_path",), converter="text", write_null=True),
                Field(path="id", converter="own-id"),
                Field(path="job_executor", columns=("handlers.queue",), converter="text"),
            ),
            constants={"handlers.handler_type": "function"},
        ),
        Mapped(
            name="schedules",
            tables=("schedules", "triggers"),
            fields=(
                Field(path="_id", columns=("schedules.name",), converter="text"),
                Field(path="task_id", columns=("schedules.handler_name",), converter="text", required=True),
                Field(path="job_executor", columns=("schedules.queue",), converter="text"),
                _time("next_fire_time", "triggers.next_fire_at"),
                _time("last_fire_time", "triggers.last_fire_at"),
            ),
            constants={"schedules.handler_type": "function"},
            derive=payloads.derive_schedule,
            respell=payloads.respell_schedule,
            derived_paths=payloads.OF_SCHEDULES,
            measures=(
                Measure("task_id", "group", "$task_id", "handler_name"),
                Measure(
                    "paused",
                    "group",
                    {"$cond": [{"$eq": ["$paused", True]}, "true", "false"]},
                    "(status = 'paused')::text",
                ),
            ),
        ),
        Mapped(
            name="jobs",
            tables=("runs",),
            fields=(
                Field(path="schedule_id", columns=("runs.schedule_id",), converter="reference", collection="schedules"),
                _time("scheduled_fire_time", "runs.scheduled_at"),
                _time("created_at", "runs.created_at"),
                Field(path="acquired_by", columns=("runs.worker_id",), converter="text"),
                _time("acquired_until", "runs.lease_expires_at", write_null=False),
            ),
            derive=payloads.derive_job,
            respell=payloads.respell_run,
            derived_paths=payloads.OF_JOBS,
        ),
        Mapped(
            name="job_results",
            tables=("runs",),
            fields=(
                _time("started_at", "runs.started_at"),
                _time("finished_at", "runs.finished_at"),
            ),
            derive=payloads.derive_result,
            respell=payloads.respell_run,
            derived_paths=payloads.OF_RESULTS,
        ),
    ),
)

PROFILE = msgspec.structs.replace(
    profile_of_mapping(MAPPING, 1),
    servers=(MONGODB,),
    signs={
        "tasks": ("job_executor", "running_jobs"),
        "schedules": ("task_id", "trigger", "next_fire_time"),
        "jobs": ("task_id", "scheduled_fire_time"),
        "job_results": ("outcome", "finished_at"),
    },
    slots="",  # a job and its result are deleted, and with them the rows that say what was fired
    read_only="triggers and arguments are values of a serializer, which the tool reads as plain data and never writes",
)
"""The profile, with the library's own names of the collections."""
