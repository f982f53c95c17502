"""The commands of the page about Celery's sources, run as they stand on the documents of the library."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.acceptance.test_readme import is_like, session
from tests.copying import uri_of
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
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    (block,) = re.findall(r"^```console\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    for command, shown in session(block):
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
        )
        assert done.returncode == 0, done.stderr
        assert is_like(shown, done.stdout), f"{command}\n{done.stdout}\n{done.stderr[-2000:]}"
