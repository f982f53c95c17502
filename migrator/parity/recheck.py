"""The parity check while the tail runs: a difference counts only when it outlives a recheck without a newer event.

A document that looks different is read; the tail is waited for until it has passed that reading; then the rows are
fetched, and the references resolved, in one snapshot of the target. Then the source's history says which of these
documents were touched since a time before the reading: a document that was not has been the same all the while, the
tail has seen all there was of it, and the difference is real. The others are looked at again. To read them once more
and find them equal would not do: a document may be removed and come back in between.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing

import msgspec
from bson.timestamp import Timestamp

from migrator.connections.mongo import committed_time
from migrator.parity.equal import StoredRows, is_equal, stored_rows
from migrator.parity.extra_rows import ExtraRows
from migrator.parity.model import AggregateResult, CollectionComparison
from migrator.pipeline import ledger, locks
from migrator.pipeline.extract import DocumentReader
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail import positions
from migrator.pipeline.tail.backlog import wait_for_tail
from migrator.pipeline.tail.lookups import documents_of, has_source_column
from migrator.pipeline.tail.positions import AlarmError
from migrator.pipeline.tail.stream import ChangeStream
from migrator.pipeline.transform import SourceDocument, transform_documents
from migrator.result import Finding
from migrator.sources.profile import Collection, Context
from migrator.values.copy_format import codec
from migrator.values.identity import source_id_of

EVENTS_PER_READ = 10_000
TAKEN_S = 0.5
"""Taken at a time: so many, or those of so long; a source that is written to never has no more."""


def changed_since(sessions: Sessions, start: Timestamp, end: Timestamp) -> dict[str, list[str]] | None:
    """Return the source ids of what changed between two cluster times, by collection, or None if they are not known."""
    names = {sessions.name_of(one.name): one.name for one in sessions.profile.collections}
    touched: dict[str, dict[str, None]] = {}
    try:
        with closing(ChangeStream(sessions.source, names, positions.position_at_time(start))) as stream:
            while True:
                batch = stream.take(EVENTS_PER_READ, TAKEN_S)
                if batch.whole or batch.ended:
                    return None
                for name, ids in batch.touched.items():
                    touched.setdefault(name, {}).update(ids)
                if batch.position.time > end or (batch.exhausted and batch.position.time == end):
                    return {name: list(ids) for name, ids in touched.items()}
    except AlarmError:
        return None


MAX_LOOKS = 10
"""How often a document is looked at that was touched each time."""
TWO_MOMENTS = "the source is written to, so aggregates are of two moments; compare again when the tail has ended"
MOVING = "{} documents changed whenever they were looked at; compare again when the tail has ended"


def wait_until_comparable(sessions: Sessions, *, derived: bool = False) -> bool:
    """Wait until the target shows everything that is committed in the source now, for ``copy.patience`` at most.

    Tells whether it does, as ``wait_for_tail``.
    """
    return wait_for_tail(
        sessions, committed_time(sessions.source), sessions.settings.copy.patience.total_seconds(), derived=derived
    )


class Recheck:
    """Looks at the documents of one collection again that seem different."""

    def __init__(self, sessions: Sessions, collection: Collection, context: Context) -> None:
        self._sessions = sessions
        self._collection = collection
        self._context = context
        self._reader = DocumentReader(sessions, context.history_before)
        self.moving = 0
        """Documents that were touched whenever they were looked at; they are left out."""

    def close(self) -> None:
        """End the session with the source."""
        self._reader.close()

    def confirmed_differences(
        self, found: Sequence[SourceDocument], stored: StoredRows, quarantine: dict[str, ledger.QuarantineEntry]
    ) -> list[SourceDocument]:
        """Return the outcomes with those that seemed different as they are now; ``stored`` and ``quarantine`` follow.

        What was removed from the source meanwhile is left out.
        """
        settled = {id(one): one for one in found if is_equal(one, stored, quarantine)}
        seeming = {source_id_of(one.raw): one for one in found if id(one) not in settled}
        result = list(settled.values())
        look = 0
        since = committed_time(self._sessions.source)
        current = self._reader.by_id(self._collection.name, seeming)
        while current:
            look += 1
            reached = wait_until_comparable(self._sessions)
            judged = list(self._judge(current, stored, quarantine))
            result += [one for one, equal in judged if equal]
            different = {source_id_of(one.raw): one for one, equal in judged if not equal}
            since = since if reached else _applied_until(self._sessions, since)
            moved = documents_touched_since(self._sessions, since, {self._collection.name: different})
            moving = moved.get(self._collection.name, set())
            result += [one for key, one in different.items() if key not in moving]
            if look == MAX_LOOKS or not reached:
                self.moving += len(moving)
                break
            since = committed_time(self._sessions.source)
            current = self._reader.by_id(self._collection.name, moving)
        return result

    def _judge(
        self, current: dict[str, bytes], stored: StoredRows, quarantine: dict[str, ledger.QuarantineEntry]
    ) -> Iterator[tuple[SourceDocument, bool]]:
        """Yield each document with whether it is as it should be, in one snapshot of the target."""
        sessions, name = self._sessions, self._collection.name
        with sessions.target.transaction():
            sessions.target.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            sessions.forget()
            batch = b"".join(current.values())
            documents_read = list(transform_documents(self._collection, self._context, sessions.resolver, batch))
            for document in documents_read:
                for row in document.serialized:
                    stored.setdefault(type(row.record), {}).pop(codec(type(row.record)).key(row.head), None)
            for record, rows in stored_rows(sessions.target, documents_read).items():
                stored[record].update(rows)
            entries = ledger.quarantine_entries(sessions.target, sessions.profile.name, name, current)
            for key in current:
                quarantine.pop(key, None)
            quarantine |= entries
        for document in documents_read:
            yield document, is_equal(document, stored, quarantine)


def _applied_until(sessions: Sessions, since: Timestamp) -> Timestamp:
    """Return up to which cluster time the tail, which ended or is far behind, has applied the changes of the source.

    What was written since is not in the rows: that is a change which was not applied, and no difference.
    """
    state = positions.tail_state(sessions.target, sessions.profile.name)
    return since if state is None else min(since, state.position.time)


def aggregates_during_tail(results: Sequence[AggregateResult], *, tailed: bool) -> list[AggregateResult]:
    """Return the aggregates. Beside a tail, those that differ are unverified, because they are of two moments.

    ``tailed``: a tail ran at some time of the check; it may have ended since.
    """
    if not tailed:
        return list(results)
    return [
        msgspec.structs.replace(one, differing=(), differing_total=0, unverified=TWO_MOMENTS)
        if one.differing_total
        else one
        for one in results
    ]


def derived_during_tail(
    sessions: Sessions, compare: Callable[[], CollectionComparison], *, tailed: bool
) -> CollectionComparison:
    """Compare rows that many documents make together. While a tail runs, its next step may remove a difference.

    ``tailed``: as for ``aggregates_during_tail``.
    """
    if not tailed and not locks.is_tail_running(sessions.target):
        return compare()
    wait_until_comparable(sessions, derived=True)
    findings = compare()
    if findings.differing or findings.missing or findings.extra:
        return CollectionComparison(collection=findings.collection, tables=findings.tables, unverified=TWO_MOMENTS)
    return findings


def confirmed_extra_rows(
    sessions: Sessions, second_look: dict[str, ExtraRows], again: Callable[[set[str]], dict[str, ExtraRows]]
) -> tuple[dict[str, ExtraRows], dict[str, int]]:
    """Return the extra rows that still exist after the tail has applied all that the source says of them.

    Also return, by collection, the number of extra rows whose documents changed at each look.
    """
    confirmed: dict[str, ExtraRows] = {}
    for _ in range(MAX_LOOKS):
        if not second_look:
            break
        since = committed_time(sessions.source)
        reached = wait_until_comparable(sessions)
        now = _still(second_look, again(set(second_look)))
        named = {name: _documents(sessions, name, extra) for name, extra in now.items()}
        since = since if reached else _applied_until(sessions, since)
        moved = documents_touched_since(sessions, since, {name: set(ids.values()) for name, ids in named.items()})
        second_look = {}
        for name, extra in now.items():
            moving = moved.get(name, set())
            for finding in extra.findings:
                known = named[name].get(finding)
                place = confirmed if known is not None and known not in moving else second_look
                kept = place.setdefault(name, ExtraRows())
                kept.findings.append(finding)
                kept.tables[finding.table] += 1
            if name in confirmed and name not in second_look:
                confirmed[name].tables |= extra.tables  # the list may have been cut
        if not reached:
            break
    return confirmed, {name: len(extra.findings) for name, extra in second_look.items()}


def _still(before: Mapping[str, ExtraRows], now: Mapping[str, ExtraRows]) -> dict[str, ExtraRows]:
    """Return the extra rows that were so before, too."""
    still: dict[str, ExtraRows] = {}
    for name, extra in now.items():
        listed = {(one.table, one.key) for one in before[name].findings}
        kept = ExtraRows(findings=[one for one in extra.findings if (one.table, one.key) in listed])
        for one in kept.findings:
            kept.tables[one.table] = min(extra.tables[one.table], before[name].tables[one.table])
        if kept.findings:
            still[name] = kept
    return still


def _documents(sessions: Sessions, name: str, extra: ExtraRows) -> dict[Finding, str]:
    """Return the documents that extra rows came from; a row that is not there any more is left out."""
    collection = sessions.profile.by_name()[name]
    names: dict[Finding, str] = {}
    for record in collection.tables:
        here = [one for one in extra.findings if one.table == record.table]
        if has_source_column(record):
            names |= {one: one.key for one in here}
        elif here:
            origins = documents_of(sessions.target, collection, record, [one.key for one in here])
            names |= {one: origins[one.key] for one in here if one.key in origins}
    return names


def documents_touched_since(
    sessions: Sessions, since: Timestamp, named: Mapping[str, Iterable[str]]
) -> dict[str, set[str]]:
    """Return which of these documents the source says were touched since then; all, where it cannot say."""
    asked = {name: set(ids) for name, ids in named.items() if ids}
    if not asked:
        return {}
    changed = changed_since(sessions, since, committed_time(sessions.source))
    return asked if changed is None else {name: ids & set(changed.get(name, ())) for name, ids in asked.items()}
