"""The page about a source of one's own, run as it stands: its documents, its commands, their output."""

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

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "new-source.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.proves("5-S1")
def test_the_session_of_the_page_is_a_real_one(
    mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    (configuration,) = blocks("toml")
    for shown, real in (
        ("mongodb://localhost:27017/?replicaSet=rs0", uri_of(mongo_database)),
        ('database = "acme"', f'database = "{mongo_database.name}"'),
        ("postgresql://postgres@localhost/scheduler", postgres_dsn),
    ):
        assert shown in configuration
        configuration = configuration.replace(shown, real)
    (tmp_path / "config.toml").write_text(configuration)
    (tmp_path / "config.toml").chmod(0o600)
    environment = os.environ | {
        "MONGO_URI": uri_of(mongo_database),
        "MONGO_DATABASE": mongo_database.name,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    (documents,) = blocks("python")
    subprocess.run([sys.executable, "-c", documents], check=True, env=environment)
    statuses = []
    for block in blocks("console"):
        for command, shown in session(block):
            done = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
            )
            output = done.stdout + (done.stderr if done.returncode == 2 else "")
            assert is_like(shown, output), f"{command}\n{output}\n{done.stderr[-2000:]}"
            statuses.append(done.returncode)
    assert statuses == [0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]
