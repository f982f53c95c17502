"""Rename tables, columns and stored words of the ledger: one name for one thing."""

from typing import Final

from alembic import op

revision = "0017"
down_revision = "0013"
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
    FROM migration.notes AS note WHERE {condition})"""
_PLAN: Final = """stored.id, stored.profile, stored.profile_version, stored.tool_version, stored.config_digest,
    stored.source_identity, extract(epoch FROM stored.as_of), stored.state, stored.context,
    encode(stored.stream_position, 'hex'),
    (SELECT count(*) FROM migration.chunks AS chunk WHERE chunk.plan_id = stored.id)"""
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
        f"UPDATE migration.{table} AS stored SET checksum = {_checksum(columns, condition, changed)}"  # noqa: S608 - literals of this file
        f" WHERE checksum = {_checksum(columns, condition, 'note.class')};\n"
        for table, columns, condition in (("plans", _PLAN, _OF_PLAN), ("chunks", _CHUNK, _OF_CHUNK))
    )
    return f"""{checksums}
ALTER TABLE migration.notes DROP CONSTRAINT ck_notes_class;
UPDATE migration.notes SET class = '{new}' WHERE class = '{old}';
ALTER TABLE migration.notes ADD CONSTRAINT ck_notes_class
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
    return f"UPDATE migration.{table} SET {column} = {value} WHERE ({held}) ? '{old}';\n"  # noqa: S608 - literals of this file


def _change_word(place: str, old: str, new: str) -> str:
    table, column = place.split(".")
    return f"UPDATE migration.{table} SET {column} = '{new}' WHERE {column} = '{old}';\n"  # noqa: S608 - literals of this file


def _change_state(old: str, new: str) -> str:
    return f"""
ALTER TABLE migration.cutovers DROP CONSTRAINT ck_cutovers_state;
UPDATE migration.cutovers SET state = '{new}' WHERE state = '{old}';
ALTER TABLE migration.cutovers ADD CONSTRAINT ck_cutovers_state CHECK (
    state = ANY (ARRAY['running'::text, 'aborted'::text, '{new}'::text, 'rolled-back'::text, 'finished'::text])
);
"""  # noqa: S608 - literals of this file


RENAME = """
ALTER TABLE migration.comparisons RENAME TO parity_checks;
ALTER TABLE migration.parity_checks RENAME CONSTRAINT pk_comparisons TO pk_parity_checks;
ALTER TABLE migration.parity_checks RENAME CONSTRAINT fk_comparisons_plan_id TO fk_parity_checks_plan_id;
ALTER TABLE migration.touched RENAME TO pending_documents;
ALTER TABLE migration.pending_documents RENAME CONSTRAINT pk_touched TO pk_pending_documents;
ALTER TABLE migration.orphans RENAME TO dangling_references;
ALTER TABLE migration.dangling_references RENAME CONSTRAINT pk_orphans TO pk_dangling_references;
ALTER INDEX migration.ix_orphans_target RENAME TO ix_dangling_references_target;
ALTER TABLE migration.tail RENAME COLUMN derived_owed TO derived_pending;
"""

RENAME_BACK = """
ALTER TABLE migration.tail RENAME COLUMN derived_pending TO derived_owed;
ALTER INDEX migration.ix_dangling_references_target RENAME TO ix_orphans_target;
ALTER TABLE migration.dangling_references RENAME CONSTRAINT pk_dangling_references TO pk_orphans;
ALTER TABLE migration.dangling_references RENAME TO orphans;
ALTER TABLE migration.pending_documents RENAME CONSTRAINT pk_pending_documents TO pk_touched;
ALTER TABLE migration.pending_documents RENAME TO touched;
ALTER TABLE migration.parity_checks RENAME CONSTRAINT fk_parity_checks_plan_id TO fk_comparisons_plan_id;
ALTER TABLE migration.parity_checks RENAME CONSTRAINT pk_parity_checks TO pk_comparisons;
ALTER TABLE migration.parity_checks RENAME TO comparisons;
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
        WHERE contype = 'n' AND relnamespace = 'migration'::regnamespace
            AND conname <> stored.relname || '_' || attname || '_not_null'
    LOOP
        EXECUTE 'ALTER TABLE migration.' || quote_ident(one.relname) || ' RENAME CONSTRAINT '
            || quote_ident(one.conname) || ' TO ' || quote_ident(one.wanted);
    END LOOP;
END
$$;
"""

