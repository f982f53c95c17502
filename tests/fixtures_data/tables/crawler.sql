-- The tables of north-cloud's crawler: migrations 001, 003 (with its triggers) and 007. Migration 003 fails on rows that are
-- enabled or processing; the CHECKs are added here before there is a row.
CREATE TABLE jobs (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    source_id varchar(255) NOT NULL,
    source_name varchar(255),
    url text NOT NULL,
    schedule_time varchar(50),
    schedule_enabled boolean DEFAULT false,
    status varchar(50) NOT NULL DEFAULT 'pending',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    completed_at timestamptz,
    error_message text,
    interval_minutes integer,
    interval_type varchar(20) DEFAULT 'minutes',
    next_run_at timestamptz,
    is_paused boolean DEFAULT false,
    max_retries integer DEFAULT 3,
    retry_backoff_seconds integer DEFAULT 60,
    current_retry_count integer DEFAULT 0,
    lock_token uuid,
    lock_acquired_at timestamptz,
    paused_at timestamptz,
    cancelled_at timestamptz,
    metadata jsonb DEFAULT '{}',
    CONSTRAINT valid_status CHECK (status IN ('pending', 'scheduled', 'running', 'paused', 'cancelled', 'completed', 'failed')),
    CONSTRAINT valid_interval CHECK ((interval_minutes IS NULL AND schedule_enabled = false) OR interval_minutes > 0),
    CONSTRAINT valid_interval_type CHECK (interval_type IN ('minutes', 'hours', 'days'))
);
CREATE INDEX idx_jobs_source_id ON jobs (source_id);
CREATE INDEX idx_jobs_created_at ON jobs (created_at DESC);
CREATE INDEX idx_jobs_next_run_at ON jobs (next_run_at) WHERE next_run_at IS NOT NULL AND is_paused = false;
CREATE INDEX idx_jobs_lock_token ON jobs (lock_token) WHERE lock_token IS NOT NULL;
CREATE INDEX idx_jobs_schedule_enabled ON jobs (schedule_enabled) WHERE schedule_enabled;
CREATE INDEX idx_jobs_status ON jobs (status) WHERE status IN ('pending', 'scheduled', 'running');

CREATE TABLE job_executions (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    job_id uuid NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    execution_number integer NOT NULL,
    status varchar(50) NOT NULL CHECK (status IN ('running', 'completed', 'failed', 'cancelled')),
    started_at timestamptz NOT NULL DEFAULT now(),
    completed_at timestamptz,
    duration_ms bigint,
    items_crawled integer DEFAULT 0,
    items_indexed integer DEFAULT 0,
    error_message text,
    stack_trace text,
    cpu_time_ms bigint,
    memory_peak_mb integer,
    retry_attempt integer DEFAULT 0,
    metadata jsonb DEFAULT '{}',
    log_object_key text,
    log_size_bytes bigint,
    log_line_count integer
);
CREATE INDEX idx_job_executions_job_id ON job_executions (job_id);
CREATE INDEX idx_job_executions_started_at ON job_executions (started_at DESC);
CREATE INDEX idx_job_executions_status ON job_executions (status);
CREATE INDEX idx_job_executions_job_status ON job_executions (job_id, status);

CREATE FUNCTION calculate_next_run_at() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.schedule_enabled AND NOT NEW.is_paused AND NEW.interval_minutes IS NOT NULL THEN
        IF NEW.next_run_at IS NULL OR NEW.next_run_at < now() THEN
            CASE NEW.interval_type
                WHEN 'minutes' THEN NEW.next_run_at := now() + NEW.interval_minutes * interval '1 minute';
                WHEN 'hours' THEN NEW.next_run_at := now() + NEW.interval_minutes * interval '1 hour';
                WHEN 'days' THEN NEW.next_run_at := now() + NEW.interval_minutes * interval '1 day';
            END CASE;
        END IF;
    ELSIF NOT NEW.schedule_enabled OR NEW.is_paused THEN
        NEW.next_run_at := NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION calculate_execution_duration() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.completed_at IS NOT NULL THEN
        NEW.duration_ms := round(extract(epoch FROM NEW.completed_at - NEW.started_at) * 1000);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER calculate_next_run_at BEFORE INSERT OR UPDATE ON jobs
    FOR EACH ROW EXECUTE FUNCTION calculate_next_run_at();
CREATE TRIGGER calculate_execution_duration BEFORE UPDATE ON job_executions
    FOR EACH ROW EXECUTE FUNCTION calculate_execution_duration();
