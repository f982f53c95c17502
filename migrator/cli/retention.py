"""``migrator retention``."""

import click

from migrator.cli.options import common, finish, print_json, print_lines, settings_of
from migrator.config import LARGEST


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would be removed; write nothing.")
@click.option("--yes", is_flag=True, help="Remove it. Not needed from the day on that retention_from names.")
@click.option(
    "--keep", type=click.IntRange(0, LARGEST), help="Newest runs per schedule (default: as configured, or 100)."
)
@click.option(
    "--days", type=click.IntRange(0, 36_500), help="Younger runs stay anyway (default: as configured, or 30)."
)
@click.option("--tenant", multiple=True, metavar="TENANT", help="This tenant alone; repeatable (default: all).")
@common
def command(
    config: str | None,
    tenant: tuple[str, ...],
    keep: int | None,
    days: int | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove old runs with their logs: those neither among the newest of their schedule nor young.

    Nothing is removed without --yes, unless retention_from in [scheduler] names a day that has come. The command says
    what it would remove then, and ends with status 2 where that is any run.
    """
    from datetime import timedelta  # noqa: PLC0415 - imported when called, so that --help stays quick

    from migrator.errors import UsageError  # noqa: PLC0415 - as above
    from migrator.scheduler.retention import Plan, Rule, apply_all  # noqa: PLC0415 - as above
    from migrator.scheduler.samples import known_tenants  # noqa: PLC0415 - as above
    from migrator.store import open_scheduler_store  # noqa: PLC0415 - as above

    if dry_run and yes:
        raise UsageError("--dry-run and --yes contradict each other: give one of them")

    settings = settings_of(config)
    own = settings.scheduler
    rule = Rule(
        keep=own.retention_keep if keep is None else keep,
        young=timedelta(days=own.retention_days if days is None else days),
    )
    store = open_scheduler_store(settings)
    try:
        allowed = not dry_run and (yes or Plan.of(own).is_allowed(store.now()))
        removed = apply_all(store, rule, tenants=known_tenants(store, tenant) or None, dry_run=not allowed)
    finally:
        store.close()
    if as_json:
        print_json(
            [
                {
                    "tenant": one.tenant,
                    "removed": one.total,
                    "by_schedule": {str(key) if key else "none": count for key, count in one.by_schedule.items()},
                    "dry_run": one.dry_run,
                }
                for one in removed
            ]
        )
    else:
        verb = "removed" if allowed else "would remove"
        for one in removed:
            print_lines([f"{one.tenant}: {verb} {one.total:,} runs of {len(one.by_schedule):,} schedules"])
        click.echo(f"{verb} {sum(one.total for one in removed):,} runs in all")
    if not allowed and not dry_run and any(one.total for one in removed):
        raise UsageError("nothing was removed: add --yes to the command to remove these runs")
    finish(0)
