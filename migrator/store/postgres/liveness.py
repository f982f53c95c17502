"""Whether an idle connection still stands, as far as can be told without a round trip."""

import select
from typing import Any

import psycopg


def stands(connection: psycopg.Connection[Any]) -> bool:
    """Tell whether an idle connection has nothing to read: unasked, the server speaks to end it.

    (It also tells of a setting that was reloaded; then a connection is given up that would have stood.) Nobody else may
    use the connection at this moment. A host that vanished without a word is not noticed.
    """
    if connection.closed:
        return False
    watch = select.poll()
    watch.register(connection.fileno(), select.POLLIN)
    return not watch.poll(0)
