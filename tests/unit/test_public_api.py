"""What ``from migrator import ...`` gives, and what it imports."""

import ast
import asyncio
import importlib
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import current_thread
from typing import Any, cast
from uuid import UUID

import msgspec
import pytest

import migrator
from migrator import (
    AsyncScheduler,
    ConflictError,
    NotFoundError,
    Run,
    Schedule,
    ScheduleQuery,
    Scheduler,
    ScheduleRequest,
    UsageError,
    Worker,
    errors,
    prepare,
)
from migrator.store.protocols import Preparable, Store
from migrator.store.queue import Claim
from migrator.store.shadow_reads import ShadowedStore
from migrator.testing.memory.store import MemoryStore
from tests.store_postgres import schedule

TOOL = ("cli", "cutover", "parity", "pipeline", "report", "schema", "testing", "verify")
"""The packages that are needed until the migration is signed off."""


def imported() -> dict[str, str]:
    """Return each name that type checkers see, with the module that it comes from."""
    tree = ast.parse(Path(migrator.__file__).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    found = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in found for alias in node.names}


def test_type_checkers_and_the_interpreter_find_the_same_names_in_the_same_modules() -> None:
    listed = {name: module for module, names in migrator._MODULES.items() for name in names.split()}
    assert listed == imported()
    assert sorted(listed) == sorted(migrator.__all__)
    assert set(migrator.__all__) <= set(dir(migrator))


@pytest.mark.parametrize("name", migrator.__all__)
def test_every_name_is_there_and_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(migrator, name))


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Facade'"):
        migrator.Facade  # type: ignore[attr-defined] # noqa: B018 - reading it is the test


