"""The command ``assess``: what a database holds, from its address alone."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import click
import msgspec

from migrator.assessment import (
    HISTORY,
    NO_SOURCE,
    URI_VARIABLE,
    Assessment,
    AssessmentLimits,
    CollectionAssessment,
    SourceAssessment,
    assess,
    holds_login,
)
from migrator.cli.options import DurationType, allow_quarantined_option, finish, json_option, print_json, print_lines
from migrator.cli.text import count_words, table_lines
from migrator.errors import UsageError
from migrator.exit_status import Allowance, beyond, mask
from migrator.files import write_private
from migrator.report import renderer
from migrator.sources.recognition import WORDS
from migrator.telemetry import bytes_text

LISTED = 10
"""Reasons and fields that the page lists of each collection; ``--json`` has all of them."""


@click.command()
@click.argument("uri", envvar=URI_VARIABLE)
@click.option("--database", metavar="NAME", help="Name of the database (default: the one that the address names).")
@click.option(
    "--sample",
    type=click.IntRange(1, 1_000_000),
    default=AssessmentLimits().sample,
    show_default=True,
    metavar="N",
    help="Documents to read of one collection; of a larger one, as many are drawn at random.",
)
@click.option(
    "--time-limit",
    type=DurationType(),
    default="60s",
    show_default=True,
    help="How long to read; what was not read by then is said, and sets bit 4.",
)
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the page as HTML."
)
@click.option(
    "--write-config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PATH",
    help="Write the configuration file for the first source.",
)
@allow_quarantined_option
@json_option
def assess_command(
    uri: str,
    database: str | None,
    sample: int,
    time_limit: timedelta,
    report: Path | None,
    write_config: Path | None,
    allow_quarantined: Allowance,
    *,
    as_json: bool,
) -> None:
    """Say what the database of MongoDB at URI holds, and what would become of it.

    Needs no configuration and no target, asks no other address, and writes nothing into a database: which of the known
    sources it holds, which documents would move, what needs a decision, what the server can do, and the commands that
    come next. The address may stand in the environment variable MONGO_URI instead, where no list of processes shows
    its password. No file is overwritten.
    """
    for path in (report, write_config):
        if path is not None and path.exists():
            raise UsageError(f"{path} exists, and is not overwritten: name another file")
    limits = AssessmentLimits(sample=sample, seconds=time_limit.total_seconds())
    assessment = assess(uri, database, limits, str(write_config or "config.toml"))
    if write_config is not None:
        _write(write_config, assessment.config.encode())
    if report is not None:
        _write(report, renderer.assessment(assessment))
    if as_json:
        print_json(_fields(assessment))
    else:
        print_lines([*assessment_lines(assessment), *_written_lines(uri, report, write_config)])
    finish(mask(unverified=assessment.is_unverified, quarantine=beyond(assessment.quarantined, allow_quarantined)))


def _write(path: Path, content: bytes) -> None:
    try:
        write_private(path, content, exclusive=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or type(error).__name__}") from None


def _fields(assessment: Assessment) -> dict[str, object]:
    """Return the assessment with what is computed from it."""
    tree: dict[str, object] = msgspec.to_builtins(assessment)
    sources = [
        msgspec.to_builtins(one)
        | {
            "totals": one.totals,
            "history": one.history,
            "history_left_out": {"setting": HISTORY, "documents": one.history_left_out},
            "expected_moves": one.expected_moves,
        }
        for one in assessment.sources
    ]
    return tree | {"sources": sources}


def _written_lines(uri: str, report: Path | None, config: Path | None) -> Iterator[str]:
    if report is not None:
        yield f"the page is in {report}"
    if config is not None:
        login = f"; the address holds a login, so {URI_VARIABLE} has to hold it" if holds_login(uri) else ""
        yield f"the configuration is in {config}{login}"


def assessment_lines(assessment: Assessment) -> Iterator[str]:
    """Yield the page as lines for a terminal."""
    yield f"database {assessment.database}, {assessment.as_of:%Y-%m-%d %H:%M:%S} UTC: {assessment.server.words}"
    yield "documents were read from a secondary where one answers; nothing was written"
    if not assessment.sources:
        yield f"source: {NO_SOURCE}"
    for source in assessment.sources:
        yield ""
        yield from _source_lines(source)
    if assessment.others:
        yield ""
        yield "collections that no known source reads, and that would not move:"
        for other in assessment.others:
            count = "not counted" if other.documents is None else count_words(other.documents, "document")
            kind = "" if other.kind == "collection" else f" ({other.kind})"
            yield f"  {other.name}{kind}: {count}"
    yield ""
    yield "server:"
    for gate in assessment.gates:
        yield f"  {({True: 'ok', False: 'NO', None: '?'})[gate.passed]:<3} {gate.name}: {gate.words}"
    yield f"time of the copy: {assessment.copy_basis}"
    yield f"write pause of a cutover: about {assessment.write_pause_seconds:.1f} s ({assessment.pause_basis})"
    if assessment.over:
        yield f"the time limit of {assessment.limits.seconds:g} s was reached: what was not read is said above"
    yield ""
    yield "next:"
    yield from (f"  {command}" for command in assessment.commands)


def _source_lines(source: SourceAssessment) -> Iterator[str]:
    recognised = source.recognised
    yield f"source {recognised.profile} ({source.title}): {WORDS[recognised.sure]}"
    yield from (f"  {line}" for line in recognised.why)
    head = ("collection", "documents", "size", "read", "would move", "quarantined", "left out", "ended")
    rows = [
        (
            one.name,
            f"{one.documents:,}",
            bytes_text(one.bytes),
            one.share,
            f"{one.moves:,}",
            f"{one.quarantined:,}",
            f"{one.left_out:,}",
            f"{one.ended:,}",
        )
        for one in source.collections
    ]
    yield from (f"  {line}" for line in table_lines(head, rows))
    totals = source.totals
    yield (
        f"  of {totals['read']:,} documents read, {totals['moves']:,} would move, {totals['quarantined']:,} would be"
        f" quarantined, {totals['left out']:,} are left out by a rule"
    )
    if source.history:
        ages = "; ".join(f"{age}: {count:,}" for age, count in source.history.items())
        share = sum(source.history.values()) / max(source.expected_moves, 1)
        about = "" if source.is_whole else "about "
        yield f"  {about}{share:.1%} of all that would move say of work that has ended: {ages}"
    yield from (f"  {line}" for line in _history_lines(source))
    yield from (f"  {line}" for one in source.collections for line in _collection_lines(one))
    yield from (f"  {line}" for line in _state_lines(source))
    yield f"  expected time of the copy: {'about ' if source.copy_seconds else 'under '}{source.copy_seconds or 1:,} s"
    for offer in source.targets:
        yield f"  target {offer.name} ({offer.title}): {offer.cutover}"


def _history_lines(source: SourceAssessment) -> Iterator[str]:
    """Yield the documents that a setting would leave out, if it is for a collection of the source."""
    counted = {name: count for name, count in source.history_left_out.items() if count is not None}
    if counted:
        about = "" if source.is_whole or not any(counted.values()) else "about "
        each = ", ".join(f"{name} {count:,}" for name, count in counted.items())
        words = count_words(sum(counted.values()), "document")
        yield f'[copy] history = "{HISTORY}" would leave out {about}{words} that finished earlier ({each})'
    for name in source.history_left_out.keys() - counted.keys():
        yield f'{name}: not counted what [copy] history = "{HISTORY}" would leave out'


def _collection_lines(collection: CollectionAssessment) -> Iterator[str]:
    if collection.unread:
        yield f"{collection.name}: not read{' to the end' if collection.read else ''}: {collection.unread}"
    elif not collection.whole:
        yield f"{collection.name}: a sample, drawn at random by the server; a rare field or reason may not be in it"
    for reason in collection.counted.quarantine[:LISTED]:
        where = f" at {reason.path}" if reason.path else ""
        words = count_words(reason.documents, "document")
        yield f"{collection.name}: {words} would be quarantined: {reason.kind}{where}"
    for why, count in collection.skipped.items():
        yield f"{collection.name}: {count_words(count, 'document')} left out: {why}"
    if unknown := [field.path for field in collection.counted.unknown]:
        more = f" and {len(unknown) - LISTED:,} more" if len(unknown) > LISTED else ""
        yield f"{collection.name}: fields without a column, kept in the remainder: {', '.join(unknown[:LISTED])}{more}"


def _state_lines(source: SourceAssessment) -> Iterator[str]:
    if source.default_tenant is not None:
        yield f"to be decided: documents name no tenant; [source] default_tenant, here {source.default_tenant}"
    if source.needs_zone:
        words = count_words(source.needs_zone, "document")
        yield f"to be decided: the meaning of {words} depends on a zone: [source] zone"
    if source.zones:
        named = ", ".join(f"{zone} ({count:,})" for zone, count in source.zones.items())
        yield f"time zones of triggers: {named}"
    yield f"overdue triggers: {source.overdue:,}"
    yield f"locks: {source.locks_live:,} live, {source.locks_stale:,} expired, which are left out"
    over = f", {source.running_over:,} of them past their lease" if source.running_over else ""
    yield f"runs that are being executed, by their documents: {source.running:,}{over}"
    if source.missing:
        yield f"collections of the source that the database does not have: {', '.join(source.missing)}"
