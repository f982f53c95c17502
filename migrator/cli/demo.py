"""Commands of the demo: a whole migration between two servers of its own, and its data in another server."""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import msgspec
from pymongo import MongoClient
from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from migrator import result as results
from migrator.cli import text
from migrator.cli.options import (
    allow_quarantined_option,
    common_options,
    dry_run_option,
    finish,
    load,
    print_lines,
    print_progress,
    show,
)
from migrator.config import CutoverSettings, MongoSettings, PostgresSettings, Settings, SourceSettings, mongo_uri
from migrator.connections.mongo import open_source, translate_errors
from migrator.errors import RefusedError, UsageError
from migrator.exit_status import Allowance, mask
from migrator.files import write_private
from migrator.pipeline import quarantine
from migrator.pipeline.backfill import BackfillResult, backfill
from migrator.pipeline.census import census
from migrator.pipeline.plan import Scope, plan_backfill
from migrator.report import wording
from migrator.schema.revisions import upgrade
from migrator.telemetry import output_settings, visible
from migrator.testing.demo import SEED, FaultyDocument, Size, faulty_documents, seed
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from migrator.values import identity
from migrator.verify.request import Request
from migrator.verify.runner import verify_into

DATABASE = "stellaops_scheduler"
"""The name of the product's database."""
_SYSTEM_DATABASES = ("admin", "config", "local")


def _database_in(uri: str) -> str | None:
    try:
        database: str | None = parse_uri(uri)["database"]
    except (PyMongoError, ValueError):
        return None  # open_source says what is wrong with it
    return database


def seeded_lines(
    where: str, documents: Mapping[str, int], items: Sequence[FaultyDocument], *, dry_run: bool = False
) -> Iterator[str]:
    """Yield the documents that were, or would be, written, by collection, then the planted faults by kind."""
    planted = Counter(item.collection for item in items)
    yield f"{'collection':<20} {'documents':>11} {'planted':>8}"
    for name, count in documents.items():
        yield f"{name:<20} {count:>11,} {planted[name]:>8,}"
    total = sum(documents.values())
    done = "would be written" if dry_run else "written"
    yield f"{total:,} documents {done} into {where}, {len(items)} of them with planted faults"
    yield from fault_lines(items)


def fault_lines(items: Iterable[FaultyDocument]) -> Iterator[str]:
    """Yield one line for each kind of planted fault."""
    kinds = Counter((item.kind, item.outcome, item.reason) for item in items)
    for (kind, outcome, reason), count in sorted(kinds.items()):
        why = f": {reason}" if reason else ""
        yield f"  {count:>3} x {kind:<28} will be {outcome}{why}"


def manifest(items: Iterable[FaultyDocument]) -> str:
    """Return every planted document as a Markdown table, to be looked up in the report."""
    lines = [
        "# Planted documents",
        "",
        "Remainder: the columns alone do not give the document back, so its row keeps the rest in `extra`.",
        "",
        "| collection | id | fault | expected outcome | remainder |",
        "|---|---|---|---|---|",
    ]
    for item in items:
        why = f" ({item.reason})" if item.reason else ""
        name = _cut(identity.source_id(item.id))
        remainder = "yes" if item.remainder else ""
        lines.append(f"| {item.collection} | `{name}` | {item.kind} | {item.outcome}{why} | {remainder} |")
    return "\n".join(lines) + "\n"


def _cut(text: str, length: int = 80) -> str:
    text = text.replace("|", "\\|")
    return text if len(text) <= length else text[:length] + "…"


MANIFEST = "planted.md"

Place = tuple[str, str]
"""Collection and source id."""


