"""Values of the first differences, side by side: for a local file, and never for the result.

The documents are read again and decoded again, and compared with the rows that are stored now.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing

import msgspec

from migrator.config import Settings
from migrator.parity.causes import shown
from migrator.parity.equal import stored_rows
from migrator.pipeline import ledger
from migrator.pipeline import plan as plans
from migrator.pipeline.extract import DocumentReader
from migrator.pipeline.sessions import Sessions, close_cached, open_sessions
from migrator.pipeline.transform import SerializedRow, transform_documents
from migrator.sources.profile import Collection, Context
from migrator.values import jsonb
from migrator.values.copy_format import codec
from migrator.values.identity import source_id_of

NO_ROW = "no row"


class ShownValue(msgspec.Struct, frozen=True, kw_only=True):
    """A column whose stored value is not that of its document."""

    collection: str
    source_id: str
    table: str
    column: str
    expected: str
    """The value that the document decodes to."""
    stored: str


def values_of(settings: Settings, documents: Iterable[tuple[str, str]]) -> list[ShownValue]:
    """Return the differing values of these documents (collection and source id), as they are now."""
    asked: dict[str, list[str]] = {}
    for collection, source_id in documents:
        asked.setdefault(collection, []).append(source_id)
    try:
        with open_sessions(settings) as sessions:
            plan = ledger.latest_plan(sessions.target)
            known = sessions.profile.by_name()  # it has none of rows that many documents make together
            chosen = [(known[name], ids) for name, ids in asked.items() if name in known]
            if plan is None:
                return []
            context = plans.plan_context(plan)
            return [one for collection, ids in chosen for one in _differing(sessions, collection, context, ids)]
    finally:
        close_cached()


def _differing(
    sessions: Sessions, collection: Collection, context: Context, ids: Iterable[str]
) -> Iterator[ShownValue]:
    with closing(DocumentReader(sessions, context.history_before)) as reader:
        raw = b"".join(reader.documents(collection.name, dict.fromkeys(ids)))
    documents = list(transform_documents(collection, context, sessions.resolver, raw))
    stored = stored_rows(sessions.target, documents)
    for document in documents:
        difference = document.difference(stored)
        for row, stored_row in difference.rows if difference is not None else ():
            yield from _of_row(collection.name, source_id_of(document.raw), row, stored_row)


def _of_row(collection: str, source_id: str, row: SerializedRow, stored: bytes | None) -> Iterator[ShownValue]:
    kind = codec(type(row.record))
    wanted = kind.read(row.head + row.tail)
    present = None if stored is None else kind.read(stored)
    names = kind.differing((row.head, row.tail), stored) if stored is not None else wanted
    for name in names:
        if present is None and wanted[name] is None:
            continue
        yield ShownValue(
            collection=collection,
            source_id=source_id,
            table=row.record.table,
            column=name,
            expected=_text(kind.types[name], wanted[name]),
            stored=NO_ROW if present is None else _text(kind.types[name], present[name]),
        )


def _text(kind: str, value: object) -> str:
    if value is None:
        return "null"
    return shown(jsonb.decode(value) if kind == "jsonb" and isinstance(value, bytes) else value)
