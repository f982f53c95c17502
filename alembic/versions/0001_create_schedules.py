"""Create what runs and when: handlers, schedules, triggers."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = ("scheduler",)
depends_on = None

TABLES = ("handlers", "schedules", "triggers", "parallel_triggers")
"""Made by this revision; taken away, with their rows, when it is undone."""

# Firing uses ix_triggers_due, for all tenants; lists of a tenant use ix_triggers_next. parallel_triggers has no foreign
# key: the tail deletes and inserts triggers, and must not wait for processes that fire. A row whose trigger is gone
# fires nothing.
DDL = """
CREATE TABLE handlers (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    name text NOT NULL,
    handler_path text,
    handler_type text NOT NULL,
    queue text,
    default_timeout_ms bigint,
    is_active boolean DEFAULT true NOT NULL,
    is_system boolean DEFAULT false NOT NULL,
    idempotent boolean DEFAULT false NOT NULL,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT pk_handlers PRIMARY KEY (id, tenant_id),
    CONSTRAINT uq_handlers_name UNIQUE (tenant_id, name),
    CONSTRAINT ck_handlers_handler_type CHECK (handler_type = ANY (ARRAY[
        'function'::text, 'agent'::text, 'workflow'::text, 'job_creator'::text, 'celery_task'::text,
        'async_function'::text
    ]))
);
COMMENT ON TABLE handlers IS 'Handlers: named code of the application that schedules call.';
COMMENT ON COLUMN handlers.name IS 'unique per tenant';
COMMENT ON COLUMN handlers.handler_path IS 'where the application finds the code';
COMMENT ON COLUMN handlers.handler_type IS 'how it is called';
COMMENT ON COLUMN handlers.queue IS 'default queue of its runs';
COMMENT ON COLUMN handlers.default_timeout_ms IS 'timeout of runs whose schedule states none';
COMMENT ON COLUMN handlers.is_active IS 'false: must not be scheduled';
COMMENT ON COLUMN handlers.is_system IS 'true: it cannot be deleted';
COMMENT ON COLUMN handlers.idempotent IS 'true: a second run of one slot does no harm';

CREATE TABLE schedules (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    name text NOT NULL,
    description text,
    enabled boolean DEFAULT true NOT NULL,
    status text NOT NULL,
    mode text,
    selection jsonb,
    only_if jsonb,
    notify jsonb,
    limits jsonb,
    subscribers text[],
    handler_name text,
    handler_type text,
    queue text,
    payload jsonb,
    priority smallint,
    max_retries integer,
    retry_delay_ms bigint,
    retry_strategy text,
    retry_cap_ms bigint DEFAULT 3600000,
    retry_count integer,
    on_exhausted text,
    timeout_ms bigint,
    max_concurrency integer,
    tags text[],
    metadata jsonb,
    schema_version text,
    created_at timestamptz,
    created_by text,
    updated_at timestamptz,
    updated_by text,
    paused_at timestamptz,
    cancelled_at timestamptz,
    completed_at timestamptz,
    deleted_at timestamptz,
    deleted_by text,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT pk_schedules PRIMARY KEY (id, tenant_id),
    CONSTRAINT ck_schedules_status CHECK (status = ANY (ARRAY[
        'pending'::text, 'scheduled'::text, 'running'::text, 'paused'::text, 'completed'::text,
        'failed'::text, 'cancelled'::text
    ])),
    CONSTRAINT ck_schedules_mode CHECK (mode = ANY (ARRAY['analysis-only'::text, 'content-refresh'::text])),
    CONSTRAINT ck_schedules_handler_type CHECK (handler_type = ANY (ARRAY[
        'function'::text, 'agent'::text, 'workflow'::text, 'job_creator'::text, 'celery_task'::text,
        'async_function'::text
    ])),
    CONSTRAINT ck_schedules_retry_strategy CHECK (retry_strategy = ANY (ARRAY['exponential'::text, 'fixed'::text])),
    CONSTRAINT ck_schedules_on_exhausted CHECK (on_exhausted = ANY (ARRAY['keep'::text, 'stop'::text])),
    CONSTRAINT ck_schedules_priority CHECK (priority >= 0 AND priority <= 100),
    CONSTRAINT ck_schedules_times CHECK (
        LEAST(
            created_at, updated_at, paused_at, cancelled_at, completed_at, deleted_at
        ) >= '0001-01-01 00:00:00+00'
        AND GREATEST(
            created_at, updated_at, paused_at, cancelled_at, completed_at, deleted_at
        ) < '10000-01-01 00:00:00+00'
    ),
    CONSTRAINT ck_schedules_counters CHECK (retry_count < 2147483647)
);
CREATE INDEX ix_schedules_active ON schedules (tenant_id, name, id) WHERE enabled AND deleted_at IS NULL;
CREATE INDEX ix_schedules_page ON schedules (tenant_id, created_at DESC NULLS LAST, id)
    WHERE deleted_at IS NULL;
