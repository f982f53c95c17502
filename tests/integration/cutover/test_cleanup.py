"""Everything that is left on both servers and in files after a cutover, and after a rollback: each has its reason."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec
import psycopg
import pytest
from click.testing import CliRunner

from migrator.cli import cli
from migrator.config import SourceSettings, load_settings
from migrator.connections.postgres import fetch_value, open_target
from migrator.cutover import completion, fence
from migrator.cutover.rollback_gaps import gap_lines, gaps_of, unstated_schedules
from migrator.errors import UnreachableError
from migrator.exit_status import UNVERIFIED
from migrator.pipeline.sessions import close_cached
from migrator.pipeline.tail.lookups import drop_indexes
from migrator.scheduler import process
from migrator.scheduler.process import retain
from migrator.schema.revisions import upgrade
from migrator.sources import profile_of
from migrator.store import open_scheduler_store
from migrator.store.postgres.store import PostgresStore
from migrator.store.queue import SCRATCH
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.consent import consenting
from tests.copying import run, run_of
from tests.cutting_over import Scene, own_scene, scene
from tests.integration.cutover.test_rounds import OLD, work_on_postgres
from tests.integration.cutover.test_rounds import said as of_document
from tests.store_postgres import schedule
from tests.store_postgres import settings as settings_of

RELATIONS = (
    "SELECT CASE relkind WHEN 'i' THEN 'index' WHEN 'r' THEN 'table' ELSE 'relation' END || ' ' || nspname || '.'"
    " || relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
)
FUNCTIONS = (
    "SELECT 'function ' || nspname || '.' || proname FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace"
)
OWN = "nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'"
POSTGRES = (
    f"{RELATIONS} WHERE {OWN}",
    f"SELECT 'schema ' || nspname FROM pg_namespace WHERE {OWN}",
    "SELECT 'trigger ' || tgname || ' on ' || tgrelid::regclass FROM pg_trigger WHERE NOT tgisinternal",
    f"{FUNCTIONS} WHERE {OWN}",
    "SELECT 'extension ' || extname FROM pg_extension",
)
SERVER = "SELECT 'role ' || rolname FROM pg_roles UNION ALL SELECT 'database ' || datname FROM pg_database"


@pytest.fixture
def made(auth_server: MongoServer, postgres_dsn: str, tmp_path: Path) -> Iterator[Scene]:
    """Nothing was done yet: not even the schema is there."""
    with scene(auth_server, fresh_name(), postgres_dsn, tmp_path) as found:
        yield found


def everything(made: Scene) -> set[str]:
    """Return the name of every thing on both servers, and of every file beside the configuration."""
    found: set[str] = set()
    with psycopg.connect(made.dsn) as connection:
        for statement in (*POSTGRES, SERVER):
            found |= {f"PostgreSQL: {row[0]}" for row in connection.execute(statement)}
        if connection.execute("SELECT to_regclass('scheduler.locks') IS NOT NULL").fetchone() == (True,):
            found |= {f"PostgreSQL: lock {row[0]}" for row in connection.execute("SELECT key FROM scheduler.locks")}
            for table in ("schedules", "runs", "triggers", "run_summaries", "workers"):
                rows = connection.execute(f"SELECT DISTINCT tenant_id FROM scheduler.{table}")
                found |= {f"PostgreSQL: tenant {row[0]}" for row in rows if row[0].startswith(SCRATCH)}
    client = made.database.client
    found |= {f"MongoDB: database {name}" for name in client.list_database_names()}
    for name in made.database.list_collection_names():
        found.add(f"MongoDB: collection {name}")
        found |= {f"MongoDB: index {name}.{index}" for index in made.database[name].index_information()}
    found |= {f"MongoDB: lock {one['_id']}" for one in made.database.locks.find({}, {"_id": 1})}
    for one in client.admin.command("usersInfo", {"forAllDBs": True})["users"]:
        roles = sorted(f"{role['role']}@{role['db']}" for role in one["roles"])
        found.add(f"MongoDB: user {one['user']} with {roles}")
    roles = client.admin.command("rolesInfo", 1, showBuiltinRoles=False)["roles"]
    found |= {f"MongoDB: role {one['role']}" for one in roles}
    if fence.is_source_fenced(made.database, "write-block", ()):
        found.add("MongoDB: write block")
    return found | {f"file {path.relative_to(made.folder)}" for path in made.folder.rglob("*")}


PRODUCT = "the product's own: migrator schema check finds nothing else"
TOOLS = r"PostgreSQL: schema migration|PostgreSQL: (table|index|relation) migration\..*"
COMMON = {
    r"PostgreSQL: schema scheduler|PostgreSQL: (table|index|relation|function) scheduler\.(?!tail_).*": PRODUCT,
    r"PostgreSQL: trigger (?!migrator_).* on scheduler\..*": PRODUCT,
    r"PostgreSQL: role scheduler_(migration|service|dispatcher)": "PostgreSQL: roles scheduler_migration, ",
    r"PostgreSQL: lock \*/persistence": "says which side holds the data",
    r"PostgreSQL: lock tenant-a/planner": "copied from the source",
    r"MongoDB: lock \*/persistence": "says which side holds the data",
    r"MongoDB: lock .*": "a lock of the source's own",
    r"file backups": "the folder of what is named below",
    r"file backups/(cutover-[^/]*|cutover-[^/]*\.rollback-1)": "file {folder}/",
    r"file backups/cutover-[^/]*/.*": "in a folder that is named",
    r"file config\.toml\.before-.*": "file {folder}/",
}
"""What may be left (a pattern of names) and why: a reason that ends up as a line of the command is looked up there."""
FINISHED = COMMON | {
    TOOLS: "PostgreSQL: schema migration: the ledger",
    r"MongoDB: write block": "MongoDB: it refuses writes, until migrator cutover release-source",
}
ROLLED_BACK = COMMON | {
    TOOLS: "PostgreSQL: the copy, in the schemas",
    r"PostgreSQL: index scheduler\.tail_.*": "indexes tail_*: migrator tail uses them again",
}


def assert_reasoned(left: set[str], reasons: dict[str, str], said: str, folder: Path) -> None:
    """Every thing has a reason, and what is not the product's is named by the command."""
    for thing in sorted(left):
        reason = next((why for pattern, why in reasons.items() if re.fullmatch(pattern, thing)), None)
        if reason is None and thing.startswith("MongoDB: collection "):
            reason = thing  # named by the command under its own name
        if reason is None and (match := re.fullmatch(r"MongoDB: index ([^.]*)\..*", thing)):
            reason = f"MongoDB: collection {match[1]}"
        assert reason is not None, f"{thing} is left, and nobody says why:\n{said}"
        if reason.startswith(("PostgreSQL: ", "MongoDB: ", "indexes ")):
            assert reason in said, f"{thing} is left, and is not named:\n{said}"
        if reason == "file {folder}/":
            assert f"file {folder / thing.removeprefix('file ')}: " in said, f"{thing} is not named:\n{said}"


