"""What holds for every declared table, and for the revision files."""

import re
from pathlib import Path

import pytest
from sqlalchemy import Column, Computed, Index, MetaData, Table, Text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex

import migrator
from migrator.schema import revisions
from migrator.schema.migration_tables import MIGRATION
from migrator.schema.scheduler_tables import SCHEDULER

TABLES = [*SCHEDULER.tables.values(), *MIGRATION.tables.values()]
GRAPH_PLAN = {"idx_graph_jobs_tenant_status", "idx_graph_jobs_tenant_type_status", "idx_graph_job_events_job"}
NAME = re.compile(r"(pk|fk|uq|ck|ix)_[a-z_]+")
TEXT_FREE = ("VARCHAR", "CHAR(", "ENUM")


def names_of(table: Table) -> list[str | None]:
    names = [one.name for one in table.constraints] + [one.name for one in table.indexes]
    return [None if name is None else str(name) for name in names]


def test_the_specified_tables_are_declared() -> None:
    """0-T2.2.2."""
    assert {table.name for table in SCHEDULER.tables.values()} == {
        *("schedules", "triggers", "runs", "graph_jobs", "graph_job_events", "policy_jobs", "impact_snapshots"),
        *("workers", "execution_logs", "locks", "run_summaries", "audit", "handlers"),
    }


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.fullname)
def test_every_table_and_column_has_a_comment(table: Table) -> None:
    assert table.comment
    assert [column.name for column in table.columns if not column.comment] == []


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.fullname)
def test_every_constraint_and_index_is_named(table: Table) -> None:
    for name in names_of(table):
        assert name is not None
        assert name in GRAPH_PLAN or (NAME.fullmatch(name) and table.name in name), name


def test_no_name_is_given_twice_in_a_schema() -> None:
    for metadata in (SCHEDULER, MIGRATION):
        names = [name for table in metadata.tables.values() for name in names_of(table)]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.fullname)
def test_text_is_text(table: Table) -> None:
    for column in table.columns:
        spelled = column.type.compile(postgresql.dialect())  # type: ignore[no-untyped-call]
        assert not any(word in spelled for word in TEXT_FREE), column.name


@pytest.mark.parametrize("table", SCHEDULER.tables.values(), ids=lambda table: table.name)
def test_no_migrated_column_defaults_to_the_clock(table: Table) -> None:
    made = [column.server_default for column in table.columns if column.server_default is not None]
    defaults = [str(one.sqltext if isinstance(one, Computed) else one.arg) for one in made]  # type: ignore[attr-defined]
    assert [default for default in defaults if "now" in default or "clock" in default] == []


@pytest.mark.parametrize("table", SCHEDULER.tables.values(), ids=lambda table: table.name)
def test_unique_indexes_over_nullable_columns_are_partial(table: Table) -> None:
    for index in table.indexes:
        if index.unique and any(isinstance(column, Column) and column.nullable for column in index.columns):
            assert index.dialect_options["postgresql"]["where"] is not None, index.name


def test_nothing_in_scheduler_refers_to_the_tool_s_own_schema() -> None:
    for table in SCHEDULER.tables.values():
        for key in table.foreign_keys:
            assert key.column.table.schema == "scheduler"


def spelled(index: Index) -> str:
    return str(CreateIndex(index).compile(dialect=postgresql.dialect())).partition(" ON scheduler.")[2]  # type: ignore[no-untyped-call]


def test_runs_have_these_indexes_and_no_other() -> None:
    """Every index on runs is a decision: each one costs the copy about a tenth of its time."""
    since = "COALESCE(available_at, created_at)"
    waiting = "state = ANY (ARRAY['planning'::text, 'queued'::text])"
    opened = "state = ANY (ARRAY['queued'::text, 'running'::text])"
    assert {str(index.name): spelled(index) for index in SCHEDULER.tables["scheduler.runs"].indexes} == {
        "uq_runs_number": "runs (schedule_id, run_number, tenant_id) WHERE run_number IS NOT NULL",
        "uq_runs_slot": "runs (trigger_id, scheduled_at, attempt, tenant_id) WHERE trigger_id IS NOT NULL",
        "uq_runs_dedupe": "runs (trigger_id, dedupe_key, tenant_id) WHERE dedupe_key IS NOT NULL",
        "ix_runs_page": "runs (tenant_id, created_at DESC, id)",
        "ix_runs_schedule": "runs (schedule_id, created_at DESC, id) WHERE schedule_id IS NOT NULL",
        "ix_runs_waiting": f"runs (state, priority DESC, {since}, id) WHERE {waiting}",
        "ix_runs_open": f"runs (state, schedule_id, {since}, id) WHERE {opened}",
        "ix_runs_trace": "runs (trace_id) WHERE trace_id IS NOT NULL",
        "ix_runs_retry_of": "runs (retry_of) WHERE retry_of IS NOT NULL",
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
    made: dict[str, MetaData] = {"scheduler": SCHEDULER, "migration": MIGRATION}
    for branch, metadata in made.items():
        known = revisions.known_revisions(branch)
        assert [revision.id for revision in known] == sorted(revision.id for revision in known)
        renamed = {old: new for revision in known for old, new in revision.renames.items()}
        tables = [renamed.get(table, table) for revision in known for table in revision.tables]
        assert sorted(tables) == sorted(table.name for table in metadata.tables.values())


@pytest.mark.proves("1-M1")
def test_graph_jobs_come_after_all_earlier_tables() -> None:
    """1-M1."""
    making = [revision.tables for revision in revisions.known_revisions("scheduler") if revision.tables]
    assert making[-1] == ("graph_jobs", "graph_job_events")


def test_revisions_do_not_depend_on_the_declaration() -> None:
    """A revision is frozen: later changes of the declared tables must not change what it did."""
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


def test_a_table_without_names_would_be_seen() -> None:
    """The tests above look at something: an unnamed index is found."""
    table = Table("loose", MetaData(), Column("a", Text(), index=True))
    assert [name for name in names_of(table) if name and not NAME.fullmatch(name)] or None in names_of(table)
