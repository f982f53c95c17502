"""What runs and when: handlers, schedules, triggers."""

from sqlalchemy import Index, MetaData, PrimaryKeyConstraint, Table, UniqueConstraint, desc
from sqlalchemy import text as sql

from migrator import states
from migrator.store.postgres.columns import (
    big,
    check,
    extra,
    flag,
    integer,
    jsonb,
    one_of,
    refers,
    small,
    sourced,
    text,
    texts,
    time,
    uuid,
)


def declare(metadata: MetaData) -> None:
    """Add the tables to ``metadata``."""
    _handlers(metadata)
    _schedules(metadata)
    _triggers(metadata)


def _handlers(metadata: MetaData) -> None:
    Table(
        "handlers",
        metadata,
        *sourced(),
        text("name", "unique per tenant", null=False),
        text("handler_path", "where the application finds its body"),
        text("handler_type", "how it is called", null=False),
        text("queue", "default queue of its runs"),
        big("default_timeout_ms", "timeout where the schedule states none"),
        flag("is_active", "may be scheduled", default=True),
        flag("is_system", "its deletion is refused", default=False),
        flag("idempotent", "a second run of one slot does no harm", default=False),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_handlers"),
        UniqueConstraint("tenant_id", "name", name="uq_handlers_name"),
        one_of("handlers", "handler_type", states.HANDLER_TYPES),
        comment="Named pieces of code that schedules call; the bodies are the application's.",
    )


