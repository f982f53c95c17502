"""Locks on PostgreSQL between processes and sessions: who dies, who is stopped, who waits, and what stays behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing.connection import Connection as Pipe
from threading import Event, Thread
from time import monotonic
from typing import Any

import psycopg
import pytest

from migrator.errors import LostLockError
from migrator.store.postgres.connections import LockSession
from migrator.store.postgres.store import PostgresStore
from migrator.store.shadow_reads import ShadowedStore
from migrator.values.identity import lock_id
from tests.integration.test_postgres_store_concurrency import wait_for_waiters
from tests.scheduler_processes import until
from tests.schema_rows import connect
from tests.store_postgres import NOW, opened, schedule, settings
from tests.store_processes import children

HOUR, SECOND, SHORT = timedelta(hours=1), timedelta(seconds=1), timedelta(milliseconds=300)
PATIENT = timedelta(minutes=1)

GOLDEN = {
    "schedule-poller": -4556089964316497929,
    "leader": 8013785722248176571,
    "tenant-a:schedule:42": 3556676964334982814,
    "größe": -4488053461319811238,
    "": 2420030879217371282,
}
IN_SQL = """
SELECT ('x' || encode(substring(sha256(convert_to('scheduler.lock.v1', 'UTF8') || '\\x00'::bytea
    || convert_to(%s, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint
"""
ADVISORY = (
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND database ="
    " (SELECT oid FROM pg_database WHERE datname = current_database()) AND granted"
)


@pytest.mark.proves("0-T2.8.6", "0-T2.8.1")
def test_the_id_of_a_lock_is_the_same_in_python_in_sql_and_in_every_process(any_scheduler_dsn: str) -> None:
    script = f"from migrator.values.identity import lock_id; print([lock_id(key) for key in {list(GOLDEN)!r}])"
    for seed in ("0", "1", "12345"):
        found = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == str(list(GOLDEN.values()))
    with connect(any_scheduler_dsn) as connection:
        assert {key: connection.execute(IN_SQL, (key,)).fetchone() for key in GOLDEN} == {
            key: (number,) for key, number in GOLDEN.items()
        }


def test_what_is_held_can_be_found_in_pg_locks_by_its_id(any_scheduler_dsn: str) -> None:
    with opened(any_scheduler_dsn) as store, connect(any_scheduler_dsn) as connection:
        for resource in ("r", "größe", "5"):
            handle = store.locks.acquire("a", resource, ttl=HOUR)
            assert handle is not None
            found = connection.execute(
                "SELECT (classid::bigint << 32) | objid::bigint, objsubid FROM pg_locks"
                " WHERE locktype = 'advisory' AND pid <> pg_backend_pid() AND database ="
                " (SELECT oid FROM pg_database WHERE datname = current_database())"
            ).fetchall()
            stored = connection.execute("SELECT lock_id FROM scheduler.locks WHERE key = %s", (f"a/{resource}",))
            assert found == [(lock_id(f"a/{resource}"), 1)]
            assert stored.fetchall() == [(lock_id(f"a/{resource}"),)]
            assert handle.release()


def hold(store: PostgresStore, pipe: Pipe, _number: int, ttl: timedelta) -> list[Any]:
    """Hold a lock; told to go on, do all that a holder may."""
    handle = store.locks.acquire("*", "leader", ttl=ttl, holder="child")
    assert handle is not None
    pipe.send(handle.fence)
    pipe.recv()
    outcome: list[Any] = [handle.trusted, handle.renew(), handle.release()]
    try:
        with store.session("a") as session:
            store.locks.guard(session, "*", "leader", handle.fence)
            session.schedules.upsert(schedule(name="written by a zombie"))
    except LostLockError as error:
        outcome.append(str(error))
    return outcome


@pytest.mark.proves("0-T2.8.3")
def test_a_process_waits_for_another_no_longer_than_it_may_and_has_what_is_given_back(any_scheduler_dsn: str) -> None:
    wait = timedelta(milliseconds=200)
    with opened(any_scheduler_dsn) as store, children(1, hold, any_scheduler_dsn, HOUR) as (child,):
        assert child.hears() == 1
        began = monotonic()
        assert store.locks.acquire("*", "leader", ttl=HOUR, timeout=wait, holder="next") is None
        assert monotonic() - began >= wait.total_seconds()  # not before; how much later, the machine decides
        assert store.locks.holder("*", "leader") == ("child", 1)
        with ThreadPoolExecutor(1) as threads:
            waiter = threads.submit(store.locks.acquire, "*", "leader", ttl=HOUR, timeout=PATIENT, holder="next")
            wait_for_waiters(any_scheduler_dsn)
            child.go()
            assert child.hears()[:3] == [True, True, True]
            handle = waiter.result()
        assert handle is not None
        assert (handle.fence, store.locks.holder("*", "leader")) == (2, ("next", 2))
        assert handle.release()


@pytest.mark.proves("0-T2.8.3")
def test_the_server_ends_a_wait_at_the_timeout(any_scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ``lock_timeout``, which holds what is left of the timeout."""
    limits = list[str]()
    execute = psycopg.Connection.execute

    def recorded(connection: Any, query: Any, params: Any = None, **more: Any) -> Any:  # noqa: ANN401 - as the driver's
        if params and "'lock_timeout', $1" in str(query):
            limits.append(params[0])
        return execute(connection, query, params, **more)

    with opened(any_scheduler_dsn) as store:
        handle = store.locks.acquire("*", "leader", ttl=HOUR)
        assert handle is not None
        monkeypatch.setattr(psycopg.Connection, "execute", recorded)
        assert store.locks.acquire("*", "leader", ttl=HOUR, timeout=timedelta(milliseconds=300)) is None
        assert limits
        assert all(1 <= int(one.removesuffix("ms")) <= 300 for one in limits), limits
        assert handle.release()


LOST = [False, False, False, "the lock is not held any more under this fence"]


@pytest.mark.proves("0-T2.8.5", "0-R1")
def test_a_lock_is_free_at_once_when_its_holder_is_killed(any_scheduler_dsn: str) -> None:
    with opened(any_scheduler_dsn) as store, ThreadPoolExecutor(1) as threads:
        with children(1, hold, any_scheduler_dsn, HOUR) as (child,):
            assert child.hears() == 1
            waiter = threads.submit(store.locks.acquire, "*", "leader", ttl=HOUR, timeout=None, holder="next")
            wait_for_waiters(any_scheduler_dsn)
            assert store.locks.holder("*", "leader") == ("child", 1)
            child.signal(signal.SIGKILL)
            handle = waiter.result()
        assert handle is not None
        assert (handle.fence, store.locks.holder("*", "leader")) == (2, ("next", 2))
        assert handle.trusted
        assert handle.release()


@pytest.mark.proves("0-T2.8.4", "4-L6", "0-T2.8.5")
def test_a_holder_that_was_stopped_past_its_end_can_do_nothing_any_more(any_scheduler_dsn: str) -> None:
    with opened(any_scheduler_dsn) as store, children(1, hold, any_scheduler_dsn, SECOND) as (child,):
        assert child.hears() == 1
        child.signal(signal.SIGSTOP)
        handle = store.locks.acquire("*", "leader", ttl=HOUR, timeout=PATIENT, holder="next")
        assert handle is not None
        assert handle.fence == 2
        child.signal(signal.SIGCONT)
        child.go()
        assert child.hears() == LOST
        assert store.locks.holder("*", "leader") == ("next", 2)
        with store.session("a") as session:
            assert session.schedules.by_name("written by a zombie") is None
        assert handle.renew()
        assert handle.release()


@pytest.mark.proves("4-L6", "0-T2.8.4")
def test_a_session_that_an_administrator_ends_loses_its_lock(any_scheduler_dsn: str) -> None:
    with opened(any_scheduler_dsn) as store, connect(any_scheduler_dsn) as connection:
        handle = store.locks.acquire("a", "r", ttl=HOUR, holder="one")
        assert handle is not None
        assert handle.trusted
        ended = connection.execute(f"SELECT pg_terminate_backend(pid, 60000) FROM ({ADVISORY}) AS holders").fetchall()
        assert ended == [(True,)]
        assert not handle.trusted
        other = store.locks.acquire("a", "r", ttl=HOUR, holder="two")
        assert other is not None
        assert other.fence == 2
        assert not handle.renew()
        assert not handle.release()
        assert store.locks.holder("a", "r") == ("two", 2)


COUNTER = "CREATE TABLE public.inside (inside int); INSERT INTO public.inside VALUES (0)"


def enter(store: PostgresStore, _pipe: Pipe, _number: int, rounds: int) -> tuple[list[int], list[int]]:
    """Pass a critical section; return the fences, and how many were inside each time."""
    fences, inside = list[int](), list[int]()
    with connect(store.settings.postgres.dsn or "") as connection:
        for _ in range(rounds):
            handle = store.locks.acquire("a", "section", ttl=HOUR, timeout=None)
            assert handle is not None
            for step in (1, -1):
                row = connection.execute("UPDATE public.inside SET inside = inside + %s RETURNING inside", (step,))
                inside += [number for (number,) in row]
            fences.append(handle.fence)
            assert handle.release()
    return fences, inside


@pytest.mark.proves("0-T2.8.6", "0-R1", "3-P5")
def test_of_eight_processes_one_is_inside_at_a_time(any_scheduler_dsn: str) -> None:
    with connect(any_scheduler_dsn) as connection:
        connection.execute(COUNTER.encode(), prepare=False)
    with children(8, enter, any_scheduler_dsn, 10) as born:
        outcomes = [child.hears() for child in born]
    assert sorted(fence for fences, _ in outcomes for fence in fences) == list(range(1, 81))
    assert all(inside == [1, 0] * 10 for _, inside in outcomes)


def test_a_handle_whose_session_has_lost_the_advisory_lock_changes_nothing(any_scheduler_dsn: str) -> None:
    read = "SELECT owner, fence, expires_at FROM scheduler.locks WHERE key = 'tenant-a/lost'"
    with opened(any_scheduler_dsn) as store, connect(any_scheduler_dsn) as watch:
        for change in ("renew", "release"):
            handle = store.locks.acquire("tenant-a", "lost", ttl=PATIENT)
            assert handle is not None
            before = watch.execute(read).fetchone()
            assert handle._session is not None
            handle._session.rows("SELECT pg_advisory_unlock_all()", ())
            assert not getattr(handle, change)()
            assert watch.execute(read).fetchone() == before
            assert not handle.trusted


def test_a_session_that_has_released_its_lock_holds_no_other(any_scheduler_dsn: str) -> None:
    with opened(any_scheduler_dsn) as store, connect(any_scheduler_dsn) as watch:
        for resource in ("first", "second"):
            handle = store.locks.acquire("tenant-a", resource, ttl=PATIENT)
            assert handle is not None
            assert len(watch.execute(ADVISORY).fetchall()) == 1
            assert handle.release()
            assert watch.execute(ADVISORY).fetchall() == []
        abandoned = store.locks.acquire("tenant-a", "third", ttl=PATIENT)
        assert abandoned is not None
        abandoned.abandon()
        assert watch.execute(ADVISORY).fetchall() == []


@pytest.mark.proves("0-T2.8.3")
def test_a_wait_that_ends_in_vain_leaves_nothing_held(scheduler_dsn: str) -> None:
    """The wait may end at the moment the lock comes: then it was had. What 55P03 alone says is not to be trusted."""
    key, over = 42, Event()

    def come_and_go() -> None:
        with connect(scheduler_dsn) as connection:
            while not over.is_set():
                connection.execute("SELECT pg_advisory_lock(%s)", (key,))
                connection.execute("SELECT pg_advisory_unlock(%s)", (key,))

    def wait_shortly(session: LockSession, watch: Any) -> tuple[int, int]:  # noqa: ANN401 - a connection
        had = leaked = 0
        for _ in range(1_000):
            if session.wait(key, 0.001):
                had += 1
                assert session.unlock(key)
            leaked += watch.execute(f"SELECT count(*) FROM ({ADVISORY}) AS held WHERE pid = {session.pid}").fetchone()[
                0
            ]
        return had, leaked

    rivals = [Thread(target=come_and_go) for _ in range(3)]
    for rival in rivals:
        rival.start()
    try:
        sessions = [LockSession(settings(scheduler_dsn)) for _ in range(4)]
        with connect(scheduler_dsn) as one, connect(scheduler_dsn) as two, ThreadPoolExecutor(4) as threads:
            watches = [one, two, connect(scheduler_dsn), connect(scheduler_dsn)]
            outcomes = list(threads.map(wait_shortly, sessions, watches))
            for watch in watches:
                watch.close()
    finally:
        over.set()
        for rival in rivals:
            rival.join()
    for session in sessions:
        session.close()
    assert sum(leaked for _, leaked in outcomes) == 0
    assert 0 < sum(had for had, _ in outcomes) < 4_000


@pytest.mark.proves("0-T2.8.3")
def test_tries_in_vain_leave_no_lock_and_few_sessions(scheduler_dsn: str) -> None:
    with opened(scheduler_dsn) as store, connect(scheduler_dsn) as connection, ThreadPoolExecutor(8) as threads:
        handle = store.locks.acquire("a", "r", ttl=HOUR)
        assert handle is not None
        tiny = timedelta(milliseconds=1)
        tried = list(threads.map(lambda _: store.locks.acquire("a", "r", ttl=HOUR, timeout=tiny), range(200)))
        assert tried == [None] * 200
        assert len(connection.execute(ADVISORY).fetchall()) == 1
        idle = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = 'migrator lock' AND datname = current_database()"
        )
        until(lambda: (connection.execute(idle).fetchone() or (99,))[0] <= 5)  # one that was closed takes its time
        assert handle.release()
        assert connection.execute(ADVISORY).fetchall() == []


@pytest.mark.proves("4-L6", "0-T2.8.4")
def test_a_guarded_session_keeps_its_lock_from_others_until_it_ends(any_scheduler_dsn: str) -> None:
    with opened(any_scheduler_dsn) as store:
        handle = store.locks.acquire("*", "leader", ttl=HOUR, now=NOW)
        assert handle is not None
        with store.session("a", now=NOW) as session:
            store.locks.guard(session, "*", "leader", handle.fence)
            session.schedules.upsert(schedule(name="written"))
            assert handle.renew(now=NOW)  # the holder itself is not kept waiting
            late = NOW + 2 * HOUR
            assert store.locks.acquire("*", "leader", ttl=HOUR, now=late) is None
            with pytest.raises(LostLockError):
                store.locks.guard(session, "*", "leader", handle.fence + 1)
            assert session.schedules.by_name("written") is not None
        other = store.locks.acquire("*", "leader", ttl=HOUR, now=late)
        assert other is not None
        with store.session("a", now=late) as session, pytest.raises(LostLockError):
            store.locks.guard(session, "*", "leader", handle.fence)


def test_a_session_whose_reads_are_shadowed_is_guarded_too(scheduler_dsn: str) -> None:
    with opened(scheduler_dsn) as store, opened(scheduler_dsn) as other:
        shadowed = ShadowedStore(store, lambda: other)
        handle = shadowed.locks.acquire("a", "r", ttl=HOUR)
        assert handle is not None
        with shadowed.session("a") as session:
            shadowed.locks.guard(session, "a", "r", handle.fence)
            with pytest.raises(LostLockError):
                shadowed.locks.guard(session, "a", "r", handle.fence + 1)
        assert shadowed.queue is store.queue
        assert shadowed.workers is store.workers


@pytest.fixture
def plain_dsn(scheduler_dsn: str) -> Iterator[str]:
    """The same database, as a user who may not end an administrator's sessions."""
    with connect(scheduler_dsn) as connection:
        connection.execute("CREATE ROLE plain LOGIN PASSWORD 'plain'")
        connection.execute("GRANT scheduler_dispatcher, scheduler_service TO plain")
        server = scheduler_dsn.partition("@")[2]
        yield f"postgresql://plain:plain@{server}"
        connection.execute("REVOKE scheduler_dispatcher, scheduler_service FROM plain")
        connection.execute("DROP ROLE plain")


@pytest.mark.proves("4-L6", "0-T2.8.1")
def test_an_overdue_session_that_may_not_be_ended_is_passed_by_the_row(scheduler_dsn: str, plain_dsn: str) -> None:
    with opened(scheduler_dsn) as admin, opened(plain_dsn) as plain, opened(plain_dsn) as third:
        zombie = admin.locks.acquire("a", "r", ttl=SECOND, now=NOW, holder="zombie")
        assert zombie is not None
        handle = plain.locks.acquire("a", "r", ttl=HOUR, now=NOW + SECOND, holder="next")
        assert handle is not None
        assert (handle.fence, third.locks.holder("a", "r", NOW + SECOND)) == (2, ("next", 2))
        assert third.locks.acquire("a", "r", ttl=HOUR, now=NOW + SECOND) is None
        assert not zombie.renew(now=NOW)  # its session is alive, and now it gives its advisory lock back
        assert third.locks.acquire("a", "r", ttl=HOUR, now=NOW + SECOND) is None
        assert handle.renew(now=NOW + SECOND)
        assert handle.release(now=NOW + SECOND)
        last = third.locks.acquire("a", "r", ttl=HOUR, now=NOW + SECOND)
        assert last is not None
        assert last.fence == 3


@pytest.mark.proves("0-T2.8.3")
def test_who_waits_for_a_lock_without_a_session_has_it_in_the_end(scheduler_dsn: str, plain_dsn: str) -> None:
    with opened(scheduler_dsn) as admin, opened(plain_dsn) as plain, ThreadPoolExecutor(1) as threads:
        zombie = admin.locks.acquire("a", "r", ttl=SHORT, holder="zombie")
        assert zombie is not None
        handle = plain.locks.acquire("a", "r", ttl=HOUR, timeout=PATIENT, holder="next")
        assert handle is not None
        assert handle.fence == 2
        waiter = threads.submit(admin.locks.acquire, "a", "r", ttl=HOUR, timeout=None)
        assert handle.release()
        last = waiter.result()
        assert last is not None
        assert last.fence == 3
