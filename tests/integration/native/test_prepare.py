"""What must be there before a row is written into a library's tables, and what is refused, in words."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.exit_status import DONE, UNVERIFIED, USAGE
from migrator.targets.library import LIBRARIES
from tests.apscheduler_documents import real
from tests.conftest import NEWEST, Clusters, fresh_name
from tests.copying import run, settings_for, write_config
from tests.native_tables import BY_NAME, prepare

WRITING = ("target prepare", "plan", "backfill")


@pytest.fixture
def settings(mongo_database: Database[Any], postgres_dsn: str) -> Settings:
    mongo_database["jobs"].insert_many(real("3.11.3").values())
    return settings_for(mongo_database, postgres_dsn, profile="apscheduler", target=TargetSettings(name="apscheduler"))


def execute(settings: Settings, statement: str) -> None:
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        connection.execute(statement.encode())


def relations(settings: Settings) -> set[str]:
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        rows = connection.execute(
            "SELECT relnamespace::regnamespace || '.' || relname FROM pg_class JOIN pg_namespace AS space"
            " ON space.oid = relnamespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'"
        ).fetchall()
    return {name for (name,) in rows}


def call(settings: Settings, folder: Path) -> Callable[[str], tuple[int, str]]:
    config = str(write_config(folder, settings))

    def called(command: str) -> tuple[int, str]:
        status, out, said = run(*command.split(), "--config", config, cwd=folder)
        return status, out + said

    return called


def test_the_library_makes_its_tables_where_it_is_asked_to(settings: Settings, tmp_path: Path) -> None:
    migrator = call(settings, tmp_path)
    status, words = migrator("target prepare")
    assert status == USAGE
    assert "the target has no table public.apscheduler_jobs" in words
    assert "call migrator target prepare --make-tables" in words
    assert LIBRARIES["apscheduler"].makes in words
    status, words = migrator("target prepare --make-tables --dry-run")
    assert (status, "would let the library make public.apscheduler_jobs" in words) == (DONE, True)
    assert relations(settings) == set()
    status, words = migrator("target prepare --make-tables")
    assert (status, "the library made public.apscheduler_jobs" in words) == (DONE, True), words
    assert {"public.apscheduler_jobs", "migration_apscheduler.apscheduler_jobs"} <= relations(settings)
    before = relations(settings)
    status, words = migrator("target prepare --make-tables")
    assert (status, "the library made" in words) == (DONE, False), words
    assert relations(settings) == before


def test_the_tables_may_have_other_names_and_another_schema(
    mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    target = TargetSettings(name="apscheduler", schema="App one", tables={"apscheduler_jobs": "work items"})
    settings = settings_for(mongo_database, postgres_dsn, profile="apscheduler", target=target)
    mongo_database["jobs"].insert_many(real("3.11.3").values())
    config = write_config(tmp_path, settings)
    text = config.read_text(encoding="utf-8").replace('{"apscheduler_jobs": ', '{"apscheduler_jobs" = ')
    config.write_text(text, encoding="utf-8")
    status, _, said = run("target", "prepare", "--make-tables", "--config", str(config), cwd=tmp_path)
    assert (status, "the target has no schema App one" in said) == (USAGE, True), said
    assert 'CREATE SCHEMA "App one"' in said
    execute(settings, 'CREATE SCHEMA "App one"')
    for command in ("target prepare --make-tables", "doctor", "backfill", "parity"):
        status, out, said = run(*command.split(), "--config", str(config), cwd=tmp_path)
        assert status == DONE, command + out + said
    with psycopg.connect(postgres_dsn) as connection:
        rows = connection.execute('SELECT count(*) FROM "App one"."work items"').fetchone()
    assert rows == (len(real("3.11.3")),)


def test_a_python_without_the_library_is_refused_with_the_command_that_installs_it(
    settings: Settings, tmp_path: Path, bare_python: Path
) -> None:
    config = write_config(tmp_path, settings)
    config.write_text(config.read_text().replace("[target]", f'[target]\ninterpreter = "{bare_python}"'))
    status, _, said = run("target", "prepare", "--make-tables", "--config", str(config), cwd=tmp_path)
    assert status == USAGE
    assert f"call {bare_python} -m pip install 'apscheduler>=3.11,<4'" in said
    assert relations(settings) == set()


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """Return a Python that has no packages."""
    import venv  # noqa: PLC0415 - of this fixture alone

    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    return tmp_path / "bare" / "bin" / "python"


PLANTED = {
    "ALTER TABLE apscheduler_jobs ADD COLUMN more text NOT NULL DEFAULT ''": "apscheduler_jobs.more: column is unknown",
    "ALTER TABLE apscheduler_jobs DROP COLUMN next_run_time": "apscheduler_jobs.next_run_time: column is missing",
    "ALTER TABLE apscheduler_jobs ALTER COLUMN id TYPE varchar(100)": (
        "apscheduler_jobs.id: type is character varying(100), expected character varying(191)"
    ),
    "ALTER TABLE apscheduler_jobs DROP CONSTRAINT apscheduler_jobs_pkey": "apscheduler_jobs: primary key id is missing",
    "CREATE UNIQUE INDEX ON apscheduler_jobs (next_run_time)": (
        "apscheduler_jobs: unique btree (next_run_time) is unknown"
    ),
}


@pytest.mark.parametrize("statement", PLANTED)
def test_tables_of_no_known_version_are_refused_before_anything_is_written(
    statement: str, settings: Settings, tmp_path: Path
) -> None:
    migrator = call(settings, tmp_path)
    assert migrator("target prepare --make-tables")[0] == DONE
    if "COLUMN id" in statement or "DROP COLUMN" in statement:  # the views depend on it
        execute(settings, "DROP SCHEMA migration_apscheduler CASCADE")
    execute(settings, statement)
    before = relations(settings)
    for command in WRITING:
        status, words = migrator(command)
        assert status == USAGE, command + words
        assert PLANTED[statement] in words, command
        assert "the nearest is apscheduler 3.11.3" in words
        assert "describe these tables in a mapping file" in words
    status, words = migrator("doctor")
    assert "NO  tables of the library: the tables of APScheduler 3, SQLAlchemyJobStore" in words
    assert PLANTED[statement] in words
    assert relations(settings) == before
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        assert connection.execute("SELECT count(*) FROM apscheduler_jobs").fetchone() == (0,)


OWN = """
[source]
name = "own"

