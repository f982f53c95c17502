"""The page about Celery in PostgreSQL: its sessions as they stand, then the application on both sides, and beat."""

import re
import shlex
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from migrator.exit_status import QUARANTINE, UNVERIFIED
from tests.copying import uri_of
from tests.native_tables import BY_NAME, python
from tests.page_session import application_user, of_kind, replaced, run_console
from tests.real_documents import real_documents

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "targets-celery.md").read_text(encoding="utf-8")
BEAT = PAGE[PAGE.index("## Periodic tasks") :]
APPLICATION = """
from datetime import datetime, timedelta, timezone
from celery import Celery
app = Celery("shop")
{settings}
found = app.AsyncResult("09966c63-dbc2-484d-b18f-785d7f5af4ed")
print(found.state, repr(found.result), found.date_done)
print(app.AsyncResult("report-plain").get(timeout=5))
group = app.GroupResult.restore("314b0842-6649-4b8c-a3e5-3461a17213cb")
print([one.get(timeout=5) for one in getattr(group, "results", group)])
app.backend.store_result("new", {{"made": "there"}}, "SUCCESS")
app.backend._cache.clear()
print(app.AsyncResult("new").get(timeout=5))
now = datetime.now(timezone.utc).replace(tzinfo=None)
print(abs(now - app.AsyncResult("new").date_done) < timedelta(minutes=5))
"""
ANSWER = """\
FAILURE ValueError('no such account: 42') 2026-11-22 22:59:12.721000
3
[0, 2, 4]
{'made': 'there'}
True
"""


@pytest.mark.slow
@pytest.mark.proves("6-T3")
def test_the_session_of_the_page_is_a_real_one(
    mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    for name in ("celery_taskmeta", "celery_groupmeta"):
        mongo_database[name].insert_many(real_documents(f"celery-results/{name}"))
    configuration = replaced(
        of_kind(PAGE, "toml"),
        ("mongodb://localhost:27017/?replicaSet=rs0", uri_of(mongo_database)),
        ('database = "celery"', f'database = "{mongo_database.name}"'),
        ("postgresql://postgres@localhost/results", postgres_dsn),
    )
    run_console(PAGE, tmp_path, configuration, (0, QUARANTINE))
    former = (
        f'app.conf.result_backend = "{uri_of(mongo_database)}"\n'
        f'app.conf.mongodb_backend_settings = {{"database": "{mongo_database.name}"}}\n'
    )
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE \"{connection.info.dbname}\" SET timezone = 'Asia/Tokyo'")
    with application_user(of_kind(PAGE, "sql"), "celery_app", postgres_dsn) as dsn:
        place = dsn.partition("://")[2]
        settings = replaced(of_kind(PAGE, "python"), ("celery_app@localhost/results", place))
        assert answer_of(settings) == ANSWER
        assert answer_of(former) == ANSWER
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            connection.execute("DELETE FROM celery_taskmeta WHERE task_id = 'new'")
        first, _ = settings.splitlines()
        assert answer_of(first) == ANSWER.replace("True", "False"), "the second line belongs to the first"


def answer_of(settings: str) -> str:
    """Return the output of an application with these settings."""
    interpreter = python(BY_NAME["celery-results-5.7"])
    program = APPLICATION.format(settings=settings)
    done = subprocess.run([interpreter, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.proves("6-T5")
def test_the_session_of_beat_is_a_real_one(mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path) -> None:
    mongo_database["schedules"].insert_many(real_documents("celerybeat-mongo/ticked"))
    interpreter = str(python(BY_NAME["sqlalchemy-celery-beat-0.9"]))
    configuration = replaced(
        of_kind(BEAT, "toml"),
        ("mongodb://localhost:27017/?replicaSet=rs0", uri_of(mongo_database)),
        ('database = "celery"', f'database = "{mongo_database.name}"'),
        ("postgresql://postgres@localhost/beat", postgres_dsn),
        ("venv/bin/python", interpreter),
    )
    run_console(BEAT, tmp_path, configuration, (0, UNVERIFIED))
    application = 'from celery import Celery\napp = Celery("shop", broker="memory://")\n'
    zone = 'app.conf.timezone = "Europe/Vienna"\n'
    with application_user(of_kind(BEAT, "sql"), "beat_app", postgres_dsn) as dsn:
        setting = replaced(of_kind(BEAT, "python"), ("beat_app@localhost/beat", dsn.partition("://")[2]))
        (tmp_path / "shop.py").write_text(application + zone + setting, encoding="utf-8")
        sent = [*first_sent(interpreter, tmp_path), *first_sent(interpreter, tmp_path, seconds=20)]
    names = [name for name in sent if name != "now"]  # each 45 seconds
    assert sorted(names) == sorted(set(names)), "each once, also after a restart"
    assert {"workdays", "routed", "own-fields"} <= set(names)
    assert "now" in sent
    assert {"quarters", "hours", "after", "cron-after"} & set(sent) == set(), "disabled, reached, or not begun"


def first_sent(interpreter: str, folder: Path, seconds: float = 120) -> list[str]:
    """Return the tasks that beat sends after its start, until it has sent ``own-fields``, or for so long."""
    (command,) = re.findall(r"^celery (-A shop beat .*)$", PAGE, flags=re.MULTILINE)
    log = folder / "beat.log"
    with log.open("w") as file:
        beat = subprocess.Popen(
            [interpreter, "-m", "celery", *shlex.split(command), "-l", "info"],
            cwd=folder,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            until = time.monotonic() + seconds
            while time.monotonic() < until and "Sending due task own-fields " not in log.read_text():
                wait(beat, 0.5)
            wait(beat, 5)  # what comes after it in the same moment
            assert beat.poll() is None, log.read_text()[-2000:]
        finally:
            beat.send_signal(signal.SIGTERM)
            beat.wait(timeout=60)
    return re.findall(r"Sending due task (\S+) ", log.read_text())


def wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
