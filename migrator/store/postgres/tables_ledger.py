"""The tool's own schema ``migration``: what was planned, copied, set aside, lost, decided.

Nothing in ``scheduler`` refers to it, so that it can be dropped after sign-off.
"""

from sqlalchemy import BigInteger, Column, Identity, Index, MetaData, PrimaryKeyConstraint, Table

from migrator.store.postgres.columns import (
    AnyColumn,
    big,
    flag,
    integer,
    jsonb,
    octets,
    one_of,
    real,
    text,
    time,
    uuid,
)


def declare(metadata: MetaData) -> None:
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
