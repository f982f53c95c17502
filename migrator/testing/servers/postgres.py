"""A PostgreSQL server of one's own."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import psycopg
from psycopg import sql

from migrator.testing.servers import binaries
from migrator.testing.servers.directory import PrivateDirectory
from migrator.testing.servers.server import START_SECONDS, Command, Server, run, start_failure

PORT_TAKEN = "Address already in use"
SCRAM_ITERATIONS_SINCE = 16
"""Version that can be told how long a login takes to compute: 2 ms by default, against guessing. Ours are random."""
STRATEGY_SINCE = 15
"""Version that can be told how a database is copied; earlier ones copy files."""
STATUS_LINE = 7  # of postmaster.pid, counted from 0: starting, stopping, ready, standby

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    # nothing outside the private directory survives a crash: no files in /dev/shm
    "dynamic_shared_memory_type": "mmap",
    "max_wal_size": "4GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# A crash of the machine may lose everything, one of the server loses nothing: commits still reach the kernel, so that
# tests may kill the server and trust what it has acknowledged.
# Without a standby, what fills a table in the transaction that made it is in no log.
FAST_SETTINGS = {"fsync": "off", "full_page_writes": "off", "wal_level": "minimal", "max_wal_senders": "0"}


class PostgresServer(Server):
    """A PostgreSQL cluster on 127.0.0.1."""

    name: ClassVar[str] = "postgres"
    death_signal: ClassVar[int] = (
        signal.SIGQUIT
    )  # immediate shutdown: takes its children along, which SIGKILL would not
    stop_signal: ClassVar[int] = signal.SIGINT  # fast shutdown: ends sessions, writes a checkpoint

    def __init__(
        self,
        *,
        version: int = 18,
        fast: bool = False,
        settings: Mapping[str, str] | None = None,
        bin_dir: Path | None = None,
        directory: PrivateDirectory | None = None,
    ) -> None:
        """Start a server with an empty cluster (UTF-8, C collation) and wait until it takes connections.

        ``version``: 18 or 16 from the wheel, another one from Debian's place for it. ``fast``, for tests and the demo
        only: nothing waits for the disk, so that a crash of the machine may lose everything (one of the server does
        not). ``settings``: server settings. ``bin_dir``: a folder with ``initdb`` and ``postgres`` in place of the
        wheel's. ``directory``: where its files are; if omitted, in a new one that goes with it. Raises
        ConfigurationError and UnreachableError.
        """
        super().__init__(directory)
        self.version = version
        self.user = "postgres"
        self.password = self._directory.secret("password")
        self._fast = fast
        self._settings = SETTINGS | (FAST_SETTINGS if fast else {}) | dict(settings or {})
        with self._removed_on_error():
            # a folder of the caller's is used in place: what lies beside it may be a whole system
            self._bin = bin_dir or self._directory.bring(binaries.postgres(version), "installation") / "bin"
            copied = self._bin.is_relative_to(self._directory.path)
            self._environment = binaries.postgres_environment(self._directory) if copied else {}
            self._data = self._directory.subdirectory("data")
            if not self._directory.complete:
                self._make_cluster()
            self._start_anywhere()

    def _make_cluster(self) -> None:
        options = [
            f"--pgdata={self._data}",
            f"--username={self.user}",
            f"--pwfile={self._directory.path / 'password'}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-locale",
            "--no-instructions",
            *(["--no-sync"] if self._fast else []),
            *(["--set=scram_iterations=1"] if self._fast and self.version >= SCRAM_ITERATIONS_SINCE else []),
        ]
        command = Command([self._bin / "initdb", *options], self._environment)
        status, log = run(command, self._directory, death_signal=signal.SIGKILL, timeout=START_SECONDS)
        if status:
            raise start_failure("initdb", status, log)

    def _command(self) -> Command:
        settings = [f"--{key}={value}" for key, value in self._settings.items()]
        return Command([self._bin / "postgres", "-D", self._data, "-p", str(self.port), *settings], self._environment)

    def _is_ready(self, log: str) -> bool:
        # written by the postmaster of this very directory, so no other server on the port can pass for it
        del log
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        of_ours = self._process is not None and lines[:1] == [str(self._process.pid)]
        return of_ours and len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"

    def _port_taken(self, log: str) -> bool:
        return PORT_TAKEN in log

    def dsn(self, dbname: str = "postgres", *, user: str | None = None, password: str | None = None) -> str:
        """Return the connection string of a database, for the superuser unless another user is given."""
        login = f"{quote(user or self.user, safe='')}:{quote(password or self.password, safe='')}"
        return f"postgresql://{login}@127.0.0.1:{self.port}/{quote(dbname, safe='')}"

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database and return its connection string.

        ``template``: the database to copy; nobody may be connected to it.
        """
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        if self._fast and self.version >= STRATEGY_SINCE:
            # by default the copy goes through the log, which takes three times as long where nothing waits for the disk
            statement += sql.SQL(" STRATEGY FILE_COPY")
        self._execute(statement)
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, if it is there, and end the sessions in it."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(statement)
