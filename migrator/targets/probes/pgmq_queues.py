"""pgmq: two queues in PostgreSQL, read by its Python client.

``entries`` gives every message of both queues, also one that is not visible yet, without taking it: the client has no
such call, so the rows are read, and the client makes messages of them. ``work`` lets ``options.workers`` clients (2 if
omitted), each with connections of its own, take what is visible, and delete each message that they took. With
``options.due_until``, seconds since 1970, what is visible then is visible now, and the rest tomorrow: the clock is that
of the server.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import threading
from typing import Any, Iterator

from . import stores
from .dialogue import Lines, Refused, in_threads

DISTRIBUTIONS = ("pgmq",)
SCHEMA = "pgmq"
"""The library has no other."""
PREFIX = "q_"
"""Of the table of a queue, before the queue's name."""
TABLES = ("q_queue", "q_dead_queue")
COLUMNS = ("msg_id", "read_ct", "enqueued_at", "last_read_at", "vt", "message", "headers")
HELD = 3600
"""Seconds for which a message that was taken is not visible."""
WAIT = 120
"""Seconds for which a client waits for the others."""


def _queues(place: dict[str, Any]) -> dict[str, str]:
    """Return the table of each queue, by its own name → the name of the queue."""
    stores.expect(place, "postgresql")
    if (place.get("schema") or SCHEMA) != SCHEMA:
        raise Refused(f"pgmq has its queues in the schema {SCHEMA}, and in no other")
    names = {table: stores.named(place, table) for table in TABLES}
    for name in names.values():
        if not name.startswith(PREFIX) or name != name.lower():
            raise Refused(f"pgmq calls the table of a queue {PREFIX} and the queue's name, in lower case")
    return {table: name[len(PREFIX) :] for table, name in names.items()}


@contextlib.contextmanager
def _client(place: dict[str, Any]) -> Iterator[Any]:
    """Lend a client; it makes no extension."""
    client = importlib.import_module("pgmq").PGMQueue(conn_string=place["dsn"], init_extension=False)
    try:
        yield client
    finally:
        client.close()


def entries(request: dict[str, Any], lines: Lines) -> None:
    """Print each message of both queues."""
    place = request["store"]
    message = importlib.import_module("pgmq.messages").Message
    for table in _queues(place):
        quoted = stores.named(place, table).replace('"', '""')
        statement = f'SELECT {", ".join(COLUMNS)} FROM {SCHEMA}."{quoted}" ORDER BY msg_id'  # noqa: S608 - quoted
        for row in stores.execute(place, statement):
            _put(lines, "entry", table, message.from_row(row))


def _put(lines: Lines, kind: str, table: str, message: Any, **more: Any) -> None:
    """Print a message."""
    fields = {"read_ct": message.read_ct, "message": message.message, "headers": message.headers}
    fields["enqueued_at"] = stores.in_utc(message.enqueued_at)
    key = f"{table}:{message.msg_id}"
    lines.put(kind, id=key, queue_table=table, due=stores.in_utc(message.vt), fields=fields, **more)


def fires(_request: dict[str, Any], _lines: Lines) -> None:
    """Print nothing: messages do not fire."""


def _taken(client: Any, queues: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield each message that a client takes, with its table."""
    for table, queue in queues.items():
        while (message := client.read(queue, vt=HELD)) is not None:
            yield table, message


def work(request: dict[str, Any], lines: Lines) -> None:
    """Let clients take what is visible, by the clock of the server, and print each message that a client took."""
    queues, place = _queues(request["store"]), request["store"]
    options = request.get("options", {})
    number = int(options.get("workers", 2))
    if "due_until" in options:
        _move(place, options["due_until"])

    def take(worker: int, together: threading.Barrier) -> None:
        with _client(place) as client:
            messages = _taken(client, queues)
            first = next(messages, None)
            together.wait()  # each client has its first message, if there are as many, before one takes a second
            for table, message in itertools.chain(() if first is None else (first,), messages):
                _put(lines, "execution", table, message, worker=worker)
                client.delete(queues[table], message.msg_id)

    in_threads(number, take, WAIT)


def _move(place: dict[str, Any], until: float) -> None:
    """Make visible what is visible at an instant, and nothing else."""
    for table in TABLES:
        quoted = stores.named(place, table).replace('"', '""')
        statement = f'UPDATE {SCHEMA}."{quoted}" SET vt = {stores.MOVED.format(column="vt")}'  # noqa: S608 - quoted
        stores.execute(place, statement, until, read_only=False)


def prepare(request: dict[str, Any], lines: Lines) -> None:
    """Let the library make its tables, where the database has no extension, and the two queues."""
    place = request["store"]
    queues = _queues(place)
    [(present,)] = stores.execute(place, "SELECT to_regclass('pgmq.meta') IS NOT NULL")
    if not present:
        importlib.import_module("pgmq.install").install_pgmq_from_sql(dsn=place["dsn"])
    with _client(place) as client:
        for queue in queues.values():
            client.create_queue(queue)
    lines.put("prepared", tables=[*TABLES, "meta"])
