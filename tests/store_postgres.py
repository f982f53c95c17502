"""A PostgreSQL store for tests, and records to put into it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec

from migrator.config import PersistenceSettings, PostgresSettings, Settings
from migrator.records import GraphJob, PolicyJob, Run, Schedule, Trigger
from migrator.store.postgres.store import PostgresStore

NOW = datetime(2025, 11, 2, 8, tzinfo=UTC)
Values = dict[str, Any]


def settings(dsn: str, **postgres: Any) -> Settings:  # noqa: ANN401 - settings have all types
    return Settings(
        postgres=PostgresSettings(dsn=dsn, **postgres), persistence=PersistenceSettings(scheduler="postgres")
    )


@contextmanager
def opened(dsn: str, *, pool_size: int = 4, copied: bool = False, **postgres: Any) -> Iterator[PostgresStore]:  # noqa: ANN401 - as above
    """Open a store; ``copied``: as the tool does, which reads a copy that nobody may change."""
    chosen = settings(dsn, pool_size=pool_size, **postgres)
    store = PostgresStore(msgspec.structs.replace(chosen, persistence=PersistenceSettings()) if copied else chosen)
    try:
        yield store
    finally:
        store.close()


def schedule(tenant: str = "a", **values: Any) -> Schedule:  # noqa: ANN401 - columns have all types
    least: Values = {"id": uuid4(), "tenant_id": tenant, "name": f"nightly {uuid4()}", "status": "scheduled"}
    return Schedule(**least | values)


def trigger(of: Schedule, **values: Any) -> Trigger:  # noqa: ANN401 - as above
    """Return a trigger that is due."""
    least: Values = {"id": uuid4(), "tenant_id": of.tenant_id, "schedule_id": of.id, "next_fire_at": NOW}
    kind: Values = {"kind": "interval", "interval_ms": 60_000, "anchor": "fixed_rate"}
    return Trigger(**least | (kind if "kind" not in values else {}) | values)


def run(tenant: str = "a", **values: Any) -> Run:  # noqa: ANN401 - as above
    least: Values = {"id": uuid4(), "tenant_id": tenant, "state": "queued", "created_at": NOW}
    return Run(**least | values)


def graph_job(tenant: str = "a", **values: Any) -> GraphJob:  # noqa: ANN401 - as above
    """Return a build job that is pending."""
    least: Values = {"id": uuid4(), "tenant_id": tenant, "type": 0, "status": 5, "payload": b"{}"}
    return GraphJob(**least | {"created_at": NOW, "updated_at": NOW} | values)


def policy_job(tenant: str = "a", **values: Any) -> PolicyJob:  # noqa: ANN401 - as above
    least: Values = {"id": uuid4(), "tenant_id": tenant, "policy_id": "P-7", "status": "pending"}
    return PolicyJob(**least | values)
