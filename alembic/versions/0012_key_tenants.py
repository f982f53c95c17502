"""Carry the tenant in every primary, foreign and unique key, so that tenants do not reach each other through them."""

from alembic import op
from alembic.util import CommandError

revision = "0012"
down_revision = "0009"
branch_labels = None
depends_on = None

TABLES = ()
"""Makes no table."""

KEYED = (
    "handlers",
    "schedules",
    "triggers",
    "runs",
    "execution_logs",
    "impact_snapshots",
    "run_summaries",
    "policy_jobs",
    "workers",
    "locks",
    "audit",
    "graph_jobs",
    "graph_job_events",
)

# (name, table, column, referred table, ON DELETE before, ON DELETE now if it differs, may it lead to a row of *)
REFERENCES = (
    ("fk_triggers_schedule_id", "triggers", "schedule_id", "schedules", " ON DELETE CASCADE", None, False),
    ("fk_runs_schedule_id", "runs", "schedule_id", "schedules", "", None, True),
    ("fk_runs_trigger_id", "runs", "trigger_id", "triggers", "", None, True),
    ("fk_runs_retry_of", "runs", "retry_of", "runs", " ON DELETE SET NULL", " ON DELETE SET NULL (retry_of)", False),
    ("fk_execution_logs_run_id", "execution_logs", "run_id", "runs", " ON DELETE CASCADE", None, False),
    (
        "fk_impact_snapshots_run_id",
        "impact_snapshots",
        "run_id",
        "runs",
        " ON DELETE SET NULL",
        " ON DELETE SET NULL (run_id)",
        False,
    ),
    ("fk_graph_job_events_job_id", "graph_job_events", "job_id", "graph_jobs", " ON DELETE CASCADE", None, False),
)

CROSSING = """
SELECT count(*) FROM scheduler.{table} AS one JOIN scheduler.{referred} AS other ON other.id = one.{column}
WHERE other.tenant_id <> one.tenant_id{exempt}
"""

COLUMNS = """
ALTER TABLE scheduler.runs
    ADD COLUMN global_schedule boolean DEFAULT false NOT NULL,
    ADD COLUMN schedule_tenant_id text
        GENERATED ALWAYS AS (CASE WHEN global_schedule THEN '*'::text ELSE tenant_id END) STORED;
COMMENT ON COLUMN scheduler.runs.global_schedule IS
    'schedule_id and trigger_id name rows of the tenant *; else rows of the own tenant. Of what is global, a run '
    'refers to nothing else';
COMMENT ON COLUMN scheduler.runs.schedule_tenant_id IS
    'computed: the tenant of the schedule and of the trigger, half of both foreign keys';
"""

GLOBAL = """
UPDATE scheduler.runs AS r SET global_schedule = true WHERE r.tenant_id <> '*' AND (
    EXISTS (SELECT FROM scheduler.schedules AS s WHERE s.id = r.schedule_id AND s.tenant_id = '*')
    OR EXISTS (SELECT FROM scheduler.triggers AS t WHERE t.id = r.trigger_id AND t.tenant_id = '*')
)
"""

# Runs with a schedule of * and a trigger of their own, or the reverse: a trigger has the tenant of its schedule.
MIXED = """
SELECT count(*) FROM scheduler.runs AS r JOIN scheduler.schedules AS s ON s.id = r.schedule_id
JOIN scheduler.triggers AS t ON t.id = r.trigger_id WHERE s.tenant_id <> t.tenant_id
"""

UNIQUE = """
DROP INDEX scheduler.uq_runs_number, scheduler.uq_runs_slot, scheduler.uq_runs_dedupe;
CREATE UNIQUE INDEX uq_runs_number ON scheduler.runs (schedule_id, run_number{tenant}) WHERE run_number IS NOT NULL;
CREATE UNIQUE INDEX uq_runs_slot ON scheduler.runs (trigger_id, scheduled_at, attempt{tenant})
    WHERE trigger_id IS NOT NULL;
CREATE UNIQUE INDEX uq_runs_dedupe ON scheduler.runs (trigger_id, dedupe_key{tenant}) WHERE dedupe_key IS NOT NULL;
"""

# A first load may have taken foreign keys away and not built them again: they are built here.
OWED = """
UPDATE migration.deferred_ddl SET restored_at = clock_timestamp() WHERE restored_at IS NULL AND kind = 'constraint'
"""


