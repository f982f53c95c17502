"""Connections to the store of a request, and times."""

from __future__ import annotations

import contextlib
import importlib
from datetime import datetime, timedelta, timezone
from typing import Any, Callable

from .dialogue import Refused

UTC = timezone.utc
MOVED = """clock_timestamp()
    + CASE WHEN extract(epoch FROM {column})::float8 <= %s THEN interval '0' ELSE interval '1 day' END"""
"""Of SQL: now, for a time that has come at an instant, else tomorrow. The instant is the parameter, in seconds."""


def driver() -> Any:
    """Return whichever psycopg is installed."""
    try:
        return importlib.import_module("psycopg")
    except ImportError:
        return importlib.import_module("psycopg2")


def connector(store: dict[str, Any], *, read_only: bool) -> Callable[[], Any]:
    """Return a function that connects to the database of a store."""
    module = driver()
    options = {"options": "-c default_transaction_read_only=on"} if read_only else {}
    return lambda: module.connect(store["dsn"], **options)


def engine_url() -> str:
    """Return the SQLAlchemy address for ``connector``."""
    return f"postgresql+{driver().__name__}://"


def engine(store: dict[str, Any], *, read_only: bool) -> Any:
    """Return an SQLAlchemy engine on the database of a store."""
    alchemy = importlib.import_module("sqlalchemy")
    pool = importlib.import_module("sqlalchemy.pool").NullPool
    return alchemy.create_engine(engine_url(), creator=connector(store, read_only=read_only), poolclass=pool)


def execute(store: dict[str, Any], statement: str, *parameters: Any, read_only: bool = True) -> list[Any]:
    """Return the rows of a statement, without the library."""
    with contextlib.closing(connector(store, read_only=read_only)()) as connection:
        cursor = connection.cursor()
        cursor.execute(statement, parameters)
        rows = cursor.fetchall() if cursor.description else []
        connection.commit()
        return list(rows)


def mongo_client(store: dict[str, Any]) -> Any:
    """Return a client of the server of a store."""
    return importlib.import_module("pymongo").MongoClient(store["uri"])


def named(store: dict[str, Any], name: str) -> str:
    """Return the name of a table or a collection in the store."""
    member = "tables" if store["kind"] == "postgresql" else "collections"
    return str(store.get(member, {}).get(name, name))


def expect(store: dict[str, Any], *kinds: str) -> None:
    """Refuse a store of another kind."""
    if store["kind"] not in kinds:
        raise Refused(f"the library has no store in {store['kind']}, or cannot be asked for this there")


def instant(text: str) -> datetime:
    """Return the instant of an ISO text, which must have an offset."""
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if time.tzinfo is None:
        raise Refused(f"a time without offset: {text}")
    return time


def of_seconds(seconds: float) -> datetime:
    """Return the first instant, in whole microseconds, that is not before a number of seconds since 1970."""
    whole = datetime.fromtimestamp(seconds, UTC)
    return whole if whole.timestamp() >= seconds else whole + timedelta(microseconds=1)


def in_utc(time: datetime | None) -> str | None:
    """Return an instant as ISO text in UTC; None stays None."""
    return None if time is None else time.astimezone(UTC).isoformat(timespec="microseconds")


def fires_of(
    first: Callable[[datetime], datetime | None],
    following: Callable[[datetime | None, datetime], datetime | None],
    window: tuple[str, str],
    limit: int,
) -> list[str | None]:
    """Return the fires in a window; those before it are passed over.

    ``first(begin)`` gives the first one, and ``following(previous, now)`` the next.
    """
    begin, end = (instant(text) for text in window)
    listed: list[datetime] = []
    fire = first(begin)
    while fire is not None and fire < end and len(listed) < limit:
        if fire >= begin:
            listed.append(fire)
        previous, fire = fire, following(fire, max(fire, begin))
        # within a zone Python compares what the clock shows, which is the same twice where it is set back
        if fire is not None and fire.timestamp() <= previous.timestamp():
            break
    return [in_utc(fire) for fire in listed]


def shifted_clock(now: datetime) -> type[datetime]:
    """Return a class to put in the place of ``datetime``: its clock shows ``now``."""

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return now.astimezone(tz) if tz is not None else now.astimezone().replace(tzinfo=None)

        @classmethod
        def utcnow(cls) -> Any:
            return now.astimezone(UTC).replace(tzinfo=None)

    return Shifted
