"""What a target must be: its encoding, its settings, its roles, its books, its locks."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from psycopg import sql
from pymongo.database import Database

from migrator.cli import cli
from migrator.config import PostgresSettings, Settings
from migrator.connections.postgres import PINNED, open_target
from migrator.cutover.doctor import examine
from migrator.errors import ConfigurationError, LockedError, RefusedError
from migrator.parity.check import check_parity
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.schema import revisions
from migrator.schema.security import Roles
from migrator.store import open_scheduler_store
from migrator.store.postgres.connections import SessionPool
from migrator.testing.servers.postgres import PostgresServer
from tests.conftest import Cluster, fresh_name
from tests.copying import contents, number, run, run_of, settings_for, write_config
from tests.schema_rows import connect
from tests.stellaops_documents import fresh

SHORT = "-c lock_timeout=200"


def words(settings: Settings, name: str) -> list[str]:
    """Return the doctor's message under a name that did not pass."""
    return [one.words for one in examine(settings).findings if one.name == name and one.passed is False]


def with_options(dsn: str, options: str) -> str:
    return psycopg.conninfo.make_conninfo(dsn, options=options)


def pinned(dsn: str) -> str:
    """Return a DSN for this test's own looks, which name their settings themselves."""
    told = {**PINNED, "statement_timeout": "0"}
    return psycopg.conninfo.make_conninfo(
        dsn,
        client_encoding="UTF8",
        options=" ".join("-c {}={}".format(name, value.replace(" ", "\\ ")) for name, value in told.items()),
    )


# The encoding


