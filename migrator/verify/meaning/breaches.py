"""The rows that break a rule, each judged by its document: the source's own oddity, or a fault of the copy."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from psycopg import sql

from migrator.result import Severity
from migrator.store.postgres.connection import Connection
from migrator.verify.atsource import AtSource, RowKey, says_the_same
from migrator.verify.meaning.invariants import Invariant
from migrator.verify.meaning.opened import NO_SOURCE, Odd

BATCH = 500
"""Rows judged at a time; bounds the memory."""
MOST = 20_000
"""Rows of one rule that are judged; of more, none is taken for settled."""

SETTLED = "the source's own document says the same: it was copied as it is"
FAULT = "find out who wrote the row: neither the copy nor this scheduler makes such a one"


class Judge:
    """Judges breaches; ``source`` is asked only where a breach is found."""

    def __init__(self, target: Connection, source: AtSource | None, odd: Odd) -> None:
        """``source`` is none where there is no source: then a row that came from it cannot be judged."""
        self._target = target
        self._source = source
        self._odd = odd

    def judge(self, rule: Invariant) -> int:
        """Find the rows that break a rule; return how many there are."""
        rows = self._broken(rule)
        judged = 0
        while batch := list(islice(rows, BATCH)):
            if judged < MOST:
                self._judge(rule, batch)
            else:
                self._odd.doubt(f"more than {MOST} rows break the rule {rule.code}; the rest was not judged")
            judged += len(batch)
        return judged

    def _broken(self, rule: Invariant) -> Iterator[tuple[Any, ...]]:
        table = rule.record.table
        sourced = "source" in rule.record.__struct_fields__
        columns = [sql.SQL("t.{}").format(sql.Identifier(name)) for name in rule.columns]
        if not sourced or rule.columns == ("stats",):
            columns = [
                sql.SQL("{}::text").format(column) if name in ("payload", "stats") else column
                for name, column in zip(rule.columns, columns, strict=True)
            ]
        where = "t.source, t.source_id" if sourced else "NULL, t.payload ->> '_id'"
        query = sql.SQL("SELECT t.id, {}, {} FROM {} WHERE {} ORDER BY t.id").format(
            sql.SQL(where),
            sql.SQL(", ").join(columns),
            sql.SQL(rule.source).format(sql.Identifier(table)),
            sql.SQL(rule.broken.replace("%%", "%")),
        )
        with self._target.transaction(), self._target.cursor(f"broken_{table}") as cursor:
            cursor.itersize = BATCH
            yield from cursor.execute(query)

    def _judge(self, rule: Invariant, rows: Sequence[tuple[Any, ...]]) -> None:
        table = rule.record.table
        keys = [RowKey(table, row[0], row[1] or self._feeding(table, row[2]), row[2]) for row in rows]
        said = {} if self._source is None else self._source.rows(keys)
        for key, row in zip(keys, rows, strict=True):
            severity: Severity = "warning" if rule.retention else "difference"
            if key.source is not None:
                if self._source is None:
                    self._odd.doubt(NO_SOURCE)
                    continue
                same = says_the_same(said.get(key.place), rule.columns, row[3:])
                severity = "settled" if same else "difference"
            self._odd.add(
                severity,
                rule.code,
                rule.title,
                SETTLED if severity == "settled" else FAULT,
                key=key.source_id or str(key.id),
                table=table,
                path=rule.columns[0],
            )

    def _feeding(self, table: str, source_id: str | None) -> str | None:
        """Return the source of a row whose table has no column for it; rows without an ``_id`` are born here."""
        if source_id is None or self._source is None or table not in ("graph_jobs", "graph_job_events"):
            return None
        return self._source.sessions.profile.source_of(table)