CREATE INDEX ix_schedules_status ON schedules (status, tenant_id)
    WHERE deleted_at IS NULL AND status <> 'scheduled';
CREATE INDEX ix_schedules_handler ON schedules (handler_name, tenant_id) WHERE deleted_at IS NULL;
CREATE INDEX ix_schedules_creator ON schedules (created_by, tenant_id) WHERE deleted_at IS NULL;
CREATE INDEX ix_schedules_tags ON schedules USING gin (tags);
CREATE UNIQUE INDEX uq_schedules_name ON schedules (tenant_id, name)
    WHERE source IS NULL AND deleted_at IS NULL;
COMMENT ON TABLE schedules IS
    'Schedules, one row each. A column that a source may leave out has no default: null means that the source '
    'document does not have the field.';
COMMENT ON COLUMN schedules.name IS
    'unique among a tenant''s rows with source null that are not deleted; source data may repeat it';
COMMENT ON COLUMN schedules.description IS 'free text';
COMMENT ON COLUMN schedules.enabled IS 'false: it does not fire, and due queries leave it out';
COMMENT ON COLUMN schedules.status IS 'state of the schedule';
COMMENT ON COLUMN schedules.mode IS 'StellaOps: analysis-only or content-refresh';
COMMENT ON COLUMN schedules.selection IS 'StellaOps: which images';
COMMENT ON COLUMN schedules.only_if IS 'StellaOps: conditions';
COMMENT ON COLUMN schedules.notify IS 'StellaOps: notifications';
COMMENT ON COLUMN schedules.limits IS 'StellaOps: rates and parallelism';
COMMENT ON COLUMN schedules.subscribers IS 'who is notified; null: absent in the source';
COMMENT ON COLUMN schedules.handler_name IS
    'handler that is called; no foreign key, because it may not be registered yet';
COMMENT ON COLUMN schedules.handler_type IS 'how it is called';
COMMENT ON COLUMN schedules.queue IS 'queue of its runs; null: the default queue';
COMMENT ON COLUMN schedules.payload IS 'argument of its runs';
COMMENT ON COLUMN schedules.priority IS
    '0 to 100, higher first (low 25, medium 50, high 75, critical 100); null counts as 50';
COMMENT ON COLUMN schedules.max_retries IS 'retries after the first attempt; null: none';
COMMENT ON COLUMN schedules.retry_delay_ms IS 'delay before the first retry';
COMMENT ON COLUMN schedules.retry_strategy IS 'exponential: the delay doubles; fixed: it stays';
COMMENT ON COLUMN schedules.retry_cap_ms IS 'longest delay; null: the source states none';
COMMENT ON COLUMN schedules.retry_count IS 'retries made since the last success';
COMMENT ON COLUMN schedules.on_exhausted IS 'after the last retry: keep or stop the schedule; null: keep';
COMMENT ON COLUMN schedules.timeout_ms IS 'longest duration of a run; null: no limit';
COMMENT ON COLUMN schedules.max_concurrency IS 'most runs at the same time; null: no limit';
COMMENT ON COLUMN schedules.tags IS 'labels to search by';
COMMENT ON COLUMN schedules.metadata IS 'data of the application';
COMMENT ON COLUMN schedules.schema_version IS 'version of the source document''s format, as the document states it';
COMMENT ON COLUMN schedules.created_at IS 'when it was created';
COMMENT ON COLUMN schedules.created_by IS 'by whom';
COMMENT ON COLUMN schedules.updated_at IS 'when it was last changed';
COMMENT ON COLUMN schedules.updated_by IS 'by whom';
COMMENT ON COLUMN schedules.paused_at IS 'when it was paused';
COMMENT ON COLUMN schedules.cancelled_at IS 'when it was cancelled';
COMMENT ON COLUMN schedules.completed_at IS 'when it fired for the last time';
COMMENT ON COLUMN schedules.deleted_at IS 'soft deletion: lists, reads and due queries leave the row out';
COMMENT ON COLUMN schedules.deleted_by IS 'by whom';

