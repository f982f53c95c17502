"""The backlog: documents that must be read again, named by events during an unfinished copy, or by a parity check."""

from collections.abc import Iterable, Mapping, Sequence

from migrator.connections.postgres import Connection, fetch_value
from migrator.pipeline import ledger

INSERT_DOCUMENTS = 10_000

WHOLE = b""
"""In place of the key of a document: all of the collection."""


def add(target: Connection, named: Mapping[str, Iterable[str]]) -> None:
    """Record documents, each once even if it is named more often."""
    for collection, ids in named.items():
        everything = list(ids)
        for begin in range(0, len(everything), INSERT_DOCUMENTS):
            some = everything[begin : begin + INSERT_DOCUMENTS]
            target.execute(
                "INSERT INTO migration.pending_documents (collection, source_key, source_id)"
                " SELECT %s, * FROM unnest(%s::bytea[], %s::text[]) ON CONFLICT DO NOTHING",
                (collection, [ledger.source_key(one) for one in some], some),
            )


def add_whole(target: Connection, collections: Iterable[str]) -> None:
    """Record that every document of these collections must be read again: those with rows, and those in the source."""
    for collection in collections:
        target.execute(
            "INSERT INTO migration.pending_documents (collection, source_key, source_id) VALUES (%s, %s, '')"
            " ON CONFLICT DO NOTHING",
            (collection, WHOLE),
        )


def take_whole(target: Connection, collections: Sequence[str]) -> list[str]:
    """Remove the entries of whole collections, and return these."""
    rows = target.execute(
        "DELETE FROM migration.pending_documents WHERE collection = ANY(%s) AND source_key = %s RETURNING collection",
        (list(collections), WHOLE),
    )
    return sorted(row[0] for row in rows)


def take(target: Connection, collections: Sequence[str], limit: int) -> dict[str, dict[str, None]]:
    """Remove and return some documents of these collections."""
    taken: dict[str, dict[str, None]] = {}
    for collection, source_id in target.execute(
        "DELETE FROM migration.pending_documents WHERE (collection, source_key) IN (SELECT collection, source_key"
        " FROM migration.pending_documents WHERE collection = ANY(%s) AND source_key <> %s"
        " ORDER BY collection, source_key LIMIT %s)"
        " RETURNING collection, source_id",
        (list(collections), WHOLE, limit),
    ):
        taken.setdefault(collection, {})[source_id] = None
    return taken


def any_left(target: Connection, collections: Sequence[str]) -> bool:
    """Return whether a document of these collections must be read again."""
    query = "SELECT EXISTS (SELECT FROM migration.pending_documents WHERE collection = ANY(%s))"
    return bool(fetch_value(target, query, (list(collections),)))


def count(target: Connection) -> int:
    """Return the number of entries."""
    return int(fetch_value(target, "SELECT count(*) FROM migration.pending_documents"))
