"""``migrator backfill``."""

import click

from migrator.cli.options import common, finish, print_json, print_lines, settings_of
from migrator.exit_status import mask


@click.command()
@click.option("--dry-run", is_flag=True, help="Read and transform everything, write nothing.")
@click.option("--only", multiple=True, metavar="COLLECTION", help="Copy this collection alone; repeatable.")
@click.option("--tenant", multiple=True, metavar="TENANT", help="Copy this tenant alone; repeatable.")
@click.option(
    "--workers", type=click.IntRange(1, 256), metavar="N", help="Worker processes (default: one per processor)."
)
@click.option("--executor", type=click.Choice(["local", "dask"]), help="Where chunks run (default: copy.executor).")
@click.option("--restart", is_flag=True, help="Forget the ledger of an unfinished copy, keep the rows.")
@click.option("--no-position", is_flag=True, help="For a source that is no replica set, and that nothing writes to.")
@common
def command(
    config: str | None,
    only: tuple[str, ...],
    tenant: tuple[str, ...],
    workers: int | None,
    executor: str | None,
    **flags: bool,
) -> None:
    """Copy the source into PostgreSQL; resumes by itself, and writes nothing where nothing changed."""
    from migrator.cli.render import backfill_lines  # noqa: PLC0415 - imported when called, so that --help stays quick
    from migrator.pipeline.backfill import backfill  # noqa: PLC0415 - as above
    from migrator.pipeline.plan import Scope  # noqa: PLC0415 - as above

    settings = settings_of(config, workers=workers, executor=executor)
    done = backfill(
        settings,
        Scope(only=tuple(sorted(set(only))), tenants=tuple(sorted(set(tenant)))),
        restart=flags["restart"],
        dry_run=flags["dry_run"],
        position=not flags["no_position"],
    )
    if flags["as_json"]:
        print_json(done)
    else:
        print_lines(backfill_lines(done, dry_run=flags["dry_run"]))
    finish(mask(unverified=not done.complete, quarantine=done.quarantined))
