"""A copy that somebody else's script made: compared by a mapping, by a user who may only read."""

import json
import re
import shlex
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pymongo.database import Database

from migrator.config import Settings, SourceSettings
from migrator.errors import RefusedError, UsageError
from migrator.exit_status import DIFFERENT, QUARANTINE, UNVERIFIED, USAGE
from migrator.parity.foreign_copy import NO_MATCH, check_foreign_copy
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.schema import native_target
from migrator.sources import profile_of
from migrator.targets import load_target
from tests.acceptance.test_readme import is_like, session
from tests.copying import mapped_settings, run, run_of, settings_for, uri_of, write_config
from tests.stellaops_documents import fresh

DDL = """
CREATE SCHEMA shop;
CREATE TABLE shop.rules (id serial PRIMARY KEY, line text NOT NULL);
CREATE TABLE shop.jobs (id text PRIMARY KEY, title varchar(40) NOT NULL, share real, due timestamp, body json,
    rule_id integer REFERENCES shop.rules, updated timestamptz NOT NULL DEFAULT now());
"""
MAPPING = """
[source]
name = "acme"

[target]
name = "acme"
schema = "shop"

[target.tables.jobs]
key = ["id"]
references = { rule_id = "rules" }

[target.tables.jobs.columns]
id = "text not null"
title = "varchar(40) not null"
share = "real"
due = "timestamp"
body = "json"
rule_id = "integer"

[target.tables.rules]
key = ["id"]
made = "sequence"

[target.tables.rules.columns]
id = "integer not null"
line = "text not null"

[collections.jobs]
tables = ["jobs", "rules"]

[collections.jobs.fields]
_id = { to = "jobs.id" }
title = { to = "jobs.title" }
share = { to = "jobs.share" }
due = { to = "jobs.due" }
body = { to = "jobs.body" }
rule = { to = "rules.line" }
"""


def script(dsn: str, database: Database[Any]) -> None:
    """Copy as somebody's script does: in its own order, and with keys of its own."""
    with psycopg.connect(dsn) as connection:
        for document in database["jobs"].find().sort("_id", -1):
            row = connection.execute(
                "INSERT INTO shop.rules (line) VALUES (%s) RETURNING id", (document["rule"],)
            ).fetchone()
            assert row
            connection.execute(
                "INSERT INTO shop.jobs (id, title, share, due, body, rule_id) VALUES (%s, %s, %s, %s, %s, %s)",
                (
                    document["_id"], document["title"], document["share"], document["due"],
                    json.dumps(document["body"]), row[0],
                ),
            )  # fmt: skip


def changed(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement)


@pytest.fixture
def documents(mongo_database: Database[Any]) -> Database[Any]:
    mongo_database["jobs"].insert_many(
        {
            "_id": name,
            "title": f"title {name}",
            "share": 0.5,
            "due": datetime(2026, 11, 24, 1, 2, 3, 4_000),  # noqa: DTZ001 - as BSON has it
            "body": {"b": [1, 2.5, None], "a": "x"},
            "rule": "0 0 * * *",
        }
        for name in ("a", "b", "c")
    )
    return mongo_database


@pytest.fixture
def reader(postgres_dsn: str) -> Iterator[str]:
    """Return the DSN of a user who may read the tables, and may create nothing."""
    changed(postgres_dsn, DDL)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        name = f"reader_{connection.info.dbname}"
        role = sql.Identifier(name)
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'reader'").format(role))
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA shop TO {}").format(role))
        connection.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA shop TO {}").format(role))
    yield make_conninfo(postgres_dsn, user=name, password="reader")
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
        connection.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.fixture
def settings(documents: Database[Any], reader: str, postgres_dsn: str, tmp_path: Path) -> Settings:
    script(postgres_dsn, documents)
    made = mapped_settings(documents, reader, tmp_path, MAPPING, "acme")
    profile_of(made.source, made.target)
    return made


def call(settings: Settings, folder: Path, *arguments: str) -> tuple[int, str, str]:
    config = write_config(folder, settings)
    return run("parity", "--target-of", "etl.py", "--config", str(config), *arguments)


