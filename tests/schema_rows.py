"""The least row of every table, for tests that need one."""

from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from migrator.connections.postgres import Connection

NOW = "2025-11-02T08:00:00+00:00"

LEAST: dict[str, dict[str, Any]] = {
    "handlers": {"name": "mail", "handler_type": "function"},
    "schedules": {"name": "nightly", "status": "scheduled"},
    "triggers": {"kind": "one_time", "run_at": NOW},
    "runs": {"state": "queued", "created_at": NOW},
    "execution_logs": {"logged_at": NOW, "level": "info"},
    "impact_snapshots": {},
    "run_summaries": {},
    "policy_jobs": {"policy_id": "P-7", "status": "pending"},
    "workers": {"kind": "worker", "status": "active"},
    "locks": {"lock_id": 1},
    "audit": {"category": "scheduler", "action": "pause", "occurred_at": NOW},
    "graph_jobs": {"type": 0, "status": 5, "payload": {}, "created_at": NOW, "updated_at": NOW},
    "graph_job_events": {"status": 5, "payload": {}, "created_at": NOW},
    "parallel_triggers": {"timing": "()"},
}
"""Table to the columns that must be given, besides id, tenant and references; parents first."""


def connect(dsn: str) -> Connection:
    return psycopg.connect(dsn, autocommit=True)


def keep_statistics(connection: Connection) -> None:
    """Keep autovacuum from the tables of the scheduler: it makes statistics at any minute, and plans follow them.

    A test of plans then depends on the statistics that it made itself.
    """
    for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'scheduler'").fetchall():
        connection.execute(
            sql.SQL("ALTER TABLE {} SET (autovacuum_enabled = false)").format(sql.Identifier("scheduler", name))
        )


def insert(connection: Connection, table: str, tenant: str = "a", **values: Any) -> Any:  # noqa: ANN401 - uuid or number
    """Insert a row, with a parent of its own where it must have one, and return its id."""
    row = LEAST[table] | values
    if table == "triggers" and "schedule_id" not in row:
        row["schedule_id"] = insert(connection, "schedules", tenant)
    if table == "graph_job_events":
        row.setdefault("job_id", None)
        row["job_id"] = row["job_id"] or insert(connection, "graph_jobs", tenant)
    else:
        row.setdefault("id", uuid4())
    if table == "locks":
        row.setdefault("key", f"{tenant}/{row['id']}")
    if table in {"handlers", "schedules"} and "name" not in values:
        row["name"] = f"{row['name']} {row['id']}"  # unique per tenant
    row = {"tenant_id": tenant} | row
    names = sql.SQL(", ").join(map(sql.Identifier, row))
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING id").format(
        sql.Identifier("scheduler", table), names, sql.SQL(", ").join([sql.Placeholder()] * len(row))
    )
    given = [Jsonb(value) if isinstance(value, dict) else value for value in row.values()]
    found = connection.execute(statement, given).fetchone()
    assert found is not None
    return found[0]


def count(connection: Connection, table: str, identity: UUID | int | None = None) -> int:
    """Return how many rows there are (of this id)."""
    query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("scheduler", table))
    row = (
        connection.execute(query).fetchone()
        if identity is None
        else connection.execute(query + sql.SQL(" WHERE id = %s"), (identity,)).fetchone()
    )
    assert row is not None
    return int(row[0])