def run_demo(
    given: Settings,
    size: str,
    number: int,
    report_dir: str | None,
    allowed: Allowance = 0,
    *,
    keep: bool,
    as_json: bool,
) -> int:
    """Run the demo; return the exit status: that of the verification, and 1 for anything that was not planned."""
    with ExitStack() as servers:
        settings = _start_servers(servers, given)
        _seed(settings, size, number)
        _counted(settings)
        done = backfill(settings, Scope())
        copied = done.documents - done.quarantined - done.skipped
        _print_error(f"demo: copied: {copied:,} documents, {done.quarantined:,} quarantined")
        _print_details("backfill", text.backfill_lines(done, dry_run=False))
        _print_error("demo: verify: documents are compared with their rows, and a scheduler is driven on both servers")
        request = Request(scratch_on_source=True, allow_quarantined=allowed)
        say = AreaLines(_print_error)
        result, folder = verify_into(
            settings, request, directory=report_dir, say=print_progress if _detailed() else say
        )
        say.end()
        items = faulty_documents(number)
        write_private(folder / MANIFEST, manifest(items).encode())
        reasons = {(one.collection, one.source_id): one.reason for one in quarantine.entries(settings)}
        surprises = list(unexpected_outcomes(items, reasons))
        if as_json:
            click.echo(results.encode(result).decode(), nl=False)
        else:
            _print_error("demo: done")
            print_lines([*summary_lines(done, result, folder, items, reasons), "", *next_lines(folder)])
        for line in surprises:
            click.echo(f"not planned: {line}", err=True)
        if keep:
            _wait_for_interrupt(settings)
        return result.exit_status() | mask(different=surprises)


def _detailed() -> bool:
    """Whether ``--verbose`` asks for every line."""
    return output_settings().verbosity > 0


def _counted(settings: Settings) -> None:
    """Print the counts of the census and the plan of the copy; with ``--verbose`` all of it."""
    counted, planned = census(settings, Scope()), plan_backfill(settings, Scope())
    fields = sum(len(one.unknown) for one in counted.collections)
    rejected = sum(reason.documents for one in counted.collections for reason in one.quarantine)
    total = sum(one.documents for one in counted.collections)
    _print_error(
        f"demo: census: {total:,} documents of {len(counted.collections)} collections, {fields} fields without a"
        f" column, {rejected} documents that cannot be converted"
    )
    _print_details("census", text.census_lines(counted))
    chunks = sum(len(one.chunks) for one in planned.collections)
    _print_error(f"demo: plan: {chunks} chunks")
    _print_details("plan", text.plan_lines(planned))


