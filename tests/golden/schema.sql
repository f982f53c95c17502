CREATE SCHEMA migration;

ALTER SCHEMA migration OWNER TO scheduler_migration;

CREATE SCHEMA scheduler;

ALTER SCHEMA scheduler OWNER TO scheduler_migration;

CREATE FUNCTION scheduler.give_priority() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    stated smallint := coalesce(NEW.priority, 50);
BEGIN
    PERFORM FROM scheduler.schedules WHERE id = OLD.id AND tenant_id = OLD.tenant_id FOR UPDATE;
    UPDATE scheduler.triggers SET priority = stated
        WHERE schedule_id = OLD.id AND tenant_id = OLD.tenant_id AND priority <> stated;
    UPDATE scheduler.runs SET priority = stated
        WHERE schedule_id = OLD.id AND schedule_tenant_id = OLD.tenant_id AND priority <> stated
        AND state = 'queued';
    UPDATE scheduler.runs SET priority = stated
        WHERE schedule_id = OLD.id AND schedule_tenant_id = OLD.tenant_id AND priority <> stated
        AND state = 'planning';
    RETURN NEW;
END
$$;

ALTER FUNCTION scheduler.give_priority() OWNER TO scheduler_migration;

CREATE FUNCTION scheduler.schedules_with_any_tag(wanted text[]) RETURNS SETOF uuid
    LANGUAGE sql STABLE STRICT SECURITY DEFINER ROWS 100
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
SELECT id FROM scheduler.schedules WHERE tags && wanted AND tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text), CASE WHEN NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL THEN NULL::text ELSE '*'::text END])
$$;

ALTER FUNCTION scheduler.schedules_with_any_tag(wanted text[]) OWNER TO scheduler_migration;

CREATE FUNCTION scheduler.schedules_with_every_tag(wanted text[]) RETURNS SETOF uuid
    LANGUAGE sql STABLE STRICT SECURITY DEFINER ROWS 100
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
SELECT id FROM scheduler.schedules WHERE tags @> wanted AND tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text), CASE WHEN NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL THEN NULL::text ELSE '*'::text END])
$$;

ALTER FUNCTION scheduler.schedules_with_every_tag(wanted text[]) OWNER TO scheduler_migration;

CREATE FUNCTION scheduler.take_priority() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    owner text;
    stated smallint;
BEGIN
    IF TG_TABLE_NAME = 'runs' THEN
        owner := NEW.schedule_tenant_id;
    ELSE
        owner := NEW.tenant_id;
    END IF;
    SELECT s.priority INTO stated FROM scheduler.schedules AS s
        WHERE s.id = NEW.schedule_id AND s.tenant_id = owner FOR KEY SHARE;
    stated := coalesce(stated, 50);
    IF stated = NEW.priority THEN
        RETURN NULL;
    END IF;
    IF TG_TABLE_NAME = 'runs' THEN
        UPDATE scheduler.runs SET priority = stated WHERE id = NEW.id AND tenant_id = NEW.tenant_id;
    ELSE
        UPDATE scheduler.triggers SET priority = stated WHERE id = NEW.id AND tenant_id = NEW.tenant_id;
    END IF;
    RETURN NULL;
END
$$;

ALTER FUNCTION scheduler.take_priority() OWNER TO scheduler_migration;

CREATE TABLE migration.chunks (
    plan_id uuid NOT NULL,
    collection text NOT NULL,
    ordinal integer NOT NULL,
    min_id bytea,
    max_id bytea,
    estimated bigint DEFAULT 0 NOT NULL,
    average_bytes double precision DEFAULT 0 NOT NULL,
    state text NOT NULL,
    mode text,
    documents bigint DEFAULT 0 NOT NULL,
    skipped bigint DEFAULT 0 NOT NULL,
    quarantined bigint DEFAULT 0 NOT NULL,
    bytes bigint DEFAULT 0 NOT NULL,
    rows jsonb,
    written jsonb,
    digest bytea,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    worker text,
    checksum bytea,
    CONSTRAINT ck_chunks_mode CHECK ((mode = ANY (ARRAY['direct'::text, 'merge'::text]))),
    CONSTRAINT ck_chunks_state CHECK ((state = ANY (ARRAY['pending'::text, 'done'::text])))
);

ALTER TABLE migration.chunks OWNER TO scheduler_migration;

COMMENT ON TABLE migration.chunks IS 'Key ranges of a copy. A chunk''s row is committed in the transaction of the rows that it loads.';

COMMENT ON COLUMN migration.chunks.plan_id IS 'plan';

COMMENT ON COLUMN migration.chunks.collection IS 'MongoDB collection';

COMMENT ON COLUMN migration.chunks.ordinal IS 'position in the collection';

COMMENT ON COLUMN migration.chunks.min_id IS 'lower bound of _id, inclusive, as BSON; null: the beginning';

COMMENT ON COLUMN migration.chunks.max_id IS 'upper bound of _id, exclusive, as BSON; null: the end';

COMMENT ON COLUMN migration.chunks.estimated IS 'documents expected';

COMMENT ON COLUMN migration.chunks.average_bytes IS 'size of a document, as estimated';

COMMENT ON COLUMN migration.chunks.state IS 'pending or done';

COMMENT ON COLUMN migration.chunks.mode IS 'direct into an empty range, or merge';

COMMENT ON COLUMN migration.chunks.documents IS 'documents read';

COMMENT ON COLUMN migration.chunks.skipped IS 'documents that a rule of the profile excludes';

COMMENT ON COLUMN migration.chunks.quarantined IS 'documents in quarantine';

COMMENT ON COLUMN migration.chunks.bytes IS 'BSON bytes read';

COMMENT ON COLUMN migration.chunks.rows IS 'table to rows that the documents make';

COMMENT ON COLUMN migration.chunks.written IS 'table to rows inserted or changed';

COMMENT ON COLUMN migration.chunks.digest IS 'digest of the documents read';

COMMENT ON COLUMN migration.chunks.started_at IS 'when';

COMMENT ON COLUMN migration.chunks.finished_at IS 'when; written in the transaction of the rows';

COMMENT ON COLUMN migration.chunks.worker IS 'process that copied it';

COMMENT ON COLUMN migration.chunks.checksum IS 'SHA-256 over this row and its notes, as the tool wrote them; null: pending, or of an older version';

CREATE TABLE migration.control (
    name text NOT NULL,
    value double precision,
    who text NOT NULL,
    reason text NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT ck_control_name CHECK ((name = ANY (ARRAY['pause'::text, 'postpone-cutover'::text, 'max_rate'::text, 'max_replication_lag'::text, 'max_source_load'::text]))),
    CONSTRAINT ck_control_value CHECK (((value IS NULL) = (name = ANY (ARRAY['pause'::text, 'postpone-cutover'::text]))))
);

ALTER TABLE migration.control OWNER TO scheduler_migration;

COMMENT ON TABLE migration.control IS 'What operators set while a migration runs: a pause, a postponed cutover, limits of the copy.';

COMMENT ON COLUMN migration.control.name IS 'pause, postpone-cutover, or the key of [copy] in whose place the value is';

COMMENT ON COLUMN migration.control.value IS 'documents a second, seconds, or clients; 0: no limit; null: not a limit';

COMMENT ON COLUMN migration.control.who IS 'who set it';

COMMENT ON COLUMN migration.control.reason IS 'why it was set; may be empty';

COMMENT ON COLUMN migration.control.at IS 'when it was set';

CREATE TABLE migration.cutover_steps (
    cutover_id uuid NOT NULL,
    ordinal integer NOT NULL,
    step text NOT NULL,
    state text NOT NULL,
    began_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT ck_cutover_steps_state CHECK ((state = ANY (ARRAY['running'::text, 'done'::text, 'undone'::text])))
);

ALTER TABLE migration.cutover_steps OWNER TO scheduler_migration;

COMMENT ON TABLE migration.cutover_steps IS 'Journal of a cutover. The next call repeats a step that is running, and skips one that is done.';

COMMENT ON COLUMN migration.cutover_steps.cutover_id IS 'cutover';

COMMENT ON COLUMN migration.cutover_steps.ordinal IS 'order in which the steps began';

COMMENT ON COLUMN migration.cutover_steps.step IS 'name of the step';

COMMENT ON COLUMN migration.cutover_steps.state IS 'running, done or undone';

COMMENT ON COLUMN migration.cutover_steps.began_at IS 'when it began first';

COMMENT ON COLUMN migration.cutover_steps.ended_at IS 'when it was done or undone';

COMMENT ON COLUMN migration.cutover_steps.detail IS 'result of the step';

CREATE TABLE migration.cutovers (
    id uuid NOT NULL,
    environment text NOT NULL,
    state text NOT NULL,
    config_path text NOT NULL,
    backup_path text NOT NULL,
    tool_version text NOT NULL,
    began_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    fence jsonb DEFAULT '{}'::jsonb NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT ck_cutovers_state CHECK ((state = ANY (ARRAY['running'::text, 'aborted'::text, 'cut-over'::text, 'rolled-back'::text, 'finished'::text])))
);

ALTER TABLE migration.cutovers OWNER TO scheduler_migration;

COMMENT ON TABLE migration.cutovers IS 'Cutovers from MongoDB to PostgreSQL, with the state of each.';

COMMENT ON COLUMN migration.cutovers.id IS 'of this cutover';

COMMENT ON COLUMN migration.cutovers.environment IS 'name of the installation, from the configuration';

COMMENT ON COLUMN migration.cutovers.state IS 'running, aborted, cut-over, rolled-back or finished';

COMMENT ON COLUMN migration.cutovers.config_path IS 'configuration file that the cutover changes';

COMMENT ON COLUMN migration.cutovers.backup_path IS 'copy of the file before the change';

COMMENT ON COLUMN migration.cutovers.tool_version IS 'version that began it';

COMMENT ON COLUMN migration.cutovers.began_at IS 'when';

COMMENT ON COLUMN migration.cutovers.ended_at IS 'when the state was written last';

COMMENT ON COLUMN migration.cutovers.fence IS 'kind of the fence, and the roles that it revoked';

COMMENT ON COLUMN migration.cutovers.detail IS 'epoch, position, write pause, counts, metrics';

CREATE TABLE migration.dangling_references (
    collection text NOT NULL,
    source_key bytea NOT NULL,
    source_id text NOT NULL,
    target_table text NOT NULL,
    target_id uuid NOT NULL
);

ALTER TABLE migration.dangling_references OWNER TO scheduler_migration;

COMMENT ON TABLE migration.dangling_references IS 'Dangling references. A document is read again when the row to which it refers is stored.';

COMMENT ON COLUMN migration.dangling_references.collection IS 'MongoDB collection of the document that refers';

COMMENT ON COLUMN migration.dangling_references.source_key IS 'SHA-256 of source_id: unique where source_id is too long to index';

COMMENT ON COLUMN migration.dangling_references.source_id IS 'the document''s _id as text';

COMMENT ON COLUMN migration.dangling_references.target_table IS 'table referred to';

COMMENT ON COLUMN migration.dangling_references.target_id IS 'row referred to, which is not stored';

CREATE TABLE migration.decisions (
    id bigint NOT NULL,
    kind text NOT NULL,
    who text NOT NULL,
    reason text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    tool_version text NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    checksum bytea
);

ALTER TABLE migration.decisions OWNER TO scheduler_migration;

COMMENT ON TABLE migration.decisions IS 'Recorded decisions of people.';

COMMENT ON COLUMN migration.decisions.id IS 'in order of arrival';

COMMENT ON COLUMN migration.decisions.kind IS 'kind of the decision';

COMMENT ON COLUMN migration.decisions.who IS 'by whom';

COMMENT ON COLUMN migration.decisions.reason IS 'why';

COMMENT ON COLUMN migration.decisions.at IS 'when';

COMMENT ON COLUMN migration.decisions.tool_version IS 'version';

COMMENT ON COLUMN migration.decisions.detail IS 'with what';

COMMENT ON COLUMN migration.decisions.checksum IS 'SHA-256 over this row, as the tool wrote it; null: written by an older version';

ALTER TABLE migration.decisions ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME migration.decisions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE migration.deferred_ddl (
    id bigint NOT NULL,
    plan_id uuid,
    target_table text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    definition text NOT NULL,
    dropped_at timestamp with time zone DEFAULT now() NOT NULL,
    restored_at timestamp with time zone,
    CONSTRAINT ck_deferred_ddl_kind CHECK ((kind = ANY (ARRAY['index'::text, 'constraint'::text])))
);

ALTER TABLE migration.deferred_ddl OWNER TO scheduler_migration;

COMMENT ON TABLE migration.deferred_ddl IS 'Indexes and foreign keys that a first load has dropped, to be created again, also after a killed run.';

COMMENT ON COLUMN migration.deferred_ddl.id IS 'in order of arrival';

COMMENT ON COLUMN migration.deferred_ddl.plan_id IS 'plan';

COMMENT ON COLUMN migration.deferred_ddl.target_table IS 'table of the schema scheduler';

COMMENT ON COLUMN migration.deferred_ddl.kind IS 'index or constraint';

COMMENT ON COLUMN migration.deferred_ddl.name IS 'its name';

COMMENT ON COLUMN migration.deferred_ddl.definition IS 'SQL that creates it again';

COMMENT ON COLUMN migration.deferred_ddl.dropped_at IS 'when';

COMMENT ON COLUMN migration.deferred_ddl.restored_at IS 'when; null: still missing';

ALTER TABLE migration.deferred_ddl ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME migration.deferred_ddl_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE migration.notes (
    plan_id uuid NOT NULL,
    collection text NOT NULL,
    ordinal integer NOT NULL,
    class text NOT NULL,
    kind text NOT NULL,
    path text NOT NULL,
    documents bigint NOT NULL,
    CONSTRAINT ck_notes_class CHECK ((class = ANY (ARRAY['finding'::text, 'remainder'::text, 'skip'::text])))
);

ALTER TABLE migration.notes OWNER TO scheduler_migration;

COMMENT ON TABLE migration.notes IS 'Counts of documents per chunk: findings, fields that went into the remainder, skipped documents.';

COMMENT ON COLUMN migration.notes.plan_id IS 'plan';

COMMENT ON COLUMN migration.notes.collection IS 'MongoDB collection';

COMMENT ON COLUMN migration.notes.ordinal IS 'ordinal of the chunk; -1: a closing pass';

COMMENT ON COLUMN migration.notes.class IS 'finding, remainder or skip';

COMMENT ON COLUMN migration.notes.kind IS 'short stable code';

COMMENT ON COLUMN migration.notes.path IS 'field path; empty: the whole document';

