"""How a library is held against the documents of its source: what differs between libraries, one class for each.

The checks of the area ``library`` (``migrator/verify/checks/library.py``) ask the library what it finds in MongoDB and
in a scratch copy of its tables, and let it execute what is due there. ``LibraryRules`` is what they take from a library
that says the same of both stores; a class of a library says where it does not.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from migrator.config import TargetSettings
from migrator.targets.library import Line

Part: TypeAlias = Literal["entries", "fires", "work"]
"""The checks: what the library lists, when it fires, what it executes."""

LAST: Final = 253_402_300_799
"""Seconds since 1970: the end of the year 9999, after which Python has no instants."""
TICKS: Final = 200
"""Instants at which the library is told to work."""


class DueEntry(msgspec.Struct, frozen=True):
    """What the checks must know of an entry to say whether the library has to execute it."""

    key: str
    due: float | None
    """Seconds since 1970; None: never, because it is paused, disabled or ended."""
    once: bool = True
    """Whether it is executed once at an instant, however many of its fires have passed."""


class LibraryRules:
    """What the checks take from a library; a class of a library has what differs."""

    unbounded: ClassVar[frozenset[str]] = frozenset({"TooLongError"})
    """Errors of an entry that depend on the time that computing takes: they are no difference of the two sides."""

    def options(self, settings: TargetSettings) -> dict[str, Any]:  # noqa: ARG002 - of libraries that have some
        """Return the options of the library."""
        return {}

    def collections(self, names: Mapping[str, str]) -> dict[str, str]:
        """Return the library's own name of each collection → its name in the source, of ``source.collections``."""
        return dict(names)

    def key(self, entry: str) -> str:
        """Return the id by which the library lists an entry in PostgreSQL, of the id that it has in MongoDB."""
        return entry

    def key_of_document(self, source_id: str) -> str:
        """Return the id by which the library lists the entry of a document in PostgreSQL."""
        return self.key(source_id)

    def fields(self, line: Line, *, in_source: bool) -> Mapping[str, Any]:  # noqa: ARG002 - of libraries that differ
        """Return the fields of an entry that are compared, by names that are the same on both sides, as JSON."""
        return {"due": line["due"], **line["fields"]}

    def entry(self, line: Line) -> DueEntry:
        """Return an entry of PostgreSQL by its line."""
        return DueEntry(line["id"], seconds(line["due"]))

    def instants(self, entries: Sequence[DueEntry], since: float) -> list[float]:
        """Return the instants at which the library works, ascending: by the last of them something is due.

        One instant: at ``since`` if an entry is due by then, else when the first ones are.
        """
        due = sorted(entry.due for entry in entries if entry.due is not None)
        return [max(since, due[min(len(due), TICKS) - 1])] if due else []

    def work_options(self, instants: Sequence[float]) -> dict[str, Any]:  # noqa: ARG002 - of libraries with several
        """Return the options of ``work``; the first of the instants is its ``now``."""
        return {"workers": 2}


def seconds(due: Any) -> float | None:  # noqa: ANN401 - as the probe printed it
    """Return a due time as seconds since 1970; None for one that never comes."""
    if due is None:
        return None
    value = float(due)
    return None if math.isnan(value) or value > LAST else value


class ApschedulerRules(LibraryRules):
    """APScheduler 3: one scheduler may serve a store, and ``next_run_time`` is all that makes a job due."""

    def entry(self, line: Line) -> DueEntry:
        """Return a job by its line; one without ``coalesce`` makes up for each fire that it missed."""
        return DueEntry(line["id"], seconds(line["due"]), once=line["fields"]["coalesce"] is True)

    def instants(self, entries: Sequence[DueEntry], since: float) -> list[float]:
        """Return ``since``, and then when each entry is due: most jobs are given up a second after they were due."""
        due = {entry.due for entry in entries if entry.due is not None}
        later = sorted(at for at in due if at > since)
        return ([since] if len(later) < len(due) else []) + later[:TICKS]

    def work_options(self, instants: Sequence[float]) -> dict[str, Any]:
        """Return the threads of the executor, and the instants."""
        return {"workers": 2, "ticks": list(instants)}


RULES: Final[Mapping[str, LibraryRules]] = {"apscheduler": ApschedulerRules()}
"""Target → the rules of its library."""
