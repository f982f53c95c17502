"""The page about the results of Celery in PostgreSQL: its session as it stands, then the application on both sides."""

import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from migrator.exit_status import QUARANTINE
from tests.copying import uri_of
from tests.native_tables import BY_NAME, python
from tests.page_session import of_kind, replaced, run_console
from tests.real_documents import real_documents

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "targets-celery.md").read_text(encoding="utf-8")
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
    place = postgres_dsn.partition("://")[2]
    settings = replaced(of_kind(PAGE, "python"), ("postgres@localhost/results", place))
    former = (
        f'app.conf.result_backend = "{uri_of(mongo_database)}"\n'
        f'app.conf.mongodb_backend_settings = {{"database": "{mongo_database.name}"}}\n'
    )
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE \"{connection.info.dbname}\" SET timezone = 'Asia/Tokyo'")
    assert answer_of(settings) == ANSWER
    assert answer_of(former) == ANSWER
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM celery_taskmeta WHERE task_id = 'new'")
    first, _ = settings.splitlines()
    assert answer_of(first) == ANSWER.replace("True", "False"), "the second line belongs to the first"


def answer_of(settings: str) -> str:
    """Return what an application with these settings prints."""
    interpreter = python(BY_NAME["celery-results-5.7"])
    program = APPLICATION.format(settings=settings)
    done = subprocess.run([interpreter, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
