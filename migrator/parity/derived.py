"""The comparison of rows that belong to no document: what documents make together, against what is stored."""

from psycopg import sql

from migrator.parity.model import CauseCount, CollectionComparison, ColumnCount, Difference
from migrator.pipeline.derived import derived_rows
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.transform import Row
from migrator.records import Record
from migrator.sources.profile import Closing
from migrator.store.postgres.rows import fetch, row_key, table_name
from migrator.values.rowbytes import codec


def compare_derived(sessions: Sessions, closing: Closing, *, listed: int) -> CollectionComparison:
    """Compare one closing pass's rows, column by column; there is no document to encode back to."""
    record = closing.record
    kind = codec(record)
    rows = derived_rows(sessions, closing)
    stored = fetch(sessions.target, record.table, kind, [row.record.id for row in rows])  # type: ignore[attr-defined] # every loaded record has an id
    name = f"(derived) {record.table}"
    differences: list[Difference] = []
    matched = missing = 0
    for row in rows:
        found = stored.get(row_key(kind, row.head))
        key = str(row.record.source_id)  # type: ignore[attr-defined] # as above
        if found is None:
            missing += 1
            differences.append(
                Difference(collection=name, source_id=key, side="missing", table=record.table, cause="missing-row")
            )
        elif kind.equal((row.head, row.tail), found):
            matched += 1
        else:
            differences.extend(
                Difference(
                    collection=name, source_id=key, side="row", table=record.table, path=column, cause="foreign-writer"
                )
                for column in kind.differing((row.head, row.tail), found)
            )
    extra = _extra(sessions, record, {str(row.record.source) for row in rows}, name, rows)  # type: ignore[attr-defined] # as above
    differences.extend(extra)
    counts: dict[tuple[str, str, str], int] = {}
    for one in differences:
        counts[one.path, one.side, one.cause] = counts.get((one.path, one.side, one.cause), 0) + 1
    return CollectionComparison(
        collection=name,
        tables=(record.table,),
        documents=len(rows),
        matched=matched,
        differing=len(rows) - matched - missing,
        missing=missing,
        rows=len(stored),
        extra=len(extra),
        clean=matched,
        causes=tuple(
            CauseCount(table=record.table, path=key[0], side=key[1], cause=key[2], count=count)  # type: ignore[arg-type] # made from Differences
            for key, count in sorted(counts.items())
        ),
        differences=tuple(sorted(differences)[:listed]),
        columns=tuple(
            ColumnCount(
                table=record.table,
                column=column,
                compared=len(stored),
                differing=sum(one.side == "row" and one.path == column for one in differences),
            )
            for column in kind.columns
            if stored
        ),
    )


def _extra(sessions: Sessions, record: type[Record], sources: set[str], name: str, rows: list[Row]) -> list[Difference]:
    ids = [row.record.id for row in rows]  # type: ignore[attr-defined] # as above
    found = sessions.target.execute(
        sql.SQL("SELECT coalesce(source_id, id::text) FROM {} WHERE source = ANY(%s) AND NOT id = ANY(%s)").format(
            table_name(record.table)
        ),
        (sorted(sources), ids),
    )
    return [
        Difference(collection=name, source_id=row[0], side="extra", table=record.table, cause="extra-row")
        for row in found
    ]
