"""What holds for every table, and for the revision files."""

import re
from pathlib import Path

import pytest

import migrator
from migrator.schema import revisions
from tests.schema_dump import Table, read_tables

SCHEDULER, MIGRATION = read_tables("scheduler"), read_tables("migration")
TABLES = [*SCHEDULER.values(), *MIGRATION.values()]
GRAPH_PLAN = {"idx_graph_jobs_tenant_status", "idx_graph_jobs_tenant_type_status", "idx_graph_job_events_job"}
NAME = re.compile(r"(pk|fk|uq|ck|ix)_[a-z_]+")


def test_the_specified_tables_are_made() -> None:
    """0-T2.2.2."""
    assert set(SCHEDULER) == {
        *("schedules", "triggers", "runs", "graph_jobs", "graph_job_events", "policy_jobs", "impact_snapshots"),
        *("workers", "execution_logs", "locks", "run_summaries", "audit", "handlers"),
        "parallel_triggers",
    }


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_and_column_has_a_comment(table: Table) -> None:
    assert table.comment
    assert [column.name for column in table.columns.values() if not column.comment] == []


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_constraint_and_index_is_named(table: Table) -> None:
    for name in (*table.constraints, *table.indexes):
        assert name in GRAPH_PLAN or (NAME.fullmatch(name) and table.name in name), name


def test_no_name_is_given_twice_in_a_schema() -> None:
    for tables in (SCHEDULER, MIGRATION):
        names = [name for table in tables.values() for name in (*table.constraints, *table.indexes)]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_text_is_text(table: Table) -> None:
    """Neither varchar nor an enum: an application that adds a word changes a CHECK, and no type."""
    known = {"smallint", "integer", "bigint", "double precision", "boolean", "uuid", "bytea", "jsonb"}
    known |= {"text", "text[]", "timestamp with time zone"}
    assert {column.type for column in table.columns.values()} <= known


@pytest.mark.parametrize("table", SCHEDULER.values(), ids=lambda table: table.name)
def test_no_migrated_column_defaults_to_the_clock(table: Table) -> None:
    defaults = [column.default for column in table.columns.values() if column.default is not None]
    assert [default for default in defaults if "now" in default or "clock" in default] == []


@pytest.mark.parametrize("table", SCHEDULER.values(), ids=lambda table: table.name)
def test_unique_indexes_over_nullable_columns_are_partial(table: Table) -> None:
    for name, (columns, condition) in table.unique().items():
        if name in table.indexes and any(table.columns[column].nullable for column in columns):
            assert condition is not None, name


def test_nothing_in_scheduler_refers_to_the_tool_s_own_schema() -> None:
    for table in SCHEDULER.values():
        for _, referred, _ in table.foreign_keys().values():
            assert referred.startswith("scheduler.")


def test_runs_have_these_indexes_and_no_other() -> None:
    """Every index on runs is a decision: each one costs the copy about a tenth of its time."""
    since = "COALESCE(available_at, created_at)"
    waiting = "state = ANY (ARRAY['planning'::text, 'queued'::text])"
    opened = "state = ANY (ARRAY['queued'::text, 'running'::text])"
    assert {
        name: definition.partition(" ON scheduler.runs USING btree ")[2]
        for name, definition in SCHEDULER["runs"].indexes.items()
    } == {
        "uq_runs_number": "(schedule_id, run_number, tenant_id) WHERE (run_number IS NOT NULL)",
        "uq_runs_slot": "(trigger_id, scheduled_at, attempt, tenant_id) WHERE (trigger_id IS NOT NULL)",
        "uq_runs_dedupe": "(trigger_id, dedupe_key, tenant_id) WHERE (dedupe_key IS NOT NULL)",
        "ix_runs_page": "(tenant_id, created_at DESC, id)",
        "ix_runs_schedule": "(schedule_id, created_at DESC, id) WHERE (schedule_id IS NOT NULL)",
        "ix_runs_waiting": f"(state, priority DESC, {since}, id) WHERE ({waiting})",
        "ix_runs_open": f"(state, schedule_id, {since}, id) WHERE ({opened})",
        "ix_runs_trace": "(trace_id) WHERE (trace_id IS NOT NULL)",
        "ix_runs_retry_of": "(retry_of) WHERE (retry_of IS NOT NULL)",
    }


def test_revision_files_are_named_number_verb_object() -> None:
    folder = revisions.revisions_folder() / "versions"
    names = sorted(path.name for path in folder.glob("*.py"))
    numbers = [name[:4] for name in names]
    assert all(re.fullmatch(r"\d{4}_[a-z]+(_[a-z]+)+\.py", name) for name in names)
    assert numbers == [f"{number:04}" for number in range(1, len(names) + 1)]


def test_the_folder_of_revisions_is_no_package() -> None:
    """With an ``__init__.py`` it would be imported in place of the library."""
    assert list(revisions.revisions_folder().rglob("__init__.py")) == []


def test_each_branch_is_one_line_of_revisions_that_makes_its_tables() -> None:
    for branch, made in (("scheduler", SCHEDULER), ("migration", MIGRATION)):
        known = revisions.known_revisions(branch)
        assert [revision.id for revision in known] == sorted(revision.id for revision in known)
        assert sorted(table for revision in known for table in revision.tables) == sorted(made)


def test_a_revision_names_tables_without_their_schema() -> None:
    """The catalogue check applies it to the temporary schema: it must not change the tables of the schema itself."""
    for path in sorted((revisions.revisions_folder() / "versions").glob("*.py")):
        outside = re.sub(r"\$function\$.*?\$function\$", "", path.read_text(), flags=re.DOTALL)
        assert re.findall(r"\b(?:scheduler|migration)\.\w+", outside) == [], path.name


@pytest.mark.proves("1-M1")
def test_graph_jobs_come_after_all_earlier_tables() -> None:
    """1-M1."""
    made = [revision.tables for revision in revisions.known_revisions("scheduler") if revision.tables]
    making = [tables for tables in made if tables != ("parallel_triggers",)]  # which has no data of a source
    assert making[-1] == ("graph_jobs", "graph_job_events")


def test_revisions_do_not_depend_on_the_package() -> None:
    """A revision is frozen: later changes of the code must not change what it did."""
    for path in sorted((revisions.revisions_folder() / "versions").glob("*.py")):
        assert "migrator" not in re.findall(r"^(?:from|import) (\w+)", path.read_text(), re.MULTILINE), path.name


def test_the_installed_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "migrator"
    installed, beside = package / "_alembic", package.parent / "alembic"
    for folder in (installed, beside):
        folder.mkdir(parents=True)
        (folder / "env.py").touch()
    monkeypatch.setattr(migrator, "__file__", str(package / "__init__.py"))
    assert revisions.revisions_folder() == installed
    (installed / "env.py").unlink()
    assert revisions.revisions_folder() == beside


@pytest.mark.parametrize("given", ["runs_pkey", "runs_state_check", "runs_trigger_id_fkey", "runs_state_idx"])
def test_a_name_that_the_server_gives_would_be_seen(given: str) -> None:
    """The test of the names above looks at something."""
    assert not NAME.fullmatch(given)
