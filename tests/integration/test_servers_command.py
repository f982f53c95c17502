"""``migrator servers``: both go on after the command, keep their data over a stop, and end when they are told to."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psycopg
import pytest
from pymongo import MongoClient

from migrator.config import EmbeddedSettings
from migrator.exit_status import USAGE
from migrator.testing.servers import daemon
from migrator.testing.servers.directory import lock_within, may_enter, unprivileged
from tests.ordinary_user import ordinary_folder
from tests.scheduler_processes import until


def servers(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "migrator", "servers", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


def done(*arguments: str, folder: Path) -> str:
    ended = servers(*arguments, folder=folder)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def state(folder: Path) -> daemon.State:
    found = daemon.read_state(folder / daemon.DEFAULT_DIRECTORY)
    assert found is not None
    return found


class Process(NamedTuple):
    """A process; another one may get its number, but not begin in the same tick."""

    pid: int
    began: int


def family(pid: int) -> list[Process]:
    """Return a process and all that descend from it; PostgreSQL's come and go, and one that has ended is left out."""
    began = daemon.started_at(pid)
    if began is None:
        return []
    children = said_of(pid, f"task/{pid}/children").split()
    return [Process(pid, began), *(one for child in children for one in family(int(child)))]


def said_of(pid: int, name: str) -> str:
    """Return a file of a process in /proc; nothing if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(processes: list[Process]) -> list[Process]:
    return [one for one in processes if daemon.started_at(one.pid) == one.began]


def exported(said: str) -> tuple[str, str]:
    """Return the addresses that the printed variables lead to."""
    lines = [line.removeprefix("export ").split("=", 1) for line in said.splitlines()]
    assert [name for name, _ in lines] == ["MIGRATOR_MONGO__URI_FILE", "MIGRATOR_POSTGRES__DSN_FILE"]
    mongo, postgres = (Path(path) for _, path in lines)
    for file in (mongo, postgres):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return mongo.read_text().strip(), postgres.read_text().strip()


def write(uri: str, dsn: str) -> None:
    with MongoClient[dict[str, Any]](uri) as client:
        client.get_default_database().things.insert_one({})
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS things ()")
        connection.execute("INSERT INTO things DEFAULT VALUES")


def written(uri: str, dsn: str) -> list[int]:
    with MongoClient[dict[str, Any]](uri) as client, psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*) FROM things").fetchone()
        assert row is not None
        return [client.get_default_database().things.count_documents({}), row[0]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A working directory; whatever runs in it is ended afterwards."""
    with ordinary_folder() as made:
        yield made
        daemon.stop(made / daemon.DEFAULT_DIRECTORY, remove=True)


def test_the_servers_outlive_the_command_and_their_data_outlive_the_servers(folder: Path) -> None:
    said = done("start", folder=folder)
    addresses = exported(said)
    write(*addresses)
    processes = family(state(folder).pid)
    assert len(processes) >= 5, "the daemon, two guardians, two servers"
    statuses = [line for one in processes[1:] for line in said_of(one.pid, "status").splitlines()]
    uids = {int(line.split()[1]) for line in statuses if line.startswith("Uid:")}
    account = unprivileged()
    assert uids == {account.uid if account else os.getuid()}

    assert done("start", folder=folder) == said
    assert done("status", folder=folder) == said
    assert family(state(folder).pid)[0] == processes[0]

    assert "stopped; their data are kept" in done("stop", folder=folder)
    assert alive(processes) == []
    assert "are stopped" in done("status", folder=folder)
    assert "did not run" in done("stop", folder=folder)

    assert done("start", folder=folder) == said
    assert exported(said) == addresses
    assert written(*addresses) == [1, 1]

    # killed, it leaves nothing running; stop waits for that, and start finds what was written
    write(*addresses)
    processes = family(state(folder).pid)
    os.kill(processes[0].pid, signal.SIGKILL)
    done("stop", folder=folder)
    assert alive(processes) == []
    assert done("start", folder=folder) == said
    assert written(*addresses) == [2, 2]

    place = folder / daemon.DEFAULT_DIRECTORY
    (place / "mine").touch()
    processes, data = family(state(folder).pid), Path(state(folder).data)
    assert "removed with their data" in done("stop", "--remove", folder=folder)
    assert alive(processes) == []
    assert [path.name for path in place.iterdir()] == ["mine"]
    assert not (data / daemon.MONGO).exists()
    refused = servers("start", folder=folder)
    assert (refused.returncode, "holds other files" in refused.stderr) == (USAGE, True)


