"""Changing ``[persistence] scheduler`` in the configuration file. Its comments stay, and the old file is kept.

The file is replaced as a whole: the new text is written next to it, flushed, and renamed over it. A process that reads
the file gets the old text or the new one. A kill in between leaves the old one.
"""

import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final, Literal

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import String

from migrator.config import PREFIX
from migrator.errors import ConfigurationError, MigratorError, RefusedError
from migrator.files import flush_folder
from migrator.store.protocols import Backend

SECTION, KEY = "persistence", "scheduler"
VARIABLE = f"{PREFIX}{SECTION.upper()}__{KEY.upper()}"
MOUNTS: Final = Path("/proc/self/mountinfo")
MOUNT_POINT: Final = 4
"""The field of the mount point in a line of `MOUNTS` (proc(5)); blanks in it are written in octal."""


class ConfigFileError(MigratorError):
    """The configuration file could not be replaced, although an earlier check found that it could."""


def kept_path(path: Path, event: Literal["cutover", "rollback"], number: int) -> Path:
    """Return the path of the copy that a cutover or a rollback keeps of the file."""
    return path.with_name(f"{path.name}.before-{event}-{number}")


def require_changeable(path: Path, environment: Mapping[str, str], backup: Path | None = None) -> None:
    """Refuse a file that could not be changed, before anything happens: try everything but the renaming.

    Raises ``RefusedError`` if an environment variable would override the key, if the file or its folder cannot be
    written, if its owner could not be kept, if the key is in a form that cannot be changed in place, or if another file
    exists at ``backup``. Raises ``ConfigurationError`` if there is no file.
    """
    if VARIABLE in environment:
        raise RefusedError(
            f"{VARIABLE} is set and would override {path}: unset it for every process of the scheduler, then call again"
        )
    file = _resolved(path)
    if not os.access(file, os.W_OK):
        raise RefusedError(f"{path} cannot be written: make it writable for this user, then call again")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise RefusedError(f"the folder of {path} cannot be written, so the file cannot be replaced: make it writable")
    if str(file) in _mount_points():
        raise RefusedError(f"{path} is a mount point, so it cannot be replaced: mount its folder instead")
    text = file.read_text(encoding="utf-8")
    for backend in ("mongo", "postgres"):
        with_backend(text, backend, str(path))
    if backup is not None and backup.exists() and (not backup.is_file() or backup.read_text(encoding="utf-8") != text):
        raise RefusedError(f"{backup} exists and is not a copy of {path.name}: move it elsewhere")
    try:
        _write_sibling(file, text, like=file).unlink()
    except PermissionError:
        raise RefusedError(f"{path} belongs to another user, and its owner would change: call as its owner") from None
    except OSError as error:
        raise RefusedError(f"no file can be written next to {path}: {error.strerror}; correct that first") from None


def named_backend(path: Path) -> str:
    """Return the backend that the file names, or the default."""
    tree = tomllib.loads(_resolved(path).read_text(encoding="utf-8"))
    return str(tree.get(SECTION, {}).get(KEY, "mongo"))


def set_backend(path: Path, backend: Backend, backup: Path) -> None:
    """Make ``path`` name ``backend``; keep the old text in ``backup``, unless that exists already.

    Called again, it changes nothing. If ``path`` is a link, the file to which it points is replaced. Owner and mode
    stay. Raises ``ConfigFileError`` if the file cannot be replaced; the old file is then unchanged.
    """
    file = _resolved(path)
    text = file.read_text(encoding="utf-8")
    if named_backend(file) == backend:
        return
    changed = with_backend(text, backend, str(path))
    try:
        if not backup.is_file():
            _replace(backup, text, like=file)
        _replace(file, changed, like=file)
    except OSError as error:
        raise ConfigFileError(
            f"{path} cannot be replaced to name {backend}: {error.strerror}; correct that, then call again"
        ) from error


def with_backend(text: str, backend: str, name: str) -> str:
    """Return the text with only the key changed; raises ``RefusedError`` if that cannot be done."""
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
            section[KEY] = tomlkit.string(backend, literal=literal)  # its quotes and the comment after it stay
            expected.setdefault(SECTION, {})[KEY] = backend
        changed = tomlkit.dumps(document)
        kept = tomllib.loads(changed) == expected and isinstance(section, MutableMapping)
    except (TOMLKitError, tomllib.TOMLDecodeError):
        kept = False
    if not kept:
        raise RefusedError(f"{name}: {SECTION}.{KEY} cannot be changed in place; write it under [{SECTION}] first")
    return changed


def _resolved(path: Path) -> Path:
    try:
        return path.resolve(strict=True)
    except OSError:
        raise ConfigurationError(f"no configuration file {path}: the cutover changes it, so it must exist") from None


def _mount_points() -> set[str]:
    if not MOUNTS.exists():  # only Linux has it
        return set()
    lines = MOUNTS.read_text(encoding="utf-8").splitlines()
    return {re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[MOUNT_POINT]) for line in lines}


def _replace(file: Path, text: str, *, like: Path) -> None:
    new = _write_sibling(file, text, like=like)
    try:
        new.replace(file)
        flush_folder(file.parent)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _write_sibling(file: Path, text: str, *, like: Path) -> Path:
    """Write a new file into the folder of ``file``, with the mode and the owner of ``like``; return its path."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    new = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        shutil.copymode(like, new)
        owner = like.stat()
        if (owner.st_uid, owner.st_gid) != (new.stat().st_uid, new.stat().st_gid):
            os.chown(new, owner.st_uid, owner.st_gid)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return new
