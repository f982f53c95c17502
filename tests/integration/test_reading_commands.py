"""Commands that only look: the whole source and the whole target are the same before and after each of them."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bson import encode
from click.testing import CliRunner
from pymongo import MongoClient

from migrator.cli import cli
from migrator.errors import MigratorError
from migrator.exit_status import TOOL_FAILED, USAGE
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.testing.servers.mongo import MongoServer
from tests import foreign_history
from tests.conftest import fresh_name
from tests.copying import settings_for, write_config
from tests.integration.test_process_harmless import target_rows
from tests.stellaops_documents import fresh

SAMPLE = Path(__file__).resolve().parents[2] / "reports" / "sample" / "result.json"
UNREADABLE = "run_of_no_kind"

COMMANDS: dict[str, tuple[str, ...]] = {
    command: tuple(command.split())
    for command in (
        "doctor",
        "inspect",
        "inspect --fields",
        "plan",
        "backfill --dry-run",
        "status",
        "scheduler status",
        "scheduler metrics",
        "scheduler metrics --tenant tenant-a",
        "scheduler retention --dry-run",
        "jobs list",
        "jobs show once",
        "jobs history once",
        "quarantine list",
        f"quarantine show runs {UNREADABLE}",
        "parity --only schedules",
        "parity",
        "parity --repair plan",
        "schema current",
        "schema check",
        "cutover plan",
        "control show",
        "control pause --dry-run",
        "cutover status",
        "rollback plan",
        "cutover run --dry-run",
        "rollback run --dry-run",
        "schema upgrade --dry-run",
        "schema upgrade --sql",
        "schema downgrade --dry-run",
        "parity --repair apply --dry-run",
        f"quarantine drop runs {UNREADABLE} --dry-run --who me --reason test",
        "parity --dry-run",
        "tail --dry-run --metrics-file metrics.txt",
        "verify --dry-run",
        "verify --dry-run --fresh-start --upgrade --allow-nonempty --who me --reason test",
        "demo seed --dry-run --database demo_of_a_dry_run",
        "servers start --dir servers --dry-run",
        "servers stop --dir servers --remove --dry-run",
        "verify --no-behaviour --skip cutover",
        f"report check {SAMPLE}",
        f"report render {SAMPLE} --report-dir here --dry-run",
    )
}

OF_THE_STORE = tuple(command for command in COMMANDS if command.startswith(("scheduler ", "jobs ")))
"""What opens the scheduler's store, on the backend that is chosen."""

RECORDS = {
    # A parity check of everything is put on record: the cutover asks for the last one, which a person need not repeat.
    "parity": {"migration.parity_checks"},
    # The same, and each verification is on record with its outcome, as docs/what-if.md says.
    "verify --no-behaviour --skip cutover": {"migration.parity_checks", "migration.tool_runs"},
}
"""What reading commands write into the tool's own schema; the reason stands beside each."""

CATALOGUE = """
SELECT 'relation ' || c.oid::regclass || c.relkind::text || coalesce(c.relacl::text, '') || c.relrowsecurity
    FROM pg_class AS c WHERE c.relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname LIKE 'pg\\_%')
UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname NOT LIKE 'pg\\_%'
UNION ALL SELECT 'column ' || attrelid::regclass || attname || atttypid::regtype || attnotnull FROM pg_attribute
    WHERE attnum > 0 AND attrelid >= 16384
UNION ALL SELECT 'constraint ' || conrelid::regclass || pg_get_constraintdef(oid) FROM pg_constraint WHERE oid >= 16384
UNION ALL SELECT 'trigger ' || pg_get_triggerdef(oid) || tgenabled::text FROM pg_trigger
UNION ALL SELECT 'policy ' || polrelid::regclass || polname FROM pg_policy
UNION ALL SELECT 'function ' || oid::regprocedure || md5(prosrc) FROM pg_proc WHERE oid >= 16384
UNION ALL SELECT 'sequence ' || schemaname || sequencename || coalesce(last_value, 0) FROM pg_sequences
UNION ALL SELECT 'role ' || rolname || rolsuper || rolcanlogin FROM pg_roles
UNION ALL SELECT 'member ' || roleid::regrole || member::regrole FROM pg_auth_members
UNION ALL SELECT 'database ' || datname || coalesce(datacl::text, '') FROM pg_database
UNION ALL SELECT 'schema ' || nspname || coalesce(nspacl::text, '') FROM pg_namespace
UNION ALL SELECT 'setting ' || setdatabase::text || setrole::text || setconfig::text FROM pg_db_role_setting
"""

Everything = dict[str, Counter[str]]


