"""Documents by their ids, as a majority has them, and never older than the event that named them."""

from collections.abc import Iterable, Iterator
from typing import cast

from bson.timestamp import Timestamp

from migrator.pipeline.sessions import SourceSessions
from migrator.values import document as documents
from migrator.values.rawid import among, source_id_of

ASKED = 1_000
ASKED_CHARACTERS = 1_000_000
"""Ids asked for at a time: so many, and about so long together."""


class Reader:
    """Reads documents again, in one causal session: a new primary answers only when it has caught up."""

    def __init__(self, sessions: SourceSessions) -> None:
        self._sessions = sessions
        self._session = sessions.source.client.start_session(causal_consistency=True)

    def close(self) -> None:
        """End the session."""
        self._session.end_session()

    def not_before(self, time: Timestamp) -> None:
        """See to it that no later answer is older than this cluster time."""
        self._session.advance_operation_time(time)

    def documents(self, collection: str, source_ids: Iterable[str]) -> Iterator[bytes]:
        """Yield those of these documents that exist, as batches of concatenated BSON of at most 16 MB."""
        place = self._sessions.source[self._sessions.name_of(collection)]
        for some in _some(source_ids):
            with place.find_raw_batches({"_id": among(some)}, batch_size=ASKED, session=self._session) as cursor:
                for batch in cursor:
                    yield cast("bytes", batch)

    def ids(self, collection: str) -> Iterator[str]:
        """Yield the source ids of all documents of a collection."""
        place = self._sessions.source[self._sessions.name_of(collection)]
        with place.find_raw_batches({}, {"_id": 1}, session=self._session) as cursor:
            for batch in cursor:
                yield from map(source_id_of, documents.split(cast("bytes", batch)))


def _some(source_ids: Iterable[str]) -> Iterator[list[str]]:
    some: list[str] = []
    size = 0
    for one in source_ids:
        some.append(one)
        size += len(one)
        if len(some) == ASKED or size > ASKED_CHARACTERS:
            yield some
            some, size = [], 0
    if some:
        yield some
