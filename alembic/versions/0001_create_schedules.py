"""Create what runs and when: handlers, schedules, triggers."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = ("scheduler",)
depends_on = None

TABLES = ("handlers", "schedules", "triggers")
"""Made by this revision; taken away, with their rows, when it is undone."""

DDL = """
CREATE TABLE scheduler.handlers (
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
    CONSTRAINT pk_handlers PRIMARY KEY (id),
    CONSTRAINT uq_handlers_name UNIQUE (tenant_id, name),
    CONSTRAINT ck_handlers_handler_type CHECK (handler_type = ANY (ARRAY[
        'function'::text, 'agent'::text, 'workflow'::text, 'job_creator'::text, 'celery_task'::text,
        'async_function'::text
    ]))
);
COMMENT ON TABLE scheduler.handlers IS 'Named pieces of code that schedules call; the bodies are the application''s.';
COMMENT ON COLUMN scheduler.handlers.id IS 'computed from tenant, collection and source_id; how a row is found again';
COMMENT ON COLUMN scheduler.handlers.tenant_id IS
    'owner of the row; * is global: visible to all, written only by roles that may';
COMMENT ON COLUMN scheduler.handlers.source IS 'profile and collection (stellaops/runs); null for a row born here';
COMMENT ON COLUMN scheduler.handlers.source_id IS
    'the document''s _id: a plain string verbatim, any other as canonical Extended JSON; not indexed, since a '
    'row is found by its computed id: who searches by it may build a hash index after the load';
COMMENT ON COLUMN scheduler.handlers.name IS 'unique per tenant';
COMMENT ON COLUMN scheduler.handlers.handler_path IS 'where the application finds its body';
COMMENT ON COLUMN scheduler.handlers.handler_type IS 'how it is called';
COMMENT ON COLUMN scheduler.handlers.queue IS 'default queue of its runs';
COMMENT ON COLUMN scheduler.handlers.default_timeout_ms IS 'timeout where the schedule states none';
COMMENT ON COLUMN scheduler.handlers.is_active IS 'may be scheduled';
COMMENT ON COLUMN scheduler.handlers.is_system IS 'its deletion is refused';
COMMENT ON COLUMN scheduler.handlers.idempotent IS 'a second run of one slot does no harm';
COMMENT ON COLUMN scheduler.handlers.extra IS
    'residue: what of the source document no column carries, typed, by path; {} for a clean document';

CREATE TABLE scheduler.schedules (
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
    CONSTRAINT pk_schedules PRIMARY KEY (id),
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
    CONSTRAINT ck_schedules_priority CHECK (priority >= 0 AND priority <= 100)
);
CREATE INDEX ix_schedules_active ON scheduler.schedules (tenant_id, name, id) WHERE enabled AND deleted_at IS NULL;
CREATE INDEX ix_schedules_page ON scheduler.schedules (tenant_id, created_at DESC NULLS LAST, id)
    WHERE deleted_at IS NULL;
CREATE INDEX ix_schedules_tags ON scheduler.schedules USING gin (tags);
CREATE UNIQUE INDEX uq_schedules_name ON scheduler.schedules (tenant_id, name)
    WHERE source IS NULL AND deleted_at IS NULL;
COMMENT ON TABLE scheduler.schedules IS
    'What runs: one row per schedule, whatever makes it fire. A column that a source may leave out is null '
    'rather than a default, so that absent and stated stay two things.';
COMMENT ON COLUMN scheduler.schedules.id IS 'computed from tenant, collection and source_id; how a row is found again';
COMMENT ON COLUMN scheduler.schedules.tenant_id IS
    'owner of the row; * is global: visible to all, written only by roles that may';
COMMENT ON COLUMN scheduler.schedules.source IS 'profile and collection (stellaops/runs); null for a row born here';
COMMENT ON COLUMN scheduler.schedules.source_id IS
    'the document''s _id: a plain string verbatim, any other as canonical Extended JSON; not indexed, since a '
    'row is found by its computed id: who searches by it may build a hash index after the load';
