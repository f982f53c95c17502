"""What a cutover does with the tables of a library: it notes what is written there, and a rollback closes them.

**Notes.** Triggers on the library's tables note the key of each row that is written or deleted, in the outbox. They
exist from the cutover to ``cutover finish`` or the end of a rollback. When a note was carried to MongoDB, its key goes
to the table of changes, which says what a rollback must look at. A row that the library has deleted leaves its origin
behind, so that TRUNCATE needs no note.

**Fence.** After a rollback the application works on MongoDB. Triggers then refuse every statement that writes to the
library's tables, also of their owner; the tool's own functions are let through (``native_target.WRITES``). The next
cutover removes them. Nothing else of the library's is changed.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from uuid import UUID

import msgspec
from psycopg import sql

from migrator.config import Settings, TargetSettings
from migrator.connections.postgres import Connection, fetch_value
from migrator.cutover.outbox import ChangedRow
from migrator.records import Record
from migrator.schema import native_target
from migrator.sources import profile_of
from migrator.sources.profile import Collection, Profile
from migrator.sources.tenants import NO_TENANT
from migrator.targets import load_target, native_table
from migrator.targets.model import Table

NOTE_TRIGGER: Final = "migrator_note"
FENCE_TRIGGER: Final = "migrator_fence"
FENCE_FUNCTION: Final = "refuse_writes"
BATCH_ROWS: Final = 1_000
"""Rows that are looked at together."""
_UNADOPTED: Final = "migrator-new-row"
"""The source id of a row whose document is not known yet; it stands in no table when the transaction has ended."""

_NOTE = """
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO migration.outbox (table_name, row_id, tenant_id) VALUES ({name}, {old}, {tenant});
    END IF;
    IF TG_OP = 'INSERT' OR (TG_OP = 'UPDATE' AND {new} IS DISTINCT FROM {old}) THEN
        INSERT INTO migration.outbox (table_name, row_id, tenant_id) VALUES ({name}, {new}, {tenant});
    END IF;
    RETURN NULL;
END
"""
_REFUSE = """
BEGIN
    IF coalesce(current_setting({writes}, true), '') <> 'on' THEN
        RAISE EXCEPTION 'table % is closed: a rollback has moved its application to MongoDB (migrator cutover status)',
            TG_TABLE_NAME USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NULL;
