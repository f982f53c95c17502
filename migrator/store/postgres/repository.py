"""What the repositories have in common: reading records, and refusing a write without ending the transaction."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Any, Final, Generic, LiteralString, TypeAlias, TypeVar
from uuid import UUID

import msgspec
import psycopg
from psycopg import errors, sql

from migrator.connections.postgres import TOO_LARGE, Connection, first_line
from migrator.errors import ConflictError, NotFoundError, OvertakenError, UsageError
from migrator.records import Record, SourcedRecord
from migrator.store.left_rows import LeftRows
from migrator.store.postgres.rows import TableStatements, readable_rows, table, table_name
from migrator.store.validation import GLOBAL

R = TypeVar("R", bound=Record)

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]
Query: TypeAlias = sql.SQL | sql.Composed

_TAKEN = {
    "uq_schedules_name": "the name of a schedule is taken",
    "uq_runs_slot": "the slot of the trigger is taken: it ran, or is to run, already",
    "uq_runs_dedupe": "the trigger ran for this dedupe key already",
    "uq_policy_jobs_run": "the run id of a policy job is taken",
    "uq_handlers_name": "the name of a handler is taken",
}
"""Constraint to the message for the caller."""


UNREADABLE: Final = UsageError("a column holds a time that is not finite, or not in the years 1 to 9999")
_left_out: Final = cache(LeftRows)
"""Table to the rows that lists have left out in this process."""


class Repository(Generic[R]):
    """The rows of one table, in one session."""

    _record: type[R]

    def __init__(self, connection: Connection, tenant: str, now: datetime) -> None:
        self._connection, self._tenant, self._now = connection, tenant, now
        self._table: TableStatements[R] = table(self._record)

    def _many(self, query: Query, parameters: Parameters) -> list[R]:
        with self._connection.cursor(row_factory=self._table.factory, binary=True) as cursor:
            cursor.execute(query, parameters)
            try:
                return cursor.fetchall()
            except psycopg.DataError:
                return self._readable(cursor)

    def _readable(self, cursor: psycopg.Cursor[R]) -> list[R]:
        """Return the rows that can be read, and name the others in the log: none hides another one."""
        rows, unreadable = readable_rows(cursor)
        for key in unreadable:
            _left_out(self._record.table).add(*key, UNREADABLE)
        return rows

    def _select(self, where: LiteralString, parameters: Parameters) -> list[R]:
        """Return rows of the table; ``where``: what follows the list of columns and the table."""
        return self._many(self._table.select + sql.SQL(where), parameters)

    def _select_one(self, where: LiteralString, parameters: Parameters) -> R | None:
        return self._one(self._table.select + sql.SQL(where), parameters)

    def _one(self, query: Query, parameters: Parameters) -> R | None:
        return next(iter(self._many(query, parameters)), None)

    def _value(self, query: LiteralString | Query, parameters: Parameters) -> Any:  # noqa: ANN401 - any type of column
        """Return the first column of the first row; None for null and for no row."""
        row = self._connection.execute(query, parameters).fetchone()
        return None if row is None else row[0]

    def _visible(self, identity: UUID) -> R | None:
        """Return the row with this id, of the tenant, else of ``*``."""
        return self._own_first("WHERE id = %s AND tenant_id IN (%s, %s)", identity)

    def _own_first(self, where: LiteralString, identity: UUID) -> R | None:
        """Return the tenant's row with this id, else that of ``*``; ``where`` takes id, tenant and ``*``."""
        found: list[Any] = self._select(where, (identity, self._tenant, GLOBAL))
        return min(found, key=lambda row: bool(row.tenant_id == GLOBAL), default=None)

    def _held(self, identity: UUID) -> R | None:
        """Return the tenant's own row with this id, locked until the transaction ends."""
        return self._select_one("WHERE id = %s AND tenant_id = %s FOR UPDATE", (identity, self._tenant))

    def _insert(self, record: R) -> R:
        """Insert a record that is made here: it has no source."""
        with self.refusing():
            (written,) = self._many(self._table.insert(), self._table.values(unsourced(record)))
        return written

    def _replace(self, record: R) -> R:
        """Replace the tenant's own row, which is locked."""
        with self.refusing():
            (written,) = self._many(self._table.replace(), self._table.changes(record))
        return written

    def _require(self, name: str, identity: UUID | None, *, shared: bool = False) -> str | None:
        """Return the tenant of the row to which a reference leads; raises ``NotFoundError`` if it may not lead there.

        The foreign keys carry the tenant and refuse it as well; this also refuses deleted schedules. ``shared``: also
        rows of ``*``, after the tenant's own.
        """
        if identity is None:
            return None
        query = sql.SQL("SELECT tenant_id FROM {} WHERE id = %s AND tenant_id = ANY(%s)").format(table_name(name))
        if name == "schedules":
            query += sql.SQL(" AND deleted_at IS NULL")
        query += sql.SQL(" ORDER BY tenant_id = '*' LIMIT 1")
        tenants = [self._tenant, GLOBAL] if shared else [self._tenant]
        owner: str | None = self._value(query, (identity, tenants))
        if owner is None:
            raise NotFoundError(f"a reference to {name} names no row")
        return owner

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Undo only what is inside if the database refuses it; raise the store's error."""
        try:
            with self._connection.transaction():
                yield
        except psycopg.IntegrityError as error:
            raise refusal(error) from error
        except (psycopg.DataError, *TOO_LARGE) as error:
            raise UsageError(f"a value does not fit its column: {first_line(error)}") from error


def unsourced(record: R, **changes: Any) -> R:  # noqa: ANN401 - columns have all types
    """Return the record with these changes and without source, as it is created here."""
    if isinstance(record, SourcedRecord):
        changes |= {"source": None, "source_id": None}
    return msgspec.structs.replace(record, **changes)


def refusal(error: psycopg.IntegrityError) -> Exception:
    """Return the store's error for a constraint that is violated."""
    name = error.diag.constraint_name or ""
    if name == "uq_runs_number":  # the store counts it itself
        return OvertakenError("another session took the run number at the same moment")
    if isinstance(error, errors.UniqueViolation):
        return ConflictError(_TAKEN.get(name, f"the id is taken ({name})"))
    if isinstance(error, errors.ForeignKeyViolation):
        return NotFoundError(f"a row that is referred to does not exist, or is still in use ({name})")
    return UsageError(f"a value that its table refuses ({name or error.diag.column_name})")
