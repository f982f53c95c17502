"""A private directory per server, the account that the server runs as, and directories whose owner is gone.

Both servers are started as an ordinary user, and PostgreSQL refuses root. A directory belongs to the account the server
runs as, mode 0700. It is in use while its file ``lock`` is locked: the owner and the guardian hold that lock, and the
kernel drops it when both are gone, however they ended. A pid in a file could not tell that across containers that share
a directory, nor after pids were used again.
"""

import contextlib
import fcntl
import os
import pwd
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from migrator.errors import ConfigurationError, UnreachableError


class Account(NamedTuple):
    """An existing account of this system without privileges."""

    name: str
    uid: int
    gid: int


def unprivileged() -> Account | None:
    """Return the account for servers when this process is root, else None: an ordinary user runs them as itself.

    Raises ConfigurationError when the system has no account but root.
    """
    if os.geteuid() != 0:
        return None
    entries = pwd.getpwall()
    # initdb looks its user up by uid, so the account must exist; nobody owns nothing else
    for entry in sorted(entries, key=lambda entry: (entry.pw_name != "nobody", entry.pw_uid)):
        if entry.pw_uid != 0 and entry.pw_gid != 0:
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise ConfigurationError(
        "embedded servers do not run as root and this system has no other account; run as an ordinary user, "
        "or give the addresses of your own servers in the configuration (mongo.uri, postgres.dsn)"
    )


def _allows(account: Account, path: Path, wanted: int) -> bool:
    """Whether the account has rights, given as the bits of others (``stat.S_IROTH``)."""
    status = path.stat()
    shift = 6 if status.st_uid == account.uid else 3 if status.st_gid == account.gid else 0
    return (status.st_mode >> shift) & wanted == wanted


def may_enter(account: Account, directory: Path) -> bool:
    """Whether the account reaches what lies in a directory, as the permission bits say."""
    real = directory.resolve()
    return all(_allows(account, step, stat.S_IXOTH) for step in (real, *real.parents))


def may_read(account: Account, tree: Path) -> bool:
    """Whether the account can read a file or everything in a tree, as the permission bits say."""
    if not may_enter(account, tree.parent):
        return False
    if tree.is_file():
        return _allows(account, tree, stat.S_IROTH | (stat.S_IXOTH if os.access(tree, os.X_OK) else 0))
    return all(
        _allows(account, Path(folder), stat.S_IROTH | stat.S_IXOTH)
        and all(_allows(account, Path(folder, name), stat.S_IROTH) for name in files)
        for folder, _, files in os.walk(tree)
    )


PREFIX = "migrator-embedded-"
COMPLETE = "complete"
"""File of a kept directory whose server was set up; without it the directory holds nothing that anybody uses."""
LOCK_SECONDS = 30.0  # a guardian whose owner was killed ends its server within a third of that
ABANDONED_AFTER = 3600.0  # seconds; a directory that got no lock file was lost between two system calls


