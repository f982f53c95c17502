"""A backup of PostgreSQL by its own programs, as the runbook has it: restored, it is what was dumped."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from migrator.parity.recorded_check import check_and_record, is_clean
from migrator.schema import catalogue
from tests import schema_rows
from tests.conftest import NEWEST, Clusters
from tests.copying import contents, settings_for
from tests.stellaops_documents import CANONICAL, fresh
from tests.tailing import copied

RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "runbook.md"
RESTORED = "scheduler_restored"


@pytest.fixture
def restored_dsn(scheduler_dsn: str, clusters: Clusters) -> Iterator[str]:
    yield f"{scheduler_dsn.rpartition('/')[0]}/{RESTORED}"
    clusters.get(NEWEST).server.drop_database(RESTORED)


def runbook_lines() -> list[str]:
    """Return the commands of the runbook's section, as they stand there."""
    text = RUNBOOK.read_text(encoding="utf-8").partition("### A backup of PostgreSQL")[2].partition("\n## ")[0]
    return re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)


def tool_rows(dsn: str) -> dict[str, list[Any]]:
    """Return the rows of every table of the tool's own schema."""
    with psycopg.connect(dsn) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'migration'").fetchall()
        return {
            name: sorted(map(str, connection.execute(f"SELECT t FROM migration.{name} AS t").fetchall()))
            for (name,) in tables
        }


@pytest.mark.proves("3-O3", "4-B3")
def test_what_was_dumped_is_restored_and_what_was_written_since_is_gone(
    mongo_database: Database[Any], scheduler_dsn: str, restored_dsn: str, clusters: Clusters, tmp_path: Path
) -> None:
    for name in CANONICAL:
        mongo_database[name].insert_one(fresh(name))
    settings = copied(mongo_database, scheduler_dsn)
    assert is_clean(check_and_record(settings))
    before, tool = contents(scheduler_dsn), tool_rows(scheduler_dsn)
    assert sum(rows for rows, _ in before.values()) >= len(CANONICAL)
    server = clusters.get(NEWEST).server
    dump, create, restore = runbook_lines()
    where = {"DSN": scheduler_dsn, "RESTORED": restored_dsn, "PATH": f"{server._bin}:{os.environ['PATH']}"}

    def called(line: str) -> None:
        done = subprocess.run(
            line,
            shell=True,
            cwd=tmp_path,
            env={**os.environ, **server._environment, **where},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    called(dump)
    with psycopg.connect(scheduler_dsn) as connection:
        schema_rows.insert(connection, "schedules")
        connection.execute("UPDATE scheduler.runs SET error = 'since the backup'")
        connection.execute("DELETE FROM scheduler.audit")
    called(create)
    called(restore)

    assert contents(scheduler_dsn) != before
    assert contents(restored_dsn) == before
    assert tool_rows(restored_dsn) == tool
    assert catalogue.differences(restored_dsn) == []
    assert is_clean(check_and_record(settings_for(mongo_database, restored_dsn)))
    assert not is_clean(check_and_record(settings))
