"""The pytest plugin as an application uses it: sessions of pytest in a folder of their own."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo import MongoClient

from migrator.testing.servers.foreign import MONGO, POSTGRES
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from tests.unit.test_startup import HEAVY

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "testing-your-application.md"
PLUGIN = "migrator.testing.pytest_plugin"
BLOCK = re.compile(r"^```(?:python|toml)\n# (?P<name>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def session(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder with the plugin, which is loaded by its module, whatever the distribution says."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:migrator", "-p", PLUGIN, *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MIGRATOR_"))}
    return subprocess.run(
        command, cwd=folder, env=kept | (environment or {}), capture_output=True, text=True, check=False, timeout=300
    )


def passed(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the tests that passed, of a session with ``-v`` in which none failed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(re.findall(r"::(\S+) PASSED", done.stdout))


@pytest.fixture
def servers(mongo_server: MongoServer, postgres_server: PostgresServer) -> dict[str, str]:
    """Return the variables that name servers somebody started."""
    return {MONGO: mongo_server.uri, POSTGRES: postgres_server.dsn().removesuffix("/postgres")}


def write_page(folder: Path) -> None:
    files = {found["name"]: found["text"] for found in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))}
    assert sorted(files) == ["pyproject.toml", "shop.py", "test_shop.py"]
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def databases(mongo: MongoServer, postgres: PostgresServer) -> set[str]:
    with MongoClient[Any](mongo.uri) as client, psycopg.connect(postgres.dsn()) as connection:
        rows = connection.execute("SELECT datname FROM pg_database").fetchall()
        return {*client.list_database_names(), *(name for (name,) in rows)}


@pytest.mark.proves("6-U12")
def test_the_tests_of_the_page_pass_on_every_backend_and_leave_nothing_on_the_servers(
    tmp_path: Path, servers: dict[str, str], mongo_server: MongoServer, postgres_server: PostgresServer
) -> None:
    write_page(tmp_path)
    before = databases(mongo_server, postgres_server)
    with MongoClient[Any](mongo_server.uri) as client:
        written = client.admin.command("serverStatus")["opcounters"]["insert"]
        names = passed(session(tmp_path, "-v", environment=servers))
        assert client.admin.command("serverStatus")["opcounters"]["insert"] > written
    tests = re.findall(r"^def (test_\w+)", (tmp_path / "test_shop.py").read_text(), re.MULTILINE)
    assert names == sorted(f"{test}[{backend}]" for test in tests for backend in ("memory", "mongo", "postgres"))
    assert databases(mongo_server, postgres_server) == before


def test_a_change_of_the_application_fails_its_tests(tmp_path: Path) -> None:
    write_page(tmp_path)
    shop = tmp_path / "shop.py"
    shop.write_text(shop.read_text().replace('payload={"order": order}', 'payload={"order": 8}'))
    done = session(tmp_path, "--migrator-backend", "memory")
    assert done.returncode == 1
    assert "2 failed, 1 passed" in done.stdout


def test_it_starts_servers_of_its_own_and_removes_them(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "def test_own(scheduling):\n"
        "    scheduling.store.ping()\n"
        "    own = scheduling.settings\n"
        "    print('address:', own.postgres.dsn or own.mongo.uri)\n"
    )
    done = session(tmp_path, "-s", "--migrator-backend", "mongo", "--migrator-backend", "postgres")
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    mongo, postgres = re.findall(r"address: (\S+)", done.stdout)
    with MongoClient[Any](mongo, serverSelectionTimeoutMS=200) as client, pytest.raises(Exception, match="refused"):
        client.admin.command("ping")
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(postgres)


LOADED = """
import sys
def test_nothing():
    print("loaded:", *sorted(name for name in {heavy} if name in sys.modules))