def test_a_type_checker_reports_a_name_that_is_not_there(tmp_path: Path) -> None:
    """As an application's type checker sees the package; what it imports is not followed, to be quick."""
    snippet = tmp_path / "snippet.py"
    snippet.write_text("from migrator import Nonsense, Scheduler\nimport migrator\nmigrator.Facade\nScheduler\n")
    command = [sys.executable, "-m", "mypy", "--no-incremental", "--follow-imports=skip", "--config-file="]
    done = subprocess.run(
        [*command, snippet, migrator.__file__], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    reported = [line.partition(": ")[2] for line in done.stdout.splitlines() if line.startswith("snippet.py")]
    assert reported == [
        'error: Module "migrator" has no attribute "Nonsense"  [attr-defined]',
        'error: Module has no attribute "Facade"  [attr-defined]',
    ]


def test_every_error_that_a_page_names_can_be_imported() -> None:
    pages = (Path(__file__).parents[2] / "docs").glob("*.md")
    named = {name for page in pages for name in re.findall(r"`(\w+Error)`", page.read_text())}
    ours = {name for name, error in vars(errors).items() if isinstance(error, type)}
    assert len(named & ours) > 10
    assert named & ours <= {*migrator.__all__}
    assert ours - {*migrator.__all__} == {"UnexpectedError"}, "what the tool alone raises, at the end of a process"


CALLED = (Scheduler, Worker, migrator.Registry, migrator.Context, migrator.ExternalSystem)
"""Classes whose methods an application calls."""
NOT_NAMED = {"PsycopgConnection"}
"""A protocol that the driver's own connection has. The sections of the settings are not made one by one either."""


def reached() -> set[type]:
    """Return each class of this package that a method of these is given or returns, and what their fields hold."""
    known: set[type] = set()

    def walk(hint: object) -> None:
        for argument in typing.get_args(hint):
            for one in argument if isinstance(argument, list) else [argument]:
                walk(one)
        if isinstance(hint, type) and hint.__module__.startswith("migrator.") and hint not in known:
            known.add(hint)
            for field in typing.get_type_hints(hint).values():
                walk(field)

    for of in CALLED:
        for name, function in vars(of).items():
            if inspect.isfunction(function) and (not name.startswith("_") or name == "__init__"):
                for hint in typing.get_type_hints(function).values():
                    walk(hint)
    return known


@pytest.mark.proves("6-U12")
def test_every_struct_of_a_request_or_an_answer_can_be_imported() -> None:
    names = {one.__name__ for one in reached() if one.__module__ != "migrator.config"}
    assert len(names) > 40
    assert names - {*migrator.__all__} == NOT_NAMED


@pytest.mark.proves("6-U12")
def test_every_name_that_a_page_imports_is_there_and_a_type_checker_knows_it() -> None:
    docs = Path(__file__).parents[2] / "docs"
    texts = [page.read_text() for page in docs.rglob("*.md")]
    programs = [program.read_text() for program in docs.rglob("*.py")]
    blocks = [block for text in texts for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]
    found = {
        (node.module, alias.name)
        for program in [*blocks, *programs]
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "migrator"
        for alias in node.names
    }
    assert len(found) > 15
    for module, name in sorted(found):
        assert module is not None
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"
    assert {name for module, name in found if module == "migrator"} <= imported().keys()


def methods(of: type) -> dict[str, list[inspect.Parameter]]:
    """Return the parameters of each public method, ``self`` left out."""
    return {
        name: list(inspect.signature(function).parameters.values())[1:]
        for name, function in vars(of).items()
        if inspect.isfunction(function) and not name.startswith("_")
    }


GIVEN: dict[str, Any] = {
    "schedule_id": UUID(int=1),
    "run_id": UUID(int=1),
    "request": ScheduleRequest(name="n", handler_name="h", created_by="me", cron="* * * * *"),
    "name": "n",
    "event": "e",
    "handler_name": "h",
    "worker_id": "w",
    "workers": ["w"],
    "enabled": True,
    "handlers": [],
}
"""Parameter → a value of its type, for those that have no default."""
OF_ANY_TYPE = {"payload", "data", "result"}


def parameters() -> Iterator[tuple[str, str]]:
    for name, listed in methods(Scheduler).items():
        for parameter in listed:
            if parameter.kind is not parameter.VAR_KEYWORD and parameter.name not in OF_ANY_TYPE:
                yield name, parameter.name


@pytest.mark.parametrize(("method", "parameter"), [*parameters()])
def test_a_wrong_type_is_refused_before_anything_is_asked(method: str, parameter: str) -> None:
    with MemoryStore() as store:
        needed = [one.name for one in methods(Scheduler)[method] if one.default is one.empty]
        named = {name: GIVEN[name] for name in needed if name in GIVEN} | {parameter: object()}
        if {*needed} - named.keys() - {"changes"}:
            named["claim"] = Claim(run=cast("Run", object()), schedule=None)
        with pytest.raises(UsageError, match=rf"^{parameter} must be .*, not object$"):
            getattr(Scheduler(cast("Store", store), "a"), method)(**named)


@pytest.mark.parametrize("field", [*ScheduleRequest.__struct_fields__])
def test_a_wrong_type_in_a_request_is_refused(field: str) -> None:
    wrong = msgspec.structs.replace(GIVEN["request"], **{field: object()})
    with (
        MemoryStore() as store,
        pytest.raises(UsageError, match=f"^{field} must be |^(payload|metadata) is no JSON value"),
    ):
        Scheduler(cast("Store", store), "a").schedule(wrong)


@pytest.mark.parametrize("field", [*ScheduleQuery.__struct_fields__])
def test_a_wrong_type_in_a_query_is_refused(field: str) -> None:
    with MemoryStore() as store, pytest.raises(UsageError, match=f"^{field} must be "):
        Scheduler(cast("Store", store), "a").list(ScheduleQuery(**{field: cast("Any", object())}))


@pytest.mark.parametrize(
    "call",
    [
        lambda: Scheduler(cast("Store", MemoryStore()), cast("Any", 5)),
        lambda: migrator.open_store(cast("Any", {"postgres": {}})),
        lambda: migrator.load_settings(cast("Any", 5)),
        lambda: migrator.load_settings({}, cast("Any", 5)),
        lambda: Worker(cast("Any", {}), migrator.Registry()),
        lambda: Worker(migrator.Settings(), cast("Any", {})),
        lambda: Worker(migrator.Settings(), migrator.Registry(), tenants=cast("Any", "a")),
        lambda: migrator.Registry().register(cast("Any", 5), print),
    ],
    ids=["client", "store", "settings", "environment", "worker", "registry", "tenants", "handler"],
)
def test_a_wrong_type_is_an_error_of_the_tool_everywhere(call: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match=r"\w+ must be "):
        call()


NOTHING_THERE = {"get": None, "get_execution": None}
"""Methods that answer an id that does not exist without an error, as their line on the page says."""


@pytest.mark.parametrize(
    "method", [name for name, first in parameters() if first in ("schedule_id", "run_id") and name != "on_event"]
)
def test_an_id_that_does_not_exist_is_answered_as_the_page_says(method: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    line, *_ = re.findall(rf"^- `{method}\(.*", page.partition("### `Scheduler`")[2], flags=re.MULTILINE)
    assert ("None if there is none" in line) == (method in NOTHING_THERE)
    named = {
        one.name: GIVEN[one.name]
        for one in methods(Scheduler)[method]
        if one.default is one.empty and one.name in GIVEN
    }
    if method == "reschedule":
        named["cron"] = "* * * * *"
    with MemoryStore() as store:
        call = partial(getattr(Scheduler(cast("Store", store), "a"), method), **named)
        if method in NOTHING_THERE:
            assert call() is NOTHING_THERE[method]
        else:
            with pytest.raises(NotFoundError, match=r"^no (schedule|run) "):
                call()


def modules_after(code: str) -> set[str]:
    """Return which modules a fresh interpreter has loaded after some code."""
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_an_application_does_not_import_the_tool() -> None:
    loaded = modules_after("from migrator import *")
    assert "migrator.scheduler.process" in loaded
    assert [name for name in sorted(loaded) if name.startswith(tuple(f"migrator.{one}" for one in TOOL))] == []
    assert {"alembic", "click", "deepdiff", "jinja2", "sqlalchemy"} & loaded == set()


def test_importing_the_package_imports_none_of_its_modules() -> None:
    assert {name for name in modules_after("import migrator") if name.startswith("migrator")} == {"migrator"}


class Prepared(MemoryStore, Preparable):
    """A store that notes what is done with it."""

    def __init__(self, done: list[str]) -> None:
        super().__init__()
        self.done = done

    def prepare(self) -> dict[str, list[str]]:
        self.done.append("prepared")
        return {"schedules": ["by name"]}

    def create_missing_triggers(self, covers: Callable[[Schedule], bool]) -> int:  # noqa: ARG002 - as the protocol says
        self.done.append("triggers")
        return 1

    def copy_priorities(self, covers: Callable[[Schedule], bool]) -> int:  # noqa: ARG002 - as above
        self.done.append("priorities")
        return 2

    def close(self) -> None:
        self.done.append("closed")


def test_a_store_with_shadow_reads_is_prepared_and_closed_like_the_one_behind_it() -> None:
    done: list[str] = []
    with ShadowedStore(Prepared(done), MemoryStore) as store:
        assert prepare(store) == ["created in schedules: by name"]
        assert done == ["prepared"]
        assert prepare(store, lambda _: True)[1:] == [
            "created 1 triggers from the cron lines of schedules",
            "wrote the schedule's priority into 2 documents",
        ]
    assert done == ["prepared", "prepared", "triggers", "priorities", "closed"]
    assert prepare(ShadowedStore(MemoryStore(), MemoryStore), lambda _: True) == []


def test_the_asynchronous_client_has_every_method_with_the_same_parameters() -> None:
    expected = {name: listed for name, listed in methods(Scheduler).items() if name != "using"}
    assert methods(AsyncScheduler) == expected, "it is made of the client that using returns"
    assert all(inspect.iscoroutinefunction(getattr(AsyncScheduler, name)) for name in expected)


@pytest.mark.proves("5-A1")
def test_the_asynchronous_client_answers_from_a_thread_of_its_pool() -> None:
    store = cast("Store", MemoryStore())
    threads: list[str] = []
    scheduler = Scheduler(store, "a", sink=lambda _: threads.append(current_thread().name))
    of = schedule()
    with store.session("a") as session:
        session.schedules.upsert(of)

    async def work() -> Any:  # noqa: ANN401 - a job
        with ThreadPoolExecutor(2, thread_name_prefix="client") as pool:
            client = AsyncScheduler(scheduler, pool)
            await client.pause(of.id, by="ann")
            found = await client.get(of.id)
            await client.on_event("e", "h")
            with pytest.raises(ConflictError):
                await client.on_event("e", "h")
            return found

    found = asyncio.run(work())
    assert found.schedule.status == "paused"
    assert threads
    assert {name.partition("_")[0] for name in threads} == {"client"}


def test_a_worker_that_was_stopped_before_it_ran_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.scheduler.process.open_scheduler_store", lambda _: MemoryStore())
    registry = migrator.Registry()
    registry.register("h", lambda: None)
    worker = Worker(migrator.Settings(), registry, tenants=["a"])
    worker.stop()
    done = worker.run()
    assert (done.claimed, done.last_tick_at) == (0, None)
