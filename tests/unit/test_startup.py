"""The command line answers at once: what is slow to import waits until a command needs it."""

import platform
import resource
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.config import CopySettings, Settings
from migrator.pipeline import executors
from migrator.pipeline.executors import SMALL_DOCUMENTS, prepare_workers, start_workers

HEAVY = (
    "alembic",
    "bson",
    "deepdiff",
    "distributed",
    "jinja2",
    "msgspec",
    "psycopg",
    "pymongo",
    "sqlalchemy",
    "structlog",
)

SHOW = """
import sys
{code}
print(*sorted(name for name in {heavy} if name in sys.modules))
"""


def loaded(code: str, heavy: tuple[str, ...]) -> list[str]:
    """Return which of the modules are loaded after some code has run in a fresh interpreter."""
    command = [sys.executable, "-c", SHOW.format(code=code, heavy=heavy)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return output.splitlines()[-1].split()


HELP = """
from migrator.__main__ import main
sys.argv = ["migrator", {arguments}]
try:
    main()
except SystemExit as leaving:
    assert not leaving.code, leaving
"""


@pytest.mark.parametrize("arguments", ['"--help"', '"-h"', '"--version"'])
def test_help_loads_nothing_heavy(arguments: str) -> None:
    assert loaded(HELP.format(arguments=arguments), HEAVY) == []


HELP_OF_ALL = """
import contextlib, io, json
from migrator.cli import cli, stored_help
for words in json.loads(stored_help.PATH.read_text()):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        cli([*words.split(), "--help"], prog_name="migrator", standalone_mode=False)
    assert out.getvalue().startswith("Usage: migrator " + words + " "), words
    assert "migrator.cli.options" not in sys.modules, words
"""


def test_help_of_no_command_loads_anything_heavy() -> None:
    """Of all commands: ``tests/golden/docs`` holds the list of them against the command line."""
    assert loaded(HELP_OF_ALL, HEAVY) == []


def test_the_test_sees_what_is_loaded() -> None:
    assert loaded("import jinja2, msgspec", HEAVY) == ["jinja2", "msgspec"]


NOT_OF_A_COPY = (
    "alembic",
    "deepdiff",
    "distributed",
    "jinja2",
    "migrator.sources.mapping.file",
    "migrator.store.shadow_reads",
    "prometheus_client",
    "rich",
    "sqlalchemy",
    "stamina",
    "structlog",
    "tomlkit",
)


@pytest.mark.parametrize("module", ["pipeline.chunk", "pipeline.transform", "pipeline.load", "pipeline.extract"])
def test_workers_load_neither_the_schema_tools_nor_the_report_nor_the_log(module: str) -> None:
    assert loaded(f"import migrator.{module}", (*NOT_OF_A_COPY, "click")) == []


@pytest.mark.parametrize("modules", ["migrator.pipeline.chunk", "migrator.__main__, migrator.cli.copy"])
def test_the_command_of_the_copy_loads_what_its_workers_do_and_no_signatures(modules: str) -> None:
    assert loaded(f"import {modules}", (*NOT_OF_A_COPY, "cryptography")) == []


@pytest.mark.parametrize("module", ["pipeline.backfill", "pipeline.tail.loop", "parity.check"])
def test_copy_tail_and_comparison_load_neither_the_schema_tools_nor_the_report(module: str) -> None:
    assert loaded(f"import migrator.{module}", ("alembic", "distributed", "jinja2", "sqlalchemy", "tomlkit")) == []


def test_the_command_of_the_parity_check_loads_no_log_before_it_writes_a_line() -> None:
    """Of one that is put on record: structlog loads rich and pygments, together a tenth of a second."""
    rest = ("pygments", "rich", "structlog", "tomlkit")
    assert loaded("import migrator.__main__, migrator.cli.parity", rest) == []
    assert loaded("from migrator.log import logger; logger()", rest) == ["pygments", "rich", "structlog"]


@pytest.mark.parametrize("group", ["migration", "parity", "report", "metrics", "scheduler", "jobs"])
def test_a_group_of_commands_loads_only_what_it_needs(group: str) -> None:
    assert loaded(f"import migrator.cli.{group}", ("alembic", "distributed", "sqlalchemy")) == []


def test_the_scheduler_s_commands_load_no_driver_before_they_know_the_backend() -> None:
    assert loaded("import migrator.cli.scheduler", ("psycopg", "pymongo")) == []


NOT_FROZEN = """
import gc
import click
from migrator.cli import cli
before = len(gc.get_objects())
assert cli.get_command(click.Context(cli), "backfill") is not None
assert gc.isenabled()
print(before, len(gc.get_objects()), gc.get_freeze_count())
"""


def test_the_collector_does_not_look_at_what_a_command_has_loaded() -> None:
    """Its first collection after the modules are loaded would take as long as a tenth of loading them."""
    command = [sys.executable, "-c", NOT_FROZEN]
    before, collected, frozen = map(
        int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    )
    assert collected < before < frozen


EVALUATED_AGAIN = """
from collections import Counter
import msgspec
evaluated = Counter()
fields = msgspec.structs.fields
def counting(of):
    evaluated[of if isinstance(of, type) else type(of)] += 1
    return fields(of)
msgspec.structs.fields = counting
from migrator.records import Record
from migrator.sources import store_documents
from migrator.sources.mapping import native_plan
from migrator.sources.mapping.codec import Codec
from migrator.sources.mapping.language import Field
from migrator.sources.profile import Context
for mapped in (one for one in store_documents.MAPPING.collections if not one.kinds):
    try:
        native_plan.plan_of(Codec(store_documents.MAPPING, mapped), Context(as_of=None, default_tenant="t"))
    except native_plan.Unplannable:
        pass
assert evaluated[Field] and any(issubclass(kind, Record) for kind in evaluated)
print(*(kind.__name__ for kind, count in evaluated.items() if count > 1 and issubclass(kind, (Field, Record))))
"""


def test_annotations_of_records_and_of_a_mapping_s_fields_are_evaluated_once() -> None:
    """Each process evaluates them anew, and msgspec at each call."""
    command = [sys.executable, "-c", EVALUATED_AGAIN]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == []


class _CountingPool(ProcessPoolExecutor):
    """Counts what is submitted, each of which starts a process while none is idle."""

    submitted = 0

    def submit(self, _function: Callable[..., Any], /, *_arguments: Any, **_named: Any) -> "Future[Any]":  # noqa: ANN401 - those of any job
        self.submitted += 1
        return Future()


@pytest.mark.parametrize(("jobs", "started"), [(1, 1), (3, 3), (40, 4)])
def test_all_workers_that_have_a_job_start_at_once(jobs: int, started: int) -> None:
    pool = _CountingPool()
    start_workers(pool, CopySettings(workers=4), "json", jobs)
    assert pool.submitted == started


@pytest.mark.parametrize(("documents", "prepared"), [(SMALL_DOCUMENTS, 0), (SMALL_DOCUMENTS + 1, 3)])
def test_workers_connect_before_their_first_job_if_a_copy_is_not_small(
    documents: int, prepared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = SimpleNamespace(pool=_CountingPool(), number=3)
    monkeypatch.setattr(executors._Forked, "waiting", workers)
    prepare_workers(Settings(), documents, print)
    assert workers.pool.submitted == prepared


def test_that_workers_are_gone_is_told_to_who_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = SimpleNamespace(submit=lambda *_: _raised(BrokenProcessPool("gone")))
    monkeypatch.setattr(executors._Forked, "waiting", SimpleNamespace(pool=pool, number=2))
    prepare_workers(Settings(), SMALL_DOCUMENTS + 1, print)


def _raised(error: Exception) -> None:
    raise error


FAULTS = """
import resource
from migrator.pipeline.executors import keep_freed_memory
{keep}
for _ in range(20):
    buffers = [b"x" * (3_000_000 + 100_000 * number) for number in range(4)]
    buffers.clear()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
def test_the_buffers_of_a_batch_are_kept_for_the_next_one() -> None:
    faults = []
    for keep in ("", "keep_freed_memory()"):
        command = [sys.executable, "-c", FAULTS.format(keep=keep)]
        faults.append(int(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    buffers = 4 * 3_000_000 // resource.getpagesize()
    given_back, kept = faults
    assert given_back - kept > 10 * buffers


def test_a_worker_of_a_parity_check_imports_what_it_compares_with() -> None:
    """Each of its processes would spend a tenth of a second on the rest of the check."""
    rest = ("migrator.parity.check", "migrator.parity.firing_rules", "migrator.parity.never_firing_schedules")
    assert loaded("import migrator.parity.compare", rest) == []
