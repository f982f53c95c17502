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
    _comparisons(metadata)
    _decisions(metadata)


def _serial() -> AnyColumn:
    return Column("id", BigInteger(), Identity(always=False), nullable=False, comment="in order of arrival")


def _plan(table: str, *, null: bool, ondelete: str) -> AnyColumn:
    foreign_key = (f"fk_{table}_plan_id", "migration.plans.id", ondelete)
    return uuid("plan_id", "of which plan", null=null, refers=foreign_key)


def _plans(metadata: MetaData) -> None:
    Table(
        "plans",
        metadata,
        uuid("id", "of this plan", null=False),
        text("profile", "source profile", null=False),
        integer("profile_version", "its version", null=False),
        text("tool_version", "version that made the plan", null=False),
        text("config_digest", "of the settings that bear on the result", null=False),
        text("source_identity", "which server and database", null=False),
        time("as_of", "instant at which liveness is judged", null=False),
        time("created_at", "when", null=False, default="now()"),
        text("state", "open, complete or abandoned", null=False),
        jsonb("context", "what decode may know besides the document", null=False, default="'{}'::jsonb"),
        octets("stream_position", "resume token of the change stream, taken before the copy"),
        octets(
            "checksum",
            "SHA-256 over this row and the notes of its closing passes, as the tool wrote them; null: an older version"
            " did",
        ),
        PrimaryKeyConstraint("id", name="pk_plans"),
        one_of("plans", "state", ("open", "complete", "abandoned")),
        comment="A copy of a source, as planned; unfinished chunks are resumed only under the same plan.",
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
        big("skipped", "left behind by a stated rule", null=False, default="0"),
        big("quarantined", "set aside", null=False, default="0"),
        big("bytes", "BSON bytes read", null=False, default="0"),
        jsonb("rows", "table to rows made"),
        jsonb("written", "table to rows inserted or changed"),
        octets("digest", "of what was read"),
        time("started_at", "when"),
        time("finished_at", "when: the commit that also holds the rows"),
        text("worker", "which process"),
        octets(
            "checksum",
            "SHA-256 over this row and its notes, as the tool wrote them; null: not done, or an older version did",
        ),
        PrimaryKeyConstraint("plan_id", "collection", "ordinal", name="pk_chunks"),
        one_of("chunks", "state", ("pending", "done")),
        one_of("chunks", "mode", ("direct", "merge")),
        comment="Ranges of _id. A chunk's row commits in the transaction of the rows it loaded: the resume guarantee.",
    )


def _quarantine(metadata: MetaData) -> None:
    Table(
        "quarantine",
        metadata,
        _serial(),
        _plan("quarantine", null=True, ondelete="SET NULL"),
        text("profile", "source profile that read it", null=False),
        integer("profile_version", "its version", null=False),
        text("collection", "MongoDB collection", null=False),
        text("source_id", "the document's _id as text", null=False),
        octets("source_key", "SHA-256 of source_id: unique where source_id is too long to index", null=False),
        text("tenant_id", "tenant, where one could be read"),
        text("reason", "short stable code", null=False),
        text("path", "field path; empty: the whole document", null=False),
        text("expected", "what would have been accepted", null=False),
        octets("raw", "the document's bytes", null=False),
        text("tool_version", "version that set it aside", null=False),
        text("state", "open, resolved or superseded", null=False),
        time("created_at", "when", null=False, default="now()"),
        time("resolved_at", "when it was loaded after all, or replaced"),
        PrimaryKeyConstraint("id", name="pk_quarantine"),
        one_of("quarantine", "state", ("open", "resolved", "superseded")),
        Index("uq_quarantine_document", "profile", "collection", "source_key", unique=True),
        comment="Documents set aside, with their bytes, so that they can be tried again; one row per document.",
    )


