"""The page about APScheduler in PostgreSQL: its session as it stands, with the application at work on both sides."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.copying import uri_of
from tests.page_session import application_user, of_kind, replaced, run_console

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "targets-apscheduler.md").read_text(encoding="utf-8")
JOBS = """
from pathlib import Path

def note(name):
    with Path("ran").open("a") as file:
        file.write(name + "\\n")
"""
APPLICATION = """
import sys
import threading
from datetime import datetime, timedelta, timezone
from apscheduler.events import EVENT_JOB_EXECUTED
from apscheduler.schedulers.background import BackgroundScheduler
import jobs

scheduler = BackgroundScheduler(timezone="UTC")
{store}
now = datetime.now(timezone.utc)
if sys.argv[1] == "first":
    scheduler.start(paused=True)
    add = scheduler.add_job
    add(jobs.note, "cron", args=["nightly"], id="nightly", hour=3, minute=15, timezone="Europe/Vienna")
    add(jobs.note, "interval", args=["hourly"], id="hourly", hours=1, start_date=now + timedelta(hours=1))
    add(jobs.note, "date", args=["overdue"], id="overdue", run_date=now - timedelta(days=1), misfire_grace_time=None)
    add(jobs.note, "date", args=["far"], id="far", run_date=now + timedelta(days=3650))
    add(jobs.note, "interval", args=["paused"], id="paused", minutes=1, next_run_time=None)
else:
    executed = threading.Event()
    scheduler.add_listener(lambda _: executed.set(), EVENT_JOB_EXECUTED)
    scheduler.start()
    assert executed.wait(60)
for job in scheduler.get_jobs():
    print(job.id, job.next_run_time)
scheduler.shutdown()
"""


def started(folder: Path, store: str, what: str) -> set[str]:
    """Run the application with a job store; return the jobs that it lists, each with its next run."""
    (folder / "jobs.py").write_text(JOBS, encoding="utf-8")
    (folder / "app.py").write_text(APPLICATION.format(store=store), encoding="utf-8")
    done = subprocess.run([sys.executable, "app.py", what], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.proves("6-T2")
def test_the_session_of_the_page_is_a_real_one(
    mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    former = (
        f'scheduler.add_jobstore("mongodb", database="{mongo_database.name}", collection="jobs",'
        f' host="{uri_of(mongo_database)}")'
    )
    before = started(tmp_path, former, "first")
    assert len(before) == 5
    configuration = replaced(
        of_kind(PAGE, "toml"),
        ("mongodb://localhost:27017/?replicaSet=rs0", uri_of(mongo_database)),
        ('database = "shop"', f'database = "{mongo_database.name}"'),
        ("postgresql://postgres@localhost/shop", postgres_dsn),
    )
    run_console(PAGE, tmp_path, configuration)
    overdue = {job for job in before if job.startswith("overdue ")}
    assert len(overdue) == 1
    with application_user(of_kind(PAGE, "sql"), "shop_app", postgres_dsn) as dsn:
        now = replaced(of_kind(PAGE, "python"), ("shop_app@localhost/shop", dsn.partition("://")[2]))
        assert started(tmp_path, now, "again") == before - overdue
    assert (tmp_path / "ran").read_text(encoding="utf-8") == "overdue\n"
    assert mongo_database["jobs"].count_documents({}) == 5, "MongoDB is as it was"
