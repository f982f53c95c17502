"""Upgrade, downgrade and upgrade again on real servers: twice, at once, interrupted, with rows, with a changed file."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier

from migrator.connections.postgres import Connection
from migrator.errors import ConfigurationError, RefusedError, UnreachableError, UsageError
from migrator.schema import catalogue, revisions
from tests.schema_rows import LEAST, connect, count, insert

PRODUCT, TOOL = ([one.id for one in revisions.known_revisions(branch)] for branch in revisions.BRANCHES)
EVERYTHING = [*PRODUCT, *TOOL]
SCHEDULE_STATUSES = ("pending", "scheduled", "running", "paused", "cancelled", "completed", "failed")
RUN_STATES = ("planning", "queued", "running", "completed", "error", "cancelled", "timeout", "skipped")
LATER = f'''"""Add a note."""

from alembic import op

revision = "0099"
down_revision = "{PRODUCT[-1]}"
branch_labels = None
depends_on = None
TABLES = ()


def upgrade() -> None:
    op.execute("ALTER TABLE runs ADD note text")


def downgrade() -> None:
    op.execute("ALTER TABLE runs DROP note")
'''


def facts(dsn: str) -> list[tuple[object, ...]]:
    """Return everything in the two schemas' catalogue, object ids included: nothing may be made anew."""
    with connect(dsn) as connection:
        return connection.execute(
            "SELECT oid, relname, relkind, relfilenode, relacl::text FROM pg_class"
            " WHERE relnamespace IN ('scheduler'::regnamespace, 'migration'::regnamespace) ORDER BY oid"
        ).fetchall()


def wait_until(connection: Connection, query: str, expected: int) -> None:
    """Ask again until the count is reached; the test's own time limit ends a wait that is in vain."""
    pause = threading.Event()
    while connection.execute(query.encode()).fetchone() != (expected,):
        pause.wait(0.02)


@pytest.fixture
def copied_revisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the revision files, in use, that a test may change."""
    folder = tmp_path / "alembic"
    shutil.copytree(revisions.revisions_folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(revisions, "revisions_folder", lambda: folder)
    return folder


@pytest.mark.proves("0-T2.2.1")
def test_an_empty_database_gets_both_schemas_and_a_record_of_each_file(any_postgres_dsn: str) -> None:
    """0-T2.2.1: empty database → schema; version recorded with checksum."""
    done = revisions.upgrade(any_postgres_dsn)
    assert [change.revision for change in done] == EVERYTHING
    assert catalogue.differences(any_postgres_dsn) == []
    with connect(any_postgres_dsn) as connection:
        for branch in revisions.BRANCHES:
            recorded = revisions.applied_revisions(connection, branch)
            assert recorded == {one.id: (one.file, one.sha256) for one in revisions.known_revisions(branch)}
    assert [(place.branch, place.revision) for place in revisions.current(any_postgres_dsn)] == [
        ("scheduler", PRODUCT[-1]),
        ("migration", TOOL[-1]),
    ]


@pytest.mark.proves("0-T2.2.4", "2-V1")
def test_a_second_upgrade_changes_nothing(any_scheduler_dsn: str) -> None:
    """0-T2.2.4: applied twice → the same catalogue."""
    before = facts(any_scheduler_dsn)
    assert revisions.upgrade(any_scheduler_dsn) == []
    assert facts(any_scheduler_dsn) == before


@pytest.mark.proves("0-T2.2.4")
def test_of_two_upgraders_at_once_one_applies_and_the_other_waits(any_postgres_dsn: str) -> None:
    """0-T2.2.4."""
    with connect(any_postgres_dsn) as gate, ThreadPoolExecutor(2) as pool:
        gate.execute("SELECT pg_advisory_lock(%s)", (revisions.LOCK_KEY,))
        upgraders = [pool.submit(revisions.upgrade, any_postgres_dsn) for _ in range(2)]
        wait_until(
            gate,
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            2,
        )
        gate.execute("SELECT pg_advisory_unlock(%s)", (revisions.LOCK_KEY,))
        done = sorted((upgrader.result() for upgrader in upgraders), key=len)
    assert [len(one) for one in done] == [0, len(EVERYTHING)]
    assert catalogue.differences(any_postgres_dsn) == []


def test_upgraders_of_two_databases_may_make_the_roles_at_once(new_scheduler_dsn: Callable[[], str]) -> None:
    """Roles belong to the server; here they exist, and both find them."""
    names = [new_scheduler_dsn(), new_scheduler_dsn()]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(revisions.upgrade, names)) == [[], []]


@pytest.mark.proves("2-V1")
def test_an_upgrade_that_fails_half_way_leaves_nothing_and_completes_when_called_again(any_scheduler_dsn: str) -> None:
    """0-T2.2.4, 2-V1: somebody else's table stands in the way of the fourth revision."""
    with connect(any_scheduler_dsn) as connection:
        revisions.downgrade(any_scheduler_dsn)
        connection.execute("CREATE SCHEMA scheduler AUTHORIZATION scheduler_migration")
        connection.execute("CREATE TABLE scheduler.locks (theirs integer)")
        with pytest.raises(RefusedError, match=r"schema scheduler holds an object that the tool did not create.*locks"):
            revisions.upgrade(any_scheduler_dsn)
        found = connection.execute("SELECT relname FROM pg_class WHERE relnamespace = 'scheduler'::regnamespace")
        assert found.fetchall() == [("locks",)]
        connection.execute("DROP SCHEMA scheduler CASCADE")
    assert [change.revision for change in revisions.upgrade(any_scheduler_dsn)] == EVERYTHING
    assert catalogue.differences(any_scheduler_dsn) == []