def differences(settings: Settings) -> list[tuple[str, str, str, str, str]]:
    outcome = check_foreign_copy(settings, Scope(), "etl.py")
    return [
        (finding.key, finding.side, finding.table, finding.path, finding.cause)
        for collection in outcome.collections
        for finding in collection.findings
    ]


@pytest.mark.proves("6-U11")
def test_a_script_s_copy_is_compared_and_nothing_is_written(
    settings: Settings, documents: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    before = documents.command("dbHash")["md5"]
    status, out, said = call(settings, tmp_path)
    assert status == 0, f"{out}\n{said}"
    assert "this copy was made by etl.py, and not by this tool" in out
    assert "each document has its rows: holds" in out
    assert "remainder: not applicable: the copy was not made by this tool" in out
    assert "compared 3 documents: 3 equal" in out
    assert documents.command("dbHash")["md5"] == before
    with psycopg.connect(postgres_dsn) as connection:
        schemas = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' ORDER BY nspname"
        ).fetchall()
    assert [name for (name,) in schemas] == ["information_schema", "public", "shop"]


@pytest.mark.proves("6-U11")
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE shop.jobs SET title = 'other' WHERE id = 'b'", ("b", "row", "acme/jobs", "title", "text")),
        (
            "UPDATE shop.jobs SET due = due + interval '1 hour' WHERE id = 'b'",
            ("b", "row", "acme/jobs", "due", "time-zone"),
        ),
        ("UPDATE shop.jobs SET body = '{\"a\": \"x\"}' WHERE id = 'b'", ("b", "row", "acme/jobs", "body", "keys")),
        ("UPDATE shop.jobs SET share = NULL WHERE id = 'b'", ("b", "row", "acme/jobs", "share", "absent-null")),
        ("INSERT INTO shop.jobs (id, title) VALUES ('z', 'mine')", ("z", "extra", "acme/jobs", "", "extra-row")),
        ("INSERT INTO shop.rules (line) VALUES ('mine')", ("4", "extra", "acme/rules", "", "extra-row")),
        ("UPDATE shop.rules SET line = '1 1 * * *' WHERE id = 2", ("b", "row", "acme/rules", "line", "text")),
    ],
)
def test_a_planted_fault_is_found_at_its_place(
    settings: Settings, postgres_dsn: str, statement: str, expected: tuple[str, ...]
) -> None:
    assert differences(settings) == []
    changed(postgres_dsn, statement)
    assert differences(settings) == [expected]


@pytest.mark.proves("6-U11")
def test_a_row_that_is_missing_is_found_with_the_row_that_it_referred_to(settings: Settings, postgres_dsn: str) -> None:
    changed(postgres_dsn, "DELETE FROM shop.jobs WHERE id = 'b'")
    assert differences(settings) == [
        ("2", "extra", "acme/rules", "", "extra-row"),
        ("b", "missing", "acme/jobs", "", "missing-row"),
        ("b", "missing", "acme/rules", "", "missing-row"),
    ]


@pytest.mark.proves("6-U11")
def test_two_rows_that_refer_to_one_another_s_rows_are_no_difference_in_values_alone(
    settings: Settings, documents: Database[Any], postgres_dsn: str
) -> None:
    documents["jobs"].update_one({"_id": "a"}, {"$set": {"rule": "1 1 * * *"}})
    changed(postgres_dsn, "UPDATE shop.rules SET line = '1 1 * * *' WHERE id = 3")
    assert differences(settings) == []
    changed(postgres_dsn, "UPDATE shop.jobs SET rule_id = 5 - rule_id WHERE id IN ('a', 'b')")
    assert {(key, table, path) for key, _, table, path, _ in differences(settings)} == {
        ("a", "acme/rules", "line"),
        ("b", "acme/rules", "line"),
    }


