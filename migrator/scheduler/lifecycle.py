"""The ten events of the scheduler, those of the source ``orchestrator``: for listeners, and for the audit trail."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID, uuid4

import msgspec

from migrator.log import logger
from migrator.records import AuditEntry
from migrator.values import jsonb

JOB_CREATED: Final = "scheduler:job.created"
JOB_UPDATED: Final = "scheduler:job.updated"
JOB_DELETED: Final = "scheduler:job.deleted"
JOB_PAUSED: Final = "scheduler:job.paused"
JOB_RESUMED: Final = "scheduler:job.resumed"
JOB_CANCELLED: Final = "scheduler:job.cancelled"
JOB_DISPATCH: Final = "scheduler:job.dispatch"
EXECUTION_SUCCESS: Final = "scheduler:job.execution.success"
EXECUTION_FAILED: Final = "scheduler:job.execution.failed"
EXECUTION_RETRY: Final = "scheduler:job.execution.retry_scheduled"

NAMES: Final = (
    JOB_CREATED,
    JOB_UPDATED,
    JOB_DELETED,
    JOB_PAUSED,
    JOB_RESUMED,
    JOB_CANCELLED,
    JOB_DISPATCH,
    EXECUTION_SUCCESS,
    EXECUTION_FAILED,
    EXECUTION_RETRY,
)
"""The names under which the source publishes them (its ``SCHEDULER_EVENTS``)."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a schedule, or to one of its runs."""

    name: str
    tenant_id: str
    at: datetime
    schedule_id: UUID | None = None
    run_id: UUID | None = None
    trace_id: str | None = None
    actor: str = "scheduler"
    message: str | None = None
    details: Mapping[str, str] = {}


EventSink: TypeAlias = Callable[[Event], None]
"""Called with each event after the change was written; what it raises is logged, and changes nothing."""


def ignore(event: Event) -> None:
    """Do nothing."""


def tell(sink: EventSink, events: Sequence[Event]) -> None:
    """Call the sink with each event; what it raises is logged."""
    for event in events:
        try:
            sink(event)
        except Exception as error:  # noqa: BLE001 - whatever a listener raises, the change is written
            logger().warning("a listener to lifecycle events failed", name=event.name, error=type(error).__name__)


def audit_entry(event: Event) -> AuditEntry:
    """Return the event as an entry of its tenant's audit trail."""
    identity = event.run_id or event.schedule_id
    return AuditEntry(
        id=uuid4(),
        tenant_id=event.tenant_id,
        category="scheduler",
        action=event.name,
        occurred_at=event.at,
        actor=jsonb.encode({"actorId": event.actor, "kind": "system" if event.actor == "scheduler" else "user"}),
        entity_id=None if identity is None else str(identity),
        schedule_id=event.schedule_id,
        run_id=event.run_id,
        correlation_id=event.trace_id,
        message=event.message,
        metadata=jsonb.encode(dict(event.details)) if event.details else None,
    )
