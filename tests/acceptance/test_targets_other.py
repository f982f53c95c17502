"""The page about the targets pgmq and procrastinate: its sessions as they stand, then the application on PostgreSQL."""

import json
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from migrator.exit_status import QUARANTINE, UNVERIFIED
from tests.copying import uri_of
from tests.native_tables import BY_NAME, python
from tests.page_session import of_kind, replaced, run_console
from tests.real_documents import real_documents

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "targets-other.md").read_text(encoding="utf-8")
PGMQ, PROCRASTINATE = BY_NAME["pgmq-1.13"], BY_NAME["procrastinate-3.10"]
PAST, NEVER = "2020-01-01T00:00:00.000Z", "2999-01-01T00:00:00.000Z"
EXECUTE = """
import asyncio
{application}
async def main():
    async with app.open_async():
        await app.run_worker_async(wait=False, install_signal_handlers=False)
asyncio.run(main())
"""


def section(name: str) -> str:
    """Return the section of the page about a target."""
    begin = PAGE.index(f"## `{name}`\n")
    end = PAGE.find("\n## ", begin)
    return PAGE[begin : None if end < 0 else end]


def messages() -> list[dict[str, Any]]:
    """Return the messages that the library wrote, all visible but one, whatever day it is."""
    written = real_documents("mongodb-queue/queue")
    return [{**one, "visible": NEVER if one["payload"] == {"later": True} else PAST} for one in written]


def prepared(page: str, database: Database[Any], dsn: str, interpreter: Path) -> str:
    """Return the configuration of a section, for these servers."""
    return replaced(
        of_kind(page, "toml"),
        ("mongodb://localhost:27017/?replicaSet=rs0", uri_of(database)),
        ('database = "shop"', f'database = "{database.name}"'),
        ("postgresql://postgres@localhost/shop", dsn),
        ("venv/bin/python", str(interpreter)),
    )


def spelled(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def printed(interpreter: Path, program: str) -> list[Any]:
    """Return the output of a program, a line of JSON for each message."""
    done = subprocess.run([interpreter, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.proves("6-T9")
def test_the_session_of_pgmq_is_a_real_one(mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path) -> None:
    page = section("pgmq")
    mongo_database["orders"].insert_many(messages())
    mongo_database["orders-dead"].insert_many(real_documents("mongodb-queue/dead"))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA pgmq")
    configuration = prepared(page, mongo_database, postgres_dsn, python(PGMQ))
    run_console(page, tmp_path, configuration, (0, QUARANTINE, UNVERIFIED))
    application = replaced(of_kind(page, "python"), ("postgres@localhost/shop", postgres_dsn.partition("://")[2]))
    work = "import json\ndef work(message):\n    print(json.dumps(message))\n"
    assert printed(python(PGMQ), work + application) == [42, "text", None, True, []]
    assert printed(python(PGMQ), work + application) == [], "each is taken once, and none before its time"
    letters = replaced(application, ('"orders"', '"orders_dead"'))
    assert [one["payload"] for one in printed(python(PGMQ), work + letters)] == [{"poison": True}]


@pytest.mark.slow
@pytest.mark.proves("6-T9")
def test_the_session_of_procrastinate_is_a_real_one(
    mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    page = section("procrastinate")
    mongo_database["queue"].insert_many(messages())
    mongo_database["dead_queue"].insert_many(real_documents("mongodb-queue/dead"))
    configuration = prepared(page, mongo_database, postgres_dsn, python(PROCRASTINATE))
    run_console(page, tmp_path, configuration, (0, UNVERIFIED))
    application = replaced(
        of_kind(page, "python"),
        ("postgresql://postgres@localhost/shop", postgres_dsn),
        ("print(payload)", "import json; print(json.dumps(payload))"),
    )
    executed = printed(python(PROCRASTINATE), EXECUTE.format(application=application))
    first = {"at": "1970-01-01T00:00:00+00:00", "list": [1, 2.5, None, "ü\ufffd"], "to": "b@example.org"}
    assert sorted(map(spelled, executed)) == sorted(map(spelled, [first, 42, "text", None, True, []]))
    assert printed(python(PROCRASTINATE), EXECUTE.format(application=application)) == [], "each once, none too early"
