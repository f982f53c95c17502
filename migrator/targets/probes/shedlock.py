"""ShedLock's table in PostgreSQL, asked by the statements of its JDBC providers; no Java is started.

They are those of ShedLock 7 without ``usingDbTime``, whose clock is the application's: ``PostgresSqlStatementsSource``
and ``SqlStatementsSource``, with times in UTC. What a provider does with them: it inserts a lock that it has not met,
else it updates it, and it has the lock if a row was changed.
"""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta
from typing import Any

from . import stores
from .dialogue import Lines, in_threads

DISTRIBUTIONS = ()
TABLE = "shedlock"
MOST = timedelta(seconds=60)
"""``lockAtMostFor``."""
WORKERS = 2
CREATE = """CREATE TABLE IF NOT EXISTS {}(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL,
    locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))"""
"""The statement of ShedLock's README."""
INSERT = """INSERT INTO {} AS shedlock(name, lock_until, locked_at, locked_by)
    VALUES(%(name)s, %(until)s, %(now)s, %(by)s) ON CONFLICT (name) DO UPDATE
    SET lock_until = %(until)s, locked_at = %(now)s, locked_by = %(by)s WHERE shedlock.lock_until <= %(now)s"""
UPDATE = """UPDATE {} SET lock_until = %(until)s, locked_at = %(now)s, locked_by = %(by)s
    WHERE name = %(name)s AND lock_until <= %(now)s"""
_LISTED = "SELECT name, {}, {}, locked_by FROM {} ORDER BY name"
_SECONDS = "extract(epoch FROM {})::text"


def _table(place: dict[str, Any]) -> str:
    names = (place.get("schema") or "public", stores.named(place, TABLE))
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def _rows(place: dict[str, Any]) -> list[Any]:
    times = (_SECONDS.format(name) for name in ("lock_until", "locked_at"))
    return stores.execute(place, _LISTED.format(*times, _table(place)))


def prepare(request: dict[str, Any], lines: Lines) -> None:
    """Make the table by the statement of the manual: ShedLock makes none."""
    stores.expect(request["store"], "postgresql")
    stores.execute(request["store"], CREATE.format(_table(request["store"])), read_only=False)
    lines.put("prepared", tables=[TABLE])


def entries(request: dict[str, Any], lines: Lines) -> None:
    """Print each lock: its times are seconds since 1970, of digits in UTC."""
    stores.expect(request["store"], "postgresql")
    for name, until, locked_at, locked_by in _rows(request["store"]):
        fields = {"lock_until": until, "locked_at": locked_at, "locked_by": locked_by}
        lines.put("entry", id=name, due=until, fields=fields)


def work(request: dict[str, Any], lines: Lines) -> None:
    """Let two applications ask for each lock at one time, by both statements, and print which of them has it."""
    place = request["store"]
    stores.expect(place, "postgresql")
    now = stores.instant(request["now"])
    digits = now.astimezone(stores.UTC).replace(tzinfo=None)
    names = [row[0] for row in _rows(place)]

    def ask(number: int, begin: threading.Barrier) -> None:
        with contextlib.closing(stores.connector(place, read_only=False)()) as connection:
            connection.autocommit = True
            begin.wait()
            statements = (INSERT, UPDATE) if number == 0 else (UPDATE, INSERT)
            for name in names:
                for statement in statements:
                    given = {"name": name, "until": digits + MOST, "now": digits, "by": f"probe {number}"}
                    cursor = connection.cursor()
                    cursor.execute(statement.format(_table(place)), given)
                    if cursor.rowcount:
                        lines.put("execution", id=name, at=stores.in_utc(now), worker=number)

    in_threads(WORKERS, ask)
