"""Files: those that a user names are read here, and those that hold what documents hold are for their owner alone.

What is read is a regular file of a bounded size: a named pipe that nobody writes would hold up the command for ever,
and a device has no end. What is written is 0600, a folder that is made for it 0700. A folder that was there keeps its
mode: it is its owner's choice.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

FILE_MODE = 0o600
FOLDER_MODE = 0o700
READABLE_BY_ALL = 0o004
NOT_REGULAR: Final = "is no regular file"
MOST_BYTES: Final = 16 * 1024 * 1024
"""How large a file may be that is not said to be larger."""


class UnreadableError(Exception):
    """A file cannot be read; the text is the reason, in lower case and without the path."""


class MissingError(UnreadableError):
    """There is no such file."""


def read_bytes(path: Path, *, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes; raises ``UnreadableError``.

    A link is followed, as those of mounted secrets must be; what it leads to has to be a regular file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError as error:
        raise MissingError(_reason(error)) from None
    except (OSError, ValueError) as error:
        raise UnreadableError(_reason(error)) from None
    try:
        kind = os.fstat(handle).st_mode
        if stat.S_ISDIR(kind):
            raise UnreadableError("is a directory")
        if not stat.S_ISREG(kind):
            raise UnreadableError("expected a regular file, not a pipe or a device: write its content to a file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            content = file.read(most + 1)
    except OSError as error:
        raise UnreadableError(_reason(error)) from None
    finally:
        os.close(handle)
    if len(content) > most:
        raise UnreadableError(f"is too large: expected at most {most:,} bytes")
    return content


def read_text(path: Path, *, most: int = MOST_BYTES) -> str:
    """Return the content of a regular file as text, each line end as one character; raises ``UnreadableError``."""
    content = read_bytes(path, most=most)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"expected text in UTF-8; byte {error.start} is not") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _reason(error: Exception) -> str:
    """Return why a file cannot be opened or read; the path of a ``ValueError`` holds NUL."""
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__).lower()
    return "its name holds a character that no name may hold"


def make_folder(folder: Path, *, exist_ok: bool = False) -> None:
    """Make a folder and the missing ones above it, each 0700 at most; raises ``OSError`` as ``Path.mkdir`` does."""
    if not folder.parent.exists():
        make_folder(folder.parent, exist_ok=True)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=exist_ok)


def open_private(path: Path, *, exclusive: bool = False) -> BinaryIO:
    """Open a file for writing bytes, 0600 also where it was there with another mode; raises ``OSError``.

    No link is followed, and only a regular file is replaced: another user of the folder could otherwise choose what is
    overwritten, or a pipe hold up the command. ``exclusive``: raises ``FileExistsError`` where the name is taken.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_EXCL if exclusive else 0)
    try:
        handle = os.open(path, flags, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", str(path)) from None
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, NOT_REGULAR, str(path)) from None
        raise
    try:
        _require_regular(handle, path)
        os.ftruncate(handle, 0)
        os.fchmod(handle, FILE_MODE)
        return os.fdopen(handle, "wb")
    except BaseException:
        os.close(handle)
        raise


def _require_regular(handle: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        raise OSError(errno.EINVAL, NOT_REGULAR, str(path))


def write_private(path: Path, content: bytes, *, exclusive: bool = False) -> None:
    """Write a whole file as ``open_private`` opens it."""
    with open_private(path, exclusive=exclusive) as file:
        file.write(content)


@contextmanager
def open_flushed(path: Path) -> Iterator[BinaryIO]:
    """Open a file as ``open_private`` does; at the end its content is on the disk. Its folder is not flushed."""
    with open_private(path) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def complete_folder(part: Path, folder: Path) -> None:
    """Give a folder of flushed files its name, so that all of it survives a power cut; raises ``OSError``."""
    flush_folder(part)
    part.rename(folder)
    flush_folder(folder.parent)
    flush_folder(folder.parent.parent)  # the parent may have been made for it


def flush_folder(folder: Path) -> None:
    """Flush a folder, so that a new name in it survives a power cut; raises ``OSError``."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def readable_by_all(path: Path) -> bool:
    """Whether every user of this machine may read a file; a file that cannot be looked at is not."""
    try:
        return bool(path.stat().st_mode & READABLE_BY_ALL)
    except (OSError, ValueError):
        return False
