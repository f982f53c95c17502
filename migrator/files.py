"""Files that hold what documents hold (reports, raw documents, backups): for their owner alone.

A file is 0600, a folder that is made for it 0700. A folder that was there keeps its mode: it is its owner's choice.
"""

import os
from pathlib import Path
from typing import BinaryIO

FILE_MODE = 0o600
FOLDER_MODE = 0o700
READABLE_BY_ALL = 0o004


def make_folder(folder: Path, *, exist_ok: bool = False) -> None:
    """Make a folder and the missing ones above it, each 0700 at most; raises ``OSError`` as ``Path.mkdir`` does."""
    if not folder.parent.exists():
        make_folder(folder.parent, exist_ok=True)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=exist_ok)


def open_private(path: Path, *, exclusive: bool = False) -> BinaryIO:
    """Open a file for writing bytes, 0600 also where it was there with another mode; raises ``OSError``.

    ``exclusive``: raises ``FileExistsError`` where the name is taken, and follows no link there.
    """
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if exclusive else os.O_TRUNC)
    handle = os.open(path, flags, FILE_MODE)
    try:
        os.fchmod(handle, FILE_MODE)
        return os.fdopen(handle, "wb")
    except BaseException:
        os.close(handle)
        raise


def write_private(path: Path, content: bytes, *, exclusive: bool = False) -> None:
    """Write a whole file as ``open_private`` opens it."""
    with open_private(path, exclusive=exclusive) as file:
        file.write(content)


def flush_folder(folder: Path) -> None:
    """Flush a folder, so that a new name in it survives a power cut; raises ``OSError``."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def readable_by_all(path: Path) -> bool:
    """Tell whether every user of this machine may read a file; a file that cannot be looked at is not."""
    try:
        return bool(path.stat().st_mode & READABLE_BY_ALL)
    except (OSError, ValueError):
        return False
