"""Both schedulers beside each other: what each fired, slot by slot, and whether that was stable for long enough."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from migrator.pipeline.sessions import Sessions

KIND: Final = "parallel operation"
"""The kind of the decision (``migration.decisions``) that says that both sides run, and since when."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the checklist of source 004."""

    name: str
    passed: bool | None
    words: str


def checklist(sessions: Sessions, now: datetime | None = None) -> list[Check]:
    """Return the checklist's five entries, computed; none where no parallel operation is on record."""
    row = sessions.target.execute(
        "SELECT at, coalesce(%s, clock_timestamp()) FROM migration.decisions WHERE kind = %s ORDER BY at DESC LIMIT 1",
        (now, KIND),
    ).fetchone()
    if row is None:
        return []
    began, moment = row
    window = timedelta(hours=sessions.settings.cutover.stability_hours)
    return [_stable(sessions, began, moment, window)]


def _stable(sessions: Sessions, began: datetime, now: datetime, window: timedelta) -> Check:
    """4-K1, 4-P3: no error for so long; an error begins the window anew."""
    row = sessions.target.execute(
        "SELECT max(coalesce(finished_at, updated_at)) FROM scheduler.runs WHERE state IN ('error', 'timeout')"
        " AND coalesce(finished_at, updated_at) >= %s",
        (began,),
    ).fetchone()
    since = max(began, row[0]) if row is not None and row[0] is not None else began
    stable = now - since
    hours = f"{stable.total_seconds() / 3600:,.1f} h of {window.total_seconds() / 3600:,.0f} h without an error"
    return Check(name="stable", passed=stable >= window, words=hours)
