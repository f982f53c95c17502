"""The configuration value flipped and flipped back, on a copy of the configuration in a folder of its own."""

import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import tomlkit

from migrator.config import Settings
from migrator.cutover import configfile

BACKENDS: Final = ("mongo", "postgres")


class Flipped(msgspec.Struct, frozen=True, kw_only=True):
    """What the rehearsal has done and found."""

    opened: dict[str, Any]
    """What the smoke says of the store that the flipped copy names."""
    identical: bool
    """The copy is, byte for byte, what it was; where the value was not written before, it means what it meant."""


def flipped(settings: Settings, config: Path | None, look: Callable[[Path], dict[str, Any]]) -> Flipped:
    """Flip a copy of the configuration to PostgreSQL, ``look`` at it, and flip it back.

    Without a file the copy is made of the settings. Raises ``RefusedError`` where the file could not be switched.
    """
    with _copy(settings, config) as copy:
        before, named = copy.read_text(encoding="utf-8"), configfile.backend_in(copy)
        written = configfile.KEY in tomllib.loads(before).get(configfile.SECTION, {})
        other = "mongo" if named == "postgres" else "postgres"
        _flip(copy, other)
        if other == "mongo":
            _flip(copy, "postgres")
        opened = look(copy)
        _flip(copy, named)
        after = copy.read_text(encoding="utf-8")
        identical = after == before if written else configfile.backend_in(copy) == named
    return Flipped(opened=opened, identical=identical)


def _flip(copy: Path, backend: str) -> None:
    configfile.switch(copy, backend, copy.with_name("before.toml"))  # type: ignore[arg-type] # one of its words


@contextmanager
def _copy(settings: Settings, config: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="migrator-rehearsal-") as folder:  # readable by this user alone
        copy = Path(folder) / "config.toml"
        text = _made(settings) if config is None else config.read_text(encoding="utf-8")
        copy.write_text(text, encoding="utf-8")
        yield copy


def _made(settings: Settings) -> str:
    tree = msgspec.to_builtins(settings)
    return tomlkit.dumps(
        {section: {key: one for key, one in keys.items() if one is not None} for section, keys in tree.items()}
    )
