"""What commands print for people: plain lines, made from what the flows return."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from migrator.telemetry import bytes_text, visible

if TYPE_CHECKING:  # a command loads the flow that it calls, and no other
    from migrator.pipeline.backfill import BackfillResult
    from migrator.pipeline.census import Census
    from migrator.pipeline.plan import BackfillPlan
    from migrator.pipeline.source_sample import BrokenReference, Example, SourceSample
    from migrator.pipeline.status import CopyStatus, TailStatus
    from migrator.pipeline.tail.loop import TailResult

NOTHING_COMPARED = "nothing compared: run migrator parity, or migrator verify"


def backfill_lines(done: "BackfillResult", *, dry_run: bool) -> Iterator[str]:
    """Yield the summary of a copy."""
    yield f"{'collection':<20} {'documents':>11} {'rows':>11} {'written':>11} {'quarantined':>11} {'skipped':>8}"
    for name, one in done.by_collection.items():
        yield (
            f"{name:<20} {one.documents:>11,} {sum(one.rows.values()):>11,} {sum(one.written.values()):>11,}"
            f" {one.quarantined:>11,} {sum(one.skipped.values()):>8,}"
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
        noun = "document" if done.quarantined == 1 else "documents"
        yield f"{done.quarantined:,} {noun} would be quarantined; nothing was written"
    elif done.quarantined:
        yield f"{done.quarantined:,} documents are in quarantine: migrator quarantine list"
    if not done.complete:
        yield "interrupted: the finished chunks are kept; call migrator backfill again to continue"
    yield NOTHING_COMPARED


def sample_lines(found: "SourceSample") -> Iterator[str]:
    """Yield what a source makes of a sample: counts first, then reasons, then the examples."""
    yield f"{'collection':<20} {'sample':>11} {'clean':>8} {'quarantined':>11} {'skipped':>8}"
    for one in found.collections:
        share = f"{100 * one.clean / one.documents:.1f} %" if one.documents else "-"
        quarantined = sum(reason.documents for reason in one.quarantine)
        yield (
            f"{one.collection:<20} {one.documents:>11,} {share:>8} {quarantined:>11,} {sum(one.skipped.values()):>8,}"
        )
    for one in found.collections:
        for verb, reasons in (
            ("would be quarantined", one.quarantine),
            ("finding", one.findings),
            ("kept in the remainder", one.remainder),
        ):
            for reason in reasons:
                where = f" at {reason.path}" if reason.path else ""
                yield f"{one.collection}: {verb}: {reason.kind}{where}: {_documents(reason.documents)}"
        yield from (_reference_line(one.collection, reference) for reference in one.references)
        yield from (f"{one.collection}: skipped: {why}: {_documents(count)}" for why, count in one.skipped.items())
        for word in one.words:
            what = f"the word {word.word!r}" if word.word else "words (--show-values lists them)"
            yield f"{one.collection}: no mapping for {what} at {word.path}: {_documents(word.documents)}"
        for number, example in enumerate(one.examples, 1):
            yield from _example_lines(one.collection, number, example)
    if found.missing:
        yield f"not in database {found.database}: {', '.join(found.missing)}"
    if found.unknown:
        yield f"not read by {found.profile}: {', '.join(found.unknown)}"


def _reference_line(collection: str, found: "BrokenReference") -> str:
    words = (
        f"{collection}: reference {found.path} to {found.collection}: {found.dangling:,} of {found.documents:,}"
        f" documents name no _id of {found.collection}"
    )
    if found.field:
        return f'{words}, and its field {found.field} has such values: by = "{found.field}" says that it names them'
    return f"{words}: they are loaded without the reference"


def _documents(count: int) -> str:
    return f"{count:,} document" if count == 1 else f"{count:,} documents"


def _example_lines(collection: str, number: int, example: "Example") -> Iterator[str]:
    yield f"{collection}: example {number}"
    for row in example.rows:
        yield f"  row of {row.table}: " + ", ".join(f"{name} {value}" for name, value in row.columns.items())
    yield "  rebuilt: " + ", ".join(f"{name} {value}" for name, value in example.rebuilt.items())
    if example.remainder:
        yield f"  remainder: {', '.join(example.remainder)}"


def census_lines(found: "Census") -> Iterator[str]:
    """Yield a census: sizes first, then what a person should read."""
    yield f"{'collection':<20} {'documents':>11} {'bytes':>10} {'largest':>9} {'clean':>8} {'fields':>7} {'unknown':>8}"
    for one in found.collections:
        share = f"{100 * one.clean / one.documents:.1f} %" if one.documents else "-"
        yield (
            f"{one.collection:<20} {one.documents:>11,} {bytes_text(one.bytes):>10} {bytes_text(one.largest):>9}"
            f" {share:>8} {len(one.fields):>7,} {len(one.unknown):>8,}"
        )
    for one in found.collections:
        for field in one.unknown:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in field.types.items())
            yield f"{one.collection}: no column for {field.path} ({kinds}); the remainder keeps it"
        for verb, reasons in (
            ("would be quarantined", one.quarantine),
            ("finding", one.findings),
            ("kept in the remainder", one.remainder),
        ):
            for reason in reasons:
                place = reason.path or "the document"
                yield f"{one.collection}: {verb}: {reason.documents:,} x {reason.kind} at {place}"
        for reason_text, count in one.skipped.items():
            yield f"{one.collection}: skipped by rule: {count:,} x {reason_text}"
    if found.unknown_collections:
        yield f"not read, unknown to the profile: {', '.join(found.unknown_collections)}"
    yield "nothing written, nothing compared"


def plan_lines(plan: "BackfillPlan") -> Iterator[str]:
    """Yield a plan."""
    yield f"{'collection':<20} {'documents':>11} {'average':>9} {'chunks':>7}  mode    tables"
    for one in plan.collections:
        yield (
            f"{one.collection:<20} {one.documents:>11,} {bytes_text(one.average_bytes):>9} {len(one.chunks):>7,}"
            f"  {one.mode:<7} {', '.join(one.tables)}"
        )
    if plan.resumes:
        yield "the ledger has an unfinished copy: backfill continues it"
    yield f"estimated time with {plan.workers} workers: {plan.estimated_seconds} s"
    for risk in plan.risks:
        yield f"risk: {risk}"
    yield "nothing written, nothing compared"


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
    for one in status.collections:
        yield (
            f"{one.collection:<20} {one.done:>6,}/{one.chunks:<6,} {one.documents:>11,} {one.quarantined:>11,}"
            f" {one.skipped:>8,}"
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
        yield f"{done.quarantined:,} documents are in quarantine: migrator quarantine list"
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