def _schedules(metadata: MetaData) -> None:
    Table(
        "schedules",
        metadata,
        *sourced(),
        text("name", "unique among a tenant's rows born here and not deleted; source data may repeat it", null=False),
        text("description", "free text"),
        flag("enabled", "fires; a disabled schedule is left out of due queries", default=True),
        text("status", "state of the schedule machine", null=False),
        text("mode", "StellaOps: analysis-only or content-refresh"),
        jsonb("selection", "StellaOps: which images"),
        jsonb("only_if", "StellaOps: conditions"),
        jsonb("notify", "StellaOps: when to tell whom"),
        jsonb("limits", "StellaOps: rates and parallelism"),
        texts("subscribers", "who is told; null is absent, empty is empty"),
        text("handler_name", "what to call; a name, no reference: the handler may not be registered yet"),
        text("handler_type", "how it is called"),
        text("queue", "queue of its runs; null is the default one"),
        jsonb("payload", "argument of its runs", large=True),
        small("priority", "0 to 100, higher first (low 25, medium 50, high 75, critical 100); null counts as 50"),
        integer("max_retries", "retries after the first attempt; null is none"),
        big("retry_delay_ms", "delay before the first retry"),
        text("retry_strategy", "exponential: the delay doubles; fixed: it stays"),
        big("retry_cap_ms", "longest delay; null where a source names none", default="3600000"),
        integer("retry_count", "retries made since the last success"),
        text("on_exhausted", "after the last retry: keep the schedule or stop it; null is keep"),
        big("timeout_ms", "longest duration of a run; null is none"),
        integer("max_concurrency", "runs at the same time; null: they may overlap"),
        texts("tags", "labels to search by"),
        jsonb("metadata", "whatever the owner adds"),
        text("schema_version", "version of the source document's shape; old ones are not upgraded"),
        time("created_at", "when it was made"),
        text("created_by", "by whom"),
        time("updated_at", "when it was last changed"),
        text("updated_by", "by whom"),
        time("paused_at", "when it was paused"),
        time("cancelled_at", "when it was cancelled"),
        time("completed_at", "when it fired for the last time"),
        time("deleted_at", "when it was softly deleted: lists, gets and due queries leave it out"),
        text("deleted_by", "by whom"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_schedules"),
        one_of("schedules", "status", states.SCHEDULE),
        one_of("schedules", "mode", states.SCHEDULE_MODES),
        one_of("schedules", "handler_type", states.HANDLER_TYPES),
        one_of("schedules", "retry_strategy", states.RETRY_STRATEGIES),
        one_of("schedules", "on_exhausted", states.EXHAUSTED_POLICIES),
        check("ck_schedules_priority", "priority >= 0 AND priority <= 100"),
        Index(
            "uq_schedules_name",
            "tenant_id",
            "name",
            unique=True,
            postgresql_where=sql("source IS NULL AND deleted_at IS NULL"),
        ),
        Index(
            "ix_schedules_active",
            "tenant_id",
            "name",
            "id",
            postgresql_where=sql("enabled AND deleted_at IS NULL"),
        ),
        Index(
            "ix_schedules_page",
            "tenant_id",
            desc("created_at").nulls_last(),
            "id",
            postgresql_where=sql("deleted_at IS NULL"),
        ),
        Index("ix_schedules_tags", "tags", postgresql_using="gin"),
        # Claims and fires take the schedules before and after the usual priority apart, which most are without.
        Index("ix_schedules_ranked", "priority", postgresql_where=sql("priority <> 50")),
        comment="What runs: one row per schedule, whatever makes it fire. A column that a source may leave out is null"
        " rather than a default, so that absent and stated stay two things.",
    )


def _triggers(metadata: MetaData) -> None:
    Table(
        "triggers",
        metadata,
        *sourced(),
        uuid("schedule_id", "what fires", null=False),
        text("kind", "cron, interval, one_time or event; exactly the columns of the kind are set", null=False),
        text("cron_expression", "cron: verbatim, never rewritten"),
        text("cron_dialect", "cron: the engine whose rules evaluate the expression"),
        text("timezone", "IANA name; null where a source names none; not for events"),
        big("interval_ms", "interval: the only unit"),
        text("anchor", "interval: counted from the completion of the last run, or at a fixed_rate"),
        time("run_at", "one_time: when"),
        text("event_name", "event: which"),
        time("start_at", "no fire before"),
        time("end_at", "no fire after"),
        big("max_fires", "no more fires than so many"),
        big("fire_count", "fires so far", null=False, default="0"),
        flag("skip_if_overdue", "a fire that is late is skipped", default=False),
        text("misfire_policy", "what to do with missed fires; null is fire_once"),
        big("misfire_grace_ms", "later than so much counts as missed"),
        flag("enabled", "fires", default=True),
        time("next_fire_at", "the next slot; null: none is due; never set for events"),
        time("last_fire_at", "the last slot that fired"),
        flag("derived", "made in a closing pass from many documents; not encoded back", default=False),
        jsonb("source_spec", "the original expression verbatim"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_triggers"),
        refers("triggers", "schedule_id", "schedules", "CASCADE"),
        one_of("triggers", "kind", states.TRIGGER_KINDS),
        one_of("triggers", "anchor", states.TRIGGER_ANCHORS),
        one_of("triggers", "misfire_policy", states.MISFIRE_POLICIES),
        check(
            "ck_triggers_kind_columns",
            "(kind = 'cron'::text) = (cron_expression IS NOT NULL)"
            " AND (kind = 'cron'::text) = (cron_dialect IS NOT NULL)"
            " AND (kind = 'interval'::text) = (interval_ms IS NOT NULL)"
            " AND (kind = 'interval'::text) = (anchor IS NOT NULL)"
            " AND (kind = 'one_time'::text) = (run_at IS NOT NULL)"
            " AND (kind = 'event'::text) = (event_name IS NOT NULL)"
            " AND (kind <> 'event'::text OR timezone IS NULL)",
        ),
        check("ck_triggers_event", "kind <> 'event'::text OR next_fire_at IS NULL"),
        check("ck_triggers_interval_ms", "interval_ms > 0"),
        check("ck_triggers_period", "end_at > start_at"),
        Index(
            "ix_triggers_due",
            "next_fire_at",
            "tenant_id",
            "id",
            postgresql_where=sql("enabled AND next_fire_at IS NOT NULL"),
        ),
        Index(
            "ix_triggers_event",
            "event_name",
            "tenant_id",
            "id",
            postgresql_where=sql("enabled AND event_name IS NOT NULL"),
        ),
        Index("ix_triggers_schedule", "schedule_id"),
        comment="When a schedule fires. Goes with its schedule.",
    )
