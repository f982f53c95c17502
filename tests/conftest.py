"""Real servers for the tests: one of each kind per session, a fresh database per test.

The servers belong to this process and end with it, however it ends (`migrator.testing.servers`). A database with both
schemas at head is made once per server and copied for each test that wants one. Where memory can hold them, the
servers' files lie there: a database is some three hundred files, which a disk takes ten times as long to make.
"""

import gc
import itertools
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from pymongo import MongoClient
from pymongo.database import Database

from migrator import native
from migrator.cutover import smoke
from migrator.parity import check
from migrator.pipeline import backfill, census, executors
from migrator.targets import library
from migrator.testing.servers import binaries
from migrator.testing.servers import foreign as foreign_servers
from migrator.testing.servers.databases import SchedulerDatabases
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from migrator.verify.behaviour import scratch_processes
from tests import forked_probes, preloaded
from tests.cron_lines import DEEP
from tests.forked_children import ForkedProcesses
from tests.kept_worker import KeptWorker

pytest.register_assert_rewrite("migrator.testing.sources")
pytest_plugins = ("tests.costs", "tests.cutting_over")
"""What each file costs, and the fixtures of scenes of a cutover."""

Document = dict[str, Any]

TEMPLATE = "scheduler_template"
NEWEST = 18
OTHERS = [version for version in binaries.postgres_versions() if version != NEWEST]
DAILY = [NEWEST, *OTHERS[-1:]]
"""The newest PostgreSQL and the oldest: what differs between versions differs between these two."""
ON_EVERY_VERSION = "integration/test_statements.py"
"""The file that runs on each version every day: it prepares each statement."""

MEMORY = Path("/dev/shm")
SYSTEM_DATABASES = frozenset({"admin", "config", "local"})
ROOM = 4 * 1024**3
"""Bytes for each process of pytest: its servers, and those that its tests start, take less than half of it."""

_numbers = itertools.count(1)


def _default_signals() -> None:
    """Let children react to SIGINT as in a terminal.

    A program that is started by nohup, or in the background of a shell, ignores it, and its children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_default_signals()


def _keep_bytecode() -> None:
    """Write bytecode, also where the environment says not to: hundreds of processes import the same modules."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


_keep_bytecode()


def _use_memory() -> None:
    """Put the servers' files into memory, also those that commands under test start; TMPDIR has precedence."""
    if "TMPDIR" in os.environ or not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK | os.X_OK):
        return
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if shutil.disk_usage(MEMORY).free < ROOM * processes or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # what tests write themselves stays on disk
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


_use_memory()


