"""Writing the demo's data into a server that somebody names."""

from typing import Any

import msgspec
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from migrator.config import Settings, mongo_uri
from migrator.connections.mongo import open_source, translate_errors
from migrator.embedded.demo import SEED, Planted, Size, planted, seed
from migrator.errors import RefusedError, UsageError

DATABASE = "stellaops_scheduler"
"""What the product calls its database."""
_NOT_OURS = ("admin", "config", "local")


class Seeded(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    database: str
    size: str
    seed: int
    documents: dict[str, int]
    """By collection, the planted ones included."""
    planted: tuple[Planted, ...]


def seed_into(
    settings: Settings,
    name: str | None,
    *,
    size: str,
    seed: int | None,
    drop: bool = False,
    trouble: bool = True,
    huge: bool = False,
    triggers: bool = False,
) -> Seeded:
    """Write the demo's data into a database of the source's server, which must be empty unless ``drop`` empties it.

    Raises ``RefusedError`` for a database that holds anything, ``UsageError`` for one that belongs to the server and
    for a drop of one that ``name`` does not name, and ``ConfigurationError`` or ``UnreachableError`` when the server
    cannot be reached.
    """
    if drop and name is None:
        raise UsageError("--drop drops only a database that is named: add --database NAME")
    chosen = name or settings.mongo.database or _named_in(mongo_uri(settings)) or DATABASE
    if chosen in _NOT_OURS:
        raise UsageError(f"database {chosen} belongs to the server; name another with --database")
    number = SEED if seed is None else seed
    database = open_source(
        msgspec.structs.replace(settings, mongo=msgspec.structs.replace(settings.mongo, database=chosen))
    )
    client: MongoClient[dict[str, Any]] = database.client
    with client, translate_errors("the server"):
        if drop:
            client.drop_database(database.name)
        try:
            written = write(database, size, number, trouble=trouble, huge=huge, triggers=triggers)
        except RefusedError as error:
            raise RefusedError(f"{error}; name another with --database, or let --drop remove it") from None
    items = planted(number, huge=huge) if trouble else ()
    return Seeded(database=database.name, size=size, seed=number, documents=written, planted=items)


def write(
    database: Database[dict[str, Any]],
    size: str,
    number: int,
    *,
    trouble: bool = True,
    huge: bool = False,
    triggers: bool = False,
) -> dict[str, int]:
    """Write into an open database; return the documents by collection."""
    return dict(seed(database, Size(size), number, trouble=trouble, huge=huge, triggers=triggers))


def _named_in(uri: str) -> str | None:
    try:
        found: str | None = parse_uri(uri)["database"]
    except (PyMongoError, ValueError):
        return None  # open_source says what is wrong with it
    return found
