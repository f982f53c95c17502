"""Targets: where rows go. The schema ``scheduler`` is one; the tables of libraries, and of users, are data here."""

from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from threading import Lock

from msgspec.structs import replace

from migrator.config import nearest, parse_toml
from migrator.errors import ConfigurationError
from migrator.targets.model import SCHEDULER, SEPARATOR, TARGET_FILE, Table, Target
from migrator.targets.reading import read_target

_FOLDER = Path(__file__).parent
SHIPPED = tuple(sorted(path.parent.name for path in _FOLDER.glob(f"*/{TARGET_FILE}")))
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
        return register(folder_target(_FOLDER / name))
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
    if name in installed and loaded.name != name:
        raise ConfigurationError(f"target {name}: the package that offers it calls it {loaded.name}")
    return register(loaded)


def folder_target(folder: Path) -> Target:
    """Return the native target that a folder describes: ``target.toml``, and ``<source>.toml`` for each source.

    A package brings a target by such a folder. Raises ``ConfigurationError`` with the mistakes of ``target.toml``.
    """
    path = folder / TARGET_FILE
    try:
        tree = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from None
    mistakes: list[str] = []
    target = read_target(tree, lambda _key, message: mistakes.append(message))
    if mistakes:
        raise ConfigurationError(f"the target in {path} cannot be used", lines=mistakes)
    return replace(target, folder=str(folder))


def native_targets() -> Iterator[Target]:
    """Yield the shipped native targets, then those that installed packages bring, each by name."""
    for name in dict.fromkeys((*SHIPPED, *sorted(point.name for point in entry_points(group=GROUP)))):
        yield load_target(name)


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


def native_table(full_name: str) -> Table | None:
    """Return the table of a native target by the name of its record; None for one of the schema ``scheduler``."""
    target, separator, table = full_name.rpartition(SEPARATOR)
    return _known[target].by_name[table] if separator else None
