"""The commands of the page about Celery's sources, run as they stand on the documents of the library."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.acceptance.test_readme import is_like, session
from tests.copying import run, uri_of
from tests.real_documents import real_documents

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sources-celery.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_session_of_the_page_is_a_real_one(
    mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path
) -> None:
    for name in ("schedules", "ticked"):
        mongo_database["schedules"].insert_many(real_documents(f"celerybeat-mongo/{name}"))
    configuration = re.findall(r"^```toml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)[0]
    for shown, real in (
        ("mongodb://localhost:27017/?replicaSet=rs0", uri_of(mongo_database)),
        ('database = "celery"', f'database = "{mongo_database.name}"'),
        ("postgresql://postgres@localhost/scheduler", scheduler_dsn),
    ):
        assert shown in configuration
        configuration = configuration.replace(shown, real)
    (tmp_path / "config.toml").write_text(configuration, encoding="utf-8")
    (tmp_path / "config.toml").chmod(0o600)
    (block,) = re.findall(r"^```console\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    for command, shown in session(block):
        program, *arguments = shlex.split(command)
        assert program == "migrator"
        status, out, said = run(*arguments, cwd=tmp_path)
        assert status == 0, said
        assert is_like(shown, out), f"{command}\n{out}\n{said[-2000:]}"