@pytest.mark.proves("0-T2.2.4")
def test_an_upgrade_killed_half_way_leaves_nothing_and_completes_when_called_again(any_scheduler_dsn: str) -> None:
    """0-T2.2.4: killed with SIGKILL between two tables of one revision."""
    revisions.downgrade(any_scheduler_dsn, "0003")
    with connect(any_scheduler_dsn) as watch, connect(any_scheduler_dsn) as gate:
        gate.execute("BEGIN")
        gate.execute("CREATE TABLE scheduler.audit ()")  # 0004 makes workers and locks, and waits here
        upgrader = subprocess.Popen(
            [sys.executable, "-m", "migrator", "schema", "upgrade"],
            env=os.environ | {"MIGRATOR_POSTGRES__DSN": any_scheduler_dsn},
            cwd=Path(__file__).parents[2],
            stdout=subprocess.DEVNULL,
        )
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'migrator' AND wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )
        wait_until(watch, waiting, 1)
        upgrader.send_signal(signal.SIGKILL)
        assert upgrader.wait() == -signal.SIGKILL
        watch.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'migrator' AND datname = current_database()"
        )
        wait_until(watch, waiting, 0)
        gate.execute("ROLLBACK")
        assert watch.execute("SELECT to_regclass('scheduler.workers') IS NULL").fetchone() == (True,)
    assert revisions.current(any_scheduler_dsn)[0].revision == "0003"
    assert [change.revision for change in revisions.upgrade(any_scheduler_dsn)] == PRODUCT[PRODUCT.index("0004") :]
    assert catalogue.differences(any_scheduler_dsn) == []


def test_a_downgrade_that_would_lose_rows_is_refused_and_says_which(any_scheduler_dsn: str) -> None:
    with connect(any_scheduler_dsn) as connection:
        insert(connection, "schedules")
        insert(connection, "triggers")
        before = facts(any_scheduler_dsn)
        expected = r"scheduler.schedules: 2, scheduler.triggers: 1\); call again with --discard-rows"
        with pytest.raises(RefusedError, match=expected):
            revisions.downgrade(any_scheduler_dsn)
        assert revisions._losses(connection, revisions.BASE) == {"scheduler.schedules": 2, "scheduler.triggers": 1}
        assert revisions._losses(connection, "0001") == {}
        assert count(connection, "triggers") == 1
    assert facts(any_scheduler_dsn) == before


@pytest.mark.proves("4-B2")
def test_down_and_up_again_with_a_row_in_every_table(any_scheduler_dsn: str) -> None:
    """0-T2.2.1: the whole way down takes the schemas with it, the whole way up makes them anew."""
    with connect(any_scheduler_dsn) as connection:
        for table in LEAST:
            insert(connection, table)
        undone = revisions.downgrade(any_scheduler_dsn, discard_rows=True)
        assert [change.revision for change in undone] == EVERYTHING[::-1]
        assert all(change.undone for change in undone)
        left = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname IN ('scheduler', 'migration')")
        assert left.fetchall() == []
        assert revisions.downgrade(any_scheduler_dsn) == []
        assert [change.revision for change in revisions.upgrade(any_scheduler_dsn)] == EVERYTHING
        assert catalogue.differences(any_scheduler_dsn) == []
        for table in LEAST:
            insert(connection, table)


