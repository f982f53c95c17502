"""What a careful engineer writes by hand: one loop from pymongo to ``copy.write_row``, into the final table.

It checks the states, computes the ids and types every column, but has no resume, no quarantine, no remainder, and
loads once: a second run fails on the primary key. Usage: script.py <mongo uri> <database> <collection> <dsn>.
"""

import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from psycopg.types.json import Jsonb
from pymongo import MongoClient

STATES = {"planning", "queued", "running", "completed", "error", "cancelled"}
RUNS = {
    "id": "uuid",
    "tenant_id": "text",
    "source": "text",
    "source_id": "text",
    "schedule_id": "uuid",
    "retry_of": "uuid",
    "cause": "text",
    "state": "text",
    "created_at": "timestamptz",
    "started_at": "timestamptz",
    "finished_at": "timestamptz",
    "duration_ms": "int8",
    "stats": "jsonb",
    "reason": "jsonb",
    "deltas": "jsonb",
    "error": "text",
    "schema_version": "text",
}
SNAPSHOTS = {
    "id": "uuid",
    "tenant_id": "text",
    "source": "text",
    "source_id": "text",
    "snapshot_id": "text",
    "selector": "jsonb",
    "images": "jsonb",
    "usage_only": "bool",
    "total": "int8",
    "generated_at": "timestamptz",
    "schema_version": "text",
}
dumps = msgspec.json.encode


def identifier(text: str | None) -> UUID | None:
    """Return the UUID in an id such as ``run_<32 digits>``."""
    return None if text is None else UUID(text.partition("_")[2])


def instant(text: str | None) -> datetime | None:
    """Return the time."""
    return None if text is None else datetime.fromisoformat(text)


def json(value: object) -> Jsonb | None:
    """Return a value as psycopg writes it to jsonb."""
    return None if value is None else Jsonb(value, dumps=dumps)


def run_rows(documents: Iterator[dict[str, Any]]) -> Iterator[tuple[object, ...]]:
    """Yield the rows of ``runs``; a retry comes after the run that it repeats, which must be of its tenant."""
    tenants: dict[str | None, str] = {}
    for document in documents:
        tenants[document["_id"]] = document["tenantId"]
        if document["state"] not in STATES:
            raise ValueError(document["_id"])
        started, finished = instant(document.get("startedAt")), instant(document.get("finishedAt"))
        yield (
            identifier(document["_id"]),
            document["tenantId"],
            "stellaops/runs",
            document["_id"],
            identifier(document.get("scheduleId")),
            identifier(document["retryOf"]) if tenants.get(document.get("retryOf")) == document["tenantId"] else None,
            document["trigger"],
            document["state"],
            instant(document["createdAt"]),
            started,
            finished,
            int((finished - started).total_seconds() * 1000) if started and finished else None,
            json(document.get("stats")),
            json(document.get("reason")),
            json(document.get("deltas")),
            document.get("error"),
            document.get("schemaVersion"),
        )


def snapshot_rows(documents: Iterator[dict[str, Any]]) -> Iterator[tuple[object, ...]]:
    """Yield the rows of ``impact_snapshots``."""
    for document in documents:
        yield (
            identifier(document["_id"]),
            document["selector"]["tenantId"],
            "stellaops/impact_snapshots",
            document["_id"],
            document.get("snapshotId"),
            json(document["selector"]),
            json(document["images"]),
            document["usageOnly"],
            document["total"],
            instant(document["generatedAt"]),
            document.get("schemaVersion"),
        )


def main(uri: str, database: str, name: str, dsn: str) -> None:
    """Copy one collection."""
    columns, rows = (RUNS, run_rows) if name == "runs" else (SNAPSHOTS, snapshot_rows)
    statement = f"COPY scheduler.{name} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
    with MongoClient[dict[str, Any]](uri) as client, psycopg.connect(dsn) as connection:
        cursor = connection.cursor()
        with cursor.copy(statement.encode()) as copy:
            copy.set_types(list(columns.values()))
            for row in rows(client[database][name].find()):
                copy.write_row(row)


if __name__ == "__main__":
    main(*sys.argv[1:])
