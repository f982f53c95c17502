"""Servers that are too old for the tool are refused where it connects, before anything else is asked of them.

A server of this test speaks just enough of its protocol to name its version; that of the real ones, which the tests
have not, was tried by hand (`docs/install.md`).
"""

import socketserver
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import bson
import pytest

from migrator.__main__ import main
from migrator.config import load_settings
from migrator.connections import mongo, postgres
from migrator.errors import ConfigurationError
from migrator.store import open_store
from tests.consent import consenting

SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
"""What a client asks for before it begins (PostgreSQL manual, "Message Formats")."""


class OldPostgres(socketserver.StreamRequestHandler):
    """PostgreSQL 14, up to where it is ready for a query."""

    def handle(self) -> None:
        while (code := self._begin()) in {SSL_REQUEST, GSS_REQUEST}:
            self.wfile.write(b"N")
        if code is None:
            return
        self._send(b"R", struct.pack("!i", 0))
        for name, value in (("server_version", "14.23"), ("server_encoding", "UTF8"), ("client_encoding", "UTF8")):
            self._send(b"S", f"{name}\0{value}\0".encode())
        self._send(b"K", struct.pack("!ii", 1, 1))
        self._send(b"Z", b"I")
        self.rfile.read()  # until the client goes

    def _begin(self) -> int | None:
        head = self.rfile.read(8)
        if len(head) < 8:
            return None
        length, code = struct.unpack("!ii", head)
        self.rfile.read(length - 8)
        return int(code)

    def _send(self, kind: bytes, body: bytes) -> None:
        self.wfile.write(kind + struct.pack("!i", len(body) + 4) + body)


class OldMongo(socketserver.StreamRequestHandler):
    """MongoDB 4.4, as far as a driver asks who it is."""

    HELLO: ClassVar = {
        "ok": 1,
        "ismaster": True,
        "isWritablePrimary": True,
        "minWireVersion": 0,
        "maxWireVersion": 9,
    } | {
        "maxBsonObjectSize": 16 * 1024 * 1024,
        "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000,
    }
    BUILD: ClassVar = {"ok": 1, "version": "4.4.2", "versionArray": [4, 4, 2, 0]}

    def handle(self) -> None:
        while len(head := self.rfile.read(16)) == 16:
            length, request, _, code = struct.unpack("<iiii", head)
            body = self.rfile.read(length - 16)
            if code == 2004:  # OP_QUERY: the first hello of a connection
                reply = bson.encode(self.HELLO)
                self._send(request, 1, struct.pack("<iqii", 0, 0, 0, 1) + reply)
            else:  # OP_MSG
                asked = next(iter(bson.decode(body[5:])))
                reply = bson.encode(self.BUILD if asked.lower() == "buildinfo" else self.HELLO)
                self._send(request, 2013, struct.pack("<iB", 0, 0) + reply)

    def _send(self, request: int, code: int, body: bytes) -> None:
        self.wfile.write(struct.pack("<iiii", 16 + len(body), 1, request, code) + body)


@contextmanager
def served(handler: type[socketserver.StreamRequestHandler]) -> Iterator[int]:
    """Yield the port of a server."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def old_postgres() -> Iterator[str]:
    with served(OldPostgres) as port:
        yield f"postgresql://tool:secret@127.0.0.1:{port}/target"


@pytest.fixture(scope="module")
def old_mongo() -> Iterator[str]:
    with served(OldMongo) as port:
        yield f"mongodb://127.0.0.1:{port}/?directConnection=true"


Call = Callable[..., tuple[int, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Call the command as a shell would; return its status and its errors."""

    def call(words: str, **servers: str) -> tuple[int, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("MIGRATOR_SOURCE__PROFILE", "stellaops")
        for name, address in servers.items():
            monkeypatch.setenv(f"MIGRATOR_{name.upper()}", address)
        monkeypatch.setattr(sys, "argv", ["migrator", *consenting(words.split())])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), capsys.readouterr().err

    return call


TOO_OLD_POSTGRES = (
    "migrator: postgres.dsn names a server with PostgreSQL 14.23, and the tool needs PostgreSQL 15 or later: upgrade"
    " the server, or name another one\n"
)
TOO_OLD_MONGO = (
    "migrator: mongo.uri names a server with MongoDB 4.4.2, and the tool needs MongoDB 5.0 or later: upgrade the"
    " server, or restore a dump of the database on a newer one, and name that\n"
)


@pytest.mark.parametrize(
    "words",
    [
        "doctor",
        "schema upgrade",
        "schema upgrade --sql",
        "schema check",
        "schema current",
        "status",
        "cutover status",
        "jobs list --tenant t",
        "verify --fresh-start --who me --reason new",
    ],
)
def test_a_target_that_is_too_old_is_refused_in_one_line(words: str, call: Call, old_postgres: str) -> None:
    assert call(words, postgres__dsn=old_postgres, persistence__scheduler="postgres") == (2, TOO_OLD_POSTGRES)


def test_an_application_is_refused_too(old_postgres: str) -> None:
    settings = load_settings({"postgres": {"dsn": old_postgres}, "persistence": {"scheduler": "postgres"}})
    with pytest.raises(ConfigurationError, match="the tool needs PostgreSQL 15 or later"):
        open_store(settings)
    with pytest.raises(ConfigurationError, match="the tool needs PostgreSQL 15 or later"):
        postgres.open_login(settings)


@pytest.mark.parametrize("words", ["doctor", "inspect", "plan", "backfill", "tail --until-caught-up", "parity"])
def test_a_source_that_is_too_old_is_refused_in_one_line(
    words: str, call: Call, old_mongo: str, scheduler_dsn: str
) -> None:
    servers = {"mongo__uri": old_mongo, "mongo__database": "scheduler", "postgres__dsn": scheduler_dsn}
    assert call(words, **servers) == (2, TOO_OLD_MONGO)


def test_an_application_on_mongodb_is_refused_too(old_mongo: str) -> None:
    settings = load_settings({"mongo": {"uri": old_mongo, "database": "scheduler"}})
    with pytest.raises(ConfigurationError, match=r"the tool needs MongoDB 5\.0 or later"):
        mongo.open_source(settings)
    with pytest.raises(ConfigurationError, match=r"the tool needs MongoDB 5\.0 or later"):
        open_store(settings)
