"""The demo from the first server to the last line."""

import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec
from pymongo import MongoClient

from migrator import result as results
from migrator.cli import render
from migrator.cli.demo_render import manifest
from migrator.cli.demo_seed import DATABASE, write
from migrator.cli.options import print_lines
from migrator.config import CutoverSettings, MongoSettings, PostgresSettings, Settings, SourceSettings
from migrator.embedded.demo import SEED, Planted, planted
from migrator.embedded.mongo import MongoServer
from migrator.embedded.postgres import PostgresServer
from migrator.exit_status import mask
from migrator.files import write_private
from migrator.pipeline import quarantine
from migrator.pipeline.backfill import Backfill, backfill
from migrator.pipeline.census import census
from migrator.pipeline.outlook import outlook
from migrator.pipeline.plan import Scope
from migrator.report import wording
from migrator.schema.revisions import upgrade
from migrator.telemetry import visible
from migrator.values import identity
from migrator.verify.runner import Request, verify_into

MANIFEST = "planted.md"

Place = tuple[str, str]
"""Collection and source id."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    size: str
    seed: int | None
    keep: bool
    report_dir: str | None
    as_json: bool


def demonstrate(given: Settings, wish: Wish) -> int:
    """Run the demo; return the exit status: that of the verification, and 1 for anything that was not planned."""
    number = SEED if wish.seed is None else wish.seed
    with ExitStack() as servers:
        settings = _servers(servers, given)
        _seed(settings, wish.size, number)
        _say("census", render.census_lines(census(settings, Scope())))
        _say("plan", render.plan_lines(outlook(settings, Scope())))
        done = backfill(settings, Scope())
        _say("backfill", render.backfill_lines(done, dry_run=False))
        _head("verify")
        result, folder = verify_into(settings, Request(scratch_on_source=True), directory=wish.report_dir, say=_err)
        items = planted(number)
        write_private(folder / MANIFEST, manifest(items).encode())
        found = {(one.collection, one.source_id): one.reason for one in quarantine.entries(settings)}
        surprises = list(unplanned(items, found))
        if wish.as_json:
            click.echo(results.encode(result).decode(), nl=False)
        else:
            _head("done")
            print_lines(last_screen(done, result, folder, items, found))
        for line in surprises:
            click.echo(f"not planned: {line}", err=True)
        if wish.keep:
            _keep(settings)
        return result.exit_status() | mask(different=surprises)


def _servers(servers: ExitStack, given: Settings) -> Settings:
    """Start both servers, make the schema, and return the settings that name them."""
    began = time.monotonic()
    own = given.embedded
    mongo = servers.enter_context(MongoServer.start(fast=True, binary=Path(own.mongod) if own.mongod else None))
    postgres = servers.enter_context(
        PostgresServer.start(
            version=own.postgres_version, fast=True, bin_dir=Path(own.postgres_bin) if own.postgres_bin else None
        )
    )
    dsn = postgres.create_database("scheduler")
    upgrade(dsn)
    _err(f"demo: MongoDB and PostgreSQL started, schema made, {time.monotonic() - began:.1f} s")
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
        written = write(client[DATABASE], size, number)
    total, trouble = sum(written.values()), len(planted(number))
    _err(f"demo: {total:,} documents written, {trouble} of them with trouble, {time.monotonic() - began:.1f} s")


def unplanned(items: tuple[Planted, ...], found: Mapping[Place, str]) -> Iterator[str]:
    """Yield what is in quarantine and was not planted there, and what was planted and is not."""
    wanted = {(i.collection, identity.source_id(i.id)): i.reason for i in items if i.outcome == "quarantined"}
    for place in sorted(wanted.keys() | found.keys()):
        if place not in wanted:
            yield f"{place[0]} {place[1]} was set aside: {found[place]}"
        elif place not in found:
            yield f"{place[0]} {place[1]} was not set aside, as it should have been: {wanted[place]}"
        elif wanted[place] != found[place]:
            yield f"{place[0]} {place[1]} was set aside for {found[place]}, not for {wanted[place]}"


def last_screen(
    done: Backfill, result: results.Result, folder: Path, items: tuple[Planted, ...], found: Mapping[Place, str]
) -> Iterator[str]:
    """Yield what was moved, what was set aside and why, whether the rest is equal, and where the report is."""
    tables = {table for one in done.by_collection.values() for table, count in one.rows.items() if count}
    moved = done.documents - done.quarantined - done.skipped
    yield f"moved       {moved:,} documents into {done.rows:,} rows of {len(tables)} tables"
    kinds = {(item.collection, identity.source_id(item.id)): item.kind for item in items}
    yield f"set aside   {len(found):,} documents, with their bytes, to be mended and tried again:"
    for reason, count in sorted(Counter(found.values()).items()):
        why = sorted({kinds.get(place, "not planted") for place, given in found.items() if given == reason})
        yield f"              {count:>3} x {reason:<16} {', '.join(why)}"
    skips = sum((Counter(one.skipped) for one in done.by_collection.values()), Counter[str]())
    left = ", ".join(f"{count:,} x {reason}" for reason, count in sorted(skips.items()))
    yield f"left out    {left or 'nothing'}"
    yield f"planted     {len(items)} documents with trouble, listed in {folder / MANIFEST}"
    yield ""
    yield from wording.terminal_lines(result, str(folder))


def _keep(settings: Settings) -> None:
    """Say where the servers are and wait for Ctrl-C."""
    click.echo(f"MongoDB     {settings.mongo.uri} (database {settings.mongo.database})")
    click.echo(f"PostgreSQL  {settings.postgres.dsn}")
    click.echo("both go away with this process: Ctrl-C")
    try:
        signal.pause()
    except KeyboardInterrupt:
        click.echo("")


def _say(title: str, lines: Iterator[str]) -> None:
    _head(title)
    for line in lines:
        _err(visible(line))


def _head(title: str) -> None:
    _err(f"\n── {title} " + "─" * (60 - len(title)))


def _err(line: str) -> None:
    click.echo(line, err=True)
