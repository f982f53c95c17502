"""Rename tables, columns and stored words of the ledger: one name for one thing."""

from typing import Final

from alembic import op

revision = "0012"
down_revision = "0010"
branch_labels = None
depends_on = None

TABLES = ()
"""Makes no table."""
RENAMES = {
    "comparisons": "parity_checks",
    "touched": "pending_documents",
    "orphans": "dangling_references",
}
"""Renamed by this revision, the name before to the name after."""

# The checksum of a plan and of a chunk is over its notes, whose class changes. A row whose checksum is right gets the
# checksum of the new words, in the statement that reads the old ones. A row that was changed by hand keeps a wrong one.
_NOTES: Final = """(SELECT jsonb_agg(
        jsonb_build_array(note.collection, {word}, note.kind, note.path, note.documents) ORDER BY
        note.collection COLLATE "C", note.class COLLATE "C", note.kind COLLATE "C", note.path COLLATE "C")
    FROM notes AS note WHERE {condition})"""
_PLAN: Final = """stored.id, stored.profile, stored.profile_version, stored.tool_version, stored.config_digest,
    stored.source_identity, extract(epoch FROM stored.as_of), stored.state, stored.context,
    encode(stored.stream_position, 'hex'),
    (SELECT count(*) FROM chunks AS chunk WHERE chunk.plan_id = stored.id)"""
_CHUNK: Final = """stored.plan_id, stored.collection, stored.ordinal, encode(stored.min_id, 'hex'),
    encode(stored.max_id, 'hex'), stored.state, stored.documents, stored.skipped, stored.quarantined, stored.bytes,
    stored.rows, stored.written, encode(stored.digest, 'hex')"""
_OF_PLAN: Final = "note.plan_id = stored.id AND note.ordinal = -1"
_OF_CHUNK: Final = "(note.plan_id, note.collection, note.ordinal) = (stored.plan_id, stored.collection, stored.ordinal)"


def _checksum(columns: str, condition: str, word: str) -> str:
    notes = _NOTES.format(word=word, condition=condition)
    return f"sha256(convert_to(jsonb_build_array({columns}, {notes})::text, 'UTF8'))"


def _change_class(old: str, new: str) -> str:
    """Return the statements that change a class of the notes, and the checksums over it."""
    changed = f"CASE note.class WHEN '{old}' THEN '{new}' ELSE note.class END"
    checksums = "".join(
        f"UPDATE {table} AS stored SET checksum = {_checksum(columns, condition, changed)}"  # noqa: S608 - literals of this file
        f" WHERE checksum = {_checksum(columns, condition, 'note.class')};\n"
        for table, columns, condition in (("plans", _PLAN, _OF_PLAN), ("chunks", _CHUNK, _OF_CHUNK))
    )
    return f"""{checksums}
ALTER TABLE notes DROP CONSTRAINT ck_notes_class;
UPDATE notes SET class = '{new}' WHERE class = '{old}';
ALTER TABLE notes ADD CONSTRAINT ck_notes_class
    CHECK (class = ANY (ARRAY['finding'::text, '{new}'::text, 'skip'::text]));
"""  # noqa: S608 - literals of this file


_STEPS: Final = {
    "switch": "open-target",
    "reverse": "reverse-sync",
    "back-fence": "rollback-fence",
    "back-drain": "rollback-drain",
    "back-check": "rollback-check",
    "back-switch": "rollback-open-source",
    "back-close": "rollback-close",
    "back-export": "rollback-export",
    "back-restore": "rollback-restore",
    "back-downgrade": "rollback-downgrade",
}
_DECISIONS: Final = {
    "switch to postgres": "cutover to postgres",
    "window closed early": "rollback window closed early",
    "parallel operation": "parallel run begun",
    "parallel operation ended": "parallel run ended",
}
_DETAIL: Final = {
    "figures_before": "metrics_before",
    "figures_switch": "metrics_at_cutover",
    "reverse_stopped": "reverse_sync_stopped",
    "unstated": "gaps",
}
"""Members of ``cutovers.detail``."""
_METRICS: Final = (("metrics_before", "metrics_at_cutover"), "figures", "metrics")
"""Members of ``cutovers.detail``, and the member that they hold, before and after."""


def _change_member(place: str, old: str, new: str, *, within: str = "") -> str:
    """Return the statement that renames a member of a jsonb column, or of a member ``within`` it."""
    table, column = place.split(".")
    held = f"{column} -> '{within}'" if within else column
    renamed = f"({held}) - '{old}' || jsonb_build_object('{new}', {held} -> '{old}')"
    value = f"jsonb_set({column}, '{{{within}}}', {renamed})" if within else renamed
    return f"UPDATE {table} SET {column} = {value} WHERE ({held}) ? '{old}';\n"  # noqa: S608 - literals of this file


def _change_word(place: str, old: str, new: str) -> str:
    table, column = place.split(".")
    return f"UPDATE {table} SET {column} = '{new}' WHERE {column} = '{old}';\n"  # noqa: S608 - literals of this file