COMMENT ON COLUMN scheduler.schedules.name IS
    'unique among a tenant''s rows born here and not deleted; source data may repeat it';
COMMENT ON COLUMN scheduler.schedules.description IS 'free text';
COMMENT ON COLUMN scheduler.schedules.enabled IS 'fires; a disabled schedule is left out of due queries';
COMMENT ON COLUMN scheduler.schedules.status IS 'state of the schedule machine';
COMMENT ON COLUMN scheduler.schedules.mode IS 'StellaOps: analysis-only or content-refresh';
COMMENT ON COLUMN scheduler.schedules.selection IS 'StellaOps: which images';
COMMENT ON COLUMN scheduler.schedules.only_if IS 'StellaOps: conditions';
COMMENT ON COLUMN scheduler.schedules.notify IS 'StellaOps: when to tell whom';
COMMENT ON COLUMN scheduler.schedules.limits IS 'StellaOps: rates and parallelism';
COMMENT ON COLUMN scheduler.schedules.subscribers IS 'who is told; null is absent, empty is empty';
COMMENT ON COLUMN scheduler.schedules.handler_name IS
    'what to call; a name, no reference: the handler may not be registered yet';
COMMENT ON COLUMN scheduler.schedules.handler_type IS 'how it is called';
COMMENT ON COLUMN scheduler.schedules.queue IS 'queue of its runs; null is the default one';
COMMENT ON COLUMN scheduler.schedules.payload IS 'argument of its runs';
COMMENT ON COLUMN scheduler.schedules.priority IS
    '0 to 100, higher first (low 25, medium 50, high 75, critical 100); null counts as 50';
COMMENT ON COLUMN scheduler.schedules.max_retries IS 'retries after the first attempt; null is none';
COMMENT ON COLUMN scheduler.schedules.retry_delay_ms IS 'delay before the first retry';
COMMENT ON COLUMN scheduler.schedules.retry_strategy IS 'exponential: the delay doubles; fixed: it stays';
COMMENT ON COLUMN scheduler.schedules.retry_cap_ms IS 'longest delay; null where a source names none';
COMMENT ON COLUMN scheduler.schedules.retry_count IS 'retries made since the last success';
COMMENT ON COLUMN scheduler.schedules.on_exhausted IS
    'after the last retry: keep the schedule or stop it; null is keep';
COMMENT ON COLUMN scheduler.schedules.timeout_ms IS 'longest duration of a run; null is none';
COMMENT ON COLUMN scheduler.schedules.max_concurrency IS 'runs at the same time; null: they may overlap';
COMMENT ON COLUMN scheduler.schedules.tags IS 'labels to search by';
COMMENT ON COLUMN scheduler.schedules.metadata IS 'whatever the owner adds';
COMMENT ON COLUMN scheduler.schedules.schema_version IS
    'version of the source document''s shape; old ones are not upgraded';
COMMENT ON COLUMN scheduler.schedules.created_at IS 'when it was made';
COMMENT ON COLUMN scheduler.schedules.created_by IS 'by whom';
COMMENT ON COLUMN scheduler.schedules.updated_at IS 'when it was last changed';
COMMENT ON COLUMN scheduler.schedules.updated_by IS 'by whom';
COMMENT ON COLUMN scheduler.schedules.paused_at IS 'when it was paused';
COMMENT ON COLUMN scheduler.schedules.cancelled_at IS 'when it was cancelled';
COMMENT ON COLUMN scheduler.schedules.completed_at IS 'when it fired for the last time';
COMMENT ON COLUMN scheduler.schedules.deleted_at IS
    'when it was softly deleted: lists, gets and due queries leave it out';
COMMENT ON COLUMN scheduler.schedules.deleted_by IS 'by whom';
COMMENT ON COLUMN scheduler.schedules.extra IS
    'residue: what of the source document no column carries, typed, by path; {} for a clean document';

