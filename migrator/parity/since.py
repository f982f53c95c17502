"""The last comparison before the switch: only the documents that changed since the last complete and clean one.

The source's own history names them. Where it does not reach back so far, or a collection was dropped or renamed, the
caller compares everything.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from bson.timestamp import Timestamp

from migrator.parity.derived import compare_derived
from migrator.parity.equal import is_equal, stored_rows
from migrator.pipeline import ledger
from migrator.pipeline import plan as plans
from migrator.pipeline.decoding import outcomes, source_id_of
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail import positions
from migrator.pipeline.tail.alarms import AlarmError
from migrator.pipeline.tail.events import Stream
from migrator.pipeline.tail.lookups import Lookups
from migrator.pipeline.tail.reading import Reader
from migrator.sources.profile import Collection, Context

EVENTS = 10_000
TAKEN_S = 0.5
"""Taken at a time: so many, or those of so long; a source that is written to never has no more."""
ASKED = 1_000


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared, and what is wrong."""

    documents: int
    wrong: dict[str, tuple[str, ...]]
    """Collection → the first few source ids."""


def changed_since(sessions: Sessions, start: Timestamp, end: Timestamp) -> dict[str, list[str]] | None:
    """Return the source ids of what changed between two cluster times, by collection; None: it cannot be told."""
    names = {sessions.name_of(one.name): one.name for one in sessions.profile.collections}
    touched: dict[str, dict[str, None]] = {}
    try:
        stream = Stream(sessions.source, names, positions.at(start))
    except AlarmError:
        return None
    try:
        while True:
            batch = stream.take(EVENTS, TAKEN_S)
            if batch.whole or batch.ended:
                return None
            for name, ids in batch.touched.items():
                touched.setdefault(name, {}).update(ids)
            if batch.position.time > end or (batch.exhausted and batch.position.time == end):
                return {name: list(ids) for name, ids in touched.items()}
    except AlarmError:
        return None
    finally:
        stream.close()


def compare_changed(sessions: Sessions, changed: dict[str, list[str]]) -> Changed:
    """Compare these documents with their rows, and what many documents make together; nothing may write meanwhile."""
    plan = ledger.latest_plan(sessions.target)
    assert plan is not None  # noqa: S101 - something was copied, else nothing was compared
    context = plans.plan_context(plan)
    sessions.forget()
    reader, lookups = Reader(sessions), Lookups(sessions)
    wrong: dict[str, tuple[str, ...]] = {}
    try:
        for collection in sessions.profile.collections:
            ids = changed.get(collection.name, [])
            found: list[str] = []
            for first in range(0, len(ids), ASKED):
                found += _wrong(sessions, collection, context, reader, lookups, ids[first : first + ASKED])
            if found:
                wrong[collection.name] = tuple(sorted(found)[:5])
        for closing in sessions.profile.closing:
            derived = compare_derived(sessions, closing, listed=5)
            if derived.differing or derived.missing or derived.extra:
                wrong[derived.collection] = tuple(one.source_id for one in derived.differences)
    finally:
        reader.close()
    return Changed(documents=sum(map(len, changed.values())), wrong=wrong)


def _wrong(
    sessions: Sessions,
    collection: Collection,
    context: Context,
    reader: Reader,
    lookups: Lookups,
    ids: Sequence[str],
) -> list[str]:
    raw = b"".join(reader.documents(collection.name, ids))
    found = [one for piece in outcomes(collection, context, sessions.resolver, raw) for one in piece]
    aside = ledger.quarantine_entries(sessions.target, sessions.profile.name, collection.name)
    stored: Any = stored_rows(sessions.target, found)
    wrong = [source_id_of(one.raw) for one in found if not is_equal(one, stored, aside)]
    gone = sorted(set(ids) - {source_id_of(one.raw) for one in found})
    if gone:
        for record in collection.tables:
            wrong += lookups.rows_of(collection, record, gone).values()
    return wrong
