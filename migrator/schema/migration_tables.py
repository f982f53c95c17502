"""The tool's own tables, in the schema ``migration``: ledger, quarantine, tail, cutover journal, outbox.

No application needs them: the schema is dropped after the sign-off.
"""

from sqlalchemy import BigInteger, Column, Identity, Index, MetaData, PrimaryKeyConstraint, Table

from migrator.schema.columns import AnyColumn, big, flag, integer, jsonb, octets, one_of, real, text, time, uuid


def _declare_ledger(metadata: MetaData) -> None:
    """Add the tables to ``metadata``."""
    _plans(metadata)
    _chunks(metadata)
    _quarantine(metadata)
    _notes(metadata)
    _pending_links(metadata)
    _deferred_ddl(metadata)
    _tool_runs(metadata)
    _parity_checks(metadata)
    _decisions(metadata)


def _serial() -> AnyColumn:
    return Column("id", BigInteger(), Identity(always=False), nullable=False, comment="in order of arrival")


def _plan(table: str, *, null: bool, ondelete: str) -> AnyColumn:
    foreign_key = (f"fk_{table}_plan_id", "migration.plans.id", ondelete)
    return uuid("plan_id", "plan", null=null, refers=foreign_key)


def _plans(metadata: MetaData) -> None:
    Table(
        "plans",
        metadata,
        uuid("id", "of this plan", null=False),
        text("profile", "source profile", null=False),
        integer("profile_version", "version of the profile", null=False),
        text("tool_version", "version that made the plan", null=False),
        text("config_digest", "digest of the settings that decide the rows", null=False),
        text("source_identity", "server and database of the source", null=False),
        time("as_of", "instant by which leases and locks count as expired", null=False),
        time("created_at", "when", null=False, default="now()"),
        text("state", "open, complete or abandoned", null=False),
        jsonb("context", "input of decode besides the document", null=False, default="'{}'::jsonb"),
        octets("stream_position", "resume token of the change stream, taken before the copy"),
        octets(
            "checksum",
            "SHA-256 over this row and the notes of its closing passes, as the tool wrote them; null: written by an"
            " older version",
        ),
        PrimaryKeyConstraint("id", name="pk_plans"),
        one_of("plans", "state", ("open", "complete", "abandoned")),
        comment="Plans of copies of a source. Unfinished chunks are resumed only under the same plan.",
    )


def _chunks(metadata: MetaData) -> None:
    Table(
        "chunks",
        metadata,
        _plan("chunks", null=False, ondelete="CASCADE"),
        text("collection", "MongoDB collection", null=False),
        integer("ordinal", "position in the collection", null=False),
        octets("min_id", "lower bound of _id, inclusive, as BSON; null: the beginning"),
        octets("max_id", "upper bound of _id, exclusive, as BSON; null: the end"),
        big("estimated", "documents expected", null=False, default="0"),
        real("average_bytes", "size of a document, as estimated", null=False, default="0"),
        text("state", "pending or done", null=False),
        text("mode", "direct into an empty range, or merge"),
        big("documents", "documents read", null=False, default="0"),
        big("skipped", "documents that a rule of the profile excludes", null=False, default="0"),
        big("quarantined", "documents in quarantine", null=False, default="0"),
        big("bytes", "BSON bytes read", null=False, default="0"),
        jsonb("rows", "table to rows that the documents make"),
        jsonb("written", "table to rows inserted or changed"),
        octets("digest", "digest of the documents read"),
        time("started_at", "when"),
        time("finished_at", "when; written in the transaction of the rows"),
        text("worker", "process that copied it"),
        octets(
            "checksum",
            "SHA-256 over this row and its notes, as the tool wrote them; null: pending, or of an older version",
        ),
        PrimaryKeyConstraint("plan_id", "collection", "ordinal", name="pk_chunks"),
        one_of("chunks", "state", ("pending", "done")),
        one_of("chunks", "mode", ("direct", "merge")),
        comment="Key ranges of a copy. A chunk's row is committed in the transaction of the rows that it loads.",
    )


def _quarantine(metadata: MetaData) -> None:
    Table(
        "quarantine",
        metadata,
        _serial(),
        _plan("quarantine", null=True, ondelete="SET NULL"),
        text("profile", "source profile that read it", null=False),
        integer("profile_version", "version of the profile", null=False),
        text("collection", "MongoDB collection", null=False),
        text("source_id", "the document's _id as text", null=False),
        octets("source_key", "SHA-256 of source_id: unique where source_id is too long to index", null=False),
        text("tenant_id", "tenant of the document; null if it could not be read"),
        text("reason", "short stable code", null=False),
        text("path", "field path; empty: the whole document", null=False),
        text("expected", "what the profile accepts", null=False),
        octets("raw", "the document's bytes", null=False),
        text("tool_version", "version that quarantined it", null=False),
        text("state", "open, resolved or superseded", null=False),
        time("created_at", "when", null=False, default="now()"),
        time("resolved_at", "when it was loaded, or replaced"),
        PrimaryKeyConstraint("id", name="pk_quarantine"),
        one_of("quarantine", "state", ("open", "resolved", "superseded")),
        Index("uq_quarantine_document", "profile", "collection", "source_key", unique=True),
        comment="Documents that could not be converted, with their bytes; one row per document.",
    )


