"""The test-kit: what tries the tool, and moves no data itself.

``servers``: real MongoDB and PostgreSQL servers without root. ``demo``: documents of a scheduler, and the faults among
them. ``memory``: the reference of a store, in memory. ``mutations``: the corruptions that a verification must see.
``sources``: the tests of a source, made from its documents. The tool reaches them from ``migrator demo``, ``migrator
servers`` and the area sensitivity of ``migrator verify`` alone; an import contract says so.

``pytest_plugin`` and ``scheduling`` are for the tests of an application; their names are the ones below.
"""

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from migrator.testing.clocked_store import MovedClock
    from migrator.testing.scheduling import HandlerCall, Scheduling

__all__ = ["HandlerCall", "MovedClock", "Scheduling"]

_MODULES: Final = MappingProxyType(
    {
        "HandlerCall": "migrator.testing.scheduling",
        "MovedClock": "migrator.testing.clocked_store",
        "Scheduling": "migrator.testing.scheduling",
    }
)


if not TYPE_CHECKING:  # type checkers see the imports above, and report a name that is not there

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
        if name in _MODULES:
            return getattr(import_module(_MODULES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
