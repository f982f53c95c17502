"""Describe columns and tables in the words of the glossary; a payload holds its remainder under ``$remainder``."""

from collections.abc import Iterator
from typing import Final

from alembic import op

revision = "0018"
down_revision = "0016"
branch_labels = None
depends_on = None

TABLES = ()
"""Makes no table."""

COMMENTS: Final = (
    (
        "handlers",
        "",
        "Handlers: named code of the application that schedules call.",
        "Named pieces of code that schedules call; the bodies are the application's.",
    ),
    (
        (
            "handlers schedules triggers runs execution_logs impact_snapshots run_summaries policy_jobs workers "
            "locks audit"
        ),
        "id",
        "a new UUID; of a migrated row: computed from tenant, collection and source_id",
        "computed from tenant, collection and source_id; how a row is found again",
    ),
    (
        (
            "handlers schedules triggers runs execution_logs impact_snapshots run_summaries policy_jobs workers "
            "locks audit graph_jobs graph_job_events"
        ),
        "tenant_id",
        "owner of the row; *: a global row, which every tenant may read and only some roles may write",
        "owner of the row; * is global: visible to all, written only by roles that may",
    ),
    (
        (
            "handlers schedules triggers runs execution_logs impact_snapshots run_summaries policy_jobs workers "
            "locks audit"
        ),
        "source",
        "profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL",
        "profile and collection (stellaops/runs); null for a row born here",
    ),
    (
        (
            "handlers schedules triggers runs execution_logs impact_snapshots run_summaries policy_jobs workers "
            "locks audit"
        ),
        "source_id",
        (
            "_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row "
            "is found by its computed id. To search by it, build a hash index after the load"
        ),
        (
            "the document's _id: a plain string verbatim, any other as canonical Extended JSON; not indexed, since "
            "a row is found by its computed id: who searches by it may build a hash index after the load"
        ),
    ),
    (
        "handlers",
        "handler_path",
        "where the application finds the code",
        "where the application finds its body",
    ),
    (
        "handlers",
        "default_timeout_ms",
        "timeout of runs whose schedule states none",
        "timeout where the schedule states none",
    ),
    (
        "handlers",
        "is_active",
        "false: must not be scheduled",
        "may be scheduled",
    ),
    (
        "handlers",
        "is_system",
        "true: it cannot be deleted",
        "its deletion is refused",
    ),
    (
        "handlers",
        "idempotent",
        "true: a second run of one slot does no harm",
        "a second run of one slot does no harm",
    ),
    (
        (
            "handlers schedules triggers runs execution_logs impact_snapshots run_summaries policy_jobs workers "
            "locks audit"
        ),
        "extra",
        "remainder: the fields of the document that no column holds, by path, with their types; {}: there are none",
        "residue: what of the source document no column carries, typed, by path; {} for a clean document",
    ),
    (
        "schedules",
        "",
        (
            "Schedules, one row each. A column that a source may leave out has no default: null means that the "
            "source document does not have the field."
        ),
        (
            "What runs: one row per schedule, whatever makes it fire. A column that a source may leave out is null "
            "rather than a default, so that absent and stated stay two things."
        ),
    ),
    (
        "schedules",
        "name",
        "unique among a tenant's rows with source null that are not deleted; source data may repeat it",
        "unique among a tenant's rows born here and not deleted; source data may repeat it",
    ),
    (
        "schedules",
        "enabled",
        "false: it does not fire, and due queries leave it out",
        "fires; a disabled schedule is left out of due queries",
    ),
    (
        "schedules",
        "status",
        "state of the schedule",
        "state of the schedule machine",
    ),
    (
        "schedules",
        "notify",
        "StellaOps: notifications",
        "StellaOps: when to tell whom",
    ),
    (
        "schedules",
        "subscribers",
        "who is notified; null: absent in the source",
        "who is told; null is absent, empty is empty",
    ),
    (
        "schedules",
        "handler_name",
        "handler that is called; no foreign key, because it may not be registered yet",
        "what to call; a name, no reference: the handler may not be registered yet",
    ),
    (
        "schedules",
        "queue",
        "queue of its runs; null: the default queue",
        "queue of its runs; null is the default one",
    ),
    (
        "schedules",
        "max_retries",
        "retries after the first attempt; null: none",
        "retries after the first attempt; null is none",
    ),
    (
        "schedules",
        "retry_cap_ms",
        "longest delay; null: the source states none",
        "longest delay; null where a source names none",
    ),
    (
        "schedules",
        "on_exhausted",
        "after the last retry: keep or stop the schedule; null: keep",
        "after the last retry: keep the schedule or stop it; null is keep",
    ),
    (
        "schedules",
        "timeout_ms",
        "longest duration of a run; null: no limit",
        "longest duration of a run; null is none",
    ),
    (
        "schedules",
        "max_concurrency",
        "most runs at the same time; null: no limit",
        "runs at the same time; null: they may overlap",
    ),
    (
        "schedules runs policy_jobs",
        "metadata",
        "data of the application",
        "whatever the owner adds",
    ),
    (
        "schedules runs impact_snapshots policy_jobs",
        "schema_version",
        "version of the source document's format, as the document states it",
        "version of the source document's shape; old ones are not upgraded",
    ),
    (
        "schedules policy_jobs",
        "created_at",
        "when it was created",
        "when it was made",
    ),
    (
        "schedules",
        "deleted_at",
        "soft deletion: lists, reads and due queries leave the row out",
        "when it was softly deleted: lists, gets and due queries leave it out",
    ),
    (
        "triggers",
        "",
        "When a schedule fires. A trigger is deleted with its schedule.",
        "When a schedule fires. Goes with its schedule.",
    ),
    (
        "triggers",
        "schedule_id",
        "schedule that fires",
        "what fires",
    ),
    (
        "triggers",
        "timezone",
        "IANA name; null: the source states none; not for events",
        "IANA name; null where a source names none; not for events",
    ),
    (
        "triggers",
        "interval_ms",
        "interval: its length",
        "interval: the only unit",
    ),
    (
        "triggers",
        "anchor",
        "interval: from the completion of the last run, or at a fixed_rate",
        "interval: counted from the completion of the last run, or at a fixed_rate",
    ),
    (
        "triggers",
        "run_at",
        "one_time: when it fires",
        "one_time: when",
    ),
    (
        "triggers",
        "event_name",
        "event: name of the event",
        "event: which",
    ),
    (
        "triggers",
        "start_at",
        "it does not fire earlier",
        "no fire before",
    ),
    (
        "triggers",
        "end_at",
        "it does not fire later",
        "no fire after",
    ),
    (
        "triggers",
        "max_fires",
        "most fires",
        "no more fires than so many",
    ),
    (
        "triggers",
        "skip_if_overdue",
        "true: a late fire is skipped",
        "a fire that is late is skipped",
    ),
    (
        "triggers",
        "misfire_policy",
        "what is done about missed fires; null: fire_once",
        "what to do with missed fires; null is fire_once",
    ),
    (
        "triggers",
        "misfire_grace_ms",
        "a fire that is later than this is missed",
        "later than so much counts as missed",
    ),
    (
        "triggers",
        "enabled",
        "false: it does not fire",
        "fires",
    ),
    (
        "triggers",
        "next_fire_at",
        "next slot; null: there is none; always null for events",
        "the next slot; null: none is due; never set for events",
    ),
    (
        "triggers",
        "derived",
        "true: made from many documents in a closing pass, and not encoded into a document",
        "made in a closing pass from many documents; not encoded back",
    ),
    (
        "triggers",
        "source_spec",
        "expression as the source states it",
        "the original expression verbatim",
    ),
    (
        "triggers",
        "priority",
        "priority of the schedule, kept equal by the database; 50 without one",
        "of the schedule, kept equal by the database; a schedule without one counts as 50",
    ),
    (
        "runs",
        "",
        (
            "Runs, from planning to a terminal state. A retry is a row of its own. A schedule or trigger that has "
            "runs cannot be deleted. When a run is deleted, retry_of of its retries becomes null."
        ),
        (
            "Executions, from planning to a terminal state; a retry is a row of its own. A schedule or trigger that "
            "has runs is not deleted from under them; a run whose original is removed keeps a null retry_of."
        ),
    ),
    (
        "runs",
        "schedule_id",
        "schedule that ran",
        "what ran",
    ),
    (
        "runs",
        "trigger_id",
        "trigger that fired",
        "what made it run",
    ),
    (
        "runs",
        "retry_of",
        "run that this one repeats",
        "the run this one repeats",
    ),
    (
        "runs",
        "cause",
        "why it ran: any text, usually of a known list",
        "why it ran: open text with a known list",
    ),
    (
        "runs",
        "state",
        "state of the run",
        "state of the run machine",
    ),
    (
        "runs",
        "available_at",
        "earliest start; later than created_at for a delayed retry",
        "not before; carries the delay of a retry",
    ),
    (
        "runs",
        "created_at",
        "when it was created; lists are ordered by it",
        "when it was made; lists go by it",
    ),
    (
        "runs policy_jobs",
        "started_at",
        "when it first ran",
        "first running",
    ),
    (
        "runs",
        "finished_at",
        "when it reached a terminal state",
        "terminal",
    ),
    (
        "runs",
        "duration_ms",
        "finished_at minus started_at; null: the dates of the source contradict each other",
        "finished less started; null where the source's dates contradict each other",
    ),
    (
        "runs",
        "worker_id",
        "worker that claimed it; a name, no foreign key",
        "who has claimed it; a name, no reference",
    ),
    (
        "runs",
        "fence",
        "fencing token of the claim: a write with an older one is refused",
        "fence of the claim: a write with an older one is refused",
    ),
    (
        "runs policy_jobs",
        "lease_expires_at",
        "when the claim ends unless it is renewed",
        "the claim ends unless renewed",
    ),
    (
        "runs",
        "external_task_id",
        "id of the task in an external queue",
        "its name in an outside queue",
    ),
    (
        "runs",
        "reason",
        "what requested it",
        "what asked for it",
    ),
    (
        "runs",
        "result",
        "result of the handler",
        "what it gave",
    ),
    (
        "runs",
        "error",
        "why it failed: one line",
        "why it failed, in short",
    ),
    (
        "runs",
        "error_detail",
        "why it failed: all that is known",
        "why it failed, in full",
    ),
    (
        "runs",
        "parent_span_id",
        "parent span",
        "span above it",
    ),
    (
        "runs",
        "global_schedule",
        (
            "true: schedule_id and trigger_id refer to rows of the tenant *; false: to rows of the run's tenant. A "
            "run refers to no other global row"
        ),
        (
            "schedule_id and trigger_id name rows of the tenant *; else rows of the own tenant. Of what is global, "
            "a run refers to nothing else"
        ),
    ),
    (
        "runs",
        "schedule_tenant_id",
        "computed: the tenant of the schedule and of the trigger, a part of both foreign keys",
        "computed: the tenant of the schedule and of the trigger, half of both foreign keys",
    ),
    (
        "runs",
        "priority",
        "priority of the schedule, kept equal by the database while the run is planning or queued; 50 without one",
        "of the schedule, kept equal by the database while the run is planning or queued; 50 without one",
    ),
    (
        "execution_logs",
        "",
        "Lines of the logs of runs. They are deleted with their run.",
        "Lines of the runs' logs; they go with their run.",
    ),
    (
        "execution_logs",
        "run_id",
        "run of the line; null: the source does not have the run any more",
        "whose line; null when the run was gone before the move",
    ),
    (
        "execution_logs",
        "schedule_id",
        "schedule of the run; no foreign key, because lines stay when a schedule is deleted",
        "no foreign key: the line outlives the schedule",
    ),
    (
        "execution_logs",
        "logged_at",
        "when the line was written",
        "when",
    ),
    (
        "execution_logs",
        "message",
        "text of the line",
        "what",
    ),
    (
        "execution_logs",
        "context",
        "data of the line",
        "with what",
    ),
    (
        "impact_snapshots",
        "",
        "A selector and the images that it matched; up to 16 MB a row. It stays when its run is deleted.",
        "A selector and the images it matched; up to 16 MB a row. Outlives its run.",
    ),
    (
        "impact_snapshots",
        "run_id",
        "run; null: the source names none",
        "for which run, where one is named",
    ),
    (
        "impact_snapshots",
        "snapshot_id",
        "id of the snapshot in the source",
        "the source's own name of it",
    ),
    (
        "impact_snapshots",
        "selector",
        "which images were requested",
        "what was asked for",
    ),
    (
        "impact_snapshots",
        "images",
        "images that matched",
        "what matched",
    ),
    (
        "impact_snapshots",
        "usage_only",
        "true: only images in use",
        "only images in use",
    ),
    (
        "impact_snapshots",
        "total",
        "number of matches, as the source states it",
        "how many matched, as the source says",
    ),
    (
        "impact_snapshots",
        "generated_at",
        "when it was made",
        "when",
    ),
    (
        "run_summaries",
        "",
        "Summaries of the runs of a schedule: one row per tenant and schedule, computed from runs.",
        "Projection of a schedule's runs: one row per tenant and schedule, always recomputable from runs.",
    ),
    (
        "run_summaries",
        "schedule_id",
        "schedule; no foreign key; null: a migrated summary whose schedule is not stored",
        "of which schedule; no foreign key; null for a migrated summary whose schedule is not stored",
    ),
    (
        "run_summaries",
        "last_run",
        "newest run",
        "the newest run",
    ),
    (
        "run_summaries",
        "recent",
        "some of the newest runs, newest first",
        "bounded, newest first",
    ),
    (
        "policy_jobs",
        "",
        "Policy runs. The status document and the work item of one run are two rows, which differ in source.",
        "Policy runs. The status document and the work item of one run are two rows, told apart by source.",
    ),
    (
        "policy_jobs",
        "policy_id",
        "policy",
        "which policy",
    ),
    (
        "policy_jobs",
        "policy_version",
        "version of the policy",
        "which version of it",
    ),
    (
        "policy_jobs",
        "status",
        "state of the policy job",
        "state of the policy job machine",
    ),
    (
        "policy_jobs",
        "run_id",
        "id of the run in the source; no foreign key",
        "the source's own name of the run: text, no reference",
    ),
    (
        "policy_jobs",
        "inputs",
        "input of the job",
        "what it works on",
    ),
    (
        "policy_jobs graph_jobs",
        "correlation_id",
        "id of the request that caused it",
        "of the request that asked for it",
    ),
    (
        "policy_jobs",
        "available_at",
        "earliest start",
        "not before",
    ),
    (
        "policy_jobs",
        "lease_owner",
        "worker that claimed it",
        "who has claimed it",
    ),
    (
        "policy_jobs",
        "queued_at",
        "when it was requested",
        "when it was asked for",
    ),
    (
        "policy_jobs",
        "submitted_at",
        "when it was submitted",
        "when it was handed on",
    ),
    (
        "policy_jobs",
        "finished_at",
        "when it reached a terminal state; completedAt of a work item",
        "terminal; a work item's completedAt",
    ),
    (
        "policy_jobs",
        "cancellation_requested",
        "true: its cancellation was requested; null: the document does not say",
        "somebody asked to cancel it; null where the document does not say",
    ),
    (
        "policy_jobs",
        "cancellation_requested_at",
        "when that was requested",
        "when",
    ),
    (
        "policy_jobs",
        "cancellation_reason",
        "why it was cancelled",
        "why",
    ),
    (
        "workers",
        "",
        "Worker and scheduler processes, in the tenant *. Which process leads is a lock, not stored here.",
        "Worker and scheduler processes, under the tenant *. Who leads is derived from locks, not stored here.",
    ),
    (
        "workers",
        "hostname",
        "host on which it runs",
        "where it runs",
    ),
    (
        "workers",
        "pid",
        "process id on that host",
        "process on that host",
    ),
    (
        "workers",
        "version",
        "version of the program",
        "of the program",
    ),
    (
        "workers",
        "queues",
        "queues from which it claims",
        "what it takes",
    ),
    (
        "workers",
        "capacity",
        "most runs at the same time",
        "runs at the same time",
    ),
    (
        "workers",
        "registered_at",
        "when it registered",
        "when it came",
    ),
    (
        "workers",
        "last_heartbeat_at",
        "last heartbeat, by the clock of the database",
        "when it last spoke, by the database's clock",
    ),
    (
        "workers",
        "metadata",
        "data of the process",
        "whatever it adds",
    ),
    (
        "locks",
        "",
        (
            "Locks: leases on resources. A released lock keeps its row, so that the fence keeps rising. The key "
            "begins with the tenant of the row, so that no tenant takes the lock of another."
        ),
        (
            "Leases on resources. The row outlives the lock, so that the fence keeps rising. The key begins with "
            "the row's tenant: nobody takes another tenant's lock."
        ),
    ),
    (
        "locks",
        "key",
        "<tenant>/<resource>; the tenant is * for a global lock",
        "<tenant>/<resource>, the tenant * for global ones",
    ),
    (
        "locks",
        "lock_id",
        "64 bits of SHA-256 of the key: the key of the advisory lock",
        "64 bits of SHA-256 of the key: the advisory lock, the same in every process",
    ),
    (
        "locks",
        "owner",
        "id of the acquisition; null: the lock is free, or migrated",
        "one per acquire; null when free, and for migrated locks",
    ),
    (
        "locks",
        "holder",
        "name of the holder; of a migrated lock its owner",
        "who, in words; a migrated lock's owner text",
    ),
    (
        "locks",
        "fence",
        "fencing token: rises with every acquisition, also after a release",
        "rises with every acquire, also after release",
    ),
    (
        "locks",
        "acquired_at",
        "when it was acquired",
        "when it was taken",
    ),
    (
        "locks",
        "expires_at",
        "when it ends unless it is renewed; null: it does not expire",
        "when it ends unless renewed; null: without expiry, thus live",
    ),
    (
        "locks",
        "metadata",
        "data of the holder",
        "whatever the holder adds",
    ),
    (
        "audit",
        "",
        "Audit trail: append only. It has no foreign keys, because entries stay when their object is deleted.",
        "Audit trail: append only, without foreign keys, since it outlives what it tells of.",
    ),
    (
        "audit",
        "category",
        "kind of entry",
        "of what kind",
    ),
    (
        "audit",
        "occurred_at",
        "when it was done",
        "when",
    ),
    (
        "audit",
        "actor",
        "person or system that did it",
        "by whom",
    ),
    (
        "audit",
        "entity_id",
        "id of the object, as text of the source",
        "to what: the source's text, whatever it names",
    ),
    (
        "audit",
        "schedule_id",
        "schedule that it concerns; no foreign key",
        "concerning which schedule; no foreign key",
    ),
    (
        "audit",
        "run_id",
        "run that it concerns; no foreign key",
        "concerning which run; no foreign key",
    ),
    (
        "audit",
        "correlation_id",
        "id of the request that caused it",
        "of the request",
    ),
    (
        "audit",
        "message",
        "description",
        "in words",
    ),
    (
        "audit",
        "metadata",
        "data of the entry",
        "with what",
    ),
    (
        "graph_jobs",
        "",
        "Graph build and overlay jobs. The columns equal what payload says.",
        "Graph build and overlay jobs, with exactly the columns of their plan; they equal what payload says.",
    ),
    (
        "graph_jobs",
        "id",
        "UUID in the id of the source, or computed from that id",
        "the UUID in the source's id, else computed from it",
    ),
    (
        "graph_jobs graph_job_events",
        "payload",
        "the whole document; its remainder under the reserved key $remainder",
        "the whole document; its residue under the reserved key $residue",
    ),
    (
        "graph_jobs",
        "created_at",
        "createdAt of the document",
        "the document's createdAt",
    ),
    (
        "graph_job_events",
        "",
        "Status changes of graph jobs, each in the transaction of the change. They are deleted with their job.",
        "Status changes of graph jobs, each written in the transaction of the change; they go with their job.",
    ),
    (
        "graph_job_events",
        "job_id",
        "job",
        "of which job",
    ),
)
"""Tables, column (empty: the tables themselves), comment, and the comment before."""

# Row-level security does not bind the owner of the tables. While the outbox is open, its triggers note these rows too.
PAYLOAD: Final = """
UPDATE scheduler.{table} SET payload = payload - '{old}' || jsonb_build_object('{new}', payload -> '{old}')
    WHERE payload ? '{old}';
"""


def _comments(after: int) -> Iterator[str]:
    """Yield the statements that set every comment to that after the revision (2) or before it (3)."""
    for row in COMMENTS:
        words = row[after].replace("'", "''")
        for table in row[0].split():
            what = f"COLUMN scheduler.{table}.{row[1]}" if row[1] else f"TABLE scheduler.{table}"
            yield f"COMMENT ON {what} IS '{words}';\n"


def _payloads(old: str, new: str) -> Iterator[str]:
    for table in ("graph_jobs", "graph_job_events"):
        yield PAYLOAD.format(table=table, old=old, new=new)


def upgrade() -> None:
    """Change the key of the remainder, and the comments."""
    op.get_bind().exec_driver_sql("".join([*_payloads("$residue", "$remainder"), *_comments(2)]))


def downgrade() -> None:
    """Give the key and the comments their words of before."""
    op.get_bind().exec_driver_sql("".join([*_payloads("$remainder", "$residue"), *_comments(3)]))
