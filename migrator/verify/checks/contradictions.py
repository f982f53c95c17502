"""What the tool's own tables cannot hold at once: each a statement that returns the rows that contradict others.

A checksum shows a row that was changed; these show a row that was added, or removed, or whose table has no checksums.
"""

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from migrator.connections.postgres import Connection
from migrator.cutover.library_tables import NOTE_TRIGGER
from migrator.cutover.outbox import TRACKED_RECORDS, TRIGGER
from migrator.store.epoch import BACKEND, KEY


class Contradiction(msgspec.Struct, frozen=True, kw_only=True):
    """What rows of one table must never say."""

    table: str
    """Of the schema ``migration``."""
    title: str
    statement: LiteralString
    """Returns the text that names each row that says it; the first column."""
    fix: str = "find out who wrote it; compare with a backup of the database"
    of_scheduler: bool = False
    """Whether it looks into the schema ``scheduler``, which does not exist beside the tables of a library."""


_NEWEST: Final = "(SELECT id FROM migration.plans ORDER BY created_at DESC, id LIMIT 1)"
_OPEN: Final = f"EXISTS (SELECT FROM pg_trigger WHERE tgname IN ('{TRIGGER}', '{NOTE_TRIGGER}'))"
_TRACKED: Final = ", ".join(f"'{record.table}'" for record in TRACKED_RECORDS)

# ruff: noqa: S608 - statements are put together from texts of this module