def _notes(metadata: MetaData) -> None:
    Table(
        "notes",
        metadata,
        _plan("notes", null=False, ondelete="CASCADE"),
        text("collection", "MongoDB collection", null=False),
        integer("ordinal", "of which chunk; -1: a closing pass", null=False),
        text("class", "finding, residue or skip", null=False),
        text("kind", "short stable code", null=False),
        text("path", "field path; empty: the whole document", null=False),
        big("documents", "how many", null=False),
        PrimaryKeyConstraint("plan_id", "collection", "ordinal", "class", "kind", "path", name="pk_notes"),
        one_of("notes", "class", ("finding", "residue", "skip")),
        comment="What was noted about documents, counted per chunk: findings, residue (the loss ledger), skips.",
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
        jsonb("resolved_extra", "residue of the row once the reference is resolved"),
        text("tenant_id", "tenant of the row that refers, and of the row referred to", null=False),
        text("target_source", "profile and collection of the document referred to; null: the id alone decides"),
        text("target_source_id", "the _id of the document referred to, as text; null: the id alone decides"),
        PrimaryKeyConstraint("record_table", "row_id", "tenant_id", "column_name", name="pk_pending_links"),
        comment="References that could not be resolved when their row was loaded; a closing pass fills or drops them.",
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
        text("definition", "SQL that makes it again", null=False),
        time("dropped_at", "when", null=False, default="now()"),
        time("restored_at", "when; null: still missing"),
        PrimaryKeyConstraint("id", name="pk_deferred_ddl"),
        one_of("deferred_ddl", "kind", ("index", "constraint")),
        comment="Indexes and foreign keys taken away for a first load, so that a killed run puts them back.",
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


def _comparisons(metadata: MetaData) -> None:
    Table(
        "comparisons",
        metadata,
        uuid("id", "of this comparison", null=False),
        _plan("comparisons", null=True, ondelete="SET NULL"),
        time("started_at", "when", null=False, default="now()"),
        time("finished_at", "when; null: running or killed"),
        flag("complete", "every document was compared", default=False),
        flag("clean", "no difference was found", default=False),
        jsonb("result", "what was found"),
        octets("checksum", "SHA-256 over this row, as the tool wrote it; null: an older version did"),
        PrimaryKeyConstraint("id", name="pk_comparisons"),
        comment="Comparisons of source and target.",
    )


def _decisions(metadata: MetaData) -> None:
    Table(
        "decisions",
        metadata,
        _serial(),
        text("kind", "what was decided", null=False),
        text("who", "by whom", null=False),
        text("reason", "why", null=False),
        time("at", "when", null=False, default="now()"),
        text("tool_version", "version", null=False),
        jsonb("detail", "with what", null=False, default="'{}'::jsonb"),
        PrimaryKeyConstraint("id", name="pk_decisions"),
        comment="Decisions of people, on record.",
    )


def _declare_tail(metadata: MetaData) -> None:
    """Add the tables to ``metadata``."""
    _tail(metadata)
    _touched(metadata)
    _orphans(metadata)


def _tail(metadata: MetaData) -> None:
    Table(
        "tail",
        metadata,
        text("profile", "source profile", null=False),
        text("source_identity", "which server and database", null=False),
        octets("position", "how the change stream is opened again, as BSON", null=False),
        time("position_at", "cluster time up to which everything was seen", null=False),
        time("last_event_at", "cluster time of the last event"),
        time("updated_at", "when this row was written", null=False, default="now()"),
        big("events", "events seen", null=False, default="0"),
        big("documents", "documents read again and brought up to date", null=False, default="0"),
        big("written", "rows inserted or changed", null=False, default="0"),
        big("removed", "rows removed", null=False, default="0"),
        real("rate", "events per second, lately", null=False, default="0"),
        flag("derived_owed", "rows that many documents make together are to be made again", default=False),
        text("alarm", "what is wrong, until a comparison with repair has settled it"),
        time("alarm_at", "since when"),
        PrimaryKeyConstraint("profile", name="pk_tail"),
        comment="Where the tail stands. Its position commits in the transaction of the rows: the resume guarantee.",
    )


def _touched(metadata: MetaData) -> None:
    Table(
        "touched",
        metadata,
        text("collection", "MongoDB collection", null=False),
        octets("source_key", "SHA-256 of source_id: unique where source_id is too long to index", null=False),
        text("source_id", "the document's _id as text", null=False),
        PrimaryKeyConstraint("collection", "source_key", name="pk_touched"),
        comment="Documents to read again: touched while a copy was unfinished, or named by a repair.",
    )


def _orphans(metadata: MetaData) -> None:
    Table(
        "orphans",
        metadata,
        text("collection", "MongoDB collection of the document that refers", null=False),
        octets("source_key", "SHA-256 of source_id: unique where source_id is too long to index", null=False),
        text("source_id", "the document's _id as text", null=False),
        text("target_table", "table referred to", null=False),
        uuid("target_id", "row referred to, which was not stored", null=False),
        PrimaryKeyConstraint("collection", "source_key", "target_table", "target_id", name="pk_orphans"),
        Index("ix_orphans_target", "target_table", "target_id"),
        comment="References to nothing, so that a document is read again when the row it refers to is stored.",
    )


STATES = ("running", "aborted", "switched", "rolled-back", "finished")
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
        text("environment", "which installation, as the operator names it", null=False),
        text("state", "running, aborted, switched, rolled-back or finished", null=False),
        text("config_path", "configuration file that is switched", null=False),
        text("backup_path", "its text before", null=False),
        text("tool_version", "version that began it", null=False),
        time("began_at", "when", null=False, default="now()"),
        time("ended_at", "when it was aborted, switched, taken back or finished last"),
        jsonb("fence", "kind of the fence, and what it has taken away", null=False, default="'{}'::jsonb"),
        jsonb("detail", "epoch, position, pause, counts", null=False, default="'{}'::jsonb"),
        PrimaryKeyConstraint("id", name="pk_cutovers"),
        one_of("cutovers", "state", STATES),
        comment="Switches from MongoDB to PostgreSQL, and how each ended.",
    )


