"""The backlog: documents to be read again, named by events while a copy was unfinished, or by a parity check."""

from collections.abc import Iterable, Mapping, Sequence

from migrator.connections.postgres import Connection
from migrator.pipeline import ledger

INSERT_DOCUMENTS = 10_000

WHOLE = b""
"""In place of the key of a document: all of them."""


def add(target: Connection, named: Mapping[str, Iterable[str]]) -> None:
    """Record documents, each once however often it is named."""
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
    """Record that every document of a collection is touched: those stored and those there, when they are read."""
    for collection in collections:
        target.execute(
            "INSERT INTO migration.pending_documents (collection, source_key, source_id) VALUES (%s, %s, '')"
            " ON CONFLICT DO NOTHING",
            (collection, WHOLE),
        )


def take_whole(target: Connection, collections: Sequence[str]) -> list[str]:
    """Take collections that are touched as a whole off the list."""
    rows = target.execute(
        "DELETE FROM migration.pending_documents WHERE collection = ANY(%s) AND source_key = %s RETURNING collection",
        (list(collections), WHOLE),
    )
    return sorted(row[0] for row in rows)


def take(target: Connection, collections: Sequence[str], limit: int) -> dict[str, dict[str, None]]:
    """Take some documents of these collections off the list."""
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
    """Tell whether a document of these collections is on the list."""
    row = target.execute(
        "SELECT EXISTS (SELECT FROM migration.pending_documents WHERE collection = ANY(%s))", (list(collections),)
    ).fetchone()
    return row == (True,)


def count(target: Connection) -> int:
    """Return how many documents are on the list."""
    row = target.execute("SELECT count(*) FROM migration.pending_documents").fetchone()
    return row[0] if row else 0
