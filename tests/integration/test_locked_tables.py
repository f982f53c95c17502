"""A table that another session keeps locked: no command waits for ever, and each names who holds it."""

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql
from pymongo.database import Database

from migrator.config import PostgresSettings, Settings
from migrator.connections import postgres
from migrator.store.postgres.connections import DispatcherPool, SessionPool
from tests.bad_input.calling import call
from tests.copying import run, run_of, settings_for, write_config

FAILED = 16
HOLDER = re.compile(r"process (\d+) \(user \S+, application their session, idle in transaction, for \d+ s\) holds ")
COMMANDS = (
    "jobs list --backend postgres",
    "jobs show daily --backend postgres",
    "jobs history daily --backend postgres",
    "scheduler status",
    "scheduler metrics",
    "scheduler retention --dry-run",
    "status",
    "plan",
    "parity",
    "quarantine list",
    "quarantine retry",
    "control show",
    "control pause --who me --reason x",
    "cutover status",
    "cutover plan",
    "tail --until-caught-up",
    "backfill",
    "schema current",
    "schema check",
    "cutover finish",
    "cutover abort",
    "rollback plan",
    "quarantine show runs r1",
    "control postpone-cutover --who me --reason x",
    "jobs pause daily --backend postgres --who me --reason x",
)


SHORT = "300ms"


def _limit_waits(dsn: str) -> None:
    """Let the sessions of the store, which keep the limit that a database names, wait for a short time."""
    name = sql.Identifier(dsn.rpartition("/")[2])
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("ALTER DATABASE {} SET lock_timeout = {}").format(name, sql.Literal(SHORT)))


@pytest.fixture
def settings(mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path) -> Settings:
    """A good pair that was copied; the application is on PostgreSQL, for the commands of the scheduler."""
    mongo_database["runs"].insert_one(run_of(_id="r1"))
    given = settings_for(mongo_database, scheduler_dsn)
    config = write_config(tmp_path, given)
    assert run("backfill", "--config", str(config), cwd=tmp_path)[0] == 0
    return given


@pytest.fixture
def holder(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Lock every table in a session that stays open; waits are short, so that the test is."""
    monkeypatch.setitem(postgres.TIMEOUTS, "lock_timeout", SHORT)
    _limit_waits(settings.postgres.dsn or "")
    with psycopg.connect(settings.postgres.dsn or "", application_name="their session") as session:
        tables = session.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('scheduler', 'migration')"
        )
        names = sql.SQL(", ").join(sql.Identifier(*table) for table in tables)
        session.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(names))
        yield session.info.backend_pid
        session.rollback()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_and_names_who_holds_the_table(
    command: str, settings: Settings, holder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    waits = replace(settings.copy, patience=timedelta(seconds=1))
    side = {"MIGRATOR_PERSISTENCE__SCHEDULER": "postgres"} if command.startswith("scheduler") else {}
    config = write_config(tmp_path, replace(settings, copy=waits))
    answer = call([*command.split(), "--config", str(config)], side)
    assert answer.status == FAILED, answer.text
    named = HOLDER.search(answer.err)
    assert named is not None, answer.text
    assert int(named[1]) == holder


@pytest.mark.parametrize(("limit_waits", "expected"), [(False, postgres.LOCK_TIMEOUT), (True, SHORT)])
def test_a_session_of_the_store_waits_for_a_limited_time_and_keeps_the_limit_that_an_administrator_set(
    *, limit_waits: bool, expected: str, scheduler_dsn: str
) -> None:
    if limit_waits:
        _limit_waits(scheduler_dsn)
    settings = Settings(postgres=PostgresSettings(dsn=scheduler_dsn))
    with closing(SessionPool(settings)) as pool, pool.transaction(tenant="t1") as (session, _):
        assert session.execute("SHOW lock_timeout").fetchone() == (expected,)
    with closing(DispatcherPool(settings)) as dispatcher:
        assert dispatcher.rows("SHOW lock_timeout", ()) == [(expected,)]