@pytest.fixture(params=["SQL_ASCII", "LATIN1", "EUC_JP"])
def odd_encoding(any_postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A database of another encoding: its name, its DSN."""
    name = fresh_name()
    with psycopg.connect(any_postgres.dsn(), autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} ENCODING {} LOCALE 'C' TEMPLATE template0").format(
                sql.Identifier(name), sql.Literal(request.param)
            )
        )
    yield request.param, any_postgres.dsn(name)
    any_postgres.drop_database(name)


def test_another_encoding_is_refused_by_everything(odd_encoding: tuple[str, str], any_postgres: PostgresServer) -> None:
    encoding, dsn = odd_encoding
    sentence = f"has the encoding {encoding}, which cannot hold every text: create one with ENCODING 'UTF8' TEMPLATE"
    settings = Settings(postgres=PostgresSettings(dsn=dsn))
    for call in (
        lambda: revisions.upgrade(dsn),
        lambda: revisions.current(dsn),
        lambda: revisions.require_group_roles(dsn, Roles()),
        lambda: open_target(settings),
        lambda: open_scheduler_store(
            replace(settings, persistence=replace(settings.persistence, scheduler="postgres"))
        ),
    ):
        with pytest.raises(RefusedError, match=sentence):
            call()
    assert [sentence in one for one in words(settings, "target")] == [True]
    with connect(dsn) as connection:
        assert connection.execute("SELECT to_regnamespace('scheduler')").fetchone() == (None,)
    name = fresh_name()  # the remedy, literally
    with psycopg.connect(any_postgres.dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} ENCODING 'UTF8' TEMPLATE template0").format(sql.Identifier(name)))
    assert revisions.upgrade(any_postgres.dsn(name))
    any_postgres.drop_database(name)


# The settings

ODD = {
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "client_encoding": "LATIN1",
    "standard_conforming_strings": "off",
    "row_security": "off",
    "search_path": "elsewhere",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "quote_all_identifiers": "on",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "xmlbinary": "hex",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "statement_timeout": "1s",
    "lock_timeout": "1s",
    "idle_in_transaction_session_timeout": "5s",
}


@pytest.mark.parametrize("of", ["DATABASE", "ROLE"])
def test_no_setting_of_a_database_or_a_role_changes_what_is_copied(
    of: str, mongo_database: Database[Any], any_cluster: Cluster
) -> None:
    mongo_database["schedules"].insert_one(fresh("schedules"))
    mongo_database["runs"].insert_many(
        [
            run_of(_id="r1", note="back\\slash 'quote' ü 日本", ratio=0.1 + 0.2),
            run_of(_id="r2", blob=b"\x00\xff", state="exploded"),
        ]
    )
    plain, odd = any_cluster.scheduler(), any_cluster.scheduler()
    user = fresh_name()
    with psycopg.connect(odd, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN SUPERUSER PASSWORD 'x'").format(sql.Identifier(user)))
        admin.execute("CREATE SCHEMA elsewhere")
        admin.execute("CREATE FUNCTION elsewhere.length(bytea) RETURNS int LANGUAGE sql AS 'SELECT 42'")
        place = sql.Identifier(user if of == "ROLE" else admin.info.dbname)
        for name, value in ODD.items():
            admin.execute(
                sql.SQL("ALTER {} {} SET {} = {}").format(
                    sql.SQL(of),
                    place,
                    sql.Identifier(name.lower()),
                    sql.Identifier(value) if name == "search_path" else sql.Literal(value),
                )
            )
    dsn = psycopg.conninfo.make_conninfo(odd, user=user, password="x")
    with psycopg.connect(dsn) as connection:  # the fault is there
        assert connection.execute("SHOW DateStyle").fetchone() == ("SQL, DMY",)
    for one in (plain, dsn):
        settings = settings_for(mongo_database, one)
        assert backfill(settings, Scope()).quarantined == 1
        outcome = check_parity(settings, Scope())
        assert [(c.differing, c.missing, c.extra) for c in outcome.collections if c.documents] == [(0, 0, 0)] * 2
        assert not any(figure.differing_total for figure in outcome.aggregates)
    assert contents(pinned(plain)) == contents(pinned(odd))
    settings = settings_for(mongo_database, dsn)
    with open_target(settings) as target:
        for name, value in PINNED.items():
            assert target.execute(f"SHOW {name}".encode()).fetchone() == (value,), name
        assert target.execute("SHOW statement_timeout").fetchone() == ("0",)
        assert target.execute("SHOW client_encoding").fetchone() == ("UTF8",)
    pool = SessionPool(settings)
    try:
        with pool.transaction(tenant="tenant-default") as (connection, _):
            for name, value in PINNED.items():
                assert connection.execute(f"SHOW {name}".encode()).fetchone() == (value,)
            assert connection.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
    finally:
        pool.close()
    for one in (plain, odd):
        any_cluster.drop(one)


def test_timeouts_that_the_dsn_names_stay(scheduler_dsn: str) -> None:
    settings = Settings(postgres=PostgresSettings(dsn=with_options(scheduler_dsn, "-c statement_timeout=4321")))
    with open_target(settings) as target:
        assert target.execute("SHOW statement_timeout").fetchone() == ("4321ms",)
        assert target.execute("SHOW lock_timeout").fetchone() == ("15s",)


# The roles


@pytest.mark.parametrize("key", ["migration", "service", "dispatcher"])
@pytest.mark.parametrize(
    ("name", "why"),
    [("postgres", "is a superuser"), ("pg_read_all_data", "belongs to PostgreSQL itself")],
)
def test_a_role_that_keeps_no_tenants_apart_is_refused(key: str, name: str, why: str, scheduler_dsn: str) -> None:
    names = replace(Roles(), **{key: name})
    sentence = f"postgres.{key}_role: the role {name} {why}; name another role, which schema upgrade creates"
    for call in (revisions.upgrade, revisions.require_group_roles):
        with pytest.raises(ConfigurationError, match=sentence):
            call(scheduler_dsn, names=names)
    given = replace(PostgresSettings(dsn=scheduler_dsn), **{f"{key}_role": name})
    assert words(Settings(postgres=given), "roles") == [sentence]


@pytest.mark.parametrize(
    ("attribute", "why"),
    [
        ("BYPASSRLS", "has BYPASSRLS, so row-level security would not isolate the tenants"),
        ("IN ROLE scheduler_migration", "may act as scheduler_migration, which owns the tables"),
    ],
)
def test_a_role_of_its_own_may_not_have_too_much(attribute: str, why: str, scheduler_dsn: str) -> None:
    name = fresh_name()
    with connect(scheduler_dsn) as connection:
        connection.execute(f"CREATE ROLE {name} NOLOGIN {attribute}".encode())
    with pytest.raises(ConfigurationError, match=f"the role {name} {why}"):
        revisions.upgrade(scheduler_dsn, names=Roles(service=name))
    with pytest.raises(ConfigurationError, match=f"postgres.dispatcher_role: the role {name}"):
        revisions.require_group_roles(scheduler_dsn, Roles(dispatcher=name))
    revisions.require_group_roles(scheduler_dsn, Roles())


@pytest.mark.parametrize("same", [("one", "one", "one"), ("one", "one", "two"), ("one", "two", "one"), ("a", "b", "b")])
def test_one_name_for_two_roles_is_refused(same: tuple[str, str, str], postgres_dsn: str) -> None:
    with pytest.raises(ConfigurationError, match=r"postgres\.\w+_role and postgres\.\w+_role are one role, \w+, so"):
        revisions.upgrade(postgres_dsn, names=Roles(*same))


OPTIONS = ("", " WITH INHERIT FALSE", " WITH SET FALSE", " WITH INHERIT FALSE, SET FALSE, ADMIN TRUE")
"""How a role may be granted, since PostgreSQL 16."""
OVERLAPS = {
    "the service is a dispatcher": ("service", "dispatcher", "is a member of {} (postgres.dispatcher_role)"),
    "the dispatcher is a service": ("dispatcher", "service", "is a member of {} (postgres.service_role)"),
    "the service owns": ("service", "migration", "may act as {}, which owns the tables"),
    "the dispatcher owns": ("dispatcher", "migration", "may act as {}, which owns the tables"),
    "the owner is a service": ("migration", "service", "is a member of {} (postgres.service_role)"),
    "the owner is a dispatcher": ("migration", "dispatcher", "is a member of {} (postgres.dispatcher_role)"),
}


@pytest.fixture
def own_roles(scheduler_dsn: str) -> Iterator[tuple[str, Roles]]:
    """Roles of this test alone, upgraded with."""
    roles = Roles(*(f"{fresh_name()}_{key}" for key in ("m", "s", "d")))
    with connect(scheduler_dsn) as connection:
        connection.execute("DROP SCHEMA scheduler, migration CASCADE")
    revisions.upgrade(scheduler_dsn, names=roles)
    yield scheduler_dsn, roles
    with connect(scheduler_dsn) as connection:
        for name in roles.names():
            connection.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}".encode())


def refusals(dsn: str, roles: Roles) -> list[str]:
    """Return the messages of ``schema upgrade``, ``schema check`` and ``doctor`` about roles."""
    said = []
    for call in (revisions.upgrade, revisions.require_group_roles):
        with pytest.raises(ConfigurationError) as refused:
            call(dsn, names=roles)
        said.append(str(refused.value))
    given = PostgresSettings(
        dsn=dsn, migration_role=roles.migration, service_role=roles.service, dispatcher_role=roles.dispatcher
    )
    return [*said, *words(Settings(postgres=given), "roles")]


@pytest.mark.parametrize("through", [0, 2])
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_roles_that_overlap_are_refused(overlap: str, through: int, own_roles: tuple[str, Roles]) -> None:
    dsn, roles = own_roles
    member, of, why = OVERLAPS[overlap]
    for how in OPTIONS:
        chain = [getattr(roles, member), *(f"{fresh_name()}_{n}" for n in range(through)), getattr(roles, of)]
        with connect(dsn) as connection:
            for name in chain[1:-1]:
                connection.execute(f"CREATE ROLE {name} NOLOGIN".encode())
            try:
                for one, other in pairwise(chain):
                    connection.execute(f"GRANT {other} TO {one}{how}".encode())
                if member == "migration" and "ADMIN" in how:  # CREATEROLE gives it to who creates a role: no harm
                    revisions.require_group_roles(dsn, roles)
                    connection.execute(f"REVOKE {chain[1]} FROM {chain[0]}".encode())
                    continue
                (sentence,) = set(refusals(dsn, roles))
                assert f"the role {chain[0]} {why.format(chain[-1])}" in sentence
                connection.execute(sentence.partition("; ")[2].partition(", or")[0].encode())  # the remedy, literally
                revisions.require_group_roles(dsn, roles)
            finally:
                for name in chain[1:-1]:
                    connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


def test_verify_finds_what_a_service_that_is_a_dispatcher_sees(own_roles: tuple[str, Roles], tmp_path: Path) -> None:
    """A role that was granted after the upgrade: the check of isolation fails, and does not end in an error."""
    dsn, roles = own_roles
    with connect(dsn) as connection:
        connection.execute(f"GRANT {roles.dispatcher} TO {roles.service}".encode())
    config = tmp_path / "migrator.toml"
    names = f'migration_role = "{roles.migration}"\nservice_role = "{roles.service}"\n'
    config.write_text(f'[postgres]\ndsn = "{dsn}"\n{names}dispatcher_role = "{roles.dispatcher}"\n')
    asked = ["verify", "--only", "isolation", "--fresh-start", "--who", "me", "--reason", "a test"]
    done = CliRunner().invoke(cli, [*asked, "--config", str(config), "--report-dir", str(tmp_path / "reports")])
    assert done.exit_code & 1, done.output  # and 4: the other areas were not asked for
    assert not done.exit_code & 16, done.output


@pytest.mark.parametrize(("power", "why"), [("SUPERUSER", "is a superuser"), ("BYPASSRLS", "has BYPASSRLS")])
@pytest.mark.parametrize("key", ["service", "dispatcher"])
def test_a_member_of_a_role_that_row_level_security_does_not_bind_is_refused(
    key: str, power: str, why: str, own_roles: tuple[str, Roles]
) -> None:
    dsn, roles = own_roles
    strong = fresh_name()
    with connect(dsn) as connection:
        connection.execute(f"CREATE ROLE {strong} NOLOGIN {power}; GRANT {strong} TO {getattr(roles, key)}".encode())
        try:
            (sentence,) = set(refusals(dsn, roles))
        finally:
            connection.execute(f"DROP ROLE {strong}".encode())
    assert f"is a member of {strong}, which {why}, so nothing would keep the tenants apart" in sentence


# The books


@pytest.mark.parametrize("branch", ["scheduler", "migration"])
def test_an_unknown_revision_beside_the_known_one_is_refused(branch: str, scheduler_dsn: str) -> None:
    settings = Settings(postgres=PostgresSettings(dsn=scheduler_dsn))
    with connect(scheduler_dsn) as connection:
        (known,) = connection.execute(f"SELECT version_num FROM {branch}.schema_revision".encode()).fetchone() or ()
        connection.execute(f"INSERT INTO {branch}.schema_revision VALUES ('f00d')".encode())
    sentence = f"{branch}.schema_revision names {known}, f00d where {known} is expected"
    for call in (revisions.upgrade, revisions.current, revisions.downgrade):
        with pytest.raises(RefusedError, match=sentence):
            call(scheduler_dsn)
    assert [sentence in one for one in words(settings, "schema")] == [True]
    with connect(scheduler_dsn) as connection:  # the remedy: let the table hold the known one alone
        connection.execute(f"DELETE FROM {branch}.schema_revision WHERE version_num <> '{known}'".encode())
    assert revisions.upgrade(scheduler_dsn) == []


@pytest.mark.parametrize("branch", ["scheduler", "migration"])
def test_a_schema_of_somebody_else_is_called_that(branch: str, postgres_dsn: str) -> None:
    with connect(postgres_dsn) as connection:
        connection.execute(
            f"CREATE SCHEMA {branch}; CREATE TABLE {branch}.theirs (); CREATE VIEW {branch}.v AS SELECT 1"
        )
    sentence = f"the target has a schema {branch} that is not this tool's: it belongs to postgres and holds theirs, v"
    for call in (revisions.upgrade, revisions.current):
        with pytest.raises(RefusedError, match=sentence):
            call(postgres_dsn)
    settings = Settings(postgres=PostgresSettings(dsn=postgres_dsn))
    assert [sentence in one for one in words(settings, "schema")] == [True]
    with connect(postgres_dsn) as connection:  # the remedy
        connection.execute(f"ALTER SCHEMA {branch} RENAME TO elsewhere".encode())
    assert revisions.upgrade(postgres_dsn)
    assert number(postgres_dsn, "SELECT count(*) FROM elsewhere.theirs") == 0


# The locks


def test_a_table_that_stays_locked_is_waited_for_and_its_holder_named(
    scheduler_dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    revisions.downgrade(scheduler_dsn, "migration@base")
    dsn = with_options(scheduler_dsn, SHORT)
    with psycopg.connect(scheduler_dsn, application_name="their reader") as other:
        other.execute("SELECT FROM scheduler.runs")  # an open transaction, which is enough
        with pytest.raises(LockedError) as refused:
            revisions.downgrade(dsn, patience_s=3)
        assert "their reader" in str(refused.value)
        assert "holds scheduler.runs (AccessShareLock)" in str(refused.value)
        assert str(refused.value).endswith("nothing was changed, call again when it has ended")
    assert "waiting: the target: a lock on a table was not granted in time: process" in capsys.readouterr().err
    assert revisions.downgrade(dsn)


def test_an_upgrade_goes_on_when_the_lock_is_given_back(scheduler_dsn: str) -> None:
    dsn = with_options(scheduler_dsn, SHORT)
    with psycopg.connect(scheduler_dsn) as other:
        other.execute("SELECT FROM scheduler.runs")
        done: list[Any] = []
        thread = threading.Thread(target=lambda: done.extend(revisions.downgrade(dsn)))
        thread.start()
        with connect(scheduler_dsn) as looking:
            pause = threading.Event()
            while looking.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
                pause.wait(0.02)
        other.rollback()
        thread.join()
    assert done


def test_a_copy_says_who_holds_a_table_and_ends_at_its_limit(
    mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path
) -> None:
    mongo_database["runs"].insert_one(run_of(_id="r1"))
    settings = settings_for(mongo_database, with_options(scheduler_dsn, SHORT))
    settings = replace(settings, copy=replace(settings.copy, patience=timedelta(seconds=1)))
    with psycopg.connect(scheduler_dsn, application_name="their lock") as other:
        other.execute("LOCK TABLE scheduler.runs IN SHARE MODE")  # may be read, not written
        status, out, err = run("backfill", "--config", str(write_config(tmp_path, settings)))
    assert (status, out) == (16, "")
    assert "waiting: the target: a lock on a table was not granted in time: process" in err
    assert "application their lock, idle in transaction" in err.splitlines()[-1]
    assert "holds scheduler.runs (ShareLock)" in err.splitlines()[-1]
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs") == 0
    backfill(settings, Scope())
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs") == 1