def call(made: Scene, command: str) -> str:
    """Execute a command as a message names it, but for the configuration file; return what it said."""
    done = CliRunner().invoke(
        cli, consenting([*shlex.split(command.removeprefix("migrator ")), "--config", str(made.config)])
    )
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 0, done.output
    close_cached()
    return done.output


def moved(made: Scene) -> None:
    """Copy, follow, cut over, work on PostgreSQL, and carry that back."""
    upgrade(made.dsn)
    made.ready()
    made.database.runs.insert_one(run_of(_id="run_since", error="x"))
    call(made, "migrator tail --until-caught-up")
    call(made, "migrator cutover run --allow-quarantined 9")
    with closing(open_scheduler_store(load_settings(str(made.config)))) as store, store.session("a") as session:
        session.schedules.upsert(schedule(name="born in PostgreSQL"))
    call(made, "migrator tail --until-caught-up")


def tail_indexes(made: Scene) -> int:
    return sum(name.startswith("PostgreSQL: index scheduler.tail_") for name in everything(made))


def test_what_is_left_when_the_cutover_is_finished(made: Scene) -> None:
    before = everything(made)
    moved(made)
    assert tail_indexes(made) > 0
    said = call(made, "migrator cutover finish --now --who op --reason test")
    left = everything(made) - before
    assert_reasoned(left, FINISHED, said, made.folder)
    assert "PostgreSQL: schema migration" in left
    call(made, "migrator schema check")
    remove = "migrator schema downgrade migration@base --discard-rows"
    assert f"; {remove} removes it" in said
    call(made, remove)
    assert "PostgreSQL: schema migration" not in everything(made)
    with closing(open_scheduler_store(load_settings(str(made.config)))) as store, store.session("a") as session:
        session.schedules.upsert(schedule(name="goes on without the ledger"))