@pytest.mark.proves("1-M1")
def test_graph_jobs_go_down_and_up_while_everything_else_keeps_its_rows(any_scheduler_dsn: str) -> None:
    """1-M1: applied after earlier ones, once; down and up with data inside. 1-B1: the migration can be reverted."""
    with connect(any_scheduler_dsn) as connection:
        kept = {table: insert(connection, table) for table in LEAST if not table.startswith("graph")}
        insert(connection, "graph_job_events")
        undone = revisions.downgrade(any_scheduler_dsn, "0005", discard_rows=True)
        after = PRODUCT[PRODUCT.index("0005") + 1 :]
        assert [change.revision for change in undone] == after[::-1]
        assert connection.execute("SELECT to_regclass('scheduler.graph_jobs')").fetchone() == (None,)
        for table, identity in kept.items():
            assert count(connection, table, identity) == 1
        assert [change.revision for change in revisions.upgrade(any_scheduler_dsn)] == after
        assert revisions.upgrade(any_scheduler_dsn) == []
        insert(connection, "graph_job_events")
    assert catalogue.differences(any_scheduler_dsn) == []


@pytest.mark.proves("4-D9")
def test_every_step_down_and_up_again_ends_at_the_declared_schema(any_scheduler_dsn: str) -> None:
    for branch, known in enumerate((PRODUCT, TOOL)):
        for stop in known[-2::-1]:
            revisions.downgrade(any_scheduler_dsn, stop)
            assert revisions.current(any_scheduler_dsn)[branch].revision == stop
    revisions.upgrade(any_scheduler_dsn)
    assert catalogue.differences(any_scheduler_dsn) == []


def content(connection: Connection) -> dict[str, list[tuple[object, ...]]]:
    return {
        table: connection.execute(
            f"SELECT to_jsonb(t)::text FROM scheduler.{table} AS t ORDER BY id".encode()
        ).fetchall()
        for table in ("schedules", "triggers", "runs")
    }


@pytest.mark.proves("3-A21")
def test_rows_of_every_state_outlast_the_way_down_and_up_and_a_loss_is_named(any_scheduler_dsn: str) -> None:
    """3-A21: up, use, down, up, use."""
    with connect(any_scheduler_dsn) as connection:
        for status in SCHEDULE_STATUSES:
            of = insert(connection, "schedules", status=status, priority=75)
            insert(connection, "triggers", schedule_id=of)
        for state in RUN_STATES:
            insert(connection, "runs", state=state)
        before = content(connection)
        assert [len(rows) for rows in before.values()] == [7, 7, 8]
        revisions.downgrade(any_scheduler_dsn, "0002")
        assert revisions.current(any_scheduler_dsn)[0].revision == "0002"
        assert [count(connection, table) for table in before] == [7, 7, 8]
        revisions.upgrade(any_scheduler_dsn)
        assert content(connection) == before
        insert(connection, "schedules")
        with pytest.raises(RefusedError, match=r"scheduler.runs: 8\); call again with --discard-rows"):
            revisions.downgrade(any_scheduler_dsn, "0001")
        revisions.downgrade(any_scheduler_dsn, "0001", discard_rows=True)
        revisions.upgrade(any_scheduler_dsn)
        assert [count(connection, table) for table in before] == [8, 7, 0]
        insert(connection, "runs")
    assert catalogue.differences(any_scheduler_dsn) == []


def test_the_tool_s_own_schema_can_be_dropped_alone(any_scheduler_dsn: str) -> None:
    """After sign-off the product stays as it is, and can be upgraded."""
    revisions.downgrade(any_scheduler_dsn, "migration@base")
    with connect(any_scheduler_dsn) as connection:
        assert connection.execute("SELECT to_regnamespace('migration')").fetchone() == (None,)
        insert(connection, "runs")
    assert revisions.upgrade(any_scheduler_dsn, branches=("scheduler",)) == []
    assert {one.object for one in catalogue.differences(any_scheduler_dsn)} == {"schema migration"}


