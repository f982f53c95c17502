"""Commands about the source and its copy: inspect, tail, status, quarantine."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from migrator.cli.confirmation import confirm, named_approval, named_approval_options, yes_option
from migrator.cli.options import allow_quarantined_option, common_options, dry_run_option, finish, load, show
from migrator.cli.text import (
    NOTHING_COMPARED,
    census_lines,
    field_lines,
    status_lines,
    tail_lines,
)
from migrator.cutover import status
from migrator.cutover.replication import PendingWriteBack, follow, pending
from migrator.errors import UsageError
from migrator.exit_status import Allowance, beyond, mask
from migrator.files import write_private
from migrator.pipeline.census import census
from migrator.pipeline.plan import Scope
from migrator.pipeline.quarantine import Entry, chosen_entries, drop, entries, extended_json, raw_document
from migrator.pipeline.quarantine import retry as retry_all
from migrator.pipeline.status import copy_status
from migrator.pipeline.tail.backlog import PendingChanges
from migrator.pipeline.tail.loop import TailResult
from migrator.pipeline.tail.metrics import require_writable
from migrator.pipeline.tail.positions import as_datetime

FINISHED = "the cutover is finished: the tail and the reverse sync have ended, and this process is not needed"


@click.command()
@click.option("--only", multiple=True, metavar="COLLECTION", help="Read only this collection; repeatable.")
@click.option("--fields", is_flag=True, help="List every field path with its types, not only the unknown ones.")
@allow_quarantined_option
@common_options
def inspect_command(
    config: str | None, only: tuple[str, ...], allow_quarantined: Allowance, *, fields: bool, as_json: bool
) -> None:
    """Count documents, field paths and types of the source; list fields without a column and what would be quarantined.

    Reads every document; needs no target and writes nothing.
    """
    found = census(load(config), Scope(only=tuple(sorted(set(only)))))
    show(found, [*census_lines(found), *(field_lines(found) if fields else ())], as_json=as_json)
    count = sum(reason.documents for one in found.collections for reason in one.quarantine)
    finish(mask(quarantine=beyond(count, allow_quarantined)))


@click.command()
@click.option(
    "--until-caught-up", is_flag=True, help="Exit when all changes that the source has committed by now are applied."
)
@click.option(
    "--metrics-file", type=click.Path(), metavar="F", help="Write metrics as Prometheus text to file F, periodically."
)
@allow_quarantined_option
@dry_run_option
@common_options
def tail_command(
    config: str | None,
    metrics_file: str | None,
    allow_quarantined: Allowance,
    *,
    until_caught_up: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Follow the change stream of the source after the copy, and update rows. Ctrl-C stops it at a commit.

    After a cutover the direction changes: the tail updates documents as rows change. It exits with status 0 when the
    cutover is finished.
    """
    settings = load(config)
    if dry_run:
        waits = pending(settings)
        show({"finished": True} if waits is None else waits, _pending_lines(waits), as_json=as_json)
        finish(mask())
    if metrics_file is not None:
        require_writable(Path(metrics_file))
    done = follow(
        settings,
        until="caught-up" if until_caught_up else None,
        metrics_file=None if metrics_file is None else Path(metrics_file),
    )
    if done is None:
        show({"finished": True}, [FINISHED], as_json=as_json)
        finish(mask())
    if not isinstance(done, TailResult):
        line = f"reverse sync: {done.documents:,} documents written to MongoDB, {done.removed:,} removed"
        found = {"documents": done.documents, "removed": done.removed, "notes": done.notes}
        show(found, [line], as_json=as_json)
        finish(mask())
    fields = msgspec.structs.asdict(done) | {"position": as_datetime(done.position)}
    show(fields, tail_lines(done), as_json=as_json)
    unfinished = not done.applied or (until_caught_up and not done.reached)
    finish(mask(unverified=unfinished, quarantine=beyond(done.quarantined, allow_quarantined)))


def _pending_lines(changes: PendingChanges | PendingWriteBack | None) -> Iterator[str]:
    """Yield the pending work of the tail."""
    if changes is None:
        yield FINISHED
    elif isinstance(changes, PendingWriteBack):
        yield f"would write the documents of {changes.rows:,} changed rows to MongoDB"
    else:
        yield f"would apply {changes.events:,} changes since {changes.position_at:%Y-%m-%d %H:%M:%S} UTC"
        yield from (f"{name}: {count:,} documents would be read again" for name, count in changes.documents.items())
        yield from (f"{name}: every document would be read again: it was dropped or renamed" for name in changes.whole)
        if changes.owed:
            yield f"{changes.owed:,} documents of earlier changes would be read again"
        if changes.reason:
            yield f"rows would not be updated yet: {changes.reason}"
    yield "nothing was written"


@click.command()
@allow_quarantined_option
@common_options
def status_command(config: str | None, allow_quarantined: Allowance, *, as_json: bool) -> None:
    """Show the state of the copy and of the tail: chunks, documents, quarantine, and what remains to be done."""
    settings = load(config)
    copy, waits = copy_status(settings), status.attention(settings, config)
    lines = [*status_lines(copy), *(status.attention_lines(waits) if waits else ())]
    show(msgspec.to_builtins(copy) | {"attention": waits}, lines, as_json=as_json)
    unfinished = copy.plan is not None and (copy.plan.state == "open" or copy.owed)
    alarmed = copy.tail is not None and copy.tail.alarm is not None
    quarantined = beyond(copy.quarantined, allow_quarantined)
    finish(mask(unverified=unfinished or alarmed or waits, quarantine=quarantined))


