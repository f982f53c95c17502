"""The live catalogue against the declared one: each planted fault is named, and nothing else is."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from migrator.cli import cli
from migrator.errors import RefusedError
from migrator.schema import catalogue, revisions
from migrator.schema.catalogue import Difference
from migrator.testing.servers import binaries
from tests.conftest import fresh_name
from tests.declared_catalogue import declared_once
from tests.schema_rows import connect

GOLDEN = Path(__file__).parents[1] / "golden" / "schema.sql"

FAULTS: dict[str, tuple[str, str, str]] = {
    # what is done to the schema → (statement, object that must be named, kind)
    "check dropped": (
        "ALTER TABLE scheduler.runs DROP CONSTRAINT ck_runs_state",
        "runs constraint ck_runs_state",
        "missing",
    ),
    "check widened": (
        (
            "ALTER TABLE scheduler.graph_jobs DROP CONSTRAINT ck_graph_jobs_type,"
            " ADD CONSTRAINT ck_graph_jobs_type CHECK (type = ANY (ARRAY[0, 1, 2]))"
        ),
        "graph_jobs constraint ck_graph_jobs_type",
        "changed",
    ),
    "check added": (
        "ALTER TABLE scheduler.runs ADD CONSTRAINT theirs CHECK (attempt < 100)",
        "runs constraint theirs",
        "extra",
    ),
    "predicate changed": (
        (
            "DROP INDEX scheduler.ix_triggers_due; CREATE INDEX ix_triggers_due"
            " ON scheduler.triggers (next_fire_at, tenant_id, id) WHERE next_fire_at IS NOT NULL"
        ),
        "triggers index ix_triggers_due",
        "changed",
    ),
    "index dropped": ("DROP INDEX scheduler.ix_runs_page", "runs index ix_runs_page", "missing"),
    "index added": ("CREATE INDEX theirs ON scheduler.runs (state)", "runs index theirs", "extra"),
    "index with another order": (
        (
            "DROP INDEX scheduler.ix_audit_page; CREATE INDEX ix_audit_page"
            " ON scheduler.audit (tenant_id, occurred_at, id)"
        ),
        "audit index ix_audit_page",
        "changed",
    ),
    "uniqueness lost": (
        (
            "DROP INDEX scheduler.uq_runs_slot; CREATE INDEX uq_runs_slot"
            " ON scheduler.runs (trigger_id, scheduled_at, attempt) WHERE trigger_id IS NOT NULL"
        ),
        "runs index uq_runs_slot",
        "changed",
    ),
    "nulls distinct": (
        (
            "DROP INDEX scheduler.uq_policy_jobs_run; CREATE UNIQUE INDEX uq_policy_jobs_run"
            " ON scheduler.policy_jobs (tenant_id, source, run_id) WHERE run_id IS NOT NULL"
        ),
        "policy_jobs index uq_policy_jobs_run",
        "changed",
    ),
    "foreign key dropped": (
        "ALTER TABLE scheduler.graph_job_events DROP CONSTRAINT fk_graph_job_events_job_id",
        "graph_job_events constraint fk_graph_job_events_job_id",
        "missing",
    ),
    "foreign key without cascade": (
        (
            "ALTER TABLE scheduler.graph_job_events DROP CONSTRAINT fk_graph_job_events_job_id,"
            " ADD CONSTRAINT fk_graph_job_events_job_id FOREIGN KEY (tenant_id, job_id)"
            " REFERENCES scheduler.graph_jobs (tenant_id, id)"
        ),
        "graph_job_events constraint fk_graph_job_events_job_id",
        "changed",
    ),
    "foreign key not validated": (
        (
            "ALTER TABLE scheduler.triggers DROP CONSTRAINT fk_triggers_schedule_id,"
            " ADD CONSTRAINT fk_triggers_schedule_id FOREIGN KEY (tenant_id, schedule_id)"
            " REFERENCES scheduler.schedules (tenant_id, id) ON DELETE CASCADE NOT VALID"
        ),
        "triggers constraint fk_triggers_schedule_id",
        "changed",
    ),
    "row security disabled": (
        "ALTER TABLE scheduler.schedules DISABLE ROW LEVEL SECURITY",
        "schedules row security",
        "changed",
    ),
    "row security forced": (
        "ALTER TABLE scheduler.schedules FORCE ROW LEVEL SECURITY",
        "schedules row security",
        "changed",
    ),
    "policy dropped": ("DROP POLICY tenant_delete ON scheduler.runs", "runs policy tenant_delete", "missing"),
    "policy opened": (
        "ALTER POLICY tenant_read ON scheduler.runs USING (true)",
        "runs policy tenant_read",
        "changed",
    ),
    "policy for everybody": (
        "ALTER POLICY dispatcher_all ON scheduler.runs TO PUBLIC",
        "runs policy dispatcher_all",
        "changed",
    ),
    "policy added": ("CREATE POLICY theirs ON scheduler.runs USING (true)", "runs policy theirs", "extra"),
    "right granted": (
        "GRANT DELETE ON scheduler.audit TO scheduler_service",
        "audit grant scheduler_service",
        "changed",
    ),
    "function for everybody": (
        "GRANT EXECUTE ON FUNCTION scheduler.schedules_with_any_tag(text[]) TO PUBLIC",
        "schedules_with_any_tag function",
        "changed",
    ),
    "function without its search path": (
        "ALTER FUNCTION scheduler.schedules_with_every_tag(text[]) RESET search_path",
        "schedules_with_every_tag function",
        "changed",
    ),
    "function of all tenants": (
        (
            "CREATE OR REPLACE FUNCTION scheduler.schedules_with_any_tag(wanted text[]) RETURNS SETOF uuid"
            " LANGUAGE sql STABLE STRICT SECURITY DEFINER ROWS 100 SET search_path = pg_catalog, pg_temp"
            " AS 'SELECT id FROM scheduler.schedules WHERE tags && wanted'"
        ),
        "schedules_with_any_tag function",
        "changed",
    ),
    "right on a whole table": (
        "GRANT UPDATE ON scheduler.schedules TO scheduler_service",
        "schedules grant scheduler_service",
        "changed",
    ),
    "right on a column granted": (
        "GRANT UPDATE (tenant_id) ON scheduler.runs TO scheduler_dispatcher",
        "runs grant scheduler_dispatcher",
        "changed",
    ),
    "right on a column revoked": (
        "REVOKE UPDATE (state) ON scheduler.runs FROM scheduler_service",
        "runs grant scheduler_service",
        "changed",
    ),
    "right granted to everybody": ("GRANT SELECT ON scheduler.runs TO PUBLIC", "runs grant public", "extra"),
    "right revoked": (
        "REVOKE ALL ON scheduler.runs FROM scheduler_dispatcher",
        "runs grant scheduler_dispatcher",
        "missing",
    ),
    "owner changed": ("ALTER TABLE scheduler.handlers OWNER TO postgres", "handlers owner", "changed"),
    "default changed": (
        "ALTER TABLE scheduler.schedules ALTER retry_cap_ms SET DEFAULT 60000",
        "schedules column retry_cap_ms",
        "changed",
    ),
    "default of the clock": (
        "ALTER TABLE scheduler.graph_jobs ALTER created_at SET DEFAULT now()",
        "graph_jobs column created_at",
        "changed",
    ),
    "not null dropped": (
        "ALTER TABLE scheduler.runs ALTER created_at DROP NOT NULL",
        "runs column created_at",
        "changed",
    ),
    "type changed": (
        "ALTER TABLE scheduler.runs ALTER run_number TYPE bigint",
        "runs column run_number",
        "changed",
    ),
    "type narrowed": (
        "ALTER TABLE scheduler.execution_logs ALTER message TYPE varchar(100)",
        "execution_logs column message",
        "changed",
    ),
    "comment changed": (
        "COMMENT ON COLUMN scheduler.runs.fence IS 'anything'",
        "runs comment of column fence",
        "changed",
    ),
    "comment dropped": ("COMMENT ON TABLE scheduler.runs IS NULL", "runs comment", "missing"),
    "table dropped": ("DROP TABLE scheduler.run_summaries", "run_summaries", "missing"),
    "table added": ("CREATE TABLE scheduler.theirs (id integer PRIMARY KEY)", "theirs", "extra"),
    "view added": ("CREATE VIEW scheduler.theirs AS SELECT 1 AS one", "theirs", "extra"),
    "trigger added": (
        (
            "CREATE TRIGGER theirs BEFORE UPDATE ON scheduler.runs FOR EACH ROW"
            " EXECUTE FUNCTION suppress_redundant_updates_trigger()"
        ),
        "runs trigger theirs",
        "extra",
    ),
    "rule added": (
        "CREATE RULE theirs AS ON DELETE TO scheduler.audit DO INSTEAD NOTHING",
        "audit rule theirs",
        "extra",
    ),
    "function added": (
        "CREATE FUNCTION scheduler.theirs() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "theirs function",
        "extra",
    ),
    "type added": ("CREATE TYPE scheduler.theirs AS ENUM ('a')", "theirs type", "extra"),
    "sequence shared": (
        "GRANT ALL ON SEQUENCE scheduler.graph_job_events_id_seq TO PUBLIC",
        "graph_job_events_id_seq grant public",
        "extra",
    ),
}


@pytest.mark.proves("0-T2.2.2", "2-V2")
def test_what_was_migrated_is_what_is_declared(any_scheduler_dsn: str) -> None:
    """0-T2.2.2: tables, columns, types, defaults, foreign keys, indexes: no extra, none missing."""
    assert catalogue.differences(any_scheduler_dsn) == []


def test_comparing_leaves_nothing_behind(scheduler_dsn: str) -> None:
    with connect(scheduler_dsn) as connection:
        query = "SELECT count(*), max(oid::bigint) FROM pg_class"
        before = connection.execute(query).fetchone()
        catalogue.differences(scheduler_dsn)
        assert connection.execute(query).fetchone() == before


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.proves("0-T2.2.2", "2-V2")
def test_a_planted_fault_is_named_and_nothing_else(fault: str, scheduler_dsn: str) -> None:
    statement, where, kind = FAULTS[fault]
    with connect(scheduler_dsn) as connection:
        connection.execute(statement.encode())
    with declared_once():
        found = catalogue.differences(scheduler_dsn)
    assert [(one.object, one.kind) for one in found] == [(f"scheduler.{where}", kind)]
    assert found[0].expected != found[0].found


def test_an_added_column_is_named_with_the_order_it_changes(any_scheduler_dsn: str) -> None:
    with connect(any_scheduler_dsn) as connection:
        connection.execute("ALTER TABLE scheduler.runs ADD theirs integer")
    column, order = catalogue.differences(any_scheduler_dsn)
    assert column == Difference("scheduler.runs column theirs", "extra", None, "integer")
    assert order.object == "scheduler.runs order of columns"


def test_a_fault_in_the_tool_s_own_schema_is_named_too(any_scheduler_dsn: str) -> None:
    with connect(any_scheduler_dsn) as connection:
        connection.execute("ALTER TABLE migration.chunks DROP CONSTRAINT ck_chunks_state")
    assert [one.object for one in catalogue.differences(any_scheduler_dsn)] == [
        "migration.chunks constraint ck_chunks_state"
    ]


def test_several_faults_are_all_named_on_every_server(any_scheduler_dsn: str) -> None:
    chosen = ["check dropped", "predicate changed", "index dropped", "row security disabled", "default changed"]
    with connect(any_scheduler_dsn) as connection:
        for fault in chosen:
            connection.execute(FAULTS[fault][0].encode())
    found = {one.object for one in catalogue.differences(any_scheduler_dsn)}
    assert found == {f"scheduler.{FAULTS[fault][1]}" for fault in chosen}


def test_what_a_first_load_has_taken_away_says_so(scheduler_dsn: str) -> None:
    with connect(scheduler_dsn) as connection:
        connection.execute("DROP INDEX scheduler.ix_runs_page")
        connection.execute(
            "INSERT INTO migration.deferred_ddl (target_table, kind, name, definition)"
            " VALUES ('runs', 'index', 'ix_runs_page', 'CREATE INDEX')"
        )
        (one,) = catalogue.differences(scheduler_dsn)
        assert (one.object, one.kind) == ("scheduler.runs index ix_runs_page", "missing")
        assert one.found == "removed for the first load and not yet restored; call migrator backfill"


def test_a_database_without_the_schemas_is_told_apart(postgres_dsn: str, scheduler_dsn: str) -> None:
    del scheduler_dsn  # the roles exist on this server
    assert [(one.object, one.kind) for one in catalogue.differences(postgres_dsn)] == [
        ("schema scheduler", "missing"),
        ("schema migration", "missing"),
    ]


def test_without_the_owning_role_the_comparison_says_what_to_call(postgres_dsn: str) -> None:
    from migrator.schema.security import Roles  # noqa: PLC0415 - only here

    with pytest.raises(RefusedError, match=r"not migrated \(it has no role absent\): call migrator schema upgrade"):
        catalogue.differences(postgres_dsn, names=Roles(migration="absent"))


def dump(dsn: str, version: int) -> str:
    """Return both schemas as pg_dump writes them, without what differs between versions of pg_dump."""
    program = binaries.postgres(version) / "bin" / "pg_dump"
    found = subprocess.run(
        [program, "--schema-only", "--no-toast-compression", "--schema=scheduler", "--schema=migration", dsn],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = [line for line in found.splitlines() if not line.startswith(("--", "SET ", "SELECT pg_catalog", "\\"))]
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    # PostgreSQL 15 gives a sequence its owner as if it were a table
    return re.sub(r"ALTER TABLE (\S+_seq) OWNER", r"ALTER SEQUENCE \1 OWNER", "\n".join(kept)).strip() + "\n"


def test_the_dump_is_the_committed_one_on_every_server(any_scheduler_dsn: str, tmp_path: Path) -> None:
    """Every revision's effect shows up in review as a change of this file."""
    with connect(any_scheduler_dsn) as connection:
        version = connection.info.server_version // 10000
    found = dump(any_scheduler_dsn, version)
    fresh = tmp_path / "schema.sql"
    fresh.write_text(found)
    assert found == GOLDEN.read_text(), f"copy {fresh} to {GOLDEN} if the change is meant"