END
"""


class NotedRow(msgspec.Struct, frozen=True):
    """A row of a library that was noted, and what it came from."""

    key: str
    """The key of the row as one text (``native_target.key_text``)."""
    row_id: UUID | None
    """The id of its origin; None: the library made it, and it has no document yet."""
    source: str | None
    source_id: str | None
    exists: bool
    """Whether the library has not deleted it."""


def library_tables(settings: Settings) -> "LibraryTables | None":
    """Return the tables of the library that is the configured target; None for the schema ``scheduler``."""
    if not settings.target.is_native:
        return None
    return LibraryTables(profile_of(settings.source, settings.target), settings.target)


class LibraryTables:
    """The tables of a library that the documents of a source feed."""

    def __init__(self, profile: Profile, settings: TargetSettings) -> None:
        self.target: Final = load_target(profile.target)
        self._settings = settings
        self.collections: Final[dict[str, list[Collection]]] = {}
        """Name of a table → the collections whose documents have a row there; those first that may get new ones."""
        for collection in sorted(profile.collections, key=lambda one: not one.new_documents):
            self.collections.setdefault(collection.tables[0].table, []).append(collection)

    def table(self, record: type[Record]) -> Table:
        """Return the table of a record."""
        table = native_table(record.table)
        assert table is not None  # noqa: S101 - a collection of a native target
        return table

    @property
    def fed(self) -> list[Table]:
        """Return the tables that documents feed."""
        return [table for table in self.target.tables if table.full_name in self.collections]

    def name_of(self, table: Table) -> sql.Identifier:
        """Return the quoted name of a table of the library."""
        return native_target.library_name(table, self.target, self._settings)

    def not_owned(self, connection: Connection) -> list[str]:
        """Return the tables on which the user of this session may make and remove no triggers."""
        return [
            table.name
            for table in self.target.tables
            if not fetch_value(
                connection,
                "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(%s)",
                (self.name_of(table).as_string(connection),),
            )
        ]

    # Notes

    def open_outbox(self, connection: Connection) -> None:
        """Create the triggers that note what is written, in one transaction; wait for those who write now.

        Called again, it loses no note.
        """
        with connection.transaction():
            if not self.is_outbox_open(connection):
                connection.execute(sql.SQL("TRUNCATE {}").format(native_target.changes(self.target)))
            for table in self.fed:
                columns = [name for name, _ in native_target.key_columns(table)]
                body = sql.SQL(_NOTE).format(
                    name=sql.Literal(table.full_name),
                    old=native_target.key_text("old", columns),
                    new=native_target.key_text("new", columns),
                    tenant=sql.Literal(NO_TENANT),
                )
                function = self._own(f"note_{table.name}")
                # SECURITY DEFINER: the application's role has no rights in the tool's schemas, and needs none
                connection.execute(
                    sql.SQL(
                        "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
                        " SET search_path = pg_catalog, pg_temp AS {}"
                    ).format(function, sql.Literal(body.as_string(connection)))
                )
                connection.execute(sql.SQL("REVOKE ALL ON FUNCTION {}() FROM PUBLIC").format(function))
                connection.execute(
                    sql.SQL(
                        "CREATE OR REPLACE TRIGGER {} AFTER INSERT OR UPDATE OR DELETE ON {}"
                        " FOR EACH ROW EXECUTE FUNCTION {}()"
                    ).format(sql.Identifier(NOTE_TRIGGER), self.name_of(table), function)
                )

    def close_outbox(self, connection: Connection) -> None:
        """Remove the triggers and the notes. Called again, it changes nothing, and waits for no lock on a table."""
        for table in self._having(connection, NOTE_TRIGGER):
            connection.execute(
                sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(sql.Identifier(NOTE_TRIGGER), self.name_of(table))
            )
        for table in self.fed:
            connection.execute(sql.SQL("DROP FUNCTION IF EXISTS {}()").format(self._own(f"note_{table.name}")))
        connection.execute("TRUNCATE migration.outbox")
        connection.execute(sql.SQL("TRUNCATE {}").format(native_target.changes(self.target)))

    def is_outbox_open(self, connection: Connection) -> bool:
        """Return whether each table that documents feed has its trigger, and the trigger is enabled."""
        return len(self._having(connection, NOTE_TRIGGER)) == len(self.fed)

    def carried(self, connection: Connection, noted: Iterable[ChangedRow]) -> None:
        """Record that noted rows were carried to MongoDB, before their notes are deleted."""
        rows = sorted({(row.table, row.row_id) for row in noted})
        connection.execute(
            sql.SQL(
                "INSERT INTO {} (table_name, row_id) SELECT * FROM unnest(%s::text[], %s::text[])"
                " ON CONFLICT DO NOTHING"
            ).format(native_target.changes(self.target)),
            ([table for table, _ in rows], [key for _, key in rows]),
        )

    def changed(self, connection: Connection) -> Iterator[list[ChangedRow]]:
        """Yield the rows that were carried since the cutover, in batches."""
        last = ("", "")
        while True:
            rows = connection.execute(
                sql.SQL(
                    "SELECT table_name, row_id FROM {} WHERE (table_name, row_id) > (%s, %s) ORDER BY 1, 2 LIMIT %s"
                ).format(native_target.changes(self.target)),
                (*last, BATCH_ROWS),
            ).fetchall()
            if not rows:
                return
            last = (rows[-1][0], rows[-1][1])
            yield [ChangedRow(table, key, NO_TENANT, None, None) for table, key in rows]

    def made(self, connection: Connection) -> int:
        """Return the number of rows that the library has made since the cutover, as far as they were carried."""
        return int(
            fetch_value(
                connection,
                sql.SQL("SELECT count(*) FROM {} WHERE made").format(native_target.changes(self.target)),
            )
        )

    # The fence of a rollback

    def close(self, connection: Connection) -> None:
        """Refuse every statement that writes to the library's tables, when those who write now have ended.

        Called again, it changes nothing.
        """
        with connection.transaction():
            function = self._own(FENCE_FUNCTION)
            body = sql.SQL(_REFUSE).format(writes=sql.Literal(native_target.WRITES))
            connection.execute(
                sql.SQL("CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS {}").format(
                    function, sql.Literal(body.as_string(connection))
                )
            )
            for table in self.target.tables:
                connection.execute(
                    sql.SQL(
                        "CREATE OR REPLACE TRIGGER {} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {}"
                        " FOR EACH STATEMENT EXECUTE FUNCTION {}()"
                    ).format(sql.Identifier(FENCE_TRIGGER), self.name_of(table), function)
                )

    def lift(self, connection: Connection) -> None:
        """Let the application write to the library's tables again. Called again, it changes nothing."""
        with connection.transaction():
            for table in self._having(connection, FENCE_TRIGGER):
                connection.execute(
                    sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(
                        sql.Identifier(FENCE_TRIGGER), self.name_of(table)
                    )
                )
            connection.execute(sql.SQL("DROP FUNCTION IF EXISTS {}()").format(self._own(FENCE_FUNCTION)))

    def is_closed(self, connection: Connection) -> bool:
        """Return whether every table of the library refuses writes."""
        return len(self._having(connection, FENCE_TRIGGER)) == len(self.target.tables)

    # Origins

    def noted_rows(self, connection: Connection, table: Table, keys: Sequence[str]) -> list[NotedRow]:
        """Return the rows of a table that were noted by their keys, as they are now."""
        rows = connection.execute(
            sql.SQL(
                "SELECT given.row_id, origin.id, origin.source, origin.source_id, {stored} IS NOT NULL"
                " FROM {given} LEFT JOIN {library} AS stored ON {same_stored}"
                " LEFT JOIN {origins} AS origin ON {same_origin} ORDER BY given.row_id"
            ).format(
                stored=sql.Identifier("stored", table.key[0]),
                given=_given(table),
                library=self.name_of(table),
                origins=native_target.origins(table, self.target),
                same_stored=_same(table, "stored", library=True),
                same_origin=_same(table, "origin", library=False),
            ),
            (list(keys),),
        ).fetchall()
        return [NotedRow(*row) for row in rows]

    def adopt(self, connection: Connection, table: Table, keys: Sequence[str]) -> dict[str, UUID]:
        """Give rows without an origin a provisional one, so that they can be read; return key → id of the origin.

        The caller's transaction must end with ``complete_origin`` for each of them.
        """
        columns = native_target.key_columns(table)
        made = table.made == "row"
        rows = connection.execute(
            sql.SQL(
                "INSERT INTO {origins} AS origin (id, tenant_id, source, source_id, extra{names})"
                " SELECT {row_id}, %s, NULL, %s, '{{}}'{values} FROM {given} JOIN {library} AS stored ON {same}"
                " RETURNING {key}, origin.id"
            ).format(
                origins=native_target.origins(table, self.target),
                names=sql.SQL("").join(sql.SQL(", {}").format(sql.Identifier(name)) for _, name in columns if not made),
                row_id=sql.Identifier("stored", table.key[0]) if made else sql.SQL("gen_random_uuid()"),
                values=sql.SQL("").join(
                    sql.SQL(", {}").format(sql.Identifier("stored", name)) for name, _ in columns if not made
                ),
                given=_given(table),
                library=self.name_of(table),
                same=_same(table, "stored", library=True),
                key=native_target.key_text("origin", [name for _, name in columns]),
            ),
            (NO_TENANT, _UNADOPTED, list(keys)),
        ).fetchall()
        return dict(rows)

    def complete_origin(
        self, connection: Connection, table: Table, provisional: UUID, origin: tuple[UUID, str, str]
    ) -> UUID:
        """Say of a provisional origin which row id, source and source id it has; return the id."""
        row_id, source, source_id = origin
        if table.made == "row":
            row_id = provisional
        names = native_target.origins(table, self.target)
        # the origin of a row that the library has deleted, and made again under another key
        connection.execute(
            sql.SQL("DELETE FROM {} WHERE id = %s AND id <> %s AND tenant_id = %s").format(names),
            (row_id, provisional, NO_TENANT),
        )
        connection.execute(
            sql.SQL("UPDATE {} SET id = %s, source = %s, source_id = %s WHERE id = %s AND tenant_id = %s").format(
                names
            ),
            (row_id, source, source_id, provisional, NO_TENANT),
        )
        connection.execute(
            sql.SQL(
                "INSERT INTO {} SELECT %s, {}, true FROM {} AS origin WHERE origin.id = %s AND origin.tenant_id = %s"
                " ON CONFLICT (table_name, row_id) DO UPDATE SET made = true"
            ).format(
                native_target.changes(self.target),
                native_target.key_text("origin", [name for _, name in native_target.key_columns(table)]),
                names,
            ),
            (table.full_name, row_id, NO_TENANT),
        )
        return row_id

    def reject(self, connection: Connection, table: Table, provisional: UUID) -> None:
        """Remove a provisional origin: its row becomes no document."""
        connection.execute(
            sql.SQL("DELETE FROM {} WHERE id = %s AND tenant_id = %s").format(
                native_target.origins(table, self.target)
            ),
            (provisional, NO_TENANT),
        )

    def deleted(self, connection: Connection, table: Table) -> dict[str, list[str]]:
        """Return source → source ids of the documents whose rows the library has deleted."""
        rows = connection.execute(
            sql.SQL(
                "SELECT origin.source, origin.source_id FROM {} AS origin WHERE origin.source IS NOT NULL"
                " AND NOT EXISTS (SELECT FROM {} AS stored WHERE {}) ORDER BY 1, 2"
            ).format(
                native_target.origins(table, self.target),
                self.name_of(table),
                native_target.same_key(table, "stored", "origin"),
            )
        ).fetchall()
        by_source: dict[str, list[str]] = {}
        for source, source_id in rows:
            by_source.setdefault(source, []).append(source_id)
        return by_source

    def export(self, connection: Connection, table: Table, keys: Sequence[str]) -> list[tuple[str, str]]:
        """Return key and content, as JSON, of rows of the library."""
        return connection.execute(
            sql.SQL(
                "SELECT given.row_id, row_to_json(stored)::text FROM {} JOIN {} AS stored ON {} ORDER BY given.row_id"
            ).format(_given(table), self.name_of(table), _same(table, "stored", library=True)),
            (list(keys),),
        ).fetchall()

    def delete_unnamed(self, connection: Connection) -> int:
        """Delete the rows that no document has, in a transaction of the caller; return their number.

        They were exported: after a rollback the tables are a copy again.
        """
        connection.execute("SELECT set_config(%s, 'on', true)", (native_target.WRITES,))
        count = 0
        for table in self.fed:
            count += connection.execute(
                sql.SQL("DELETE FROM {} AS stored WHERE NOT EXISTS (SELECT FROM {} AS origin WHERE {})").format(
                    self.name_of(table),
                    native_target.origins(table, self.target),
                    native_target.same_key(table, "stored", "origin"),
                )
            ).rowcount
        connection.execute("SELECT set_config(%s, '', true)", (native_target.WRITES,))
        return count

    def take_over(self, connection: Connection) -> None:
        """Let what the library has written and deleted count as written by the tool, which writes it from now on."""
        for table in self.fed:
            native_target.take_over(connection, table, self.target, self.name_of(table))

    def _own(self, name: str) -> sql.Identifier:
        return sql.Identifier(self.target.tool_schema, name)

    def _having(self, connection: Connection, trigger: str) -> list[Table]:
        """Return the tables that have an enabled trigger of this name."""
        return [
            table
            for table in self.target.tables
            if fetch_value(
                connection,
                "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND tgname = %s"
                " AND tgenabled = 'O')",
                (self.name_of(table).as_string(connection), trigger),
            )
        ]


def _given(table: Table) -> sql.Composed:
    """Return the relation of the keys in the parameter: ``row_id``, and the columns of the key in their types."""
    types = {column.name: column.type for column in table.columns}
    if len(table.key) == 1:
        parts = [sql.SQL("row_id::{} AS key_0").format(sql.SQL(types[table.key[0]]))]
    else:
        parts = [
            sql.SQL("(row_id::jsonb ->> {})::{} AS {}").format(
                sql.Literal(number), sql.SQL(types[name]), sql.Identifier(f"key_{number}")
            )
            for number, name in enumerate(table.key)
        ]
    return sql.SQL("(SELECT row_id, {} FROM unnest(%s::text[]) AS row_id) AS given").format(sql.SQL(", ").join(parts))


def _same(table: Table, alias: str, *, library: bool) -> sql.Composed:
    """Return the condition that a row has the key of ``given``."""
    columns = [pair[0] if library else pair[1] for pair in native_target.key_columns(table)]
    return sql.SQL(" AND ").join(
        sql.SQL("{} = {}").format(sql.Identifier(alias, name), sql.Identifier("given", f"key_{number}"))
        for number, name in enumerate(columns)
    )
