"""What differs between targets: the schema ``scheduler``, and the tables of libraries.

Rows are read and written by the same statements, over a table of the schema ``scheduler`` or over the view of a native
target. Here is what is not the same: what must be there before a row is written, what marks the
database as a copy, and what the tables are called in the catalogue.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from psycopg import sql

from migrator.config import Settings, TargetSettings
from migrator.connections.postgres import Connection, fetch_value
from migrator.errors import BackendMovedError, RefusedError
from migrator.pipeline import deferred_ddl
from migrator.records import Bytes, Jsonb, Lock, Record
from migrator.schema import direct_copy, native_target
from migrator.schema.direct_copy import DirectCopy
from migrator.schema.revisions import require_known
from migrator.sources.profile import Collection, Profile
from migrator.store import epoch
from migrator.store.postgres import parallel_run
from migrator.store.postgres.epoch import OWN_BACKEND, mark_copy, read, require_forward
from migrator.store.postgres.rows import table_name
from migrator.targets import load_target, native_table
from migrator.targets.model import Table, Target
from migrator.values.copy_format import codec

MOST_COUNTED = 1_000
"""Rows of others that are counted; more are "more than"."""


_OPENED: Final = """
SELECT coalesce(s.ended_at, s.began_at) FROM migration.cutover_steps AS s
JOIN migration.cutovers AS c ON c.id = s.cutover_id
WHERE s.step = 'outbox' AND s.state <> 'undone' ORDER BY c.began_at DESC LIMIT 1
"""


# A library knows of no persistence epoch: the journal of the last cutover says where the application works.
_LIBRARY_OPENED: Final = """
SELECT coalesce(o.ended_at, o.began_at) FROM migration.cutovers AS c
JOIN migration.cutover_steps AS p ON p.cutover_id = c.id AND p.step = 'point-of-no-return' AND p.state = 'done'
JOIN migration.cutover_steps AS o ON o.cutover_id = c.id AND o.step = 'outbox' AND o.state = 'done'
WHERE c.state IN ('running', 'cut-over', 'finished') AND c.id =
    (SELECT id FROM migration.cutovers ORDER BY began_at DESC, id LIMIT 1)