COMMENTS = """
COMMENT ON TABLE migration.plans IS
    'Plans of copies of a source. Unfinished chunks are resumed only under the same plan.';
COMMENT ON COLUMN migration.plans.profile_version IS 'version of the profile';
COMMENT ON COLUMN migration.plans.config_digest IS 'digest of the settings that decide the rows';
COMMENT ON COLUMN migration.plans.source_identity IS 'server and database of the source';
COMMENT ON COLUMN migration.plans.as_of IS 'instant by which leases and locks count as expired';
COMMENT ON COLUMN migration.plans.context IS 'input of decode besides the document';
COMMENT ON COLUMN migration.plans.checksum IS
    'SHA-256 over this row and the notes of its closing passes, as the tool wrote them; null: written by an'
    ' older version';
COMMENT ON TABLE migration.chunks IS
    'Key ranges of a copy. A chunk''s row is committed in the transaction of the rows that it loads.';
COMMENT ON COLUMN migration.chunks.plan_id IS 'plan';
COMMENT ON COLUMN migration.chunks.skipped IS 'documents that a rule of the profile excludes';
COMMENT ON COLUMN migration.chunks.quarantined IS 'documents in quarantine';
COMMENT ON COLUMN migration.chunks.rows IS 'table to rows that the documents make';
COMMENT ON COLUMN migration.chunks.digest IS 'digest of the documents read';
COMMENT ON COLUMN migration.chunks.finished_at IS 'when; written in the transaction of the rows';
COMMENT ON COLUMN migration.chunks.worker IS 'process that copied it';
COMMENT ON COLUMN migration.chunks.checksum IS
    'SHA-256 over this row and its notes, as the tool wrote them; null: pending, or of an older version';
COMMENT ON TABLE migration.quarantine IS
    'Documents that could not be converted, with their bytes; one row per document.';
COMMENT ON COLUMN migration.quarantine.plan_id IS 'plan';
COMMENT ON COLUMN migration.quarantine.profile_version IS 'version of the profile';
COMMENT ON COLUMN migration.quarantine.tenant_id IS 'tenant of the document; null if it could not be read';
COMMENT ON COLUMN migration.quarantine.expected IS 'what the profile accepts';
COMMENT ON COLUMN migration.quarantine.tool_version IS 'version that quarantined it';
COMMENT ON COLUMN migration.quarantine.resolved_at IS 'when it was loaded, or replaced';
COMMENT ON TABLE migration.notes IS
    'Counts of documents per chunk: findings, fields that went into the remainder, skipped documents.';
COMMENT ON COLUMN migration.notes.plan_id IS 'plan';
COMMENT ON COLUMN migration.notes.ordinal IS 'ordinal of the chunk; -1: a closing pass';
COMMENT ON COLUMN migration.notes.class IS 'finding, remainder or skip';
COMMENT ON COLUMN migration.notes.documents IS 'number of documents';
COMMENT ON TABLE migration.pending_links IS
    'References that were not resolved when their row was loaded; a closing pass resolves or drops them.';
COMMENT ON COLUMN migration.pending_links.resolved_extra IS 'remainder of the row after the reference is resolved';
COMMENT ON COLUMN migration.pending_links.target_source_id IS
    '_id of the document referred to, as text; null: the id alone decides';
COMMENT ON TABLE migration.deferred_ddl IS
    'Indexes and foreign keys that a first load has dropped, to be created again, also after a killed run.';
COMMENT ON COLUMN migration.deferred_ddl.plan_id IS 'plan';
COMMENT ON COLUMN migration.deferred_ddl.definition IS 'SQL that creates it again';
COMMENT ON TABLE migration.parity_checks IS 'Recorded parity checks of everything.';
COMMENT ON COLUMN migration.parity_checks.id IS 'of this parity check';
COMMENT ON COLUMN migration.parity_checks.plan_id IS 'plan';
COMMENT ON COLUMN migration.parity_checks.checksum IS
    'SHA-256 over this row, as the tool wrote it; null: written by an older version';
COMMENT ON TABLE migration.decisions IS 'Recorded decisions of people.';
COMMENT ON COLUMN migration.decisions.kind IS 'kind of the decision';
COMMENT ON TABLE migration.tail IS
    'Position of the tail. It is committed in the transaction of the rows that the tail writes.';
COMMENT ON COLUMN migration.tail.source_identity IS 'server and database of the source';
COMMENT ON COLUMN migration.tail.position IS 'resume token or cluster time, as BSON';
COMMENT ON COLUMN migration.tail.position_at IS 'cluster time up to which all events were read';
COMMENT ON COLUMN migration.tail.events IS 'events read';
COMMENT ON COLUMN migration.tail.documents IS 'documents read again';
COMMENT ON COLUMN migration.tail.rate IS 'events per second, averaged over the last batches';
COMMENT ON COLUMN migration.tail.derived_pending IS 'true: rows that are made from many documents must be made again';
COMMENT ON COLUMN migration.tail.alarm IS 'why rows may be wrong; null after a parity check with repair';
COMMENT ON TABLE migration.pending_documents IS
    'Documents that the tail must read again: changed during an unfinished copy, or named by a repair.';
COMMENT ON TABLE migration.dangling_references IS
    'Dangling references. A document is read again when the row to which it refers is stored.';
COMMENT ON COLUMN migration.dangling_references.target_id IS 'row referred to, which is not stored';
COMMENT ON TABLE migration.cutovers IS 'Cutovers from MongoDB to PostgreSQL, with the state of each.';
COMMENT ON COLUMN migration.cutovers.environment IS 'name of the installation, from the configuration';
COMMENT ON COLUMN migration.cutovers.state IS 'running, aborted, cut-over, rolled-back or finished';
COMMENT ON COLUMN migration.cutovers.config_path IS 'configuration file that the cutover changes';
COMMENT ON COLUMN migration.cutovers.backup_path IS 'copy of the file before the change';
COMMENT ON COLUMN migration.cutovers.ended_at IS 'when the state was written last';
COMMENT ON COLUMN migration.cutovers.fence IS 'kind of the fence, and the roles that it revoked';
COMMENT ON COLUMN migration.cutovers.detail IS 'epoch, position, write pause, counts, metrics';
COMMENT ON TABLE migration.cutover_steps IS
    'Journal of a cutover. The next call repeats a step that is running, and skips one that is done.';
COMMENT ON COLUMN migration.cutover_steps.cutover_id IS 'cutover';
COMMENT ON COLUMN migration.cutover_steps.ordinal IS 'order in which the steps began';
COMMENT ON COLUMN migration.cutover_steps.detail IS 'result of the step';
COMMENT ON TABLE migration.outbox IS
    'Rows written since the cutover that the reverse sync has not yet carried to MongoDB.';
COMMENT ON COLUMN migration.outbox.source IS 'source of the row; null: the row was created on PostgreSQL';
COMMENT ON COLUMN migration.outbox.source_id IS '_id of its document as text; null: the row was created on PostgreSQL';
COMMENT ON COLUMN migration.outbox.at IS 'when the row was inserted, updated or deleted';
"""