@pytest.mark.proves("6-U11")
def test_a_field_that_no_column_holds_is_named_and_the_copy_is_not_called_whole(
    settings: Settings, documents: Database[Any], tmp_path: Path
) -> None:
    documents["jobs"].update_many({"_id": {"$in": ["a", "b"]}}, {"$set": {"owner": "me"}})
    status, out, _ = call(settings, tmp_path)
    assert status == UNVERIFIED
    assert "jobs: not held by the copy: owner in 2 documents" in out
    assert "the rows give each document back: partly: fields that no column holds, and that no loss declares: 1" in out
    status, out, _ = call(settings, tmp_path, "--json")
    told = json.loads(out)
    [jobs] = told["collections"]
    assert (status, jobs["matched"], jobs["without_remainder"]) == (UNVERIFIED, 3, 1)
    assert told["not_held"] == [
        {"collection": "jobs", "documents": 2, "kind": "added", "path": "owner", "reason": ""}
    ]  # fmt: skip
    assert told["copied_by"] == "etl.py"


@pytest.mark.proves("6-U11")
def test_a_loss_that_the_mapping_declares_sets_no_bit(
    settings: Settings, documents: Database[Any], tmp_path: Path
) -> None:
    documents["jobs"].update_many({}, {"$set": {"owner": "me"}})
    path = tmp_path / "acme.toml"
    path.write_text(MAPPING + '[collections.jobs.lost]\nowner = "nobody reads it"\n')
    status, out, _ = call(settings, tmp_path)
    assert "jobs: not held by the copy: owner in 3 documents; declared: nobody reads it" in out
    assert "the rows give each document back: holds: but for the losses that the mapping declares" in out
    assert status == 0


@pytest.mark.proves("6-U11")
def test_a_document_of_which_the_mapping_makes_no_rows_is_not_called_equal(
    settings: Settings, documents: Database[Any], tmp_path: Path
) -> None:
    documents["jobs"].update_one({"_id": "a"}, {"$set": {"title": "x" * 41}})
    status, out, _ = call(settings, tmp_path, "--allow-quarantined", "all")
    assert "the mapping makes no rows of 1 documents: too-long at title" in out
    assert status == DIFFERENT  # the rows that the script made of it
    assert call(settings, tmp_path)[0] == DIFFERENT | QUARANTINE


@pytest.mark.proves("6-U11")
def test_what_was_left_out_is_unverified(settings: Settings, tmp_path: Path) -> None:
    status, out, _ = call(settings, tmp_path, "--tenant", "default")
    assert status & UNVERIFIED
    assert "each row has a document: partly" in out


def test_rows_that_cannot_be_told_apart_are_not_compared(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "acme.toml").write_text(
        MAPPING.replace('key = ["id"]\nreferences', 'key = ["id"]\nmade = "sequence"\nreferences')
        .replace('_id = { to = "jobs.id" }', "")
        .replace('id = "text not null"', 'id = "integer not null"')
    )
    status, out, said = call(settings, tmp_path)
    assert "jobs                 not compared: " + NO_MATCH.format('"shop"."jobs", "shop"."rules"') in out, said
    assert "compared 0 documents: 0 equal, 1 of the collections not compared" in out
    assert "each row has a document: partly" in out
    assert status == UNVERIFIED


def test_a_copy_of_this_tool_is_refused(settings: Settings, postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target("acme"), settings.target)
        connection.execute(
            "INSERT INTO migration_acme.jobs_origins (id, tenant_id, source, source_id, extra, key_id)"
            " VALUES (gen_random_uuid(), 'default', 'acme/jobs', 'a', '{}', 'a')"
        )
    as_owner = Settings(
        source=settings.source,
        target=settings.target,
        mongo=settings.mongo,
        postgres=type(settings.postgres)(dsn=postgres_dsn),
    )
    with pytest.raises(RefusedError, match="call migrator parity without --target-of"):
        check_foreign_copy(as_owner, Scope(), "etl.py")


def test_a_source_in_postgresql_is_refused(settings: Settings, postgres_dsn: str) -> None:
    source = SourceSettings(profile="crawler", uri=postgres_dsn)
    of_tables = Settings(source=source, mongo=settings.mongo, postgres=settings.postgres)
    with pytest.raises(UsageError, match="this source is tables of PostgreSQL"):
        check_foreign_copy(of_tables, Scope(), "etl.py")


