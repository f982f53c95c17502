"""``run_summaries``: the projection of a schedule's runs, one per tenant and schedule."""

from typing import Any

import msgspec

from migrator.records import RunSummary, Schedule, attach_extra, remainder_of
from migrator.sources import aggregates, tenants
from migrator.sources.profile import Collection, Context, Decoded, Document, Note, Rows
from migrator.sources.shapes import Moment, Shape, filled, keys, known_paths, ordered_reader, read, text
from migrator.sources.stellaops import ids, names
from migrator.sources.stellaops.ids import by_field
from migrator.sources.stellaops.selector import respelled
from migrator.values import identity, jsonb
from migrator.values.times import format_iso

SOURCE = names.source(names.RUN_SUMMARIES)


class Entry(Shape):
    """One of the latest runs."""

    run_id: str | None = None
    trigger: str | None = None
    state: names.RunState | None = None
    created_at: Moment = None
    started_at: Moment = None
    finished_at: Moment = None
    error: str | None = None
    deltas: int | None = None


class Counters(Shape):
    """Runs by state, and what they found."""

    total: int | None = None
    planning: int | None = None
    queued: int | None = None
    running: int | None = None
    completed: int | None = None
    error: int | None = None
    cancelled: int | None = None
    total_deltas: int | None = None
    total_new_criticals: int | None = None
    total_new_high: int | None = None
    total_new_medium: int | None = None
    total_new_low: int | None = None


class SummaryDocument(Shape, kw_only=True):
    """A summary as it is stored."""

    key: Any = msgspec.field(name="_id")
    tenant_id: str | None = None
    schedule_id: str | None = None
    updated_at: Moment = None
    last_run: Entry | None = None
    recent: list[Entry] | None = None
    counters: Counters | None = None


_NAMES = keys(SummaryDocument)
_last_run, _recent, _counters = ordered_reader(Entry), ordered_reader(Entry, many=True), ordered_reader(Counters)
_STATES = {"canceled": "cancelled"}


def decode(document: Document, context: Context) -> Decoded:
    """Return the summary of a document."""
    found = read(document, SummaryDocument)
    notes: list[Note] = []
    tenant = tenants.tenant_of(found.tenant_id, context, notes)
    source_id = identity.source_id(found.key)
    schedule = text(found.schedule_id, "scheduleId")
    row = RunSummary(
        id=identity.row_id("run_summaries", tenant, names.RUN_SUMMARIES, source_id),
        tenant_id=tenant,
        source=SOURCE,
        source_id=source_id,
        schedule_id=None if schedule is None else ids.schedule_id(tenant, schedule),
        updated_at=found.updated_at,
        last_run=None if found.last_run is None else jsonb.encode(_spelled(document["lastRun"])),
        recent=None if found.recent is None else jsonb.encode([_spelled(entry) for entry in document["recent"]]),
        counters=None if found.counters is None else jsonb.encode(document["counters"]),
    )
    entries = [*(found.recent or ()), *([] if found.last_run is None else [found.last_run])]
    if any(entry.state in _STATES for entry in entries):
        notes.append(Note("alias", "recent[].state"))
    return Decoded((row,), tuple(notes))


def _spelled(entry: Document) -> Document:
    spelled: Document = respelled(entry, "state", _STATES)
    return spelled


def encode(rows: Rows) -> Document:
    """Return the document of a summary."""
    row: Any = rows[0]
    return filled(
        _NAMES,
        (
            identity.parse_source_id(row.source_id),
            row.tenant_id,
            ids.schedule_text(row.schedule_id),
            None if row.updated_at is None else format_iso(row.updated_at),
            None if row.last_run is None else _last_run(row.last_run),
            None if row.recent is None else _recent(row.recent),
            None if row.counters is None else _counters(row.counters),
        ),
    )


COLLECTION = Collection(
    name=names.RUN_SUMMARIES,
    tables=(RunSummary,),
    decode=decode,
    encode=encode,
    references=(by_field(RunSummary, "schedule_id", Schedule, "scheduleId", shared=True),),
    after=(names.SCHEDULES,),
    tenant_expression=aggregates.tenant(),
    measures=(
        *(aggregates.total(f"counters.{name}", "counters") for name in keys(Counters)),
        aggregates.length("recent", "recent"),
        aggregates.span("updatedAt", "updated_at"),
    ),
    attach=attach_extra,
    remainder=remainder_of,
    unique=(("tenant_id", "schedule_id"),),
    reference_paths=frozenset({"scheduleId"}),
    known=known_paths(SummaryDocument),
)