COMMENTS_BEFORE = """
COMMENT ON TABLE migration.plans IS
    'A copy of a source, as planned; unfinished chunks are resumed only under the same plan.';
COMMENT ON COLUMN migration.plans.profile_version IS 'its version';
COMMENT ON COLUMN migration.plans.config_digest IS 'of the settings that bear on the result';
COMMENT ON COLUMN migration.plans.source_identity IS 'which server and database';
COMMENT ON COLUMN migration.plans.as_of IS 'instant at which liveness is judged';
COMMENT ON COLUMN migration.plans.context IS 'what decode may know besides the document';
COMMENT ON COLUMN migration.plans.checksum IS
    'SHA-256 over this row and the notes of its closing passes, as the tool wrote them; null: an older version did';
COMMENT ON TABLE migration.chunks IS
    'Ranges of _id. A chunk''s row commits in the transaction of the rows it loaded: the resume guarantee.';
COMMENT ON COLUMN migration.chunks.plan_id IS 'of which plan';
COMMENT ON COLUMN migration.chunks.skipped IS 'left behind by a stated rule';
COMMENT ON COLUMN migration.chunks.quarantined IS 'set aside';
COMMENT ON COLUMN migration.chunks.rows IS 'table to rows made';
COMMENT ON COLUMN migration.chunks.digest IS 'of what was read';
COMMENT ON COLUMN migration.chunks.finished_at IS 'when: the commit that also holds the rows';
COMMENT ON COLUMN migration.chunks.worker IS 'which process';
COMMENT ON COLUMN migration.chunks.checksum IS
    'SHA-256 over this row and its notes, as the tool wrote them; null: not done, or an older version did';
COMMENT ON TABLE migration.quarantine IS
    'Documents set aside, with their bytes, so that they can be tried again; one row per document.';
COMMENT ON COLUMN migration.quarantine.plan_id IS 'of which plan';
COMMENT ON COLUMN migration.quarantine.profile_version IS 'its version';
COMMENT ON COLUMN migration.quarantine.tenant_id IS 'tenant, where one could be read';
COMMENT ON COLUMN migration.quarantine.expected IS 'what would have been accepted';
COMMENT ON COLUMN migration.quarantine.tool_version IS 'version that set it aside';
COMMENT ON COLUMN migration.quarantine.resolved_at IS 'when it was loaded after all, or replaced';
COMMENT ON TABLE migration.notes IS
    'What was noted about documents, counted per chunk: findings, residue (the loss ledger), skips.';
COMMENT ON COLUMN migration.notes.plan_id IS 'of which plan';
COMMENT ON COLUMN migration.notes.ordinal IS 'of which chunk; -1: a closing pass';
COMMENT ON COLUMN migration.notes.class IS 'finding, residue or skip';
COMMENT ON COLUMN migration.notes.documents IS 'how many';
COMMENT ON TABLE migration.pending_links IS
    'References that could not be resolved when their row was loaded; a closing pass fills or drops them.';
COMMENT ON COLUMN migration.pending_links.resolved_extra IS 'residue of the row once the reference is resolved';
COMMENT ON COLUMN migration.pending_links.target_source_id IS
    'the _id of the document referred to, as text; null: the id alone decides';
COMMENT ON TABLE migration.deferred_ddl IS
    'Indexes and foreign keys taken away for a first load, so that a killed run puts them back.';
COMMENT ON COLUMN migration.deferred_ddl.plan_id IS 'of which plan';
COMMENT ON COLUMN migration.deferred_ddl.definition IS 'SQL that makes it again';
COMMENT ON TABLE migration.comparisons IS 'Comparisons of source and target.';
COMMENT ON COLUMN migration.comparisons.id IS 'of this comparison';
COMMENT ON COLUMN migration.comparisons.plan_id IS 'of which plan';
COMMENT ON COLUMN migration.comparisons.checksum IS
    'SHA-256 over this row, as the tool wrote it; null: an older version did';
COMMENT ON TABLE migration.decisions IS 'Decisions of people, on record.';
COMMENT ON COLUMN migration.decisions.kind IS 'what was decided';
COMMENT ON TABLE migration.tail IS
    'Where the tail stands. Its position commits in the transaction of the rows: the resume guarantee.';
COMMENT ON COLUMN migration.tail.source_identity IS 'which server and database';
COMMENT ON COLUMN migration.tail.position IS 'how the change stream is opened again, as BSON';
COMMENT ON COLUMN migration.tail.position_at IS 'cluster time up to which everything was seen';
COMMENT ON COLUMN migration.tail.events IS 'events seen';
COMMENT ON COLUMN migration.tail.documents IS 'documents read again and brought up to date';
COMMENT ON COLUMN migration.tail.rate IS 'events per second, lately';
COMMENT ON COLUMN migration.tail.derived_owed IS 'rows that many documents make together are to be made again';
COMMENT ON COLUMN migration.tail.alarm IS 'what is wrong, until a comparison with repair has settled it';
COMMENT ON TABLE migration.touched IS
    'Documents to read again: touched while a copy was unfinished, or named by a repair.';
COMMENT ON TABLE migration.orphans IS
    'References to nothing, so that a document is read again when the row it refers to is stored.';
COMMENT ON COLUMN migration.orphans.target_id IS 'row referred to, which was not stored';
COMMENT ON TABLE migration.cutovers IS 'Switches from MongoDB to PostgreSQL, and how each ended.';
COMMENT ON COLUMN migration.cutovers.environment IS 'which installation, as the operator names it';
COMMENT ON COLUMN migration.cutovers.state IS 'running, aborted, switched, rolled-back or finished';
COMMENT ON COLUMN migration.cutovers.config_path IS 'configuration file that is switched';
COMMENT ON COLUMN migration.cutovers.backup_path IS 'its text before';
COMMENT ON COLUMN migration.cutovers.ended_at IS 'when it was aborted, switched, taken back or finished last';
COMMENT ON COLUMN migration.cutovers.fence IS 'kind of the fence, and what it has taken away';
COMMENT ON COLUMN migration.cutovers.detail IS 'epoch, position, pause, counts';
COMMENT ON TABLE migration.cutover_steps IS
    'The journal of a cutover: a step that is running is done again, one that is done is not.';
COMMENT ON COLUMN migration.cutover_steps.cutover_id IS 'of which cutover';
COMMENT ON COLUMN migration.cutover_steps.ordinal IS 'in order of their beginning';
COMMENT ON COLUMN migration.cutover_steps.detail IS 'what it found and did';
COMMENT ON TABLE migration.outbox IS
    'Rows written since the switch that MongoDB does not have yet; the reverse stream empties it.';
COMMENT ON COLUMN migration.outbox.source IS 'whose document the row is; null: born here';
COMMENT ON COLUMN migration.outbox.source_id IS 'its _id as text; null: born here';
COMMENT ON COLUMN migration.outbox.at IS 'when it was written, removed or changed';
"""


