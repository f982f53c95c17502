"""``migrator quarantine list|show|retry``."""

from pathlib import Path

import click
import msgspec

from migrator.cli.options import common, finish, print_json, print_lines, settings_of
from migrator.errors import UsageError
from migrator.exit_status import mask

narrowed = (
    click.option("--collection", metavar="COLLECTION", help="Of this collection alone."),
    click.option("--reason", metavar="REASON", help="With this reason alone."),
)


@click.group()
def command() -> None:
    """List, show or retry the documents that were set aside."""


@command.command("list")
@narrowed[0]
@narrowed[1]
@common
def list_(config: str | None, collection: str | None, reason: str | None, *, as_json: bool) -> None:
    """List the documents in quarantine: where they are from, and why they were set aside."""
    from migrator.pipeline.quarantine import entries  # noqa: PLC0415 - imported when called, so that --help stays quick

    found = entries(settings_of(config), collection, reason)
    if as_json:
        print_json(found)
    else:
        print_lines(
            f"{one.collection}  {one.source_id}  {one.reason} at {one.path or 'the document'}: expected {one.expected}"
            for one in found
        )
        click.echo(f"{len(found):,} documents in quarantine")
    finish(mask(quarantine=found))


@command.command()
@click.argument("collection")
@click.argument("source_id")
@click.option("--values", is_flag=True, help="Print the document itself, as Extended JSON.")
@click.option("--raw", type=click.Path(), help="Write the document's bytes (BSON) to this file.")
@common
def show(config: str | None, collection: str, source_id: str, raw: str | None, **flags: bool) -> None:
    """Show one document in quarantine; its values only when asked."""
    from migrator.pipeline.quarantine import raw_document, readable  # noqa: PLC0415 - as above

    entry, content = raw_document(settings_of(config), collection, source_id)
    if raw is not None:
        _keep(Path(raw), content)
    document = readable(content) if flags["values"] else None
    if flags["as_json"]:
        print_json({**msgspec.to_builtins(entry), **({} if document is None else {"document": document})})
    else:
        print_lines(f"{name}: {getattr(entry, name)}" for name in entry.__struct_fields__)
        if document is not None:
            click.echo(document)
    finish(mask(quarantine=True))


@command.command()
@narrowed[0]
@narrowed[1]
@common
def retry(config: str | None, collection: str | None, reason: str | None, *, as_json: bool) -> None:
    """Read the documents in quarantine again, and load those that can be loaded now."""
    from migrator.pipeline.quarantine import retry as retry_all  # noqa: PLC0415 - as above

    done = retry_all(settings_of(config), collection, reason)
    if as_json:
        print_json(done)
    else:
        click.echo(f"loaded {done.loaded:,}, still set aside {done.rejected:,}, gone from the source {done.gone:,}")
        if done.loaded:
            click.echo("others may refer to what was loaded now: run migrator backfill again to fill their references")
        click.echo("nothing compared: run migrator parity, or migrator verify")
    finish(mask(quarantine=done.rejected))


def _keep(file: Path, content: bytes) -> None:
    """Write a document's bytes into a new file; raise ``UsageError`` where it is there, or cannot be made."""
    from migrator.files import write_private  # noqa: PLC0415 - as above

    try:
        write_private(file, content, exclusive=True)
    except FileExistsError:
        raise UsageError(f"--raw: {file} is there already, and is not overwritten; name another file") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no legal name"
        raise UsageError(f"--raw: cannot write {file}: {why or type(error).__name__}") from None