def _notes(metadata: MetaData) -> None:
    Table(
        "notes",
        metadata,
        _plan("notes", null=False, ondelete="CASCADE"),
        text("collection", "MongoDB collection", null=False),
        integer("ordinal", "ordinal of the chunk; -1: a closing pass", null=False),
        text("class", "finding, remainder or skip", null=False),
        text("kind", "short stable code", null=False),
        text("path", "field path; empty: the whole document", null=False),
        big("documents", "number of documents", null=False),
        PrimaryKeyConstraint("plan_id", "collection", "ordinal", "class", "kind", "path", name="pk_notes"),
        one_of("notes", "class", ("finding", "remainder", "skip")),
        comment="Counts of documents per chunk: findings, fields that went into the remainder, skipped documents.",
    )


def _pending_links(metadata: MetaData) -> None:
    Table(
        "pending_links",
        metadata,
        text("collection", "MongoDB collection of the document that refers", null=False),
        text("record_table", "table of the row that refers", null=False),
        uuid("row_id", "the row that refers", null=False),
        text("column_name", "its column", null=False),
        text("target_table", "table referred to", null=False),
        uuid("target_id", "row referred to", null=False),
        jsonb("resolved_extra", "remainder of the row after the reference is resolved"),
        text("tenant_id", "tenant of the row that refers, and of the row referred to", null=False),
        text("target_source", "profile and collection of the document referred to; null: the id alone decides"),
        text("target_source_id", "_id of the document referred to, as text; null: the id alone decides"),
        PrimaryKeyConstraint("record_table", "row_id", "tenant_id", "column_name", name="pk_pending_links"),
        comment="References that were not resolved when their row was loaded; a closing pass resolves or drops them.",
    )


def _deferred_ddl(metadata: MetaData) -> None:
    Table(
        "deferred_ddl",
        metadata,
        _serial(),
        _plan("deferred_ddl", null=True, ondelete="SET NULL"),
        text("target_table", "table of the schema scheduler", null=False),
        text("kind", "index or constraint", null=False),
        text("name", "its name", null=False),
        text("definition", "SQL that creates it again", null=False),
        time("dropped_at", "when", null=False, default="now()"),
        time("restored_at", "when; null: still missing"),
        PrimaryKeyConstraint("id", name="pk_deferred_ddl"),
        one_of("deferred_ddl", "kind", ("index", "constraint")),
        comment="Indexes and foreign keys that a first load has dropped, to be created again, also after a killed run.",
    )


def _tool_runs(metadata: MetaData) -> None:
    Table(
        "tool_runs",
        metadata,
        uuid("id", "of this call", null=False),
        text("command", "which command", null=False),
        time("started_at", "when", null=False, default="now()"),
        time("finished_at", "when; null: running or killed"),
        integer("exit_status", "bit mask"),
        text("tool_version", "version", null=False),
        text("host", "where it ran", null=False),
        jsonb("settings", "settings, without secrets", null=False, default="'{}'::jsonb"),
        PrimaryKeyConstraint("id", name="pk_tool_runs"),
        comment="Calls of the tool.",
    )


def _parity_checks(metadata: MetaData) -> None:
    Table(
        "parity_checks",
        metadata,
        uuid("id", "of this parity check", null=False),
        _plan("parity_checks", null=True, ondelete="SET NULL"),
        time("started_at", "when", null=False, default="now()"),
        time("finished_at", "when; null: running or killed"),
        flag("complete", "every document was compared", default=False),
        flag("clean", "no difference was found", default=False),
        jsonb("result", "what was found"),
        octets("checksum", "SHA-256 over this row, as the tool wrote it; null: written by an older version"),
        PrimaryKeyConstraint("id", name="pk_parity_checks"),
        comment="Recorded parity checks of everything.",
    )


def _decisions(metadata: MetaData) -> None:
    Table(
        "decisions",
        metadata,
        _serial(),
        text("kind", "kind of the decision", null=False),
        text("who", "by whom", null=False),
        text("reason", "why", null=False),
        time("at", "when", null=False, default="now()"),
        text("tool_version", "version", null=False),
        jsonb("detail", "with what", null=False, default="'{}'::jsonb"),
        PrimaryKeyConstraint("id", name="pk_decisions"),
        comment="Recorded decisions of people.",
    )


def _declare_tail(metadata: MetaData) -> None:
    """Add the tables to ``metadata``."""
    _tail(metadata)
    _pending_documents(metadata)
    _dangling_references(metadata)