COMMENT ON COLUMN migration.notes.documents IS 'number of documents';

CREATE TABLE migration.outbox (
    id bigint NOT NULL,
    table_name text NOT NULL,
    row_id text NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE migration.outbox OWNER TO scheduler_migration;

COMMENT ON TABLE migration.outbox IS 'Rows written since the cutover that the reverse sync has not yet carried to MongoDB.';

COMMENT ON COLUMN migration.outbox.id IS 'in order of arrival';

COMMENT ON COLUMN migration.outbox.table_name IS 'table of the schema scheduler';

COMMENT ON COLUMN migration.outbox.row_id IS 'id of the row';

COMMENT ON COLUMN migration.outbox.tenant_id IS 'tenant of the row: with the id, its key';

COMMENT ON COLUMN migration.outbox.source IS 'source of the row; null: the row was created on PostgreSQL';

COMMENT ON COLUMN migration.outbox.source_id IS '_id of its document as text; null: the row was created on PostgreSQL';

COMMENT ON COLUMN migration.outbox.at IS 'when the row was inserted, updated or deleted';

ALTER TABLE migration.outbox ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME migration.outbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE migration.parity_checks (
    id uuid NOT NULL,
    plan_id uuid,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    complete boolean DEFAULT false NOT NULL,
    clean boolean DEFAULT false NOT NULL,
    result jsonb,
    checksum bytea
);

ALTER TABLE migration.parity_checks OWNER TO scheduler_migration;

COMMENT ON TABLE migration.parity_checks IS 'Recorded parity checks of everything.';

COMMENT ON COLUMN migration.parity_checks.id IS 'of this parity check';

COMMENT ON COLUMN migration.parity_checks.plan_id IS 'plan';

COMMENT ON COLUMN migration.parity_checks.started_at IS 'when';

COMMENT ON COLUMN migration.parity_checks.finished_at IS 'when; null: running or killed';

COMMENT ON COLUMN migration.parity_checks.complete IS 'every document was compared';

COMMENT ON COLUMN migration.parity_checks.clean IS 'no difference was found';

COMMENT ON COLUMN migration.parity_checks.result IS 'what was found';

COMMENT ON COLUMN migration.parity_checks.checksum IS 'SHA-256 over this row, as the tool wrote it; null: written by an older version';

CREATE TABLE migration.pending_documents (
    collection text NOT NULL,
    source_key bytea NOT NULL,
    source_id text NOT NULL
);

ALTER TABLE migration.pending_documents OWNER TO scheduler_migration;

COMMENT ON TABLE migration.pending_documents IS 'Documents that the tail must read again: changed during an unfinished copy, or named by a repair.';

COMMENT ON COLUMN migration.pending_documents.collection IS 'MongoDB collection';

COMMENT ON COLUMN migration.pending_documents.source_key IS 'SHA-256 of source_id: unique where source_id is too long to index';

COMMENT ON COLUMN migration.pending_documents.source_id IS 'the document''s _id as text';

CREATE TABLE migration.pending_links (
    collection text NOT NULL,
    record_table text NOT NULL,
    row_id uuid NOT NULL,
    column_name text NOT NULL,
    target_table text NOT NULL,
    target_id uuid NOT NULL,
    resolved_extra jsonb,
    tenant_id text NOT NULL,
    target_source text,
    target_source_id text
);

ALTER TABLE migration.pending_links OWNER TO scheduler_migration;

COMMENT ON TABLE migration.pending_links IS 'References that were not resolved when their row was loaded; a closing pass resolves or drops them.';

COMMENT ON COLUMN migration.pending_links.collection IS 'MongoDB collection of the document that refers';

COMMENT ON COLUMN migration.pending_links.record_table IS 'table of the row that refers';

COMMENT ON COLUMN migration.pending_links.row_id IS 'the row that refers';

COMMENT ON COLUMN migration.pending_links.column_name IS 'its column';

COMMENT ON COLUMN migration.pending_links.target_table IS 'table referred to';

COMMENT ON COLUMN migration.pending_links.target_id IS 'row referred to';

COMMENT ON COLUMN migration.pending_links.resolved_extra IS 'remainder of the row after the reference is resolved';

COMMENT ON COLUMN migration.pending_links.tenant_id IS 'tenant of the row that refers, and of the row referred to';

COMMENT ON COLUMN migration.pending_links.target_source IS 'profile and collection of the document referred to; null: the id alone decides';

COMMENT ON COLUMN migration.pending_links.target_source_id IS '_id of the document referred to, as text; null: the id alone decides';

CREATE TABLE migration.planned_fires (
    "position" bigint NOT NULL,
    collection text NOT NULL,
    source_id text NOT NULL,
    planned_at timestamp with time zone,
    seen_at timestamp with time zone NOT NULL
);

ALTER TABLE migration.planned_fires OWNER TO scheduler_migration;

COMMENT ON TABLE migration.planned_fires IS 'Next fires that the old scheduler planned in a parallel run, each of them, as the change stream says.';

COMMENT ON COLUMN migration.planned_fires."position" IS 'order in which they were planned';

COMMENT ON COLUMN migration.planned_fires.collection IS 'MongoDB collection';

COMMENT ON COLUMN migration.planned_fires.source_id IS 'the document''s _id as text';

COMMENT ON COLUMN migration.planned_fires.planned_at IS 'next fire from then on; null: there is none';

COMMENT ON COLUMN migration.planned_fires.seen_at IS 'when the old scheduler wrote it';

ALTER TABLE migration.planned_fires ALTER COLUMN "position" ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME migration.planned_fires_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE migration.plans (
    id uuid NOT NULL,
    profile text NOT NULL,
    profile_version integer NOT NULL,
    tool_version text NOT NULL,
    config_digest text NOT NULL,
    source_identity text NOT NULL,
    as_of timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    state text NOT NULL,
    context jsonb DEFAULT '{}'::jsonb NOT NULL,
    stream_position bytea,
    checksum bytea,
    CONSTRAINT ck_plans_state CHECK ((state = ANY (ARRAY['open'::text, 'complete'::text, 'abandoned'::text])))
);

ALTER TABLE migration.plans OWNER TO scheduler_migration;

COMMENT ON TABLE migration.plans IS 'Plans of copies of a source. Unfinished chunks are resumed only under the same plan.';

COMMENT ON COLUMN migration.plans.id IS 'of this plan';

COMMENT ON COLUMN migration.plans.profile IS 'source profile';

COMMENT ON COLUMN migration.plans.profile_version IS 'version of the profile';

COMMENT ON COLUMN migration.plans.tool_version IS 'version that made the plan';

COMMENT ON COLUMN migration.plans.config_digest IS 'digest of the settings that decide the rows';

COMMENT ON COLUMN migration.plans.source_identity IS 'server and database of the source';

COMMENT ON COLUMN migration.plans.as_of IS 'instant by which leases and locks count as expired';

COMMENT ON COLUMN migration.plans.created_at IS 'when';

COMMENT ON COLUMN migration.plans.state IS 'open, complete or abandoned';

COMMENT ON COLUMN migration.plans.context IS 'input of decode besides the document';

COMMENT ON COLUMN migration.plans.stream_position IS 'resume token of the change stream, taken before the copy';

COMMENT ON COLUMN migration.plans.checksum IS 'SHA-256 over this row and the notes of its closing passes, as the tool wrote them; null: written by an older version';

CREATE TABLE migration.quarantine (
    id bigint NOT NULL,
    plan_id uuid,
    profile text NOT NULL,
    profile_version integer NOT NULL,
    collection text NOT NULL,
    source_id text NOT NULL,
    source_key bytea NOT NULL,
    tenant_id text,
    reason text NOT NULL,
    path text NOT NULL,
    expected text NOT NULL,
    raw bytea NOT NULL,
    tool_version text NOT NULL,
    state text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    resolved_at timestamp with time zone,
    dropped_by text,
    dropped_because text,
    CONSTRAINT ck_quarantine_dropped CHECK (((state = 'dropped'::text) = ((dropped_by IS NOT NULL) AND (dropped_because IS NOT NULL)))),
    CONSTRAINT ck_quarantine_state CHECK ((state = ANY (ARRAY['open'::text, 'resolved'::text, 'superseded'::text, 'dropped'::text])))
);

ALTER TABLE migration.quarantine OWNER TO scheduler_migration;

COMMENT ON TABLE migration.quarantine IS 'Documents that could not be converted, with their bytes; one row per document.';

COMMENT ON COLUMN migration.quarantine.id IS 'in order of arrival';

COMMENT ON COLUMN migration.quarantine.plan_id IS 'plan';

COMMENT ON COLUMN migration.quarantine.profile IS 'source profile that read it';

COMMENT ON COLUMN migration.quarantine.profile_version IS 'version of the profile';

COMMENT ON COLUMN migration.quarantine.collection IS 'MongoDB collection';

COMMENT ON COLUMN migration.quarantine.source_id IS 'the document''s _id as text';

COMMENT ON COLUMN migration.quarantine.source_key IS 'SHA-256 of source_id: unique where source_id is too long to index';

COMMENT ON COLUMN migration.quarantine.tenant_id IS 'tenant of the document; null if it could not be read';

COMMENT ON COLUMN migration.quarantine.reason IS 'short stable code';

COMMENT ON COLUMN migration.quarantine.path IS 'field path; empty: the whole document';

COMMENT ON COLUMN migration.quarantine.expected IS 'what the profile accepts';

COMMENT ON COLUMN migration.quarantine.raw IS 'the document''s bytes';

COMMENT ON COLUMN migration.quarantine.tool_version IS 'version that quarantined it';

COMMENT ON COLUMN migration.quarantine.state IS 'open, resolved, superseded or dropped';

COMMENT ON COLUMN migration.quarantine.created_at IS 'when';

COMMENT ON COLUMN migration.quarantine.resolved_at IS 'when it was loaded, replaced or dropped';

COMMENT ON COLUMN migration.quarantine.dropped_by IS 'who gave the document up; null unless it is dropped';

COMMENT ON COLUMN migration.quarantine.dropped_because IS 'why the document was given up; null unless it is dropped';

ALTER TABLE migration.quarantine ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME migration.quarantine_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE migration.schema_history (
    revision text NOT NULL,
    file text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamp with time zone NOT NULL,
    tool_version text NOT NULL
);

ALTER TABLE migration.schema_history OWNER TO scheduler_migration;

CREATE TABLE migration.schema_revision (
    version_num text NOT NULL
);

ALTER TABLE migration.schema_revision OWNER TO scheduler_migration;

CREATE TABLE migration.tail (
    profile text NOT NULL,
    source_identity text NOT NULL,
    "position" bytea NOT NULL,
    position_at timestamp with time zone NOT NULL,
    last_event_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    events bigint DEFAULT 0 NOT NULL,
    documents bigint DEFAULT 0 NOT NULL,
    written bigint DEFAULT 0 NOT NULL,
    removed bigint DEFAULT 0 NOT NULL,
    rate double precision DEFAULT 0 NOT NULL,
    derived_pending boolean DEFAULT false NOT NULL,
    alarm text,
    alarm_at timestamp with time zone
);

ALTER TABLE migration.tail OWNER TO scheduler_migration;

COMMENT ON TABLE migration.tail IS 'Position of the tail. It is committed in the transaction of the rows that the tail writes.';

COMMENT ON COLUMN migration.tail.profile IS 'source profile';

COMMENT ON COLUMN migration.tail.source_identity IS 'server and database of the source';

COMMENT ON COLUMN migration.tail."position" IS 'resume token or cluster time, as BSON';

COMMENT ON COLUMN migration.tail.position_at IS 'cluster time up to which all events were read';

COMMENT ON COLUMN migration.tail.last_event_at IS 'cluster time of the last event';

COMMENT ON COLUMN migration.tail.updated_at IS 'when this row was written';

COMMENT ON COLUMN migration.tail.events IS 'events read';

COMMENT ON COLUMN migration.tail.documents IS 'documents read again';

COMMENT ON COLUMN migration.tail.written IS 'rows inserted or changed';

COMMENT ON COLUMN migration.tail.removed IS 'rows removed';

COMMENT ON COLUMN migration.tail.rate IS 'events per second, averaged over the last batches';

COMMENT ON COLUMN migration.tail.derived_pending IS 'true: rows that are made from many documents must be made again';

COMMENT ON COLUMN migration.tail.alarm IS 'why rows may be wrong; null after a parity check with repair';

COMMENT ON COLUMN migration.tail.alarm_at IS 'since when';

CREATE TABLE migration.tool_runs (
    id uuid NOT NULL,
    command text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    exit_status integer,
    tool_version text NOT NULL,
    host text NOT NULL,
    settings jsonb DEFAULT '{}'::jsonb NOT NULL
);

ALTER TABLE migration.tool_runs OWNER TO scheduler_migration;

COMMENT ON TABLE migration.tool_runs IS 'Calls of the tool.';

COMMENT ON COLUMN migration.tool_runs.id IS 'of this call';

COMMENT ON COLUMN migration.tool_runs.command IS 'which command';

COMMENT ON COLUMN migration.tool_runs.started_at IS 'when';

COMMENT ON COLUMN migration.tool_runs.finished_at IS 'when; null: running or killed';

COMMENT ON COLUMN migration.tool_runs.exit_status IS 'bit mask';

COMMENT ON COLUMN migration.tool_runs.tool_version IS 'version';

COMMENT ON COLUMN migration.tool_runs.host IS 'where it ran';

COMMENT ON COLUMN migration.tool_runs.settings IS 'settings, without secrets';

CREATE TABLE scheduler.audit (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    category text NOT NULL,
    action text NOT NULL,
    occurred_at timestamp with time zone NOT NULL,
    actor jsonb,
    entity_id text,
    schedule_id uuid,
    run_id uuid,
    correlation_id text,
    message text,
    metadata jsonb,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT ck_audit_times CHECK (((occurred_at >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (occurred_at < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);

ALTER TABLE scheduler.audit OWNER TO scheduler_migration;

COMMENT ON TABLE scheduler.audit IS 'Audit trail: append only. It has no foreign keys, because entries stay when their object is deleted.';

COMMENT ON COLUMN scheduler.audit.id IS 'a new UUID; of a migrated row: computed from tenant, collection and source_id';

COMMENT ON COLUMN scheduler.audit.tenant_id IS 'owner of the row; *: a global row, which every tenant may read and only some roles may write';

COMMENT ON COLUMN scheduler.audit.source IS 'profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL';

COMMENT ON COLUMN scheduler.audit.source_id IS '_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row is found by its computed id. To search by it, build a hash index after the load';

COMMENT ON COLUMN scheduler.audit.category IS 'kind of entry';

COMMENT ON COLUMN scheduler.audit.action IS 'what was done';

COMMENT ON COLUMN scheduler.audit.occurred_at IS 'when it was done';

COMMENT ON COLUMN scheduler.audit.actor IS 'person or system that did it';

COMMENT ON COLUMN scheduler.audit.entity_id IS 'id of the object, as text of the source';

COMMENT ON COLUMN scheduler.audit.schedule_id IS 'schedule that it concerns; no foreign key';

COMMENT ON COLUMN scheduler.audit.run_id IS 'run that it concerns; no foreign key';

COMMENT ON COLUMN scheduler.audit.correlation_id IS 'id of the request that caused it';

COMMENT ON COLUMN scheduler.audit.message IS 'description';

COMMENT ON COLUMN scheduler.audit.metadata IS 'data of the entry';

COMMENT ON COLUMN scheduler.audit.extra IS 'remainder: the fields of the document that no column holds, by path, with their types; {}: there are none';

CREATE TABLE scheduler.execution_logs (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    run_id uuid,
    schedule_id uuid,
    logged_at timestamp with time zone NOT NULL,
    level text NOT NULL,
    message text,
    context jsonb,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT ck_execution_logs_level CHECK ((level = ANY (ARRAY['trace'::text, 'debug'::text, 'info'::text, 'warn'::text, 'error'::text, 'fatal'::text]))),
    CONSTRAINT ck_execution_logs_times CHECK (((logged_at >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (logged_at < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);

ALTER TABLE scheduler.execution_logs OWNER TO scheduler_migration;

COMMENT ON TABLE scheduler.execution_logs IS 'Lines of the logs of runs. They are deleted with their run.';

COMMENT ON COLUMN scheduler.execution_logs.id IS 'a new UUID; of a migrated row: computed from tenant, collection and source_id';

COMMENT ON COLUMN scheduler.execution_logs.tenant_id IS 'owner of the row; *: a global row, which every tenant may read and only some roles may write';

COMMENT ON COLUMN scheduler.execution_logs.source IS 'profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL';

COMMENT ON COLUMN scheduler.execution_logs.source_id IS '_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row is found by its computed id. To search by it, build a hash index after the load';

COMMENT ON COLUMN scheduler.execution_logs.run_id IS 'run of the line; null: the source does not have the run any more';

COMMENT ON COLUMN scheduler.execution_logs.schedule_id IS 'schedule of the run; no foreign key, because lines stay when a schedule is deleted';

COMMENT ON COLUMN scheduler.execution_logs.logged_at IS 'when the line was written';

COMMENT ON COLUMN scheduler.execution_logs.level IS 'trace to fatal';

COMMENT ON COLUMN scheduler.execution_logs.message IS 'text of the line';

COMMENT ON COLUMN scheduler.execution_logs.context IS 'data of the line';

COMMENT ON COLUMN scheduler.execution_logs.extra IS 'remainder: the fields of the document that no column holds, by path, with their types; {}: there are none';

CREATE TABLE scheduler.graph_job_events (
    id bigint NOT NULL,
    job_id uuid NOT NULL,
    tenant_id text NOT NULL,
    status smallint NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT ck_graph_job_events_status CHECK ((status = ANY (ARRAY[0, 1, 2, 3, 4, 5]))),
    CONSTRAINT ck_graph_job_events_times CHECK (((created_at >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (created_at < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);

ALTER TABLE scheduler.graph_job_events OWNER TO scheduler_migration;

COMMENT ON TABLE scheduler.graph_job_events IS 'Status changes of graph jobs, each in the transaction of the change. They are deleted with their job.';

COMMENT ON COLUMN scheduler.graph_job_events.id IS 'migrated rows: 2^62 + 62 bits of SHA-256 of tenant, source and _id; new rows: the sequence';

COMMENT ON COLUMN scheduler.graph_job_events.job_id IS 'job';

COMMENT ON COLUMN scheduler.graph_job_events.tenant_id IS 'owner of the row; *: a global row, which every tenant may read and only some roles may write';

COMMENT ON COLUMN scheduler.graph_job_events.status IS '0 queued, 1 running, 2 completed, 3 failed, 4 canceled, 5 pending';

COMMENT ON COLUMN scheduler.graph_job_events.payload IS 'the whole document; its remainder under the reserved key $remainder';

COMMENT ON COLUMN scheduler.graph_job_events.created_at IS 'when it happened';

CREATE SEQUENCE scheduler.graph_job_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE scheduler.graph_job_events_id_seq OWNER TO scheduler_migration;

ALTER SEQUENCE scheduler.graph_job_events_id_seq OWNED BY scheduler.graph_job_events.id;

CREATE TABLE scheduler.graph_jobs (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    type smallint NOT NULL,
    status smallint NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    correlation_id text,
    CONSTRAINT ck_graph_jobs_status CHECK ((status = ANY (ARRAY[0, 1, 2, 3, 4, 5]))),
    CONSTRAINT ck_graph_jobs_times CHECK (((LEAST(created_at, updated_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(created_at, updated_at) < '10000-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT ck_graph_jobs_type CHECK ((type = ANY (ARRAY[0, 1])))
);

ALTER TABLE scheduler.graph_jobs OWNER TO scheduler_migration;

COMMENT ON TABLE scheduler.graph_jobs IS 'Graph build and overlay jobs. The columns equal what payload says.';

COMMENT ON COLUMN scheduler.graph_jobs.id IS 'UUID in the id of the source, or computed from that id';

COMMENT ON COLUMN scheduler.graph_jobs.tenant_id IS 'owner of the row; *: a global row, which every tenant may read and only some roles may write';

COMMENT ON COLUMN scheduler.graph_jobs.type IS '0 build, 1 overlay';

COMMENT ON COLUMN scheduler.graph_jobs.status IS '0 queued, 1 running, 2 completed, 3 failed, 4 canceled, 5 pending';

COMMENT ON COLUMN scheduler.graph_jobs.payload IS 'the whole document; its remainder under the reserved key $remainder';

COMMENT ON COLUMN scheduler.graph_jobs.created_at IS 'createdAt of the document';

COMMENT ON COLUMN scheduler.graph_jobs.updated_at IS 'last change; migrated: completedAt, else startedAt, else createdAt';

COMMENT ON COLUMN scheduler.graph_jobs.correlation_id IS 'id of the request that caused it';

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
    CONSTRAINT ck_handlers_handler_type CHECK ((handler_type = ANY (ARRAY['function'::text, 'agent'::text, 'workflow'::text, 'job_creator'::text, 'celery_task'::text, 'async_function'::text])))
);

ALTER TABLE scheduler.handlers OWNER TO scheduler_migration;

COMMENT ON TABLE scheduler.handlers IS 'Handlers: named code of the application that schedules call.';

COMMENT ON COLUMN scheduler.handlers.id IS 'a new UUID; of a migrated row: computed from tenant, collection and source_id';

COMMENT ON COLUMN scheduler.handlers.tenant_id IS 'owner of the row; *: a global row, which every tenant may read and only some roles may write';

COMMENT ON COLUMN scheduler.handlers.source IS 'profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL';

COMMENT ON COLUMN scheduler.handlers.source_id IS '_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row is found by its computed id. To search by it, build a hash index after the load';

COMMENT ON COLUMN scheduler.handlers.name IS 'unique per tenant';

COMMENT ON COLUMN scheduler.handlers.handler_path IS 'where the application finds the code';

COMMENT ON COLUMN scheduler.handlers.handler_type IS 'how it is called';

COMMENT ON COLUMN scheduler.handlers.queue IS 'default queue of its runs';

COMMENT ON COLUMN scheduler.handlers.default_timeout_ms IS 'timeout of runs whose schedule states none';

COMMENT ON COLUMN scheduler.handlers.is_active IS 'false: must not be scheduled';

COMMENT ON COLUMN scheduler.handlers.is_system IS 'true: it cannot be deleted';

COMMENT ON COLUMN scheduler.handlers.idempotent IS 'true: a second run of one slot does no harm';

COMMENT ON COLUMN scheduler.handlers.extra IS 'remainder: the fields of the document that no column holds, by path, with their types; {}: there are none';

CREATE TABLE scheduler.impact_snapshots (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    run_id uuid,
    snapshot_id text,
    selector jsonb,
    images jsonb,
    usage_only boolean,
    total bigint,
    generated_at timestamp with time zone,
    schema_version text,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT ck_impact_snapshots_times CHECK (((generated_at >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (generated_at < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);

ALTER TABLE scheduler.impact_snapshots OWNER TO scheduler_migration;

COMMENT ON TABLE scheduler.impact_snapshots IS 'A selector and the images that it matched; up to 16 MB a row. It stays when its run is deleted.';

COMMENT ON COLUMN scheduler.impact_snapshots.id IS 'a new UUID; of a migrated row: computed from tenant, collection and source_id';

COMMENT ON COLUMN scheduler.impact_snapshots.tenant_id IS 'owner of the row; *: a global row, which every tenant may read and only some roles may write';

COMMENT ON COLUMN scheduler.impact_snapshots.source IS 'profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL';

COMMENT ON COLUMN scheduler.impact_snapshots.source_id IS '_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row is found by its computed id. To search by it, build a hash index after the load';

COMMENT ON COLUMN scheduler.impact_snapshots.run_id IS 'run; null: the source names none';

COMMENT ON COLUMN scheduler.impact_snapshots.snapshot_id IS 'id of the snapshot in the source';

COMMENT ON COLUMN scheduler.impact_snapshots.selector IS 'which images were requested';

COMMENT ON COLUMN scheduler.impact_snapshots.images IS 'images that matched';

COMMENT ON COLUMN scheduler.impact_snapshots.usage_only IS 'true: only images in use';

COMMENT ON COLUMN scheduler.impact_snapshots.total IS 'number of matches, as the source states it';

COMMENT ON COLUMN scheduler.impact_snapshots.generated_at IS 'when it was made';

COMMENT ON COLUMN scheduler.impact_snapshots.schema_version IS 'version of the source document''s format, as the document states it';

COMMENT ON COLUMN scheduler.impact_snapshots.extra IS 'remainder: the fields of the document that no column holds, by path, with their types; {}: there are none';

CREATE TABLE scheduler.locks (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    key text NOT NULL,
    lock_id bigint NOT NULL,
    owner uuid,
    holder text,
    fence bigint DEFAULT 0 NOT NULL,
    acquired_at timestamp with time zone,
    expires_at timestamp with time zone,
    metadata jsonb,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT ck_locks_counters CHECK ((fence < '9223372036854775807'::bigint)),
    CONSTRAINT ck_locks_key CHECK (starts_with(key, (tenant_id || '/'::text))),
    CONSTRAINT ck_locks_times CHECK (((LEAST(acquired_at, expires_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(acquired_at, expires_at) < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);

ALTER TABLE scheduler.locks OWNER TO scheduler_migration;

COMMENT ON TABLE scheduler.locks IS 'Locks: leases on resources. A released lock keeps its row, so that the fence keeps rising. The key begins with the tenant of the row, so that no tenant takes the lock of another.';

COMMENT ON COLUMN scheduler.locks.id IS 'a new UUID; of a migrated row: computed from tenant, collection and source_id';

COMMENT ON COLUMN scheduler.locks.tenant_id IS 'owner of the row; *: a global row, which every tenant may read and only some roles may write';

COMMENT ON COLUMN scheduler.locks.source IS 'profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL';

COMMENT ON COLUMN scheduler.locks.source_id IS '_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row is found by its computed id. To search by it, build a hash index after the load';

COMMENT ON COLUMN scheduler.locks.key IS '<tenant>/<resource>; the tenant is * for a global lock';

COMMENT ON COLUMN scheduler.locks.lock_id IS '64 bits of SHA-256 of the key: the key of the advisory lock';

COMMENT ON COLUMN scheduler.locks.owner IS 'id of the acquisition; null: the lock is free, or migrated';

COMMENT ON COLUMN scheduler.locks.holder IS 'name of the holder; of a migrated lock its owner';

COMMENT ON COLUMN scheduler.locks.fence IS 'fencing token: rises with every acquisition, also after a release';

COMMENT ON COLUMN scheduler.locks.acquired_at IS 'when it was acquired';

COMMENT ON COLUMN scheduler.locks.expires_at IS 'when it ends unless it is renewed; null: it does not expire';

COMMENT ON COLUMN scheduler.locks.metadata IS 'data of the holder';

COMMENT ON COLUMN scheduler.locks.extra IS 'remainder: the fields of the document that no column holds, by path, with their types; {}: there are none';

CREATE TABLE scheduler.parallel_triggers (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    timing text NOT NULL,
    began_at timestamp with time zone,
    next_fire_at timestamp with time zone,
    last_fire_at timestamp with time zone,
    fire_count bigint DEFAULT 0 NOT NULL,
    CONSTRAINT ck_parallel_triggers_counters CHECK ((fire_count < '9223372036854775807'::bigint)),
    CONSTRAINT ck_parallel_triggers_times CHECK (((LEAST(began_at, next_fire_at, last_fire_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(began_at, next_fire_at, last_fire_at) < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);

ALTER TABLE scheduler.parallel_triggers OWNER TO scheduler_migration;

COMMENT ON TABLE scheduler.parallel_triggers IS 'What triggers that came from the source fire here in a parallel run. The triggers themselves follow the source.';

COMMENT ON COLUMN scheduler.parallel_triggers.id IS 'trigger';

COMMENT ON COLUMN scheduler.parallel_triggers.tenant_id IS 'owner of the row; *: a global row, which every tenant may read and only some roles may write';

COMMENT ON COLUMN scheduler.parallel_triggers.timing IS 'columns of the trigger that say when it fires; if they change, it continues with the next fire of the source';

COMMENT ON COLUMN scheduler.parallel_triggers.began_at IS 'first slot that is fired here; null: none is planned yet';

COMMENT ON COLUMN scheduler.parallel_triggers.next_fire_at IS 'next slot; null if there is none';

COMMENT ON COLUMN scheduler.parallel_triggers.last_fire_at IS 'slot fired last';

COMMENT ON COLUMN scheduler.parallel_triggers.fire_count IS 'fires so far';

CREATE TABLE scheduler.policy_jobs (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    policy_id text NOT NULL,
    policy_version integer,
    mode text,
    priority text,
    status text NOT NULL,
    run_id text,
    inputs jsonb,
    stats jsonb,
    metadata jsonb,
    requested_by text,
    correlation_id text,
    attempt_count integer,
    last_attempt_at timestamp with time zone,
    last_error text,
    available_at timestamp with time zone,
    priority_rank integer,
    lease_owner text,
    lease_expires_at timestamp with time zone,
    queued_at timestamp with time zone,
    started_at timestamp with time zone,
    submitted_at timestamp with time zone,
    finished_at timestamp with time zone,
    cancelled_at timestamp with time zone,
    cancellation_requested boolean,
    cancellation_requested_at timestamp with time zone,
    cancellation_reason text,
    schema_version text,
    created_at timestamp with time zone,
    updated_at timestamp with time zone,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT ck_policy_jobs_counters CHECK ((attempt_count < 2147483647)),
    CONSTRAINT ck_policy_jobs_mode CHECK ((mode = ANY (ARRAY['full'::text, 'incremental'::text, 'simulate'::text]))),
    CONSTRAINT ck_policy_jobs_priority CHECK ((priority = ANY (ARRAY['normal'::text, 'high'::text, 'emergency'::text]))),
    CONSTRAINT ck_policy_jobs_status CHECK ((status = ANY (ARRAY['pending'::text, 'dispatching'::text, 'submitted'::text, 'queued'::text, 'running'::text, 'succeeded'::text, 'completed'::text, 'failed'::text, 'canceled'::text, 'replay_pending'::text]))),
    CONSTRAINT ck_policy_jobs_times CHECK (((LEAST(last_attempt_at, available_at, lease_expires_at, queued_at, started_at, submitted_at, finished_at, cancelled_at, cancellation_requested_at, created_at, updated_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(last_attempt_at, available_at, lease_expires_at, queued_at, started_at, submitted_at, finished_at, cancelled_at, cancellation_requested_at, created_at, updated_at) < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);

ALTER TABLE scheduler.policy_jobs OWNER TO scheduler_migration;

COMMENT ON TABLE scheduler.policy_jobs IS 'Policy runs. The status document and the work item of one run are two rows, which differ in source.';

COMMENT ON COLUMN scheduler.policy_jobs.id IS 'a new UUID; of a migrated row: computed from tenant, collection and source_id';

COMMENT ON COLUMN scheduler.policy_jobs.tenant_id IS 'owner of the row; *: a global row, which every tenant may read and only some roles may write';

COMMENT ON COLUMN scheduler.policy_jobs.source IS 'profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL';

COMMENT ON COLUMN scheduler.policy_jobs.source_id IS '_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row is found by its computed id. To search by it, build a hash index after the load';

COMMENT ON COLUMN scheduler.policy_jobs.policy_id IS 'policy';

COMMENT ON COLUMN scheduler.policy_jobs.policy_version IS 'version of the policy';

COMMENT ON COLUMN scheduler.policy_jobs.mode IS 'full, incremental or simulate';

COMMENT ON COLUMN scheduler.policy_jobs.priority IS 'normal, high or emergency';

COMMENT ON COLUMN scheduler.policy_jobs.status IS 'state of the policy job';

COMMENT ON COLUMN scheduler.policy_jobs.run_id IS 'id of the run in the source; no foreign key';

COMMENT ON COLUMN scheduler.policy_jobs.inputs IS 'input of the job';

COMMENT ON COLUMN scheduler.policy_jobs.stats IS 'counters of a status document';

COMMENT ON COLUMN scheduler.policy_jobs.metadata IS 'data of the application';

COMMENT ON COLUMN scheduler.policy_jobs.requested_by IS 'person or system';

COMMENT ON COLUMN scheduler.policy_jobs.correlation_id IS 'id of the request that caused it';

COMMENT ON COLUMN scheduler.policy_jobs.attempt_count IS 'claims so far';

COMMENT ON COLUMN scheduler.policy_jobs.last_attempt_at IS 'when it was last claimed';

COMMENT ON COLUMN scheduler.policy_jobs.last_error IS 'why the last attempt failed';

COMMENT ON COLUMN scheduler.policy_jobs.available_at IS 'earliest start';

COMMENT ON COLUMN scheduler.policy_jobs.priority_rank IS 'priority as a number, for ordering';

COMMENT ON COLUMN scheduler.policy_jobs.lease_owner IS 'worker that claimed it';

COMMENT ON COLUMN scheduler.policy_jobs.lease_expires_at IS 'when the claim ends unless it is renewed';

COMMENT ON COLUMN scheduler.policy_jobs.queued_at IS 'when it was requested';

COMMENT ON COLUMN scheduler.policy_jobs.started_at IS 'when it first ran';

COMMENT ON COLUMN scheduler.policy_jobs.submitted_at IS 'when it was submitted';

COMMENT ON COLUMN scheduler.policy_jobs.finished_at IS 'when it reached a terminal state; completedAt of a work item';

COMMENT ON COLUMN scheduler.policy_jobs.cancelled_at IS 'when it was cancelled';

COMMENT ON COLUMN scheduler.policy_jobs.cancellation_requested IS 'true: its cancellation was requested; null: the document does not say';

COMMENT ON COLUMN scheduler.policy_jobs.cancellation_requested_at IS 'when that was requested';

COMMENT ON COLUMN scheduler.policy_jobs.cancellation_reason IS 'why it was cancelled';

COMMENT ON COLUMN scheduler.policy_jobs.schema_version IS 'version of the source document''s format, as the document states it';

COMMENT ON COLUMN scheduler.policy_jobs.created_at IS 'when it was created';

COMMENT ON COLUMN scheduler.policy_jobs.updated_at IS 'last change';

COMMENT ON COLUMN scheduler.policy_jobs.extra IS 'remainder: the fields of the document that no column holds, by path, with their types; {}: there are none';

CREATE TABLE scheduler.run_summaries (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    schedule_id uuid,
    updated_at timestamp with time zone,
    last_run jsonb,
    recent jsonb,
    counters jsonb,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT ck_run_summaries_times CHECK (((updated_at >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (updated_at < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);

ALTER TABLE scheduler.run_summaries OWNER TO scheduler_migration;

COMMENT ON TABLE scheduler.run_summaries IS 'Summaries of the runs of a schedule: one row per tenant and schedule, computed from runs.';

COMMENT ON COLUMN scheduler.run_summaries.id IS 'a new UUID; of a migrated row: computed from tenant, collection and source_id';

COMMENT ON COLUMN scheduler.run_summaries.tenant_id IS 'owner of the row; *: a global row, which every tenant may read and only some roles may write';

COMMENT ON COLUMN scheduler.run_summaries.source IS 'profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL';

COMMENT ON COLUMN scheduler.run_summaries.source_id IS '_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row is found by its computed id. To search by it, build a hash index after the load';

COMMENT ON COLUMN scheduler.run_summaries.schedule_id IS 'schedule; no foreign key; null: a migrated summary whose schedule is not stored';

COMMENT ON COLUMN scheduler.run_summaries.updated_at IS 'last change';

COMMENT ON COLUMN scheduler.run_summaries.last_run IS 'newest run';

COMMENT ON COLUMN scheduler.run_summaries.recent IS 'some of the newest runs, newest first';

COMMENT ON COLUMN scheduler.run_summaries.counters IS 'runs by state, and totals';

COMMENT ON COLUMN scheduler.run_summaries.extra IS 'remainder: the fields of the document that no column holds, by path, with their types; {}: there are none';

CREATE TABLE scheduler.runs (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    schedule_id uuid,
    trigger_id uuid,
    run_number integer,
    attempt integer,
    retry_of uuid,
    cause text,
    state text NOT NULL,
    scheduled_at timestamp with time zone,
    available_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    duration_ms bigint,
    worker_id text,
    fence bigint,
    lease_expires_at timestamp with time zone,
    external_task_id text,
    stats jsonb,
    reason jsonb,
    deltas jsonb,
    result jsonb,
    error text,
    error_detail text,
    trace_id text,
    span_id text,
    parent_span_id text,
    triggered_by text,
    dedupe_key text,
    metadata jsonb,
    schema_version text,
    updated_at timestamp with time zone,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    global_schedule boolean DEFAULT false NOT NULL,
    schedule_tenant_id text GENERATED ALWAYS AS (
CASE
    WHEN global_schedule THEN '*'::text
    ELSE tenant_id
END) STORED,
    priority smallint DEFAULT 50 NOT NULL,
    CONSTRAINT ck_runs_attempt CHECK (((trigger_id IS NULL) OR (scheduled_at IS NULL) OR (attempt IS NOT NULL))),
    CONSTRAINT ck_runs_counters CHECK (((run_number < 2147483647) AND (attempt < 2147483647) AND (fence < '9223372036854775807'::bigint))),
    CONSTRAINT ck_runs_duration_ms CHECK ((duration_ms >= 0)),
    CONSTRAINT ck_runs_state CHECK ((state = ANY (ARRAY['planning'::text, 'queued'::text, 'running'::text, 'completed'::text, 'error'::text, 'cancelled'::text, 'timeout'::text, 'skipped'::text]))),
    CONSTRAINT ck_runs_times CHECK (((LEAST(scheduled_at, available_at, created_at, started_at, finished_at, lease_expires_at, updated_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(scheduled_at, available_at, created_at, started_at, finished_at, lease_expires_at, updated_at) < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);

ALTER TABLE scheduler.runs OWNER TO scheduler_migration;

COMMENT ON TABLE scheduler.runs IS 'Runs, from planning to a terminal state. A retry is a row of its own. A schedule or trigger that has runs cannot be deleted. When a run is deleted, retry_of of its retries becomes null.';

COMMENT ON COLUMN scheduler.runs.id IS 'a new UUID; of a migrated row: computed from tenant, collection and source_id';

COMMENT ON COLUMN scheduler.runs.tenant_id IS 'owner of the row; *: a global row, which every tenant may read and only some roles may write';

COMMENT ON COLUMN scheduler.runs.source IS 'profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL';

COMMENT ON COLUMN scheduler.runs.source_id IS '_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row is found by its computed id. To search by it, build a hash index after the load';

COMMENT ON COLUMN scheduler.runs.schedule_id IS 'schedule that ran';

COMMENT ON COLUMN scheduler.runs.trigger_id IS 'trigger that fired';

COMMENT ON COLUMN scheduler.runs.run_number IS 'counts a schedule''s runs; null for migrated StellaOps runs';

COMMENT ON COLUMN scheduler.runs.attempt IS '1 for the first; must be set where trigger_id and scheduled_at are';

COMMENT ON COLUMN scheduler.runs.retry_of IS 'run that this one repeats';

COMMENT ON COLUMN scheduler.runs.cause IS 'why it ran: any text, usually of a known list';

COMMENT ON COLUMN scheduler.runs.state IS 'state of the run';

COMMENT ON COLUMN scheduler.runs.scheduled_at IS 'the slot';

COMMENT ON COLUMN scheduler.runs.available_at IS 'earliest start; later than created_at for a delayed retry';

COMMENT ON COLUMN scheduler.runs.created_at IS 'when it was created; lists are ordered by it';

COMMENT ON COLUMN scheduler.runs.started_at IS 'when it first ran';

COMMENT ON COLUMN scheduler.runs.finished_at IS 'when it reached a terminal state';

COMMENT ON COLUMN scheduler.runs.duration_ms IS 'finished_at minus started_at; null: the dates of the source contradict each other';

COMMENT ON COLUMN scheduler.runs.worker_id IS 'worker that claimed it; a name, no foreign key';

COMMENT ON COLUMN scheduler.runs.fence IS 'fencing token of the claim: a write with an older one is refused';

COMMENT ON COLUMN scheduler.runs.lease_expires_at IS 'when the claim ends unless it is renewed';

COMMENT ON COLUMN scheduler.runs.external_task_id IS 'id of the task in an external queue';

COMMENT ON COLUMN scheduler.runs.stats IS 'counters; never decrease';

COMMENT ON COLUMN scheduler.runs.reason IS 'what requested it';

COMMENT ON COLUMN scheduler.runs.deltas IS 'what changed';

COMMENT ON COLUMN scheduler.runs.result IS 'result of the handler';

COMMENT ON COLUMN scheduler.runs.error IS 'why it failed: one line';

COMMENT ON COLUMN scheduler.runs.error_detail IS 'why it failed: all that is known';

COMMENT ON COLUMN scheduler.runs.trace_id IS 'distributed trace';

COMMENT ON COLUMN scheduler.runs.span_id IS 'span in the trace';

COMMENT ON COLUMN scheduler.runs.parent_span_id IS 'parent span';

COMMENT ON COLUMN scheduler.runs.triggered_by IS 'person or system';

COMMENT ON COLUMN scheduler.runs.dedupe_key IS 'unique per trigger: a second delivery of one event makes no second run';

COMMENT ON COLUMN scheduler.runs.metadata IS 'data of the application';

COMMENT ON COLUMN scheduler.runs.schema_version IS 'version of the source document''s format, as the document states it';

COMMENT ON COLUMN scheduler.runs.updated_at IS 'last change';

COMMENT ON COLUMN scheduler.runs.extra IS 'remainder: the fields of the document that no column holds, by path, with their types; {}: there are none';

COMMENT ON COLUMN scheduler.runs.global_schedule IS 'true: schedule_id and trigger_id refer to rows of the tenant *; false: to rows of the run''s tenant. A run refers to no other global row';

COMMENT ON COLUMN scheduler.runs.schedule_tenant_id IS 'computed: the tenant of the schedule and of the trigger, a part of both foreign keys';

COMMENT ON COLUMN scheduler.runs.priority IS 'priority of the schedule, kept equal by the database while the run is planning or queued; 50 without one';

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
    created_at timestamp with time zone,
    created_by text,
    updated_at timestamp with time zone,
    updated_by text,
    paused_at timestamp with time zone,
    cancelled_at timestamp with time zone,
    completed_at timestamp with time zone,
    deleted_at timestamp with time zone,
    deleted_by text,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT ck_schedules_counters CHECK ((retry_count < 2147483647)),
    CONSTRAINT ck_schedules_handler_type CHECK ((handler_type = ANY (ARRAY['function'::text, 'agent'::text, 'workflow'::text, 'job_creator'::text, 'celery_task'::text, 'async_function'::text]))),
    CONSTRAINT ck_schedules_mode CHECK ((mode = ANY (ARRAY['analysis-only'::text, 'content-refresh'::text]))),
    CONSTRAINT ck_schedules_on_exhausted CHECK ((on_exhausted = ANY (ARRAY['keep'::text, 'stop'::text]))),
    CONSTRAINT ck_schedules_priority CHECK (((priority >= 0) AND (priority <= 100))),
    CONSTRAINT ck_schedules_retry_strategy CHECK ((retry_strategy = ANY (ARRAY['exponential'::text, 'fixed'::text]))),
    CONSTRAINT ck_schedules_status CHECK ((status = ANY (ARRAY['pending'::text, 'scheduled'::text, 'running'::text, 'paused'::text, 'completed'::text, 'failed'::text, 'cancelled'::text]))),
    CONSTRAINT ck_schedules_times CHECK (((LEAST(created_at, updated_at, paused_at, cancelled_at, completed_at, deleted_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(created_at, updated_at, paused_at, cancelled_at, completed_at, deleted_at) < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);

ALTER TABLE scheduler.schedules OWNER TO scheduler_migration;

COMMENT ON TABLE scheduler.schedules IS 'Schedules, one row each. A column that a source may leave out has no default: null means that the source document does not have the field.';

COMMENT ON COLUMN scheduler.schedules.id IS 'a new UUID; of a migrated row: computed from tenant, collection and source_id';

COMMENT ON COLUMN scheduler.schedules.tenant_id IS 'owner of the row; *: a global row, which every tenant may read and only some roles may write';

COMMENT ON COLUMN scheduler.schedules.source IS 'profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL';

COMMENT ON COLUMN scheduler.schedules.source_id IS '_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row is found by its computed id. To search by it, build a hash index after the load';

COMMENT ON COLUMN scheduler.schedules.name IS 'unique among a tenant''s rows with source null that are not deleted; source data may repeat it';

COMMENT ON COLUMN scheduler.schedules.description IS 'free text';

COMMENT ON COLUMN scheduler.schedules.enabled IS 'false: it does not fire, and due queries leave it out';

COMMENT ON COLUMN scheduler.schedules.status IS 'state of the schedule';

COMMENT ON COLUMN scheduler.schedules.mode IS 'StellaOps: analysis-only or content-refresh';

COMMENT ON COLUMN scheduler.schedules.selection IS 'StellaOps: which images';

COMMENT ON COLUMN scheduler.schedules.only_if IS 'StellaOps: conditions';

COMMENT ON COLUMN scheduler.schedules.notify IS 'StellaOps: notifications';

COMMENT ON COLUMN scheduler.schedules.limits IS 'StellaOps: rates and parallelism';

COMMENT ON COLUMN scheduler.schedules.subscribers IS 'who is notified; null: absent in the source';

COMMENT ON COLUMN scheduler.schedules.handler_name IS 'handler that is called; no foreign key, because it may not be registered yet';

COMMENT ON COLUMN scheduler.schedules.handler_type IS 'how it is called';

COMMENT ON COLUMN scheduler.schedules.queue IS 'queue of its runs; null: the default queue';

COMMENT ON COLUMN scheduler.schedules.payload IS 'argument of its runs';

COMMENT ON COLUMN scheduler.schedules.priority IS '0 to 100, higher first (low 25, medium 50, high 75, critical 100); null counts as 50';

COMMENT ON COLUMN scheduler.schedules.max_retries IS 'retries after the first attempt; null: none';

COMMENT ON COLUMN scheduler.schedules.retry_delay_ms IS 'delay before the first retry';

COMMENT ON COLUMN scheduler.schedules.retry_strategy IS 'exponential: the delay doubles; fixed: it stays';

COMMENT ON COLUMN scheduler.schedules.retry_cap_ms IS 'longest delay; null: the source states none';

COMMENT ON COLUMN scheduler.schedules.retry_count IS 'retries made since the last success';

COMMENT ON COLUMN scheduler.schedules.on_exhausted IS 'after the last retry: keep or stop the schedule; null: keep';

COMMENT ON COLUMN scheduler.schedules.timeout_ms IS 'longest duration of a run; null: no limit';

COMMENT ON COLUMN scheduler.schedules.max_concurrency IS 'most runs at the same time; null: no limit';

COMMENT ON COLUMN scheduler.schedules.tags IS 'labels to search by';

COMMENT ON COLUMN scheduler.schedules.metadata IS 'data of the application';

COMMENT ON COLUMN scheduler.schedules.schema_version IS 'version of the source document''s format, as the document states it';

COMMENT ON COLUMN scheduler.schedules.created_at IS 'when it was created';

COMMENT ON COLUMN scheduler.schedules.created_by IS 'by whom';

COMMENT ON COLUMN scheduler.schedules.updated_at IS 'when it was last changed';

COMMENT ON COLUMN scheduler.schedules.updated_by IS 'by whom';

COMMENT ON COLUMN scheduler.schedules.paused_at IS 'when it was paused';

COMMENT ON COLUMN scheduler.schedules.cancelled_at IS 'when it was cancelled';

COMMENT ON COLUMN scheduler.schedules.completed_at IS 'when it fired for the last time';

COMMENT ON COLUMN scheduler.schedules.deleted_at IS 'soft deletion: lists, reads and due queries leave the row out';

COMMENT ON COLUMN scheduler.schedules.deleted_by IS 'by whom';

COMMENT ON COLUMN scheduler.schedules.extra IS 'remainder: the fields of the document that no column holds, by path, with their types; {}: there are none';

CREATE TABLE scheduler.schema_history (
    revision text NOT NULL,
    file text NOT NULL,
    sha256 text NOT NULL,
    applied_at timestamp with time zone NOT NULL,
    tool_version text NOT NULL
);

ALTER TABLE scheduler.schema_history OWNER TO scheduler_migration;

CREATE TABLE scheduler.schema_revision (
    version_num text NOT NULL
);

ALTER TABLE scheduler.schema_revision OWNER TO scheduler_migration;

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
    run_at timestamp with time zone,
    event_name text,
    start_at timestamp with time zone,
    end_at timestamp with time zone,
    max_fires bigint,
    fire_count bigint DEFAULT 0 NOT NULL,
    skip_if_overdue boolean DEFAULT false NOT NULL,
    misfire_policy text,
    misfire_grace_ms bigint,
    enabled boolean DEFAULT true NOT NULL,
    next_fire_at timestamp with time zone,
    last_fire_at timestamp with time zone,
    derived boolean DEFAULT false NOT NULL,
    source_spec jsonb,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    priority smallint DEFAULT 50 NOT NULL,
    CONSTRAINT ck_triggers_anchor CHECK ((anchor = ANY (ARRAY['completion'::text, 'fixed_rate'::text]))),
    CONSTRAINT ck_triggers_counters CHECK ((fire_count < '9223372036854775807'::bigint)),
    CONSTRAINT ck_triggers_event CHECK (((kind <> 'event'::text) OR (next_fire_at IS NULL))),
    CONSTRAINT ck_triggers_interval_ms CHECK ((interval_ms > 0)),
    CONSTRAINT ck_triggers_kind CHECK ((kind = ANY (ARRAY['cron'::text, 'interval'::text, 'one_time'::text, 'event'::text]))),
    CONSTRAINT ck_triggers_kind_columns CHECK ((((kind = 'cron'::text) = (cron_expression IS NOT NULL)) AND ((kind = 'cron'::text) = (cron_dialect IS NOT NULL)) AND ((kind = 'interval'::text) = (interval_ms IS NOT NULL)) AND ((kind = 'interval'::text) = (anchor IS NOT NULL)) AND ((kind = 'one_time'::text) = (run_at IS NOT NULL)) AND ((kind = 'event'::text) = (event_name IS NOT NULL)) AND ((kind <> 'event'::text) OR (timezone IS NULL)))),
    CONSTRAINT ck_triggers_misfire_policy CHECK ((misfire_policy = ANY (ARRAY['fire_once'::text, 'skip'::text, 'fire_all'::text]))),
    CONSTRAINT ck_triggers_period CHECK ((end_at > start_at)),
    CONSTRAINT ck_triggers_times CHECK (((LEAST(run_at, start_at, end_at, next_fire_at, last_fire_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(run_at, start_at, end_at, next_fire_at, last_fire_at) < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);

ALTER TABLE scheduler.triggers OWNER TO scheduler_migration;

COMMENT ON TABLE scheduler.triggers IS 'When a schedule fires. A trigger is deleted with its schedule.';

COMMENT ON COLUMN scheduler.triggers.id IS 'a new UUID; of a migrated row: computed from tenant, collection and source_id';

COMMENT ON COLUMN scheduler.triggers.tenant_id IS 'owner of the row; *: a global row, which every tenant may read and only some roles may write';

COMMENT ON COLUMN scheduler.triggers.source IS 'profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL';

COMMENT ON COLUMN scheduler.triggers.source_id IS '_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row is found by its computed id. To search by it, build a hash index after the load';

COMMENT ON COLUMN scheduler.triggers.schedule_id IS 'schedule that fires';

COMMENT ON COLUMN scheduler.triggers.kind IS 'cron, interval, one_time or event; exactly the columns of the kind are set';

COMMENT ON COLUMN scheduler.triggers.cron_expression IS 'cron: verbatim, never rewritten';

COMMENT ON COLUMN scheduler.triggers.cron_dialect IS 'cron: the engine whose rules evaluate the expression';

COMMENT ON COLUMN scheduler.triggers.timezone IS 'IANA name; null: the source states none; not for events';

COMMENT ON COLUMN scheduler.triggers.interval_ms IS 'interval: its length';

COMMENT ON COLUMN scheduler.triggers.anchor IS 'interval: from the completion of the last run, or at a fixed_rate';

COMMENT ON COLUMN scheduler.triggers.run_at IS 'one_time: when it fires';

COMMENT ON COLUMN scheduler.triggers.event_name IS 'event: name of the event';

COMMENT ON COLUMN scheduler.triggers.start_at IS 'it does not fire earlier';

COMMENT ON COLUMN scheduler.triggers.end_at IS 'it does not fire later';

COMMENT ON COLUMN scheduler.triggers.max_fires IS 'most fires';

COMMENT ON COLUMN scheduler.triggers.fire_count IS 'fires so far';

COMMENT ON COLUMN scheduler.triggers.skip_if_overdue IS 'true: a late fire is skipped';

COMMENT ON COLUMN scheduler.triggers.misfire_policy IS 'what is done about missed fires; null: fire_once';

COMMENT ON COLUMN scheduler.triggers.misfire_grace_ms IS 'a fire that is later than this is missed';

COMMENT ON COLUMN scheduler.triggers.enabled IS 'false: it does not fire';

COMMENT ON COLUMN scheduler.triggers.next_fire_at IS 'next slot; null: there is none; always null for events';

COMMENT ON COLUMN scheduler.triggers.last_fire_at IS 'the last slot that fired';

COMMENT ON COLUMN scheduler.triggers.derived IS 'true: made from many documents in a closing pass, and not encoded into a document';

COMMENT ON COLUMN scheduler.triggers.source_spec IS 'expression as the source states it';

COMMENT ON COLUMN scheduler.triggers.extra IS 'remainder: the fields of the document that no column holds, by path, with their types; {}: there are none';

COMMENT ON COLUMN scheduler.triggers.priority IS 'priority of the schedule, kept equal by the database; 50 without one';

CREATE TABLE scheduler.workers (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    kind text NOT NULL,
    hostname text,
    pid integer,
    version text,
    queues text[],
    capacity integer,
    status text NOT NULL,
    registered_at timestamp with time zone,
    last_heartbeat_at timestamp with time zone,
    metadata jsonb,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT ck_workers_kind CHECK ((kind = ANY (ARRAY['worker'::text, 'scheduler'::text]))),
    CONSTRAINT ck_workers_status CHECK ((status = ANY (ARRAY['active'::text, 'draining'::text, 'stopped'::text, 'dead'::text]))),
    CONSTRAINT ck_workers_times CHECK (((LEAST(registered_at, last_heartbeat_at) >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(registered_at, last_heartbeat_at) < '10000-01-01 00:00:00+00'::timestamp with time zone)))
);

ALTER TABLE scheduler.workers OWNER TO scheduler_migration;

COMMENT ON TABLE scheduler.workers IS 'Worker and scheduler processes, in the tenant *. Which process leads is a lock, not stored here.';

COMMENT ON COLUMN scheduler.workers.id IS 'a new UUID; of a migrated row: computed from tenant, collection and source_id';

COMMENT ON COLUMN scheduler.workers.tenant_id IS 'owner of the row; *: a global row, which every tenant may read and only some roles may write';

COMMENT ON COLUMN scheduler.workers.source IS 'profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL';

COMMENT ON COLUMN scheduler.workers.source_id IS '_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row is found by its computed id. To search by it, build a hash index after the load';

COMMENT ON COLUMN scheduler.workers.kind IS 'worker or scheduler';

COMMENT ON COLUMN scheduler.workers.hostname IS 'host on which it runs';

COMMENT ON COLUMN scheduler.workers.pid IS 'process id on that host';

COMMENT ON COLUMN scheduler.workers.version IS 'version of the program';

COMMENT ON COLUMN scheduler.workers.queues IS 'queues from which it claims';

COMMENT ON COLUMN scheduler.workers.capacity IS 'most runs at the same time';

COMMENT ON COLUMN scheduler.workers.status IS 'active, draining, stopped or dead';

COMMENT ON COLUMN scheduler.workers.registered_at IS 'when it registered';

COMMENT ON COLUMN scheduler.workers.last_heartbeat_at IS 'last heartbeat, by the clock of the database';

COMMENT ON COLUMN scheduler.workers.metadata IS 'data of the process';

COMMENT ON COLUMN scheduler.workers.extra IS 'remainder: the fields of the document that no column holds, by path, with their types; {}: there are none';

ALTER TABLE ONLY scheduler.graph_job_events ALTER COLUMN id SET DEFAULT nextval('scheduler.graph_job_events_id_seq'::regclass);

ALTER TABLE ONLY migration.chunks
    ADD CONSTRAINT pk_chunks PRIMARY KEY (plan_id, collection, ordinal);

ALTER TABLE ONLY migration.control
    ADD CONSTRAINT pk_control PRIMARY KEY (name);

ALTER TABLE ONLY migration.cutover_steps
    ADD CONSTRAINT pk_cutover_steps PRIMARY KEY (cutover_id, step);

ALTER TABLE ONLY migration.cutovers
    ADD CONSTRAINT pk_cutovers PRIMARY KEY (id);

ALTER TABLE ONLY migration.dangling_references
    ADD CONSTRAINT pk_dangling_references PRIMARY KEY (collection, source_key, target_table, target_id);

ALTER TABLE ONLY migration.decisions
    ADD CONSTRAINT pk_decisions PRIMARY KEY (id);

ALTER TABLE ONLY migration.deferred_ddl
    ADD CONSTRAINT pk_deferred_ddl PRIMARY KEY (id);

ALTER TABLE ONLY migration.notes
    ADD CONSTRAINT pk_notes PRIMARY KEY (plan_id, collection, ordinal, class, kind, path);

ALTER TABLE ONLY migration.outbox
    ADD CONSTRAINT pk_outbox PRIMARY KEY (id);

ALTER TABLE ONLY migration.parity_checks
    ADD CONSTRAINT pk_parity_checks PRIMARY KEY (id);

ALTER TABLE ONLY migration.pending_documents
    ADD CONSTRAINT pk_pending_documents PRIMARY KEY (collection, source_key);

ALTER TABLE ONLY migration.pending_links
    ADD CONSTRAINT pk_pending_links PRIMARY KEY (record_table, row_id, tenant_id, column_name);

ALTER TABLE ONLY migration.planned_fires
    ADD CONSTRAINT pk_planned_fires PRIMARY KEY ("position");

ALTER TABLE ONLY migration.plans
    ADD CONSTRAINT pk_plans PRIMARY KEY (id);

ALTER TABLE ONLY migration.quarantine
    ADD CONSTRAINT pk_quarantine PRIMARY KEY (id);

ALTER TABLE ONLY migration.schema_history
    ADD CONSTRAINT pk_schema_history PRIMARY KEY (revision);

ALTER TABLE ONLY migration.schema_revision
    ADD CONSTRAINT pk_schema_revision PRIMARY KEY (version_num);

ALTER TABLE ONLY migration.tail
    ADD CONSTRAINT pk_tail PRIMARY KEY (profile);

ALTER TABLE ONLY migration.tool_runs
    ADD CONSTRAINT pk_tool_runs PRIMARY KEY (id);

ALTER TABLE ONLY scheduler.audit
    ADD CONSTRAINT pk_audit PRIMARY KEY (id, tenant_id);

ALTER TABLE ONLY scheduler.execution_logs
    ADD CONSTRAINT pk_execution_logs PRIMARY KEY (id, tenant_id);

ALTER TABLE ONLY scheduler.graph_job_events
    ADD CONSTRAINT pk_graph_job_events PRIMARY KEY (id, tenant_id);

ALTER TABLE ONLY scheduler.graph_jobs
    ADD CONSTRAINT pk_graph_jobs PRIMARY KEY (id, tenant_id);

ALTER TABLE ONLY scheduler.handlers
    ADD CONSTRAINT pk_handlers PRIMARY KEY (id, tenant_id);

ALTER TABLE ONLY scheduler.impact_snapshots
    ADD CONSTRAINT pk_impact_snapshots PRIMARY KEY (id, tenant_id);

ALTER TABLE ONLY scheduler.locks
    ADD CONSTRAINT pk_locks PRIMARY KEY (id, tenant_id);

ALTER TABLE ONLY scheduler.parallel_triggers
    ADD CONSTRAINT pk_parallel_triggers PRIMARY KEY (id, tenant_id);

ALTER TABLE ONLY scheduler.policy_jobs
    ADD CONSTRAINT pk_policy_jobs PRIMARY KEY (id, tenant_id);

ALTER TABLE ONLY scheduler.run_summaries
    ADD CONSTRAINT pk_run_summaries PRIMARY KEY (id, tenant_id);

ALTER TABLE ONLY scheduler.runs
    ADD CONSTRAINT pk_runs PRIMARY KEY (id, tenant_id);

ALTER TABLE ONLY scheduler.schedules
    ADD CONSTRAINT pk_schedules PRIMARY KEY (id, tenant_id);

ALTER TABLE ONLY scheduler.schema_history
    ADD CONSTRAINT pk_schema_history PRIMARY KEY (revision);

ALTER TABLE ONLY scheduler.schema_revision
    ADD CONSTRAINT pk_schema_revision PRIMARY KEY (version_num);

ALTER TABLE ONLY scheduler.triggers
    ADD CONSTRAINT pk_triggers PRIMARY KEY (id, tenant_id);

ALTER TABLE ONLY scheduler.workers
    ADD CONSTRAINT pk_workers PRIMARY KEY (id, tenant_id);

ALTER TABLE ONLY scheduler.handlers
    ADD CONSTRAINT uq_handlers_name UNIQUE (tenant_id, name);

ALTER TABLE ONLY scheduler.locks
    ADD CONSTRAINT uq_locks_key UNIQUE (key);

CREATE INDEX ix_dangling_references_target ON migration.dangling_references USING btree (target_table, target_id);

CREATE UNIQUE INDEX uq_quarantine_document ON migration.quarantine USING btree (profile, collection, source_key);

CREATE INDEX idx_graph_job_events_job ON scheduler.graph_job_events USING btree (job_id, created_at DESC);

CREATE INDEX idx_graph_jobs_tenant_status ON scheduler.graph_jobs USING btree (tenant_id, status, created_at DESC);

CREATE INDEX idx_graph_jobs_tenant_type_status ON scheduler.graph_jobs USING btree (tenant_id, type, status, created_at DESC);

CREATE INDEX ix_audit_page ON scheduler.audit USING btree (tenant_id, occurred_at DESC, id);

CREATE INDEX ix_execution_logs_run ON scheduler.execution_logs USING btree (run_id, logged_at, id);

CREATE INDEX ix_impact_snapshots_run ON scheduler.impact_snapshots USING btree (run_id, generated_at, id) WHERE (run_id IS NOT NULL);

CREATE INDEX ix_policy_jobs_status ON scheduler.policy_jobs USING btree (tenant_id, status, queued_at DESC, id);

CREATE INDEX ix_runs_open ON scheduler.runs USING btree (state, schedule_id, COALESCE(available_at, created_at), id) WHERE (state = ANY (ARRAY['queued'::text, 'running'::text]));

CREATE INDEX ix_runs_page ON scheduler.runs USING btree (tenant_id, created_at DESC, id);

CREATE INDEX ix_runs_retry_of ON scheduler.runs USING btree (retry_of) WHERE (retry_of IS NOT NULL);

CREATE INDEX ix_runs_schedule ON scheduler.runs USING btree (schedule_id, created_at DESC, id) WHERE (schedule_id IS NOT NULL);

CREATE INDEX ix_runs_trace ON scheduler.runs USING btree (trace_id) WHERE (trace_id IS NOT NULL);

CREATE INDEX ix_runs_waiting ON scheduler.runs USING btree (state, priority DESC, COALESCE(available_at, created_at), id) WHERE (state = ANY (ARRAY['planning'::text, 'queued'::text]));

CREATE INDEX ix_schedules_active ON scheduler.schedules USING btree (tenant_id, name, id) WHERE (enabled AND (deleted_at IS NULL));

CREATE INDEX ix_schedules_creator ON scheduler.schedules USING btree (created_by, tenant_id) WHERE (deleted_at IS NULL);

CREATE INDEX ix_schedules_handler ON scheduler.schedules USING btree (handler_name, tenant_id) WHERE (deleted_at IS NULL);

CREATE INDEX ix_schedules_page ON scheduler.schedules USING btree (tenant_id, created_at DESC NULLS LAST, id) WHERE (deleted_at IS NULL);

CREATE INDEX ix_schedules_status ON scheduler.schedules USING btree (status, tenant_id) WHERE ((deleted_at IS NULL) AND (status <> 'scheduled'::text));

CREATE INDEX ix_schedules_tags ON scheduler.schedules USING gin (tags);

CREATE INDEX ix_triggers_due ON scheduler.triggers USING btree (priority DESC, next_fire_at, id) WHERE (enabled AND (next_fire_at IS NOT NULL));

CREATE INDEX ix_triggers_event ON scheduler.triggers USING btree (event_name, tenant_id, id) WHERE (enabled AND (event_name IS NOT NULL));

CREATE INDEX ix_triggers_kind ON scheduler.triggers USING btree (tenant_id, kind);

CREATE INDEX ix_triggers_next ON scheduler.triggers USING btree (tenant_id, next_fire_at, id) WHERE (enabled AND (next_fire_at IS NOT NULL));

CREATE INDEX ix_triggers_schedule ON scheduler.triggers USING btree (schedule_id);

CREATE UNIQUE INDEX uq_policy_jobs_run ON scheduler.policy_jobs USING btree (tenant_id, source, run_id) NULLS NOT DISTINCT WHERE (run_id IS NOT NULL);

CREATE UNIQUE INDEX uq_run_summaries_schedule ON scheduler.run_summaries USING btree (tenant_id, schedule_id) WHERE (schedule_id IS NOT NULL);

CREATE UNIQUE INDEX uq_runs_dedupe ON scheduler.runs USING btree (trigger_id, dedupe_key, tenant_id) WHERE (dedupe_key IS NOT NULL);

CREATE UNIQUE INDEX uq_runs_number ON scheduler.runs USING btree (schedule_id, run_number, tenant_id) WHERE (run_number IS NOT NULL);

CREATE UNIQUE INDEX uq_runs_slot ON scheduler.runs USING btree (trigger_id, scheduled_at, attempt, tenant_id) WHERE (trigger_id IS NOT NULL);

CREATE UNIQUE INDEX uq_schedules_name ON scheduler.schedules USING btree (tenant_id, name) WHERE ((source IS NULL) AND (deleted_at IS NULL));

CREATE TRIGGER give_priority BEFORE UPDATE OF priority ON scheduler.schedules FOR EACH ROW WHEN ((COALESCE((old.priority)::integer, 50) <> COALESCE((new.priority)::integer, 50))) EXECUTE FUNCTION scheduler.give_priority();

CREATE TRIGGER take_priority AFTER INSERT ON scheduler.runs FOR EACH ROW WHEN ((new.state = ANY (ARRAY['planning'::text, 'queued'::text]))) EXECUTE FUNCTION scheduler.take_priority();

CREATE TRIGGER take_priority AFTER INSERT ON scheduler.triggers FOR EACH ROW EXECUTE FUNCTION scheduler.take_priority();

CREATE TRIGGER take_priority_again AFTER UPDATE OF state, schedule_id, global_schedule ON scheduler.runs FOR EACH ROW WHEN (((new.state = ANY (ARRAY['planning'::text, 'queued'::text])) AND (((old.state IS DISTINCT FROM new.state) OR (old.schedule_id IS DISTINCT FROM new.schedule_id)) OR (old.schedule_tenant_id IS DISTINCT FROM new.schedule_tenant_id)))) EXECUTE FUNCTION scheduler.take_priority();

CREATE TRIGGER take_priority_again AFTER UPDATE OF schedule_id ON scheduler.triggers FOR EACH ROW WHEN ((old.schedule_id <> new.schedule_id)) EXECUTE FUNCTION scheduler.take_priority();

ALTER TABLE ONLY migration.chunks
    ADD CONSTRAINT fk_chunks_plan_id FOREIGN KEY (plan_id) REFERENCES migration.plans(id) ON DELETE CASCADE;

ALTER TABLE ONLY migration.cutover_steps
    ADD CONSTRAINT fk_cutover_steps_cutover_id FOREIGN KEY (cutover_id) REFERENCES migration.cutovers(id) ON DELETE CASCADE;

ALTER TABLE ONLY migration.deferred_ddl
    ADD CONSTRAINT fk_deferred_ddl_plan_id FOREIGN KEY (plan_id) REFERENCES migration.plans(id) ON DELETE SET NULL;

ALTER TABLE ONLY migration.notes
    ADD CONSTRAINT fk_notes_plan_id FOREIGN KEY (plan_id) REFERENCES migration.plans(id) ON DELETE CASCADE;

ALTER TABLE ONLY migration.parity_checks
    ADD CONSTRAINT fk_parity_checks_plan_id FOREIGN KEY (plan_id) REFERENCES migration.plans(id) ON DELETE SET NULL;

ALTER TABLE ONLY migration.quarantine
    ADD CONSTRAINT fk_quarantine_plan_id FOREIGN KEY (plan_id) REFERENCES migration.plans(id) ON DELETE SET NULL;

ALTER TABLE ONLY scheduler.execution_logs
    ADD CONSTRAINT fk_execution_logs_run_id FOREIGN KEY (tenant_id, run_id) REFERENCES scheduler.runs(tenant_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY scheduler.graph_job_events
    ADD CONSTRAINT fk_graph_job_events_job_id FOREIGN KEY (tenant_id, job_id) REFERENCES scheduler.graph_jobs(tenant_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY scheduler.impact_snapshots
    ADD CONSTRAINT fk_impact_snapshots_run_id FOREIGN KEY (tenant_id, run_id) REFERENCES scheduler.runs(tenant_id, id) ON DELETE SET NULL (run_id);

ALTER TABLE ONLY scheduler.runs
    ADD CONSTRAINT fk_runs_retry_of FOREIGN KEY (tenant_id, retry_of) REFERENCES scheduler.runs(tenant_id, id) ON DELETE SET NULL (retry_of);

ALTER TABLE ONLY scheduler.runs
    ADD CONSTRAINT fk_runs_schedule_id FOREIGN KEY (schedule_tenant_id, schedule_id) REFERENCES scheduler.schedules(tenant_id, id);

ALTER TABLE ONLY scheduler.runs
    ADD CONSTRAINT fk_runs_trigger_id FOREIGN KEY (schedule_tenant_id, trigger_id) REFERENCES scheduler.triggers(tenant_id, id);

ALTER TABLE ONLY scheduler.triggers
    ADD CONSTRAINT fk_triggers_schedule_id FOREIGN KEY (tenant_id, schedule_id) REFERENCES scheduler.schedules(tenant_id, id) ON DELETE CASCADE;

ALTER TABLE scheduler.audit ENABLE ROW LEVEL SECURITY;

CREATE POLICY dispatcher_all ON scheduler.audit TO scheduler_dispatcher USING (true) WITH CHECK (true);

CREATE POLICY dispatcher_all ON scheduler.execution_logs TO scheduler_dispatcher USING (true) WITH CHECK (true);

CREATE POLICY dispatcher_all ON scheduler.graph_job_events TO scheduler_dispatcher USING (true) WITH CHECK (true);

CREATE POLICY dispatcher_all ON scheduler.graph_jobs TO scheduler_dispatcher USING (true) WITH CHECK (true);

CREATE POLICY dispatcher_all ON scheduler.handlers TO scheduler_dispatcher USING (true) WITH CHECK (true);

CREATE POLICY dispatcher_all ON scheduler.impact_snapshots TO scheduler_dispatcher USING (true) WITH CHECK (true);

CREATE POLICY dispatcher_all ON scheduler.locks TO scheduler_dispatcher USING (true) WITH CHECK (true);

CREATE POLICY dispatcher_all ON scheduler.parallel_triggers TO scheduler_dispatcher USING (true) WITH CHECK (true);

CREATE POLICY dispatcher_all ON scheduler.policy_jobs TO scheduler_dispatcher USING (true) WITH CHECK (true);

CREATE POLICY dispatcher_all ON scheduler.run_summaries TO scheduler_dispatcher USING (true) WITH CHECK (true);

CREATE POLICY dispatcher_all ON scheduler.runs TO scheduler_dispatcher USING (true) WITH CHECK (true);

CREATE POLICY dispatcher_all ON scheduler.schedules TO scheduler_dispatcher USING (true) WITH CHECK (true);

CREATE POLICY dispatcher_all ON scheduler.triggers TO scheduler_dispatcher USING (true) WITH CHECK (true);

CREATE POLICY dispatcher_all ON scheduler.workers TO scheduler_dispatcher USING (true) WITH CHECK (true);

ALTER TABLE scheduler.execution_logs ENABLE ROW LEVEL SECURITY;

ALTER TABLE scheduler.graph_job_events ENABLE ROW LEVEL SECURITY;

ALTER TABLE scheduler.graph_jobs ENABLE ROW LEVEL SECURITY;

ALTER TABLE scheduler.handlers ENABLE ROW LEVEL SECURITY;

ALTER TABLE scheduler.impact_snapshots ENABLE ROW LEVEL SECURITY;

ALTER TABLE scheduler.locks ENABLE ROW LEVEL SECURITY;

ALTER TABLE scheduler.parallel_triggers ENABLE ROW LEVEL SECURITY;

ALTER TABLE scheduler.policy_jobs ENABLE ROW LEVEL SECURITY;

ALTER TABLE scheduler.run_summaries ENABLE ROW LEVEL SECURITY;

ALTER TABLE scheduler.runs ENABLE ROW LEVEL SECURITY;

ALTER TABLE scheduler.schedules ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant_delete ON scheduler.execution_logs FOR DELETE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_delete ON scheduler.graph_job_events FOR DELETE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_delete ON scheduler.graph_jobs FOR DELETE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_delete ON scheduler.handlers FOR DELETE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_delete ON scheduler.impact_snapshots FOR DELETE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_delete ON scheduler.parallel_triggers FOR DELETE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_delete ON scheduler.policy_jobs FOR DELETE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_delete ON scheduler.run_summaries FOR DELETE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_delete ON scheduler.runs FOR DELETE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_delete ON scheduler.schedules FOR DELETE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_delete ON scheduler.triggers FOR DELETE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_insert ON scheduler.audit FOR INSERT TO scheduler_service WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_insert ON scheduler.execution_logs FOR INSERT TO scheduler_service WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_insert ON scheduler.graph_job_events FOR INSERT TO scheduler_service WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_insert ON scheduler.graph_jobs FOR INSERT TO scheduler_service WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_insert ON scheduler.handlers FOR INSERT TO scheduler_service WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_insert ON scheduler.impact_snapshots FOR INSERT TO scheduler_service WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_insert ON scheduler.parallel_triggers FOR INSERT TO scheduler_service WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_insert ON scheduler.policy_jobs FOR INSERT TO scheduler_service WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_insert ON scheduler.run_summaries FOR INSERT TO scheduler_service WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_insert ON scheduler.runs FOR INSERT TO scheduler_service WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_insert ON scheduler.schedules FOR INSERT TO scheduler_service WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_insert ON scheduler.triggers FOR INSERT TO scheduler_service WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_read ON scheduler.audit FOR SELECT TO scheduler_service USING ((tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text),
CASE
    WHEN (NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL) THEN NULL::text
    ELSE '*'::text
END])));

CREATE POLICY tenant_read ON scheduler.execution_logs FOR SELECT TO scheduler_service USING ((tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text),
CASE
    WHEN (NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL) THEN NULL::text
    ELSE '*'::text
END])));

CREATE POLICY tenant_read ON scheduler.graph_job_events FOR SELECT TO scheduler_service USING ((tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text),
CASE
    WHEN (NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL) THEN NULL::text
    ELSE '*'::text
END])));

CREATE POLICY tenant_read ON scheduler.graph_jobs FOR SELECT TO scheduler_service USING ((tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text),
CASE
    WHEN (NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL) THEN NULL::text
    ELSE '*'::text
END])));

CREATE POLICY tenant_read ON scheduler.handlers FOR SELECT TO scheduler_service USING ((tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text),
CASE
    WHEN (NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL) THEN NULL::text
    ELSE '*'::text
END])));

CREATE POLICY tenant_read ON scheduler.impact_snapshots FOR SELECT TO scheduler_service USING ((tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text),
CASE
    WHEN (NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL) THEN NULL::text
    ELSE '*'::text
END])));

CREATE POLICY tenant_read ON scheduler.locks FOR SELECT TO scheduler_service USING ((tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text),
CASE
    WHEN (NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL) THEN NULL::text
    ELSE '*'::text
END])));

CREATE POLICY tenant_read ON scheduler.parallel_triggers FOR SELECT TO scheduler_service USING ((tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text),
CASE
    WHEN (NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL) THEN NULL::text
    ELSE '*'::text
END])));

CREATE POLICY tenant_read ON scheduler.policy_jobs FOR SELECT TO scheduler_service USING ((tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text),
CASE
    WHEN (NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL) THEN NULL::text
    ELSE '*'::text
END])));

CREATE POLICY tenant_read ON scheduler.run_summaries FOR SELECT TO scheduler_service USING ((tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text),
CASE
    WHEN (NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL) THEN NULL::text
    ELSE '*'::text
END])));

CREATE POLICY tenant_read ON scheduler.runs FOR SELECT TO scheduler_service USING ((tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text),
CASE
    WHEN (NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL) THEN NULL::text
    ELSE '*'::text
END])));

CREATE POLICY tenant_read ON scheduler.schedules FOR SELECT TO scheduler_service USING ((tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text),
CASE
    WHEN (NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL) THEN NULL::text
    ELSE '*'::text
END])));

CREATE POLICY tenant_read ON scheduler.triggers FOR SELECT TO scheduler_service USING ((tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text),
CASE
    WHEN (NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL) THEN NULL::text
    ELSE '*'::text
END])));

CREATE POLICY tenant_read ON scheduler.workers FOR SELECT TO scheduler_service USING ((tenant_id = ANY (ARRAY[NULLIF(current_setting('app.tenant_id'::text, true), ''::text),
CASE
    WHEN (NULLIF(current_setting('app.tenant_id'::text, true), ''::text) IS NULL) THEN NULL::text
    ELSE '*'::text
END])));

CREATE POLICY tenant_update ON scheduler.execution_logs FOR UPDATE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text))) WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_update ON scheduler.graph_job_events FOR UPDATE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text))) WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_update ON scheduler.graph_jobs FOR UPDATE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text))) WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_update ON scheduler.handlers FOR UPDATE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text))) WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_update ON scheduler.impact_snapshots FOR UPDATE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text))) WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_update ON scheduler.parallel_triggers FOR UPDATE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text))) WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_update ON scheduler.policy_jobs FOR UPDATE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text))) WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_update ON scheduler.run_summaries FOR UPDATE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text))) WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_update ON scheduler.runs FOR UPDATE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text))) WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_update ON scheduler.schedules FOR UPDATE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text))) WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

