"""Parallel operation: that another scheduler runs the same jobs beside this one, as a lock row of PostgreSQL says.

The row ``*/parallel`` of ``locks`` says since when. It stands from ``cutover parallel`` until it is ended, or until the
switch, and only ``migrator.cutover`` writes it. Scheduler processes look at it before they claim: no process has to be
told, or started anew. It is a row of the scheduler's own schema because its processes may read no other.
"""

from typing import Final

from migrator.store.rules import GLOBAL

KEY: Final = f"{GLOBAL}/parallel"
SINCE: Final = "since"
"""The member of the row's metadata."""
