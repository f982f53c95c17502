"""The old side of ``support_center``: a job list in code, without a table, a history or a next run to copy."""

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any, Final

import msgspec

from migrator.records import Schedule, Trigger
from migrator.sources.profile import Context, Decoded, Note, Rows
from migrator.sources.rows import (
    Origin,
    Row,
    collection_of,
    find,
    key_text,
    next_fire_of,
    read_row,
    tenant_of,
    text_of_key,
    the,
)
from migrator.sources.shapes import indexed
from migrator.sources.support_center import names
from migrator.sources.support_center.jobs import interval_of
from migrator.sources.support_center.shapes import InProcessJob
from migrator.values import jsonb

JOB_LIST: Final[tuple[Row, ...]] = (
    {
        "id": "sync_domain_users",
        "handler": "sync_domain_users",
        "interval": {"hours": 1},
        "kwargs": {},
        "max_instances": 1,
        "replace_existing": True,
    },
    {
        "id": "session_cleanup",
        "handler": "session_cleanup",
        "interval": {"hours": 24},
        "kwargs": {"retention_days": 7},
        "max_instances": 1,
        "replace_existing": True,
    },
    {
        "id": "desktop_session_cleanup",
        "handler": "desktop_session_cleanup",
        "interval": {"minutes": 1},
        "kwargs": {"timeout_minutes": 2},
        "max_instances": 1,
        "replace_existing": True,
    },
)
"""The three jobs that each of the source's processes schedules by itself."""


def decode(row: Row, context: Context) -> Decoded:
    """Return the schedule and its trigger. A keyword left out is none of the library's mistakes: no finding."""
    job = read_row(row, InProcessJob)
    # The table of jobs comes first and keeps its UUIDs.
    origin = Origin(names.NAME, names.IN_PROCESS, tenant_of(context), key_text(row), keep_uuid=False)
    notes: list[Note] = []
    cause = interval_of(job.interval, "interval", notes)
    schedule = Schedule(
        **origin.columns(Schedule),
        name=indexed(job.id, "id"),
        status="scheduled",
        handler_name=job.handler,
        handler_type="async_function",
        payload=jsonb.encode(job.kwargs) if job.kwargs else None,
        max_concurrency=job.max_instances,
    )
    trigger = Trigger(
        **origin.columns(Trigger),
        schedule_id=schedule.id,
        next_fire_at=next_fire_of(cause, None, fires=True, as_of=context.as_of, column="interval", notes=notes),
        source_spec=jsonb.encode(job.interval),
        **cause,
    )
    kept = tuple(note for note in notes if note.kind != "short-schedule-config")
    return Decoded((schedule, trigger), kept)


def encode(rows: Rows) -> Row:
    """Return the entry of the list."""
    schedule, trigger = the(rows, Schedule), find(rows, Trigger)
    return {
        "id": text_of_key(schedule),
        "handler": schedule.handler_name,
        "interval": None if trigger is None or trigger.source_spec is None else jsonb.decode(trigger.source_spec),
        "kwargs": {} if schedule.payload is None else jsonb.decode(schedule.payload),
        "max_instances": schedule.max_concurrency,
        "replace_existing": True,
    }


COLLECTION: Final = collection_of(names.IN_PROCESS, InProcessJob, (Schedule, Trigger), decode, encode)
"""The list as if it were a table; it is none, and in no profile."""


class Difference(msgspec.Struct, frozen=True, order=True):
    """What the two sides' job lists do not have in common."""

    kind: str
    """``missing`` on the new side, ``new`` there, or ``different``."""
    handler: str
    columns: tuple[str, ...] = ()


def compare(old: Iterable[Rows], new: Iterable[Rows]) -> tuple[Difference, ...]:
    """Compare the old list with the new table, job by job, by the task function that does the work now.

    Compared are the interval, the arguments and how many may run at once; the names of jobs and handlers are new.
    """
    before = {names.SUCCESSORS.get(name, name): facts for name, facts in map(_facts, old)}
    after = dict(map(_facts, new))
    found = [Difference("missing", name) for name in before.keys() - after.keys()]
    found += [Difference("new", name) for name in after.keys() - before.keys()]
    for name in before.keys() & after.keys():
        columns = tuple(key for key, value in before[name].items() if after[name][key] != value)
        if columns:
            found.append(Difference("different", name, columns))
    return tuple(sorted(found))


def _facts(rows: Rows) -> tuple[str, MappingProxyType[str, Any]]:
    schedule, trigger = the(rows, Schedule), find(rows, Trigger)
    facts = {
        "interval_ms": None if trigger is None else trigger.interval_ms,
        "payload": None if schedule.payload is None else jsonb.decode(schedule.payload),
        "max_concurrency": schedule.max_concurrency,
    }
    return str(schedule.handler_name), MappingProxyType(facts)