CREATE TABLE triggers (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    schedule_id uuid NOT NULL,
    kind text NOT NULL,
    cron_expression text,
    cron_dialect text,
    timezone text,
    interval_ms bigint,
    anchor text,
    run_at timestamptz,
    event_name text,
    start_at timestamptz,
    end_at timestamptz,
    max_fires bigint,
    fire_count bigint DEFAULT 0 NOT NULL,
    skip_if_overdue boolean DEFAULT false NOT NULL,
    misfire_policy text,
    misfire_grace_ms bigint,
    enabled boolean DEFAULT true NOT NULL,
    next_fire_at timestamptz,
    last_fire_at timestamptz,
    derived boolean DEFAULT false NOT NULL,
    source_spec jsonb,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    priority smallint DEFAULT 50 NOT NULL,
    CONSTRAINT pk_triggers PRIMARY KEY (id, tenant_id),
    CONSTRAINT fk_triggers_schedule_id FOREIGN KEY (tenant_id, schedule_id)
        REFERENCES schedules (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT ck_triggers_kind CHECK (kind = ANY (ARRAY[
        'cron'::text, 'interval'::text, 'one_time'::text, 'event'::text
    ])),
    CONSTRAINT ck_triggers_anchor CHECK (anchor = ANY (ARRAY['completion'::text, 'fixed_rate'::text])),
    CONSTRAINT ck_triggers_misfire_policy CHECK (misfire_policy = ANY (ARRAY[
        'fire_once'::text, 'skip'::text, 'fire_all'::text
    ])),
    CONSTRAINT ck_triggers_kind_columns CHECK (
        (kind = 'cron'::text) = (cron_expression IS NOT NULL)
        AND (kind = 'cron'::text) = (cron_dialect IS NOT NULL)
        AND (kind = 'interval'::text) = (interval_ms IS NOT NULL)
        AND (kind = 'interval'::text) = (anchor IS NOT NULL)
        AND (kind = 'one_time'::text) = (run_at IS NOT NULL)
        AND (kind = 'event'::text) = (event_name IS NOT NULL)
        AND (kind <> 'event'::text OR timezone IS NULL)
    ),
    CONSTRAINT ck_triggers_event CHECK (kind <> 'event'::text OR next_fire_at IS NULL),
    CONSTRAINT ck_triggers_interval_ms CHECK (interval_ms > 0),
    CONSTRAINT ck_triggers_period CHECK (end_at > start_at),
    CONSTRAINT ck_triggers_times CHECK (
        LEAST(run_at, start_at, end_at, next_fire_at, last_fire_at) >= '0001-01-01 00:00:00+00'
        AND GREATEST(run_at, start_at, end_at, next_fire_at, last_fire_at) < '10000-01-01 00:00:00+00'
    ),
    CONSTRAINT ck_triggers_counters CHECK (fire_count < 9223372036854775807)
);
CREATE INDEX ix_triggers_due ON triggers (priority DESC, next_fire_at, id)
    WHERE enabled AND next_fire_at IS NOT NULL;
CREATE INDEX ix_triggers_next ON triggers (tenant_id, next_fire_at, id)
    WHERE enabled AND next_fire_at IS NOT NULL;
CREATE INDEX ix_triggers_event ON triggers (event_name, tenant_id, id)
    WHERE enabled AND event_name IS NOT NULL;
CREATE INDEX ix_triggers_schedule ON triggers (schedule_id);
CREATE INDEX ix_triggers_kind ON triggers (tenant_id, kind);
COMMENT ON TABLE triggers IS 'When a schedule fires. A trigger is deleted with its schedule.';
COMMENT ON COLUMN triggers.schedule_id IS 'schedule that fires';
COMMENT ON COLUMN triggers.kind IS 'cron, interval, one_time or event; exactly the columns of the kind are set';
COMMENT ON COLUMN triggers.cron_expression IS 'cron: verbatim, never rewritten';
COMMENT ON COLUMN triggers.cron_dialect IS 'cron: the engine whose rules evaluate the expression';
COMMENT ON COLUMN triggers.timezone IS 'IANA name; null: the source states none; not for events';
COMMENT ON COLUMN triggers.interval_ms IS 'interval: its length';
COMMENT ON COLUMN triggers.anchor IS 'interval: from the completion of the last run, or at a fixed_rate';
COMMENT ON COLUMN triggers.run_at IS 'one_time: when it fires';
COMMENT ON COLUMN triggers.event_name IS 'event: name of the event';
COMMENT ON COLUMN triggers.start_at IS 'it does not fire earlier';
COMMENT ON COLUMN triggers.end_at IS 'it does not fire later';
COMMENT ON COLUMN triggers.max_fires IS 'most fires';
COMMENT ON COLUMN triggers.fire_count IS 'fires so far';
COMMENT ON COLUMN triggers.skip_if_overdue IS 'true: a late fire is skipped';
COMMENT ON COLUMN triggers.misfire_policy IS 'what is done about missed fires; null: fire_once';
COMMENT ON COLUMN triggers.misfire_grace_ms IS 'a fire that is later than this is missed';
COMMENT ON COLUMN triggers.enabled IS 'false: it does not fire';
COMMENT ON COLUMN triggers.next_fire_at IS 'next slot; null: there is none; always null for events';
COMMENT ON COLUMN triggers.last_fire_at IS 'the last slot that fired';
COMMENT ON COLUMN triggers.derived IS
    'true: made from many documents in a closing pass, and not encoded into a document';
COMMENT ON COLUMN triggers.source_spec IS 'expression as the source states it';
COMMENT ON COLUMN triggers.priority IS 'priority of the schedule, kept equal by the database; 50 without one';

CREATE TABLE parallel_triggers (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    timing text NOT NULL,
    began_at timestamptz,
    next_fire_at timestamptz,
    last_fire_at timestamptz,
    fire_count bigint DEFAULT 0 NOT NULL,
    CONSTRAINT pk_parallel_triggers PRIMARY KEY (id, tenant_id),
    CONSTRAINT ck_parallel_triggers_times CHECK (
        LEAST(began_at, next_fire_at, last_fire_at) >= '0001-01-01 00:00:00+00'
        AND GREATEST(began_at, next_fire_at, last_fire_at) < '10000-01-01 00:00:00+00'
    ),
    CONSTRAINT ck_parallel_triggers_counters CHECK (fire_count < 9223372036854775807)
);
COMMENT ON TABLE parallel_triggers IS
    'What triggers that came from the source fire here in a parallel run. The triggers themselves follow the source.';
COMMENT ON COLUMN parallel_triggers.id IS 'trigger';
COMMENT ON COLUMN parallel_triggers.tenant_id IS
    'owner of the row; *: a global row, which every tenant may read and only some roles may write';
COMMENT ON COLUMN parallel_triggers.timing IS
    'columns of the trigger that say when it fires; if they change, it continues with the next fire of the source';
COMMENT ON COLUMN parallel_triggers.began_at IS 'first slot that is fired here; null: none is planned yet';
COMMENT ON COLUMN parallel_triggers.next_fire_at IS 'next slot; null if there is none';
COMMENT ON COLUMN parallel_triggers.last_fire_at IS 'slot fired last';
COMMENT ON COLUMN parallel_triggers.fire_count IS 'fires so far';
"""


def upgrade() -> None:
    """Make the tables."""
    op.get_bind().exec_driver_sql(DDL)


def downgrade() -> None:
    """Drop the tables with their rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE {table}")
