-- The five tables of support-center, as Alembic makes them, and the rows that its migrations seed.
CREATE TABLE users (id uuid PRIMARY KEY);
CREATE TABLE scheduler_job_types (
    id integer PRIMARY KEY,
    name varchar(50) NOT NULL UNIQUE,
    display_name varchar(100) NOT NULL,
    description varchar(500),
    is_active boolean NOT NULL
);
CREATE TABLE task_functions (
    id integer PRIMARY KEY,
    name varchar(100) NOT NULL UNIQUE,
    display_name varchar(200) NOT NULL,
    description varchar(500),
    handler_path varchar(500) NOT NULL,
    handler_type varchar(20) NOT NULL,
    queue varchar(50),
    default_timeout_seconds integer NOT NULL,
    is_active boolean NOT NULL,
    is_system boolean NOT NULL,
    created_at timestamp NOT NULL,
    updated_at timestamp NOT NULL
);
CREATE TABLE scheduled_jobs (
    id uuid PRIMARY KEY,
    name varchar(200) NOT NULL,
    description varchar(500),
    task_function_id integer NOT NULL REFERENCES task_functions (id),
    job_type_id integer NOT NULL REFERENCES scheduler_job_types (id),
    schedule_config json NOT NULL,
    task_args json,
    max_instances integer NOT NULL,
    timeout_seconds integer NOT NULL,
    retry_count integer NOT NULL,
    retry_delay_seconds integer NOT NULL,
    is_enabled boolean NOT NULL,
    is_paused boolean NOT NULL,
    next_run_time timestamp,
    last_run_time timestamp,
    last_status varchar(20),
    created_by uuid REFERENCES users (id) ON DELETE SET NULL,
    updated_by uuid REFERENCES users (id) ON DELETE SET NULL,
    created_at timestamp NOT NULL,
    updated_at timestamp NOT NULL
);
CREATE TABLE scheduler_instances (
    id uuid PRIMARY KEY,
    hostname varchar(255) NOT NULL,
    pid integer NOT NULL,
    is_leader boolean NOT NULL,
    leader_since timestamp,
    last_heartbeat timestamp NOT NULL,
    started_at timestamp NOT NULL,
    version varchar(50) NOT NULL
);
CREATE TABLE scheduled_job_executions (
    id uuid PRIMARY KEY,
    job_id uuid NOT NULL REFERENCES scheduled_jobs (id) ON DELETE CASCADE,
    celery_task_id varchar(100),
    status varchar(20) NOT NULL,
    started_at timestamp NOT NULL DEFAULT now(),
    completed_at timestamp,
    duration_seconds integer,
    result json,
    error_message varchar(2000),
    error_traceback text,
    triggered_by varchar(50) NOT NULL,
    triggered_by_user_id uuid REFERENCES users (id),
    scheduler_instance_id uuid REFERENCES scheduler_instances (id) ON DELETE SET NULL
);
INSERT INTO scheduler_job_types VALUES
    (1, 'interval', 'Interval', 'at a distance', true),
    (2, 'cron', 'Cron', 'by calendar', true);
INSERT INTO task_functions VALUES
    (1, 'sync_domain_users', 'Sync', NULL, 'tasks.ad.sync_domain_users_task', 'celery_task', 'ad_queue', 300, true, true,
     '2026-01-15 14:54', '2026-01-15 14:54'),
    (2, 'cleanup_stale_deployment_jobs', 'Deployment', NULL, 'tasks.Cleaner.run', 'async_function', NULL, 60, true, true,
     '2026-01-15 14:54', '2026-01-15 14:54');
INSERT INTO scheduled_jobs (id, name, task_function_id, job_type_id, schedule_config, task_args, max_instances,
    timeout_seconds, retry_count, retry_delay_seconds, is_enabled, is_paused, created_at, updated_at)
VALUES
    ('00000000-0000-0000-0000-000000000001', 'Domain User Sync (Hourly)', 1, 1, '{"hours": 1, "minutes": 0, "seconds": 0}',
     NULL, 1, 300, 3, 60, true, false, '2026-01-15 14:54', '2026-01-15 14:54'),
    ('00000000-0000-0000-0000-000000000004', 'Deployment Job Cleanup (30s)', 2, 1,
     '{"hours": 0, "minutes": 0, "seconds": 30}', NULL, 1, 60, 3, 60, true, false, '2026-01-15 14:54', '2026-01-15 14:54');
