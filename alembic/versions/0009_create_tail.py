"""Create the tables of the tail: its position, what it reads again, and the next fires that it records."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TABLES = ("tail", "pending_documents", "dangling_references", "planned_fires")
"""Made by this revision; taken away, with their rows, when it is undone."""

DDL = """
CREATE TABLE tail (
    profile text NOT NULL,
    source_identity text NOT NULL,
    position bytea NOT NULL,
    position_at timestamptz NOT NULL,
    last_event_at timestamptz,
    updated_at timestamptz DEFAULT now() NOT NULL,
    events bigint DEFAULT 0 NOT NULL,
    documents bigint DEFAULT 0 NOT NULL,
    written bigint DEFAULT 0 NOT NULL,
    removed bigint DEFAULT 0 NOT NULL,
    rate double precision DEFAULT 0 NOT NULL,
    derived_pending boolean DEFAULT false NOT NULL,
    alarm text,
    alarm_at timestamptz,
    CONSTRAINT pk_tail PRIMARY KEY (profile)
);
COMMENT ON TABLE tail IS 'Position of the tail. It is committed in the transaction of the rows that the tail writes.';
COMMENT ON COLUMN tail.profile IS 'source profile';
COMMENT ON COLUMN tail.source_identity IS 'server and database of the source';
COMMENT ON COLUMN tail.position IS 'resume token or cluster time, as BSON';
COMMENT ON COLUMN tail.position_at IS 'cluster time up to which all events were read';
COMMENT ON COLUMN tail.last_event_at IS 'cluster time of the last event';
COMMENT ON COLUMN tail.updated_at IS 'when this row was written';
COMMENT ON COLUMN tail.events IS 'events read';
COMMENT ON COLUMN tail.documents IS 'documents read again';
COMMENT ON COLUMN tail.written IS 'rows inserted or changed';
COMMENT ON COLUMN tail.removed IS 'rows removed';
COMMENT ON COLUMN tail.rate IS 'events per second, averaged over the last batches';
COMMENT ON COLUMN tail.derived_pending IS 'true: rows that are made from many documents must be made again';
COMMENT ON COLUMN tail.alarm IS 'why rows may be wrong; null after a parity check with repair';
COMMENT ON COLUMN tail.alarm_at IS 'since when';

CREATE TABLE pending_documents (
    collection text NOT NULL,
    source_key bytea NOT NULL,
    source_id text NOT NULL,
    CONSTRAINT pk_pending_documents PRIMARY KEY (collection, source_key)
);
COMMENT ON TABLE pending_documents IS
    'Documents that the tail must read again: changed during an unfinished copy, or named by a repair.';
COMMENT ON COLUMN pending_documents.collection IS 'MongoDB collection';
COMMENT ON COLUMN pending_documents.source_key IS 'SHA-256 of source_id: unique where source_id is too long to index';
COMMENT ON COLUMN pending_documents.source_id IS 'the document''s _id as text';

CREATE TABLE dangling_references (
    collection text NOT NULL,
    source_key bytea NOT NULL,
    source_id text NOT NULL,
    target_table text NOT NULL,
    target_id uuid NOT NULL,
    CONSTRAINT pk_dangling_references PRIMARY KEY (collection, source_key, target_table, target_id)
);
CREATE INDEX ix_dangling_references_target ON dangling_references (target_table, target_id);
COMMENT ON TABLE dangling_references IS
    'Dangling references. A document is read again when the row to which it refers is stored.';
COMMENT ON COLUMN dangling_references.collection IS 'MongoDB collection of the document that refers';
COMMENT ON COLUMN dangling_references.source_key IS 'SHA-256 of source_id: unique where source_id is too long to index';
COMMENT ON COLUMN dangling_references.source_id IS 'the document''s _id as text';
COMMENT ON COLUMN dangling_references.target_table IS 'table referred to';
COMMENT ON COLUMN dangling_references.target_id IS 'row referred to, which is not stored';

CREATE TABLE planned_fires (
    position bigint GENERATED ALWAYS AS IDENTITY,
    collection text NOT NULL,
    source_id text NOT NULL,
    planned_at timestamptz,
    seen_at timestamptz NOT NULL,
    CONSTRAINT pk_planned_fires PRIMARY KEY (position)
);
COMMENT ON TABLE planned_fires IS
    'Next fires that the old scheduler planned in a parallel run, each of them, as the change stream says.';
COMMENT ON COLUMN planned_fires.position IS 'order in which they were planned';
COMMENT ON COLUMN planned_fires.collection IS 'MongoDB collection';
COMMENT ON COLUMN planned_fires.source_id IS 'the document''s _id as text';
COMMENT ON COLUMN planned_fires.planned_at IS 'next fire from then on; null: there is none';
COMMENT ON COLUMN planned_fires.seen_at IS 'when the old scheduler wrote it';
"""


def upgrade() -> None:
    """Make the tables."""
    op.get_bind().exec_driver_sql(DDL)


def downgrade() -> None:
    """Drop the tables with their rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE {table}")