def _tail(metadata: MetaData) -> None:
    Table(
        "tail",
        metadata,
        text("profile", "source profile", null=False),
        text("source_identity", "server and database of the source", null=False),
        octets("position", "resume token or cluster time, as BSON", null=False),
        time("position_at", "cluster time up to which all events were read", null=False),
        time("last_event_at", "cluster time of the last event"),
        time("updated_at", "when this row was written", null=False, default="now()"),
        big("events", "events read", null=False, default="0"),
        big("documents", "documents read again", null=False, default="0"),
        big("written", "rows inserted or changed", null=False, default="0"),
        big("removed", "rows removed", null=False, default="0"),
        real("rate", "events per second, averaged over the last batches", null=False, default="0"),
        flag("derived_pending", "true: rows that are made from many documents must be made again", default=False),
        text("alarm", "why rows may be wrong; null after a parity check with repair"),
        time("alarm_at", "since when"),
        PrimaryKeyConstraint("profile", name="pk_tail"),
        comment="Position of the tail. It is committed in the transaction of the rows that the tail writes.",
    )


def _pending_documents(metadata: MetaData) -> None:
    Table(
        "pending_documents",
        metadata,
        text("collection", "MongoDB collection", null=False),
        octets("source_key", "SHA-256 of source_id: unique where source_id is too long to index", null=False),
        text("source_id", "the document's _id as text", null=False),
        PrimaryKeyConstraint("collection", "source_key", name="pk_pending_documents"),
        comment="Documents that the tail must read again: changed during an unfinished copy, or named by a repair.",
    )


def _dangling_references(metadata: MetaData) -> None:
    Table(
        "dangling_references",
        metadata,
        text("collection", "MongoDB collection of the document that refers", null=False),
        octets("source_key", "SHA-256 of source_id: unique where source_id is too long to index", null=False),
        text("source_id", "the document's _id as text", null=False),
        text("target_table", "table referred to", null=False),
        uuid("target_id", "row referred to, which is not stored", null=False),
        PrimaryKeyConstraint("collection", "source_key", "target_table", "target_id", name="pk_dangling_references"),
        Index("ix_dangling_references_target", "target_table", "target_id"),
        comment="Dangling references. A document is read again when the row to which it refers is stored.",
    )


STATES = ("running", "aborted", "cut-over", "rolled-back", "finished")
STEP_STATES = ("running", "done", "undone")


def _declare_cutover(metadata: MetaData) -> None:
    """Add the tables to ``metadata``."""
    _cutovers(metadata)
    _steps(metadata)
    _outbox(metadata)


def _cutovers(metadata: MetaData) -> None:
    Table(
        "cutovers",
        metadata,
        uuid("id", "of this cutover", null=False),
        text("environment", "name of the installation, from the configuration", null=False),
        text("state", "running, aborted, cut-over, rolled-back or finished", null=False),
        text("config_path", "configuration file that the cutover changes", null=False),
        text("backup_path", "copy of the file before the change", null=False),
        text("tool_version", "version that began it", null=False),
        time("began_at", "when", null=False, default="now()"),
        time("ended_at", "when the state was written last"),
        jsonb("fence", "kind of the fence, and the roles that it revoked", null=False, default="'{}'::jsonb"),
        jsonb("detail", "epoch, position, write pause, counts, metrics", null=False, default="'{}'::jsonb"),
        PrimaryKeyConstraint("id", name="pk_cutovers"),
        one_of("cutovers", "state", STATES),
        comment="Cutovers from MongoDB to PostgreSQL, with the state of each.",
    )


def _steps(metadata: MetaData) -> None:
    Table(
        "cutover_steps",
        metadata,
        uuid(
            "cutover_id",
            "cutover",
            null=False,
            refers=("fk_cutover_steps_cutover_id", "migration.cutovers.id", "CASCADE"),
        ),
        integer("ordinal", "order in which the steps began", null=False),
        text("step", "name of the step", null=False),
        text("state", "running, done or undone", null=False),
        time("began_at", "when it began first", null=False, default="now()"),
        time("ended_at", "when it was done or undone"),
        jsonb("detail", "result of the step", null=False, default="'{}'::jsonb"),
        PrimaryKeyConstraint("cutover_id", "step", name="pk_cutover_steps"),
        one_of("cutover_steps", "state", STEP_STATES),
        comment="Journal of a cutover. The next call repeats a step that is running, and skips one that is done.",
    )


def _outbox(metadata: MetaData) -> None:
    Table(
        "outbox",
        metadata,
        Column("id", BigInteger(), Identity(always=False), nullable=False, comment="in order of arrival"),
        text("table_name", "table of the schema scheduler", null=False),
        text("row_id", "id of the row", null=False),
        text("source", "source of the row; null: the row was created on PostgreSQL"),
        text("source_id", "_id of its document as text; null: the row was created on PostgreSQL"),
        time("at", "when the row was inserted, updated or deleted", null=False, default="clock_timestamp()"),
        PrimaryKeyConstraint("id", name="pk_outbox"),
        comment="Rows written since the cutover that the reverse sync has not yet carried to MongoDB.",
    )


MIGRATION = MetaData(schema="migration")
"""The tool's own tables."""

_declare_ledger(MIGRATION)
_declare_tail(MIGRATION)
_declare_cutover(MIGRATION)
