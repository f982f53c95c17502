"""The pytest plugin for the tests of an application: the fixture ``scheduling``, on each backend that is asked for.

pytest imports this module in every session of an environment that has the package. So it imports nothing more at its
top; drivers, servers and the store are imported when a test first asks for the fixture.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from migrator.config import Settings
    from migrator.testing.scheduling import Scheduling

BACKENDS: Final = ("memory", "mongo", "postgres")
INI: Final = "migrator_backends"
FIXTURE: Final = "migrator_backend"
_DATABASES: Final = MappingProxyType({"mongo": "MongoDatabases", "postgres": "PostgresDatabases"})
"""Backend → the class in the module of its name in ``migrator.testing.backends``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the setting that name the backends."""
    known = ", ".join(BACKENDS)
    parser.addini(INI, f"backends of the fixture scheduling ({known}); if omitted: memory", type="args", default=[])
    parser.getgroup("migrator").addoption(
        "--migrator-backend",
        action="append",
        choices=BACKENDS,
        default=[],
        help=f"run the tests with the fixture scheduling on this backend ({known}); may be repeated",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for the fixture once on each backend, unless it names its backends itself."""
    if FIXTURE not in metafunc.fixturenames or _names_backends(metafunc):
        return
    config = metafunc.config
    asked: list[str] = config.getoption("migrator_backend") or config.getini(INI) or ["memory"]
    unknown = [name for name in asked if name not in BACKENDS]
    if unknown:
        raise pytest.UsageError(f"{INI} names {', '.join(unknown)}; known: {', '.join(BACKENDS)}")
    metafunc.parametrize(FIXTURE, list(dict.fromkeys(asked)))


def _names_backends(metafunc: pytest.Metafunc) -> bool:
    marks = metafunc.definition.iter_markers("parametrize")
    names = [mark.args[0] if mark.args else mark.kwargs["argnames"] for mark in marks]
    return any(FIXTURE in (name.replace(" ", "").split(",") if isinstance(name, str) else name) for name in names)


@pytest.fixture(scope="session")
def _migrator_databases() -> Iterator[dict[str, Any]]:
    """Keep the servers of a session by backend."""
    databases: dict[str, Any] = {}
    with ExitStack() as stack:
        stack.callback(lambda: [kept.close() for kept in databases.values()])
        yield databases


@pytest.fixture
def migrator_settings(migrator_backend: str, _migrator_databases: dict[str, Any]) -> "Iterator[Settings | None]":
    """Return the settings of a database of this test alone, with the scheduler's tables; None in memory."""
    if migrator_backend == "memory":
        yield None
        return
    if migrator_backend not in _migrator_databases:
        module = import_module(f"migrator.testing.backends.{migrator_backend}")
        _migrator_databases[migrator_backend] = getattr(module, _DATABASES[migrator_backend])()
    with _migrator_databases[migrator_backend].database() as settings:
        yield settings


@pytest.fixture
def scheduling(migrator_settings: "Settings | None") -> "Iterator[Scheduling]":
    """Return a store of this test alone, with a clock to move, and what its handlers were called with."""
    with import_module("migrator.testing.scheduling").opened(migrator_settings) as scene:
        yield scene
