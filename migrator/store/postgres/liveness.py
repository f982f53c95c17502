"""Whether an idle connection still stands, as far as can be told without a round trip."""

import select
from typing import Any

import psycopg


def stands(connection: psycopg.Connection[Any]) -> bool:
    """Tell whether the server has not ended an idle connection, reading what it may have said meanwhile.

    Nobody else may use the connection at this moment. A host that vanished without a word is not noticed.
    """
    if connection.closed:
        return False
    watch = select.poll()
    watch.register(connection.fileno(), select.POLLIN)
    try:
        while watch.poll(0):
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return True
