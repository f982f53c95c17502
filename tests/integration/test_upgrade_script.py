"""``schema upgrade --sql``: the printed SQL, executed by an administrator, makes what the upgrade makes."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege, RaiseException
from psycopg.sql import SQL, Identifier

from migrator.__main__ import main
from migrator.errors import UsageError
from migrator.schema import catalogue, revisions
from migrator.schema.security import Roles
from migrator.schema.upgrade_script import named_start, upgrade_script
from tests.integration.test_schema_catalogue import dump
from tests.integration.test_schema_upgrade import EVERYTHING, PRODUCT, TOOL, facts
from tests.schema_dump import GOLDEN
from tests.schema_rows import connect, insert

Print = Callable[..., tuple[int, str, str]]
NOTHING = dict.fromkeys(revisions.BRANCHES)


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Print:
    """Call the command with a DSN, or with none; return status, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(dsn: str | None, *words: str) -> tuple[int, str, str]:
        monkeypatch.delenv("MIGRATOR_POSTGRES__DSN", raising=False)
        if dsn is not None:
            monkeypatch.setenv("MIGRATOR_POSTGRES__DSN", dsn)
        monkeypatch.setattr(sys, "argv", ["migrator", "schema", "upgrade", *words])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return run


@pytest.fixture
def names(any_postgres_dsn: str) -> Iterator[Roles]:
    """Roles that the server does not have yet, and the user ``<tag>_user``; all are removed."""
    tag = any_postgres_dsn.rpartition("/")[2]
    found = Roles(f"{tag}_owner", f"{tag}_service", f"{tag}_dispatcher")
    yield found
    with connect(any_postgres_dsn) as admin:
        made = [role for role in (f"{tag}_user", *found.names()) if exists(admin, role)]
        for statement in ("DROP OWNED BY {} CASCADE", "DROP ROLE {}"):
            for role in made:
                admin.execute(SQL(statement).format(Identifier(role)))


def exists(connection: psycopg.Connection[Any], role: str) -> bool:
    return connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is not None


def recorded(dsn: str) -> list[tuple[object, ...]]:
    """Return the record of the revisions, without the time."""
    rows = []
    with connect(dsn) as connection:
        for branch in revisions.BRANCHES:
            for query in ("SELECT revision, file, sha256, tool_version FROM {}", "SELECT version_num FROM {}"):
                table = Identifier(branch, "schema_revision" if "num" in query else "schema_history")
                rows += connection.execute(SQL(query + " ORDER BY 1").format(table)).fetchall()
    return rows


def compressed(dsn: str) -> list[tuple[object, ...]]:
    with connect(dsn) as connection:
        return connection.execute(
            "SELECT attrelid::regclass::text, attname FROM pg_attribute WHERE attcompression = 'l' ORDER BY 1, 2"
        ).fetchall()


def test_the_script_makes_in_an_empty_database_what_the_upgrade_makes(
    any_postgres_dsn: str, any_scheduler_dsn: str, names: Roles
) -> None:
    script = upgrade_script(NOTHING, names)
    assert [*script.revisions] == EVERYTHING
    with connect(any_postgres_dsn) as administrator:
        administrator.execute(script.text.encode())
        version = administrator.info.server_version // 10_000
    assert catalogue.differences(any_postgres_dsn, names=names) == []
    assert recorded(any_postgres_dsn) == recorded(any_scheduler_dsn)
    assert compressed(any_postgres_dsn) == compressed(any_scheduler_dsn)
    found = dump(any_postgres_dsn, version)
    for own, usual in zip(names.names(), Roles().names(), strict=True):
        found = found.replace(own, usual)
    assert found == GOLDEN.read_text()
    assert revisions.upgrade(any_postgres_dsn, names=names) == []


