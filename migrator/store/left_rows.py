"""Rows that a process leaves as they are: they cannot be read, or what follows from them cannot be computed or written.

The CHECKs of PostgreSQL and ``validation`` keep such values out; programs that write the tables or documents themselves
may have written them before. One such row costs itself alone, and is named in the log.
"""

import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

from migrator.errors import (
    ConfigurationError,
    LostLockError,
    MigratorError,
    OvertakenError,
    RefusedError,
    UnreachableError,
)
from migrator.log import logger

NAMED_AGAIN_S: Final = 600.0
"""Seconds after which such a row is named again."""

_OF_ALL: Final = (UnreachableError, LostLockError, OvertakenError, RefusedError, ConfigurationError)


def is_of_one_row(error: Exception) -> bool:
    """Whether an error says something of a row, and not of the server, the user, or other sessions."""
    return not isinstance(error, _OF_ALL)


def reason_of(error: Exception) -> str:
    """Return why a row is left, without values of the row."""
    return str(error) if isinstance(error, MigratorError) else type(error).__name__


class LeftRows:
    """The rows of a table that this process has left: each is named in the log once in a while."""

    def __init__(self, table: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._table, self._monotonic = table, monotonic
        self._until: dict[tuple[UUID, str], float] = {}

    def add(self, identity: UUID, tenant: str, error: Exception) -> None:
        """Name a row in the log, unless that was done not long ago."""
        if (identity, tenant) in self.keys():
            return
        self._until[identity, tenant] = self._monotonic() + NAMED_AGAIN_S
        logger().warning(
            "a row is left as it is, and costs no other",
            table=self._table,
            id=str(identity),
            tenant=tenant,
            reason=reason_of(error),
        )

    def keys(self) -> list[tuple[UUID, str]]:
        """Return the ids and tenants of the rows that were left not long ago."""
        now = self._monotonic()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return list(self._until)
