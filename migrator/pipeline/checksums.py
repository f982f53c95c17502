"""Checksums of what people decide by: plans, chunks with their notes, recorded parity checks.

The database computes them from the stored rows, in the transaction that writes the rows. They reveal a row that was
changed by hand. They are no signature: a person who can change a row can also compute its checksum.
"""

from typing import Final, LiteralString
from uuid import UUID

import msgspec
from psycopg import sql

from migrator.connections.postgres import Connection
from migrator.schema import decisions

_NOTES: Final[LiteralString] = (
    "(SELECT jsonb_agg(jsonb_build_array(note.collection, note.class, note.kind, note.path, note.documents) ORDER BY"
    ' note.collection COLLATE "C", note.class COLLATE "C", note.kind COLLATE "C", note.path COLLATE "C")'
    " FROM migration.notes AS note WHERE {})"
)
_CHECKSUMMED: Final[dict[str, LiteralString]] = {
    "plans": (
        "stored.id, stored.profile, stored.profile_version, stored.tool_version, stored.config_digest,"  # noqa: S608 - literals of this file
        " stored.source_identity, extract(epoch FROM stored.as_of), stored.state, stored.context,"
        " encode(stored.stream_position, 'hex'),"
        " (SELECT count(*) FROM migration.chunks AS chunk WHERE chunk.plan_id = stored.id),"
        + _NOTES.format("note.plan_id = stored.id AND note.ordinal = -1")
    ),
    "chunks": (
        "stored.plan_id, stored.collection, stored.ordinal, encode(stored.min_id, 'hex'), encode(stored.max_id, 'hex'),"
        " stored.state, stored.documents, stored.skipped, stored.quarantined, stored.bytes, stored.rows,"
        " stored.written, encode(stored.digest, 'hex'),"
        + _NOTES.format(
            "(note.plan_id, note.collection, note.ordinal) = (stored.plan_id, stored.collection, stored.ordinal)"
        )
    ),
    "parity_checks": (
        "stored.id, stored.plan_id, extract(epoch FROM stored.started_at), extract(epoch FROM stored.finished_at),"
        " stored.complete, stored.clean, stored.result"
    ),
    "decisions": decisions.CHECKSUMMED,
}
"""Table → the expressions of its checksum; none of them depends on a setting of the session."""


class ChecksumResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying the checksums of all rows."""

    rows: int
    changed: tuple[tuple[str, str], ...]
    """Table and description of each row that differs from what the tool wrote."""
    without: int
    """Rows without a checksum, which an older version wrote."""


def checksum_sql(table: str) -> sql.SQL:
    """Return the SQL of the checksum of the row ``stored``."""
    return sql.SQL("sha256(convert_to(jsonb_build_array({})::text, 'UTF8'))".replace("{}", _CHECKSUMMED[table]))


def write(target: Connection, table: str, condition: LiteralString, *values: object) -> None:
    """Write the checksum of the rows that a condition over ``stored`` selects."""
    target.execute(
        sql.SQL("UPDATE {} AS stored SET checksum = {} WHERE {}").format(
            sql.Identifier("migration", table), checksum_sql(table), sql.SQL(condition)
        ),
        values,
    )


def write_plan(target: Connection, plan: UUID) -> None:
    """Write the checksum of a plan."""
    write(target, "plans", "stored.id = %s", plan)


_ROWS: Final[dict[str, tuple[LiteralString, LiteralString]]] = {
    "plans": ("'plan of ' || to_char(stored.as_of AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')", "true"),
    "chunks": ("stored.collection || ' chunk ' || stored.ordinal", "stored.state = 'done'"),
    "parity_checks": (
        "'parity check of ' || to_char(stored.started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')",
        "stored.finished_at IS NOT NULL",
    ),
    "decisions": ("stored.kind || ' by ' || stored.who", "true"),
}


def verify_checksums(target: Connection) -> ChecksumResult:
    """Compute every checksum again; reads only."""
    total = without = 0
    changed: list[tuple[str, str]] = []
    for table, (description, condition) in _ROWS.items():
        rows = target.execute(
            sql.SQL(
                "SELECT {}, stored.checksum IS NULL, stored.checksum IS DISTINCT FROM {} FROM {} AS stored WHERE {}"
                " ORDER BY 1"
            ).format(sql.SQL(description), checksum_sql(table), sql.Identifier("migration", table), sql.SQL(condition))
        ).fetchall()
        total += len(rows)
        without += sum(row[1] for row in rows)
        changed += [(table, row[0]) for row in rows if row[2] and not row[1]]
    return ChecksumResult(rows=total, changed=tuple(changed), without=without)
