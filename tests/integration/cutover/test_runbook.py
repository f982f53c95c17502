"""The runbook, executed: every command of its day, literally and in its order, around a scheduler that works.

The process of `migrator scheduler run` is one program over the whole day: on MongoDB before the cutover, on PostgreSQL
after it.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from migrator.cli import cli
from migrator.config import load_settings
from migrator.connections.postgres import open_target
from migrator.cutover import journal
from migrator.errors import MigratorError
from migrator.exit_status import DIFFERENT, DONE, QUARANTINE, UNVERIFIED, USAGE
from migrator.pipeline.sessions import close_cached
from migrator.scheduler.leadership import RESOURCE
from migrator.store import open_scheduler_store
from migrator.store.protocols import RunQuery
from migrator.testing.servers.mongo import MongoServer
from migrator.values import jsonb
from tests import copying
from tests.conftest import fresh_name
from tests.consent import consenting
from tests.cutting_over import APPLICATION, Scene, gate, scene
from tests.owned import OWNED
from tests.scheduler_processes import until
from tests.store_postgres import schedule, trigger
from tests.under_load import SCHEDULER
from tests.unit.report.test_signing import pair

RUNBOOK = Path(__file__).resolve().parents[3] / "docs" / "runbook.md"
COMPARES = ("migrator verify", "migrator parity")
"""Named in a sentence below the table: what puts a comparison on record."""
FIRES = 3


def section(title: str) -> str:
    """Return the text of a section of the runbook, on one line each paragraph or not."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return re.sub(r"### Rehearsals that count\n.*", "", found[1], flags=re.DOTALL)


def listed(title: str) -> list[str]:
    """Return the commands of a section, in its order; a line that goes on behind a backslash is one."""
    text = re.sub(r"\\\n\s+", "", section(title))
    spans = re.findall(r"`(migrator [a-z][^`]*)`|^ {4}(migrator scheduler metrics .*)$", text, re.MULTILINE)
    return [" ".join((one or other).split()) for one, other in spans]


class Day:
    """The operator of one scene, who types what the runbook says."""

    def __init__(self, site: Scene) -> None:
        self.site = site

    def type(self, command: str) -> tuple[int, str]:
        """Execute a command of the runbook, but for the configuration file and what the operator fills in."""
        filled = command.replace("--allow-quarantined N", f"--allow-quarantined {self.site.quarantined}")
        filled = filled.replace("--who …", "--who op").replace("--reason …", "--reason 'a rehearsal'")
        done = CliRunner().invoke(cli, consenting([*shlex.split(filled)[1:], "--config", str(self.site.config)]))
        close_cached()
        if isinstance(done.exception, MigratorError):
            return done.exception.exit_status, str(done.exception)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.output

    def compare(self, command: str) -> None:
        """Compare while the scheduler works: nothing differs, and figures may be uncompared (the runbook says so)."""
        status, said = self.type(command)
        assert status & ~(QUARANTINE | UNVERIFIED) == DONE, said

    def ok(self, command: str) -> str:
        status, said = self.type(command)
        assert status == DONE, (command, status, said)
        return said


