"""Running the copy in tests: settings for a pair of databases, the command line, and what stands in the target."""

import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS
from pymongo.database import Database

from migrator.config import (
    CopySettings,
    MongoSettings,
    PostgresSettings,
    Settings,
    SourceSettings,
    TargetSettings,
    settings_tree,
)
from migrator.records import ALL
from tests import preloaded
from tests.consent import consenting
from tests.stellaops_documents import fresh

TENANT = "tenant-default"

EVERY_ID = [
    None,
    float("nan"),
    1,
    2.5,
    Int64(2**40),
    Decimal128("1E+10"),
    "text",
    "",
    "{",
    {"a": 1, "b": [1]},
    {"b": 1, "a": 1},
    Binary(b"\x00\x01", 0),
    Binary(bytes(range(16)), 4),
    ObjectId("65a000000000000000000001"),
    True,
    DatetimeMS(253_402_300_800_000),
    Timestamp(1, 2),
    MinKey(),
    MaxKey(),
]
"""Ids of every type that MongoDB takes, in no order."""


def run_of(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any BSON value
    """Return a clean run that refers to nothing."""
    run = {**fresh("runs"), "scheduleId": None, "retryOf": None, **changes}
    return {name: value for name, value in run.items() if value is not None or name == "_id"}


def settings_for(
    database: Database[Any],
    dsn: str,
    *,
    profile: str = "stellaops",
    workers: int = 1,
    chunk: int = 20_000,
    target: TargetSettings = TargetSettings(),  # noqa: B008 - it is frozen
) -> Settings:
    """Return settings for copying one database into another."""
    return Settings(
        source=SourceSettings(profile=profile, default_tenant=TENANT),
        target=target,
        mongo=MongoSettings(uri=uri_of(database), database=database.name),
        postgres=PostgresSettings(dsn=dsn),
        copy=CopySettings(workers=workers, chunk_documents=chunk),
    )


def mapped_settings(database: Database[Any], dsn: str, folder: Path, mapping: str, target: str) -> Settings:
    """Return the settings of a copy by a mapping file, which is written into a folder, to the tables it describes."""
    path = folder / f"{target}.toml"
    path.write_text(mapping)
    made = settings_for(database, dsn, target=TargetSettings(name=target))
    return msgspec.structs.replace(made, source=SourceSettings(mapping=str(path)))


def uri_of(database: Database[Any]) -> str:
    """Return a URI of the server that a database is on."""
    host, port = database.client.address or ("", 0)
    name = database.client.admin.command("hello")["setName"]
    return f"mongodb://{host}:{port}/?replicaSet={name}"


def write_config(folder: Path, settings: Settings) -> Path:
    """Write the settings as a configuration file."""
    lines, sections = [], settings_tree(settings)
    for section in ("source", "target", "mongo", "postgres", "copy", "tail", "report"):
        lines.append(f"[{section}]")
        for key, value in sections[section].items():
            if value is not None and value != {}:
                lines.append(f"{key} = {_toml(value)}")
    path = folder / "config.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o600)  # it holds passwords, of which the tool would warn
    return path


def _toml(value: Any) -> str:  # noqa: ANN401 - of a setting
    """Return a value as TOML has it on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_toml(inner)}" for name, inner in value.items()) + " }"
    return json.dumps(value)


def start(*arguments: str, environment: dict[str, str] | None = None, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Start ``migrator`` in a process group of its own."""
    return preloaded.piped(consenting(arguments), environment or {}, cwd=cwd)


def run(*arguments: str, environment: dict[str, str] | None = None, cwd: Path | None = None) -> tuple[int, str, str]:
    """Run ``migrator`` to its end; return exit status, standard output, standard error."""
    process = start(*arguments, environment=environment, cwd=cwd)
    try:
        out, err = process.communicate(timeout=300)
    finally:
        kill(process)
    return process.returncode, out, err


def kill(process: subprocess.Popen[str]) -> None:
    """End a process and all it started, at once."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def contents(dsn: str) -> dict[str, tuple[int, str]]:
    """Return, for each table of the target, its number of rows and a digest of all of them in order of their id."""
    found = {}
    with psycopg.connect(dsn) as connection:
        for record in ALL:
            digest = hashlib.sha256()
            rows = 0
            with connection.cursor().copy(
                f"COPY (SELECT * FROM scheduler.{record.table} ORDER BY id) TO STDOUT"
            ) as copy:
                for row in copy:
                    digest.update(row)
                    rows += 1
            found[record.table] = (rows, digest.hexdigest())
    return found


def quarantine(dsn: str) -> list[tuple[Any, ...]]:
    """Return the entries of the quarantine, in a stable order."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT collection, source_id, reason, path, raw FROM migration.quarantine WHERE state = 'open'"
            " ORDER BY collection, source_key"
        ).fetchall()


def number(dsn: str, statement: str) -> Any:  # noqa: ANN401 - what the query returns
    """Return the first value of a query."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(statement).fetchone()
        return row[0] if row else None