def test_what_is_left_after_a_rollback_and_the_tail_makes_its_indexes_again(made: Scene) -> None:
    before = everything(made)
    moved(made)
    said = call(made, "migrator rollback run")
    assert_reasoned(everything(made) - before, ROLLED_BACK, said, made.folder)
    count = tail_indexes(made)
    with open_target(made.settings, autocommit=True) as target:
        assert drop_indexes(target) == count > 0
    assert tail_indexes(made) == 0
    made.database.runs.update_one({"_id": "run_since"}, {"$set": {"error": "after the rollback"}})
    call(made, "migrator tail --until-caught-up")
    assert tail_indexes(made) == count
    with psycopg.connect(made.dsn) as connection:
        row = connection.execute("SELECT error FROM scheduler.runs WHERE source_id = 'run_since'").fetchone()
    assert row == ("after the rollback",)
    remove = "migrator schema downgrade --discard-rows"
    assert f"; {remove} removes it" in said
    call(made, remove)
    assert not {one for one in everything(made) if one.startswith("PostgreSQL: schema") and "public" not in one}


def execute(made: Scene, said: str) -> list[str]:
    """Execute what the lines name for MongoDB's shell, word for word; return the fields that it was about."""
    found = re.findall(r"with (\w+): .* db\.(\w+)\.(deleteMany|updateMany)\((.*)\) removes", said)
    for _, collection, method, arguments in found:
        place, values = made.database[collection], json.loads(f"[{arguments}]")
        if method == "deleteMany":
            place.delete_many(*values)
        else:
            place.update_many(*values)
    return [field for field, *_ in found]


WRITTEN = {"copyOf": "triggers", "toolTrigger": "schedules", "toolEnabled": "schedules"}
"""Fields that the reverse sync writes into collections of the application."""


@pytest.mark.parametrize("end", ["rollback run", "cutover finish --now --who op --reason test"])
def test_what_the_reverse_sync_wrote_into_documents_is_named_with_what_removes_it(made: Scene, end: str) -> None:
    upgrade(made.dsn)
    made.database.schedules.insert_many([dict(one) for one in OLD])
    made.ready()
    call(made, "migrator cutover run --allow-quarantined 9")
    work_on_postgres(made, 1)
    call(made, "migrator tail --until-caught-up")
    counts = {field: made.database[name].count_documents({field: {"$exists": True}}) for field, name in WRITTEN.items()}
    assert all(counts.values()), counts
    said = call(made, f"migrator {end}")
    for field, name in WRITTEN.items():
        assert f"MongoDB: {counts[field]} documents of {name} with {field}: " in said
    fires = {one["_id"]: of_document(one) for one in made.database.schedules.find()}
    assert execute(made, said) == list(WRITTEN)
    for field, name in WRITTEN.items():
        assert made.database[name].count_documents({field: {"$exists": True}}) == 0
    assert {one["_id"]: of_document(one) for one in made.database.schedules.find()} == fires