@dataclass(frozen=True)
class PrivateDirectory:
    """One server's directory; ``account`` is None when the server runs as this very user.

    ``kept``: it outlives its server, and the server finds in it what it has written.
    """

    path: Path
    account: Account | None
    lock: int
    kept: bool = False

    @classmethod
    def create(cls, account: Account | None) -> "PrivateDirectory":
        """Make a new directory, after removing those whose owners are gone."""
        base = _base_directory(account)
        remove_abandoned(base, account)
        try:
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        except OSError as error:
            raise _directory_error(base, error) from error
        # locked before it gets its name: nobody may take a directory that is just being made for an abandoned one
        lock = os.open(path / "lock.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (path / "lock.new").rename(path / "lock")
        if account:
            os.chown(path, account.uid, account.gid)
        return cls(path, account, lock)

    @classmethod
    def keep(cls, path: Path, account: Account | None) -> "PrivateDirectory":
        """Open a directory that outlives its server; make it, and empty it where its server was never set up.

        Raises UnreachableError where another process uses it, or where it cannot be made.
        """
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _directory_error(path, error) from error
        if not lock_within(lock, LOCK_SECONDS):
            os.close(lock)
            raise UnreachableError(f"{path} is in use by another process")
        directory = cls(path, account, lock, kept=True)
        # copies of programs are made anew: those of another version of the wheel may be there
        wanted = {"lock"} if not directory.complete else {entry.name for entry in path.iterdir()} - COPIES
        for entry in path.iterdir():
            if entry.name not in wanted:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        directory._give(path)
        return directory

    @property
    def complete(self) -> bool:
        """Whether a kept directory holds a server that was set up."""
        return self.kept and (self.path / COMPLETE).exists()

    def set_complete(self) -> None:
        """Note that the server is set up: whoever opens the directory again finds its data."""
        self.write(COMPLETE, "")

    def subdirectory(self, name: str) -> Path:
        """Make a directory for the server to write in; in a kept one it may be there."""
        path = self.path / name
        path.mkdir(mode=0o700, exist_ok=self.kept)
        self._give(path)
        return path

    def secret(self, name: str, size: int = 16) -> str:
        """Return a random text of ``size`` bytes as hexadecimal digits, which only the server's account can read.

        It is in a file of that name. A kept directory gives the same text again.
        """
        path = self.path / name
        if not (self.kept and path.exists()):
            self.write(name, secrets.token_hex(size))
        return path.read_text()

    def write(self, name: str, text: str) -> Path:
        """Write a file that only the server's account can read."""
        path = self.path / name
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        self._give(path)
        return path

    def bring(self, tree: Path, name: str) -> Path:
        """Return a file or tree as the server's account can read it: in place where possible, else a copy in here."""
        if self.account is None or may_read(self.account, tree):
            return tree
        target = self.path / name
        try:
            if tree.is_dir():
                shutil.copytree(tree, target, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
            else:
                shutil.copy2(tree, target)
        except OSError as error:  # also what copytree raises
            raise _directory_error(self.path, error) from error
        self._give(target)
        for folder, folders, files in os.walk(target):
            for entry in (*folders, *files):
                self._give(Path(folder, entry))
        return target

    def _give(self, path: Path) -> None:
        if self.account:
            os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)

    def remove(self) -> None:
        """Remove the directory with all that is in it; only let go of a kept one."""
        if not self.kept:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


COPIES = frozenset({"installation", "libraries", "lib", "mongod"})
"""What `PrivateDirectory.bring` may have put into a directory."""


def lock_within(handle: int, seconds: float) -> bool:
    """Lock a file for this process alone, and tell whether it could be done in time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        else:
            return True


def _directory_error(place: Path, error: OSError) -> UnreachableError:
    why = error.strerror or "not everything could be copied"
    return UnreachableError(f"no directory for a server in {place}: {why.lower()}; set TMPDIR to another place")


def _base_directory(account: Account | None) -> Path:
    wanted = Path(tempfile.gettempdir())
    for base in (wanted, Path("/tmp"), Path("/var/tmp")):  # noqa: S108 - the directory made in it is private
        if base.is_dir() and os.access(base, os.W_OK | os.X_OK) and (account is None or may_enter(account, base)):
            return base
    name = account.name if account else "this user"
    raise UnreachableError(f"no temporary directory that {name} can enter: set TMPDIR to one")


def _candidates(base: Path, account: Account | None) -> Iterator[Path]:
    owners = {os.geteuid()} | ({account.uid} if account else set())
    for path in base.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if not path.is_symlink() and path.is_dir() and path.lstat().st_uid in owners:
                yield path


def remove_abandoned(base: Path, account: Account | None) -> list[Path]:
    """Remove the directories below ``base`` that belong to us and are in use by nobody; return them."""
    removed = []
    for path in _candidates(base, account):
        try:
            lock = os.open(path / "lock", os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED_AFTER:
                    shutil.rmtree(path, ignore_errors=True)
                    removed.append(path)
            continue
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
        finally:
            os.close(lock)
    return removed
