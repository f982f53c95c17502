"""What fires before and after a rollback: schedules of PostgreSQL, and documents as the old application reads them.

The documents are decoded by the code of the copy, so that nothing of what wrote them judges them. It is compared while
nobody writes, before MongoDB is opened. A schedule that was named as one that its document does not state must not fire
by its document, unless that was said as well.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, TypeAlias, cast

import msgspec

from migrator import cron
from migrator.cron.dialects import fires_alike
from migrator.cutover.losses import Losses, Place
from migrator.cutover.reverse_encoding import BecomesOf
from migrator.cutover.rollback_gaps import Gap, stored_schedules
from migrator.errors import RefusedError
from migrator.pipeline.ledger import latest_plan
from migrator.pipeline.plan import plan_context
from migrator.pipeline.sessions import Sessions
from migrator.records import Schedule, Trigger
from migrator.sources import write_back
from migrator.sources.profile import Collection, Context, Profile, Rejected, Rows, Skipped
from migrator.sources.store_documents import names
from migrator.states import RUN_WAITING
from migrator.values import document as documents
from migrator.values import identity

_FIRES: Final = 24
_NOT_FIRING: Final[tuple[BecomesOf, ...]] = ("disabled", "without a rule", "absent")
"""What becomes of documents that do not fire after a rollback."""
_MS: Final = timedelta(milliseconds=1)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared, and which schedules fire otherwise without having been named."""

    schedules: int
    """That fire in PostgreSQL."""
    documents: int
    unlike: tuple[Gap, ...] = ()


def compare(sessions: Sessions, losses: Losses, now: datetime) -> Comparison:
    """Compare what fires in PostgreSQL with what fires by the documents in MongoDB; nobody may write meanwhile.

    ``now``: the instant (aware, UTC) from which the next fires of cron lines are compared. Raises ``RefusedError`` if
    nothing was ever copied.
    """
    plan = latest_plan(sessions.target)
    if plan is None:
        raise RefusedError("nothing was ever copied, so nothing can be compared")
    profile, context = sessions.profile, plan_context(plan)
    expected = {
        place: [trigger for trigger in triggers if write_back.may_fire(trigger)]
        for schedule, triggers, fires in stored_schedules(sessions.target)
        if fires and (place := _place_of(profile, schedule)) is not None
    }
    named = {place: one.document for place, one in losses.unstated.items()}
    waiting = _with_waiting_runs(sessions, profile)
    unlike: dict[str, list[str]] = {}
    count = 0
    seen: set[Place] = set()
    for collection in profile.collections:
        if collection.tables[0] is not Schedule:
            continue
        for key, rows in _decoded(sessions, collection, context):
            count += 1
            place = (collection.name, key, rows[0].tenant_id)  # type: ignore[attr-defined] # every table has one
            seen.add(place)
            of_document = _firing(rows)
            for difference in _differences(
                expected.get(place, ()), of_document, collection, named.get(place), now, waits=place in waiting
            ):
                unlike.setdefault(difference, []).append(_id_text(key))
    for place in expected.keys() - seen:
        if place not in named and not all(map(_is_own, expected[place])):
            unlike.setdefault("fired in PostgreSQL, and have no document", []).append(_id_text(place[1]))
    return Comparison(
        schedules=len(expected),
        documents=count,
        unlike=tuple(
            Gap(words=words, schedules=len(ids), ids=tuple(sorted(ids))) for words, ids in sorted(unlike.items())
        ),
    )


def _is_own(trigger: Trigger) -> bool:
    """Whether a trigger came from a document of its own, which the old application has never read."""
    return trigger.source == names.source(names.TRIGGERS)


def _id_text(source_id: str) -> str:
    return str(identity.parse_source_id(source_id))


def _place_of(profile: Profile, schedule: Schedule) -> Place | None:
    """Return the place of the document that a schedule has or would have; None if it can have none."""
    if schedule.source is not None and schedule.source_id is not None:
        return schedule.source.rpartition("/")[2], schedule.source_id, schedule.tenant_id
    if profile.kept_by_store:
        return names.SCHEDULES, identity.source_id(f"{names.SCHEDULE_PREFIX}{schedule.id.hex}"), schedule.tenant_id
    home = write_back.home_of(profile, schedule)
    if home is None:
        return None
    return home.name, identity.source_id(write_back.key_of(home, schedule)), schedule.tenant_id


