"""Writing the persistence epoch on both sides. ``store.epoch`` describes it, and the stores obey it."""

from migrator.config import Settings
from migrator.connections.postgres import target_connection
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.target import target_tables
from migrator.sources import profile_of
from migrator.store.epoch import Epoch
from migrator.store.mongo import epoch as mongo
from migrator.store.postgres import epoch as postgres
from migrator.store.protocols import Backend


def source_epoch(sessions: Sessions) -> Epoch | None:
    """Return the epoch of MongoDB."""
    return mongo.read(sessions.source)


def target_epoch(sessions: Sessions) -> Epoch | None:
    """Return the epoch of PostgreSQL."""
    return postgres.read(sessions.target)


def is_in_target(settings: Settings) -> bool:
    """Return whether PostgreSQL holds the data."""
    with target_connection(settings) as target:
        if settings.target.is_native:  # a library knows of no epoch
            profile_of(settings.source, settings.target)  # a mapping file may describe the target
            return target_tables(settings).active_since(target) is not None
        found = postgres.read(target)
    return found is not None and found.backend == "postgres"


def next_number(sessions: Sessions) -> int:
    """Return the number of the next cutover, which is greater than the numbers on both sides."""
    found = [one.number for one in (source_epoch(sessions), target_epoch(sessions)) if one is not None]
    return max(found, default=0) + 1


def close_source(sessions: Sessions, number: int) -> None:
    """Record in MongoDB that PostgreSQL holds the data.

    Nothing is written for a profile whose application does not use a store of ours: it would not read the epoch.
    """
    _write_source(sessions, Epoch(number, "postgres"))


def open_source(sessions: Sessions, number: int) -> None:
    """Record in MongoDB that MongoDB holds the data."""
    _write_source(sessions, Epoch(number, "mongo"))


def set_target(sessions: Sessions, number: int, backend: Backend) -> None:
    """Record in PostgreSQL which side holds the data; where it is PostgreSQL, also to which source a rollback goes."""
    postgres.write(sessions.target, Epoch(number, backend), sessions.profile.name if backend == "postgres" else None)


def close_rollback(sessions: Sessions) -> None:
    """Record in PostgreSQL that no rollback is open any more."""
    postgres.close_rollback(sessions.target)


def undo_target(sessions: Sessions, number: int) -> None:
    """Remove the record that MongoDB holds the data, if there was no cutover before this one.

    A scheduler on PostgreSQL that ran in parallel with the old one can then continue.
    """
    if number == 1:
        postgres.forget(sessions.target, Epoch(number, "mongo"))


def store_reads_source(settings: Settings) -> bool:
    """Return whether our store reads the source's documents as they are, so that its application may be ours."""
    return profile_of(settings.source, settings.target).kept_by_store


def _write_source(sessions: Sessions, epoch: Epoch) -> None:
    if store_reads_source(sessions.settings):
        mongo.write(sessions.source, epoch)
