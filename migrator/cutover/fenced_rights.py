"""Rights to write that the fence of PostgreSQL has revoked: after a rollback they are no difference of the schema."""

import re
from collections.abc import Sequence
from typing import Final

from migrator.config import PostgresSettings
from migrator.connections.postgres import Connection
from migrator.cutover.fence import is_target_fenced
from migrator.schema.catalogue import Difference
from migrator.store.postgres import epoch

_WRITE_RIGHTS: Final = re.compile(r"\b(?:delete|insert|update)(?: \([^)]*\))?(?:, )?")
"""In a grant as the catalogue writes it: ``insert, select, update (source, state)``."""


def split_revoked(
    target: Connection, roles: PostgresSettings, differences: Sequence[Difference]
) -> tuple[list[Difference], int]:
    """Return the differences that are none of the fence, and the number of those that are.

    The fence has revoked rights if the last rollback closed it and no cutover has opened it since.
    """
    others = [one for one in differences if not _is_revoked(one)]
    if len(others) == len(differences):
        return others, 0
    current_epoch = epoch.read(target)
    if current_epoch is None or current_epoch.backend == "postgres" or not is_target_fenced(target, roles):
        return [*differences], 0
    return others, len(differences) - len(others)


def _is_revoked(one: Difference) -> bool:
    """Return whether a grant lacks the rights to write, and nothing else."""
    left = _WRITE_RIGHTS.sub("", one.expected or "").rstrip(", ")
    return one.kind == "changed" and " grant " in one.object and one.found == left
