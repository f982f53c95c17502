-- What APScheduler 3.11.3's SQLAlchemyJobStore makes on PostgreSQL.
CREATE TABLE apscheduler_jobs (
    id varchar(191) PRIMARY KEY,
    next_run_time double precision,
    job_state bytea NOT NULL
);
CREATE INDEX ix_apscheduler_jobs_next_run_time ON apscheduler_jobs (next_run_time);
