"""Changing ``[persistence] scheduler`` in the configuration file: its comments stay, and the old file is kept.

The file is replaced whole (written beside it, flushed, renamed over it): a process that reads it meets the old text or
the new one, and a kill in the middle leaves the old one.
"""

import contextlib
import os
import shutil
import tempfile
import tomllib
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import String

from migrator.config import PREFIX
from migrator.errors import ConfigurationError, RefusedError
from migrator.store.ports import Backend

SECTION, KEY = "persistence", "scheduler"
VARIABLE = f"{PREFIX}{SECTION.upper()}__{KEY.upper()}"


def require_switchable(path: Path, environment: Mapping[str, str]) -> None:
    """Refuse a file that could not be switched, before anything happens.

    Raises ``RefusedError`` where an environment variable would override it, where the file or its folder cannot be
    written, and where the key stands in a form that cannot be changed in place; ``ConfigurationError`` without a file.
    """
    if VARIABLE in environment:
        raise RefusedError(
            f"{VARIABLE} is set and would override {path}: unset it for every process of the scheduler, then call again"
        )
    file = _real(path)
    if not os.access(file, os.W_OK):
        raise RefusedError(f"{path} cannot be written: make it writable for this user, then call again")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise RefusedError(
            f"the folder of {path} cannot be written, so the file cannot be replaced whole: make it writable"
        )
    for backend in ("mongo", "postgres"):
        switched(file.read_text(encoding="utf-8"), backend, str(path))


def backend_in(path: Path) -> str:
    """Return the backend that the file names; the default where it names none."""
    tree = tomllib.loads(_real(path).read_text(encoding="utf-8"))
    return str(tree.get(SECTION, {}).get(KEY, "mongo"))


def switch(path: Path, backend: Backend, backup: Path) -> None:
    """Make ``path`` name ``backend``; the text before is kept in ``backup`` unless that exists already.

    Called again, it changes nothing. A link stays a link: the file behind it is replaced. Owner and mode stay.
    """
    file = _real(path)
    text = file.read_text(encoding="utf-8")
    if backend_in(file) == backend:
        return
    changed = switched(text, backend, str(path))
    if not backup.exists():
        _replace(backup, text, like=file)
    _replace(file, changed, like=file)


def switched(text: str, backend: str, name: str) -> str:
    """Return the text with the key changed and everything else as it is; raises ``RefusedError`` where it cannot."""
    try:
        document = tomlkit.parse(text)
        section = document.get(SECTION)
        if section is None:
            section = tomlkit.table()
            document.add(tomlkit.nl())
            document.add(SECTION, section)
        expected = tomllib.loads(text)
        if isinstance(section, MutableMapping):
            quoted = section.get(KEY)
            literal = isinstance(quoted, String) and quoted.as_string().startswith("'")
            section[KEY] = tomlkit.string(backend, literal=literal)  # its quotes stay, and the comment behind it
            expected.setdefault(SECTION, {})[KEY] = backend
        changed = tomlkit.dumps(document)
        kept = tomllib.loads(changed) == expected and isinstance(section, MutableMapping)
    except (TOMLKitError, tomllib.TOMLDecodeError):
        kept = False
    if not kept:
        raise RefusedError(f"{name}: {SECTION}.{KEY} cannot be changed in place; write it under [{SECTION}] first")
    return changed


def _real(path: Path) -> Path:
    try:
        return path.resolve(strict=True)
    except OSError:
        raise ConfigurationError(f"no configuration file {path}: the switch needs one to write into") from None


def _replace(file: Path, text: str, *, like: Path) -> None:
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        shutil.copymode(like, name)
        owner = like.stat()
        with contextlib.suppress(PermissionError):  # an ordinary user's new file is the user's: nothing to keep
            os.chown(name, owner.st_uid, owner.st_gid)
        Path(name).replace(file)
        _flush_folder(file.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _flush_folder(folder: Path) -> None:
    """Make the new name last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