class Pair:
    """A source with another scheduler's history, its copy, and a configuration."""

    def __init__(self, client: MongoClient[dict[str, Any]], name: str, dsn: str, config: Path) -> None:
        self.client, self.database, self.dsn, self.config = client, client[name], dsn, config

    def everything(self) -> Everything:
        """Return the documents, options and indexes of the source, and rows and catalogue of the target."""
        found: Everything = {"databases": Counter(self.client.list_database_names())}
        for name, documents in foreign_history.contents(self.database).items():
            found[f"documents of {name}"] = Counter({raw.hex(): 1 for raw in documents.values()})
        for name, shape in foreign_history.shape(self.database).items():
            found[f"shape of {name}"] = Counter([repr(shape)])
        users = self.client.admin.command("usersInfo", {"forAllDBs": True})["users"]
        found["users"] = Counter(encode(one).hex() for one in users)
        found |= target_rows(self.dsn)
        with psycopg.connect(self.dsn) as connection:
            found["catalogue"] = Counter(row for (row,) in connection.execute(CATALOGUE.encode()).fetchall())
        return found


@pytest.fixture(scope="module")
def pair(
    mongo_server: MongoServer,
    clusters: Any,  # noqa: ANN401 - of the session
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    name, cluster = fresh_name(), clusters.get(18)
    dsn = cluster.scheduler()
    with MongoClient[dict[str, Any]](mongo_server.uri) as client:
        foreign_history.plant(client[name])
        client[name]["runs"].insert_one(fresh("runs", _id=UNREADABLE, id=UNREADABLE, retryOf=..., state=7))
        client[name].create_collection("policy_audit", capped=True, size=4096)
        client[name]["runs"].create_index("state", name="the_application_s_own")
        settings = settings_for(client[name], dsn)
        assert backfill(settings, Scope()).complete
        yield Pair(client, name, dsn, write_config(tmp_path_factory.mktemp("reading"), settings))
        client.drop_database(name)
    cluster.drop(dsn)


def call(arguments: tuple[str, ...]) -> tuple[int, str]:
    done = CliRunner().invoke(cli, arguments)
    if isinstance(done.exception, MigratorError):
        return done.exception.exit_status, str(done.exception)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


@pytest.mark.proves("5-D1")
@pytest.mark.parametrize(
    ("command", "chosen"),
    [*((command, "mongo") for command in COMMANDS), *((command, "postgres") for command in OF_THE_STORE)],
)
def test_a_command_that_only_looks_leaves_everything_as_it_was(
    command: str, chosen: str, pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIGRATOR_PERSISTENCE__SCHEDULER", chosen)
    arguments = COMMANDS[command]
    if arguments[0] != "report":
        arguments += ("--config", str(pair.config))
    before = pair.everything()
    status, said = call(arguments)
    after = pair.everything()
    assert said
    assert not status & (USAGE | TOOL_FAILED), said  # it did look
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == RECORDS.get(command, set())
    if "--dry-run" in arguments:
        assert list(tmp_path.iterdir()) == []


def test_what_a_command_would_write_is_seen(pair: Pair) -> None:
    """Each kind of change, made by hand, shows in the comparison."""
    seen = []

    def differs(change: Callable[[], object], undo: Callable[[], object]) -> None:
        before = pair.everything()
        change()
        after = pair.everything()
        seen.append({name for name in before.keys() | after.keys() if before.get(name) != after.get(name)})
        undo()
        assert pair.everything() == before

    source = pair.database
    source.command("collMod", "runs", validator={})  # from now on it has options
    with psycopg.connect(pair.dsn, autocommit=True) as target:
        differs(lambda: source.create_collection("new"), lambda: source.drop_collection("new"))
        differs(lambda: source["runs"].create_index("x"), lambda: source["runs"].drop_index("x_1"))
        differs(lambda: source["runs"].insert_one({"_id": 0}), lambda: source["runs"].delete_one({"_id": 0}))
        differs(
            lambda: source.command("collMod", "runs", validator={"x": 1}),
            lambda: source.command("collMod", "runs", validator={}),
        )
        differs(lambda: pair.client["another"]["c"].insert_one({}), lambda: pair.client.drop_database("another"))
        differs(
            lambda: target.execute("CREATE INDEX x ON scheduler.runs (state)"),
            lambda: target.execute("DROP INDEX scheduler.x"),
        )
        differs(lambda: target.execute("CREATE ROLE reader"), lambda: target.execute("DROP ROLE reader"))
        differs(
            lambda: target.execute("ALTER TABLE scheduler.runs DISABLE TRIGGER ALL"),
            lambda: target.execute("ALTER TABLE scheduler.runs ENABLE TRIGGER ALL"),
        )
    assert all(seen)
