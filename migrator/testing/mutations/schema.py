"""Mutations of the schema's objects: dropped, added, changed, disabled."""

from typing import Final

from migrator.testing.mutations.mutation import Apply, Mutation, NoMaterial, ScratchCopy, ddl


def _mutation(name: str, apply: Apply | str, *caught_by: str) -> Mutation:
    checks = tuple(f"schema.{check}" for check in caught_by)
    return Mutation(name=name, kind="schema", apply=ddl(apply) if isinstance(apply, str) else apply, caught_by=checks)


_OFF_FOR_SESSIONS: Final = (
    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET session_replication_role = replica', current_database()); END $$"
)
NOT_ENFORCED_SINCE: Final = 180_000
"""PostgreSQL's version number from which on a foreign key may be declared and not enforced."""


def _not_enforced(copy: ScratchCopy) -> None:
    if copy.target.info.server_version < NOT_ENFORCED_SINCE:
        raise NoMaterial
    row = copy.target.execute(
        "SELECT format('ALTER TABLE %s ALTER CONSTRAINT %I NOT ENFORCED', conrelid::regclass, conname)"
        " FROM pg_constraint WHERE contype = 'f' AND conrelid = 'scheduler.runs'::regclass ORDER BY conname LIMIT 1"
    ).fetchone()
    assert row is not None  # noqa: S101 - runs refer to schedules
    copy.target.execute(row[0])


SCHEMA_MUTATIONS: Final[tuple[Mutation, ...]] = (
    _mutation("an index is gone", "DROP INDEX scheduler.ix_runs_page", "catalogue"),
    _mutation("an extra index", "CREATE INDEX extra_one ON scheduler.runs (error)", "catalogue"),
    _mutation("a unique index too many", "CREATE UNIQUE INDEX extra_one ON scheduler.runs (id)", "catalogue"),
    _mutation(
        "a column with another collation",
        'ALTER TABLE scheduler.runs ALTER error TYPE text COLLATE "C"',
        "catalogue",
    ),
    _mutation(
        "a table inherits from a table", "CREATE TABLE public.extra_one () INHERITS (scheduler.audit)", "catalogue"
    ),
    _mutation(
        "a sequence begins anew at its end", "ALTER SEQUENCE scheduler.graph_job_events_id_seq CYCLE", "catalogue"
    ),
    _mutation("a sequence ends early", "ALTER SEQUENCE scheduler.graph_job_events_id_seq MAXVALUE 100000", "catalogue"),
    _mutation("a table without a replica identity", "ALTER TABLE scheduler.runs REPLICA IDENTITY NOTHING", "catalogue"),
    _mutation("a role may write", "GRANT UPDATE ON scheduler.runs TO PUBLIC", "catalogue"),
    _mutation(
        "an index without its condition",
        "DROP INDEX scheduler.uq_runs_slot;"
        " CREATE UNIQUE INDEX uq_runs_slot ON scheduler.runs (trigger_id, scheduled_at, attempt)",
        "catalogue",
    ),
    _mutation("a unique index is gone", "DROP INDEX scheduler.uq_runs_slot", "catalogue"),
    _mutation("a constraint is gone", "ALTER TABLE scheduler.runs DROP CONSTRAINT ck_runs_state", "catalogue"),
    _mutation("a foreign key is gone", "ALTER TABLE scheduler.runs DROP CONSTRAINT fk_runs_schedule_id", "catalogue"),
    _mutation(
        "a constraint is not validated",
        "ALTER TABLE scheduler.runs ADD CONSTRAINT extra_one CHECK (attempt < 1000) NOT VALID",
        "catalogue",
        "validated",
    ),
    _mutation("foreign keys are disabled", "ALTER TABLE scheduler.runs DISABLE TRIGGER ALL", "enforced"),
    _mutation(
        "foreign keys of the ledger are disabled", "ALTER TABLE migration.chunks DISABLE TRIGGER ALL", "enforced"
    ),
    _mutation("foreign keys are disabled for every session", _OFF_FOR_SESSIONS, "enforced"),
    _mutation("a foreign key is declared and not enforced", _not_enforced, "catalogue", "validated"),
    _mutation(
        "a foreign key was made anew and not validated",
        "ALTER TABLE scheduler.audit ADD CONSTRAINT extra_one FOREIGN KEY (tenant_id, run_id)"
        " REFERENCES scheduler.runs (tenant_id, id) NOT VALID",
        "catalogue",
        "validated",
    ),
    _mutation(
        "a rule swallows what is written",
        "CREATE RULE extra_one AS ON INSERT TO scheduler.runs DO INSTEAD NOTHING",
        "catalogue",
    ),
    _mutation("a table does not survive a crash", "ALTER TABLE scheduler.handlers SET UNLOGGED", "catalogue"),
    _mutation("an extra column", "ALTER TABLE scheduler.runs ADD COLUMN extra_one int", "catalogue", "comments"),
    _mutation("a column is gone", "ALTER TABLE scheduler.runs DROP COLUMN error_detail", "catalogue"),
    _mutation("a column of another type", "ALTER TABLE scheduler.runs ALTER attempt TYPE bigint", "catalogue"),
    _mutation("a column may be null", "ALTER TABLE scheduler.runs ALTER created_at DROP NOT NULL", "catalogue"),
    _mutation("a default was changed", "ALTER TABLE scheduler.runs ALTER attempt SET DEFAULT 42", "catalogue"),
    _mutation("isolation is off", "ALTER TABLE scheduler.runs DISABLE ROW LEVEL SECURITY", "catalogue", "isolation"),
    _mutation(
        "a policy lets everybody in",
        "CREATE POLICY extra_one ON scheduler.runs USING (true)",
        "catalogue",
    ),
    _mutation("everybody may read", "GRANT SELECT ON scheduler.runs TO PUBLIC", "catalogue"),
    _mutation(
        "a trigger that computes",
        "CREATE FUNCTION scheduler.extra_one() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
        " CREATE TRIGGER extra_one BEFORE UPDATE ON scheduler.runs FOR EACH ROW EXECUTE FUNCTION scheduler.extra_one()",
        "catalogue",
    ),
    _mutation("an extra table", "CREATE TABLE scheduler.extra_one (id int)", "catalogue"),
    _mutation("a table is gone", "DROP TABLE scheduler.handlers", "catalogue", "isolation", "comments"),
    _mutation("a comment is gone", "COMMENT ON COLUMN scheduler.runs.state IS NULL", "catalogue", "comments"),
    _mutation(
        "an index was not put back",
        "INSERT INTO migration.deferred_ddl (target_table, kind, name, definition)"
        " VALUES ('runs', 'index', 'ix_gone', 'CREATE INDEX')",
        "restored",
    ),
    _mutation(
        "a revision file was changed",
        "UPDATE scheduler.schema_history SET sha256 = repeat('0', 64)"
        " WHERE revision = (SELECT min(revision) FROM scheduler.schema_history)",
        "revision",
    ),
)