class AreaLines:
    """Says of each area, when its checks have ended, how many passed; one that failed or is unsure has its own line.

    The report's summary lists those that are not applicable, or that nobody asked for.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._area = ""
        self._passed = self._ended = 0

    def __call__(self, line: str) -> None:
        """Take the line of a check that has ended: ``verify: 3/90 area.name: passed ...``."""
        name, _, outcome = line.split(" ", 2)[2].partition(": ")
        area = name.partition(".")[0]
        if area != self._area:
            self.end()
            self._area = area
        if outcome.startswith((wording.STATUS_WORDS["not-applicable"], wording.STATUS_WORDS["not-asked-for"])):
            return
        self._ended += 1
        self._passed += (passed := outcome.startswith(wording.STATUS_WORDS["passed"]))
        if not passed:
            self._tell(f"demo: {line}")

    def end(self) -> None:
        """Say how the checks of the area ended."""
        if self._ended:
            self._tell(f"demo: verify: {self._area}: {self._passed} of {self._ended} checks passed")
        self._area, self._passed, self._ended = "", 0, 0


def next_lines(folder: Path) -> Iterator[str]:
    """Yield the lines that say how to go on after the demo."""
    yield f"next: open {folder}/report.html in a browser; {folder / MANIFEST} lists what was planted"
    yield "      look at your own data, read only: migrator assess mongodb://HOST/DATABASE"
    yield "      move it, step by step: docs/tutorial.md"


def _start_servers(servers: ExitStack, given: Settings) -> Settings:
    """Start both servers, make the schema, and return the settings that name them."""
    began = time.monotonic()
    own = given.embedded
    mongo = servers.enter_context(MongoServer(fast=True, binary=Path(own.mongod) if own.mongod else None))
    postgres = servers.enter_context(
        PostgresServer(
            version=own.postgres_version, fast=True, bin_dir=Path(own.postgres_bin) if own.postgres_bin else None
        )
    )
    dsn = postgres.create_database("scheduler")
    upgrade(dsn)
    _print_error(f"demo: MongoDB and PostgreSQL started, schema made, {time.monotonic() - began:.1f} s")
    return msgspec.structs.replace(
        given,
        source=SourceSettings(),
        cutover=CutoverSettings(environment="demo"),
        mongo=MongoSettings(uri=mongo.uri, database=DATABASE),
        postgres=PostgresSettings(dsn=dsn),
    )


def _seed(settings: Settings, size: str, number: int) -> None:
    began = time.monotonic()
    with MongoClient[dict[str, object]](settings.mongo.uri) as client:
        written = seed(client[DATABASE], Size(size), number)
    total, faults = sum(written.values()), len(faulty_documents(number))
    _print_error(
        f"demo: {total:,} documents written, {faults} of them with planted faults, {time.monotonic() - began:.1f} s"
    )


def unexpected_outcomes(items: tuple[FaultyDocument, ...], reasons: Mapping[Place, str]) -> Iterator[str]:
    """Yield the documents in quarantine that were not planted there, and the planted ones that are not."""
    wanted = {(i.collection, identity.source_id(i.id)): i.reason for i in items if i.outcome == "quarantined"}
    for place in sorted(wanted.keys() | reasons.keys()):
        if place not in wanted:
            yield f"{place[0]} {place[1]} was quarantined: {reasons[place]}"
        elif place not in reasons:
            yield f"{place[0]} {place[1]} was not quarantined, as expected: {wanted[place]}"
        elif wanted[place] != reasons[place]:
            yield f"{place[0]} {place[1]} was quarantined for {reasons[place]}, not for {wanted[place]}"


def summary_lines(
    done: BackfillResult,
    result: results.Result,
    folder: Path,
    items: tuple[FaultyDocument, ...],
    reasons: Mapping[Place, str],
) -> Iterator[str]:
    """Yield the number of copied documents, the quarantine by reason, the verdict, and the path of the report."""
    tables = {table for one in done.by_collection.values() for table, count in one.rows.items() if count}
    copied = done.documents - done.quarantined - done.skipped
    yield f"copied      {copied:,} documents into {done.rows:,} rows of {len(tables)} tables"
    kinds = {(item.collection, identity.source_id(item.id)): item.kind for item in items}
    yield f"quarantined {len(reasons):,} documents, with their bytes; correct them and call migrator quarantine retry:"
    for reason, count in sorted(Counter(reasons.values()).items()):
        why = sorted({kinds.get(place, "not planted") for place, given in reasons.items() if given == reason})
        yield f"              {count:>3} x {reason:<16} {', '.join(why)}"
    skips = sum((Counter(one.skipped) for one in done.by_collection.values()), Counter[str]())
    skipped = ", ".join(f"{count:,} x {reason}" for reason, count in sorted(skips.items()))
    yield f"skipped     {skipped or 'nothing'}"
    yield f"planted     {len(items)} documents with faults, listed in {folder / MANIFEST}"
    yield ""
    yield from wording.terminal_lines(result, str(folder))


def _wait_for_interrupt(settings: Settings) -> None:
    """Say where the servers are and wait for Ctrl-C."""
    click.echo(f"MongoDB     {settings.mongo.uri} (database {settings.mongo.database})")
    click.echo(f"PostgreSQL  {settings.postgres.dsn}")
    click.echo("both end with this process: Ctrl-C")
    try:
        signal.pause()
    except KeyboardInterrupt:
        click.echo("")


def _print_details(title: str, lines: Iterator[str]) -> None:
    if not _detailed():
        return
    _print_title(title)
    for line in lines:
        _print_error(visible(line))


def _print_title(title: str) -> None:
    _print_error(f"\n── {title} " + "─" * (60 - len(title)))


def _print_error(line: str) -> None:
    click.echo(line, err=True)


_size = click.option(
    "--size",
    type=click.Choice(["small", "medium", "large"]),
    default="small",
    help="About 20 000, 300 000 or 2 000 000 documents.",
)
_seed_number = click.option(
    "--seed",
    "number",
    type=int,
    default=SEED,
    metavar="N",
    help="Seed of the demo data (same seed, same bytes).",
)


@click.group("demo", invoke_without_command=True)
@_size
@_seed_number
@click.option("--keep", is_flag=True, help="Keep the servers running afterwards, until Ctrl-C.")
@click.option("--report-dir", type=click.Path(file_okay=False), help="Folder for reports (default: report.directory).")
@allow_quarantined_option
@common_options
@click.pass_context
def demo_group(
    context: click.Context,
    /,
    size: str,
    number: int,
    config: str | None,
    report_dir: str | None,
    allow_quarantined: Allowance,
    *,
    keep: bool,
    as_json: bool,
) -> None:
    """Migrate a whole scheduler between two real servers of its own, and write a report.

    The data has known faults. The steps are census, plan, backfill and verification. Exit status 8 is expected: the
    documents that cannot be converted are in quarantine. 1 means that anything unexpected happened.
    """
    if not context.invoked_subcommand:
        given = load(config)
        finish(run_demo(given, size, number, report_dir, allow_quarantined, keep=keep, as_json=as_json))


@demo_group.command("seed")
@click.option(
    "--database",
    metavar="NAME",
    help="Write into this database (default: mongo.database, else the one in mongo.uri, else stellaops_scheduler).",
)
@_size
@_seed_number
@click.option(
    "--drop",
    is_flag=True,
    help="Drop the database that --database names first. Without it, a database that is not empty is refused.",
)
@click.option("--clean", is_flag=True, help="Insert no faulty documents.")
@click.option("--huge", is_flag=True, help="Insert a document of almost 16 MB too.")
@click.option("--triggers", is_flag=True, help="Insert a collection of triggers too.")
@dry_run_option
@common_options
def seed_command(
    config: str | None,
    database: str | None,
    size: str,
    number: int,
    *,
    drop: bool,
    clean: bool,
    huge: bool,
    triggers: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write the demo's data into a MongoDB of your own (mongo.uri), and list the planted faults."""
    settings = load(config)
    if drop and database is None:
        raise UsageError("--drop drops only a database that is named: add --database NAME")
    chosen = database or settings.mongo.database or _database_in(mongo_uri(settings)) or DATABASE
    if chosen in _SYSTEM_DATABASES:
        raise UsageError(f"database {chosen} belongs to the server; name another with --database")
    place = open_source(
        msgspec.structs.replace(settings, mongo=msgspec.structs.replace(settings.mongo, database=chosen))
    )
    client: MongoClient[dict[str, Any]] = place.client
    with client, translate_errors("the server"):
        try:
            written = seed(
                place, Size(size), number, faults=not clean, huge=huge, triggers=triggers, drop=drop, dry_run=dry_run
            )
        except RefusedError as error:
            raise RefusedError(f"{error}; name another with --database, or let --drop remove it") from None
    items = () if clean else faulty_documents(number, huge=huge)
    planted = [
        {name: getattr(item, name) for name in ("collection", "kind", "outcome", "reason", "remainder")}
        | {"source_id": identity.source_id(item.id)}
        for item in items
    ]
    existing = {
        "database": chosen,
        "would_write" if dry_run else "documents": written,
        "planted": planted,
        "seed": number,
        "size": size,
    }
    lines = [*seeded_lines(f"{chosen}, seed {number}", written, items, dry_run=dry_run)]
    if dry_run:
        lines += [f"database {chosen} would be dropped first"] * drop + ["nothing was written"]
    show(existing, lines, as_json=as_json)