_filters = (
    click.option("--collection", metavar="COLLECTION", help="Only this collection."),
    click.option("--code", metavar="CODE", help="Only this reason code."),
)


@click.group()
def quarantine_group() -> None:
    """List, show, retry or drop the documents in quarantine."""


@quarantine_group.command("list")
@_filters[0]
@_filters[1]
@click.option("--dropped", is_flag=True, help="List the documents that were dropped, with who decided it and why.")
@allow_quarantined_option
@common_options
def list_command(
    config: str | None,
    collection: str | None,
    code: str | None,
    allow_quarantined: Allowance,
    *,
    dropped: bool,
    as_json: bool,
) -> None:
    """List the documents in quarantine, with their collection and the reason."""
    listed = entries(load(config), collection, code, dropped=dropped)
    where = "dropped from quarantine" if dropped else "in quarantine"
    show(listed, [*map(_entry_line, listed), f"{len(listed):,} documents {where}"], as_json=as_json)
    if dropped:
        finish(mask())
    finish(mask(quarantine=beyond(len(listed), allow_quarantined)))


@quarantine_group.command()
@click.argument("collection")
@click.argument("source_id")
@click.option("--values", is_flag=True, help="Print the document itself, as Extended JSON.")
@click.option("--raw", type=click.Path(), help="Write the document's bytes (BSON) to this file.")
@allow_quarantined_option
@common_options
def show_command(
    config: str | None,
    collection: str,
    source_id: str,
    raw: str | None,
    allow_quarantined: Allowance,
    **flags: bool,
) -> None:
    """Show one document in quarantine, and its values only with --values."""
    entry, content = raw_document(load(config), collection, source_id)
    if raw is not None:
        _write_raw(Path(raw), content)
    document = extended_json(content) if flags["values"] else None
    fields = msgspec.to_builtins(entry) | ({} if document is None else {"document": document})
    stated = ((name, getattr(entry, name)) for name in entry.__struct_fields__)
    lines = [f"{name}: {value}" for name, value in stated if value is not None]
    show(fields, [*lines, *(document.split("\n") if document else ())], as_json=flags["as_json"])
    finish(mask(quarantine=beyond(1, allow_quarantined)))


@quarantine_group.command()
@_filters[0]
@_filters[1]
@allow_quarantined_option
@dry_run_option
@common_options
def retry_command(
    config: str | None,
    collection: str | None,
    code: str | None,
    allow_quarantined: Allowance,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Read the documents in quarantine again, and load those that can be loaded now."""
    done = retry_all(load(config), collection, code, dry_run=dry_run)
    verb = "would load" if dry_run else "loaded"
    lines = [f"{verb} {done.loaded:,}, still in quarantine {done.rejected:,}, deleted in the source {done.gone:,}"]
    if done.loaded and not dry_run:
        lines.append("other rows may refer to the loaded ones: run migrator backfill again to resolve their references")
    show(done, [*lines, "nothing was written" if dry_run else NOTHING_COMPARED], as_json=as_json)
    finish(mask(quarantine=beyond(done.rejected, allow_quarantined)))


@quarantine_group.command()
@click.argument("collection", required=False)
@click.argument("source_id", required=False)
@_filters[1]
@named_approval_options
@yes_option
@dry_run_option
@common_options
def drop_command(
    config: str | None,
    collection: str | None,
    source_id: str | None,
    code: str | None,
    who: str | None,
    reason: str | None,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Drop documents from quarantine: one, all of a COLLECTION, or all with a code.

    They are not migrated. The parity check counts them as left out on purpose, and the report lists them with who
    decided it and why. A document that changes in the source later returns to quarantine. On a terminal it shows what
    will happen, and asks for the environment's name.
    """
    if collection is None and code is None:
        raise UsageError("name what is given up: COLLECTION SOURCE_ID, COLLECTION, or --code CODE")
    by = named_approval(who, reason, "quarantine drop")
    settings = load(config)
    chosen = chosen_entries(settings, collection, source_id, code)
    if dry_run:
        lines = [*_drop_summary(chosen), f"{len(chosen):,} documents would be dropped; nothing was written"]
        show({"would_drop": len(chosen)}, lines, as_json=as_json)
        finish(mask())
    confirm(settings, f"drop {len(chosen):,} documents from quarantine", lambda: _drop_summary(chosen), yes=yes)
    count = drop(settings, chosen, by)
    lines = [f"dropped {count:,} documents from quarantine: {by.who} decided it, because {by.reason}", NOTHING_COMPARED]
    show({"dropped": count, "who": by.who, "reason": by.reason}, lines, as_json=as_json)


def _drop_summary(chosen: Sequence[Entry]) -> Iterator[str]:
    counts = Counter((one.collection, one.reason) for one in chosen)
    yield from (f"{name}: {count:,} x {code} are not migrated" for (name, code), count in sorted(counts.items()))


def _entry_line(one: Entry) -> str:
    decided = f"; dropped by {one.dropped_by}: {one.dropped_because}" if one.dropped_by is not None else ""
    place = one.path or "the document"
    return f"{one.collection}  {one.source_id}  {one.reason} at {place}: expected {one.expected}{decided}"


def _write_raw(file: Path, content: bytes) -> None:
    """Write a document's bytes into a new file; raise ``UsageError`` if the file exists, or cannot be created."""
    try:
        write_private(file, content, exclusive=True)
    except FileExistsError:
        raise UsageError(f"--raw: {file} exists and is not overwritten; name another file") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no legal name"
        raise UsageError(f"--raw: cannot write {file}: {why or type(error).__name__}") from None
