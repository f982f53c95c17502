"""Records for the suite, and what of a record the backends must agree on."""

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import msgspec

from migrator.records import (
    EMPTY,
    AuditEntry,
    ExecutionLog,
    GraphJob,
    GraphJobEvent,
    Handler,
    ImpactSnapshot,
    PolicyJob,
    Record,
    Run,
    Schedule,
    Trigger,
)

R = TypeVar("R", bound=Record)
S = TypeVar("S", bound=msgspec.Struct)

NOW = datetime(2025, 11, 2, 8, 0, 0, 250_000, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)


def bare(row: R) -> R:
    """Return a record without what tells where it came from."""
    aside: dict[str, Any] = {"source": None, "source_id": None, "extra": EMPTY}
    return msgspec.structs.replace(row, **{name: aside[name] for name in aside if name in row.__struct_fields__})


def changed(row: S, **changes: Any) -> S:  # noqa: ANN401 - columns have all types
    return msgspec.structs.replace(row, **changes)


def ids(rows: Any) -> list[UUID]:  # noqa: ANN401 - rows of any record
    return [row.id for row in rows]


def fresh() -> str:
    """Return a name that nothing has: of a tenant, or of what is seen by all tenants."""
    return f"t-{uuid4().hex[:12]}"


def schedule(tenant: str, **columns: Any) -> Schedule:  # noqa: ANN401 - as above
    least: dict[str, Any] = {"id": uuid4(), "tenant_id": tenant, "name": f"nightly {uuid4().hex}"}
    return Schedule(**least | {"status": "scheduled"} | columns)


def trigger(of: Schedule, **columns: Any) -> Trigger:  # noqa: ANN401 - as above
    """Return a trigger of a schedule, every minute unless it says otherwise, due at ``NOW``."""
    least: dict[str, Any] = {"id": uuid4(), "tenant_id": of.tenant_id, "schedule_id": of.id, "next_fire_at": NOW}
    kind: dict[str, Any] = {"kind": "interval", "interval_ms": 60_000, "anchor": "fixed_rate"}
    return Trigger(**least | (kind if "kind" not in columns else {}) | columns)


def event_trigger(of: Schedule, event: str, **columns: Any) -> Trigger:  # noqa: ANN401 - as above
    return trigger(of, kind="event", event_name=event, next_fire_at=None, **columns)


def run(tenant: str, **columns: Any) -> Run:  # noqa: ANN401 - as above
    least: dict[str, Any] = {"id": uuid4(), "tenant_id": tenant, "state": "queued", "created_at": NOW}
    return Run(**least | columns)


def graph_job(tenant: str, **columns: Any) -> GraphJob:  # noqa: ANN401 - as above
    """Return a build job that is pending."""
    least: dict[str, Any] = {"id": uuid4(), "tenant_id": tenant, "type": 0, "status": 5, "payload": b"{}"}
    return GraphJob(**least | {"created_at": NOW, "updated_at": NOW} | columns)


def graph_event(job: GraphJob, **columns: Any) -> GraphJobEvent:  # noqa: ANN401 - as above
    least: dict[str, Any] = {"id": 0, "job_id": job.id, "tenant_id": job.tenant_id, "status": job.status}
    return GraphJobEvent(**least | {"payload": b"{}", "created_at": NOW} | columns)


def policy_job(tenant: str, **columns: Any) -> PolicyJob:  # noqa: ANN401 - as above
    least: dict[str, Any] = {"id": uuid4(), "tenant_id": tenant, "policy_id": "P-7", "status": "pending"}
    return PolicyJob(**least | columns)


def snapshot(tenant: str, **columns: Any) -> ImpactSnapshot:  # noqa: ANN401 - as above
    least: dict[str, Any] = {"id": uuid4(), "tenant_id": tenant}
    return ImpactSnapshot(**least | columns)


def line(tenant: str, **columns: Any) -> ExecutionLog:  # noqa: ANN401 - as above
    least: dict[str, Any] = {"id": uuid4(), "tenant_id": tenant, "logged_at": NOW, "level": "info"}
    return ExecutionLog(**least | columns)


def entry(tenant: str, **columns: Any) -> AuditEntry:  # noqa: ANN401 - as above
    least: dict[str, Any] = {"id": uuid4(), "tenant_id": tenant, "category": "scheduler", "action": "pause"}
    return AuditEntry(**least | {"occurred_at": NOW} | columns)


def handler(tenant: str, **columns: Any) -> Handler:  # noqa: ANN401 - as above
    least: dict[str, Any] = {"id": uuid4(), "tenant_id": tenant, "name": "mail", "handler_type": "function"}
    return Handler(**least | columns)