def _change_decision(old: str, new: str) -> str:
    """Return the statement that changes the kind of a decision, and its checksum, if that is right."""
    rest = "stored.who, stored.reason, extract(epoch FROM stored.at), stored.tool_version, stored.detail"
    was, becomes = (
        f"sha256(convert_to(jsonb_build_array(stored.id, {kind}, {rest})::text, 'UTF8'))"
        for kind in ("stored.kind", f"'{new}'::text")
    )
    return f"""
UPDATE decisions AS stored SET kind = '{new}', checksum = CASE WHEN checksum = {was} THEN {becomes} ELSE checksum END
WHERE kind = '{old}';
"""  # noqa: S608 - literals of this file


def _change_state(old: str, new: str) -> str:
    return f"""
ALTER TABLE cutovers DROP CONSTRAINT ck_cutovers_state;
UPDATE cutovers SET state = '{new}' WHERE state = '{old}';
ALTER TABLE cutovers ADD CONSTRAINT ck_cutovers_state CHECK (
    state = ANY (ARRAY['running'::text, 'aborted'::text, '{new}'::text, 'rolled-back'::text, 'finished'::text])
);
"""  # noqa: S608 - literals of this file


RENAME = """
ALTER TABLE comparisons RENAME TO parity_checks;
ALTER TABLE parity_checks RENAME CONSTRAINT pk_comparisons TO pk_parity_checks;
ALTER TABLE parity_checks RENAME CONSTRAINT fk_comparisons_plan_id TO fk_parity_checks_plan_id;
ALTER TABLE touched RENAME TO pending_documents;
ALTER TABLE pending_documents RENAME CONSTRAINT pk_touched TO pk_pending_documents;
ALTER TABLE orphans RENAME TO dangling_references;
ALTER TABLE dangling_references RENAME CONSTRAINT pk_orphans TO pk_dangling_references;
ALTER INDEX ix_orphans_target RENAME TO ix_dangling_references_target;
ALTER TABLE tail RENAME COLUMN derived_owed TO derived_pending;
"""

RENAME_BACK = """
ALTER TABLE tail RENAME COLUMN derived_pending TO derived_owed;
ALTER INDEX ix_dangling_references_target RENAME TO ix_orphans_target;
ALTER TABLE dangling_references RENAME CONSTRAINT pk_dangling_references TO pk_orphans;
ALTER TABLE dangling_references RENAME TO orphans;
ALTER TABLE pending_documents RENAME CONSTRAINT pk_pending_documents TO pk_touched;
ALTER TABLE pending_documents RENAME TO touched;
ALTER TABLE parity_checks RENAME CONSTRAINT fk_parity_checks_plan_id TO fk_comparisons_plan_id;
ALTER TABLE parity_checks RENAME CONSTRAINT pk_parity_checks TO pk_comparisons;
ALTER TABLE parity_checks RENAME TO comparisons;
"""

# PostgreSQL 18 gives a NOT NULL a name, with those of table and column in it; a renamed table keeps it.
RENAME_NOT_NULL = """
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT stored.relname, conname, stored.relname || '_' || attname || '_not_null' AS wanted
        FROM pg_constraint JOIN pg_class AS stored ON stored.oid = conrelid
        JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
        WHERE contype = 'n' AND relnamespace = current_schema()::regnamespace
            AND conname <> stored.relname || '_' || attname || '_not_null'
    LOOP
        EXECUTE 'ALTER TABLE ' || quote_ident(one.relname) || ' RENAME CONSTRAINT '
            || quote_ident(one.conname) || ' TO ' || quote_ident(one.wanted);
    END LOOP;
END
$$;
"""


def upgrade() -> None:
    """Rename the tables, and change the words in the rows."""
    statements = [RENAME, RENAME_NOT_NULL, _change_class("residue", "remainder"), _change_state("switched", "cut-over")]
    statements += [_change_word("cutover_steps.step", old, new) for old, new in _STEPS.items()]
    statements += [_change_decision(old, new) for old, new in _DECISIONS.items()]
    statements += [_change_member("cutovers.detail", old, new) for old, new in _DETAIL.items()]
    members, old, new = _METRICS
    statements += [_change_member("cutovers.detail", old, new, within=one) for one in members]
    statements.append(_change_member("cutovers.fence", "taken", "revoked"))
    statements.append(_change_member("cutover_steps.detail", "left_out", "skipped"))
    op.get_bind().exec_driver_sql("".join(statements))


def downgrade() -> None:
    """Give the tables their names, and the rows their words, of before."""
    members, old, new = _METRICS
    statements = [_change_member("cutover_steps.detail", "skipped", "left_out")]
    statements.append(_change_member("cutovers.fence", "revoked", "taken"))
    statements += [_change_member("cutovers.detail", new, old, within=one) for one in members]
    statements += [_change_member("cutovers.detail", new, old) for old, new in _DETAIL.items()]
    statements += [_change_decision(new, old) for old, new in _DECISIONS.items()]
    statements += [_change_word("cutover_steps.step", new, old) for old, new in _STEPS.items()]
    statements += [_change_state("cut-over", "switched"), _change_class("remainder", "residue"), RENAME_BACK]
    statements.append(RENAME_NOT_NULL)
    op.get_bind().exec_driver_sql("".join(statements))
