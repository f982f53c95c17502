"""What a rollback cannot give to the old application: schedules of PostgreSQL that its fields cannot state.

Such a schedule is not lost: its rows become documents that our own store reads. But the old application does not fire
it, or refuses its document. So people must know which schedules these are, before a rollback and after it.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from migrator.config import SourceSettings
from migrator.connections.postgres import Connection
from migrator.cutover import reverse_documents
from migrator.cutover.reverse_encoding import stated_trigger, stored_rows, triggers_by_schedule
from migrator.records import Schedule, Trigger
from migrator.sources import context_of, write_back
from migrator.sources.profile import Context, Profile
from migrator.sources.stellaops import names
from migrator.sources.stellaops.schedules import is_carried
from migrator.states import SCHEDULE_FIRING
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
    """Some of them, as ``_id``s of their documents."""


def plan_words(profile: Profile) -> str:
    """Return what a rollback of a source could not give to the old application, whatever is written meanwhile."""
    if profile.kept_by_store:
        return PLAN_TEXT
    return "; ".join(("after a rollback these have no place in MongoDB", *write_back.write_back(profile).losses))


def find_gaps(target: Connection, profile: Profile, source: SourceSettings) -> list[Gap]:
    """Return what PostgreSQL holds now that the old application would not fire, whenever it was written."""
    context = context_of(source, _EPOCH)
    found: dict[str, list[str]] = {}
    for schedule, triggers in _active_schedules(target):
        if profile.kept_by_store:
            reasons = _reasons(schedule, triggers)
        else:
            reasons = _unstated(profile, context, schedule, triggers)
        for words in reasons:
            found.setdefault(words, []).append(_key_of(profile, schedule))
    return [
        Gap(words=words, schedules=len(ids), ids=tuple(sorted(ids)[:MAX_LISTED]))
        for words, ids in sorted(found.items())
    ]


def gap_lines(found: Iterable[Gap]) -> Iterator[str]:
    """Yield the gaps as lines for a terminal."""
    for one in found:
        more = ", …" if one.schedules > len(one.ids) else ""
        noun = "schedule" if one.schedules == 1 else "schedules"
        yield f"the old application: {one.schedules:,} {noun} {one.words} ({', '.join(one.ids)}{more})"


def _active_schedules(target: Connection) -> Iterator[tuple[Schedule, list[Trigger]]]:
    """Yield the schedules that may fire, with their enabled triggers, except those of scratch tenants."""
    rows = target.execute(
        "SELECT id::text FROM scheduler.schedules WHERE enabled AND deleted_at IS NULL AND status = ANY(%s)"
        " AND NOT starts_with(tenant_id, %s) ORDER BY id",
        (sorted(SCHEDULE_FIRING), SCRATCH),
    ).fetchall()
    ids = [row[0] for row in rows]
    for first in range(0, len(ids), BATCH):
        some = ids[first : first + BATCH]
        keys = target.execute(
            "SELECT id::text FROM scheduler.triggers WHERE enabled AND schedule_id = ANY(%s::uuid[])", (some,)
        ).fetchall()
        of = triggers_by_schedule(target, [key[0] for key in keys])
        for schedule in stored_rows(target, Schedule, some).values():
            yield schedule, of.get((schedule.tenant_id, schedule.id), [])


def _key_of(profile: Profile, schedule: Schedule) -> str:
    home = write_back.holder(profile, Schedule)
    if profile.kept_by_store or home is None:
        return str(schedule.source_id or f"{names.SCHEDULE_PREFIX}{schedule.id.hex}")
    return str(write_back.key_of(home, schedule))


def _unstated(profile: Profile, context: Context, schedule: Schedule, triggers: list[Trigger]) -> Iterator[str]:
    """Yield why the old application would not fire a schedule as PostgreSQL does, by triggers of no document."""
    collections = profile.by_name()
    name = (schedule.source or "").rpartition("/")[2]
    home = collections.get(name) if schedule.source is not None else write_back.holder(profile, Schedule)
    if home is None or Trigger not in home.tables:
        return
    context = msgspec.structs.replace(context, default_tenant=schedule.tenant_id)
    waiting = [one for one in triggers if one.kind != "one_time" or one.next_fire_at is not None]
    stated = reverse_documents.stated_trigger(profile, context, home, schedule, waiting)
    kinds = {one.kind for one in waiting if one is not stated}
    yield from (f"would not fire for a trigger of kind {kind}: its document states another, or none" for kind in kinds)


def _reasons(schedule: Schedule, triggers: list[Trigger]) -> Iterator[str]:
    """Yield why the old application would not fire a schedule as PostgreSQL does."""
    own = names.source(names.TRIGGERS)
    stated = stated_trigger(triggers)
    # A trigger that came from a document of its own was never fired by the old application. As a plain cron line it
    # would look as if it were.
    rest = [one for one in triggers if one is not stated and (one.source != own or is_carried(one))]
    yield from sorted({_reason(one) for one in rest})
    if stated is None or (schedule.source is not None and schedule.handler_name is None):
        return  # the old application's own schedule, unchanged
    for name in ("mode", "selection"):
        if getattr(schedule, name) is None:
            yield f"would have no {name}, which the old application needs"


def _reason(trigger: Trigger) -> str:
    if trigger.source == names.source(names.TRIGGERS):
        return "would not fire for a cron line whose trigger has a document of its own: the old one does not read it"
    if trigger.kind != "cron":
        return f"would not fire for a trigger of kind {trigger.kind}: its fields state cron lines only"
    if trigger.max_fires is not None or trigger.start_at is not None or trigger.end_at is not None:
        return "would not fire for a cron line with bounds: its fields state none"
    return "would not fire for a cron line that its dialect reads otherwise, or that is not the schedule's first"
