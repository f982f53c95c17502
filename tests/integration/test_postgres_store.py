"""The store's sessions on PostgreSQL: role, tenant, clock, pool, and what happens when something breaks."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from psycopg.sql import SQL, Identifier

from migrator.config import PersistenceSettings, Settings
from migrator.errors import ConfigurationError, ConflictError, RefusedError, UnreachableError, UsageError
from migrator.store import open_store
from migrator.store.protocols import ScheduleQuery
from migrator.testing.servers.postgres import PostgresServer
from tests.schema_rows import connect
from tests.store_postgres import NOW, opened, schedule, settings


@pytest.mark.proves("0-T2.1.3")
def test_a_session_is_bound_to_role_tenant_and_utc(any_scheduler_dsn: str) -> None:
    with opened(any_scheduler_dsn) as store, store.session("a") as session:
        found = session.connection.execute(
            "SELECT current_user::text, current_setting('app.tenant_id'), current_setting('timezone')"
        )
        assert found.fetchone() == ("scheduler_service", "a", "UTC")


@pytest.mark.proves("0-T2.1.3", "0-X2")
def test_nothing_of_a_session_stays_on_its_connection(scheduler_dsn: str) -> None:
    with opened(scheduler_dsn, pool_size=1) as store:
        with store.session("a") as session:
            first = session.connection
        assert first.execute("SELECT session_user = current_user, current_setting('app.tenant_id')").fetchone() == (
            True,
            "",
        )
        first.rollback()
        with store.session("b") as session:
            assert session.connection is first
            assert session.schedules.list(ScheduleQuery(include_global=True)) == []


@pytest.mark.proves("0-T2.1.3")
@pytest.mark.parametrize("tenant", ["", "a\0b"])
def test_a_session_without_a_tenant_is_refused(tenant: str, scheduler_dsn: str) -> None:
    with (
        opened(scheduler_dsn) as store,
        pytest.raises(UsageError, match="needs a tenant"),
        store.session(tenant),
    ):
        pass


def test_the_time_of_a_session_is_the_database_s_or_the_one_given_in_whole_milliseconds(scheduler_dsn: str) -> None:
    given = datetime(2025, 11, 2, 8, 0, 0, 123_999, tzinfo=UTC)
    with opened(scheduler_dsn) as store:
        with store.session("a", now=given) as session:
            assert session.now == datetime(2025, 11, 2, 8, 0, 0, 123_000, tzinfo=UTC)
        before = store.now()
        with store.session("a") as session:
            assert session.now >= before
            assert session.now.microsecond % 1000 == 0
            assert session.now.tzinfo is UTC
        with pytest.raises(UsageError, match="no time zone"), store.session("a", now=given.replace(tzinfo=None)):
            pass


def test_a_session_is_all_or_nothing(scheduler_dsn: str) -> None:
    one = schedule()
    with opened(scheduler_dsn) as store:
        with pytest.raises(KeyError), store.session("a") as session:  # noqa: PT012 - the session's end is the point
            session.schedules.upsert(one)
            raise KeyError
        with store.session("a") as session:
            assert session.schedules.get(one.id) is None


def test_a_refused_write_leaves_the_session_as_it_was(scheduler_dsn: str) -> None:
    """PostgreSQL ends a transaction at the first error; a refusal must not."""
    one, other = schedule(name="n"), schedule()
    with opened(scheduler_dsn) as store:
        with store.session("a") as session:
            session.schedules.upsert(one)
            with pytest.raises(ConflictError, match="the name of a schedule is taken"):
                session.schedules.upsert(schedule(name="n"))
            session.schedules.upsert(other)
        with store.session("a") as session:
            assert session.schedules.count(ScheduleQuery()) == 2


@pytest.mark.proves("0-T2.1.3")
def test_an_exhausted_pool_times_out(scheduler_dsn: str) -> None:
    with (
        opened(scheduler_dsn, pool_size=1, timeout=timedelta(seconds=1)) as store,
        store.session("a"),
        pytest.raises(UnreachableError, match=r"no connection within 1 s: all 1 of this process are in use"),
        store.session("a"),
    ):
        pass


@pytest.mark.proves("4-J5")
def test_the_pool_bounds_the_connections(scheduler_dsn: str) -> None:
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'migrator'"
    with opened(scheduler_dsn, pool_size=2) as store, connect(scheduler_dsn) as watching:
        for _ in range(5):
            with store.session("a"), store.session("b"):
                assert watching.execute(count).fetchone() == (2,)


def terminate(dsn: str, pid: int) -> None:
    with connect(dsn) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))


@pytest.mark.proves("0-T2.1.3")
def test_a_connection_lost_in_a_session_is_closed_and_replaced(scheduler_dsn: str) -> None:
    one = schedule()
    with opened(scheduler_dsn, pool_size=1) as store:
        with pytest.raises(UnreachableError), store.session("a") as session:  # noqa: PT012 - as above
            lost = session.connection
            session.schedules.upsert(one)
            terminate(scheduler_dsn, lost.info.backend_pid)
            session.schedules.get(one.id)
        assert lost.closed
        with store.session("a") as session:
            assert session.connection is not lost
            assert session.schedules.get(one.id) is None


def test_connections_that_broke_in_the_pool_are_not_felt(scheduler_dsn: str) -> None:
    with opened(scheduler_dsn, pool_size=2) as store:
        with store.session("a") as one, store.session("a") as other:
            pids = [session.connection.info.backend_pid for session in (one, other)]
        for pid in pids:
            terminate(scheduler_dsn, pid)
        with store.session("a") as session:
            assert session.connection.info.backend_pid not in pids


def test_a_driver_s_error_in_a_session_is_the_tool_s_and_undoes_it(scheduler_dsn: str) -> None:
    one = schedule()
    with opened(scheduler_dsn, pool_size=1) as store:
        with pytest.raises(UnreachableError, match="exist"), store.session("a") as session:  # noqa: PT012 - as above
            session.schedules.upsert(one)
            session.connection.execute("SELECT no_such_column FROM scheduler.runs")
        with store.session("a") as session:
            assert session.schedules.get(one.id) is None


@pytest.fixture
def role(postgres_server: PostgresServer) -> Iterator[str]:
    """A role of its own, a member of nothing."""
    name = f"role_{uuid4().hex}"
    with connect(postgres_server.dsn()) as connection:
        connection.execute(SQL("CREATE ROLE {} NOLOGIN").format(Identifier(name)))
        yield name
        connection.execute(SQL("DROP ROLE {}").format(Identifier(name)))


@pytest.mark.proves("0-T2.1.3", "0-X2")
@pytest.mark.parametrize(("power", "said"), [("SUPERUSER", "is a superuser"), ("BYPASSRLS", "has BYPASSRLS")])
def test_a_service_role_above_row_level_security_is_refused(
    power: str, said: str, role: str, scheduler_dsn: str
) -> None:
    with connect(scheduler_dsn) as connection:
        connection.execute(SQL(f"ALTER ROLE {{}} {power}").format(Identifier(role)))
    with opened(scheduler_dsn, service_role=role) as store, pytest.raises(RefusedError, match=said), store.session("a"):
        pass


@pytest.mark.proves("0-T2.1.3", "0-X2")
def test_a_service_role_that_owns_the_tables_is_refused(role: str, scheduler_dsn: str) -> None:
    for owner in ("scheduler_migration", role):
        with connect(scheduler_dsn) as connection:
            connection.execute(SQL("GRANT scheduler_migration TO {}").format(Identifier(role)))
        with (
            opened(scheduler_dsn, service_role=owner) as store,
            pytest.raises(RefusedError, match=r"does not bind the role .* on audit, .*, workers: it owns them"),
            store.session("a"),
        ):
            pass


@pytest.mark.proves("0-X2")
def test_a_table_without_row_level_security_is_refused(scheduler_dsn: str) -> None:
    with connect(scheduler_dsn) as connection:
        connection.execute("ALTER TABLE scheduler.runs DISABLE ROW LEVEL SECURITY")
    with opened(scheduler_dsn) as store, pytest.raises(RefusedError, match="on runs: "), store.session("a"):
        pass


def test_what_is_wrong_with_the_target_is_told_when_the_store_opens(
    scheduler_dsn: str, postgres_dsn: str, postgres_server: PostgresServer
) -> None:
    cases = (
        (settings("not a dsn"), ConfigurationError),
        (settings("postgresql://127.0.0.1:1/none", timeout=timedelta(seconds=1)), UnreachableError),
        (settings(postgres_server.dsn("postgres", user="postgres", password="wrong")), UnreachableError),
        (settings(scheduler_dsn, service_role="nobody_at_all"), RefusedError),
    )
    for wrong, kind in cases:
        with pytest.raises(kind):
            open_store(wrong)
    with pytest.raises(RefusedError, match="call migrator schema upgrade"):
        open_store(settings(postgres_dsn))


def test_a_closed_store_says_so(scheduler_dsn: str) -> None:
    with opened(scheduler_dsn) as store:
        assert timedelta(0) < store.ping() < timedelta(seconds=10)
    for act in (store.ping, store.now):
        with pytest.raises(UnreachableError, match="closed"):
            act()


@pytest.mark.proves("0-T2.1.4", "0-T2.10.1")
def test_one_setting_chooses_the_store(scheduler_dsn: str) -> None:
    store = open_store(settings(scheduler_dsn))
    assert store.backend == "postgres"
    store.close()
    for unknown in ("oracle", "", "Postgres"):
        persistence = PersistenceSettings(scheduler=unknown)  # type: ignore[arg-type] # the point
        with pytest.raises(ConfigurationError, match="known: mongo, postgres"):
            open_store(Settings(persistence=persistence))


@pytest.mark.proves("1-D1", "1-T2")
def test_with_postgres_no_driver_of_mongodb_is_even_imported(scheduler_dsn: str) -> None:
    program = """