def test_an_administrator_who_is_no_superuser_executes_it_for_the_user_of_the_tool(
    any_postgres_dsn: str, names: Roles
) -> None:
    """The role that administers may create roles, and owns nothing; the tool's user may only connect."""
    database = any_postgres_dsn.rpartition("/")[2]
    administrator, user = f"{database}_user", "scheduler_service"  # any other user of the server
    login = re.sub(r"//[^@]+@", f"//{administrator}:secret@", any_postgres_dsn)
    with connect(any_postgres_dsn) as superuser:
        superuser.execute(f"CREATE ROLE {administrator} LOGIN CREATEROLE PASSWORD 'secret'".encode())
        script = upgrade_script(NOTHING, names, user=user).text.encode()
        with connect(login) as connection, pytest.raises(InsufficientPrivilege):
            connection.execute(script)
        assert not any(exists(superuser, role) for role in names.names()), "one transaction, the roles too"
        superuser.execute(f'GRANT CREATE ON DATABASE "{database}" TO {administrator}'.encode())
        with connect(login) as connection:
            connection.execute(script)
        row = superuser.execute("SELECT pg_has_role(%s, %s, 'MEMBER')", (user, names.migration)).fetchone()
        assert row == (True,)
        superuser.execute(f"REVOKE {names.migration} FROM {user}".encode())
    assert catalogue.differences(any_postgres_dsn, names=names) == []


def test_from_where_the_target_is_with_its_rows(printed: Print, scheduler_dsn: str) -> None:
    with connect(scheduler_dsn) as connection:
        schedule = insert(connection, "schedules", priority=75)
        trigger = insert(connection, "triggers", schedule_id=schedule)
        expected = recorded(scheduler_dsn)
        revisions.downgrade(scheduler_dsn, "0006")
        revisions.downgrade(scheduler_dsn, "0009")
        before = facts(scheduler_dsn)
        status, script, _ = printed(scheduler_dsn, "--sql")
        assert (status, facts(scheduler_dsn)) == (0, before)
        assert "scheduler from 0006, migration from 0009" in script
        assert printed(None, "--sql", "--from", "0006", "--from", "0009")[:2] == (0, script)
        connection.execute(script.encode())
        assert catalogue.differences(scheduler_dsn) == []
        assert recorded(scheduler_dsn) == expected
        row = connection.execute("SELECT priority FROM scheduler.triggers WHERE id = %s", (trigger,)).fetchone()
        assert row == (75,)
    assert printed(scheduler_dsn, "--sql") == (0, "-- nothing to apply\n", "")


def test_a_script_that_begins_elsewhere_changes_nothing(scheduler_dsn: str, postgres_dsn: str) -> None:
    before = facts(scheduler_dsn)
    with connect(scheduler_dsn) as connection:
        with pytest.raises(RaiseException, match=f"is at {PRODUCT[-1]}, and this script begins at nothing"):
            connection.execute(upgrade_script(NOTHING, Roles()).text.encode())
        connection.execute("ROLLBACK")
    assert facts(scheduler_dsn) == before
    with connect(postgres_dsn) as connection:
        late = upgrade_script({"scheduler": "0006", "migration": None}, Roles()).text.encode()
        with pytest.raises(RaiseException, match="scheduler is at nothing, and this script begins at 0006"):
            connection.execute(late)
        connection.execute("ROLLBACK")
        connection.execute("CREATE SCHEMA scheduler CREATE TABLE runs_of_others ()")
        with pytest.raises(RaiseException, match="scheduler is not this tool's"):
            connection.execute(upgrade_script(NOTHING, Roles()).text.encode())
        connection.execute("ROLLBACK")
        row = connection.execute("SELECT to_regnamespace('migration') IS NULL").fetchone()
    assert row == (True,)


def test_without_a_server_the_beginning_is_named(printed: Print) -> None:
    status, script, _ = printed(None, "--sql", "--from", "base")
    assert (status, script) == (0, upgrade_script(NOTHING, Roles()).text)
    status, _, error = printed(None, "--sql")
    assert (status, "postgres.dsn" in error) == (2, True)
    status, _, error = printed(None, "--from", "base")
    assert (status, error) == (2, "migrator: --from belongs to --sql\n")
    assert named_start([PRODUCT[0], "migration@base"]) == {"scheduler": PRODUCT[0], "migration": None}
    for given, words in (
        ([PRODUCT[0]], "no revision of migration"),
        ([TOOL[0], "base"], "two revisions of migration"),
        (["0999"], "no revision 0999"),
    ):
        with pytest.raises(UsageError, match=words):
            named_start(given)