def test_a_schema_with_somebody_else_s_table_stays(scheduler_dsn: str) -> None:
    with connect(scheduler_dsn) as connection:
        connection.execute("CREATE TABLE scheduler.theirs ()")
        revisions.downgrade(scheduler_dsn)
        left = connection.execute("SELECT relname FROM pg_class WHERE relnamespace = 'scheduler'::regnamespace")
        assert left.fetchall() == [("theirs",)]


@pytest.mark.proves("0-T2.2.1")
def test_a_changed_file_that_was_applied_is_refused(scheduler_dsn: str, copied_revisions: Path) -> None:
    """0-T2.2.1: F, a changed migration file is refused."""
    revisions.upgrade(scheduler_dsn)
    file = copied_revisions / "versions" / "0002_create_runs.py"
    file.write_text(file.read_text().replace("duration_ms >= 0", "duration_ms > 0"))
    for call in (revisions.upgrade, revisions.current, revisions.downgrade):
        with pytest.raises(RefusedError, match="revision 0002 was applied from a file with another content"):
            call(scheduler_dsn)


def test_a_revision_of_a_newer_tool_is_refused(scheduler_dsn: str, copied_revisions: Path) -> None:
    newest = revisions.known_revisions("scheduler")[-1]
    (copied_revisions / "versions" / newest.file).unlink()
    for call in (revisions.upgrade, revisions.current):
        with pytest.raises(
            RefusedError, match=rf"at revision {newest.id} .* does not know; use the version that applied it"
        ):
            call(scheduler_dsn)


def test_a_database_of_another_chain_of_revisions_is_refused(scheduler_dsn: str) -> None:
    """Unknown revisions, and known ones of another content: the newest unknown one says which version to use."""
    with connect(scheduler_dsn) as connection:
        connection.execute("UPDATE migration.schema_history SET sha256 = repeat('0', 64)")
        connection.execute(
            "INSERT INTO migration.schema_history VALUES ('0016', '0016_x.py', '', now(), '0'),"
            " ('0017', '0017_y.py', '', now(), '0')"
        )
        expected = r"at revision 0017 \(0017_y.py\), which this version of the tool does not know; use the version"
        for call in (revisions.upgrade, revisions.current, revisions.downgrade):
            with pytest.raises(RefusedError, match=expected):
                call(scheduler_dsn)
        with pytest.raises(RefusedError, match=expected):
            revisions.require_known(connection)


def test_a_later_revision_is_applied_to_a_schema_with_rows(scheduler_dsn: str, copied_revisions: Path) -> None:
    later = copied_revisions / "versions" / "0099_add_note.py"
    later.write_text(LATER)
    with connect(scheduler_dsn) as connection:
        run = insert(connection, "runs")
        assert [change.title for change in revisions.upgrade(scheduler_dsn)] == ["Add a note"]
        assert catalogue.differences(scheduler_dsn) == []
        later.unlink()
        assert [one.object for one in catalogue.differences(scheduler_dsn)] == [
            "scheduler.runs column note",
            "scheduler.runs order of columns",
        ]
        later.write_text(LATER)
        revisions.downgrade(scheduler_dsn, PRODUCT[-1])
        assert count(connection, "runs", run) == 1
    later.unlink()
    assert catalogue.differences(scheduler_dsn) == []


def test_alembic_s_own_command_is_refused(scheduler_dsn: str) -> None:
    """It would take no lock, check no checksum and name no role."""
    from alembic import command  # noqa: PLC0415 - only here
    from alembic.util import CommandError  # noqa: PLC0415 - only here

    del scheduler_dsn
    with pytest.raises(CommandError, match="migrator schema upgrade"):
        command.upgrade(revisions.alembic_configuration(), "scheduler@head")


def test_unknown_targets_and_servers_are_refused_in_words(scheduler_dsn: str) -> None:
    with pytest.raises(UsageError, match=r"no revision 0999; known: base, scheduler@base, 0001"):
        revisions.downgrade(scheduler_dsn, "0999")
    with pytest.raises(UsageError, match="no revision elsewhere@base"):
        revisions.downgrade(scheduler_dsn, "elsewhere@base")
    with pytest.raises(UnreachableError, match="create the database first"):
        revisions.upgrade(scheduler_dsn.rpartition("/")[0] + "/absent")
    with pytest.raises(ConfigurationError, match="is not a PostgreSQL DSN"):
        revisions.upgrade("nonsense")


