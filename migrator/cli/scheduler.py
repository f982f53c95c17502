"""Commands of the scheduler: ``run``, ``retention``, ``metrics``."""

from datetime import timedelta
from typing import cast

import click

from migrator.cli.options import common_options, finish, load, print_json, print_lines
from migrator.config import LARGEST
from migrator.errors import UsageError
from migrator.exit_status import mask
from migrator.scheduler import metrics
from migrator.scheduler.metrics import OPTIONAL_SAMPLES, collect_samples, known_tenants
from migrator.scheduler.process import Until, run
from migrator.scheduler.retention import RetentionPlan, RetentionRule, apply_all
from migrator.store import open_scheduler_store
from migrator.store.queue import served_tenants
from migrator.telemetry import say


@click.command()
@click.option("--handlers", metavar="MODULE:NAME", help="A registry, or a mapping of names to functions.")
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
        load(config),
        handlers=handlers,
        until=cast("Until", until or "stopped"),
        reload=lambda: load(config),
    )
    if as_json:
        print_json(done)
    else:
        ended = f"{done.completed:,} completed, {done.failed:,} failed, {done.timed_out:,} timed out"
        click.echo(f"fired {done.fired:,}, claimed {done.claimed:,}: {ended}, {done.given_back:,} released")
    finish(0)


@click.command()
@click.option("--dry-run", is_flag=True, help="List what would be removed; write nothing.")
@click.option("--yes", is_flag=True, help="Remove the runs. Not needed from the day on that retention_from names.")
@click.option(
    "--keep",
    type=click.IntRange(0, LARGEST),
    help="Newest runs kept of each schedule (default: as configured, or 100).",
)
@click.option(
    "--days",
    type=click.IntRange(0, 36_500),
    help="Runs younger than this are kept in any case (default: as configured, or 30).",
)
@click.option("--tenant", multiple=True, metavar="TENANT", help="This tenant alone; repeatable (default: all).")
@common_options
def retention_command(
    config: str | None,
    tenant: tuple[str, ...],
    keep: int | None,
    days: int | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove old runs with their logs: those that are neither among the newest of their schedule nor young.

    Nothing is removed without --yes, unless retention_from in [scheduler] names a day that has come. The command says
    what it would remove then, and ends with status 2 where that is any run.
    """
    if dry_run and yes:
        raise UsageError("--dry-run and --yes contradict each other: give one of them")

    settings = load(config)
    own = settings.scheduler
    rule = RetentionRule(
        keep=own.retention_keep if keep is None else keep,
        young=timedelta(days=own.retention_days if days is None else days),
    )
    store = open_scheduler_store(settings)
    try:
        allowed = not dry_run and (yes or RetentionPlan.of(own).is_allowed(store.now()))
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
        click.echo(f"{verb} {sum(one.total for one in removed):,} runs in total")
    if not allowed and not dry_run and any(one.total for one in removed):
        raise UsageError("nothing was removed: add --yes to the command to remove these runs")
    finish(0)


@click.command()
@click.option("--tenant", multiple=True, metavar="TENANT", help="This tenant alone; repeatable (default: all).")
@click.option("--max", "most", multiple=True, metavar="NAME=N", help="Exit 1 if the metric is above N; repeatable.")
@click.option("--min", "least", multiple=True, metavar="NAME=N", help="Exit 1 if the metric is below N; repeatable.")
@common_options
def metrics_command(
    config: str | None, tenant: tuple[str, ...], most: tuple[str, ...], least: tuple[str, ...], *, as_json: bool
) -> None:
    """Print the metrics of the scheduler and of the tail as Prometheus text; exit 1 if a threshold is crossed.

    The key figures (overall_*, database_connections) are of all tenants; those of before and at the cutover, where one
    is on record, have the same names behind switch_.
    """
    from migrator.cutover import metrics as moved  # noqa: PLC0415 - loads MongoDB's driver, which the other commands must not
    from migrator.pipeline.tail import metrics as tail_metrics  # noqa: PLC0415 - loads MongoDB's driver, which the other commands must not

    thresholds = [metrics.parse_threshold("max", one) for one in most] + [
        metrics.parse_threshold("min", one) for one in least
    ]
    settings = load(config)
    store = open_scheduler_store(settings)
    try:
        samples = collect_samples(store, known_tenants(store, tenant) or served_tenants(store.queue))
        samples += metrics.key_samples(metrics.take_key_metrics(store))
    finally:
        store.close()
    samples += moved.samples(moved.recorded(settings))
    tail = tail_metrics.stored_metrics(settings)
    beyond = list(metrics.crossed(samples, thresholds, OPTIONAL_SAMPLES | metrics.OPTIONAL_KEY_SAMPLES))
    if as_json:
        print_json({"samples": samples, "crossed": beyond, **({} if tail is None else {"tail": tail})})
    else:
        click.echo(
            metrics.prometheus_text(samples) + ("" if tail is None else tail_metrics.prometheus_text(tail)), nl=False
        )
    for sentence in beyond:
        say(f"threshold crossed: {sentence}")
    finish(mask(different=beyond))