CREATE TABLE scheduler.triggers (
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
    CONSTRAINT pk_triggers PRIMARY KEY (id),
    CONSTRAINT fk_triggers_schedule_id FOREIGN KEY (schedule_id)
        REFERENCES scheduler.schedules (id) ON DELETE CASCADE,
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
    CONSTRAINT ck_triggers_period CHECK (end_at > start_at)
);
CREATE INDEX ix_triggers_due ON scheduler.triggers (next_fire_at, tenant_id, id)
    WHERE enabled AND next_fire_at IS NOT NULL;
CREATE INDEX ix_triggers_event ON scheduler.triggers (event_name, tenant_id, id)
    WHERE enabled AND event_name IS NOT NULL;
CREATE INDEX ix_triggers_schedule ON scheduler.triggers (schedule_id);
COMMENT ON TABLE scheduler.triggers IS 'When a schedule fires. Goes with its schedule.';
COMMENT ON COLUMN scheduler.triggers.id IS 'computed from tenant, collection and source_id; how a row is found again';
COMMENT ON COLUMN scheduler.triggers.tenant_id IS
    'owner of the row; * is global: visible to all, written only by roles that may';
COMMENT ON COLUMN scheduler.triggers.source IS 'profile and collection (stellaops/runs); null for a row born here';
COMMENT ON COLUMN scheduler.triggers.source_id IS
    'the document''s _id: a plain string verbatim, any other as canonical Extended JSON; not indexed, since a '
    'row is found by its computed id: who searches by it may build a hash index after the load';
COMMENT ON COLUMN scheduler.triggers.schedule_id IS 'what fires';
COMMENT ON COLUMN scheduler.triggers.kind IS
    'cron, interval, one_time or event; exactly the columns of the kind are set';
COMMENT ON COLUMN scheduler.triggers.cron_expression IS 'cron: verbatim, never rewritten';
COMMENT ON COLUMN scheduler.triggers.cron_dialect IS 'cron: the engine whose rules evaluate the expression';
COMMENT ON COLUMN scheduler.triggers.timezone IS 'IANA name; null where a source names none; not for events';
COMMENT ON COLUMN scheduler.triggers.interval_ms IS 'interval: the only unit';
COMMENT ON COLUMN scheduler.triggers.anchor IS
    'interval: counted from the completion of the last run, or at a fixed_rate';
COMMENT ON COLUMN scheduler.triggers.run_at IS 'one_time: when';
COMMENT ON COLUMN scheduler.triggers.event_name IS 'event: which';
COMMENT ON COLUMN scheduler.triggers.start_at IS 'no fire before';
COMMENT ON COLUMN scheduler.triggers.end_at IS 'no fire after';
COMMENT ON COLUMN scheduler.triggers.max_fires IS 'no more fires than so many';
COMMENT ON COLUMN scheduler.triggers.fire_count IS 'fires so far';
COMMENT ON COLUMN scheduler.triggers.skip_if_overdue IS 'a fire that is late is skipped';
COMMENT ON COLUMN scheduler.triggers.misfire_policy IS 'what to do with missed fires; null is fire_once';
COMMENT ON COLUMN scheduler.triggers.misfire_grace_ms IS 'later than so much counts as missed';
COMMENT ON COLUMN scheduler.triggers.enabled IS 'fires';
COMMENT ON COLUMN scheduler.triggers.next_fire_at IS 'the next slot; null: none is due; never set for events';
COMMENT ON COLUMN scheduler.triggers.last_fire_at IS 'the last slot that fired';
COMMENT ON COLUMN scheduler.triggers.derived IS 'made in a closing pass from many documents; not encoded back';
COMMENT ON COLUMN scheduler.triggers.source_spec IS 'the original expression verbatim';
COMMENT ON COLUMN scheduler.triggers.extra IS
    'residue: what of the source document no column carries, typed, by path; {} for a clean document';
"""


def upgrade() -> None:
    """Make the tables."""
    op.get_bind().exec_driver_sql(DDL)


def downgrade() -> None:
    """Drop the tables with their rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE scheduler.{table}")
