-- The tables of agentic-sdlc's orchestrator, as Prisma's migration makes them.
CREATE TYPE "JobType" AS ENUM ('cron', 'one_time', 'recurring', 'event');
CREATE TYPE "JobStatus" AS ENUM ('pending', 'active', 'paused', 'completed', 'failed', 'cancelled');
CREATE TYPE "ExecutionStatus" AS ENUM ('pending', 'running', 'success', 'failed', 'timeout', 'cancelled', 'skipped');
CREATE TYPE "Priority" AS ENUM ('low', 'medium', 'high', 'critical');
CREATE TABLE "Platform" ("id" text PRIMARY KEY);
CREATE TABLE "ScheduledJob" (
    "id" text PRIMARY KEY,
    "name" text NOT NULL,
    "description" text,
    "type" "JobType" NOT NULL,
    "status" "JobStatus" NOT NULL,
    "schedule" text,
    "timezone" text NOT NULL DEFAULT 'UTC',
    "next_run" timestamp(3),
    "last_run" timestamp(3),
    "start_date" timestamp(3),
    "end_date" timestamp(3),
    "max_executions" integer,
    "handler_name" text NOT NULL,
    "handler_type" text NOT NULL DEFAULT 'function',
    "payload" jsonb,
    "max_retries" integer NOT NULL DEFAULT 3,
    "retry_delay_ms" integer NOT NULL DEFAULT 60000,
    "timeout_ms" integer NOT NULL DEFAULT 300000,
    "priority" "Priority" NOT NULL DEFAULT 'medium',
    "concurrency" integer NOT NULL DEFAULT 1,
    "allow_overlap" boolean NOT NULL DEFAULT false,
    "executions_count" integer NOT NULL DEFAULT 0,
    "success_count" integer NOT NULL DEFAULT 0,
    "failure_count" integer NOT NULL DEFAULT 0,
    "avg_duration_ms" integer,
    "tags" text[],
    "metadata" jsonb,
    "platform_id" text REFERENCES "Platform" ("id") ON DELETE CASCADE,
    "created_by" text NOT NULL,
    "created_at" timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "updated_at" timestamp(3) NOT NULL,
    "completed_at" timestamp(3),
    "cancelled_at" timestamp(3)
);
CREATE TABLE "JobExecution" (
    "id" text PRIMARY KEY,
    "job_id" text NOT NULL REFERENCES "ScheduledJob" ("id") ON DELETE CASCADE,
    "status" "ExecutionStatus" NOT NULL,
    "scheduled_at" timestamp(3) NOT NULL,
    "started_at" timestamp(3),
    "completed_at" timestamp(3),
    "duration_ms" integer,
    "result" jsonb,
    "error" text,
    "error_stack" text,
    "retry_count" integer NOT NULL DEFAULT 0,
    "max_retries" integer NOT NULL DEFAULT 3,
    "next_retry_at" timestamp(3),
    "worker_id" text,
    "metadata" jsonb,
    "trace_id" text,
    "span_id" text,
    "parent_span_id" text,
    "created_at" timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE TABLE "JobExecutionLog" (
    "id" text PRIMARY KEY,
    "execution_id" text NOT NULL REFERENCES "JobExecution" ("id") ON DELETE CASCADE,
    "timestamp" timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "level" text NOT NULL,
    "message" text NOT NULL,
    "context" jsonb
);
CREATE TABLE "EventHandler" (
    "id" text PRIMARY KEY,
    "event_name" text NOT NULL,
    "handler_name" text NOT NULL,
    "handler_type" text NOT NULL DEFAULT 'function',
    "enabled" boolean NOT NULL DEFAULT true,
    "priority" integer NOT NULL DEFAULT 5,
    "action_type" text,
    "action_config" jsonb,
    "platform_id" text REFERENCES "Platform" ("id") ON DELETE CASCADE,
    "trigger_count" integer NOT NULL DEFAULT 0,
    "success_count" integer NOT NULL DEFAULT 0,
    "failure_count" integer NOT NULL DEFAULT 0,
    "created_at" timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "last_triggered" timestamp(3)
);
