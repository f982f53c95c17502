"""The areas schema and parity on real servers: green on a sound copy, red on the fault planted for a check."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import msgspec
import psycopg
import pytest
from bson.raw_bson import RawBSONDocument
from click.testing import CliRunner
from pymongo import MongoClient
from pymongo.database import Database

from migrator.cli import cli
from migrator.config import CopySettings, MongoSettings, PostgresSettings, Settings, SourceSettings
from migrator.connections.postgres import open_target
from migrator.errors import RefusedError
from migrator.parity import recorded_check
from migrator.parity.recorded_check import RecordedCheck
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.report import integrity, renderer
from migrator.result import Result
from migrator.schema.revisions import downgrade, upgrade
from migrator.testing.demo.faults import faulty_documents
from migrator.testing.demo.plan import Size
from migrator.testing.demo.seed import COLLECTIONS, plan_of
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from migrator.verify.checks import parity, schema
from migrator.verify.registry import EVERY_CHECK
from migrator.verify.request import Request
from migrator.verify.runner import verify, verify_into

SEED = 7
DOCUMENTS = 30
"""Per collection, beside the planted trouble."""
DATABASE = "verified"

OF_THE_DATA = tuple(spec for spec in EVERY_CHECK if spec.area in ("schema", "parity", "semantics"))
"""The other areas have tests of their own."""


@pytest.fixture(scope="module")
def source(mongo_server: MongoServer) -> Iterator[Database[dict[str, Any]]]:
    """A little of every collection, and all the planted trouble."""
    with MongoClient[dict[str, Any]](mongo_server.uri) as client:
        plan = plan_of(Size.SMALL, SEED)
        trouble = faulty_documents(SEED)
        for name, documents in COLLECTIONS.items():
            raw = chain(islice(documents(plan), DOCUMENTS), (item.raw for item in trouble if item.collection == name))
            batch = [RawBSONDocument(one) for one in raw]
            if batch:
                client[DATABASE][name].insert_many(batch)
        yield client[DATABASE]
        client.drop_database(DATABASE)


def settings_for(mongo: MongoServer, dsn: str) -> Settings:
    return Settings(
        source=SourceSettings(default_tenant="t-default"),
        mongo=MongoSettings(uri=mongo.uri, database=DATABASE),
        postgres=PostgresSettings(dsn=dsn),
        copy=CopySettings(workers=1),
    )


@pytest.fixture(scope="module")
def template(
    source: Database[dict[str, Any]], mongo_server: MongoServer, postgres_server: PostgresServer
) -> Iterator[str]:
    """Name of a database that holds a finished copy."""
    name = "verified_template"
    dsn = postgres_server.create_database(name)
    upgrade(dsn)
    assert backfill(settings_for(mongo_server, dsn), Scope()).complete
    assert source.name == DATABASE
    yield name
    postgres_server.drop_database(name)


@pytest.fixture
def dsn(template: str, postgres_server: PostgresServer) -> Iterator[str]:
    """A copy of the finished copy, for one test."""
    yield postgres_server.create_database("verified_clone", template=template)
    postgres_server.drop_database("verified_clone")


@pytest.fixture
def run(dsn: str, mongo_server: MongoServer) -> Callable[..., Result]:
    def verified(**request: Any) -> Result:  # noqa: ANN401 - fields of a request
        return verify(settings_for(mongo_server, dsn), Request(run_name="r", **request), checks=OF_THE_DATA)

    return verified


def not_passed(result: Result) -> dict[str, str]:
    return {one.id: one.outcome.status for one in result.evidence.checks if one.outcome.status != "passed"}


def test_a_sound_copy_is_equal_with_its_quarantine(run: Callable[..., Result]) -> None:
    result = run()
    assert not_passed(result) == {}
    assert result.exit_status() == 8
    counts = {one.collection: one for one in result.evidence.collections}
    assert counts["runs"].documents > DOCUMENTS
    assert all(one.documents for one in counts.values())
    aggregates = next(one for one in result.evidence.checks if one.id == "parity.aggregates").counts
    assert aggregates["aggregates"] > 100
    assert aggregates["differing"] == 0
    causes = {tally.cause for one in result.evidence.checks for tally in one.tallies if tally.severity == "explained"}
    assert {"orphan", "alias", "id-mismatch"} <= causes
    assert {one.collection for one in result.evidence.quarantine} >= {"runs", "schedules", "locks"}
    assert {one.kind for one in result.evidence.losses} >= {"nul", "nan", "precision", "type"}


def test_the_result_names_its_databases(run: Callable[..., Result], dsn: str) -> None:
    found = run(only=("schema",)).run
    source, target = found.sides
    assert len(source.replica_set_id) == 24
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT c.system_identifier::text, p.id FROM pg_control_system() c, migration.plans p")
        identifier, plan = row.fetchall()[-1]
        database = connection.info.dbname
    assert target.system_identifier == identifier
    assert found.installation["environment"].startswith(f"{database}@")
    assert found.installation["plan"].startswith(f"{plan}, as of 20")
    assert found.installation["configuration"].startswith("sha256:")


@pytest.mark.proves("0-X3", "0-T2.11.6")
def test_two_runs_over_the_same_data_have_the_same_evidence(run: Callable[..., Result]) -> None:
    assert run().digest == run().digest


ONE_RUN = "WHERE id = (SELECT id FROM scheduler.runs ORDER BY created_at, id OFFSET 20 LIMIT 1)"
UPDATE_RUN = "UPDATE scheduler.runs SET"

SCHEMA_FAULTS = {
    "an index is gone": ("DROP INDEX scheduler.ix_runs_page", {"schema.catalogue"}),
    "an extra index": ("CREATE INDEX extra_one ON scheduler.runs (error)", {"schema.catalogue"}),
    "an extra column": (
        "ALTER TABLE scheduler.runs ADD COLUMN extra_one int",
        {"schema.catalogue", "schema.comments"},
    ),
    "a default was changed": ("ALTER TABLE scheduler.runs ALTER attempt SET DEFAULT 42", {"schema.catalogue"}),
    "isolation is off": (
        "ALTER TABLE scheduler.runs DISABLE ROW LEVEL SECURITY",
        {"schema.catalogue", "schema.isolation"},
    ),
    "a comment is gone": (
        "COMMENT ON COLUMN scheduler.runs.state IS NULL",
        {"schema.catalogue", "schema.comments"},
    ),
    "a constraint is not validated": (
        "ALTER TABLE scheduler.runs ADD CONSTRAINT extra_one CHECK (attempt < 1000) NOT VALID",
        {"schema.catalogue", "schema.validated"},
    ),
    "an index was not put back": (
        """INSERT INTO migration.deferred_ddl (target_table, kind, name, definition)
           VALUES ('runs', 'index', 'ix_gone', 'CREATE INDEX')""",
        {"schema.restored"},
    ),
    "a revision file was changed": (
        """UPDATE scheduler.schema_history SET sha256 = repeat('0', 64)
           WHERE revision = (SELECT min(revision) FROM scheduler.schema_history)""",
        {"schema.revision"},
    ),
    "a table is gone": (
        "DROP TABLE scheduler.handlers",
        {"schema.catalogue", "schema.comments", "schema.isolation"},
    ),
}

PARITY_FAULTS = {
    "a row is lost": (
        "DELETE FROM scheduler.audit WHERE id = (SELECT min(id::text)::uuid FROM scheduler.audit)",
        {"parity.documents", "parity.aggregates"},
    ),
    "an extra row": (
        """INSERT INTO scheduler.audit (id, tenant_id, source, source_id, category, action, occurred_at)
           SELECT gen_random_uuid(), tenant_id, source, 'nobody', category, action, occurred_at
           FROM scheduler.audit LIMIT 1""",
        {"parity.extra", "parity.aggregates"},
    ),
    "a millisecond": (f"{UPDATE_RUN} created_at = created_at + interval '1 ms' {ONE_RUN}", {"parity.rows"}),
    "a microsecond": (f"{UPDATE_RUN} created_at = created_at + interval '1 us' {ONE_RUN}", {"parity.rows"}),
    "another state": (f"{UPDATE_RUN} state = 'skipped' {ONE_RUN}", {"parity.rows", "parity.aggregates"}),
    "the wrong tenant": (
        # No foreign key would let it happen.
        f"SET LOCAL session_replication_role = replica; {UPDATE_RUN} tenant_id = 'somebody' {ONE_RUN}",
        {"parity.rows", "parity.aggregates"},
    ),
    "an int became a double": (
        f"{UPDATE_RUN} stats = jsonb_set(stats, '{{queued}}', (stats->>'queued' || '.0')::jsonb) {ONE_RUN}",
        {"parity.rows"},
    ),
    "null became empty": (f"{UPDATE_RUN} error_detail = '' {ONE_RUN} AND error_detail IS NULL", {"parity.rows"}),
    "a remainder was emptied": (
        f"""{UPDATE_RUN} extra = '{{}}'
           WHERE id = (SELECT id FROM scheduler.runs WHERE extra <> '{{}}' ORDER BY id LIMIT 1)""",
        {"parity.rows"},
    ),
    "a reference was cut": (
        """UPDATE scheduler.runs SET schedule_id = NULL
           WHERE id = (SELECT id FROM scheduler.runs WHERE schedule_id IS NOT NULL ORDER BY id LIMIT 1)""",
        {"parity.rows"},
    ),
    "a trigger is lost": (
        """DELETE FROM scheduler.triggers
           WHERE id = (SELECT t.id FROM scheduler.triggers t LEFT JOIN scheduler.runs r ON r.trigger_id = t.id
                       WHERE r.id IS NULL ORDER BY t.id LIMIT 1)""",
        {"parity.documents"},
    ),
}

LOST = {
    "a schedule is lost": (
        """DELETE FROM scheduler.schedules WHERE id = (SELECT s.id FROM scheduler.schedules s WHERE NOT EXISTS
           (SELECT FROM scheduler.runs r WHERE r.schedule_id = s.id) AND NOT EXISTS
           (SELECT FROM scheduler.triggers t WHERE t.schedule_id = s.id) ORDER BY s.id LIMIT 1)""",
        {"parity.documents", "parity.aggregates"},
    ),
    "a run is lost": (
        """DELETE FROM scheduler.runs WHERE id = (SELECT r.id FROM scheduler.runs r WHERE NOT EXISTS
           (SELECT FROM scheduler.runs l WHERE l.retry_of = r.id) ORDER BY r.id LIMIT 1)""",
        {"parity.documents", "parity.aggregates"},
    ),
}
"""A row is lost, of the tables that the criteria of success name."""


def plant(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn) as connection:
        assert connection.execute(statement.encode()).rowcount != 0, "the fault was not planted"


@pytest.mark.parametrize("fault", SCHEMA_FAULTS)
def test_a_fault_of_the_schema_turns_its_checks_red(fault: str, dsn: str, mongo_server: MongoServer) -> None:
    statement, expected = SCHEMA_FAULTS[fault]
    plant(dsn, statement)
    result = verify(settings_for(mongo_server, dsn), Request(run_name="r"), checks=schema.CHECKS)
    assert not_passed(result) == dict.fromkeys(expected, "failed")
    assert result.exit_status() == 1
    tables = {tally.table for check in result.evidence.checks for tally in check.tallies}
    assert tables <= {"runs", "handlers", ""}, "the place is named"


@pytest.mark.parametrize("fault", [*PARITY_FAULTS, *LOST])
@pytest.mark.proves("0-T2.11.6", "0-X1", "4-Z1", "4-Z3")
def test_a_fault_in_the_data_turns_its_checks_red(fault: str, dsn: str, mongo_server: MongoServer) -> None:
    statement, expected = (PARITY_FAULTS | LOST)[fault]
    plant(dsn, statement)
    result = verify(settings_for(mongo_server, dsn), Request(run_name="r"), checks=parity.CHECKS)
    assert not_passed(result) == dict.fromkeys(expected, "failed")
    assert result.exit_status() == 9
    assert result.verdict() == "different"
    found = [finding for check in result.evidence.checks for finding in check.findings]
    assert all(finding.key for finding in found), "every difference names its document"
    criteria = {one.id: result.requirement_status(one) for one in result.evidence.requirements}
    assert {criteria["4-Z1"], criteria["4-Z3"]} == {"failed" if "parity.documents" in expected else "passed"}


def test_values_are_shown_in_a_local_file_only(dsn: str, mongo_server: MongoServer, tmp_path: Path) -> None:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            f"{UPDATE_RUN} error_detail = 'stored by nobody' {ONE_RUN} RETURNING source_id".encode()
        ).fetchone()
        gone = connection.execute(
            "DELETE FROM scheduler.audit WHERE id = (SELECT min(id::text)::uuid FROM scheduler.audit) RETURNING action"
        ).fetchone()
    assert row is not None
    assert gone is not None
    settings = settings_for(mongo_server, dsn)
    result, folder = verify_into(
        settings, Request(run_name="r", only=("parity",), show_values=True), directory=str(tmp_path)
    )
    assert result.evidence.policy.values_shown
    shown = folder / renderer.VALUES
    assert shown.stat().st_mode & 0o777 == 0o600
    text = shown.read_text()
    assert "runs.error_detail" in text
    assert row[0] in text
    assert "stored by nobody" in text
    assert gone[0] in text
    assert "no row" in text
    for file in ("result.json", *renderer.RENDERINGS):
        assert b"stored by nobody" not in (folder / file).read_bytes(), file
    assert integrity.check_report(folder / "result.json").exit_status() == 0
    (rate,) = [one for one in result.run.measurements if one.name == "copy rate"]
    assert rate.value > 0
    assert len(rate.points) == 40


def test_a_document_that_appeared_after_the_copy_is_missing(
    run: Callable[..., Result], source: Database[dict[str, Any]]
) -> None:
    document = source["audit"].find_one({"tenantId": {"$type": "string"}}, sort=[("_id", 1)])
    assert document is not None
    source["audit"].insert_one({**document, "_id": "audit_new"})
    try:
        result = run()
    finally:
        source["audit"].delete_one({"_id": "audit_new"})
    red = ("parity.documents", "parity.aggregates", "parity.columns")
    assert not_passed(result) == dict.fromkeys(red, "failed")
    keys = {one.key for check in result.evidence.checks for one in check.findings if one.cause == "missing-row"}
    assert keys == {"audit_new"}


def test_no_source_leaves_parity_unverified_and_the_schema_checked(dsn: str, mongo_server: MongoServer) -> None:
    settings = settings_for(mongo_server, dsn)
    nowhere = MongoSettings(
        uri="mongodb://127.0.0.1:9/?directConnection=true", database=DATABASE, timeout=timedelta(milliseconds=200)
    )
    result = verify(msgspec.structs.replace(settings, mongo=nowhere), Request(run_name="r"), checks=OF_THE_DATA)
    assert result.exit_status() == 20
    assert result.verdict() == "tool-failed"
    assert {check.outcome.status for check in result.evidence.checks if check.area == "schema"} == {"passed"}
    of_the_target_alone = {"parity.foreign"}
    assert {
        check.outcome.status
        for check in result.evidence.checks
        if check.area == "parity" and check.id not in of_the_target_alone
    } == {"unverified"}


def test_nothing_copied_is_unverified(scheduler_dsn: str, mongo_server: MongoServer) -> None:
    result = verify(settings_for(mongo_server, scheduler_dsn), Request(run_name="r"), checks=OF_THE_DATA)
    assert result.exit_status() == 4
    reasons = {one.outcome.reason for one in result.evidence.checks if one.outcome.status == "unverified"}
    assert reasons
    assert all("call backfill" in reason for reason in reasons)


def test_a_target_that_was_never_migrated_is_refused(
    postgres_dsn: str, mongo_server: MongoServer, tmp_path: Path
) -> None:
    with pytest.raises(RefusedError, match=r"not migrated \(it has neither schema\): call migrator schema upgrade"):
        verify_into(settings_for(mongo_server, postgres_dsn), Request(run_name="r"), directory=str(tmp_path))
    assert not any(tmp_path.iterdir())


def test_a_target_that_is_migrated_by_half_fails_its_revision_check(
    scheduler_dsn: str, mongo_server: MongoServer
) -> None:
    downgrade(scheduler_dsn, "migration@base")
    result = verify(settings_for(mongo_server, scheduler_dsn), Request(run_name="r"), checks=schema.CHECKS)
    assert result.exit_status() & 1
    revision = next(check for check in result.evidence.checks if check.id == "schema.revision")
    assert revision.outcome.status == "failed"
    assert revision.tallies[0].fix == "call migrator schema upgrade"


@pytest.mark.proves("0-T2.11.6")
def test_the_command_writes_a_report_that_belongs_to_its_result(
    dsn: str, mongo_server: MongoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIGRATOR_MONGO__URI", mongo_server.uri)
    monkeypatch.setenv("MIGRATOR_MONGO__DATABASE", DATABASE)
    monkeypatch.setenv("MIGRATOR_POSTGRES__DSN", dsn)
    monkeypatch.setenv("MIGRATOR_SOURCE__DEFAULT_TENANT", "t-default")
    runner = CliRunner()
    others = [f"--skip={area}" for area in ("cutover", "performance")]
    answer = runner.invoke(cli, ["verify", "--workers", "1", "--json", "--no-behaviour", *others])
    assert answer.exit_code == 8 | 4, answer.output
    (folder,) = (one for one in (tmp_path / "reports").iterdir() if one.is_dir())
    assert f'href="{folder.name}/report.html"' in (tmp_path / "reports" / "index.html").read_text()
    assert {file.name for file in folder.iterdir()} >= {"result.json", "report.html", "report.md"}
    assert answer.stdout_bytes == (folder / "result.json").read_bytes()
    assert runner.invoke(cli, ["report", "check", str(folder / "result.json")]).exit_code == 0
    everything = b"".join(file.read_bytes() for file in folder.iterdir())
    assert dsn.encode() not in everything
    assert mongo_server.uri.encode() not in everything


def test_the_command_says_what_was_left_out(
    dsn: str, mongo_server: MongoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIGRATOR_MONGO__URI", mongo_server.uri)
    monkeypatch.setenv("MIGRATOR_POSTGRES__DSN", dsn)
    answer = CliRunner().invoke(cli, ["verify", "--only", "schema", "--report-dir", "elsewhere"])
    assert answer.exit_code == 4, answer.output
    assert "No difference was found, but parity, semantics, crud, " in answer.stdout
    assert " were left out on request." in answer.stdout
    assert "report: elsewhere/" in answer.stdout
    assert " schema.catalogue: passed" in answer.stderr


def test_a_verification_s_comparison_is_one_that_the_switch_may_rest_on(
    dsn: str, mongo_server: MongoServer, tmp_path: Path
) -> None:
    settings = settings_for(mongo_server, dsn)

    def last(only: str, status: int) -> RecordedCheck | None:
        result, _ = verify_into(settings, Request(only=(only,)), directory=str(tmp_path))
        assert result.exit_status() & 17 == status
        with open_target(settings, autocommit=True) as target:
            return recorded_check.last_check(target)

    assert last("schema", 0) is None  # nothing was compared
    sound = last("parity", 0)
    assert sound is not None
    assert sound.clean
    assert sound.documents > 0
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE scheduler.runs SET error = 'another' WHERE source IS NOT NULL")
        connection.execute("ALTER TABLE migration.parity_checks ADD CONSTRAINT none_more CHECK (clean)")
    assert last("parity", 1) == msgspec.structs.replace(sound, age_s=ANY)  # told, though it cannot be put on record
