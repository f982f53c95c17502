"""When a trigger fires next whose source does not say it.

A trigger without a next fire is due never, and nothing says so: the fault of several source systems. Here it gets its
first fire after the stated instant, or is reported.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from migrator import cron
from migrator.sources.profile import Note


def next_fire_of(
    cause: Mapping[str, Any],
    stated: datetime | None,
    *,
    fires: bool,
    as_of: datetime | None,
    column: str,
    notes: list[Note],
) -> datetime | None:
    """Return the stated next fire, else the first one after ``as_of`` of a trigger that ``fires``.

    ``cause`` are the columns of an interval or a cron trigger; an interval counts from ``as_of``, which is what
    the sources do with one that they load. Noted: one that fires and has no next fire.
    """
    if stated is not None or not fires:
        return stated
    found = None if as_of is None else _first(cause, as_of)
    if found is None:
        notes.append(Note("no-next-fire", column))
    return found


def _first(cause: Mapping[str, Any], as_of: datetime) -> datetime | None:
    if cause["kind"] == "cron":
        return cron.next_fire(cause["cron_dialect"], cause["cron_expression"], cause["timezone"], as_of)
    try:
        return as_of + timedelta(milliseconds=cause["interval_ms"])
    except OverflowError:
        return None
