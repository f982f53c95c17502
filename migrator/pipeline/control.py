"""What operators set while a migration runs: a pause, limits of the copy, a postponed cutover (``migration.control``).

It is in the target, so that it works from every machine, and outlives a process that is killed.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec

from migrator.config import CopySettings
from migrator.connections.postgres import Connection, fetch_structs
from migrator.schema import decisions
from migrator.schema.decisions import Approval

PAUSE: Final = "pause"
POSTPONE: Final = "postpone-cutover"
LimitName: TypeAlias = Literal["max_rate", "max_replication_lag", "max_source_load"]
LIMITS: Final[tuple[LimitName, ...]] = ("max_rate", "max_replication_lag", "max_source_load")
"""Keys of ``[copy]`` in whose place a value can be set."""

LARGEST_LIMIT: Final = 2**31 - 1

UNITS: Final[Mapping[str, str]] = {
    "max_rate": "documents a second",
    "max_replication_lag": "s of replication lag",
    "max_source_load": "active clients and queued operations",
}

READ_EVERY_S: Final = 2.0
"""Seconds after which a process that runs reads again what is set."""


class ControlEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ``migration.control``."""

    name: str
    value: float | None
    who: str
    reason: str
    at: datetime

    @property
    def words(self) -> str:
        """Return who set it, when and why, as the end of a sentence."""
        why = f" ({self.reason})" if self.reason else ""
        return f"by {self.who} since {self.at:%Y-%m-%d %H:%M:%S} UTC{why}"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits in force; 0: there is none."""

    max_rate: float = 0
    """Documents a second, of all workers together."""
    max_replication_lag: float = 0
    """Seconds by which the slowest secondary of the source may be behind."""
    max_source_load: float = 0
    """Active clients and queued operations of the source."""


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """All that is set."""

    entries: dict[str, ControlEntry] = {}

    @property
    def pause(self) -> ControlEntry | None:
        """Return the pause, if there is one."""
        return self.entries.get(PAUSE)

    @property
    def postponed(self) -> ControlEntry | None:
        """Return the entry that postpones the cutover, if there is one."""
        return self.entries.get(POSTPONE)

    def lines(self) -> Iterator[str]:
        """Yield a line for each entry."""
        for name, entry in self.entries.items():
            if name == PAUSE:
                yield f"PAUSED {entry.words}: migrator control resume ends it"
            elif name == POSTPONE:
                yield f"cutover postponed {entry.words}: migrator control allow-cutover ends it"
            else:
                yield f"{name}: {limit_words(name, entry.value or 0)}, set {entry.words}"

    def limits(self, settings: CopySettings) -> Limits:
        """Return the limits in force: what is set here has precedence over the configuration."""
        configured = configured_limits(settings)
        return Limits(**{name: self._value(name, value) for name, value in configured.items()})

    def _value(self, name: str, configured: float) -> float:
        entry = self.entries.get(name)
        return configured if entry is None or entry.value is None else entry.value


def limit_words(name: str, value: float) -> str:
    """Return a limit with its unit."""
    return f"{value:,g} {UNITS[name]}" if value else "no limit"


def configured_limits(settings: CopySettings) -> dict[str, float]:
    """Return the limits of the configuration by their keys; durations in seconds."""
    return {
        "max_rate": settings.max_rate,
        "max_replication_lag": settings.max_replication_lag.total_seconds(),
        "max_source_load": settings.max_source_load,
    }


def read(connection: Connection) -> Control:
    """Return the settings in force."""
    rows = fetch_structs(
        connection, ControlEntry, "SELECT name, value, who, reason, at FROM migration.control ORDER BY name"
    )
    return Control(entries={one.name: one for one in rows})


def put(connection: Connection, values: Mapping[str, float | None], by: Approval) -> None:
    """Set entries, in place of those of the same names; recorded as decisions."""
    with connection.transaction():
        for name, value in values.items():
            connection.execute(
                "INSERT INTO migration.control (name, value, who, reason) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, who = EXCLUDED.who,"
                " reason = EXCLUDED.reason, at = clock_timestamp()",
                (name, value, by.who, by.reason),
            )
            decisions.record(connection, decisions.CONTROL, by, set=name, value=value)


def remove(connection: Connection, names: Iterable[str], by: Approval) -> list[str]:
    """Remove entries; return the names of those that were set. Recorded as decisions."""
    with connection.transaction():
        removed = connection.execute(
            "DELETE FROM migration.control WHERE name = ANY(%s) RETURNING name", (list(names),)
        ).fetchall()
        for (name,) in removed:
            decisions.record(connection, decisions.CONTROL, by, removed=name)
    return sorted(name for (name,) in removed)
