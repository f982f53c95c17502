"""The page about sources in tables of PostgreSQL, run as it stands: its configuration, its commands, their output."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from migrator.testing.servers.postgres import PostgresServer
from tests.acceptance.test_readme import is_like, session
from tests.conftest import fresh_name

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "sources-other.md").read_text()
ROWS = """
INSERT INTO jobs (id, source_id, url, schedule_time, schedule_enabled, interval_minutes, interval_type, status) VALUES
    ('00000000-0000-4000-8000-000000000001', 'a', 'https://a', '0 * * * *', true, 60, 'hours', 'scheduled'),
    ('00000000-0000-4000-8000-000000000002', 'b', 'https://b', NULL, true, 90, 'minutes', 'scheduled'),
    ('00000000-0000-4000-8000-000000000003', 'c', 'https://c', NULL, false, NULL, NULL, 'pending');
INSERT INTO job_executions (job_id, execution_number, status, completed_at, duration_ms)
SELECT '00000000-0000-4000-8000-000000000001', number, 'completed', now(), 0 FROM generate_series(1, 2) AS number;
"""


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture
def source_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    dsn = postgres_server.create_database(fresh_name())
    yield dsn
    postgres_server.drop_database(dsn.rpartition("/")[2])


@pytest.mark.slow
def test_the_session_of_the_page_is_a_real_one(postgres_dsn: str, source_dsn: str, tmp_path: Path) -> None:
    with psycopg.connect(source_dsn) as source:
        source.execute((ROOT / "tests/fixtures_data/tables/crawler.sql").read_bytes())
        source.execute(ROWS.encode())
    configuration = block("toml")
    for shown, real in (
        ("postgresql://reader@localhost/crawler", source_dsn),
        ("postgresql://postgres@localhost/scheduler", postgres_dsn),
    ):
        assert shown in configuration
        configuration = configuration.replace(shown, real)
    (tmp_path / "config.toml").write_text(configuration)
    (tmp_path / "config.toml").chmod(0o600)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command, shown in session(block("console")):
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
        )
        assert is_like(shown, done.stdout), f"{command}\n{done.stdout}\n{done.stderr[-2000:]}"
        assert done.returncode == 0, f"{command}\n{done.stderr[-2000:]}"
