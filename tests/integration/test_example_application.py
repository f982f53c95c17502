"""The example application: its own tests pass on both databases, and it does what its page says."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator import Scheduler, Settings, load_settings, open_store
from migrator.testing.servers.foreign import MONGO, POSTGRES
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from tests.conftest import fresh_name
from tests.integration.test_programs import environment

SHOP = Path(__file__).resolve().parents[2] / "docs" / "examples" / "shop"
SERVERS = frozenset({"mongo", "postgres"})


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return a copy of the application's folder."""
    folder = tmp_path / "shop"
    shutil.copytree(SHOP, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    return folder


@pytest.fixture
def own_tests(
    shop: Path, mongo_server: MongoServer, postgres_server: PostgresServer
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the tests of the application on the servers of this session."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MIGRATOR_"))}
    kept |= {MONGO: mongo_server.uri, POSTGRES: postgres_server.dsn().removesuffix("/postgres")}
    plugin = ["-p", "no:cacheprovider", "-p", "no:migrator", "-p", "migrator.testing.pytest_plugin"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-v", *plugin, *arguments]
        return subprocess.run(command, cwd=shop, env=kept, capture_output=True, text=True, check=False, timeout=300)

    return run


@pytest.mark.proves("6-U12")
def test_its_own_tests_pass_on_both_databases(own_tests: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = own_tests()
    assert done.returncode == 0, done.stdout + done.stderr
    backends: dict[str, set[str]] = {}
    for name, backend in re.findall(r"::(test_\w+)\[(\w+)\] PASSED", done.stdout):
        backends.setdefault(name, set()).add(backend)
    text = (SHOP / "test_shop.py").read_text(encoding="utf-8")
    assert sorted(backends) == sorted(re.findall(r"^def (test_\w+)", text, re.MULTILINE))
    of_one = re.findall(r'"migrator_backend", \["(\w+)"\]\)\ndef (test_\w+)', text)
    assert backends == {name: set(SERVERS) for name in backends} | {name: {backend} for backend, name in of_one}


def test_they_see_an_order_that_is_stored_before_its_job(
    shop: Path, own_tests: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    program = shop / "shop.py"
    before = program.read_text(encoding="utf-8")
    program.write_text(before.replace("self._scheduler.using(self._connection)", "self._scheduler"), encoding="utf-8")
    assert program.read_text(encoding="utf-8") != before
    done = own_tests("-k", "rolled_back", "--no-header")
    assert "FAILED test_shop.py::test_an_order_that_is_rolled_back_has_no_mail[postgres]" in done.stdout


@pytest.fixture(params=sorted(SERVERS))
def settings(request: pytest.FixtureRequest) -> Settings:
    if request.param == "postgres":
        make: Callable[[], str] = request.getfixturevalue("new_scheduler_dsn")
        return load_settings({"postgres": {"dsn": make()}, "persistence": {"scheduler": "postgres"}}, {})
    server: MongoServer = request.getfixturevalue("mongo_server")
    mongo = {"uri": server.uri, "database": fresh_name()}
    return load_settings({"mongo": mongo, "persistence": {"scheduler": "mongo"}}, {})


@pytest.mark.proves("6-U12")
def test_the_commands_of_its_page_place_an_order_and_execute_its_job(shop: Path, settings: Settings) -> None:
    [block] = re.findall(
        r"^```sh\n(.*?)^```$", (SHOP / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    place, work = block.splitlines()
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    printed = [
        subprocess.run(
            ["bash", "-c", line],
            cwd=shop,
            env=environment(settings) | path,
            text=True,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for line in (place, f"{work} --until-idle")
    ]
    order = printed[0].removeprefix("order ").strip()
    with open_store(settings) as store:
        scheduler = Scheduler(store, "shop")
        job = scheduler.get_by_name(f"confirm {order}")
        assert job is not None
        [execution] = scheduler.history(job.id).executions
    assert (execution.run.state, execution.result) == ("completed", {"order": order, "sent": "yes"})
