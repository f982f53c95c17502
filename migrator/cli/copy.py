"""Commands that copy the source: plan, backfill. They load what a copy needs, and nothing else."""

from collections.abc import Mapping
from pathlib import Path

import click

from migrator.cli.confirmation import approval
from migrator.cli.options import (
    allow_quarantined_option,
    common_options,
    finish,
    load,
    overwrite_option,
    show,
    workers_option,
)
from migrator.cli.text import backfill_lines, plan_lines, reread_lines
from migrator.errors import UsageError
from migrator.exit_status import Allowance, beyond, mask
from migrator.files import UnreadableError, read_text
from migrator.pipeline.backfill import backfill
from migrator.pipeline.executors import forked_workers
from migrator.pipeline.plan import Scope, plan_backfill
from migrator.pipeline.tail.reread import read_again


@click.command()
@click.option("--only", multiple=True, metavar="COLLECTION", help="Plan only this collection; repeatable.")
@common_options
def plan_command(config: str | None, only: tuple[str, ...], *, as_json: bool) -> None:
    """Show the chunks a backfill would copy, in order, with estimates and risks; writes nothing."""
    found = plan_backfill(load(config), Scope(only=tuple(sorted(set(only)))))
    show(found, plan_lines(found), as_json=as_json)


@click.command()
@click.option("--dry-run", is_flag=True, help="Read and transform everything, write nothing.")
@click.option("--only", multiple=True, metavar="COLLECTION", help="Copy only this collection; repeatable.")
@click.option("--tenant", multiple=True, metavar="TENANT", help="Copy only this tenant; repeatable.")
@workers_option
@click.option(
    "--executor", type=click.Choice(["local", "dask"]), help="Executor of the chunks (default: copy.executor)."
)
@click.option("--restart", is_flag=True, help="Discard the ledger of an unfinished copy, and keep the rows.")
@click.option(
    "--again",
    is_flag=True,
    help="Read all documents of the collections of --only again, as the tail does, which may run meanwhile. Rows that"
    " no document makes any more are removed.",
)
@click.option(
    "--ids",
    "ids_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The same for the documents of one collection whose source ids are the lines of a file.",
)
@overwrite_option
@click.option("--no-position", is_flag=True, help="Copy a source that is no replica set. Nothing may write to it.")
@allow_quarantined_option
@common_options
def backfill_command(
    config: str | None,
    only: tuple[str, ...],
    tenant: tuple[str, ...],
    workers: int | None,
    executor: str | None,
    ids_file: Path | None,
    allow_quarantined: Allowance,
    **flags: bool,
) -> None:
    """Copy the source into PostgreSQL. An interrupted copy is resumed, and rows that are equal are not written."""
    settings = load(config, workers=workers, executor=executor)
    if flags["again"] or ids_file is not None:
        not_for_it = {"--tenant": tenant, "--workers": workers, "--executor": executor}
        _require_alone(only, ids_file, not_for_it, flags)
        ids = None if ids_file is None else _ids_of(ids_file)
        reread = read_again(settings, tuple(dict.fromkeys(only)), ids, dry_run=flags["dry_run"])
        show(reread, reread_lines(reread, dry_run=flags["dry_run"]), as_json=flags["as_json"])
        finish(mask(quarantine=beyond(reread.quarantined, allow_quarantined)))
    with forked_workers(settings):
        done = backfill(
            settings,
            Scope(only=tuple(sorted(set(only))), tenants=tuple(sorted(set(tenant)))),
            restart=flags["restart"],
            dry_run=flags["dry_run"],
            position=not flags["no_position"],
            overwrite_by=approval(None, None) if flags["overwrite_changed_rows"] else None,
        )
    show(done, backfill_lines(done, dry_run=flags["dry_run"]), as_json=flags["as_json"])
    finish(mask(unverified=not done.complete, quarantine=beyond(done.quarantined, allow_quarantined)))


def _require_alone(
    only: tuple[str, ...], ids_file: Path | None, not_for_it: Mapping[str, object], flags: Mapping[str, bool]
) -> None:
    """Raise ``UsageError`` if documents cannot be read again with these options; ``not_for_it``: those of a copy."""
    of_a_copy = ("restart", "no_position", "overwrite_changed_rows")
    given = {**not_for_it, **{f"--{name.replace('_', '-')}": flags[name] for name in of_a_copy}}
    for name in (name for name, value in given.items() if value):
        raise UsageError(f"{name} belongs to a copy: --again and --ids read documents one after the other")
    if flags["again"] and ids_file is not None:
        raise UsageError("--again reads all documents of the collections, --ids those of a file: give one of them")
    if ids_file is not None and len(set(only)) != 1:
        raise UsageError("--ids needs the collection of the documents: --only COLLECTION, once")
    if not only:
        raise UsageError("--again needs the collections to read: --only COLLECTION, or call backfill without --again")


def _ids_of(path: Path) -> list[str]:
    """Return the lines of a file that are not empty."""
    try:
        lines = [line for line in read_text(path).splitlines() if line.strip()]
    except UnreadableError as reason:
        raise UsageError(f"{path}: {reason}") from None
    if not lines:
        raise UsageError(f"{path}: expected a source id in each line, and there is none")
    return lines
