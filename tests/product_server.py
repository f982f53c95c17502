"""A server that answers ``hello`` and ``buildInfo`` as a product does, and passes all else on to a real MongoDB.

It speaks OP_MSG, and OP_QUERY for the first message of a connection, to the driver as it is. The answers are the files
of ``fixtures_data/servers``; commands and stages that the product lacks are refused as it refuses them.
"""

import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import bson
from bson import json_util

ANSWERS: Final = Path(__file__).parent / "fixtures_data" / "servers"
NAMES: Final = tuple(sorted(path.stem for path in ANSWERS.glob("*.json")))
HEADER = struct.Struct("<iiii")
OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
MORE_TO_COME = 2
HELLO = ("hello", "ismaster", "isMaster")
NO_SUCH_COMMAND: Final = 59


def answers_of(product: str) -> dict[str, Any]:
    """Return the answers of a product: ``hello``, ``buildInfo``, and ``lacks`` (commands and stages).

    A test may add ``fails``: command to its error.
    """
    found: dict[str, Any] = json_util.loads((ANSWERS / f"{product}.json").read_text(encoding="utf-8"))
    return found


class _Connection(socketserver.BaseRequestHandler):
    server: "_Listener"

    def handle(self) -> None:
        behind: socket.socket | None = None
        try:
            while (message := _received(self.request)) is not None:
                reply = self._reply(message)
                if reply is None:
                    if behind is None:
                        behind = socket.create_connection(self.server.behind)
                    behind.sendall(message)
                    if not _asks_for_no_answer(message):
                        reply = _received(behind)
                if reply is not None:
                    self.request.sendall(reply)
        except OSError:
            pass
        finally:
            if behind is not None:
                behind.close()

    def _reply(self, message: bytes) -> bytes | None:
        """Return the answer of the product; None: the server behind answers."""
        _, request, _, code = HEADER.unpack_from(message)
        if code == OP_QUERY:
            return _old_reply(request, self._hello(_command(message[message.index(b"\0", 20) + 9 :])))
        command = _command(message[21:])
        name = next(iter(command))
        if name in HELLO:
            self.server.ended.wait(command.get("maxAwaitTimeMS", 0) / 1000)
            return _new_reply(request, self._hello(command))
        if name.lower() == "buildinfo":
            return _new_reply(request, {**self.server.answers["buildInfo"], "ok": 1.0})
        if name in self.server.answers.get("fails", {}):
            return _new_reply(request, {"ok": 0.0, **self.server.answers["fails"][name]})
        lacks = self.server.answers["lacks"]
        if lacking := next((one for one in lacks if one == name or _has_stage(command, one)), ""):
            told = {"ok": 0.0, "code": NO_SUCH_COMMAND, "codeName": "CommandNotFound"}
            return _new_reply(request, {**told, "errmsg": f"no such command: '{lacking}'"})
        return None

    def _hello(self, command: Mapping[str, Any]) -> dict[str, Any]:
        answer = {**self.server.answers["hello"], "ok": 1.0}
        return answer | ({"helloOk": True} if "helloOk" in command else {})


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, answers: Mapping[str, Any], behind: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.answers, self.behind = answers, behind
        self.ended = threading.Event()


def _received(connection: socket.socket) -> bytes | None:
    """Return the next message; None at the end."""
    head = _read(connection, HEADER.size)
    return None if head is None else head + (_read(connection, HEADER.unpack(head)[0] - HEADER.size) or b"")


def _read(connection: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return data


def _command(content: bytes) -> dict[str, Any]:
    """Return the first document of a message."""
    return bson.decode(content[: struct.unpack_from("<i", content)[0]])


def _has_stage(command: Mapping[str, Any], name: str) -> bool:
    return any(name in stage for stage in command.get("pipeline", ()))


def _asks_for_no_answer(message: bytes) -> bool:
    return bool(struct.unpack_from("<I", message, HEADER.size)[0] & MORE_TO_COME)


def _new_reply(request: int, answer: Mapping[str, Any]) -> bytes:
    content = b"\0\0\0\0\0" + bson.encode(answer)
    return HEADER.pack(HEADER.size + len(content), 1, request, OP_MSG) + content


def _old_reply(request: int, answer: Mapping[str, Any]) -> bytes:
    content = struct.pack("<iqii", 8, 0, 0, 1) + bson.encode(answer)
    return HEADER.pack(HEADER.size + len(content), 1, request, OP_REPLY) + content


@contextlib.contextmanager
def product_server(answers: Mapping[str, Any], behind: tuple[str, int] = ("127.0.0.1", 1)) -> Iterator[str]:
    """Yield the URI of a server that answers as a product; the data are those of the server ``behind``."""
    with _Listener(answers, behind) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"mongodb://127.0.0.1:{listener.server_address[1]}/?directConnection=true"
        finally:
            listener.ended.set()
            listener.shutdown()
            thread.join()
