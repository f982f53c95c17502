"""Schedules that look as if they ran and never will: enabled, and nothing makes them fire."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, LiteralString

from migrator import cron
from migrator.cron.errors import CronError
from migrator.parity.silent import LIVE, WITHOUT, with_rule
from migrator.store.postgres.connection import Connection
from migrator.verify.atsource import AtSource, RowKey
from migrator.verify.meaning.opened import NO_SOURCE, Odd

BATCH: Final = 500
_SILENT: LiteralString = (
    f"SELECT s.id, s.source, s.source_id FROM scheduler.schedules AS s WHERE {WITHOUT} ORDER BY s.id"  # noqa: S608 - words of the package
)
_ARMED: LiteralString = (
    "SELECT t.id, t.source, t.source_id, t.kind, t.cron_dialect, t.cron_expression, t.timezone, t.next_fire_at"  # noqa: S608 - words of this module
    f" FROM scheduler.triggers AS t JOIN scheduler.schedules AS s ON s.id = t.schedule_id WHERE {LIVE} AND t.enabled"
    " AND t.kind <> 'event' AND (t.end_at IS NULL OR t.next_fire_at IS NOT NULL)"
    " AND (t.max_fires IS NULL OR t.fire_count < t.max_fires) ORDER BY t.id"
)

_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""From here on a line is looked at that may never fire; not the clock, so that two runs say the same."""

SILENT = "an enabled schedule that nothing makes fire"
UNARMED = "an enabled trigger without a next fire"
OFF_SLOT = "a next fire that the trigger's own rule does not give"
NEVER = "an enabled trigger whose line never fires"


class Looked:
    """How many were looked at."""

    def __init__(self) -> None:
        """Begin at nothing."""
        self.schedules = self.triggers = self.to_be_armed = 0


def look(target: Connection, source: AtSource | None, odd: Odd) -> Looked:
    """Find what will never fire, and what will fire at another time than its rule says."""
    done = Looked()
    _silent(target, source, odd)
    row = target.execute(f"SELECT count(*) FROM scheduler.schedules AS s WHERE {LIVE}").fetchone()  # noqa: S608 - as above
    done.schedules = int(row[0]) if row else 0
    rows = _read(target, _ARMED, "armed")
    while batch := list(islice(rows, BATCH)):
        _armed(batch, source, odd, done)
    return done


def _read(target: Connection, query: LiteralString, name: str) -> Iterator[tuple[Any, ...]]:
    with target.transaction(), target.cursor(name) as cursor:
        cursor.itersize = BATCH
        yield from cursor.execute(query)


def _silent(target: Connection, source: AtSource | None, odd: Odd) -> None:
    rows = _read(target, _SILENT, "silent")
    while batch := list(islice(rows, BATCH)):
        keys = [RowKey("schedules", row[0], row[1], row[2]) for row in batch]
        asked = _asked_for(source, keys)
        for key in keys:
            if source is None and key.source is not None:
                odd.doubt(NO_SOURCE)
                continue
            settled = key.source is not None and key.source_id not in asked
            odd.add(
                "settled" if settled else "difference",
                "silent",
                SILENT,
                "the source names no rule that can be evaluated: it is run by hand or by others"
                if settled
                else "make its trigger again: run backfill, or look for who removed or disabled it",
                key=key.source_id or str(key.id),
                table="schedules",
            )


def _asked_for(source: AtSource | None, keys: list[RowKey]) -> set[str]:
    """Return the source ids of the schedules for which the source asks a trigger that is enabled."""
    if source is None:
        return set()
    found: set[str] = set()
    for name in sorted({key.source for key in keys if key.source is not None}):
        ids = [key.source_id for key in keys if key.source == name and key.source_id is not None]
        if (collection := source.collection_of(name)) is not None:
            found |= with_rule(source.sessions, source.context, collection, ids)
    return found


def _armed(batch: list[tuple[Any, ...]], source: AtSource | None, odd: Odd, done: Looked) -> None:
    suspects: list[tuple[str, str, tuple[Any, ...]]] = []
    for row in batch:
        done.triggers += 1
        _, origin, _, kind, dialect, line, zone, next_fire = row
        if next_fire is None:
            if kind == "cron" and _first(dialect, line, zone) is None:
                suspects.append(("never-fires", NEVER, row))
            elif origin is None and kind != "one_time":
                suspects.append(("unarmed", UNARMED, row))
            else:
                done.to_be_armed += 1
        elif kind == "cron" and not _on_slot(dialect, line, zone, next_fire):
            suspects.append(("off-slot", OFF_SLOT, row))
    said = {} if source is None else source.rows(RowKey("triggers", *row[:3]) for _, _, row in suspects)
    for code, title, row in suspects:
        if source is None and row[1] is not None:
            odd.doubt(NO_SOURCE)
            continue
        was = said.get(("triggers", row[0]))
        settled = row[1] is not None and was is not None and getattr(was, "next_fire_at", None) == row[7]
        odd.add(
            "settled" if settled else "difference",
            code,
            title,
            "the source's own trigger says the same" if settled else "compute it anew from the rule (reschedule)",
            key=row[2] or str(row[0]),
            table="triggers",
            path="next_fire_at",
        )


def _first(dialect: str, line: str, zone: str | None) -> object:
    try:
        return cron.next_fire(dialect, line, zone, _EPOCH)
    except CronError:
        return None


def _on_slot(dialect: str, line: str, zone: str | None, moment: datetime) -> bool:
    try:
        return cron.next_fire(dialect, line, zone, moment - timedelta(seconds=1)) == moment
    except CronError:
        return False
