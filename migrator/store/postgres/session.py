"""What every session of the tool is told, whatever the server, the database or the role has as its default.

``ALTER DATABASE … SET`` and ``ALTER ROLE … SET`` change how values are written as text, which names are found, and how
long a statement may take; nothing that the tool reads or writes may depend on them.
"""

import json
from typing import Any, Final

import psycopg

from migrator.errors import RefusedError

ENCODING: Final = "UTF8"

PINNED: Final = {
    "array_nulls": "on",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": "read committed",
    "extra_float_digits": "1",
    "quote_all_identifiers": "off",
    "row_security": "on",
    "search_path": "pg_catalog",
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
    "xmlbinary": "base64",
}
"""Set when the session is open: a pooler takes none of them as it begins."""

LOCK_TIMEOUT: Final = "15s"
"""How long a statement waits for a lock before who holds it is told, and the work is tried again or given up."""

TIMEOUTS: Final = {
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "lock_timeout": LOCK_TIMEOUT,
    "statement_timeout": "0",
    "transaction_timeout": "0",
}
"""Of a tool's sessions; those that the DSN itself names (``options``) stay as it says. Some servers lack some."""

_PIN = (
    "SELECT count(set_config(name, wanted.setting, false))"
    " FROM pg_catalog.jsonb_each_text(%s::jsonb) AS wanted (name, setting)"
    " JOIN pg_catalog.pg_settings USING (name) WHERE pg_settings.setting IS DISTINCT FROM wanted.setting"
    " AND NOT (source = 'client' AND name = ANY(%s))"
)


def arguments(timeout_s: int, application: str = "migrator") -> dict[str, Any]:
    """Return what to connect with besides the DSN; ``timeout_s``: seconds that a connection may take."""
    return {"connect_timeout": timeout_s, "application_name": application, "client_encoding": ENCODING}


def pin(connection: psycopg.Connection[Any]) -> None:
    """Pin everything for the rest of a session that is in autocommit; refuse a database of another encoding."""
    require_encoding(connection)
    connection.execute(_PIN, (json.dumps({**PINNED, **TIMEOUTS}), [*TIMEOUTS]))


def require_encoding(connection: psycopg.Connection[Any]) -> None:
    """Raise ``RefusedError`` where the database's encoding is not UTF-8: it cannot hold every text, or checks none."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding is None:  # a pooler may keep it to itself
        row = connection.execute("SHOW server_encoding").fetchone()
        encoding = str(row[0]) if row is not None else ""
    if encoding != ENCODING:
        name = connection.info.dbname
        connection.close()
        raise RefusedError(
            f"the target's database {name} has the encoding {encoding}, which cannot hold every text: create one with"
            " ENCODING 'UTF8' TEMPLATE template0, and let postgres.dsn name it"
        )
