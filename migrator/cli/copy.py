"""Commands that copy the source: plan, backfill. They load what a copy needs, and nothing else."""

import click

from migrator.cli.options import allow_quarantined_option, common_options, finish, load, show, workers_option
from migrator.cli.text import backfill_lines, plan_lines
from migrator.exit_status import Allowance, beyond, mask
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope, plan_backfill


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
@click.option("--no-position", is_flag=True, help="Copy a source that is no replica set. Nothing may write to it.")
@allow_quarantined_option
@common_options
def backfill_command(
    config: str | None,
    only: tuple[str, ...],
    tenant: tuple[str, ...],
    workers: int | None,
    executor: str | None,
    allow_quarantined: Allowance,
    **flags: bool,
) -> None:
    """Copy the source into PostgreSQL. An interrupted copy is resumed, and rows that are equal are not written."""
    settings = load(config, workers=workers, executor=executor)
    done = backfill(
        settings,
        Scope(only=tuple(sorted(set(only))), tenants=tuple(sorted(set(tenant)))),
        restart=flags["restart"],
        dry_run=flags["dry_run"],
        position=not flags["no_position"],
    )
    show(done, backfill_lines(done, dry_run=flags["dry_run"]), as_json=flags["as_json"])
    finish(mask(unverified=not done.complete, quarantine=beyond(done.quarantined, allow_quarantined)))