def test_a_trigger_with_a_document_of_its_own_that_became_a_cron_line_is_listed(made: Scene) -> None:
    upgrade(made.dsn)
    made.database.schedules.insert_many([dict(one) for one in OLD])
    made.ready()
    call(made, "migrator cutover run --allow-quarantined 9")
    work_on_postgres(made, 1)
    call(made, "migrator rollback run")  # now the trigger with an interval has a document of its own
    words = "would not fire for a cron line whose trigger has a document of its own"
    with open_target(made.settings, autocommit=True) as target:
        profile = profile_of(made.settings.source, made.settings.target)
        assert not any(
            words in line for line in gap_lines(gaps_of(unstated_schedules(target, profile, SourceSettings())))
        )
        changed = target.execute(
            "UPDATE scheduler.triggers SET kind = 'cron', interval_ms = NULL, anchor = NULL, cron_dialect = 'cronos',"
            " cron_expression = '5 5 * * *', timezone = 'UTC', next_fire_at = NULL WHERE source = 'stellaops/triggers'"
            " AND schedule_id IN (SELECT id FROM scheduler.schedules WHERE name = 'interval 1')"
        )
        assert changed.rowcount == 1
        assert any(words in line for line in gap_lines(gaps_of(unstated_schedules(target, profile, SourceSettings()))))


def test_a_table_that_a_transaction_uses_is_not_waited_for_without_end(
    made: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever came after the finish would wait behind it, the application too."""
    monkeypatch.setattr(completion, "LOCK_PATIENCE", "100ms")
    moved(made)
    finish = ["cutover", "finish", "--now", "--who", "op", "--reason", "test", "--config", str(made.config)]
    with psycopg.connect(made.dsn) as reader:
        reader.execute("SELECT count(*) FROM scheduler.runs")
        error = CliRunner().invoke(cli, finish).exception
        assert str(error).endswith("end it, then call migrator cutover finish again")
        assert isinstance(error, UnreachableError)
    status = CliRunner().invoke(cli, ["cutover", "status", "--config", str(made.config)])
    assert status.exit_code == UNVERIFIED
    assert "next: migrator cutover finish --config" in status.output
    call(made, "migrator cutover finish")
    assert tail_indexes(made) == 0


def test_retention_waits_until_the_cutover_is_finished(auth_server: MongoServer, scheduler_dsn: str) -> None:
    """What it removes in the window would be removed from MongoDB too, and a rollback could not bring it back."""
    asked = ["scheduler", "retention", "--keep", "0", "--age", "0s"]
    why = "a rollback is still possible, and the reverse sync would remove them from MongoDB too"
    with own_scene(auth_server, scheduler_dsn) as ready:
        ready.switch()
        before = ready.database["runs"].count_documents({})
        assert before > 0
        settings = load_settings(str(ready.config))

        def runs() -> int:
            with psycopg.connect(ready.dsn) as connection:
                return int(fetch_value(connection, "SELECT count(*) FROM scheduler.runs WHERE source IS NOT NULL"))

        stored = runs()
        status, _, words = run(*asked, "--yes", "--config", str(ready.config))
        assert (status, words) == (
            2,
            f"migrator: no run is removed: {why}: call migrator cutover finish first\n",
        )
        status, out, words = run(*asked, "--dry-run", "--config", str(ready.config))
        assert (status, f"no run can be removed: {why}" in words) == (0, True)
        assert out.endswith("runs in total\n")
        with closing(open_scheduler_store(settings)) as store:
            rule = msgspec.structs.replace(
                settings.scheduler, retention_from=date(2026, 1, 1), retention_keep=0, retention_age=timedelta(0)
            )
            leading = msgspec.structs.replace(settings, scheduler=rule)
            assert retain(leading, store).startswith(f"retention removed no run: {why}")
        assert (runs(), ready.database["runs"].count_documents({})) == (stored, before)
        completion.finish(settings, now=datetime(2099, 1, 1, tzinfo=UTC))
        status, out, words = run(*asked, "--yes", "--config", str(ready.config))
        assert status == 0, words
        assert runs() < stored
        assert ready.database["runs"].count_documents({}) == before


def test_the_leader_says_once_why_runs_stay(scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(process, "say", lines.append)
    done = iter(["retention removed no run: a", "retention removed no run: a", "retention removed 0 runs"] * 2)
    monkeypatch.setattr(process, "retain", lambda *_: next(done))
    with closing(PostgresStore(settings_of(scheduler_dsn))) as store:
        leader = process._Retention(store.settings)
        for _ in range(6):
            leader(store)
    assert lines == ["run: retention removed no run: a", "run: retention removed 0 runs"] * 2