def _repeatable_properties() -> None:
    """Let every run try the same examples, however slow the machine is; ``MIGRATOR_TESTS=deep`` tries others each time.

    What a test module states of its own has precedence.
    """
    settings.register_profile(
        "tests", deadline=None, derandomize=not DEEP, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("tests")


_repeatable_properties()


def pytest_report_header() -> list[str]:
    """Say which servers the tests run on, and with which codec."""
    found = []
    for version in [NEWEST, *OTHERS]:
        program = binaries.postgres(version) / "bin" / "postgres"
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        found.append(answer.strip().removeprefix("postgres (PostgreSQL) ").split()[0])
    foreign = [f"in place of these: {one}" for one in foreign_servers.described()]
    account = " (servers run as another user)" if os.geteuid() == 0 else ""
    return [
        f"servers: MongoDB {binaries.MONGO_VERSION}, PostgreSQL {', '.join(found)}{account}",
        *foreign,
        f"codec: {native.description()}",
    ]


LONGEST = (
    "integration/native/test_library_check_agenda.py",
    "acceptance/test_tutorial.py",
    "integration/native/test_library_check_beat.py",
    "integration/test_backfill.py",
    "integration/test_scheduler_process.py",
    "faults/test_cutover_exceptions.py",
    "faults/test_kill_and_resume.py",
    "integration/cutover/test_rollback_remedies.py",
    "integration/native/test_library_check_apscheduler4.py",
    "integration/verify_behaviour/test_checks.py",
    "integration/test_sensitivity.py",
    "integration/targets/test_agenda.py",
    "acceptance/test_demo.py",
    "integration/cutover/test_library_cutover.py",
    "integration/cutover/test_rounds.py",
    "integration/test_ledger_corruption.py",
    "integration/cutover/test_real_libraries.py",
    "faults/test_interrupted_commands.py",
    "acceptance/test_targets_celery.py",
    "faults/test_write_pause.py",
    "acceptance/test_benchmark.py",
    "integration/native/test_celery_results.py",
    "integration/test_verify_rights.py",
    "integration/test_wheel.py",
    "faults/test_cutover_kills.py",
    "integration/targets/test_apscheduler.py",
    "integration/native/test_celery_beat.py",
    "integration/verify_behaviour/test_lockstep.py",
    "property/test_values.py",
    "integration/native/test_agenda_page.py",
    "integration/test_verify_leaves_the_source.py",
    "integration/test_target_refusals.py",
    "integration/test_schema_upgrade.py",
    "integration/test_schema_plans.py",
    "integration/test_process_harmless.py",
    "integration/test_postgres_store_plans.py",
    "integration/test_mongo_processes.py",
    "integration/test_hostile_documents.py",
    "integration/test_fresh_start.py",
    "integration/test_embedded_owner.py",
    "browser/test_report.py",
    "bad_input/test_processes.py",
    "bad_input/test_cases.py",
    "integration/native/test_agenda.py",
    "integration/cutover/test_refusals.py",
    "integration/test_embedded.py",
    "integration/test_parity.py",
    "integration/verify_behaviour/test_mutations.py",
    "integration/cutover/test_rollback_keeps.py",
    "integration/test_verify_other_sources.py",
    "integration/test_verify.py",
    "integration/test_jobs_commands.py",
    "integration/tail/test_workers.py",
    "integration/test_schema_catalogue.py",
    "integration/tail/test_conditions.py",
    "integration/tail/test_changes.py",
    "integration/native/test_apscheduler4.py",
    "faults/test_servers.py",
    "faults/test_library_cutover_kills.py",
    "integration/test_servers_command.py",
    "integration/native/test_prepare.py",
    "integration/test_statements.py",
    "integration/test_history.py",
    "integration/targets/test_catalogues.py",
    "faults/test_cutover_under_load.py",
    "integration/tail/test_live_parity.py",
    "integration/native/test_library_check.py",
    "integration/cutover/test_copied_database.py",
    "integration/test_assess.py",
    "integration/native/test_library_check_quartz.py",
    "integration/cutover/test_cleanup.py",
    "integration/cutover/test_reverse_sync.py",
    "integration/test_locked_tables.py",
    "integration/cutover/test_remedies.py",
    "property/test_mapping.py",
    "integration/cutover/test_library_cutover_agenda.py",
    "integration/cutover/test_cutover.py",
    "integration/native/test_library_check_shedlock.py",
    "integration/native/test_library_check_celery.py",
    "integration/test_postgres_queue_processes.py",
    "integration/cutover/test_rehearsals.py",
    "integration/test_postgres_locks.py",
    "acceptance/test_output.py",
    "integration/cutover/test_other_sources.py",
    "contract/test_whole.py",
    "integration/targets/test_quartz.py",
    "faults/test_interruption.py",
    "acceptance/test_targets_other.py",
    "faults/test_tail.py",
    "property/test_agenda.py",
    "integration/cutover/test_runbook.py",
)
"""Files whose tests take longest, longest first: of ``build/costs-of-tests.txt``, that of the clock."""


BOTH_CODECS = (
    "integration/test_backfill.py::test_a_second_copy",
    "integration/test_backfill.py::test_two_copies",
    f"integration/test_backfill.py::test_every_postgres[pg{NEWEST}]",
    "integration/test_backfill.py::test_changed_documents",
    "integration/test_backfill.py::test_ids_of_every_type",
    "integration/test_backfill.py::test_a_document_of_sixteen_megabytes",
    "integration/test_backfill.py::test_two_ids_that_meet",
    "integration/test_backfill.py::test_retry_of",
    "integration/test_backfill.py::test_more_references",
    "integration/test_backfill.py::test_quarantine_is_retried",
    "integration/test_backfill.py::test_a_copy_after_the_source_was_mended",
    "integration/test_hostile_documents.py::test_a_value",
    "integration/test_hostile_documents.py::test_ids",
    "integration/test_parity.py",
)
MORE_OF_BOTH_CODECS = (
    "faults/test_kill_and_resume.py::test_killed_twenty_times_at_random",
    "faults/test_tail.py",
    "integration/tail/test_changes.py",
    "integration/test_agenda.py",
    "integration/test_modelled_sources.py",
    "integration/test_mapping.py",
    "integration/test_references.py",
    "integration/test_mixed_ids.py",
)
"""Beginnings of the names of tests that read documents as copy, tail and parity check do.

`make test` runs the first with the native codec, where it is built, and once more with the Python codec (they are all
in the folder that the Makefile names there); the deep run does that with the others too, whose documents
``tests.both_codecs`` and the fuzzing compare by both every day. Tests of decode and encode alone need no second run:
they call the Python codec, and are compared in the same way.
"""

SERVERS = frozenset({"clusters", "kept_auth_server", "mongo_server"})
"""Fixtures that start a server; every other fixture of servers that tests share asks for one of them."""
FOLDERS_OF_SERVERS = frozenset({"acceptance", "bad_input", "faults", "integration"})
"""Folders whose tests work on servers, most of them on servers of their own."""


def needs_server(item: pytest.Item) -> bool:
    """Whether a test works on a server, so that ``-m "not server"`` leaves it out."""
    if item.path.relative_to(Path(__file__).parent).parts[0] in FOLDERS_OF_SERVERS:
        return True
    callspec = getattr(item, "callspec", None)
    if callspec is not None and "bench" in callspec.params:
        return bool(callspec.params["bench"] != "memory")
    if callspec is not None and callspec.params.get("side") == "mongo":  # of tests/doubles
        return True
    return not SERVERS.isdisjoint(getattr(item, "fixturenames", ()))


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Put the handlers of signals back: a test that calls ``main`` in its process takes them, as a command does."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def without_server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test that is not marked start no server: the mark would be wrong."""
    if request.node.get_closest_marker("server") is not None:
        return

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the test starts a server and is not marked so: see needs_server in tests/conftest.py")

    monkeypatch.setattr(MongoServer, "__enter__", refuse)
    monkeypatch.setattr(PostgresServer, "__enter__", refuse)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files without tests of both codecs unread where ``-m codec`` asks for these alone."""
    if config.option.markexpr != "codec" or not collection_path.match("test_*.py"):
        return None
    name = collection_path.relative_to(Path(__file__).parent).as_posix()
    return not any(one.partition("::")[0] == name for one in _of_both_codecs()) or None


def _of_both_codecs() -> tuple[str, ...]:
    return (*BOTH_CODECS, *(MORE_OF_BOTH_CODECS if DEEP else ()))


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, object, object]:
    """Mark the tests of both codecs, and those that need a server.

    Begin with the files that take longest, so that at the end no process waits.
    """
    here = Path(__file__).parent
    both = tuple(f"tests/{name}" for name in _of_both_codecs())
    for item in items:
        if item.nodeid.startswith(both):
            item.add_marker(pytest.mark.codec)
        if needs_server(item):
            item.add_marker(pytest.mark.server)
    result = yield  # the options -m and -k choose
    ranks = {here / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the cyclic collector out of the collection of ten thousand tests, and from what it has made, which stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


DESELECTED = pytest.StashKey[bool]()
"""Whether the session leaves out tests that it has collected."""


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        item.config.stash[DESELECTED] = True


SLOWEST = 20
MANY = 2_000
"""Tests of a run from which on its slowest are told."""
SLOWEST_FILE = Path(__file__).resolve().parents[1] / "build" / "slowest-tests.txt"
FIGURES = "figures"
"""The property under which a test puts on record what it has measured."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have measured, the write pause of a switch say, and the tests that took longest.

    The latter are kept in a file too, so that CI has them.
    """
    durations: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                durations[report.nodeid] = durations.get(report.nodeid, 0.0) + report.duration
    if len(durations) >= MANY:
        longest = sorted(durations.items(), key=itemgetter(1), reverse=True)[:SLOWEST]
        lines = [f"{seconds:7.1f} s  {name}" for name, seconds in longest]
        SLOWEST_FILE.parent.mkdir(exist_ok=True)
        SLOWEST_FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
        terminalreporter.write_line(f"the slowest of {len(durations)} tests, set-up included ({SLOWEST_FILE.name}):")
        for line in lines:
            terminalreporter.write_line(line)
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == FIGURES:
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {value}")


def fresh_name() -> str:
    """Return a database name nobody has used."""
    _made.append(f"test_{next(_numbers)}_{secrets.token_hex(3)}")
    return _made[-1]


_made: list[str] = []
"""The names of this process."""


class Cluster(SchedulerDatabases):
    """A PostgreSQL server, whose databases have names of this session."""

    def __init__(self, server: PostgresServer) -> None:
        foreign = isinstance(server, foreign_servers.ForeignPostgres)
        super().__init__(server, fresh_name, template=fresh_name() if foreign else TEMPLATE)


class Clusters:
    """The PostgreSQL servers of this session by major version, started when first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._started: dict[int, Cluster] = {}

    def get(self, version: int) -> Cluster:
        if version not in self._started:
            foreign = foreign_servers.postgres() if version == NEWEST else None
            server = self._stack.enter_context(foreign or PostgresServer(version=version, fast=True))
            self._started[version] = Cluster(server)
        return self._started[version]


@pytest.fixture(scope="session", autouse=True)
def kept_worker() -> Iterator[None]:
    """Spare the start of a worker process in each copy and comparison (`tests.kept_worker`)."""
    with pytest.MonkeyPatch.context() as patched:
        worker = KeptWorker(executors.executor)
        for module in (census, backfill, check):
            patched.setattr(module, "executor", worker.executor)
        yield
        worker.close()


@pytest.fixture(scope="session", autouse=True)
def command_servers() -> Iterator[None]:
    """Fork the smoke test of a cutover that a test makes in its own process, and end the servers that fork.

    One is started by the first test that needs it (`tests.preloaded`).
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(smoke, "subprocess", preloaded.ForkedSmoke)
        yield
    preloaded.close()


@pytest.fixture(scope="session", autouse=True)
def probe_servers() -> Iterator[None]:
    """Fork the probes of libraries in Python (`tests.forked_probes`), and end the servers that fork."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(library, "subprocess", forked_probes.ForkedProbes)
        yield
    forked_probes.close()


@pytest.fixture(scope="session", autouse=True)
def forked_processes() -> Iterator[None]:
    """Spare the start of an interpreter for each process of the verification (`tests.forked_children`)."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scratch_processes, "multiprocessing", ForkedProcesses)
        yield


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    with ExitStack() as stack:
        yield Clusters(stack)


@pytest.fixture(scope="session")
def mongo_server() -> Iterator[MongoServer]:
    """MongoDB 6.0, a replica set, without authentication, with fail points (``configureFailPoint``)."""
    foreign = foreign_servers.mongo(_made)
    with foreign or MongoServer(fast=True, parameters={"enableTestCommands": "1"}) as server:
        yield server


@pytest.fixture(scope="session")
def kept_auth_server() -> Iterator[MongoServer]:
    """The server of ``auth_server``."""
    with MongoServer(auth=True, fast=True, parameters={"enableTestCommands": "1"}) as server:
        yield server


@pytest.fixture(scope="module")
def auth_server(kept_auth_server: MongoServer) -> Iterator[MongoServer]:
    """MongoDB that asks for passwords, with fail points: one for the session, as new for the tests of each file."""
    yield kept_auth_server
    as_new(kept_auth_server)


def as_new(server: MongoServer) -> None:
    """Lift the fence, and remove every database, role and user but the server's own."""
    with MongoClient[Document](server.uri) as client:
        client.admin.command({"setUserWriteBlockMode": 1, "global": False})
        for user in client.admin.command("usersInfo", {"forAllDBs": True})["users"]:
            if user["user"] != server.user:
                client[user["db"]].command("dropUser", user["user"])
        for role in client.admin["system.roles"].find():
            client[role["db"]].command("dropRole", role["role"])
        for name in client.list_database_names():
            if name not in SYSTEM_DATABASES:
                client.drop_database(name)


@pytest.fixture(scope="session")
def postgres_server(clusters: Clusters) -> PostgresServer:
    """PostgreSQL 18."""
    return clusters.get(NEWEST).server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Name the versions of a test that runs on any; ``MIGRATOR_TESTS=deep`` runs it on all of them."""
    if "any_cluster" in metafunc.fixturenames:
        every = DEEP or metafunc.definition.path.as_posix().endswith(ON_EVERY_VERSION)
        versions = [NEWEST, *OTHERS] if every else DAILY
        ids = [f"pg{version}" for version in versions]
        metafunc.parametrize("any_cluster", versions, ids=ids, indirect=True, scope="session")


@pytest.fixture(scope="session")
def any_cluster(clusters: Clusters, request: pytest.FixtureRequest) -> Cluster:
    return clusters.get(request.param)


@pytest.fixture(scope="session")
def any_postgres(any_cluster: Cluster) -> PostgresServer:
    """The newest and the oldest PostgreSQL that can be started here: 18, and 16, or Debian's where installed."""
    return any_cluster.server


@pytest.fixture(scope="session")
def mongo_client(mongo_server: MongoServer) -> Iterator[MongoClient[Document]]:
    with MongoClient[Document](mongo_server.uri) as client:
        yield client


@pytest.fixture
def mongo_database(mongo_client: MongoClient[Document]) -> Iterator[Database[Document]]:
    """An empty MongoDB database, dropped afterwards."""
    name = fresh_name()
    yield mongo_client[name]
    mongo_client.drop_database(name)


def _lend(make: Callable[[], str], cluster: Cluster) -> Iterator[str]:
    dsn = make()
    yield dsn
    cluster.drop(dsn)


@pytest.fixture
def postgres_dsn(clusters: Clusters) -> Iterator[str]:
    """An empty database on PostgreSQL 18."""
    cluster = clusters.get(NEWEST)
    yield from _lend(cluster.empty, cluster)


@pytest.fixture
def any_postgres_dsn(any_cluster: Cluster) -> Iterator[str]:
    """An empty database on either version."""
    yield from _lend(any_cluster.empty, any_cluster)


@pytest.fixture
def scheduler_dsn(clusters: Clusters) -> Iterator[str]:
    """A database with both schemas at head, on PostgreSQL 18."""
    cluster = clusters.get(NEWEST)
    yield from _lend(cluster.scheduler, cluster)


@pytest.fixture
def any_scheduler_dsn(any_cluster: Cluster) -> Iterator[str]:
    """A database with both schemas at head, on either version."""
    yield from _lend(any_cluster.scheduler, any_cluster)


@pytest.fixture
def new_scheduler_dsn(clusters: Clusters) -> Iterator[Callable[[], str]]:
    """As many databases with both schemas at head as the test calls for, on PostgreSQL 18."""
    cluster = clusters.get(NEWEST)
    made: list[str] = []

    def make() -> str:
        made.append(cluster.scheduler())
        return made[-1]

    yield make
    for dsn in made:
        cluster.drop(dsn)
