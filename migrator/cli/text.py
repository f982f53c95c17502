"""What commands print for people: plain lines, made from what the flows return."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from migrator.telemetry import bytes_text, visible

if TYPE_CHECKING:  # a command loads the flow that it calls, and no other
    from migrator.pipeline.backfill import BackfillResult
    from migrator.pipeline.census import Census
    from migrator.pipeline.named_losses import NamedLoss
    from migrator.pipeline.plan import BackfillPlan
    from migrator.pipeline.source_sample import BrokenReference, Example, SourceSample
    from migrator.pipeline.status import CopyStatus, TailStatus
    from migrator.pipeline.tail.loop import TailResult
    from migrator.pipeline.tail.reread import RereadResult

NOTHING_COMPARED = "nothing compared: run migrator parity, or migrator verify"


def _in_quarantine(documents: int) -> str:
    """Return how many documents are in quarantine, and the command that lists them."""
    verb = "is" if documents == 1 else "are"
    return f"{_documents(documents)} {verb} in quarantine: migrator quarantine list"


def backfill_lines(done: "BackfillResult", *, dry_run: bool) -> Iterator[str]:
    """Yield the summary of a copy."""
    yield f"{'collection':<20} {'documents':>11} {'rows':>11} {'written':>11} {'quarantined':>11} {'skipped':>8}"
    for name, counts in done.by_collection.items():
        yield (
            f"{name:<20} {counts.documents:>11,} {sum(counts.rows.values()):>11,} {sum(counts.written.values()):>11,}"
            f" {counts.quarantined:>11,} {sum(counts.skipped.values()):>8,}"
        )
    verb = "would write" if dry_run else "wrote"
    resumed = " (resumed)" if done.resumed else ""
    yield (
        f"read {done.documents:,} documents in {done.chunks:,} chunks{resumed}, {verb} "
        f"{done.rows if dry_run else done.written:,} rows; {done.skipped:,} skipped by rule, "
        f"{done.dangling:,} dangling references kept as text"
    )
    if done.unknown_collections:
        yield f"not read, unknown to the profile: {', '.join(done.unknown_collections)}"
    if done.quarantined and dry_run:
        yield f"{_documents(done.quarantined)} would be quarantined; nothing was written"
    elif done.quarantined:
        yield _in_quarantine(done.quarantined)
    if not done.complete:
        yield "interrupted: the finished chunks are kept; call migrator backfill again to continue"
    yield NOTHING_COMPARED


def reread_lines(done: "RereadResult", *, dry_run: bool) -> Iterator[str]:
    """Yield the totals of documents that were read again."""
    for name, documents in done.documents.items():
        yield f"{name}: {documents:,} documents {'would be' if dry_run else 'were'} read again"
    if dry_run:
        yield "nothing was written"
    else:
        yield f"wrote {done.written:,} rows, removed {done.removed:,}"
    if done.quarantined:
        yield f"{done.quarantined:,} documents of these collections are in quarantine: migrator quarantine list"
    yield NOTHING_COMPARED


def sample_lines(sample: "SourceSample") -> Iterator[str]:
    """Yield the outcome of a sample of documents: counts first, then reasons, then the examples."""
    yield f"{'collection':<20} {'sample':>11} {'clean':>8} {'quarantined':>11} {'skipped':>8}"
    for collection in sample.collections:
        share = f"{100 * collection.clean / collection.documents:.1f} %" if collection.documents else "-"
        quarantined = sum(reason.documents for reason in collection.quarantine)
        yield (
            f"{collection.collection:<20} {collection.documents:>11,} {share:>8} {quarantined:>11,}"
            f" {sum(collection.skipped.values()):>8,}"
        )
    for collection in sample.collections:
        for verb, reasons in (
            ("would be quarantined", collection.quarantine),
            ("finding", collection.findings),
            ("kept in the remainder", collection.remainder),
        ):
            for reason in reasons:
                where = f" at {reason.path}" if reason.path else ""
                yield f"{collection.collection}: {verb}: {reason.kind}{where}: {_documents(reason.documents)}"
        yield from (_reference_line(collection.collection, reference) for reference in collection.references)
        yield from (
            f"{collection.collection}: skipped: {why}: {_documents(count)}" for why, count in collection.skipped.items()
        )
        for word in collection.words:
            what = f"the word {word.word!r}" if word.word else "words (--show-values lists them)"
            yield f"{collection.collection}: no mapping for {what} at {word.path}: {_documents(word.documents)}"
        for number, example in enumerate(collection.examples, 1):
            yield from _example_lines(collection.collection, number, example)
    if sample.missing:
        yield f"not in database {sample.database}: {', '.join(sample.missing)}"
    if sample.unknown:
        yield f"not read by {sample.profile}: {', '.join(sample.unknown)}"


def _reference_line(collection: str, reference: "BrokenReference") -> str:
    state = (
        f"{collection}: reference {reference.path} to {reference.collection}: {reference.dangling:,} of"
        f" {reference.documents:,}"
        f" documents name no _id of {reference.collection}"
    )
    if reference.field:
        return (
            f'{state}, and its field {reference.field} has such values: by = "{reference.field}" says that it names'
            " them"
        )
    return f"{state}: they are loaded without the reference"


def _documents(count: int) -> str:
    return count_words(count, "document")


def _example_lines(collection: str, number: int, example: "Example") -> Iterator[str]:
    yield f"{collection}: example {number}"
    for row in example.rows:
        yield f"  row of {row.table}: " + ", ".join(f"{name} {value}" for name, value in row.columns.items())
    yield "  rebuilt: " + ", ".join(f"{name} {value}" for name, value in example.rebuilt.items())
    if example.remainder:
        yield f"  remainder: {', '.join(example.remainder)}"


def census_lines(counted: "Census") -> Iterator[str]:
    """Yield a census: sizes first, then what a person should read."""
    yield f"{'collection':<20} {'documents':>11} {'bytes':>10} {'largest':>9} {'clean':>8} {'fields':>7} {'unknown':>8}"
    for collection in counted.collections:
        share = f"{100 * collection.clean / collection.documents:.1f} %" if collection.documents else "-"
        yield (
            f"{collection.collection:<20} {collection.documents:>11,} {bytes_text(collection.bytes):>10}"
            f" {bytes_text(collection.largest):>9}"
            f" {share:>8} {len(collection.fields):>7,} {len(collection.unknown):>8,}"
        )
    for collection in counted.collections:
        for field in collection.unknown:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in field.types.items())
            yield f"{collection.collection}: no column for {field.path} ({kinds}); the remainder keeps it"
        for verb, reasons in (
            ("would be quarantined", collection.quarantine),
            ("finding", collection.findings),
            ("kept in the remainder", collection.remainder),
        ):
            for reason in reasons:
                place = reason.path or "the document"
                yield f"{collection.collection}: {verb}: {reason.documents:,} x {reason.kind} at {place}"
        for reason_text, count in collection.skipped.items():
            yield f"{collection.collection}: skipped by rule: {count:,} x {reason_text}"
    if counted.unknown_collections:
        yield f"not read, unknown to the profile: {', '.join(counted.unknown_collections)}"
    yield "nothing written, nothing compared"


def plan_lines(plan: "BackfillPlan") -> Iterator[str]:
    """Yield a plan."""
    yield f"{'collection':<20} {'documents':>11} {'average':>9} {'chunks':>7}  mode    tables"
    for collection in plan.collections:
        yield (
            f"{collection.collection:<20} {collection.documents:>11,} {bytes_text(collection.average_bytes):>9}"
            f" {len(collection.chunks):>7,}"
            f"  {collection.mode:<7} {', '.join(collection.tables)}"
        )
    yield from _history_lines(plan)
    if plan.resumes:
        yield "the ledger has an unfinished copy: backfill continues it"
    yield from (loss_line(loss) for collection in plan.collections for loss in collection.losses)
    yield f"estimated time with {plan.workers} workers: {plan.estimated_seconds} s"
    for risk in plan.risks:
        yield f"risk: {risk}"
    yield "nothing written, nothing compared"


def _history_lines(plan: "BackfillPlan") -> Iterator[str]:
    """Yield the documents that are left out as history, and the collections that the rule does not touch."""
    scope = plan.history
    if scope.before is None and scope.setting == "all":
        return
    if scope.before is None:
        yield (
            f'history = "{scope.setting}" leaves nothing out: all documents were copied before'
            if scope.covers
            else f'history = "{scope.setting}" leaves nothing out: the source declares no finished documents'
        )
        return
    yield f'history = "{scope.setting}": left out is what finished before {scope.before:%Y-%m-%d %H:%M:%S} UTC'
    if scope.kept:
        yield "this cutoff is that of the copy before: what was copied stays"
    for collection in plan.collections:
        if collection.collection in scope.covers:
            yield f"{collection.collection}: left out as history: {collection.left_out:,} of {collection.documents:,}"
    if scope.others:
        yield f"copied whatever their age: {', '.join(scope.others)}"


def loss_line(loss: "NamedLoss") -> str:
    """Return the line of a loss by name."""
    return (
        f"{loss.collection}: lost to the library: {loss.path} in {loss.documents:,} of {_documents(loss.sample)}"
        f" looked at: {loss.reason}"
    )


def status_lines(status: "CopyStatus") -> Iterator[str]:
    """Yield the state of the copy."""
    plan = status.plan
    yield from status.control.lines()
    if plan is None:
        yield "nothing was copied into this target yet"
        return
    profile = f"{plan.profile}/{plan.profile_version}"
    yield f"plan {plan.id} of {plan.as_of:%Y-%m-%d %H:%M:%S} UTC, profile {profile}: {plan.state}"
    yield f"{'collection':<20} {'chunks':>13} {'documents':>11} {'quarantined':>11} {'skipped':>8}"
    for collection in status.collections:
        yield (
            f"{collection.collection:<20} {collection.done:>6,}/{collection.chunks:<6,}"
            f" {collection.documents:>11,} {collection.quarantined:>11,}"
            f" {collection.skipped:>8,}"
        )
    if status.owed:
        yield f"indexes and foreign keys still to be created: {status.owed}; backfill creates them"
    yield f"in quarantine now: {status.quarantined:,}"
    if status.dropped:
        yield f"dropped from quarantine, by a person's decision: {status.dropped:,}; migrator quarantine list --dropped"
    if status.tail is not None:
        yield from _tail_lines(status.tail)


def _tail_lines(tail: "TailStatus") -> Iterator[str]:
    last = "no event yet" if tail.last_event_at is None else f"last event {tail.last_event_at:%Y-%m-%d %H:%M:%S} UTC"
    rate = f"; {tail.rate:,.0f} events/s" if tail.follows else ""
    yield (
        f"tail {'follows' if tail.follows else 'is not running'}: at {tail.position_at:%Y-%m-%d %H:%M:%S} UTC,"
        f" lag {tail.lag_s:,.0f} s; {last}{rate}"
    )
    yield (
        f"tail: {tail.events:,} events, {tail.documents:,} documents applied, {tail.written:,} rows written,"
        f" {tail.removed:,} removed, {tail.owed:,} documents in the backlog"
    )
    if tail.alarm is not None:
        yield f"ALARM of the tail since {tail.alarm_at:%Y-%m-%d %H:%M:%S} UTC: {tail.alarm}"
        yield "a parity check finds what the tail missed: migrator parity --repair apply"


def tail_lines(done: "TailResult") -> Iterator[str]:
    """Yield the result of a call of the tail."""
    yield (
        f"{done.events:,} events, {done.documents:,} documents applied: {done.written:,} rows written,"
        f" {done.removed:,} removed"
    )
    if done.reason:
        yield f"rows are not up to date: {done.reason}; {done.owed:,} documents are in the backlog"
    elif done.owed:
        yield f"{done.owed:,} documents are in the backlog, to be read again"
    at = datetime.fromtimestamp(done.position.time, UTC)
    yield f"{'caught up with' if done.reached else 'stopped at'} {at:%Y-%m-%d %H:%M:%S} UTC of the source's time"
    if done.quarantined:
        yield _in_quarantine(done.quarantined)
    yield NOTHING_COMPARED


def field_lines(found: "Census") -> Iterator[str]:
    """Yield every field path of a census with its types."""
    for one in found.collections:
        for field in one.fields:
            yield f"{one.collection}: {field.path}: {', '.join(f'{kind} {n:,}' for kind, n in field.types.items())}"


def count_words(count: int, noun: str) -> str:
    """Return a number of things, in words."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def table_lines(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table: columns as wide as their widest cell, the last one as it is; a cell is one line."""
    shown = [head, *(tuple(visible(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(head) - 1)]
    for row in shown:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[-1]]).rstrip()