def test_the_dump_shows_a_fault(scheduler_dsn: str) -> None:
    with connect(scheduler_dsn) as connection:
        connection.execute(FAULTS["predicate changed"][0].encode())
    assert dump(scheduler_dsn, 18) != GOLDEN.read_text()


def test_the_dump_is_the_same_after_down_and_up(scheduler_dsn: str) -> None:
    revisions.downgrade(scheduler_dsn)
    revisions.upgrade(scheduler_dsn)
    assert dump(scheduler_dsn, 18) == GOLDEN.read_text()


HARMLESS = {
    "an index of a time": ("CREATE INDEX theirs ON scheduler.runs (finished_at)", "scheduler.runs index theirs"),
    "an index of columns that have one": (
        "CREATE INDEX theirs ON scheduler.runs (tenant_id, state, created_at DESC)",
        "scheduler.runs index theirs",
    ),
    "a reader of one table": ("GRANT SELECT ON scheduler.runs TO {reader}", "scheduler.runs grant {reader}"),
    "a reader of columns": ("GRANT SELECT (id, state) ON scheduler.runs TO {reader}", "scheduler.runs grant {reader}"),
    "a reader of the schema": ("GRANT USAGE ON SCHEMA scheduler TO {reader}", "schema scheduler grant {reader}"),
    "a reader of the tool's tables": (
        "GRANT SELECT ON migration.chunks TO {reader}",
        "migration.chunks grant {reader}",
    ),
}
"""Additions that harm nothing: told, and no difference."""
HARMFUL = {
    "a unique index": "CREATE UNIQUE INDEX theirs ON scheduler.runs (finished_at)",
    "an index of an expression": "CREATE INDEX theirs ON scheduler.runs ((1 / attempt))",
    "an index with a condition": "CREATE INDEX theirs ON scheduler.runs (attempt) WHERE 1 / attempt > 0",
    "an index that refuses a long text": "CREATE INDEX theirs ON scheduler.runs (error)",
    "a writer": "GRANT UPDATE ON scheduler.runs TO {reader}",
    "a reader who may also write": "GRANT SELECT, INSERT ON scheduler.runs TO {reader}",
    "a reader who may let others read": "GRANT SELECT ON scheduler.runs TO {reader} WITH GRANT OPTION",
    "everybody": "GRANT SELECT ON scheduler.runs TO PUBLIC",
    "a collation": 'ALTER TABLE scheduler.runs ALTER error TYPE text COLLATE "C"',
    "a child": "CREATE TABLE public.child () INHERITS (scheduler.runs)",
    "a cycle": "ALTER SEQUENCE scheduler.graph_job_events_id_seq CYCLE",
    "a greatest value": "ALTER SEQUENCE scheduler.graph_job_events_id_seq MAXVALUE 1000",
    "no replica identity": "ALTER TABLE scheduler.runs REPLICA IDENTITY NOTHING",
}


