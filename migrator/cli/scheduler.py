"""Commands of the scheduler: ``run``, ``status``, ``retention`` and ``metrics``."""

from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import cast

import click

from migrator.cli.options import DurationType, common_options, finish, load_scheduler, show
from migrator.config import LARGEST
from migrator.durations import NONE
from migrator.errors import RefusedError, UsageError
from migrator.scheduler.archive import check_folder
from migrator.scheduler.health import status_lines, status_of
from migrator.scheduler.metrics import known_tenants
from migrator.scheduler.process import Until, run
from migrator.scheduler.retention import RetentionRule, apply_all, archive_of, is_allowed
from migrator.store import open_readable_store
from migrator.telemetry import say


@click.group()
def scheduler_group() -> None:
    """Run a scheduler process on the configured backend, show its state or its metrics, or remove old runs."""


@scheduler_group.command("run")
@click.option("--handlers", metavar="MODULE:NAME", help="Registry of handlers, or a mapping of names to functions.")
@click.option("--once", "until", flag_value="once", help="Poll once, finish the claimed runs, and stop.")
@click.option(
    "--until-idle", "until", flag_value="idle", help="Stop when nothing of its schedules is due, queued or running."
)
@common_options
def run_command(config: str | None, handlers: str | None, until: str | None, *, as_json: bool) -> None:
    """Run a scheduler process on the configured backend, until SIGTERM or Ctrl-C.

    It works only for schedules whose handlers are registered (and whose queue is one of [scheduler] queues, where that
    names any), and leaves all else as it is. It says so on standard error before it begins.

    Told to stop, it claims nothing more, lets its runs end or gives them back, and exits with status 0. Told twice, it
    gives them back at once.
    """
    done = run(
        load_scheduler(config),
        handlers=handlers,
        until=cast("Until", until or "stopped"),
        reload=lambda: load_scheduler(config),
    )
    ended = f"{done.completed:,} completed, {done.failed:,} failed, {done.timed_out:,} timed out"
    line = f"fired {done.fired:,}, claimed {done.claimed:,}: {ended}, {done.given_back:,} released"
    show(done, [line], as_json=as_json)
    finish(0)


@scheduler_group.command("status")
@common_options
def status_command(config: str | None, *, as_json: bool) -> None:
    """Show the leader, the processes, counts of schedules and runs, and the next fires."""
    settings = load_scheduler(config)
    with closing(open_readable_store(settings)) as store:
        found = status_of(store, None, silent_for=settings.scheduler.dead_after)
    show(found, status_lines(found), as_json=as_json)
    finish(0)


@scheduler_group.command("retention", short_help="Remove old runs with their logs, or print which would be removed.")
@click.option("--dry-run", is_flag=True, help="List what would be removed; write nothing.")
@click.option("--yes", is_flag=True, help="Remove the runs. Not required from the day on that retention_from names.")
@click.option(
    "--keep",
    type=click.IntRange(0, LARGEST),
    help="Newest runs kept of each schedule (default: as configured, or 100).",
)
@click.option(
    "--age",
    type=DurationType(least=NONE),
    metavar="DURATION",
    help="Runs younger than this are kept in any case (default: as configured, or 30d).",
)
@click.option("--tenant", multiple=True, metavar="TENANT", help="Only this tenant; repeatable (default: all).")
@click.option(
    "--archive",
    type=click.Path(),
    metavar="DIR",
    help="Write the runs with their logs into files of this folder, and check these, before the runs are removed"
    " (default: as configured).",
)
@common_options
def retention_command(
    config: str | None,
    tenant: tuple[str, ...],
    keep: int | None,
    age: timedelta | None,
    archive: str | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove old runs with their logs: those that are neither among the newest of their schedule nor young.

    Nothing is removed without --yes, unless retention_from in [scheduler] names a day that has come. The command says
    what it would remove then, and ends with status 2 where that is any run. Where a run cannot be archived, it is not
    removed, and the status is 16.
    """
    if dry_run and yes:
        raise UsageError("--dry-run and --yes contradict each other: give one of them")

    from migrator.scheduler.operations import Jobs  # noqa: PLC0415 - it imports the sources; no other command needs it

    settings = load_scheduler(config)
    own = settings.scheduler
    rule = RetentionRule(
        keep=own.retention_keep if keep is None else keep,
        young=own.retention_age if age is None else age,
    )
    folder = archive_of(own) if archive is None else Path(archive)
    if folder is not None:
        check_folder(folder)
    with closing(open_readable_store(settings)) as store:
        tenants = known_tenants(store, tenant) or None
        allowed = not dry_run and (yes or is_allowed(own, store.now()))
        jobs = Jobs(store, settings)
        stays = jobs.retention_refusal(lambda: apply_all(store, rule, tenants=tenants, dry_run=True))
        if stays is not None:
            if not dry_run:
                raise RefusedError(f"no run is removed: {stays}")
            say(f"no run can be removed: {stays}", level="warning")
        removed = apply_all(store, rule, tenants=tenants, dry_run=not allowed, archive=folder)
    planned = [
        {
            "tenant": one.tenant,
            "removed": one.total,
            "by_schedule": {str(key) if key else "none": count for key, count in one.by_schedule.items()},
            "dry_run": one.dry_run,
            "archives": one.archives,
        }
        for one in removed
    ]
    verb = "removed" if allowed else "would remove"
    lines = [f"{one.tenant}: {verb} {one.total:,} runs of {len(one.by_schedule):,} schedules" for one in removed]
    refused = not allowed and not dry_run and any(one.total for one in removed)
    if not (refused and as_json):  # the error is the one document then
        show(planned, [*lines, f"{verb} {sum(one.total for one in removed):,} runs in total"], as_json=as_json)
    if refused:
        raise UsageError("nothing was removed: add --yes to the command to remove these runs")
    finish(0)


@scheduler_group.command("metrics", short_help="Print metrics as Prometheus text; fails if a threshold is crossed.")
@click.option("--tenant", multiple=True, metavar="TENANT", help="Only this tenant; repeatable (default: all).")
@click.option("--max", "most", multiple=True, metavar="NAME=N", help="Exit 1 if the metric is above N; repeatable.")
@click.option("--min", "least", multiple=True, metavar="NAME=N", help="Exit 1 if the metric is below N; repeatable.")
@common_options
def metrics_command(
    config: str | None, tenant: tuple[str, ...], most: tuple[str, ...], least: tuple[str, ...], *, as_json: bool
) -> None:
    """Print the metrics of the scheduler and of the tail as Prometheus text; exit 1 if a threshold is crossed.

    The key metrics (overall_*, database_connections) are of all tenants. Those of before and at the last cutover have
    the same names with the prefix cutover_.
    """
    from migrator.cli import metrics  # noqa: PLC0415 - it needs both drivers; the other commands of the group need one

    metrics.print_metrics(load_scheduler(config), tenant, most=most, least=least, as_json=as_json)