def _with_waiting_runs(sessions: Sessions, profile: Profile) -> set[Place]:
    """Return the documents of schedules with a run that no worker has begun: these are due for it."""
    rows = sessions.target.execute(
        "SELECT DISTINCT s.source, s.source_id, s.id, s.created_at, s.tenant_id FROM scheduler.runs AS r"
        " JOIN scheduler.schedules AS s ON s.id = r.schedule_id AND s.tenant_id = r.schedule_tenant_id"
        " WHERE r.state = ANY(%s)",
        (list(RUN_WAITING),),
    ).fetchall()
    schedules = (
        Schedule(source=row[0], source_id=row[1], id=row[2], created_at=row[3], tenant_id=row[4], name="", status="")
        for row in rows
    )
    return {place for one in schedules if (place := _place_of(profile, one)) is not None}


def _decoded(sessions: Sessions, collection: Collection, context: Context) -> Iterator[tuple[str, Rows]]:
    """Yield source id and rows of each document that is loaded; one in quarantine was neither copied nor written."""
    with sessions.source[sessions.name_of(collection.name)].find_raw_batches({}) as cursor:
        for batch in cursor:
            for document in documents.decode_all(documents.split(cast("bytes", batch))):
                if isinstance(document, documents.Undecodable):
                    continue
                try:
                    rows = collection.decode(document, context).rows
                except (Rejected, Skipped):
                    continue
                yield identity.source_id(document["_id"]), rows


def _firing(rows: Rows) -> Trigger | None:
    """Return the trigger by which a document fires; None if it does not."""
    trigger = next((row for row in rows if isinstance(row, Trigger)), None)
    if trigger is None or not write_back.fires(rows) or not write_back.may_fire(trigger):
        return None
    return trigger


def _differences(
    expected: Sequence[Trigger],
    trigger: Trigger | None,
    collection: Collection,
    named: BecomesOf | None,
    now: datetime,
    *,
    waits: bool,
) -> Iterator[str]:
    """Yield how a document fires otherwise than its schedule, and than was said before."""
    if named is not None:
        if named in _NOT_FIRING and trigger is not None:
            yield "were named as not firing any more, and fire by their documents"
        return
    if trigger is None:
        if not all(map(_is_own, expected)):
            yield "fired in PostgreSQL, and do not fire by their documents"
        return
    if trigger.kind == "one_time" and waits:
        return  # due for a run that waits
    alike = [one for one in expected if _fires_as(one, trigger, collection, now, waits=waits)]
    if not expected:
        yield "did not fire in PostgreSQL, and fire by their documents"
    elif not alike or not all(_is_own(one) for one in expected if one not in alike):
        yield "fire by their documents at other times than in PostgreSQL"


def _fires_as(stored: Trigger, read: Trigger, collection: Collection, now: datetime, *, waits: bool) -> bool:
    """Whether the trigger of a document fires when a stored one fires."""
    if (stored.kind, stored.event_name, stored.interval_ms) != (read.kind, read.event_name, read.interval_ms):
        return False
    if stored.kind == "one_time":
        return any(_is_same_ms(read.run_at, time) for time in (stored.next_fire_at, stored.run_at))
    if stored.kind == "cron" and not _is_same_line(_line(stored), _line(read), now):
        return False
    if collection.next_fire is None or stored.kind == "event":
        return True
    if read.next_fire_at is None:
        return False  # the library would never take it
    return waits or stored.next_fire_at is None or _is_same_ms(read.next_fire_at, stored.next_fire_at)


def _is_same_ms(one: datetime | None, other: datetime | None) -> bool:
    """Whether two instants are the same to a millisecond, which is what a date of BSON holds."""
    return one is not None and other is not None and abs(one - other) < _MS


Line: TypeAlias = tuple[str, str, str | None]
"""Dialect, cron line, zone."""


def _line(trigger: Trigger) -> Line:
    return trigger.cron_dialect or "", trigger.cron_expression or "", trigger.timezone


def _is_same_line(stored: Line, read: Line, now: datetime) -> bool:
    if stored[1:] == read[1:]:
        return fires_alike(*read[:1], *stored)
    return _next_fires(stored, now) == _next_fires(read, now)


@lru_cache(maxsize=4_096)
def _next_fires(line: Line, now: datetime) -> tuple[datetime, ...]:
    try:
        return tuple(cron.next_fires(*line, now, _FIRES))
    except cron.CronError:
        return ()
