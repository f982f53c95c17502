"""A MongoDB server of one's own: a replica set of one member, as change streams and transactions need one."""

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from migrator.errors import UnreachableError
from migrator.testing.servers import binaries
from migrator.testing.servers.directory import PrivateDirectory
from migrator.testing.servers.server import START_SECONDS, Command, Server

READY = '"id":23016,'  # log line "Waiting for connections"
PORT_TAKEN = "Address already in use"
SETTINGS = {
    # a primary without secondaries would wait 15 s for one before it stops
    "shutdownTimeoutMillisForSignaledShutdown": "0",
    "diagnosticDataCollectionEnabled": "false",
}
# How long a login takes to compute, against guessing; the least that the server allows. Ours are random.
FAST_SETTINGS = {"scramIterationCount": "5000", "scramSHA256IterationCount": "5000"}


class MongoServer(Server):
    """A ``mongod`` on 127.0.0.1."""

    name: ClassVar[str] = "mongod"
    death_signal: ClassVar[int] = signal.SIGKILL
    stop_signal: ClassVar[int] = signal.SIGTERM

    def __init__(
        self,
        *,
        auth: bool = False,
        fast: bool = False,
        replica_set: str | None = "rs0",
        cache_gb: float = 0.5,
        parameters: Mapping[str, str] | None = None,
        binary: Path | None = None,
        oplog_mb: int | None = None,
        directory: PrivateDirectory | None = None,
    ) -> None:
        """Start a server with an empty database and wait until it takes writes.

        ``auth``: only the user in `uri` may do anything. ``fast``, for tests and the demo only: a write counts before
        it is in the journal, so that a crash, also one by `kill`, may lose the last tenth of a second, and a login
        computes a third as long.
        ``replica_set=None``: a plain server, without change streams and transactions. ``cache_gb``: memory of the
        storage engine, at least 0.25. ``parameters``: server parameters. ``binary``: a ``mongod`` in place of the
        wheel's. ``oplog_mb``: how much of its history it keeps. ``directory``: where its files are; if omitted, in a
        new one that goes with it. Raises ConfigurationError and UnreachableError.
        """
        super().__init__(directory)
        self.replica_set = replica_set
        self.user = "admin" if auth else None
        self.password = self._directory.secret("password") if auth else None
        self._fast = fast
        with self._removed_on_error():
            self._binary = self._directory.bring(binary or binaries.mongod(), "mongod")
            self._environment = binaries.openssl_environment(self._directory)
            self._data = self._directory.subdirectory("data")
            self._options = [f"--wiredTigerCacheSizeGB={cache_gb}"]
            if auth and replica_set:
                self._directory.secret("key", 64)
                self._options.append(f"--keyFile={self._directory.path / 'key'}")
            elif auth:
                self._options.append("--auth")
            if replica_set:
                self._options.append(f"--replSet={replica_set}")
            if oplog_mb is not None:
                # what no checkpoint holds is not dropped from the history, and one comes once a minute
                self._options += [f"--oplogSize={oplog_mb}", "--syncdelay=1"]
            settings = SETTINGS | (FAST_SETTINGS if fast else {}) | dict(parameters or {})
            self._options += [f"--setParameter={key}={value}" for key, value in settings.items()]
            self._start_anywhere()
            self._set_up()

    @property
    def uri(self) -> str:
        """The connection string, with user and password where the server asks for them."""
        login = f"{self.user}:{self.password}@" if self.user else ""
        options = [f"replicaSet={self.replica_set}"] if self.replica_set else []
        options += ["authSource=admin"] if self.user else []
        return f"mongodb://{login}127.0.0.1:{self.port}/" + (f"?{'&'.join(options)}" if options else "")

    def _command(self) -> Command:
        where = ["--bind_ip=127.0.0.1", f"--port={self.port}", "--nounixsocket", f"--dbpath={self._data}"]
        return Command([self._binary, *where, *self._options], self._environment)

    def _is_ready(self, log: str) -> bool:
        return READY in log

    def _port_taken(self, log: str) -> bool:
        return PORT_TAKEN in log

    def _client(self) -> MongoClient[dict[str, Any]]:
        # directly: the replica set does not exist yet, and one without a primary must answer too
        return MongoClient("127.0.0.1", self.port, directConnection=True)

    def _set_up(self) -> None:
        """Make the replica set and the user; the server lets a local client do so as long as it has no users."""
        try:
            with self._client() as client:
                if self._directory.complete:
                    if self.replica_set:
                        self._wait_for_primary(client)
                    return
                if self.replica_set:
                    client.admin.command("replSetInitiate", self._members())
                    self._wait_for_primary(client)
                if self.user:
                    client.admin.command("createUser", self.user, pwd=self.password, roles=["root"])
        except PyMongoError as error:
            raise UnreachableError(f"mongod started and refused to be set up: {error}") from error

    def _members(self) -> dict[str, Any]:
        return {
            "_id": self.replica_set,
            "version": 1,
            "members": [{"_id": 0, "host": f"127.0.0.1:{self.port}"}],
            "writeConcernMajorityJournalDefault": not self._fast,
        }

    @staticmethod
    def _wait_for_primary(client: MongoClient[dict[str, Any]]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not client.admin.command("hello")["isWritablePrimary"]:
            if time.monotonic() > deadline:
                raise UnreachableError(f"mongod did not become primary within {START_SECONDS:.0f} s")
            time.sleep(0.02)

    def restart(self) -> None:
        """Start again on the same port and the same data, and wait until it takes writes."""
        super().restart()
        if self.replica_set:
            with self._client() as client:
                self._wait_for_primary(client)