def test_with_authentication_no_secret_is_an_argument_of_a_process(folder: Path) -> None:
    uri, dsn = exported(done("start", "--auth", folder=folder))
    assert uri.startswith("mongodb://migrator:")
    assert dsn.startswith("postgresql://migrator:")
    place = folder / daemon.DEFAULT_DIRECTORY
    texts = [(place / name).read_text() for name in (daemon.SOURCE_URI, daemon.TARGET_DSN, daemon.ADMIN_URI)]
    secrets = [text.partition("@")[0].rpartition(":")[2] for text in texts]
    assert all(len(one) == 32 for one in secrets)
    arguments = [said_of(one.pid, "cmdline") for one in family(state(folder).pid)]
    assert len(arguments) >= 5, "the daemon, two guardians, two servers"
    assert not [one for one in arguments for secret in secrets if secret in one]
    kept = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir() if path.is_file()}
    assert set(kept.values()) == {0o600}, kept
    shown = json.loads(done("status", "--json", folder=folder))
    assert shown["auth"] is True
    assert not [secret for secret in secrets if secret in json.dumps(shown)]
    write(uri, dsn)
    refused = servers("start", folder=folder)
    assert (refused.returncode, refused.stderr.count("\n")) == (USAGE, 1)
    assert "were made with --auth: add it" in refused.stderr
    done("stop", folder=folder)
    assert exported(done("start", "--auth", folder=folder)) == (uri, dsn)
    assert written(uri, dsn) == [1, 1]


def test_a_daemon_whose_caller_was_killed_ends_and_the_next_start_begins_anew(folder: Path) -> None:
    place = folder / daemon.DEFAULT_DIRECTORY
    place.mkdir(parents=True)
    read, write_end = os.pipe()
    os.close(read)
    order = daemon.Order(str(place), auth=False, embedded=EmbeddedSettings(), answer=write_end)
    command = [sys.executable, "-m", "migrator.testing.servers.daemon", msgspec.json.encode(order).decode()]
    subprocess.run(command, pass_fds=[write_end], check=True)
    os.close(write_end)
    until(lambda: daemon.read_state(place))  # it holds the lock by then
    handle = os.open(place / daemon.LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    assert lock_within(handle, 120), "the daemon holds the lock until it ends"
    os.close(handle)
    assert not state(folder).running
    write(*exported(done("start", folder=folder)))


def test_stop_ends_a_start_that_is_under_way(folder: Path) -> None:
    place = folder / daemon.DEFAULT_DIRECTORY
    command = [sys.executable, "-m", "migrator", "servers", "start"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder):
        until(lambda: daemon.read_state(place))
        processes = family(state(folder).pid)
        daemon.stop(place)
        assert alive(processes) == []
    left = [name for name in (daemon.MONGO, daemon.POSTGRES) if (place / name / "data" / "postmaster.pid").exists()]
    assert left == []


def test_a_process_that_took_the_number_of_the_daemon_is_left_alone(folder: Path) -> None:
    place = folder / daemon.DEFAULT_DIRECTORY
    place.mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"]) as other:
        began = daemon.started_at(other.pid)
        assert began is not None
        before = daemon.State(auth=False, data=str(place), pid=other.pid, started=began - 1)
        (place / daemon.STATE).write_bytes(msgspec.json.encode(before))
        assert "did not run" in done("stop", folder=folder)
        assert other.poll() is None
        other.kill()


def test_without_servers_stop_and_status_say_so(folder: Path) -> None:
    for command in ("stop", "status"):
        assert done(command, folder=folder) == f"no servers in {folder / daemon.DEFAULT_DIRECTORY}\n"


def test_where_the_servers_account_cannot_enter_the_data_are_elsewhere(tmp_path: Path) -> None:
    account = unprivileged()
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    base = daemon._base(private, account)
    if account is None:
        assert base == private
    else:
        assert may_enter(account, base)
        assert (base.stat().st_uid, stat.S_IMODE(base.stat().st_mode)) == (0, 0o711)
        base.rmdir()
