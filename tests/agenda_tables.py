"""Agenda 6 on its tables in PostgreSQL and on its collections in MongoDB, as npm installs it.

``row_of`` is what docs/targets-agenda.md says about a document's way into the tables, written for the tests alone: it
is held against the library.
"""

import base64
import json
import math
import os
import subprocess
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import psycopg
from bson import Decimal128, Int64, ObjectId, Regex
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

import migrator
from tests.real_libraries import SECONDS, packages

Document = dict[str, Any]
Store = dict[str, Any]

PROBE: Final = Path(migrator.__file__).parent / "targets" / "probes" / "agenda.mjs"
LIBRARY: Final = "agenda-6"
COLUMNS: Final[Mapping[str, str]] = {
    "name": "name",
    "priority": "priority",
    "nextRunAt": "next_run_at",
    "type": "type",
    "lockedAt": "locked_at",
    "lastFinishedAt": "last_finished_at",
    "failedAt": "failed_at",
    "failCount": "fail_count",
    "failReason": "fail_reason",
    "repeatTimezone": "repeat_timezone",
    "lastRunAt": "last_run_at",
    "repeatInterval": "repeat_interval",
    "data": "data",
    "repeatAt": "repeat_at",
    "disabled": "disabled",
    "progress": "progress",
    "fork": "fork",
    "lastModifiedBy": "last_modified_by",
    "debounceStartedAt": "debounce_started_at",
    "startDate": "start_date",
    "endDate": "end_date",
    "skipDays": "skip_days",
}
"""Field of a document → column of ``agenda_jobs``. No field stands behind ``created_at`` and ``updated_at``."""
LOG_COLUMNS: Final[Mapping[str, str]] = {
    "timestamp": "timestamp",
    "level": "level",
    "event": "event",
    "jobId": "job_id",
    "jobName": "job_name",
    "message": "message",
    "duration": "duration",
    "error": "error",
    "failCount": "fail_count",
    "retryDelay": "retry_delay",
    "retryAttempt": "retry_attempt",
    "agendaName": "agenda_name",
    "meta": "meta",
}
NO_COLUMN: Final = frozenset(
    {"result", "shouldSaveResult", "unique", "uniqueOpts", "attempts", "backoff", "runCount", "finishedCount"}
)
"""Fields that the older libraries and Pulse write."""


def ask(store: Store, do: str, **members: Any) -> list[Document]:  # noqa: ANN401 - members of the request
    """Return the lines of the probe's answer, the last one included."""
    options = {"packages": str(packages(LIBRARY))} | members.pop("options", {})
    request = {"library": "agenda", "do": do, "store": store, "options": options, "seconds": SECONDS} | members
    done = subprocess.run(
        ["node", PROBE],
        input=json.dumps(request),
        env={**os.environ, "TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines, done.stderr[-4000:]
    assert (lines[-1]["kind"] == "done") == (done.returncode == 0), done.stderr[-4000:]
    return lines


def of_kind(lines: list[Document], kind: str) -> list[Document]:
    """Return the lines of a kind; fails if the library failed."""
    assert lines[-1]["kind"] == "done", lines[-1]
    return [line for line in lines if line["kind"] == kind]


def entries(store: Store) -> dict[str, Document]:
    """Return id → fields of each job as the library lists it."""
    return {line["id"]: line["fields"] for line in of_kind(ask(store, "entries"), "entry")}


def fires(store: Store, windows: list[tuple[str, str]], limit: int) -> dict[tuple[str, int], list[str]]:
    """Return id and number of the window → the fires of a job as the library computes them."""
    lines = of_kind(ask(store, "fires", windows=windows, limit=limit), "fires")
    numbers = {tuple(window): number for number, window in enumerate(windows)}
    return {(line["id"], numbers[tuple(line["window"])]): line["fires"] for line in lines}


def uuid_of(key: ObjectId) -> UUID:
    """Return the id of the row of a document: the digits of its ObjectId, after eight zeros."""
    return UUID("00000000" + str(key))


def row_of(document: Document) -> Document:
    """Return the row of a document, column → value."""
    row = {column: document.get(field) for field, column in COLUMNS.items()}
    row |= {
        "id": uuid_of(document["_id"]),
        "created_at": document["_id"].generation_time,
        "data": Jsonb(json_of(document["data"])) if "data" in document else None,
        "priority": document.get("priority") or 0,
        "type": document.get("type") or "normal",
        "disabled": document.get("disabled") is True,
        "fork": document.get("fork") is True,
    }
    for column in ("repeat_interval", "repeat_at"):
        row[column] = None if row[column] is None else str(row[column])
    row["skip_days"] = None if row["skip_days"] is None else Jsonb(row["skip_days"])
    return row


def json_of(value: Any) -> Any:  # noqa: ANN401, C901, PLR0911 - a value of BSON, and its JSON
    """Return a value of a document as the library writes it into ``data``: as JavaScript's ``JSON.stringify`` does."""
    match value:
        case dict():
            return {name: json_of(inner) for name, inner in value.items()}
        case list():
            return [json_of(inner) for inner in value]
        case datetime():
            return value.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
        case ObjectId():
            return str(value)
        case float() if not math.isfinite(value):
            return None
        case float() if value == 0:
            return 0
        case Int64():
            return int(value)
        case Decimal128():
            return {"$numberDecimal": str(value)}
        case Regex():
            return {}
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value


def insert(dsn: str, rows: list[Document], table: str = "agenda_jobs") -> None:
    """Write rows as a copy does: no statement of the library is used."""
    with psycopg.connect(dsn) as connection:
        for row in rows:
            names, marks = ", ".join(row), ", ".join(f"%({name})s" for name in row)
            connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})".encode(), row)


def rows(dsn: str, table: str = "agenda_jobs") -> Iterator[Document]:
    """Return the rows of a table as the driver reads them."""
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        yield from connection.execute(f"SELECT * FROM {table} ORDER BY id".encode())
