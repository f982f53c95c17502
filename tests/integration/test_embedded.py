"""Servers of one's own: they start, are what they claim to be, keep their data over a stop and a crash, and go away."""

import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

from migrator.testing.servers import binaries, server
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from migrator.testing.servers.server import Server, free_port

Document = dict[str, Any]
Client = MongoClient[Document]
Starter = Callable[[], Server]


def processes(one: Server) -> list[int]:
    """Return the pids of a server, its guardian and its children."""
    assert one._process
    guardian = one._process._guardian.pid
    children = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
    return [guardian, *map(int, children), *([one.pid] if one.pid else [])]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def start_mongo(*, auth: bool = False, replica_set: str | None = "rs0") -> MongoServer:
    return MongoServer(fast=True, cache_gb=0.25, auth=auth, replica_set=replica_set)


class TestPostgres:
    @pytest.mark.parametrize("version", binaries.postgres_versions())
    def test_keeps_its_data_over_a_stop_and_a_crash_and_goes_away(self, version: int) -> None:
        with PostgresServer(version=version, fast=True) as postgres:
            dsn = postgres.create_database("kept")
            with psycopg.connect(dsn) as connection:
                assert connection.info.server_version // 10_000 == version
                connection.execute("CREATE TABLE t AS SELECT 1 AS x")
            port = postgres.port

            postgres.stop()
            assert not postgres.running
            with pytest.raises(psycopg.OperationalError, match="refused"):
                psycopg.connect(dsn)
            postgres.restart()
            with psycopg.connect(dsn) as connection:
                connection.execute("INSERT INTO t VALUES (2)")

            postgres.kill()
            assert not postgres.running
            postgres.restart()
            assert postgres.port == port
            with psycopg.connect(dsn) as connection:
                assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)
            pids, directory = processes(postgres), postgres._directory.path
        assert [pid for pid in pids if alive(pid)] == []
        assert not directory.exists()

    def test_a_crash_leaves_no_session_behind(self) -> None:
        with PostgresServer(fast=True) as postgres, psycopg.connect(postgres.dsn()) as connection:
            backend = connection.info.backend_pid
            assert alive(backend)
            postgres.kill()
            assert not alive(backend)

    def test_a_paused_server_goes_on(self) -> None:
        with PostgresServer(fast=True) as postgres, psycopg.connect(postgres.dsn()) as connection:
            postgres.pause()
            postgres.resume()
            assert connection.execute("SELECT 1").fetchone() == (1,)
            postgres.pause()
        assert not postgres.running

    def test_asks_for_a_password_even_on_loopback(self, postgres_server: PostgresServer) -> None:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(postgres_server.dsn(password="guessed"))
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            psycopg.connect(host="127.0.0.1", port=postgres_server.port, user="postgres", dbname="postgres")

    def test_settings_and_templates(self, postgres_server: PostgresServer) -> None:
        with PostgresServer(fast=True, settings={"max_connections": "17"}) as postgres:
            with psycopg.connect(postgres.create_database("first")) as connection:
                connection.execute("CREATE TABLE t AS SELECT 1 AS x")
                assert connection.execute("SHOW max_connections").fetchone() == ("17",)
                assert connection.execute("SHOW timezone").fetchone() == ("UTC",)
                assert connection.execute("SHOW fsync").fetchone() == ("off",)
            with psycopg.connect(postgres.create_database("second", template="first")) as connection:
                assert connection.execute("SELECT x FROM t").fetchone() == (1,)
            postgres.drop_database("second")
        assert postgres.port != postgres_server.port  # two at once


