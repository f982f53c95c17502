"""Being an ordinary user for a moment: root may write anywhere, so that a missing right would not be felt."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from migrator.testing.servers.directory import unprivileged


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Act as the user that the embedded servers run as; who is no root acts as itself."""
    account = unprivileged()
    if account is None:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setresgid(account.gid, account.gid, 0)
    os.setresuid(account.uid, account.uid, 0)  # 0 is kept aside, to go back to
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)


@contextmanager
def ordinary_folder() -> Iterator[Path]:
    """Yield a folder of that user, where it may enter: pytest's own belongs to who runs it."""
    folder = Path(tempfile.mkdtemp())
    hand_over(folder)
    try:
        yield folder
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


def hand_over(path: Path) -> None:
    """Let a file or a folder belong to that user."""
    account = unprivileged()
    if account is not None:
        os.chown(path, account.uid, account.gid)
