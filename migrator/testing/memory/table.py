"""What the model's repositories have in common: rows in dictionaries, by record and id."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from migrator.errors import ConflictError, NotFoundError
from migrator.records import Record, Run, Schedule, Trigger
from migrator.store import validation

R = TypeVar("R", bound=Record)

Tables = dict[type[Record], dict[Any, Any]]
"""Record to id to row; rows are frozen, so a copy of the dictionaries is a copy of the data."""


class MemoryTable(Generic[R]):
    """The rows of one record, in one session."""

    def __init__(self, record: type[R], tables: Tables, tenant: str, now: datetime) -> None:
        self._tables, self._tenant, self._now = tables, tenant, now
        self._rows: dict[Any, R] = tables[record]

    def _own(self, identity: object) -> R | None:
        row: Any = self._rows.get(identity)
        return row if row is not None and row.tenant_id == self._tenant else None

    def _visible(self, identity: object) -> R | None:
        row: Any = self._rows.get(identity)
        return row if row is not None and row.tenant_id in {self._tenant, validation.GLOBAL} else None

    def _all(self, *, shared: bool = False) -> Iterator[R]:
        tenants = {self._tenant, validation.GLOBAL} if shared else {self._tenant}
        return (row for row in self._rows.values() if row.tenant_id in tenants)  # type: ignore[attr-defined] # every table has a tenant

    def _insert(self, row: R) -> R:
        """Insert a row as one that is created here."""
        if row.id in self._rows:  # type: ignore[attr-defined] # as above
            raise ConflictError("the id is taken")
        if "source" in row.__struct_fields__:
            row = msgspec.structs.replace(row, source=None, source_id=None)
        self._rows[row.id] = row  # type: ignore[attr-defined] # as above
        return row

    def _replace(self, row: R, stored: R) -> R:
        """Write over a row what an update may change."""
        kept = {name: getattr(stored, name) for name in validation.KEPT if name in row.__struct_fields__}
        written = msgspec.structs.replace(validation.with_stored_precision(row, stored), **kept)
        self._rows[kept["id"]] = written
        return written

    def _require(self, record: type[Record], identity: UUID | None, *, shared: bool = False) -> str | None:
        """Return whose row a reference leads to."""
        if identity is None:
            return None
        row = self._tables[record].get(identity)
        tenants = {self._tenant, validation.GLOBAL} if shared else {self._tenant}
        if row is None or row.tenant_id not in tenants or (record is Schedule and row.deleted_at is not None):
            raise NotFoundError(f"a reference to {record.table} names no row")
        return str(row.tenant_id)

    def _require_of_run(self, run: Run, stored: Run | None = None) -> str | None:
        """Look up what a run refers to, where it differs from what is stored; return whose schedule it is."""
        owner = None
        references: tuple[tuple[type[Record], str], ...] = (
            (Schedule, "schedule_id"),
            (Trigger, "trigger_id"),
            (Run, "retry_of"),
        )
        for record, column in references:
            if stored is None or getattr(run, column) != getattr(stored, column):
                found = self._require(record, getattr(run, column), shared=record is not Run)
                owner = found if record is Schedule else owner
        return owner


def newest_first(moment: str) -> Callable[[Any], tuple[bool, float, UUID]]:
    """Return a key: by this column descending, none last, then by id."""

    def key(row: Any) -> tuple[bool, float, UUID]:  # noqa: ANN401 - rows of several records
        instant = getattr(row, moment)
        return instant is None, 0 if instant is None else -microseconds(instant), row.id

    return key


def microseconds(instant: datetime) -> int:
    """Return an instant as a whole number that orders as it does."""
    return int(instant.replace(microsecond=0).timestamp()) * 1_000_000 + instant.microsecond