@pytest.fixture
def reader(scheduler_dsn: str) -> Iterator[str]:
    name = fresh_name()
    with connect(scheduler_dsn) as connection:
        connection.execute(f"CREATE ROLE {name} NOLOGIN".encode())
    yield name
    with connect(scheduler_dsn) as connection:
        connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


@pytest.mark.parametrize("addition", HARMLESS)
def test_an_addition_that_harms_nothing_is_told_and_no_difference(
    addition: str, scheduler_dsn: str, reader: str, tmp_path: Path
) -> None:
    statement, where = HARMLESS[addition]
    with connect(scheduler_dsn) as connection:
        connection.execute(statement.format(reader=reader).encode())
    with declared_once():
        (one,) = catalogue.differences(scheduler_dsn)
    assert (one.object, one.kind, one.harmless) == (where.format(reader=reader), "extra", True)
    config = tmp_path / "migrator.toml"
    config.write_text(f'[postgres]\ndsn = "{scheduler_dsn}"\n')
    done = CliRunner().invoke(cli, ["schema", "check", "--config", str(config)])
    assert done.exit_code == 0, done.output
    assert f"{one.object}: added, and harms nothing" in done.output


@pytest.mark.parametrize("change", HARMFUL)
def test_a_change_that_harms_is_a_difference(change: str, scheduler_dsn: str, reader: str) -> None:
    with connect(scheduler_dsn) as connection:
        connection.execute(HARMFUL[change].format(reader=reader).encode())
    with declared_once():
        found = catalogue.differences(scheduler_dsn)
    assert found
    assert not any(one.harmless for one in found)