def test_large_jsonb_is_compressed_with_lz4_where_the_server_offers_it(any_scheduler_dsn: str) -> None:
    with connect(any_scheduler_dsn) as connection:
        (offered,) = connection.execute(
            "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
        ).fetchone() or (False,)
        found = connection.execute(
            "SELECT relname || '.' || attname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid"
            " WHERE relnamespace = 'scheduler'::regnamespace AND attcompression = 'l'"
        )
        compressed = {name for (name,) in found}
    large = {f"{table}.{column}" for table, column in revisions.LARGE}
    assert "impact_snapshots.images" in large
    assert compressed == (large if offered else set())


def test_everything_belongs_to_the_owning_role(any_scheduler_dsn: str) -> None:
    with connect(any_scheduler_dsn) as connection:
        owners = connection.execute(
            "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relkind IN ('r', 'S') AND"
            " relnamespace IN ('scheduler'::regnamespace, 'migration'::regnamespace)"
        ).fetchall()
        schemas = connection.execute(
            "SELECT DISTINCT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname IN ('scheduler', 'migration')"
        ).fetchall()
        logins = connection.execute(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'scheduler\\_%'"
            " AND (rolcanlogin OR rolsuper OR rolbypassrls)"
        ).fetchall()
    assert owners == schemas == [("scheduler_migration",)]
    assert logins == []


def test_a_plain_user_gets_the_sql_to_hand_over_and_can_go_on_when_it_was_run(any_postgres_dsn: str) -> None:
    """The names of the roles are the configuration's; a user without rights is told what an administrator must run."""
    from migrator.schema.security import RightsMissingError, Roles  # noqa: PLC0415 - only here

    tag = any_postgres_dsn.rpartition("/")[2]
    names = Roles(migration=f"{tag}_owner", service=f"{tag}_service", dispatcher=f"{tag}_dispatcher")
    user = f"{tag}_user"
    login = any_postgres_dsn.replace(any_postgres_dsn.split("//")[1].split("@", maxsplit=1)[0], f"{user}:secret")
    with connect(any_postgres_dsn) as admin:
        admin.execute(SQL("CREATE ROLE {} LOGIN PASSWORD 'secret'").format(Identifier(user)))
        try:
            ran: list[str] = []
            for refused in ("create roles", "create schemas", "create schemas"):
                with pytest.raises(RightsMissingError, match=f"the target's user may not {refused}") as caught:
                    revisions.upgrade(login, names=names)
                for statement in caught.value.statements:
                    assert f"  {statement};" in str(caught.value)
                    ran.append(statement.split()[0])
                    admin.execute(statement.encode())
            assert ran == ["CREATE", "CREATE", "CREATE", "GRANT", "CREATE", "CREATE"]
            assert len(revisions.upgrade(login, names=names)) == len(EVERYTHING)
            assert catalogue.differences(login, names=names) == []
            swapped = Roles(migration=names.migration, service=names.dispatcher, dispatcher=names.service)
            assert catalogue.differences(login, names=swapped)
        finally:
            for role in (user, *names.names()):
                if admin.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is not None:
                    admin.execute(SQL("DROP OWNED BY {} CASCADE").format(Identifier(role)))
            for role in (user, *names.names()):
                admin.execute(SQL("DROP ROLE IF EXISTS {}").format(Identifier(role)))


def test_the_revisions_are_found_in_an_installed_package(scheduler_dsn: str, tmp_path: Path) -> None:
    """0-T2.1.2: as the wheel has it, ``alembic`` inside the package as ``_alembic``, and nothing beside it."""
    root = Path(__file__).parents[2]
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "migrator", tmp_path / "migrator", ignore=skip)
    shutil.copytree(root / "alembic", tmp_path / "migrator" / "_alembic", ignore=skip)
    found = subprocess.run(
        [sys.executable, "-m", "migrator", "schema", "current"],
        env=os.environ | {"MIGRATOR_POSTGRES__DSN": scheduler_dsn, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.splitlines()[:2] == [f"scheduler: {PRODUCT[-1]} (newest)", f"migration: {TOOL[-1]} (newest)"]
