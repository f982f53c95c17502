"""Whom a server runs as: both servers are started as an ordinary user, and PostgreSQL refuses root."""

import os
import pwd
import stat
from pathlib import Path
from typing import NamedTuple

from migrator.errors import ConfigurationError


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


def _allows(account: Account, path: Path, *, execute: bool) -> bool:
    status = path.stat()
    shift = 6 if status.st_uid == account.uid else 3 if status.st_gid == account.gid else 0
    wanted = stat.S_IROTH | (stat.S_IXOTH if execute else 0)
    return (status.st_mode >> shift) & wanted == wanted


def may_enter(account: Account, directory: Path) -> bool:
    """Tell whether the account reaches what lies in a directory, as the permission bits say."""
    real = directory.resolve()
    for step in (real, *real.parents):
        status = step.stat()
        shift = 6 if status.st_uid == account.uid else 3 if status.st_gid == account.gid else 0
        if not (status.st_mode >> shift) & stat.S_IXOTH:
            return False
    return True


def may_read(account: Account, tree: Path) -> bool:
    """Tell whether the account can read a file or everything in a tree, as the permission bits say."""
    if not may_enter(account, tree.parent):
        return False
    if tree.is_file():
        return _allows(account, tree, execute=os.access(tree, os.X_OK))
    for folder, _, files in os.walk(tree):
        if not _allows(account, Path(folder), execute=True):
            return False
        if not all(_allows(account, Path(folder, name), execute=False) for name in files):
            return False
    return True