def upgrade() -> None:
    """Rename the tables, and change the words in the rows."""
    statements = [RENAME, RENAME_NOT_NULL, _change_class("residue", "remainder"), _change_state("switched", "cut-over")]
    statements += [_change_word("cutover_steps.step", old, new) for old, new in _STEPS.items()]
    statements += [_change_word("decisions.kind", old, new) for old, new in _DECISIONS.items()]
    statements += [_change_member("cutovers.detail", old, new) for old, new in _DETAIL.items()]
    members, old, new = _METRICS
    statements += [_change_member("cutovers.detail", old, new, within=one) for one in members]
    statements.append(_change_member("cutovers.fence", "taken", "revoked"))
    statements.append(_change_member("cutover_steps.detail", "left_out", "skipped"))
    op.get_bind().exec_driver_sql("".join([*statements, COMMENTS]))


def downgrade() -> None:
    """Give the tables their names, and the rows their words, of before."""
    members, old, new = _METRICS
    statements = [_change_member("cutover_steps.detail", "skipped", "left_out")]
    statements.append(_change_member("cutovers.fence", "revoked", "taken"))
    statements += [_change_member("cutovers.detail", new, old, within=one) for one in members]
    statements += [_change_member("cutovers.detail", new, old) for old, new in _DETAIL.items()]
    statements += [_change_word("decisions.kind", new, old) for old, new in _DECISIONS.items()]
    statements += [_change_word("cutover_steps.step", new, old) for old, new in _STEPS.items()]
    statements += [_change_state("cut-over", "switched"), _change_class("remainder", "residue"), RENAME_BACK]
    statements.append(RENAME_NOT_NULL)
    op.get_bind().exec_driver_sql("".join([*statements, COMMENTS_BEFORE]))
