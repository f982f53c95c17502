"""The page "Agenda to PostgreSQL in a quarter of an hour": its files and commands, as a new user calls them."""

import os
import re
import signal
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from tests.copying import run, uri_of
from tests.page_session import application_user
from tests.real_libraries import packages
from tests.scheduler_processes import until

PAGE = Path(__file__).resolve().parents[3] / "docs" / "agenda-to-postgresql.md"
JOBS, PATIENCE = 1_000, 120
FILL = """
for (let number = 0; number < 1000; number++) {
  const kind = number % 10
  const job = agenda.create(`kind ${kind}`, { number, at: new Date() }).priority(kind)
  job.schedule(new Date(Date.now() + (kind === 7 ? 86_400_000 : -1000)))
  if (kind === 8) job.disable()
  await job.save()
}
await agenda.every('1 day', 'repeated', { number: -1 }, { skipImmediate: true })
process.exit(0)
"""
"""What the application does in place of starting: the last line of its program."""


def blocks(language: str) -> list[str]:
    """Return the blocks of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """Return the commands of the page that call migrator, in their order."""
    return [line for block in blocks("sh") for line in block.splitlines() if line.startswith("migrator ")]


def started_on_postgresql(program: str, changed: str) -> str:
    """Return the program of the page with the lines that the page says to change."""
    for line in changed.splitlines():
        [before] = [
            old for old in program.splitlines() if old.split(" ", 2)[:2] == line.split(" ", 2)[:2] and "ackend" in old
        ]
        program = program.replace(before, line)
    return program


@pytest.mark.proves("6-T4")
def test_the_same_application_runs_each_due_job_once_on_postgresql(
    mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "node_modules").symlink_to(packages("agenda-6") / "node_modules")
    program, changed = blocks("js")
    uri, (server, _, options) = uri_of(mongo_database), uri_of(mongo_database).partition("?")
    environment = {"MONGO_URL": f"{server}{mongo_database.name}?{options}", "POSTGRES_URL": postgres_dsn}
    (tmp_path / "fill.mjs").write_text(program.replace("await agenda.start()\n", FILL))
    subprocess.run(["node", "fill.mjs"], cwd=tmp_path, env=environment | path(), check=True, timeout=PATIENCE)
    assert mongo_database["agendaJobs"].count_documents({}) == JOBS + 1
    [settings] = blocks("toml")
    settings = settings.replace("mongodb://localhost:27017/?replicaSet=rs0", uri).replace(
        '"app"', f'"{mongo_database.name}"'
    )
    (tmp_path / "config.toml").write_text(settings.replace("postgresql://app@localhost/app", postgres_dsn))
    (tmp_path / "config.toml").chmod(0o600)
    called = commands()
    assert called[:1] == ["migrator target prepare --make-tables"]
    assert called[-2:] == ["migrator parity", "migrator verify"]
    for command in called:
        status, out, said = run(*command.split()[1:], cwd=tmp_path)
        assert status == 0, command + out + said
        if command == "migrator plan":
            counted = (
                r"agendaJobs: lost to the library: data in (?:999|1,000) of 1,000 documents looked at: the handler"
            )
            assert re.search(counted, out), out
    (tmp_path / "app.mjs").write_text(started_on_postgresql(program, changed))
    due = [number for number in range(JOBS) if number % 10 not in (7, 8)]
    [statements] = blocks("sql")
    with application_user(statements, "agenda_app", postgres_dsn) as dsn:
        environment["POSTGRES_URL"] = dsn
        assert Counter(executed(tmp_path, environment, len(due))) == Counter(due)
        assert executed(tmp_path, environment, 0) == []
    with psycopg.connect(postgres_dsn) as connection:
        waiting = connection.execute(
            "SELECT name, count(*), min(next_run_at), bool_or(disabled) FROM agenda_jobs WHERE last_run_at IS NULL"
            " GROUP BY name ORDER BY name"
        ).fetchall()
    assert [(name, count, disabled) for name, count, _, disabled in waiting] == [
        ("kind 7", 100, False), ("kind 8", 100, True), ("repeated", 1, False),
    ]  # fmt: skip
    assert waiting[0][2] > datetime.now(UTC) + timedelta(hours=23)


def path() -> dict[str, str]:
    """Return the variables that node needs of the environment."""
    return {"PATH": os.environ["PATH"]}


def executed(folder: Path, environment: dict[str, str], expected: int) -> list[int]:
    """Start the application, wait until it ran as many jobs and a little longer, and return what it ran."""
    log = folder / "log.txt"
    with log.open("w") as output:
        application = subprocess.Popen(
            ["node", "app.mjs"], cwd=folder, env=environment | path(), stdout=output, stderr=subprocess.STDOUT
        )
        try:
            until(lambda: log.read_text().count("ran ") >= expected or application.poll() is not None)
            Event().wait(3)  # for what would run a second time
            assert application.poll() is None, log.read_text()
            application.send_signal(signal.SIGTERM)
            application.wait(timeout=30)
        finally:
            application.kill()
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("ran ")]
