"""The switch and the ways back, rehearsed: green on a sound copy, red on the fault that is planted, nothing touched."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from migrator.config import Settings, load_settings
from migrator.cutover import config_file, reverse_sync
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import close_cached
from migrator.records import ALL
from migrator.result import Result
from migrator.schema import revisions
from migrator.testing.servers.mongo import MongoServer
from migrator.verify import rehearsal
from migrator.verify.check import CheckContext
from migrator.verify.checks import cutover
from migrator.verify.request import Request
from migrator.verify.runner import verify
from migrator.verify.scratch_databases import PREFIX, TARGET_PREFIX, create_database, drop_database, scratch_target
from tests.conftest import NEWEST, Clusters
from tests.copying import settings_for, write_config
from tests.stellaops_documents import CANONICAL, fresh

NAME = "rehearsed"


@pytest.fixture(scope="module")
def source(mongo_server: MongoServer) -> Iterator[Database[Any]]:
    with MongoClient[dict[str, Any]](mongo_server.uri) as client:
        for collection in CANONICAL:
            client[NAME][collection].insert_one(fresh(collection))
        yield client[NAME]
        client.drop_database(NAME)


@pytest.fixture(scope="module")
def settings(source: Database[Any], clusters: Clusters) -> Iterator[Settings]:
    """A copy that is complete."""
    cluster = clusters.get(NEWEST)
    dsn = cluster.scheduler()
    copied = settings_for(source, dsn)
    assert backfill(copied, Scope()).complete
    close_cached()
    yield copied
    cluster.drop(dsn)


@pytest.fixture
def config(settings: Settings, tmp_path: Path) -> Path:
    path = write_config(tmp_path, settings)
    path.write_text(f"# ours\n[persistence]\nscheduler = 'mongo' # which\n\n{path.read_text()}")
    return path


def held(settings: Settings) -> dict[str, Any]:
    """Return how many rows and databases there are."""
    with psycopg.connect(str(settings.postgres.dsn)) as connection:
        found: dict[str, Any] = {
            record.table: connection.execute(f"SELECT count(*) FROM scheduler.{record.table}".encode()).fetchone()
            for record in ALL
        }
        found["databases"] = connection.execute(
            "SELECT datname FROM pg_database WHERE starts_with(datname, %s) OR starts_with(datname, %s)",
            (TARGET_PREFIX, PREFIX),
        ).fetchall()
    return found


@pytest.mark.proves("0-T2.12.3")
def test_everything_is_rehearsed_and_nothing_is_touched(
    settings: Settings, source: Database[Any], config: Path
) -> None:
    before, text = held(settings), config.read_bytes()
    documents = {name: source[name].estimated_document_count() for name in source.list_collection_names()}
    result = verify(
        load_settings(str(config)), Request(run_name="r", config=config, scratch_on_source=True), checks=cutover.CHECKS
    )
    assert [one.findings for one in result.evidence.checks] == [()] * len(cutover.CHECKS)
    assert {one.id: (one.outcome.status, one.outcome.reason) for one in result.evidence.checks} == {
        spec.id: ("passed", "") for spec in cutover.CHECKS
    }
    assert held(settings) == before
    assert before["databases"] == []
    assert config.read_bytes() == text
    assert [path.name for path in config.parent.iterdir()] == ["config.toml"]
    assert {name: source[name].estimated_document_count() for name in source.list_collection_names()} == documents
    with MongoClient[dict[str, Any]](settings.mongo.uri) as client:
        assert not [name for name in client.list_database_names() if name.startswith(PREFIX)]
    counts = {one.id: one.counts for one in result.evidence.checks}
    assert counts["cutover.downgrade"]["rows, exported before"] == rehearsal.AMOUNT.rows
    assert (
        counts["cutover.rollback"]["documents written by the reverse sync"]
        == counts["cutover.rollback"]["rows written"]
        > 1
    )
    readiness = table_of(result, "cutover.gates")
    assert readiness["tail"] == "not met"
    assert readiness["copy"] == "met"
    assert "overdue triggers" in table_of(result, "cutover.overdue")


def table_of(result: Result, check: str) -> dict[Any, Any]:
    (panel,) = result.run.panels[check]
    return {row[0]: row[1] for row in panel.rows}


@pytest.mark.proves("0-T2.12.3")
def test_a_copy_that_cannot_be_flipped_back_is_seen(
    settings: Settings, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(text: str, backend: str, name: str) -> str:
        return (
            sound(text, backend, name).replace(" # which", "") if backend == "postgres" else sound(text, backend, name)
        )

    sound = config_file.with_backend
    monkeypatch.setattr(config_file, "with_backend", careless)
    found = cutover.cutover_rehearsed(CheckContext(settings, Request(config=config)))
    assert found.outcome.status == "failed"
    assert "not byte for byte the original" in found.findings[0].details[0]


@pytest.mark.proves("0-T2.12.3")
def test_a_store_that_does_not_work_is_seen(settings: Settings, new_scheduler_dsn: Callable[[], str]) -> None:
    dsn = new_scheduler_dsn()
    with psycopg.connect(dsn) as connection:
        connection.execute("ALTER TABLE scheduler.runs ADD CONSTRAINT nothing CHECK (false) NOT VALID")
    broken = type(settings)(postgres=type(settings.postgres)(dsn=dsn))
    found = cutover.cutover_rehearsed(CheckContext(broken))
    assert found.outcome.status == "failed"
    assert "does not work" in found.tallies[0].title
    assert {count for table, count in held(broken).items() if table != "databases"} == {(0,)}


def test_a_configuration_without_the_value_is_made_of_the_settings(settings: Settings) -> None:
    seen: list[str] = []

    def look(copy: Path) -> dict[str, Any]:
        seen.append(config_file.named_backend(copy))
        assert load_settings(str(copy)).postgres.dsn == settings.postgres.dsn
        return {}

    assert rehearsal.rehearse_cutover(settings, None, look).identical
    assert seen == ["postgres"]


@pytest.mark.parametrize("named", ["mongo", "postgres"])
def test_either_value_is_flipped_and_comes_back(settings: Settings, config: Path, named: str) -> None:
    config.write_text(config.read_text().replace("'mongo' # which", f"'{named}' # which"))
    seen: list[str] = []

    def look(copy: Path) -> dict[str, Any]:
        seen.append(config_file.named_backend(copy))
        return {}

    done = rehearsal.rehearse_cutover(settings, config, look)
    assert seen == ["postgres"]
    assert done.identical


@pytest.mark.parametrize(
    ("fault", "words"),
    [("drops", "does not say what was written"), ("touches", "was changed by nobody"), ("stops", "were not written")],
)
@pytest.mark.proves("0-T2.12.3")
def test_a_reverse_stream_that_is_wrong_is_seen(settings: Settings, fault: str, words: str) -> None:
    def carry(place: Settings) -> None:
        if fault == "stops":
            return
        if fault == "drops":
            with psycopg.connect(str(place.postgres.dsn)) as connection:
                connection.execute("DELETE FROM migration.outbox WHERE table_name = 'runs'")
        reverse_sync.run(place, noted_by_now=True)
        if fault == "touches":
            with MongoClient[dict[str, Any]](place.mongo.uri) as client:
                client[str(place.mongo.database)]["audit"].update_one({}, {"$set": {"touched": True}})

    done = rehearsal.rehearse_reverse_sync(settings, carry)
    assert any(words in one for one in done.wrong), done.wrong


@pytest.mark.proves("0-T2.12.3")
def test_a_schema_that_does_not_come_up_again_is_seen(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def lossy(dsn: str, **more: Any) -> Any:  # noqa: ANN401 - as upgrade has it
        done = sound(dsn, **more)
        if len(calls) == 1:
            with psycopg.connect(dsn) as connection:
                connection.execute("DROP INDEX scheduler.ix_runs_page")
        calls.append(dsn)
        return done

    sound, calls = revisions.upgrade, list[str]()
    monkeypatch.setattr(revisions, "upgrade", lossy)
    found = cutover.downgrade_rehearsed(CheckContext(settings))
    assert found.outcome.status == "failed"
    assert any("ix_runs_page" in one.details[0] for one in found.findings)


def test_a_user_who_may_make_no_database_leaves_it_unverified(settings: Settings, clusters: Clusters) -> None:
    dsn = str(settings.postgres.dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE plain_user LOGIN PASSWORD 'secret' NOCREATEDB")
        connection.execute("GRANT scheduler_migration, scheduler_service, scheduler_dispatcher TO plain_user")
    try:
        server = clusters.get(NEWEST).server
        plain = server.dsn(dsn.rpartition("/")[2], user="plain_user", password="secret")
        limited = type(settings)(postgres=type(settings.postgres)(dsn=plain))
        result = verify(limited, Request(run_name="r"), checks=[one for one in cutover.CHECKS if "down" in one.id])
        (check,) = result.evidence.checks
        assert check.outcome.status == "unverified"
        assert check.outcome.grant == 'ALTER ROLE "plain_user" CREATEDB'
        assert not check.errored
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("DROP ROLE plain_user")


def test_what_a_killed_rehearsal_left_is_removed(settings: Settings) -> None:
    left = f"{TARGET_PREFIX}0123456789ab"
    with psycopg.connect(str(settings.postgres.dsn), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {left}".encode())
    with scratch_target(settings) as place:
        assert left not in str(held(settings)["databases"])
        assert str(place.postgres.dsn).count(TARGET_PREFIX) == 1
    assert held(settings)["databases"] == []


def test_a_scratch_database_goes_although_somebody_is_in_it_whom_the_user_may_not_end(
    settings: Settings, clusters: Clusters
) -> None:
    """A superuser's session stands for an autovacuum worker, which the server itself ends, and for a monitor."""
    dsn, server = str(settings.postgres.dsn), clusters.get(NEWEST).server
    name = f"{TARGET_PREFIX}fedcba987654"
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("CREATE ROLE maker LOGIN PASSWORD 'secret' CREATEDB")
        try:
            maker = server.dsn("postgres", user="maker", password="secret")
            with psycopg.connect(maker, autocommit=True) as control, ThreadPoolExecutor(1) as beside:
                create_database(control, name)
                with psycopg.connect(server.dsn(name)):
                    dropping = beside.submit(drop_database, control, name)
                    waits = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'maker' AND state = 'active'"
                    waits += f" AND query = 'DROP DATABASE IF EXISTS \"{name}\"'"
                    while admin.execute(waits.encode()).fetchone() == (0,) and not dropping.done():
                        pass
                dropping.result()
            assert name not in str(held(settings)["databases"])
        finally:
            admin.execute(f"DROP DATABASE IF EXISTS {name}".encode())
            admin.execute("DROP ROLE maker")