"""


def test_a_session_that_does_not_ask_for_it_imports_no_driver(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(LOADED.format(heavy=HEAVY))
    done = session(tmp_path, "-s")
    assert "loaded:\n" in done.stdout, done.stdout
    assert "1 passed" in done.stdout
    test.write_text(test.read_text().replace("test_nothing()", "test_nothing(scheduling)"))
    done = session(tmp_path, "-s")
    [loaded] = re.findall("loaded:(.*)", done.stdout)
    assert "msgspec" in loaded.split()
    assert not {"psycopg", "pymongo"} & set(loaded.split())


def test_a_test_names_its_backends_and_an_unknown_one_is_refused(tmp_path: Path, servers: dict[str, str]) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('migrator_backend', ['postgres'])\n"
        "def test_one(scheduling):\n"
        "    assert scheduling.store.backend == 'postgres'\n"
        "def test_two(scheduling):\n"
        "    assert scheduling.store.backend == 'memory'\n"
    )
    assert passed(session(tmp_path, "-v", environment=servers)) == ["test_one[postgres]", "test_two[memory]"]
    done = session(tmp_path, "-o", "migrator_backends=memroy")
    assert done.returncode
    assert "migrator_backends names memroy; known: memory, mongo, postgres" in done.stdout


SCENE = """
from datetime import timedelta
import psycopg
import pytest
from migrator import Registry, Scheduler, ScheduleRequest, UsageError

registry = Registry()

@registry.handler("work")
async def work(*, number):
    return number

@registry.handler("other")
def other():
    pass

def once(number):
    return ScheduleRequest(handler_name="work", payload={"number": number}, created_by="test")

def test_of_all_tenants_and_of_no_other_handler(scheduling):
    only = Registry()
    only.register("other", other)
    Scheduler(scheduling.store, "acme").schedule_once(once(1))
    scheduling.scheduler.schedule_once(once(2))
    assert scheduling.run_until_idle(only) == []
    calls = scheduling.run_until_idle(registry)
    assert sorted((call.tenant, call.arguments["number"], call.result) for call in calls) == [
        ("acme", 1, 1), ("test", 2, 2)
    ]
    assert scheduling.calls == calls
    assert scheduling.run_until_idle(registry) == []

def test_more_than_a_batch(scheduling):
    for number in range(120):
        scheduling.scheduler.schedule_once(once(number))
    calls = scheduling.run_until_idle(registry)
    assert sorted(call.arguments["number"] for call in calls) == list(range(120))

def test_the_store_goes_by_the_clock(scheduling):
    began = scheduling.clock.now
    assert scheduling.store.now() == began
    job = scheduling.scheduler.schedule_once(once(1), began + timedelta(days=400))
    assert job.schedule.created_at == began
    assert scheduling.run_until_idle(registry) == []
    scheduling.clock.advance(timedelta(days=400))
    [call] = scheduling.run_until_idle(registry)
    assert call.at == call.scheduled_at == began + timedelta(days=400)
    [execution] = scheduling.scheduler.history(job.id).executions
    assert (execution.run.state, execution.run.finished_at) == ("completed", call.at)
    assert scheduling.scheduler.get(job.id).schedule.status == "completed"
    for wrong in (lambda: scheduling.clock.advance(timedelta(-1)), lambda: scheduling.clock.move_to(began)):
        with pytest.raises(UsageError):
            wrong()

def test_the_transaction_of_the_application(scheduling):
    if scheduling.store.backend != "postgres":
        with pytest.raises(UsageError):
            scheduling.scheduler.using(object())
        return
    scheduling.clock.advance(timedelta(days=1))
    with psycopg.connect(scheduling.settings.postgres.dsn) as connection:
        job = scheduling.scheduler.using(connection).schedule_once(once(1))
        assert job.schedule.created_at == scheduling.clock.now
        connection.rollback()
        assert scheduling.run_until_idle(registry) == []
        scheduling.scheduler.using(connection).schedule_once(once(2))
        connection.commit()
    [call] = scheduling.run_until_idle(registry)
    assert call.arguments == {"number": 2}
"""


@pytest.mark.proves("6-U12")
def test_the_scene_does_what_the_page_says(tmp_path: Path, servers: dict[str, str]) -> None:
    (tmp_path / "test_scene.py").write_text(SCENE)
    done = session(tmp_path, "-v", "-o", "migrator_backends=memory mongo postgres", environment=servers)
    assert len(passed(done)) == SCENE.count("def test_") * 3


def test_the_distribution_names_the_plugin() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    assert declared["pytest11"] == {"migrator": PLUGIN}