@pytest.fixture
def scheduler_settings(mongo_database: Database[Any], scheduler_dsn: str) -> Settings:
    """Return settings with a copy in the schema ``scheduler`` of which nothing says who made it."""
    ids = [f"sch_{digit * 32}" for digit in "12"]
    schedules = [fresh("schedules") | {"_id": one, "id": one, "name": one, "tenantId": "a"} for one in ids]
    runs = [
        run_of(_id=f"run_{digit * 32}", id=f"run_{digit * 32}", scheduleId=one, tenantId="a")
        for digit, one in zip("12", ids, strict=True)
    ]
    mongo_database["schedules"].insert_many(schedules)
    mongo_database["runs"].insert_many(runs)
    made = settings_for(mongo_database, scheduler_dsn)
    backfill(made, Scope())
    changed(scheduler_dsn, "DELETE FROM migration.plans")
    return made


@pytest.mark.proves("6-U11")
def test_a_copy_in_the_schema_scheduler_is_compared_by_id_and_tenant(
    scheduler_settings: Settings, scheduler_dsn: str
) -> None:
    assert differences(scheduler_settings) == []
    # another tenant has a row with the id of a schedule: it is nobody's, and hides nothing
    changed(
        scheduler_dsn,
        "INSERT INTO scheduler.schedules (id, tenant_id, source, source_id, name, status)"
        " SELECT id, 'elsewhere', source, 'stranger', 'a stranger', status FROM scheduler.schedules LIMIT 1",
    )
    assert [(side, table) for _, side, table, _, _ in differences(scheduler_settings)] == [("extra", "schedules")]
    # a run that refers to the other schedule is a difference
    changed(
        scheduler_dsn,
        "UPDATE scheduler.runs SET schedule_id = (SELECT schedule_id FROM scheduler.runs AS last"
        " ORDER BY source_id DESC LIMIT 1) WHERE source_id = (SELECT min(source_id) FROM scheduler.runs)",
    )
    assert ("row", "runs", "schedule_id", "reference") in {one[1:] for one in differences(scheduler_settings)}


@pytest.mark.parametrize("option", ["--repair=plan", "--lock-source", "--workers=2", "--yes"])
def test_options_that_write_or_divide_the_work_are_refused(settings: Settings, tmp_path: Path, option: str) -> None:
    status, _, said = call(settings, tmp_path, option)
    assert (status, "--target-of reads in one process" in said) == (USAGE, True)


@pytest.mark.proves("6-U11")
def test_the_session_of_the_page_is_a_real_one(
    mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "targets.md").read_text(encoding="utf-8")
    own, foreign = (
        page.partition(heading)[2] for heading in ("## Tables of your own\n", "## A copy that somebody else made\n")
    )
    mapping, configuration = (fenced(part, "toml") for part in (own, foreign))
    mongo_database["jobs"].insert_many(
        {"_id": name, "title": f"title {name}", "body": {"n": 1}, "owner": "me"} for name in ("a", "b", "c")
    )
    changed(
        postgres_dsn,
        "CREATE TABLE jobs (id text PRIMARY KEY, title varchar(200) NOT NULL, due timestamptz, body jsonb);"
        "INSERT INTO jobs VALUES ('a', 'title a', NULL, '{\"n\": 1}'), ('b', 'title', NULL, '{\"n\": 1}'),"
        " ('z', 'mine', NULL, NULL)",
    )
    for shown, real in (
        ("mongodb://localhost:27017/?replicaSet=rs0", uri_of(mongo_database)),
        ('database = "acme"', f'database = "{mongo_database.name}"'),
        ("postgresql://reader@localhost/acme", postgres_dsn),
    ):
        assert shown in configuration
        configuration = configuration.replace(shown, real)
    (tmp_path / "acme.toml").write_text(mapping, encoding="utf-8")
    (tmp_path / "config.toml").write_text(configuration, encoding="utf-8")
    (tmp_path / "config.toml").chmod(0o600)
    [(command, shown)] = session(fenced(foreign, "console"))
    program, *arguments = shlex.split(command)
    status, out, said = run(*arguments, cwd=tmp_path)
    assert program == "migrator"
    assert is_like(shown, out), f"{out}\n{said}"
    assert status == DIFFERENT | UNVERIFIED


def fenced(text: str, kind: str) -> str:
    (found, *_) = re.findall(rf"^```{kind}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return str(found)