CONTRADICTIONS: Final[tuple[Contradiction, ...]] = (
    Contradiction(
        table="plans",
        title="a plan that is complete, and has chunks that were not copied",
        statement="SELECT id::text FROM migration.plans AS plan WHERE state = 'complete' AND EXISTS (SELECT FROM"
        " migration.chunks AS chunk WHERE chunk.plan_id = plan.id AND chunk.state = 'pending')",
        fix="call migrator backfill, which copies them",
    ),
    Contradiction(
        table="chunks",
        title="a chunk that is done without a time, or pending with one",
        statement="SELECT collection || ' chunk ' || ordinal FROM migration.chunks"
        " WHERE (state = 'done') <> (finished_at IS NOT NULL) OR finished_at < started_at",
    ),
    Contradiction(
        table="notes",
        title="a note of a chunk that does not exist, or of no document",
        statement="SELECT concat_ws(' ', collection, 'chunk', ordinal, kind, path) FROM migration.notes AS note"
        " WHERE documents <= 0 OR ordinal <> -1 AND NOT EXISTS (SELECT FROM migration.chunks AS chunk WHERE"
        " (chunk.plan_id, chunk.collection, chunk.ordinal) = (note.plan_id, note.collection, note.ordinal))",
    ),
    Contradiction(
        table="quarantine",
        title="an entry whose key is not that of its document",
        statement="SELECT collection || ' ' || source_id FROM migration.quarantine"
        " WHERE source_key <> sha256(convert_to(source_id, 'UTF8'))",
    ),
    Contradiction(
        table="quarantine",
        title="an open entry with a time at which it was closed, or a closed one without",
        statement="SELECT collection || ' ' || source_id FROM migration.quarantine"
        " WHERE (state = 'open') <> (resolved_at IS NULL)",
    ),
    Contradiction(
        table="quarantine",
        title="an entry of another source than that of the copy",
        statement=f"SELECT collection || ' ' || source_id FROM migration.quarantine WHERE EXISTS {_NEWEST}"
        f" AND profile <> (SELECT profile FROM migration.plans WHERE id = {_NEWEST})",
    ),
    Contradiction(
        table="pending_links",
        title="a reference that waits for a closing pass after the copy is complete",
        statement="SELECT record_table || ' ' || row_id FROM migration.pending_links WHERE EXISTS (SELECT FROM"
        f" migration.plans WHERE id = {_NEWEST} AND state = 'complete')",
        fix="call migrator backfill, whose closing passes resolve it or drop it",
    ),
    Contradiction(
        table="deferred_ddl",
        title="an index or foreign key of a table that does not exist, or that was restored before it was dropped",
        statement="SELECT target_table || ' ' || name FROM migration.deferred_ddl"
        " WHERE to_regclass('scheduler.' || quote_ident(target_table)) IS NULL OR restored_at < dropped_at",
        of_scheduler=True,
    ),
    Contradiction(
        table="tail",
        title="a position of another source than that of the copy",
        statement=f"SELECT tail.profile FROM migration.tail JOIN migration.plans AS plan ON plan.id = {_NEWEST}"
        " WHERE (tail.profile, tail.source_identity) <> (plan.profile, plan.source_identity)",
    ),
    Contradiction(
        table="tail",
        title="a tail whose times or counters cannot be",
        statement="SELECT profile FROM migration.tail WHERE last_event_at > position_at + interval '1 minute'"
        " OR events < 0 OR documents < 0 OR written < 0 OR removed < 0 OR rate < 0 OR rate = 'NaN'"
        " OR (alarm IS NULL) <> (alarm_at IS NULL) OR position_at > clock_timestamp() + interval '1 day'",
    ),
    Contradiction(
        table="dangling_references",
        title="a dangling reference whose key is not that of its document",
        statement="SELECT collection || ' ' || source_id FROM migration.dangling_references"
        " WHERE source_key <> sha256(convert_to(source_id, 'UTF8'))",
    ),
    Contradiction(
        table="dangling_references",
        title="a dangling reference to a table that does not exist",
        statement="SELECT collection || ' ' || source_id FROM migration.dangling_references"
        " WHERE to_regclass('scheduler.' || quote_ident(target_table)) IS NULL",
        of_scheduler=True,
    ),
    Contradiction(
        table="pending_documents",
        title="a document to be read again whose key is not its own",
        statement="SELECT collection || ' ' || source_id FROM migration.pending_documents"
        " WHERE source_key <> sha256(convert_to(source_id, 'UTF8'))",
    ),
    Contradiction(
        table="decisions",
        title="a decision of nobody, or of nothing",
        statement="SELECT id::text FROM migration.decisions WHERE who = '' OR kind = ''",
    ),
    Contradiction(
        table="cutovers",
        title="a cutover after which PostgreSQL has the data, and the row */persistence does not say so",
        statement="SELECT id::text FROM migration.cutovers AS cutover WHERE state IN ('cut-over', 'finished')"
        " AND NOT EXISTS (SELECT FROM migration.cutovers AS later WHERE later.began_at > cutover.began_at)"
        " AND NOT EXISTS (SELECT FROM migration.cutover_steps WHERE cutover_id = cutover.id"
        " AND starts_with(step, 'rollback-'))"  # which moves the data back before it ends the journal
        f" AND NOT EXISTS (SELECT FROM scheduler.locks WHERE key = '{KEY}' AND metadata ->> '{BACKEND}' = 'postgres')",
        of_scheduler=True,
    ),
    Contradiction(
        table="cutovers",
        title="two cutovers at one time, or one that ended before it began",
        statement="SELECT id::text FROM migration.cutovers AS cutover WHERE ended_at < began_at"
        " OR state IN ('running', 'cut-over') AND EXISTS (SELECT FROM migration.cutovers AS later"
        " WHERE later.began_at > cutover.began_at)",
    ),
    Contradiction(
        table="cutover_steps",
        title="a step that is done without a time, or ended before it began, or shares its place",
        statement="SELECT step FROM migration.cutover_steps AS one WHERE (state = 'running') <> (ended_at IS NULL)"
        " OR ended_at < began_at OR EXISTS (SELECT FROM migration.cutover_steps AS other"
        " WHERE other.cutover_id = one.cutover_id AND other.ordinal = one.ordinal AND other.step <> one.step)",
    ),
    Contradiction(
        table="outbox",
        title="a note of the outbox while it is not open",
        statement=f"SELECT table_name || ' ' || row_id FROM migration.outbox WHERE NOT {_OPEN}",
    ),
    Contradiction(
        table="outbox",
        title="a note of the outbox of a table that is not carried",
        statement=f"SELECT table_name || ' ' || row_id FROM migration.outbox WHERE table_name NOT IN ({_TRACKED})",
        of_scheduler=True,
    ),
    Contradiction(
        table="control",
        title="a limit that is no number, or below zero",
        statement="SELECT name FROM migration.control WHERE value < 0 OR value = 'NaN' OR value = 'Infinity'",
        fix="call migrator control set with a number for this limit, or migrator control clear",
    ),
    Contradiction(
        table="parity_checks",
        title="a parity check that is complete without an end, or ended before it began",
        statement="SELECT id::text FROM migration.parity_checks"
        " WHERE complete AND finished_at IS NULL OR finished_at < started_at",
    ),
)


def contradictions(target: Connection, *, is_native: bool = False) -> Sequence[tuple[Contradiction, str]]:
    """Return each row that contradicts others, with what it contradicts; ``is_native``: the target is of a library."""
    return [
        (one, str(row[0]))
        for one in CONTRADICTIONS
        if not (is_native and one.of_scheduler)
        for row in target.execute(one.statement + " ORDER BY 1")
    ]