import sys
sys.modules["pymongo"] = None  # an import would fail
from migrator.config import PersistenceSettings, PostgresSettings, Settings
from migrator.scheduler.models import ScheduleRequest
from migrator.scheduler.client import Scheduler
from migrator.store import open_store
from migrator.store.protocols import ScheduleQuery
store = open_store(
    Settings(postgres=PostgresSettings(dsn=sys.argv[1]), persistence=PersistenceSettings(scheduler="postgres"))
)
job = Scheduler(store, "a").schedule(
    ScheduleRequest(name="nightly", handler_name="scan", created_by="me", cron="0 2 * * *", timezone="UTC")
)
assert Scheduler(store, "a").get(job.schedule.id) == job
assert [one.id for one in Scheduler(store, "a").list(ScheduleQuery()).jobs] == [job.id]
store.close()
loaded = [name for name, module in sys.modules.items() if module is not None]
assert not [name for name in loaded if name.split(".")[0] in {"pymongo", "sqlalchemy", "alembic"}]
"""
    subprocess.run([sys.executable, "-c", program, scheduler_dsn], check=True)


def test_a_session_is_in_utc_whatever_was_set_on_its_connection(scheduler_dsn: str) -> None:
    """A pooler may not pass start-up options on: each transaction sets what it needs."""
    with opened(scheduler_dsn, pool_size=1) as store:
        with store.session("a") as session:
            session.connection.execute("SET SESSION timezone TO 'Asia/Kathmandu'")
        with store.session("a", now=NOW) as session:
            assert session.connection.execute("SELECT current_setting('timezone')").fetchone() == ("UTC",)
            assert session.schedules.upsert(schedule()).created_at == NOW
