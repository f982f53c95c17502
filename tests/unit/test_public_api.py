"""What ``from migrator import ...`` gives, and what it imports."""

import ast
import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import current_thread
from typing import Any, cast

import pytest

import migrator
from migrator import AsyncScheduler, ConflictError, Schedule, Scheduler, Worker, prepare
from migrator.store.protocols import Preparable, Store
from migrator.store.shadow_reads import ShadowedStore
from tests.contract.memory.store import MemoryStore
from tests.store_postgres import schedule

TOOL = ("cli", "cutover", "embedded", "parity", "pipeline", "report", "schema", "verify")
"""The packages that are needed until the migration is signed off."""


def imported() -> dict[str, str]:
    """Return each name that type checkers see, with the module that it comes from."""
    tree = ast.parse(Path(migrator.__file__).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    assert ast.unparse(block.test) == "TYPE_CHECKING"
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
        migrator.Facade  # noqa: B018 - reading it is the test


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

    def adopt_triggers(self, covers: Callable[[Schedule], bool]) -> int:  # noqa: ARG002 - as the protocol says
        self.done.append("triggers")
        return 1

    def adopt_priorities(self, covers: Callable[[Schedule], bool]) -> int:  # noqa: ARG002 - as above
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


def methods(of: type) -> dict[str, list[inspect.Parameter]]:
    """Return the parameters of each public method, ``self`` left out."""
    return {
        name: list(inspect.signature(function).parameters.values())[1:]
        for name, function in vars(of).items()
        if inspect.isfunction(function) and not name.startswith("_")
    }


def test_the_asynchronous_client_has_every_method_with_the_same_parameters() -> None:
    assert methods(AsyncScheduler) == methods(Scheduler)
    assert all(inspect.iscoroutinefunction(getattr(AsyncScheduler, name)) for name in methods(Scheduler))


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
