"""Rows of a clone as they were, so that one clone serves for many corruptions: making one takes longer than a trial."""

from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from migrator.records import ALL
from migrator.verify.sensitivity.model import Corruption, Sql

SCHEMA: Final = "kept"
_FOLLOWING: Final[dict[str, tuple[str, ...]]] = {
    "schedules": ("triggers",),
    "runs": ("execution_logs", "impact_snapshots"),
    "graph_jobs": ("graph_job_events",),
}
"""Tables whose rows may go with those of another."""
_DDL: Final[tuple[LiteralString, ...]] = ("ALTER ", "DROP ", "CREATE ", "migration.")


def restorable(one: Corruption) -> bool:
    """Tell whether a corruption changes rows of known tables and nothing else."""
    if one.how != "data" or not isinstance(one.plant, Sql):
        return False
    return bool(one.touched) and not any(word in text for text in one.plant.statements for word in _DDL)


class Kept:
    """The tables that were kept in one clone, and how to bring them back."""

    def __init__(self) -> None:
        """Begin with none."""
        self._tables: set[str] = set()

    def keep(self, target: psycopg.Connection[Any], tables: tuple[str, ...]) -> None:
        """Keep the rows of tables, and of those that may go with them, before they are touched for the first time."""
        for table in self._with_following(tables):
            if table not in self._tables:
                target.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
                target.execute(
                    sql.SQL("CREATE TABLE {} AS TABLE {}").format(
                        sql.Identifier(SCHEMA, table), sql.Identifier("scheduler", table)
                    )
                )
                self._tables.add(table)

    def restore(self, target: psycopg.Connection[Any], tables: tuple[str, ...]) -> None:
        """Bring the rows back: remove what is new, then put back what is gone or changed, parents first."""
        wanted = self._with_following(tables)
        with target.transaction():
            for table in reversed(wanted):
                target.execute(
                    sql.SQL(
                        "DELETE FROM {} AS t WHERE NOT EXISTS"
                        " (SELECT FROM {} AS k WHERE k.id = t.id AND k.tenant_id = t.tenant_id)"
                    ).format(sql.Identifier("scheduler", table), sql.Identifier(SCHEMA, table))
                )
            for table in wanted:
                names = sql.SQL(", ").join(map(sql.Identifier, _COLUMNS[table]))
                columns = [name for name in _COLUMNS[table] if name not in ("id", "tenant_id")]
                target.execute(
                    sql.SQL(
                        "INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT (id, tenant_id) DO UPDATE SET {}"
                    ).format(
                        sql.Identifier("scheduler", table),
                        names,
                        names,
                        sql.Identifier(SCHEMA, table),
                        sql.SQL(", ").join(
                            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in columns
                        ),
                    )
                )

    def _with_following(self, tables: tuple[str, ...]) -> list[str]:
        names = {*tables, *(other for table in tables for other in _FOLLOWING.get(table, ()))}
        return [record.table for record in ALL if record.table in names]


_COLUMNS: Final = {
    record.table: (*record.__struct_fields__, *(("global_schedule",) if record.table == "runs" else ()))
    for record in ALL
}
"""Table to its columns, without those that the server computes."""
