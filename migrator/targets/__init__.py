"""Targets: where rows go. The schema ``scheduler`` is one; the tables of libraries, and of users, are data here."""

from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from threading import Lock

from migrator.config import nearest, parse_toml
from migrator.errors import ConfigurationError
from migrator.targets.model import SCHEDULER, SEPARATOR, Table, Target
from migrator.targets.reading import read_target

_FOLDER = Path(__file__).parent
SHIPPED = tuple(sorted(path.parent.name for path in _FOLDER.glob("*/target.toml")))
"""Every shipped native target: a folder with its description, and a mapping for each source that it takes."""
NAMES = (SCHEDULER, *SHIPPED)

GROUP = "migrator.targets"
"""Entry points by which an installed package offers a native target of its own."""

_lock = Lock()
_known: dict[str, Target] = {}
"""The native targets that this process has loaded, by name."""


def load_target(name: str) -> Target:
    """Return the native target of this name, or at ``package.module:NAME``.

    Raises ``ConfigurationError`` for an unknown name, with the nearest one, and for what is no target.
    """
    if name in _known:
        return _known[name]
    if name in SHIPPED:
        tree = parse_toml((_FOLDER / name / "target.toml").read_text())
        mistakes: list[str] = []
        target = read_target(tree, lambda _key, message: mistakes.append(message))
        if mistakes:
            raise ConfigurationError(f"the target {name} cannot be used", lines=mistakes)
        return register(target)
    installed = {point.name: point.value for point in entry_points(group=GROUP)}
    place = installed.get(name, name)
    if ":" not in place:
        raise ConfigurationError(f"unknown target {name!r}{nearest(name, (*NAMES, *sorted(installed)))}")
    module, _, attribute = place.partition(":")
    try:
        loaded = getattr(import_module(module), attribute)
    except Exception as error:  # noqa: BLE001 - a module may raise whatever it likes, and a name be one of no module
        raise ConfigurationError(f"target {place}: cannot be imported: {type(error).__name__}") from None
    if not isinstance(loaded, Target):
        raise ConfigurationError(f"target {place}: expected a migrator.targets.model.Target")
    return register(loaded)


def register(target: Target) -> Target:
    """Let the tables of a target be found by the names of their records; return the target, or an equal one known.

    A record is made once: two threads that load one mapping would else make rows of different records, of which each
    finds none of the other's.
    """
    with _lock:
        known = _known.get(target.name)
        if known == target:
            return known
        for table in target.tables:
            table.record  # noqa: B018 - made here, under the lock
        _known[target.name] = target
        return target


def mapping_path(target: str, source: str) -> Path:
    """Return the path of the mapping from a source to a shipped native target; the file may not exist."""
    return _FOLDER / target / f"{source}.toml"


def sources_of(target: str) -> tuple[str, ...]:
    """Return the sources that can be moved to a shipped native target."""
    return tuple(sorted(path.stem for path in (_FOLDER / target).glob("*.toml") if path.stem not in _NOT_SOURCES))


_NOT_SOURCES = frozenset({"target", "catalogue"})


def native_table(full_name: str) -> Table | None:
    """Return the table of a native target by the name of its record; None for one of the schema ``scheduler``."""
    target, separator, table = full_name.rpartition(SEPARATOR)
    return _known[target].by_name[table] if separator else None
