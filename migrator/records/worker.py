"""A process that runs or plans."""

from typing import ClassVar

from migrator.records.base import EMPTY, Int, Jsonb, SourcedRecord, Text, TextList, Time


class Worker(SourcedRecord, frozen=True, kw_only=True):
    """A worker or scheduler process, under the tenant ``*``; who leads is derived from ``locks``."""

    table: ClassVar[str] = "workers"

    kind: Text
    hostname: Text | None = None
    pid: Int | None = None
    version: Text | None = None
    queues: TextList | None = None
    capacity: Int | None = None
    status: Text
    """A member of ``states.WORKER_STATUSES``."""
    registered_at: Time | None = None
    last_heartbeat_at: Time | None = None
    metadata: Jsonb | None = None
    extra: Jsonb = EMPTY