def _steps(metadata: MetaData) -> None:
    Table(
        "cutover_steps",
        metadata,
        uuid(
            "cutover_id",
            "of which cutover",
            null=False,
            refers=("fk_cutover_steps_cutover_id", "migration.cutovers.id", "CASCADE"),
        ),
        integer("ordinal", "in order of their beginning", null=False),
        text("step", "name of the step", null=False),
        text("state", "running, done or undone", null=False),
        time("began_at", "when it began first", null=False, default="now()"),
        time("ended_at", "when it was done or undone"),
        jsonb("detail", "what it found and did", null=False, default="'{}'::jsonb"),
        PrimaryKeyConstraint("cutover_id", "step", name="pk_cutover_steps"),
        one_of("cutover_steps", "state", STEP_STATES),
        comment="The journal of a cutover: a step that is running is done again, one that is done is not.",
    )


def _outbox(metadata: MetaData) -> None:
    Table(
        "outbox",
        metadata,
        Column("id", BigInteger(), Identity(always=False), nullable=False, comment="in order of arrival"),
        text("table_name", "table of the schema scheduler", null=False),
        text("row_id", "id of the row", null=False),
        text("source", "whose document the row is; null: born here"),
        text("source_id", "its _id as text; null: born here"),
        time("at", "when it was written, removed or changed", null=False, default="clock_timestamp()"),
        PrimaryKeyConstraint("id", name="pk_outbox"),
        comment="Rows written since the switch that MongoDB does not have yet; the reverse stream empties it.",
    )


MIGRATION = MetaData(schema="migration")
"""The tool's own tables."""

_declare_ledger(MIGRATION)
_declare_tail(MIGRATION)
_declare_cutover(MIGRATION)
