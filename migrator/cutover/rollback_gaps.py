"""What a rollback cannot give to the old application: schedules of PostgreSQL that its fields cannot state.

Such a schedule is not lost: its rows are in documents that our own store reads, or in the files of the rollback. But
the old application does not fire it as PostgreSQL did. So people must know which these are, before a rollback.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import msgspec

from migrator.config import SourceSettings
from migrator.connections.postgres import Connection
from migrator.cutover.reverse_encoding import BecomesOf, UnstatedSchedule, fires_now, stored_rows, triggers_by_schedule
from migrator.records import Schedule, Trigger
from migrator.sources import context_of, write_back
from migrator.sources.profile import Profile
from migrator.sources.store_documents import names
from migrator.store.queue import SCRATCH

MAX_LISTED: Final = 5
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
BATCH: Final = 1_000
PLAN_TEXT: Final = (
    "after a rollback the old application fires only one cron line of each schedule, without bounds;"
    " intervals, one-time and event triggers made on PostgreSQL would not fire there, and schedules made on PostgreSQL"
    " have the mode and the selection that it needs only where these are given"
)
"""What ``cutover plan`` prints for a source whose documents state the rules of schedules."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """One reason, and the schedules that it concerns."""

    words: str
    schedules: int
    ids: tuple[str, ...]
    """All of them, as ``_id``s of the documents that they have or would have; in the journal some."""


def plan_words(profile: Profile) -> str:
    """Return the gaps of a rollback: what the old application could not get, whatever is written meanwhile."""
    if profile.kept_by_store:
        return PLAN_TEXT
    return "; ".join(("after a rollback these have no place in MongoDB", *write_back.write_back(profile).losses))


_BECOMES: Final[Mapping[BecomesOf, str]] = {
    "stated": "",
    "disabled": "; its document keeps its former rule, and is disabled",
    "without a rule": "; its document has no rule, as before",
    "unchanged": "; its document stays as it was, and fires by its former rule",
    "absent": "; it gets no document",
}


def unstated_schedules(
    target: Connection, profile: Profile, source: SourceSettings
) -> Iterator[tuple[UnstatedSchedule, str]]:
    """Yield the schedules that the old application would not fire, each with the ``_id`` of its document.

    Of a source whose documents our own store keeps: these hold all rows, whatever the old application reads of them.
    """
    context = context_of(source, _EPOCH)
    for schedule, triggers, fires in stored_schedules(target):
        reasons = write_back.unstated(profile, context, schedule, triggers)
        if reasons:
            unstated = UnstatedSchedule(
                schedule_id=str(schedule.id), tenant=schedule.tenant_id, reasons=reasons, document="stated", fires=fires
            )
            yield unstated, str(schedule.source_id or f"{names.SCHEDULE_PREFIX}{schedule.id.hex}")


def gaps_of(unstated: Iterable[tuple[UnstatedSchedule, str]]) -> list[Gap]:
    """Return schedules, each with the ``_id`` of its document, by what is said of them."""
    gaps: dict[str, list[str]] = {}
    for schedule, key in unstated:
        prefix = "" if schedule.fires else "that do not fire now "
        for reason in schedule.reasons:
            gaps.setdefault(f"{prefix}{reason}{_BECOMES[schedule.document]}", []).append(key)
    return [Gap(words=words, schedules=len(ids), ids=tuple(sorted(ids))) for words, ids in sorted(gaps.items())]


def gap_lines(found: Iterable[Gap]) -> Iterator[str]:
    """Yield the gaps as lines for a terminal."""
    for gap in found:
        some = gap.ids[:MAX_LISTED]
        more = ", …" if gap.schedules > len(some) else ""
        noun = "schedule" if gap.schedules == 1 else "schedules"
        yield f"the old application: {gap.schedules:,} {noun} {gap.words} ({', '.join(some)}{more})"


def some_of(found: Iterable[Gap]) -> tuple[Gap, ...]:
    """Return the gaps with some of their ids, for the journal."""
    return tuple(msgspec.structs.replace(one, ids=one.ids[:MAX_LISTED]) for one in found)


def stored_schedules(target: Connection) -> Iterator[tuple[Schedule, list[Trigger], bool]]:
    """Yield the schedules that are not deleted, with their enabled triggers, and whether they fire."""
    last = (UUID(int=0), "")
    while True:
        rows = target.execute(
            "SELECT id, tenant_id FROM scheduler.schedules WHERE deleted_at IS NULL AND NOT starts_with(tenant_id, %s)"
            " AND (id, tenant_id) > (%s, %s) ORDER BY id, tenant_id LIMIT %s",
            (SCRATCH, *last, BATCH),
        ).fetchall()
        if not rows:
            return
        last = rows[-1]
        keys = target.execute(
            "SELECT id::text, tenant_id FROM scheduler.triggers WHERE enabled"
            " AND (schedule_id, tenant_id) IN (SELECT * FROM unnest(%s::uuid[], %s::text[]))",
            ([identifier for identifier, _ in rows], [tenant for _, tenant in rows]),
        ).fetchall()
        of = triggers_by_schedule(target, keys)
        for schedule in stored_rows(target, Schedule, [(str(row[0]), row[1]) for row in rows]).values():
            triggers = of.get((schedule.tenant_id, schedule.id), [])
            yield schedule, triggers, fires_now(schedule, triggers)
