"""Rows that many documents make together (Agenda's workers): written in a closing pass, belonging to no document."""

from collections.abc import Iterator, Sequence

from psycopg import sql

from migrator.pipeline.load import merge_rows
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.transform import Loadable, Row, rendered
from migrator.sources.profile import Closing
from migrator.store.postgres.rows import table_name
from migrator.values import document as documents


def derived_rows(sessions: Sessions, closing: Closing) -> list[Row]:
    """Return the rows that the source's documents make together today."""
    present = set(sessions.source.list_collection_names())
    return rendered(closing.make(_values(sessions, closing, present)))


def _values(sessions: Sessions, closing: Closing, present: set[str]) -> Iterator[object]:
    for collection, pipeline in closing.pipelines:
        name = sessions.name_of(collection)
        if name in present:
            batches = sessions.source[name].aggregate_raw_batches(list(pipeline), allowDiskUse=True)
            for found in documents.readable(batches):
                yield found["_id"]


def write_derived(sessions: Sessions) -> int:
    """Bring the derived rows up to date, and remove those that nothing makes any more; return how many were written."""
    written = 0
    profile = sessions.profile
    of_documents = [profile.source_of(one.name) for one in profile.collections]
    for closing in profile.closing:
        rows = derived_rows(sessions, closing)
        with sessions.target.transaction():
            counts, _ = merge_rows(sessions.target, _each_alone(rows))
            sessions.target.execute(
                sql.SQL(
                    "DELETE FROM {} WHERE starts_with(source, %s) AND source <> ALL(%s) AND id <> ALL(%s::uuid[])"
                ).format(table_name(closing.record.table)),
                (f"{profile.name}/", of_documents, [row.record.id for row in rows]),  # type: ignore[attr-defined] # every loaded record has an id
            )
        written += counts.total()
    return written


def _each_alone(rows: Sequence[Row]) -> list[Loadable]:
    return [Loadable(b"", [row]) for row in rows]