def upgrade() -> None:
    """Refuse where rows refer to another tenant's; else make the keys anew. No row of a product table is lost."""
    _refuse_crossing()
    for name, table, *_ in REFERENCES:
        _execute(f"ALTER TABLE scheduler.{table} DROP CONSTRAINT IF EXISTS {name}")
    _execute(COLUMNS)
    _execute(GLOBAL)
    for table in KEYED:
        # The id comes first, since rows are found by it; the tenant makes it nobody else's business.
        _execute(
            f"ALTER TABLE scheduler.{table} DROP CONSTRAINT pk_{table},"
            f" ADD CONSTRAINT pk_{table} PRIMARY KEY (id, tenant_id)"
        )
    _execute(UNIQUE.format(tenant=", tenant_id"))
    for name, table, column, referred, before, now, is_global in REFERENCES:
        tenant = "schedule_tenant_id" if is_global else "tenant_id"
        _execute(
            f"ALTER TABLE scheduler.{table} ADD CONSTRAINT {name} FOREIGN KEY ({tenant}, {column})"
            f" REFERENCES scheduler.{referred} (tenant_id, id){before if now is None else now}"
        )
    _built()


def downgrade() -> None:
    """Refuse where two tenants use one id, or one key; else put the former keys back. No row is lost."""
    keys = [(table, "id") for table in KEYED]
    keys += [("runs", "trigger_id, scheduled_at, attempt"), ("runs", "trigger_id, dedupe_key")]
    shared: dict[str, int] = {}
    for table, key in keys:
        known = " AND ".join(f"{column} IS NOT NULL" for column in key.split(", "))
        grouped = f"SELECT FROM scheduler.{table} WHERE {known} GROUP BY {key} HAVING count(*) > 1"
        if count := _count(f"SELECT count(*) FROM ({grouped}) AS shared"):  # noqa: S608 - names of this module
            shared[f"scheduler.{table} ({key})"] = count
    if shared:
        listed = ", ".join(f"{place}: {count}" for place, count in shared.items())
        raise CommandError(
            f"rows of several tenants have the same key ({listed}), which the revisions before forbid; delete all but"
            " one of each, then call again"
        )
    for name, table, *_ in REFERENCES:
        _execute(f"ALTER TABLE scheduler.{table} DROP CONSTRAINT IF EXISTS {name}")
    for table in KEYED:
        _execute(
            f"ALTER TABLE scheduler.{table} DROP CONSTRAINT pk_{table}, ADD CONSTRAINT pk_{table} PRIMARY KEY (id)"
        )
    _execute(UNIQUE.format(tenant=""))
    for name, table, column, referred, before, *_ in REFERENCES:
        _execute(
            f"ALTER TABLE scheduler.{table} ADD CONSTRAINT {name} FOREIGN KEY ({column})"
            f" REFERENCES scheduler.{referred} (id){before}"
        )
    _execute("ALTER TABLE scheduler.runs DROP COLUMN schedule_tenant_id, DROP COLUMN global_schedule")
    _built()


def _refuse_crossing() -> None:
    crossing: dict[str, int] = {}
    for _, table, column, referred, *_, is_global in REFERENCES:
        exempt = " AND other.tenant_id <> '*'" if is_global else ""
        count = _count(CROSSING.format(table=table, column=column, referred=referred, exempt=exempt))
        if count:
            crossing[f"scheduler.{table}.{column}"] = count
    if mixed := _count(MIXED):
        crossing["scheduler.runs.trigger_id beside schedule_id"] = mixed
    if crossing:
        listed = ", ".join(f"{place}: {count}" for place, count in crossing.items())
        raise CommandError(
            f"rows refer to rows of another tenant ({listed}), which the keys of this revision forbid; set those"
            " references to null, or delete the rows where the column may not be null, then call again: migrator"
            " backfill afterwards stores again what the documents of copied rows say"
        )


def _built() -> None:
    if _count("SELECT count(*) FROM pg_class WHERE oid = to_regclass('migration.deferred_ddl')"):
        _execute(OWED)


def _count(query: str) -> int:
    found: int = op.get_bind().exec_driver_sql(query).scalar_one()
    return found


def _execute(statement: str) -> None:
    op.get_bind().exec_driver_sql(statement)
