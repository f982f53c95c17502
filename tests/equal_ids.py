"""Rows of another tenant that have the ids, the source and the references of a tenant's rows."""

from typing import Final

import psycopg

from migrator.records import ALL, Record

OTHER: Final = "intruder"
"""The tenant of the planted rows."""


def plant(connection: psycopg.Connection, records: tuple[type[Record], ...] = ALL) -> dict[str, int]:
    """Copy every row of a tenant to the other tenant, with the same id; return table → rows planted."""
    planted = {}
    for record in records:
        names = [name for name in record.__struct_fields__ if name != "tenant_id"]
        values = [f"'{OTHER}/' || split_part(key, '/', 2)" if name == "key" else name for name in names]
        planted[record.table] = connection.execute(
            f"INSERT INTO scheduler.{record.table} (tenant_id, {', '.join(names)}) SELECT '{OTHER}',"
            f" {', '.join(values)} FROM scheduler.{record.table} WHERE tenant_id NOT IN ('*', '{OTHER}')"
        ).rowcount
    return planted
