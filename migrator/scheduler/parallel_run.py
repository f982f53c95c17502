"""A parallel run as a scheduler process sees it: another scheduler writes the rows that came from the source."""

from typing import Protocol, runtime_checkable

from migrator.store.protocols import Store


@runtime_checkable
class ParallelRunStore(Protocol):
    """A store of the new side, during a parallel run. The old side runs everything: its store is not one of these."""

    def is_parallel_run(self) -> bool:
        """Whether another scheduler runs the same jobs now."""


def source_writes(store: Store) -> bool:
    """Whether rows that came from the source are written by another scheduler now, and by no process here."""
    return isinstance(store, ParallelRunStore) and store.is_parallel_run()