class TestMongo:
    def test_is_a_replica_set_with_change_streams_and_transactions(self) -> None:
        with start_mongo() as mongo, Client(mongo.uri) as client:
            assert client.server_info()["version"] == binaries.MONGO_VERSION
            things = client.test.things
            with things.watch() as changes:
                things.insert_one({"_id": 1})
                assert changes.next()["documentKey"] == {"_id": 1}
            with client.start_session() as session:
                with session.start_transaction():
                    things.insert_one({"_id": 2}, session=session)
                session.start_transaction()
                things.insert_one({"_id": 3}, session=session)
                session.abort_transaction()
            assert things.distinct("_id") == [1, 2]

    def test_keeps_its_data_over_a_stop_and_a_crash_and_goes_away(self) -> None:
        with MongoServer(cache_gb=0.25) as mongo:
            with Client(mongo.uri) as client:
                client.test.things.insert_one({"_id": 1})
            mongo.stop()
            assert not mongo.running
            with (
                Client(mongo.uri, serverSelectionTimeoutMS=100) as client,
                pytest.raises(ServerSelectionTimeoutError),
            ):
                client.test.things.find_one()
            mongo.restart()
            with Client(mongo.uri) as client:
                client.test.things.insert_one({"_id": 2})
            mongo.kill()
            assert not mongo.running
            mongo.restart()
            with Client(mongo.uri) as client:
                assert client.test.things.distinct("_id") == [1, 2]
            pids, directory = processes(mongo), mongo._directory.path
        assert [pid for pid in pids if alive(pid)] == []
        assert not directory.exists()

    def test_with_authentication_only_its_user_gets_in(self) -> None:
        with start_mongo(auth=True) as mongo:
            with Client(mongo.uri) as client:
                client.test.things.insert_one({"_id": 1})
            wrong = mongo.uri.replace(str(mongo.password), "guessed")
            with Client(wrong) as client, pytest.raises(OperationFailure, match="Authentication failed"):
                client.test.things.find_one()
            nobody = f"mongodb://127.0.0.1:{mongo.port}/?replicaSet=rs0"
            with Client(nobody) as client, pytest.raises(OperationFailure, match="requires authentication"):
                client.test.things.find_one()
            mongo.restart()
            with Client(mongo.uri) as client:
                assert client.test.things.count_documents({}) == 1

    def test_a_plain_server_has_no_change_streams(self) -> None:
        with (
            start_mongo(replica_set=None) as mongo,
            Client(mongo.uri) as client,
            pytest.raises(OperationFailure, match="replica set"),
        ):
            client.test.things.watch()

    def test_two_at_once(self, mongo_server: MongoServer) -> None:
        with start_mongo() as other:
            assert other.port != mongo_server.port
            for mongo in (other, mongo_server):
                with Client(mongo.uri) as client:
                    assert client.admin.command("serverStatus")["pid"] == mongo.pid


@pytest.mark.parametrize("start", [start_mongo, lambda: PostgresServer(fast=True)], ids=["mongo", "postgres"])
class TestEither:
    def test_a_taken_port_is_left_to_whoever_has_it(self, start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            ports = iter([taken.getsockname()[1]])
            monkeypatch.setattr(server, "free_port", lambda: next(ports, None) or free_port())
            with start() as one:
                assert one.port != taken.getsockname()[1]
                assert one.running
        assert next(ports, None) is None

    def test_listens_on_loopback_only(self, start: Starter) -> None:
        with start() as one:
            rows = [
                line.split()
                for table in ("/proc/net/tcp", "/proc/net/tcp6")
                if Path(table).exists()
                for line in Path(table).read_text().splitlines()[1:]
            ]
            listening = "0A"
            addresses = {row[1] for row in rows if row[3] == listening and row[1].endswith(f":{one.port:04X}")}
            assert addresses == {f"0100007F:{one.port:04X}"}

    def test_runs_without_privileges_in_a_directory_of_its_own(self, start: Starter) -> None:
        with start() as one:
            assert one.pid
            user = Path(f"/proc/{one.pid}").stat().st_uid
            status = one._directory.path.stat()
            assert user == (status.st_uid if os.geteuid() == 0 else os.geteuid())
            assert user != 0
            assert stat.S_IMODE(status.st_mode) == 0o700

    def test_outlives_the_thread_that_started_it(self, start: Starter) -> None:
        started: list[Server] = []
        thread = threading.Thread(target=lambda: started.append(start()))
        thread.start()
        thread.join()
        with started[0] as one, socket.create_connection(("127.0.0.1", one.port)):
            one.pause()  # goes through the guardian, which would be gone
            one.resume()
            assert one.running

    @pytest.mark.filterwarnings(
        "ignore:This process .* is multi-threaded:DeprecationWarning"
    )  # that is the case at hand
    def test_a_forked_child_that_leaves_takes_nothing_along(self, start: Starter) -> None:
        with start() as one:
            pid = os.fork()
            if pid == 0:
                try:
                    one.__exit__(None, None, None)
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
            assert one.running
            assert one._directory.path.exists()

    def test_ends_when_nobody_holds_it_any_more(self, start: Starter) -> None:
        one = start()
        assert one.pid
        assert one._process
        pid, guardian = one.pid, one._process._guardian
        assert guardian.stdin
        guardian.stdin.close()  # what the garbage collector does
        guardian.wait()
        assert not alive(pid)
        one.close()