"""

_LIBRARY_FINISHED: Final = """
SELECT state = 'finished' FROM migration.cutovers ORDER BY began_at DESC, id LIMIT 1
"""
FINISHED: Final = (
    "the cutover to the library's tables is finished, and what the library writes is not noted any more: a change"
    " of the library cannot be told from a difference"
)


class TargetTables(ABC):
    """The tables of a target, for the pipeline."""

    @abstractmethod
    def require_ready(self, connection: Connection) -> None:
        """Raise ``RefusedError`` if rows cannot be written or compared."""

    @abstractmethod
    def require_forward(self, connection: Connection) -> None:
        """Raise ``RefusedError`` once the target holds the data: documents would overwrite newer rows."""

    @abstractmethod
    def require_comparable(self, connection: Connection) -> None:
        """Raise ``RefusedError`` if nothing tells any more what was changed since the target is active."""

    @abstractmethod
    def active_since(self, connection: Connection) -> datetime | None:
        """Return since when the target is written to and the source is not; None: it is a copy, or was rolled back."""

    @abstractmethod
    def changed_documents(self, connection: Connection, record: type[Record], source: str) -> frozenset[str] | None:
        """Return the source ids of the documents whose rows were written or deleted since the target is active.

        None: the columns of the rows say when they were changed.
        """

    @abstractmethod
    def mark_copy(self, connection: Connection, profile: str) -> None:
        """Record that the database is a copy."""

    @abstractmethod
    def is_empty(self, connection: Connection, record: type[Record]) -> bool:
        """Whether a table has no row, of whomever."""

    @abstractmethod
    def guard_foreign(self, connection: Connection, profile: Profile) -> None:
        """Raise ``RefusedError`` if a table holds rows that this profile did not load."""

    @abstractmethod
    def guard_changed(self, connection: Connection, collections: Iterable[Collection]) -> None:
        """Raise ``RefusedError`` if another program changed or deleted rows of these collections.

        That is, since the tool wrote them, in a table that no cutover has moved an application to.
        """

    @abstractmethod
    def take_over(self, connection: Connection, collections: Iterable[Collection]) -> Mapping[str, int]:
        """Let what another program changed and deleted count as written by the tool: it can be overwritten then.

        Returns table → rows.
        """

    @abstractmethod
    def written_by_others(self, connection: Connection, record: type[Record], ids: Sequence[UUID]) -> frozenset[UUID]:
        """Return the ids of those of these rows that another program changed or deleted since the tool wrote them.

        None of a table of which nothing tells it.
        """

    @abstractmethod
    def foreign_rows(
        self, connection: Connection, profile: Profile, record: type[Record], most: int
    ) -> tuple[int, Sequence[str]]:
        """Return how many rows of a table the tool did not write for this profile, and the keys of the first ``most``.

        None of a table whose rows say themselves where they came from, or that others may fill.
        """

    @abstractmethod
    def defer(self, connection: Connection, plan: UUID, tables: Sequence[str]) -> None:
        """Drop what a first load builds afterwards."""

    @abstractmethod
    def analyzed(self, record: type[Record]) -> Sequence[tuple[sql.Composable, Sequence[str]]]:
        """Return the tables that hold the rows of a record, each with the columns of which statistics are useful."""

    @abstractmethod
    def direct_copy(self, connection: Connection, record: type[Record]) -> DirectCopy | None:
        """Return how the rows of a record are copied into two tables at once; None where that cannot be.

        It holds until the end of the transaction.
        """

    @abstractmethod
    def relations(self, record: type[Record]) -> Sequence[str]:
        """Return the quoted names of the tables whose unique indexes hold for the rows of a record."""


class SchedulerTables(TargetTables):
    """The schema ``scheduler``: a migration role, tenants, a persistence epoch, indexes that are built afterwards."""

    def require_ready(self, connection: Connection) -> None:
        require_known(connection)

    def require_forward(self, connection: Connection) -> None:
        require_forward(connection)

    def require_comparable(self, connection: Connection) -> None:
        """Do nothing: rows say when they were changed."""

    def active_since(self, connection: Connection) -> datetime | None:
        found = read(connection)
        if found is None or found.backend != OWN_BACKEND:
            return None
        opened: datetime | None = fetch_value(connection, _OPENED)
        return opened

    def changed_documents(self, connection: Connection, record: type[Record], source: str) -> frozenset[str] | None:  # noqa: ARG002 - the protocol's
        return None

    def mark_copy(self, connection: Connection, profile: str) -> None:
        mark_copy(connection, profile)

    def is_empty(self, connection: Connection, record: type[Record]) -> bool:
        return not fetch_value(connection, sql.SQL("SELECT EXISTS (SELECT FROM {})").format(table_name(record.table)))

    def guard_foreign(self, connection: Connection, profile: Profile) -> None:
        for record in dict.fromkeys(record for collection in profile.collections for record in collection.tables):
            if "source" in record.__struct_fields__:
                foreign = "(source IS NULL OR NOT starts_with(source, %(prefix)s))"
                foreign += (
                    f" AND key NOT IN ('{epoch.KEY}', '{parallel_run.KEY}')" if record is Lock else ""
                )  # the tool's own
            else:  # the rows of such a table do not name their source, but the ledger shows that they are not ours
                foreign = (
                    "NOT EXISTS (SELECT FROM migration.chunks WHERE state = 'done' AND collection = ANY(%(feeding)s))"
                )
            feeding = [collection.name for collection in profile.collections if record in collection.tables]
            row = connection.execute(
                f"SELECT count(*) FROM (SELECT FROM scheduler.{record.table} WHERE {foreign}"  # noqa: S608 - a record's table name
                f" LIMIT {MOST_COUNTED + 1}) AS rows",
                {"prefix": f"{profile.name}/", "feeding": feeding},
            ).fetchone()
            if row and row[0]:
                raise RefusedError(
                    f"table scheduler.{record.table} holds rows that did not come from profile {profile.name}"
                    f" ({_counted(row[0])}); copy into an empty schema, or remove them"
                )

    def guard_changed(self, connection: Connection, collections: Iterable[Collection]) -> None:
        """Do nothing: an application of this schema refuses to work on a copy."""

    def take_over(self, connection: Connection, collections: Iterable[Collection]) -> Mapping[str, int]:  # noqa: ARG002 - the protocol's
        return {}

    def written_by_others(self, connection: Connection, record: type[Record], ids: Sequence[UUID]) -> frozenset[UUID]:  # noqa: ARG002 - the protocol's
        return frozenset()

    def foreign_rows(
        self,
        connection: Connection,  # noqa: ARG002 - the protocol's
        profile: Profile,  # noqa: ARG002 - as above
        record: type[Record],  # noqa: ARG002 - as above
        most: int,  # noqa: ARG002 - as above
    ) -> tuple[int, Sequence[str]]:
        """Return none: each row names its source, and an application may fill the tables of its own."""
        return 0, ()

    def defer(self, connection: Connection, plan: UUID, tables: Sequence[str]) -> None:
        deferred_ddl.defer(connection, plan, tables)

    def analyzed(self, record: type[Record]) -> Sequence[tuple[sql.Composable, Sequence[str]]]:
        return [(table_name(record.table), codec(record).plain)]

    def direct_copy(
        self,
        connection: Connection,  # noqa: ARG002 - the protocol's
        record: type[Record],  # noqa: ARG002 - as above
    ) -> DirectCopy | None:
        """Return None: rows are stored in one table."""
        return None

    def relations(self, record: type[Record]) -> Sequence[str]:
        return [f"scheduler.{record.table}"]


class NativeTables(TargetTables):
    """Tables that a library has made: its own indexes stay as they are, and no role of the tool's is needed."""

    def __init__(self, target: Target, settings: TargetSettings) -> None:
        self._target, self._settings = target, settings

    def require_ready(self, connection: Connection) -> None:
        native_target.require_tables(connection, self._target, self._settings)
        require_known(connection)
        if not native_target.is_prepared(connection, self._target):
            raise RefusedError(f"the target {self._target.name} is not prepared: {native_target.PREPARE}")

    def require_forward(self, connection: Connection) -> None:
        if self.active_since(connection) is not None:
            raise BackendMovedError(
                "the application works on the library's tables since the cutover: MongoDB is not current"
            )

    def require_comparable(self, connection: Connection) -> None:
        if fetch_value(connection, _LIBRARY_FINISHED):
            raise RefusedError(FINISHED)

    def active_since(self, connection: Connection) -> datetime | None:
        opened: datetime | None = fetch_value(connection, _LIBRARY_OPENED)
        return opened

    def changed_documents(self, connection: Connection, record: type[Record], source: str) -> frozenset[str] | None:
        table = self._table(record)
        query = native_target.changed_documents(table, self._target, self._library(record))
        return frozenset(row[0] for row in connection.execute(query, (source,)).fetchall())

    def mark_copy(self, connection: Connection, profile: str) -> None:
        """Do nothing: the library knows of no copy."""

    def is_empty(self, connection: Connection, record: type[Record]) -> bool:
        table = self._library(record)
        return not fetch_value(connection, sql.SQL("SELECT EXISTS (SELECT FROM {})").format(table))

    def guard_foreign(self, connection: Connection, profile: Profile) -> None:
        for record in dict.fromkeys(record for collection in profile.collections for record in collection.tables):
            count, _ = self.foreign_rows(connection, profile, record, 0)
            if count:
                raise RefusedError(
                    f"table {self._library(record).as_string(None)} holds rows that did not come from profile"
                    f" {profile.name} ({count}); copy into an empty table, or remove them"
                )

    def guard_changed(self, connection: Connection, collections: Iterable[Collection]) -> None:
        if self.active_since(connection) is not None:
            return
        for record in _fed(collections):
            table, library = self._table(record), self._library(record)
            changed, deleted = native_target.rows_of_others(connection, table, self._target, library)
            counts = [f"{word} rows ({n:,})" for word, n in (("changed", changed), ("deleted", deleted)) if n]
            if counts:
                name = ".".join(native_target.place(table, self._target, self._settings))
                raise RefusedError(native_target.refusal(name, " and ".join(counts)))

    def take_over(self, connection: Connection, collections: Iterable[Collection]) -> Mapping[str, int]:
        counts = {
            record.table: native_target.take_over(connection, self._table(record), self._target, self._library(record))
            for record in _fed(collections)
        }
        return {table: count for table, count in counts.items() if count}

    def written_by_others(self, connection: Connection, record: type[Record], ids: Sequence[UUID]) -> frozenset[UUID]:
        library = self._library(record)
        return native_target.written_by_others(connection, self._table(record), self._target, library, ids)

    def foreign_rows(
        self, connection: Connection, profile: Profile, record: type[Record], most: int
    ) -> tuple[int, Sequence[str]]:
        table = self._table(record)
        of_others = sql.SQL(
            "FROM {library} AS stored WHERE NOT EXISTS (SELECT FROM {origins} AS origin WHERE {same} AND"
            " starts_with(origin.source, {prefix}))"
        ).format(
            library=self._library(record),
            origins=native_target.origins(table, self._target),
            same=native_target.same_key(table, "stored", "origin"),
            prefix=sql.Literal(f"{profile.name}/"),
        )
        count = fetch_value(connection, sql.SQL("SELECT count(*) {}").format(of_others))
        if not count:
            return 0, ()
        keys = sql.SQL(", ").join(sql.Identifier("stored", name) for name in table.key)
        rows = connection.execute(
            sql.SQL("SELECT concat_ws(', ', {}) {} ORDER BY {} LIMIT {}").format(keys, of_others, keys, most)
        ).fetchall()
        return count, [key for (key,) in rows]

    def defer(self, connection: Connection, plan: UUID, tables: Sequence[str]) -> None:
        """Do nothing: the indexes are the library's."""

    def analyzed(self, record: type[Record]) -> Sequence[tuple[sql.Composable, Sequence[str]]]:
        table = self._table(record)
        columns = [
            column.name
            for column in table.columns
            if column.name in table.key or column.kind.annotation not in _NOT_ANALYZED
        ]
        return [(self._library(record), columns), (native_target.origins(table, self._target), ("id", "source_id"))]

    def direct_copy(self, connection: Connection, record: type[Record]) -> DirectCopy | None:
        return direct_copy.direct_copy(connection, self._table(record), self._target, self._settings)

    def relations(self, record: type[Record]) -> Sequence[str]:
        beside = native_target.origins(self._table(record), self._target)
        return [self._library(record).as_string(None), beside.as_string(None)]

    def _table(self, record: type[Record]) -> Table:
        table = native_table(record.table)
        assert table is not None  # noqa: S101 - every collection of the profile feeds tables of this target
        return table

    def _library(self, record: type[Record]) -> sql.Identifier:
        return native_target.library_name(self._table(record), self._target, self._settings)


_NOT_ANALYZED = (Jsonb, Bytes)
"""Of columns that hold whole documents or pickles: no query of a library looks into them, and they are long."""


def _fed(collections: Iterable[Collection]) -> Iterable[type[Record]]:
    """Return the records of which collections make rows."""
    return dict.fromkeys(record for collection in collections for record in collection.tables)


def _counted(count: int) -> str:
    return f"more than {MOST_COUNTED}" if count > MOST_COUNTED else str(count)


def target_tables(settings: Settings) -> TargetTables:
    """Return the configured target; raises ``ConfigurationError`` if there is none of the name.

    The profile is read before: a mapping file may describe the target.
    """
    if not settings.target.is_native:
        return SchedulerTables()
    return NativeTables(load_target(settings.target.name), settings.target)
