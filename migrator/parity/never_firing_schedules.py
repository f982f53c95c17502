"""Schedules that never fire though they look as if they did: enabled, with a rule, and without an enabled trigger.

They are found in the stored rows and in the documents alone, whatever the parity check of either found: rows that agree
with what the tool expects do not fire by that.
"""

from collections.abc import Iterable, Sequence
from typing import Final, LiteralString

from psycopg import sql

from migrator.connections import raw_batches
from migrator.connections.mongo import committed_time, translate_errors
from migrator.parity.firing_rules import READERS, FiringRule, decoded_rule, stellaops_trigger, usable
from migrator.parity.model import NeverFiringSchedule
from migrator.parity.recheck import MAX_LOOKS, documents_touched_since, wait_until_comparable
from migrator.pipeline import locks
from migrator.pipeline.sessions import Sessions, SourceSessions
from migrator.pipeline.transform import decode_document
from migrator.records import Schedule
from migrator.sources.profile import Collection, Context, Rejected, Skipped
from migrator.states import SCHEDULE_FIRING
from migrator.values import document as documents
from migrator.values import identity
from migrator.values.identity import raw_id

IDS_PER_QUERY: Final = 500
"""Documents asked for at a time; bounds the memory."""

LIVE: Final[LiteralString] = (
    "s.enabled AND s.deleted_at IS NULL AND s.status IN (" + ", ".join(f"'{one}'" for one in SCHEDULE_FIRING) + ")"
)
WITHOUT_TRIGGER: Final[LiteralString] = (
    f"{LIVE} AND NOT EXISTS (SELECT FROM scheduler.triggers AS t"
    " WHERE t.schedule_id = s.id AND t.tenant_id = s.tenant_id AND t.enabled)"
)
"""Conditions on ``scheduler.schedules AS s``: it may run; it may run, and nothing makes it."""


def find_never_firing_schedules(
    sessions: Sessions, context: Context, names: Iterable[str] | None = None
) -> list[NeverFiringSchedule]:
    """Return the schedules that never fire of these collections (of all, if None), by collection and source id.

    While a tail runs, those that its next steps correct are left out.
    """
    schedules = _find_never_firing_schedules(sessions, context, names)
    for _ in range(MAX_LOOKS):
        if not schedules or not locks.is_tail_running(sessions.target):
            break
        since = committed_time(sessions.source)
        if not wait_until_comparable(sessions):
            break
        now = set(_find_never_firing_schedules(sessions, context, names)) & set(schedules)
        moved = documents_touched_since(sessions, since, _named(now))
        schedules = sorted(now)
        if all(one.source_id not in moved.get(one.collection, ()) for one in schedules):
            break
    return schedules


def _named(schedules: Iterable[NeverFiringSchedule]) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for one in schedules:
        named.setdefault(one.collection, []).append(one.source_id)
    return named


def _find_never_firing_schedules(
    sessions: Sessions, context: Context, names: Iterable[str] | None
) -> list[NeverFiringSchedule]:
    wanted = None if names is None else set(names)
    schedules: list[NeverFiringSchedule] = []
    for collection in sessions.profile.collections:
        if Schedule not in collection.tables or (wanted is not None and collection.name not in wanted):
            continue
        rows = sessions.target.execute(
            sql.SQL("SELECT s.source_id, s.tenant_id FROM scheduler.schedules AS s WHERE {} AND s.source = %s").format(
                sql.SQL(WITHOUT_TRIGGER)
            ),
            (sessions.profile.source_of(collection.name),),
        ).fetchall()
        asked = with_rule(sessions, context, collection, [source_id for source_id, _ in rows])
        schedules += [
            NeverFiringSchedule(collection=collection.name, source_id=source_id, tenant=tenant)
            for source_id, tenant in rows
            if source_id in asked
        ]
    return sorted(schedules)


def with_rule(
    sessions: SourceSessions, context: Context, collection: Collection, source_ids: Sequence[str]
) -> set[str]:
    """Return which of these schedules the source wants to fire: by a rule that can be evaluated, and is live."""
    asked: set[str] = set()
    for first in range(0, len(source_ids), IDS_PER_QUERY):
        some = source_ids[first : first + IDS_PER_QUERY]
        with translate_errors("the source"):
            batches = sessions.reader.of(collection, context.history_before).by_ids(some)
            raws = [raw for batch in batches for raw in documents.split(batch)]
            asked |= {
                identity.source_id(raw_id(raw))
                for raw in raws
                if _is_live(_rule(sessions.profile.source_of(collection.name), collection, context, raw))
            }
            asked |= _of_triggers(sessions, [identity.parse_source_id(one) for one in some])
    return asked


def _rule(source: str, collection: Collection, context: Context, raw: bytes) -> FiringRule | None:
    read = READERS.get(source)
    try:
        if read is None:
            return decoded_rule(decode_document(collection, context, raw).rows)
        return read(documents.decode(raw))
    except (Rejected, Skipped, documents.Undecodable):
        return None


def _is_live(rule: FiringRule | None) -> bool:
    found = usable(rule)
    return found is not None and found.live


def _of_triggers(sessions: SourceSessions, keys: list[object]) -> set[str]:
    """Return which of these schedules a document of ``triggers`` asks to fire (our own shape)."""
    if sessions.tables is not None or "triggers" not in sessions.profile.by_name():
        return set()
    texts = [key for key in keys if type(key) is str]
    triggers = sessions.source[sessions.name_of("triggers")]
    batches = raw_batches.find_raw_batches(triggers, {"scheduleId": {"$in": texts}})
    return {
        identity.source_id(one["scheduleId"])
        for one in documents.readable(batches)
        if type(one.get("scheduleId")) is str and _is_live(stellaops_trigger(one))
    }