CREATE POLICY tenant_update ON scheduler.triggers FOR UPDATE TO scheduler_service USING (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text))) WITH CHECK (((tenant_id = NULLIF(current_setting('app.tenant_id'::text, true), ''::text)) AND (tenant_id <> '*'::text)));

ALTER TABLE scheduler.triggers ENABLE ROW LEVEL SECURITY;

ALTER TABLE scheduler.workers ENABLE ROW LEVEL SECURITY;

GRANT USAGE ON SCHEMA scheduler TO scheduler_service;
GRANT USAGE ON SCHEMA scheduler TO scheduler_dispatcher;

REVOKE ALL ON FUNCTION scheduler.give_priority() FROM PUBLIC;

REVOKE ALL ON FUNCTION scheduler.schedules_with_any_tag(wanted text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION scheduler.schedules_with_any_tag(wanted text[]) TO scheduler_service;

REVOKE ALL ON FUNCTION scheduler.schedules_with_every_tag(wanted text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION scheduler.schedules_with_every_tag(wanted text[]) TO scheduler_service;

REVOKE ALL ON FUNCTION scheduler.take_priority() FROM PUBLIC;

GRANT SELECT,INSERT ON TABLE scheduler.audit TO scheduler_service;
GRANT SELECT,INSERT ON TABLE scheduler.audit TO scheduler_dispatcher;

GRANT SELECT,INSERT ON TABLE scheduler.execution_logs TO scheduler_service;
GRANT SELECT,INSERT ON TABLE scheduler.execution_logs TO scheduler_dispatcher;

GRANT UPDATE(source) ON TABLE scheduler.execution_logs TO scheduler_service;
GRANT UPDATE(source) ON TABLE scheduler.execution_logs TO scheduler_dispatcher;

GRANT UPDATE(source_id) ON TABLE scheduler.execution_logs TO scheduler_service;
GRANT UPDATE(source_id) ON TABLE scheduler.execution_logs TO scheduler_dispatcher;

GRANT UPDATE(run_id) ON TABLE scheduler.execution_logs TO scheduler_service;
GRANT UPDATE(run_id) ON TABLE scheduler.execution_logs TO scheduler_dispatcher;

GRANT UPDATE(schedule_id) ON TABLE scheduler.execution_logs TO scheduler_service;
GRANT UPDATE(schedule_id) ON TABLE scheduler.execution_logs TO scheduler_dispatcher;

GRANT UPDATE(logged_at) ON TABLE scheduler.execution_logs TO scheduler_service;
GRANT UPDATE(logged_at) ON TABLE scheduler.execution_logs TO scheduler_dispatcher;

GRANT UPDATE(level) ON TABLE scheduler.execution_logs TO scheduler_service;
GRANT UPDATE(level) ON TABLE scheduler.execution_logs TO scheduler_dispatcher;

GRANT UPDATE(message) ON TABLE scheduler.execution_logs TO scheduler_service;
GRANT UPDATE(message) ON TABLE scheduler.execution_logs TO scheduler_dispatcher;

GRANT UPDATE(context) ON TABLE scheduler.execution_logs TO scheduler_service;
GRANT UPDATE(context) ON TABLE scheduler.execution_logs TO scheduler_dispatcher;

GRANT UPDATE(extra) ON TABLE scheduler.execution_logs TO scheduler_service;
GRANT UPDATE(extra) ON TABLE scheduler.execution_logs TO scheduler_dispatcher;

GRANT SELECT,INSERT ON TABLE scheduler.graph_job_events TO scheduler_service;
GRANT SELECT,INSERT ON TABLE scheduler.graph_job_events TO scheduler_dispatcher;

GRANT UPDATE(job_id) ON TABLE scheduler.graph_job_events TO scheduler_service;
GRANT UPDATE(job_id) ON TABLE scheduler.graph_job_events TO scheduler_dispatcher;

GRANT UPDATE(status) ON TABLE scheduler.graph_job_events TO scheduler_service;
GRANT UPDATE(status) ON TABLE scheduler.graph_job_events TO scheduler_dispatcher;

GRANT UPDATE(payload) ON TABLE scheduler.graph_job_events TO scheduler_service;
GRANT UPDATE(payload) ON TABLE scheduler.graph_job_events TO scheduler_dispatcher;

GRANT UPDATE(created_at) ON TABLE scheduler.graph_job_events TO scheduler_service;
GRANT UPDATE(created_at) ON TABLE scheduler.graph_job_events TO scheduler_dispatcher;

GRANT USAGE ON SEQUENCE scheduler.graph_job_events_id_seq TO scheduler_service;
GRANT USAGE ON SEQUENCE scheduler.graph_job_events_id_seq TO scheduler_dispatcher;

GRANT SELECT,INSERT ON TABLE scheduler.graph_jobs TO scheduler_service;
GRANT SELECT,INSERT ON TABLE scheduler.graph_jobs TO scheduler_dispatcher;

GRANT UPDATE(type) ON TABLE scheduler.graph_jobs TO scheduler_service;
GRANT UPDATE(type) ON TABLE scheduler.graph_jobs TO scheduler_dispatcher;

GRANT UPDATE(status) ON TABLE scheduler.graph_jobs TO scheduler_service;
GRANT UPDATE(status) ON TABLE scheduler.graph_jobs TO scheduler_dispatcher;

GRANT UPDATE(payload) ON TABLE scheduler.graph_jobs TO scheduler_service;
GRANT UPDATE(payload) ON TABLE scheduler.graph_jobs TO scheduler_dispatcher;

GRANT UPDATE(created_at) ON TABLE scheduler.graph_jobs TO scheduler_service;
GRANT UPDATE(created_at) ON TABLE scheduler.graph_jobs TO scheduler_dispatcher;

GRANT UPDATE(updated_at) ON TABLE scheduler.graph_jobs TO scheduler_service;
GRANT UPDATE(updated_at) ON TABLE scheduler.graph_jobs TO scheduler_dispatcher;

GRANT UPDATE(correlation_id) ON TABLE scheduler.graph_jobs TO scheduler_service;
GRANT UPDATE(correlation_id) ON TABLE scheduler.graph_jobs TO scheduler_dispatcher;

GRANT SELECT,INSERT,DELETE ON TABLE scheduler.handlers TO scheduler_service;
GRANT SELECT,INSERT ON TABLE scheduler.handlers TO scheduler_dispatcher;

GRANT UPDATE(source) ON TABLE scheduler.handlers TO scheduler_service;
GRANT UPDATE(source) ON TABLE scheduler.handlers TO scheduler_dispatcher;

GRANT UPDATE(source_id) ON TABLE scheduler.handlers TO scheduler_service;
GRANT UPDATE(source_id) ON TABLE scheduler.handlers TO scheduler_dispatcher;

GRANT UPDATE(name) ON TABLE scheduler.handlers TO scheduler_service;
GRANT UPDATE(name) ON TABLE scheduler.handlers TO scheduler_dispatcher;

GRANT UPDATE(handler_path) ON TABLE scheduler.handlers TO scheduler_service;
GRANT UPDATE(handler_path) ON TABLE scheduler.handlers TO scheduler_dispatcher;

GRANT UPDATE(handler_type) ON TABLE scheduler.handlers TO scheduler_service;
GRANT UPDATE(handler_type) ON TABLE scheduler.handlers TO scheduler_dispatcher;

GRANT UPDATE(queue) ON TABLE scheduler.handlers TO scheduler_service;
GRANT UPDATE(queue) ON TABLE scheduler.handlers TO scheduler_dispatcher;

GRANT UPDATE(default_timeout_ms) ON TABLE scheduler.handlers TO scheduler_service;
GRANT UPDATE(default_timeout_ms) ON TABLE scheduler.handlers TO scheduler_dispatcher;

GRANT UPDATE(is_active) ON TABLE scheduler.handlers TO scheduler_service;
GRANT UPDATE(is_active) ON TABLE scheduler.handlers TO scheduler_dispatcher;

GRANT UPDATE(is_system) ON TABLE scheduler.handlers TO scheduler_service;
GRANT UPDATE(is_system) ON TABLE scheduler.handlers TO scheduler_dispatcher;

GRANT UPDATE(idempotent) ON TABLE scheduler.handlers TO scheduler_service;
GRANT UPDATE(idempotent) ON TABLE scheduler.handlers TO scheduler_dispatcher;

GRANT UPDATE(extra) ON TABLE scheduler.handlers TO scheduler_service;
GRANT UPDATE(extra) ON TABLE scheduler.handlers TO scheduler_dispatcher;

GRANT SELECT,INSERT ON TABLE scheduler.impact_snapshots TO scheduler_service;
GRANT SELECT,INSERT ON TABLE scheduler.impact_snapshots TO scheduler_dispatcher;

GRANT UPDATE(source) ON TABLE scheduler.impact_snapshots TO scheduler_service;
GRANT UPDATE(source) ON TABLE scheduler.impact_snapshots TO scheduler_dispatcher;

GRANT UPDATE(source_id) ON TABLE scheduler.impact_snapshots TO scheduler_service;
GRANT UPDATE(source_id) ON TABLE scheduler.impact_snapshots TO scheduler_dispatcher;

GRANT UPDATE(run_id) ON TABLE scheduler.impact_snapshots TO scheduler_service;
GRANT UPDATE(run_id) ON TABLE scheduler.impact_snapshots TO scheduler_dispatcher;

GRANT UPDATE(snapshot_id) ON TABLE scheduler.impact_snapshots TO scheduler_service;
GRANT UPDATE(snapshot_id) ON TABLE scheduler.impact_snapshots TO scheduler_dispatcher;

GRANT UPDATE(selector) ON TABLE scheduler.impact_snapshots TO scheduler_service;
GRANT UPDATE(selector) ON TABLE scheduler.impact_snapshots TO scheduler_dispatcher;

GRANT UPDATE(images) ON TABLE scheduler.impact_snapshots TO scheduler_service;
GRANT UPDATE(images) ON TABLE scheduler.impact_snapshots TO scheduler_dispatcher;

GRANT UPDATE(usage_only) ON TABLE scheduler.impact_snapshots TO scheduler_service;
GRANT UPDATE(usage_only) ON TABLE scheduler.impact_snapshots TO scheduler_dispatcher;

GRANT UPDATE(total) ON TABLE scheduler.impact_snapshots TO scheduler_service;
GRANT UPDATE(total) ON TABLE scheduler.impact_snapshots TO scheduler_dispatcher;

GRANT UPDATE(generated_at) ON TABLE scheduler.impact_snapshots TO scheduler_service;
GRANT UPDATE(generated_at) ON TABLE scheduler.impact_snapshots TO scheduler_dispatcher;

GRANT UPDATE(schema_version) ON TABLE scheduler.impact_snapshots TO scheduler_service;
GRANT UPDATE(schema_version) ON TABLE scheduler.impact_snapshots TO scheduler_dispatcher;

GRANT UPDATE(extra) ON TABLE scheduler.impact_snapshots TO scheduler_service;
GRANT UPDATE(extra) ON TABLE scheduler.impact_snapshots TO scheduler_dispatcher;

GRANT SELECT ON TABLE scheduler.locks TO scheduler_service;
GRANT SELECT,INSERT ON TABLE scheduler.locks TO scheduler_dispatcher;

GRANT UPDATE(source) ON TABLE scheduler.locks TO scheduler_dispatcher;

GRANT UPDATE(source_id) ON TABLE scheduler.locks TO scheduler_dispatcher;

GRANT UPDATE(key) ON TABLE scheduler.locks TO scheduler_dispatcher;

GRANT UPDATE(lock_id) ON TABLE scheduler.locks TO scheduler_dispatcher;

GRANT UPDATE(owner) ON TABLE scheduler.locks TO scheduler_dispatcher;

GRANT UPDATE(holder) ON TABLE scheduler.locks TO scheduler_dispatcher;

GRANT UPDATE(fence) ON TABLE scheduler.locks TO scheduler_dispatcher;

GRANT UPDATE(acquired_at) ON TABLE scheduler.locks TO scheduler_dispatcher;

GRANT UPDATE(expires_at) ON TABLE scheduler.locks TO scheduler_dispatcher;

GRANT UPDATE(metadata) ON TABLE scheduler.locks TO scheduler_dispatcher;

GRANT UPDATE(extra) ON TABLE scheduler.locks TO scheduler_dispatcher;

GRANT SELECT,INSERT ON TABLE scheduler.parallel_triggers TO scheduler_service;
GRANT SELECT,INSERT ON TABLE scheduler.parallel_triggers TO scheduler_dispatcher;

GRANT UPDATE(timing) ON TABLE scheduler.parallel_triggers TO scheduler_service;
GRANT UPDATE(timing) ON TABLE scheduler.parallel_triggers TO scheduler_dispatcher;

GRANT UPDATE(began_at) ON TABLE scheduler.parallel_triggers TO scheduler_service;
GRANT UPDATE(began_at) ON TABLE scheduler.parallel_triggers TO scheduler_dispatcher;

GRANT UPDATE(next_fire_at) ON TABLE scheduler.parallel_triggers TO scheduler_service;
GRANT UPDATE(next_fire_at) ON TABLE scheduler.parallel_triggers TO scheduler_dispatcher;

GRANT UPDATE(last_fire_at) ON TABLE scheduler.parallel_triggers TO scheduler_service;
GRANT UPDATE(last_fire_at) ON TABLE scheduler.parallel_triggers TO scheduler_dispatcher;

GRANT UPDATE(fire_count) ON TABLE scheduler.parallel_triggers TO scheduler_service;
GRANT UPDATE(fire_count) ON TABLE scheduler.parallel_triggers TO scheduler_dispatcher;

GRANT SELECT,INSERT ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT SELECT,INSERT ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(source) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(source) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(source_id) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(source_id) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(policy_id) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(policy_id) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(policy_version) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(policy_version) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(mode) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(mode) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(priority) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(priority) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(status) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(status) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(run_id) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(run_id) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(inputs) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(inputs) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(stats) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(stats) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(metadata) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(metadata) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(requested_by) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(requested_by) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(correlation_id) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(correlation_id) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(attempt_count) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(attempt_count) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(last_attempt_at) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(last_attempt_at) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(last_error) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(last_error) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(available_at) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(available_at) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(priority_rank) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(priority_rank) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(lease_owner) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(lease_owner) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(lease_expires_at) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(lease_expires_at) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(queued_at) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(queued_at) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(started_at) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(started_at) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(submitted_at) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(submitted_at) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(finished_at) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(finished_at) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(cancelled_at) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(cancelled_at) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(cancellation_requested) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(cancellation_requested) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(cancellation_requested_at) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(cancellation_requested_at) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(cancellation_reason) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(cancellation_reason) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(schema_version) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(schema_version) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(created_at) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(created_at) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(updated_at) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(updated_at) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT UPDATE(extra) ON TABLE scheduler.policy_jobs TO scheduler_service;
GRANT UPDATE(extra) ON TABLE scheduler.policy_jobs TO scheduler_dispatcher;

GRANT SELECT,INSERT ON TABLE scheduler.run_summaries TO scheduler_service;
GRANT SELECT,INSERT ON TABLE scheduler.run_summaries TO scheduler_dispatcher;

GRANT UPDATE(source) ON TABLE scheduler.run_summaries TO scheduler_service;
GRANT UPDATE(source) ON TABLE scheduler.run_summaries TO scheduler_dispatcher;

GRANT UPDATE(source_id) ON TABLE scheduler.run_summaries TO scheduler_service;
GRANT UPDATE(source_id) ON TABLE scheduler.run_summaries TO scheduler_dispatcher;

GRANT UPDATE(schedule_id) ON TABLE scheduler.run_summaries TO scheduler_service;
GRANT UPDATE(schedule_id) ON TABLE scheduler.run_summaries TO scheduler_dispatcher;

GRANT UPDATE(updated_at) ON TABLE scheduler.run_summaries TO scheduler_service;
GRANT UPDATE(updated_at) ON TABLE scheduler.run_summaries TO scheduler_dispatcher;

GRANT UPDATE(last_run) ON TABLE scheduler.run_summaries TO scheduler_service;
GRANT UPDATE(last_run) ON TABLE scheduler.run_summaries TO scheduler_dispatcher;

GRANT UPDATE(recent) ON TABLE scheduler.run_summaries TO scheduler_service;
GRANT UPDATE(recent) ON TABLE scheduler.run_summaries TO scheduler_dispatcher;

GRANT UPDATE(counters) ON TABLE scheduler.run_summaries TO scheduler_service;
GRANT UPDATE(counters) ON TABLE scheduler.run_summaries TO scheduler_dispatcher;

GRANT UPDATE(extra) ON TABLE scheduler.run_summaries TO scheduler_service;
GRANT UPDATE(extra) ON TABLE scheduler.run_summaries TO scheduler_dispatcher;

GRANT SELECT,INSERT,DELETE ON TABLE scheduler.runs TO scheduler_service;
GRANT SELECT,INSERT ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(source) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(source) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(source_id) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(source_id) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(schedule_id) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(schedule_id) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(trigger_id) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(trigger_id) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(run_number) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(run_number) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(attempt) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(attempt) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(retry_of) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(retry_of) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(cause) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(cause) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(state) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(state) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(scheduled_at) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(scheduled_at) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(available_at) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(available_at) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(created_at) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(created_at) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(started_at) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(started_at) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(finished_at) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(finished_at) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(duration_ms) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(duration_ms) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(worker_id) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(worker_id) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(fence) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(fence) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(lease_expires_at) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(lease_expires_at) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(external_task_id) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(external_task_id) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(stats) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(stats) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(reason) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(reason) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(deltas) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(deltas) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(result) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(result) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(error) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(error) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(error_detail) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(error_detail) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(trace_id) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(trace_id) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(span_id) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(span_id) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(parent_span_id) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(parent_span_id) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(triggered_by) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(triggered_by) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(dedupe_key) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(dedupe_key) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(metadata) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(metadata) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(schema_version) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(schema_version) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(updated_at) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(updated_at) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(extra) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(extra) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(global_schedule) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(global_schedule) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT UPDATE(priority) ON TABLE scheduler.runs TO scheduler_service;
GRANT UPDATE(priority) ON TABLE scheduler.runs TO scheduler_dispatcher;

GRANT SELECT,INSERT ON TABLE scheduler.schedules TO scheduler_service;
GRANT SELECT,INSERT ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(source) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(source) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(source_id) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(source_id) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(name) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(name) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(description) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(description) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(enabled) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(enabled) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(status) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(status) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(mode) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(mode) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(selection) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(selection) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(only_if) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(only_if) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(notify) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(notify) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(limits) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(limits) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(subscribers) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(subscribers) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(handler_name) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(handler_name) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(handler_type) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(handler_type) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(queue) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(queue) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(payload) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(payload) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(priority) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(priority) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(max_retries) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(max_retries) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(retry_delay_ms) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(retry_delay_ms) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(retry_strategy) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(retry_strategy) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(retry_cap_ms) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(retry_cap_ms) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(retry_count) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(retry_count) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(on_exhausted) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(on_exhausted) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(timeout_ms) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(timeout_ms) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(max_concurrency) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(max_concurrency) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(tags) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(tags) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(metadata) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(metadata) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(schema_version) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(schema_version) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(created_at) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(created_at) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(created_by) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(created_by) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(updated_at) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(updated_at) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(updated_by) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(updated_by) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(paused_at) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(paused_at) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(cancelled_at) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(cancelled_at) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(completed_at) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(completed_at) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(deleted_at) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(deleted_at) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(deleted_by) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(deleted_by) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT UPDATE(extra) ON TABLE scheduler.schedules TO scheduler_service;
GRANT UPDATE(extra) ON TABLE scheduler.schedules TO scheduler_dispatcher;

GRANT SELECT,INSERT,DELETE ON TABLE scheduler.triggers TO scheduler_service;
GRANT SELECT,INSERT ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(source) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(source) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(source_id) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(source_id) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(schedule_id) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(schedule_id) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(kind) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(kind) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(cron_expression) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(cron_expression) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(cron_dialect) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(cron_dialect) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(timezone) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(timezone) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(interval_ms) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(interval_ms) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(anchor) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(anchor) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(run_at) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(run_at) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(event_name) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(event_name) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(start_at) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(start_at) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(end_at) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(end_at) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(max_fires) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(max_fires) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(fire_count) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(fire_count) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(skip_if_overdue) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(skip_if_overdue) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(misfire_policy) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(misfire_policy) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(misfire_grace_ms) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(misfire_grace_ms) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(enabled) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(enabled) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(next_fire_at) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(next_fire_at) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(last_fire_at) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(last_fire_at) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(derived) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(derived) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(source_spec) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(source_spec) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(extra) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(extra) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT UPDATE(priority) ON TABLE scheduler.triggers TO scheduler_service;
GRANT UPDATE(priority) ON TABLE scheduler.triggers TO scheduler_dispatcher;

GRANT SELECT ON TABLE scheduler.workers TO scheduler_service;
GRANT SELECT,INSERT,DELETE ON TABLE scheduler.workers TO scheduler_dispatcher;

GRANT UPDATE(source) ON TABLE scheduler.workers TO scheduler_dispatcher;

GRANT UPDATE(source_id) ON TABLE scheduler.workers TO scheduler_dispatcher;

GRANT UPDATE(kind) ON TABLE scheduler.workers TO scheduler_dispatcher;

GRANT UPDATE(hostname) ON TABLE scheduler.workers TO scheduler_dispatcher;

GRANT UPDATE(pid) ON TABLE scheduler.workers TO scheduler_dispatcher;

GRANT UPDATE(version) ON TABLE scheduler.workers TO scheduler_dispatcher;

GRANT UPDATE(queues) ON TABLE scheduler.workers TO scheduler_dispatcher;

GRANT UPDATE(capacity) ON TABLE scheduler.workers TO scheduler_dispatcher;

GRANT UPDATE(status) ON TABLE scheduler.workers TO scheduler_dispatcher;

GRANT UPDATE(registered_at) ON TABLE scheduler.workers TO scheduler_dispatcher;

GRANT UPDATE(last_heartbeat_at) ON TABLE scheduler.workers TO scheduler_dispatcher;

GRANT UPDATE(metadata) ON TABLE scheduler.workers TO scheduler_dispatcher;

GRANT UPDATE(extra) ON TABLE scheduler.workers TO scheduler_dispatcher;
