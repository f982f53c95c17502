"""``run_summaries``: the projection of a schedule's runs, one per tenant and schedule."""

from migrator.sources import aggregates
from migrator.sources.mapping.language import Derivation, Mapped, Reading
from migrator.sources.profile import Context, Document, Note
from migrator.sources.shapes import Moment, Shape, keys
from migrator.sources.store_documents import names
from migrator.sources.store_documents.fields import TENANT, json, reference, time


class SummaryEntry(Shape):
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


_SPELLINGS = {"state": {"canceled": "cancelled"}}


def _derive(document: Document, reading: Reading, _context: Context) -> None:
    """Note an older spelling of a state, once for all entries."""
    entries = [*(document.get("recent") or ()), document.get("lastRun") or {}]
    if any(entry.get("state") in _SPELLINGS["state"] for entry in entries):
        reading.notes.append(Note("alias", "recent[].state"))


SUMMARIES = Mapped(
    name=names.RUN_SUMMARIES,
    tables=("run_summaries",),
    fields=(
        TENANT,
        reference("run_summaries.scheduleId", shared=True),
        time("run_summaries.updatedAt"),
        json("run_summaries.lastRun", SummaryEntry, respelled=_SPELLINGS, finding=""),
        json("run_summaries.recent", list[SummaryEntry], respelled=_SPELLINGS, finding=""),
        json("run_summaries.counters", Counters),
    ),
    derive=_derive,
    derive_if=Derivation(),  # respelled words alone
    measures=(
        *(aggregates.total(f"counters.{name}", "counters") for name in keys(Counters)),
        aggregates.length("recent", "recent"),
        aggregates.span("updatedAt", "updated_at"),
    ),
)
