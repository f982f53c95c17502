"""The tables of the tail, in the schema ``migration``: where it stands, what it owes, which references lead nowhere."""

from sqlalchemy import Index, MetaData, PrimaryKeyConstraint, Table

from migrator.store.postgres.columns import big, flag, octets, real, text, time, uuid

LOOKUP_PREFIX = "tail_"
"""Of the indexes that the tail makes on the product's tables, and that are dropped when the move is finished."""


def declare(metadata: MetaData) -> None:
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
