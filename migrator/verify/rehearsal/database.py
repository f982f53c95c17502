"""A scratch database on the target's server; of PostgreSQL alone, so that it needs no source."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
from psycopg.conninfo import make_conninfo

from migrator.config import Settings, postgres_dsn
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.connection import speaking_of as speaking_of_target
from migrator.store.postgres.shared import connect
from migrator.values.identity import stable_hash64
from migrator.verify.sensitivity.scratch import create, drop

PREFIX: Final = "migrator_rehearsal_"
_NAME: Final = re.compile(rf"{PREFIX}[0-9a-f]{{12}}")
_HELD: Final = "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted"


@contextmanager
def scratch_database(settings: Settings) -> Iterator[Settings]:
    """Make a database, lend the settings that lead to it, and drop it; first drop what killed runs have left.

    Raises ``RefusedError`` where the user may not make databases.
    """
    name = PREFIX + secrets.token_hex(6)
    with speaking_of_target("the target"), connect(postgres_dsn(settings)) as control:
        control.autocommit = True
        _remove_leftovers(control)
        control.execute("SELECT pg_advisory_lock(%s)", (_key(name),))
        create(control, name)
        try:
            dsn = make_conninfo(postgres_dsn(settings), dbname=name)
            postgres = msgspec.structs.replace(settings.postgres, dsn=dsn, dsn_env=None, dsn_file=None)
            yield msgspec.structs.replace(settings, postgres=postgres)
        finally:
            drop(control, name)


def _remove_leftovers(control: Connection) -> None:
    """Drop the databases whose lock nobody holds."""
    held = {row[0] for row in control.execute(_HELD)}
    for (name,) in control.execute("SELECT datname FROM pg_database").fetchall():
        if _NAME.fullmatch(name) and _key(name) not in held:
            drop(control, name)


def _key(name: str) -> int:
    return stable_hash64(f"*/rehearsal/{name}")
