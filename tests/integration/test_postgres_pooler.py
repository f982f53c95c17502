"""A real pooler before the server: in transaction mode locks are refused with the reason, and the queue still works."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from migrator.errors import RefusedError
from migrator.store.postgres.connections import DispatcherPool, LockSessions
from migrator.store.postgres.locks import PostgresLocks
from migrator.store.postgres.queue import PostgresQueue
from migrator.store.postgres.wakeups import NOTIFY, listening
from migrator.store.queue import Finish
from migrator.testing.servers.directory import unprivileged
from tests.schema_rows import connect, insert
from tests.store_postgres import NOW, settings

PROGRAM = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/usr/local/sbin")
MODES = ["transaction", "session"]

HOUR = timedelta(hours=1)


@contextmanager
def pooled(dsn: str, mode: str, folder: Path) -> Iterator[str]:
    """Start a pooler of this mode, and give the DSN that leads through it."""
    if PROGRAM is None:
        pytest.skip("not run: pgbouncer is not installed")
    server, port = urlsplit(dsn), free_port()
    database = server.path[1:]
    (folder / "users.txt").write_text(f'"{server.username}" "{server.password}"\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{database} = host={server.hostname} port={server.port} dbname={database}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = scram-sha-256\n"
        f"auth_file = {folder}/users.txt\npool_mode = {mode}\ndefault_pool_size = 4\n"
    )
    account = unprivileged()
    for path in (folder, *folder.parents):
        if path.stat().st_uid == folder.stat().st_uid and path != Path(path.root):
            path.chmod(path.stat().st_mode | 0o055)
    assert PROGRAM is not None
    process = subprocess.Popen(
        [PROGRAM, str(folder / "pgbouncer.ini")],
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        next(line for line in process.stderr if "process up" in line)
        yield f"postgresql://{server.username}:{server.password}@127.0.0.1:{port}/{database}"
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def free_port() -> int:
    with closing(socket.socket()) as there:
        there.bind(("127.0.0.1", 0))
        return int(there.getsockname()[1])


@pytest.mark.proves("0-T2.8.1")
@pytest.mark.parametrize("mode", MODES)
def test_a_pooler_in_transaction_mode_is_refused_and_one_in_session_mode_is_not(
    mode: str, scheduler_dsn: str, tmp_path: Path
) -> None:
    with pooled(scheduler_dsn, mode, tmp_path) as dsn:
        dispatch = DispatcherPool(settings(dsn, pool_size=2))
        locks = PostgresLocks(settings(dsn), dispatch)
        try:
            if mode == "transaction":
                for _ in range(3):
                    with pytest.raises(RefusedError, match="a pooler in transaction mode"):
                        locks.acquire("a", "r", ttl=HOUR)
            else:
                handle = locks.acquire("a", "r", ttl=HOUR)
                assert handle is not None
                assert locks.acquire("a", "r", ttl=HOUR) is None
                assert handle.release()
        finally:
            locks.close()
            dispatch.close()


@pytest.mark.proves("2-X6")
@pytest.mark.parametrize("mode", MODES)
def test_the_queue_works_through_a_pooler_and_leaves_nothing_on_its_sessions(
    mode: str, scheduler_dsn: str, tmp_path: Path
) -> None:
    with connect(scheduler_dsn) as connection:
        for _ in range(9):
            insert(connection, "runs", "a", state="queued", created_at=NOW)
    with pooled(scheduler_dsn, mode, tmp_path) as dsn:
        dispatch = DispatcherPool(settings(dsn, pool_size=3))
        queue = PostgresQueue(dispatch)
        try:
            for _ in range(9):
                (claim,) = queue.claim("w", 1, HOUR)
                end = Finish(run_id=claim.run.id, tenant_id="a", worker_id="w", fence=1, state="completed")
                assert queue.finish([end]) == [claim.run.id]
            with psycopg.connect(dsn, autocommit=True) as other:
                assert other.execute("SELECT current_user, current_setting('plan_cache_mode')").fetchone() == (
                    urlsplit(dsn).username,
                    "auto",
                )
        finally:
            dispatch.close()


@pytest.mark.parametrize("mode", MODES)
def test_wake_ups_are_refused_by_a_pooler_in_transaction_mode_and_work_through_one_in_session_mode(
    mode: str, scheduler_dsn: str, tmp_path: Path
) -> None:
    with pooled(scheduler_dsn, mode, tmp_path) as dsn:
        if mode == "transaction":
            with pytest.raises(RefusedError, match="a pooler in transaction mode"):
                listening(settings(dsn))
        else:
            with listening(settings(dsn)) as listener, connect(scheduler_dsn) as connection:
                connection.execute(NOTIFY)
                connection.commit()
                assert len(list(listener.notifies(timeout=60, stop_after=1))) == 1


def test_without_a_pooler_sessions_are_one_s_own(scheduler_dsn: str) -> None:
    sessions = LockSessions(settings(scheduler_dsn))
    session = sessions.take()
    assert session.announced == session.pid
    sessions.release_session(session)
    assert sessions.take() is session
    sessions.close()
    session.close()
