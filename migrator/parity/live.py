"""A comparison while the tail follows: a difference counts only when it outlives a recheck without a newer event.

A document that looks different is read; the tail is waited for until it has passed that reading; then the rows are
fetched, and the references resolved, in one snapshot of the target; then the document is read once more. If it is still
the same document, the snapshot lies between two equal readings and the tail has seen all there was, so that the
difference is real. If it has changed, all of that is done again.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from migrator.parity.extra import Extra
from migrator.parity.model import AggregateResult, CollectionComparison
from migrator.pipeline import ledger
from migrator.pipeline.decoding import Outcome, outcomes, source_id_of
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail import lock
from migrator.pipeline.tail.positions import standing
from migrator.pipeline.tail.reading import Reader
from migrator.sources.profile import Collection, Context
from migrator.store.mongo.client import committed_time
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.rows import fetch, row_id
from migrator.telemetry import waiting
from migrator.values import document as documents
from migrator.values.rowbytes import codec

POLL_S = 0.02
TWO_MOMENTS = "the source is written to: figures of two moments; compare again when the tail has ended"

Stored = dict[type, dict[bytes, bytes]]
"""Rows by the bytes of their id, by table."""


def wait_for_tail(sessions: Sessions, *, derived: bool = False) -> bool:
    """Wait until the tail has brought everything up to date that is committed now; tell whether it came that far.

    ``derived``: also the rows that many documents make together. It did not come that far when no tail follows any
    more, or when ``copy.patience_s`` went by.
    """
    goal = committed_time(sessions.source)
    until = time.monotonic() + sessions.settings.copy.patience_s
    said = False
    while True:
        found = standing(sessions.target, sessions.profile.name)
        if found is not None and found.position.time >= goal and not (derived and found.derived_owed):
            return True
        if time.monotonic() > until or not lock.held(sessions.target):
            return False
        if not said and time.monotonic() > until - sessions.settings.copy.patience_s + 1:
            said = True
            waiting("for the tail to catch up with what was compared")
        time.sleep(POLL_S)


def stored_rows(target: Connection, found: Iterable[Outcome]) -> Stored:
    """Return the stored rows with the ids that these documents' rows have."""
    ids: dict[type, list[object]] = {}
    for outcome in found:
        for row in outcome.loadable.rows if outcome.loadable is not None else ():
            ids.setdefault(type(row.record), []).append(row.record.id)  # type: ignore[attr-defined] # every loaded record has an id
    return {record: fetch(target, record.table, codec(record), keys) for record, keys in ids.items()}  # type: ignore[attr-defined,arg-type] # records


def is_equal(outcome: Outcome, stored: Stored, aside: set[str]) -> bool:
    """Tell whether a document is as it should be: all of its rows equal, or set aside, or skipped."""
    if outcome.skipped:
        return True
    if outcome.loadable is None:
        return source_id_of(outcome.raw) in aside
    if aside and source_id_of(outcome.raw) in aside:
        return False  # loadable, and set aside: a contested key, or an entry that is out of date
    return all(
        (found := stored[type(row.record)].get(row_id(row.head))) is not None
        and codec(type(row.record)).equal((row.head, row.tail), found)
        for row in outcome.loadable.rows
    )


class Recheck:
    """Looks at the documents of one collection again that seem different."""

    def __init__(self, sessions: Sessions, collection: Collection, context: Context) -> None:
        self._sessions = sessions
        self._collection = collection
        self._context = context
        self._reader = Reader(sessions)

    def close(self) -> None:
        """End the session with the source."""
        self._reader.close()

    def outlived(self, found: Sequence[Outcome], stored: Stored, aside: set[str]) -> list[Outcome]:
        """Return the outcomes with those that seemed different as they are now; ``stored`` and ``aside`` follow.

        What was removed from the source meanwhile is left out.
        """
        settled = {id(one): one for one in found if is_equal(one, stored, aside)}
        seeming = {source_id_of(one.raw): one for one in found if id(one) not in settled}
        result = list(settled.values())
        current = self._read(seeming)
        while current:
            reached = wait_for_tail(self._sessions)
            judged = list(self._judge(current, stored, aside))
            different = {source_id_of(one.raw): one for one, equal in judged if not equal}
            result += [one for one, equal in judged if equal]
            again = self._read(different)
            last = {key: one for key, one in different.items() if not reached or again.get(key) == current[key]}
            result += last.values()
            current = {key: raw for key, raw in again.items() if key not in last}
        return result

    def _read(self, keys: Iterable[str]) -> dict[str, bytes]:
        return {
            source_id_of(raw): raw
            for batch in self._reader.documents(self._collection.name, keys)
            for raw in documents.split(batch)
        }

    def _judge(self, current: dict[str, bytes], stored: Stored, aside: set[str]) -> Iterator[tuple[Outcome, bool]]:
        """Yield each document with whether it is as it should be, in one snapshot of the target."""
        sessions, name = self._sessions, self._collection.name
        with sessions.target.transaction():
            sessions.target.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            sessions.forget()
            batch = b"".join(current.values())
            found = [
                one for piece in outcomes(self._collection, self._context, sessions.resolver, batch) for one in piece
            ]
            for record, rows in stored_rows(sessions.target, found).items():
                stored.setdefault(record, {}).update(rows)
            aside -= set(current)
            aside |= ledger.quarantined_ids(sessions.target, sessions.profile.name, name) & set(current)
        for one in found:
            yield one, is_equal(one, stored, aside)


def figures_told_apart(target: Connection, figures: Sequence[AggregateResult]) -> list[AggregateResult]:
    """Return the figures; beside a tail those that differ were taken at two moments, and tell nothing."""
    if not lock.held(target):
        return list(figures)
    return [
        msgspec.structs.replace(one, differing=(), differing_total=0, unverified=TWO_MOMENTS)
        if one.differing_total
        else one
        for one in figures
    ]


def derived_told_apart(sessions: Sessions, compare: Callable[[], CollectionComparison]) -> CollectionComparison:
    """Compare rows that many documents make together; beside a tail a difference may be its next step."""
    if not lock.held(sessions.target):
        return compare()
    wait_for_tail(sessions, derived=True)
    found = compare()
    if found.differing or found.missing or found.extra:
        return CollectionComparison(collection=found.collection, tables=found.tables, unverified=TWO_MOMENTS)
    return found


def outlived_extra(
    sessions: Sessions, found: dict[str, Extra], again: Callable[[set[str]], dict[str, Extra]]
) -> dict[str, Extra]:
    """Return the rows too many that are still there, and still without a document, after the tail has caught up."""
    if not found:
        return found
    wait_for_tail(sessions)
    now = again(set(found))
    outlived: dict[str, Extra] = {}
    for name, before in found.items():
        listed = {(one.table, one.source_id) for one in before.differences}
        kept = Extra()
        for one in now.get(name, Extra()).differences:
            if (one.table, one.source_id) in listed:
                kept.differences.append(one)
                kept.tables[one.table] += 1
        for table, count in now.get(name, Extra()).tables.items():
            if kept.tables[table] and count > len(listed):
                kept.tables[table] = min(count, before.tables[table])  # the list was cut
        if kept.differences:
            outlived[name] = kept
    return outlived
