"""The fresh start: verification without a MongoDB, by a decision that is kept and reported."""

import json
import socket
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import psycopg
import pytest
from click.testing import CliRunner
from pymongo import MongoClient

from migrator.cli import cli
from migrator.errors import MigratorError
from migrator.schema.revisions import upgrade
from migrator.verify.requirements import OUT_OF_SCOPE
from tests import schema_rows

WHO, WHY = "Ada, head of operations", "a new site: nothing to move"
QUICK = ("--no-behaviour",)
"""Checks that read alone: the areas that are left out set bit 4."""
DECIDED = ("--fresh-start", "--who", WHO, "--reason", WHY)
OTHER_SERVER = "127.0.0.1"


class Done(msgspec.Struct, frozen=True):
    """How a call ended."""

    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture
def callers() -> Iterator[list[Any]]:
    """Who connected to the address that the settings name as MongoDB's; the first entry is its port."""
    found: list[Any] = []
    with socket.create_server((OTHER_SERVER, 0)) as listening:
        found.append(listening.getsockname()[1])

        def accept() -> None:
            while True:
                try:
                    connection, address = listening.accept()
                except OSError:
                    return
                with connection:
                    found.append(address)

        thread = Thread(target=accept, daemon=True)
        thread.start()
        yield found
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.fixture
def call(tmp_path: Path, callers: list[Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Call ``migrator verify`` on a target; a client of MongoDB must not even be made."""

    def no_client(*_: object, **__: object) -> None:
        raise AssertionError("a client of MongoDB was made")

    monkeypatch.setattr(MongoClient, "__init__", no_client)

    def call(dsn: str, *options: str) -> Done:
        config = tmp_path / "config.toml"
        uri = f"mongodb://{OTHER_SERVER}:{callers[0]}/scheduler"
        config.write_text(f"[mongo]\nuri = '{uri}'\n[postgres]\ndsn = '{dsn}'\n[report]\ndirectory = '{tmp_path}'\n")
        command = ["verify", *options, "--config", str(config), "--json"]
        done = CliRunner().invoke(cli, command)
        if isinstance(done.exception, MigratorError):
            return Done(done.exception.exit_status, done.stdout, str(done.exception))
        assert isinstance(done.exception, SystemExit | None), done.exception
        return Done(done.exit_code, done.stdout, done.stderr)

    return call


def parsed(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def statuses(done: Done) -> dict[str, str]:
    return {one["id"]: one["outcome"]["status"] for one in parsed(done)["evidence"]["checks"]}


@pytest.mark.proves("0-O6b", *(row.id for row in OUT_OF_SCOPE))
def test_an_empty_database_is_migrated_and_sound(
    postgres_dsn: str, call: Callable[..., Done], callers: list[Any], tmp_path: Path
) -> None:
    done = call(postgres_dsn, *DECIDED, "--upgrade")
    assert done.exit_code == 0, done.stderr
    assert len(callers) == 1, "MongoDB was contacted"
    found = statuses(done)
    beside = {check for check, status in found.items() if status == "not-applicable"}
    # an empty database has no row that a check of semantics could be about, and the target is no library's
    without_rows = {one for one in found if one.startswith(("library.", "parity.", "semantics."))}
    assert without_rows | {"cutover.gates", "cutover.rollback"} == beside
    assert found["crud.lockstep"] == "not-asked-for"
    assert {one for one in found if one.startswith("schema.")} & beside == set()
    assert "unverified" not in found.values()
    areas = {one["name"]: one for one in parsed(done)["evidence"]["areas"]}
    assert areas["parity"]["status"] == "not-applicable"
    assert WHO in areas["parity"]["reason"]
    (report,) = tmp_path.glob("*/report.html")
    assert WHY in report.read_text()
    (markdown,) = tmp_path.glob("*/report.md")
    assert WHO in markdown.read_text()
    for text in (unescape(report.read_text()), unescape(markdown.read_text())):
        for row in OUT_OF_SCOPE:
            assert row.text in text
            assert row.note in text


@pytest.mark.proves("0-O6b")
def test_every_supported_server_will_do(any_postgres_dsn: str, call: Callable[..., Done], callers: list[Any]) -> None:
    done = call(any_postgres_dsn, *DECIDED, "--upgrade", *QUICK)
    assert done.exit_code == 4, done.stderr
    assert len(callers) == 1, "MongoDB was contacted"
    assert {"failed", "unverified"} & {*statuses(done).values()} == set()


@pytest.mark.proves("0-O6b")
def test_the_same_decision_keeps_its_first_time_and_another_one_is_another(
    scheduler_dsn: str, call: Callable[..., Done]
) -> None:
    first, again = call(scheduler_dsn, *DECIDED, *QUICK), call(scheduler_dsn, *DECIDED, *QUICK)
    with psycopg.connect(scheduler_dsn) as connection:
        connection.execute("UPDATE migration.decisions SET at = at - interval '1 day'")
    later = call(scheduler_dsn, *DECIDED, *QUICK)
    other = call(scheduler_dsn, "--fresh-start", "--who", WHO, "--reason", "something else", *QUICK)
    decisions = [parsed(done)["evidence"]["decisions"] for done in (first, again, later, other)]
    assert decisions[0] == decisions[1]
    assert parsed(first)["digest"] == parsed(again)["digest"]
    assert decisions[2][0]["at"] < decisions[1][0]["at"]
    assert {name: decisions[0][0][name] for name in ("kind", "who", "why")} == {
        "kind": "fresh start",
        "who": WHO,
        "why": WHY,
    }
    assert decisions[0][0]["tool"].startswith("migrator ")
    with psycopg.connect(scheduler_dsn) as connection:
        rows = connection.execute("SELECT who, reason FROM migration.decisions ORDER BY id").fetchall()
    assert rows == [(WHO, WHY), (WHO, "something else")]
    assert decisions[3][0]["why"] == "something else"


@pytest.mark.proves("0-T2.11.6")
def test_each_verification_is_on_record(scheduler_dsn: str, call: Callable[..., Done], tmp_path: Path) -> None:
    done = call(scheduler_dsn, *DECIDED, *QUICK)
    with psycopg.connect(scheduler_dsn) as connection:
        rows = connection.execute(
            "SELECT command, exit_status, settings ->> 'digest', settings ->> 'verdict', settings ->> 'report',"
            " finished_at IS NOT NULL FROM migration.tool_runs"
        ).fetchall()
    (folder,) = tmp_path.glob("*/result.json")
    assert rows == [("verify", 4, parsed(done)["digest"], "unverified", str(folder.parent), True)]


def test_a_decision_names_who_and_why(scheduler_dsn: str, call: Callable[..., Done]) -> None:
    for options in (
        ("--fresh-start",),
        ("--fresh-start", "--who", WHO),
        ("--fresh-start", "--who", " ", "--reason", WHY),
    ):
        done = call(scheduler_dsn, *options)
        assert done.exit_code == 2
        assert "say who and why" in done.stderr
    alone = call(scheduler_dsn, "--upgrade")
    assert alone.exit_code == 2
    assert "belong to --fresh-start" in alone.stderr
    sampled = call(scheduler_dsn, *DECIDED, "--sensitivity")
    assert sampled.exit_code == 2
    assert "leave --sensitivity out" in sampled.stderr
    with psycopg.connect(scheduler_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM migration.decisions").fetchone() == (0,)


def test_a_target_with_rows_is_refused_unless_that_is_allowed(scheduler_dsn: str, call: Callable[..., Done]) -> None:
    with psycopg.connect(scheduler_dsn) as connection:
        schema_rows.insert(connection, "schedules")
    done = call(scheduler_dsn, *DECIDED)
    assert done.exit_code == 2
    assert "scheduler.schedules has rows" in done.stderr
    assert "--allow-nonempty" in done.stderr
    allowed = call(scheduler_dsn, *DECIDED, "--allow-nonempty", *QUICK)
    assert allowed.exit_code & 2 == 0
    assert parsed(allowed)["evidence"]["decisions"]


def test_a_schema_that_is_missing_is_named_and_not_made(postgres_dsn: str, call: Callable[..., Done]) -> None:
    done = call(postgres_dsn, *DECIDED)
    assert done.exit_code == 2
    assert "--upgrade" in done.stderr
    assert "migrator schema upgrade" in done.stderr
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT to_regnamespace('scheduler')").fetchone() == (None,)


@pytest.mark.parametrize(
    ("fault", "red"),
    [
        ("DROP INDEX scheduler.ix_runs_page", "schema.catalogue"),
        ("ALTER TABLE scheduler.runs DISABLE ROW LEVEL SECURITY", "schema.isolation"),
    ],
    ids=["an index is gone", "isolation is off"],
)
@pytest.mark.proves("0-O6b")
def test_a_planted_fault_turns_it_red(any_scheduler_dsn: str, call: Callable[..., Done], fault: str, red: str) -> None:
    upgrade(any_scheduler_dsn)
    with psycopg.connect(any_scheduler_dsn) as connection:
        connection.execute(fault.encode())
    done = call(any_scheduler_dsn, *DECIDED, *QUICK)
    assert done.exit_code & 1
    assert statuses(done)[red] == "failed"


MOVES_NEXT_FIRE = """
CREATE FUNCTION scheduler.calculate_next_run_at() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.next_fire_at IS NULL OR NEW.next_fire_at <= now() THEN
        NEW.next_fire_at := now() + NEW.interval_ms * interval '1 millisecond';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER calculate BEFORE INSERT OR UPDATE ON scheduler.triggers
    FOR EACH ROW EXECUTE FUNCTION scheduler.calculate_next_run_at()
"""
ANOTHERS_DURATION = """
CREATE FUNCTION scheduler.calculate_duration() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    NEW.duration_ms := extract(epoch FROM NEW.finished_at - NEW.started_at)::int * 1000;
    RETURN NEW;
END $$;
CREATE TRIGGER calculate BEFORE UPDATE ON scheduler.runs
    FOR EACH ROW EXECUTE FUNCTION scheduler.calculate_duration()
"""
OF_THE_CRAWLER = {
    "a trigger moves the next fire of what is due": MOVES_NEXT_FIRE,
    "a trigger overrides the duration": ANOTHERS_DURATION,
    "the old list of statuses": (
        "ALTER TABLE scheduler.schedules ADD CONSTRAINT valid_status"
        " CHECK (status IN ('pending', 'processing', 'completed', 'failed'))"
    ),
    "an interval only where it is enabled": (
        "ALTER TABLE scheduler.triggers ADD CONSTRAINT valid_interval CHECK (NOT enabled OR interval_ms > 0)"
    ),
    "an interval has a unit of its own": (
        "ALTER TABLE scheduler.triggers ADD COLUMN interval_type varchar(20) DEFAULT 'minutes'"
    ),
    "priority 1 to 3": "ALTER TABLE scheduler.schedules ADD CHECK (priority BETWEEN 1 AND 3)",
    "a default of priority": "ALTER TABLE scheduler.schedules ALTER COLUMN priority SET DEFAULT 2",
    "the runs are gone": "DROP TABLE scheduler.runs CASCADE",
}
"""What the crawler's migration left behind or did on its way, as far as it can be done to the target."""


@pytest.mark.proves("3-T3")
def test_each_defect_of_the_crawlers_migration_turns_it_red(
    new_scheduler_dsn: Callable[[], str], call: Callable[..., Done]
) -> None:
    found = {}
    for fault, statement in OF_THE_CRAWLER.items():
        dsn = new_scheduler_dsn()
        with psycopg.connect(dsn) as connection:
            connection.execute(statement.encode())
        done = call(dsn, *DECIDED, *QUICK, "--only", "schema")
        found[fault] = (done.exit_code & 1, statuses(done)["schema.catalogue"])
    assert found == dict.fromkeys(OF_THE_CRAWLER, (1, "failed"))