@contextmanager
def started(site: Scene, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a command of ours as a supervisor does; a scheduler process logs in as the application's user."""
    command = [sys.executable, "-m", "migrator", *arguments, "--config", str(site.config)]
    of_the_application = {"MIGRATOR_MONGO__URI": site.uri_of(APPLICATION)} if arguments[0] == "scheduler" else {}
    with (site.folder / f"{arguments[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            [*OWNED, *command], stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **of_the_application}
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def every_second(site: Scene) -> None:
    """Make a schedule that fires every second."""
    with closing(open_scheduler_store(site.settings)) as store, store.session("a") as session:
        folder = jsonb.encode({"folder": str(site.folder)})
        made = session.schedules.upsert(schedule(name="every second", handler_name="note", payload=folder))
        fires = {"kind": "interval", "interval_ms": 1000, "anchor": "fixed_rate"}
        session.triggers.upsert(trigger(made, next_fire_at=store.now() + timedelta(seconds=1), **fires))


def done_on(site: Scene) -> set[str]:
    """Return the ids of the completed runs where the data is, as documents of MongoDB have them."""
    with closing(open_scheduler_store(load_settings(str(site.config)))) as store, store.session("a") as session:
        found = session.runs.list(RunQuery(states=("completed",), limit=1000)).runs
    return {run.source_id or f"run_{run.id.hex}" for run in found}


def every_run(site: Scene) -> set[str]:
    """Return the ids of all runs in PostgreSQL, as documents of MongoDB have them."""
    with psycopg.connect(site.dsn) as connection:
        rows = connection.execute(
            "SELECT coalesce(source_id, 'run_' || replace(id::text, '-', '')) FROM scheduler.runs"
        )
        return {one for (one,) in rows}


def leader(site: Scene) -> tuple[str, int] | None:
    with closing(open_scheduler_store(load_settings(str(site.config)))) as store:
        return store.locks.holder("*", RESOURCE)


@pytest.mark.proves("3-O1", "4-X2", "4-X4")
def test_the_day_as_the_runbook_has_it(auth_server: MongoServer, postgres_dsn: str, tmp_path: Path) -> None:
    with scene(auth_server, fresh_name(), postgres_dsn, tmp_path) as site:
        site.config.write_text(site.config.read_text() + SCHEDULER)
        site.settings = load_settings(str(site.config))
        day = Day(site)
        every_second(site)
        with started(site, "scheduler", "run", "--handlers", "tests.scheduled_work:registry") as process:
            until(lambda: done_on(site) and leader(site))
            assert listed("Days before") == [
                "migrator doctor",
                "migrator schema upgrade",
                "migrator doctor",
                "migrator backfill",
                "migrator tail",
                "migrator status",
                "migrator quarantine list",
                "migrator parity",
                "migrator cutover plan",
                *COMPARES,
            ]
            assert day.type("migrator doctor")[0] == DIFFERENT
            assert "applied" in day.ok("migrator schema upgrade")
            assert "\n!!" not in day.ok("migrator doctor")
            assert day.type("migrator backfill")[0] & ~QUARANTINE == DONE
            with started(site, "tail"):
                day.ok("migrator status")
                day.ok("migrator quarantine list")
                until(lambda: gate(site.settings, site.conditions, "tail")[0])  # the lag that status shows is near 0
                day.compare("migrator parity")
                _the_hour(day, process.pid)
                _days_after(day)
            process.terminate()
            assert process.wait(240) == 0, (site.folder / "scheduler.log").read_text()


def _the_hour(day: Day, pid: int) -> None:
    """The leader of the old side leads the new one; what fires from now on is there alone (4-X2, 4-X4)."""
    site = day.site
    assert listed("The hour") == [
        "migrator parity",
        "migrator tail",
        "migrator parity --repair apply",
        "migrator cutover plan --allow-quarantined N",
        "migrator cutover run --allow-quarantined N --who … --reason …",
        "migrator scheduler run",
        "migrator cutover status --wait 5m",
        "migrator scheduler status",
        "migrator cutover report",
        "migrator report sign RESULT.json --key key.pem",
        "migrator cutover status",
    ]
    day.compare("migrator parity")
    until(lambda: day.type("migrator cutover plan --allow-quarantined N")[0] == DONE)
    before = site.config.read_text()
    assert "cut over to PostgreSQL, epoch 1" in day.ok("migrator cutover run --allow-quarantined N --who … --reason …")
    assert "every process of the old side has a heartbeat" in day.ok("migrator cutover status --wait 5m")
    leads = re.compile(rf"^leader: .*:{pid}:.*, term \d+$", re.MULTILINE)
    # a slow machine may renew too late: then nobody leads until the process is elected again
    until(lambda: leads.search(said := day.ok("migrator scheduler status")) and "scheduler on postgres" in said)

    at_switch = done_on(site)
    until(lambda: len(done_on(site) - at_switch) >= FIRES)
    with open_target(load_settings(str(site.config)), autocommit=True) as target:
        last = journal.latest(target)
        assert last is not None
        opened = next(one.ended_at for one in journal.steps(target, last.id) if one.step == "open-target")
        newest = target.execute("SELECT max(created_at) FROM scheduler.runs WHERE state = 'completed'").fetchone()
    assert opened is not None
    assert newest is not None
    assert newest[0] > opened
    written = day.type(f"migrator cutover report --report-dir {site.folder / 'reports'}")[1].partition("report: ")[2]
    private, _ = pair(site.folder)
    page = Path(written.split()[0])
    signed = ["report", "sign", str(page.with_name("result.json")), "--key", str(private)]
    assert CliRunner().invoke(cli, signed).exit_code == DONE

    # a process with the old configuration fires nothing: what MongoDB has, it has from PostgreSQL
    old = site.folder / "old.toml"
    old.write_text(before)
    status, _, words = copying.run(
        "scheduler", "run", "--handlers", "tests.scheduled_work:registry", "--config", str(old)
    )
    assert (status, "is in postgres since the last cutover or rollback" in words) == (USAGE, True), words
    in_mongo = {one["_id"] for one in site.database.runs.find({}, {"_id": True})}
    assert in_mongo <= every_run(site), "MongoDB has runs that PostgreSQL has not"


def _days_after(day: Day) -> None:
    site = day.site
    assert listed("Days after") == [
        "migrator cutover status",
        "migrator scheduler metrics",
        (
            "migrator scheduler metrics --min scheduler_leader=1 --max overall_failure_rate_percent=1"
            " --max overall_runs_ready=100 --max runs_oldest_wait_seconds=300 --max database_connections=80"
        ),
        *listed("Days after")[3:],
    ]
    assert "migrator cutover finish" in listed("Days after")
    day.ok("migrator cutover status")
    day.ok("migrator scheduler metrics")
    status, said = day.type(listed("Days after")[2])
    crossed = [line for line in said.splitlines() if "scheduler_leader" in line and "past" in line]
    assert status & ~DIFFERENT == DONE, said
    assert crossed == []
    assert day.type("migrator cutover finish")[0] == USAGE
    early = "migrator cutover finish --now --who … --reason …"
    assert early.removeprefix("migrator cutover finish ") in section("Days after")
    printed = re.findall(r"^ +\[ \] (\w+)", section("Days after"), re.MULTILINE)
    assert re.findall(r"^ +\[ \] (\w+)", day.ok(early), re.MULTILINE) == printed
    assert load_settings(str(site.config)).persistence.scheduler == "postgres"
