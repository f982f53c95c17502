"""Create the tables of the tail."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TABLES = ("tail", "touched", "orphans")
"""Made by this revision; taken away, with their rows, when it is undone."""

DDL = """
CREATE TABLE migration.tail (
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
    derived_owed boolean DEFAULT false NOT NULL,
    alarm text,
    alarm_at timestamptz,
    CONSTRAINT pk_tail PRIMARY KEY (profile)
);
COMMENT ON TABLE migration.tail IS
    'Where the tail stands. Its position commits in the transaction of the rows: the resume guarantee.';
COMMENT ON COLUMN migration.tail.profile IS 'source profile';
COMMENT ON COLUMN migration.tail.source_identity IS 'which server and database';
COMMENT ON COLUMN migration.tail.position IS 'how the change stream is opened again, as BSON';
COMMENT ON COLUMN migration.tail.position_at IS 'cluster time up to which everything was seen';
COMMENT ON COLUMN migration.tail.last_event_at IS 'cluster time of the last event';
COMMENT ON COLUMN migration.tail.updated_at IS 'when this row was written';
COMMENT ON COLUMN migration.tail.events IS 'events seen';
COMMENT ON COLUMN migration.tail.documents IS 'documents read again and brought up to date';
COMMENT ON COLUMN migration.tail.written IS 'rows inserted or changed';
COMMENT ON COLUMN migration.tail.removed IS 'rows removed';
COMMENT ON COLUMN migration.tail.rate IS 'events per second, lately';
COMMENT ON COLUMN migration.tail.derived_owed IS 'rows that many documents make together are to be made again';
COMMENT ON COLUMN migration.tail.alarm IS 'what is wrong, until a comparison with repair has settled it';
COMMENT ON COLUMN migration.tail.alarm_at IS 'since when';

CREATE TABLE migration.touched (
    collection text NOT NULL,
    source_key bytea NOT NULL,
    source_id text NOT NULL,
    CONSTRAINT pk_touched PRIMARY KEY (collection, source_key)
);
COMMENT ON TABLE migration.touched IS
    'Documents to read again: touched while a copy was unfinished, or named by a repair.';
COMMENT ON COLUMN migration.touched.collection IS 'MongoDB collection';
COMMENT ON COLUMN migration.touched.source_key IS 'SHA-256 of source_id: unique where source_id is too long to index';
COMMENT ON COLUMN migration.touched.source_id IS 'the document''s _id as text';

CREATE TABLE migration.orphans (
    collection text NOT NULL,
    source_key bytea NOT NULL,
    source_id text NOT NULL,
    target_table text NOT NULL,
    target_id uuid NOT NULL,
    CONSTRAINT pk_orphans PRIMARY KEY (collection, source_key, target_table, target_id)
);
CREATE INDEX ix_orphans_target ON migration.orphans (target_table, target_id);
COMMENT ON TABLE migration.orphans IS
    'References to nothing, so that a document is read again when the row it refers to is stored.';
COMMENT ON COLUMN migration.orphans.collection IS 'MongoDB collection of the document that refers';
COMMENT ON COLUMN migration.orphans.source_key IS 'SHA-256 of source_id: unique where source_id is too long to index';
COMMENT ON COLUMN migration.orphans.source_id IS 'the document''s _id as text';
COMMENT ON COLUMN migration.orphans.target_table IS 'table referred to';
COMMENT ON COLUMN migration.orphans.target_id IS 'row referred to, which was not stored';
"""


def upgrade() -> None:
    """Make the tables."""
    op.get_bind().exec_driver_sql(DDL)


def downgrade() -> None:
    """Drop the tables with their rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE migration.{table}")
