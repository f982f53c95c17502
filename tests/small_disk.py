"""A disk of a few megabytes, to be filled up; making one needs root."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.ordinary_user import hand_over


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """Mount a disk of its own size inside the server's private directory; needs root."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0777", "tmpfs", folder],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("not run: a disk of its own size can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def room_of_its_own(dsn: str, disk: Path) -> None:
    """Make the tablespace ``small`` on it."""
    place = disk / "space"
    place.mkdir(mode=0o700)
    hand_over(place)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE TABLESPACE small LOCATION {}").format(sql.Literal(str(place))))
