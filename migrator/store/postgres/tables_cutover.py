"""Tables of the schema ``migration`` that the switch and the way back need: a journal, and an outbox."""

from sqlalchemy import BigInteger, Column, Identity, MetaData, PrimaryKeyConstraint, Table

from migrator.store.postgres.columns import integer, jsonb, one_of, text, time, uuid

STATES = ("running", "aborted", "switched", "rolled-back", "finished")
STEP_STATES = ("running", "done", "undone")


def declare(metadata: MetaData) -> None:
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