[target]
name = "own"

[target.tables.apscheduler_jobs]
key = ["id"]

[target.tables.apscheduler_jobs.columns]
id = "varchar(191) not null"
next_run_time = "double precision"
job_state = "bytea not null"

[collections.jobs]
tables = ["apscheduler_jobs"]

[collections.jobs.fields]
_id = { to = "apscheduler_jobs.id" }
next_run_time = { to = "apscheduler_jobs.next_run_time", write_null = true }
job_state = { to = "apscheduler_jobs.job_state" }
"""


def test_the_remedy_of_a_table_that_is_no_known_one_works(settings: Settings, tmp_path: Path) -> None:
    migrator = call(settings, tmp_path)
    assert migrator("target prepare --make-tables")[0] == DONE
    execute(settings, "ALTER TABLE apscheduler_jobs ADD COLUMN more text")
    assert migrator("backfill")[0] == USAGE
    (tmp_path / "own.toml").write_text(OWN)
    config = tmp_path / "config.toml"
    text = config.read_text().replace('name = "apscheduler"', 'name = "own"')
    config.write_text(text.replace('profile = "apscheduler"', f'mapping = "{tmp_path / "own.toml"}"'))
    for command in ("target prepare", "doctor", "backfill", "parity"):
        status, out, said = run(*command.split(), "--config", str(config), cwd=tmp_path)
        assert status == DONE, command + out + said


def test_doctor_names_who_else_is_connected_to_the_target(settings: Settings, tmp_path: Path) -> None:
    migrator = call(settings, tmp_path)
    assert migrator("target prepare --make-tables")[0] == DONE
    assert "ok  sessions of others: nobody else is connected" in migrator("doctor")[1]
    with psycopg.connect(settings.postgres.dsn or "", application_name="billing"):
        status, words = migrator("doctor")
        assert status == UNVERIFIED
        line = next(line for line in words.splitlines() if "sessions of others" in line)
        assert line.startswith("?   sessions of others: ")
        assert "(billing, 1)" in line
        assert migrator("backfill")[0] == DONE, "another session is a warning, and stops nothing"


@pytest.fixture
def latin(clusters: Clusters) -> Iterator[str]:
    """Return the DSN of a database with another encoding."""
    server, name = clusters.get(NEWEST).server, fresh_name()
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0").format(sql.Identifier(name))
        )
    yield server.dsn(name)
    server.drop_database(name)


def test_a_database_of_another_encoding_is_refused(latin: str, mongo_database: Database[Any], tmp_path: Path) -> None:
    settings = settings_for(mongo_database, latin, profile="apscheduler", target=TargetSettings(name="apscheduler"))
    mongo_database["jobs"].insert_many(real("3.11.3").values())
    migrator = call(settings, tmp_path)
    for command in ("target prepare --make-tables", *WRITING):
        status, words = migrator(command)
        assert (status, "has the encoding LATIN1" in words) == (USAGE, True), command + words
    name = psycopg.conninfo.conninfo_to_dict(latin)["dbname"]
    assert f"NO  target: the target's database {name} has the encoding LATIN1" in migrator("doctor")[1]
    assert relations(settings) == set()


def test_the_tool_works_as_a_user_who_only_owns_the_database(settings: Settings, tmp_path: Path) -> None:
    user, superuser = fresh_name(), settings.postgres.dsn or ""
    with psycopg.connect(superuser, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret'").format(sql.Identifier(user)))
        try:
            for kind, name in (("DATABASE", admin.info.dbname), ("SCHEMA", "public")):
                owned = sql.SQL(kind), sql.Identifier(name), sql.Identifier(user)
                admin.execute(sql.SQL("ALTER {} {} OWNER TO {}").format(*owned))
            dsn = make_conninfo(superuser, user=user, password="secret")
            owner = replace(settings, postgres=replace(settings.postgres, dsn=dsn))
            migrator = call(owner, tmp_path)
            hand_over(migrator("target prepare --make-tables")[1], admin)
            for command in ("target prepare --make-tables", "backfill", "tail --until-caught-up", "parity"):
                status, words = migrator(command)
                assert status == DONE, command + words
            execute(owner, "UPDATE apscheduler_jobs SET job_state = ''")
            status, words = migrator(
                "parity --repair apply --overwrite-changed-rows"
            )  # row by row, through the triggers of the view
            assert status == DONE, words
        finally:
            for statement in ("REASSIGN OWNED BY {} TO CURRENT_USER", "DROP OWNED BY {}", "DROP ROLE {}"):
                admin.execute(sql.SQL(statement).format(sql.Identifier(user)))


def hand_over(words: str, admin: psycopg.Connection[Any]) -> None:
    """Execute what only an administrator may do, as the refusal says it."""
    for line in words.splitlines():
        if line.startswith(("  GRANT ", "  CREATE ROLE ")):
            admin.execute(line.encode())


def test_all_rights_that_are_missing_are_named_before_anything_is_made(settings: Settings, tmp_path: Path) -> None:
    """The group roles have names of their own here: those of the tests exist already."""
    user, superuser = fresh_name(), settings.postgres.dsn or ""
    roles = [f"{user}_{kind}" for kind in ("migration", "service", "dispatcher")]
    names = dict(zip(("migration_role", "service_role", "dispatcher_role"), roles, strict=True))
    with psycopg.connect(superuser, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret'").format(sql.Identifier(user)))
        admin.execute("REVOKE CREATE ON SCHEMA public FROM public")
        try:
            dsn = make_conninfo(superuser, user=user, password="secret")
            migrator = call(replace(settings, postgres=replace(settings.postgres, dsn=dsn, **names)), tmp_path)
            for command in ("target prepare --make-tables --dry-run", "target prepare --make-tables"):
                status, words = migrator(command)
                assert status == USAGE, words
                assert (
                    "may not create roles, nor create schemas in this database, nor create tables in the schema public"
                ) in words
                assert relations(settings) == set()
                assert admin.execute("SELECT FROM pg_roles WHERE rolname = ANY(%s)", (roles,)).rowcount == 0
            hand_over(words, admin)
            for command in ("target prepare --make-tables", "backfill", "parity"):
                status, words = migrator(command)
                assert status == DONE, command + words
            for statement in ("DROP SCHEMA migration, migration_apscheduler CASCADE", "TRUNCATE apscheduler_jobs"):
                admin.execute(statement.encode())
            admin.execute("ALTER TABLE apscheduler_jobs OWNER TO CURRENT_USER")
            before = relations(settings)
            status, words = migrator("target prepare")
            assert status == USAGE, words
            assert 'may not read and write the table "public"."apscheduler_jobs"; have an administrator' in words
            assert relations(settings) == before
            hand_over(words, admin)
            for command in ("target prepare", "backfill", "parity"):
                status, words = migrator(command)
                assert status == DONE, command + words
        finally:
            for role in (user, *roles):
                if admin.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).rowcount:
                    admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(role)))
            for role in (user, *roles):
                admin.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role)))


def test_rights_to_tables_and_sequences_that_the_application_made_are_named(
    mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    target = TargetSettings(name="celery-results")
    prepare(BY_NAME["celery-results-5.7"], postgres_dsn)
    mongo_database["celery_taskmeta"].insert_one({"_id": "a", "status": "SUCCESS", "result": "5"})
    user = fresh_name()
    dsn = make_conninfo(postgres_dsn, user=user, password="secret")
    migrator = call(settings_for(mongo_database, dsn, profile="celery-results", target=target), tmp_path)
    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'secret'").format(sql.Identifier(user)))
        try:
            status, words = migrator("target prepare")
            assert status == USAGE, words
            assert f'GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "public"."celery_tasksetmeta" TO "{user}";' in words
            assert f'GRANT USAGE ON SEQUENCE "public"."task_id_sequence" TO "{user}";' in words
            hand_over(words, admin)
            for command in ("target prepare", "backfill", "parity"):
                status, words = migrator(command)
                assert status == DONE, command + words
        finally:
            admin.execute(sql.SQL("DROP OWNED BY {0} CASCADE; DROP ROLE {0}").format(sql.Identifier(user)))


def test_the_library_is_not_started_where_a_table_of_its_name_is_another_one(
    mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    settings = settings_for(mongo_database, postgres_dsn, profile="agenda", target=TargetSettings(name="agenda"))
    migrator = call(settings, tmp_path)
    execute(settings, "CREATE TABLE agenda_jobs (id uuid PRIMARY KEY, title text)")
    status, words = migrator("target prepare --make-tables")
    assert status == USAGE, words
    assert "are those of no known version" in words
    assert "agenda_jobs.title: column is unknown" in words or "agenda_jobs.name: column is missing" in words
    assert relations(settings) == {"public.agenda_jobs", "public.agenda_jobs_pkey"}


def test_a_table_that_the_target_does_not_have_cannot_be_named(settings: Settings, tmp_path: Path) -> None:
    misnamed = replace(settings, target=TargetSettings(name="apscheduler", tables={"jobs": "work"}))
    text = write_config(tmp_path, misnamed).read_text(encoding="utf-8").replace('{"jobs": ', '{"jobs" = ')
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    for command in ("target prepare --make-tables", *WRITING):
        status, _, said = run(*command.split(), "--config", str(tmp_path / "config.toml"), cwd=tmp_path)
        assert status == USAGE, command + said
        assert "target.tables.jobs: target apscheduler has no table of this name; known: apscheduler_jobs" in said
    status, words = call(replace(settings, source=replace(settings.source, profile="apschedule")), tmp_path)("plan")
    assert (status, "unknown source profile 'apschedule'; did you mean apscheduler?" in words) == (USAGE, True), words
