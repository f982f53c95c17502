"""The command ``metrics``: of the scheduler, of the tail, and of the cutover. It needs both drivers."""

from contextlib import closing

import click

from migrator.cli.options import common_options, finish, load, print_json
from migrator.cutover import metrics as cutover_metrics
from migrator.exit_status import mask
from migrator.pipeline.tail import metrics as tail_metrics
from migrator.prometheus import prometheus_text
from migrator.scheduler import metrics
from migrator.scheduler.metrics import OPTIONAL_SAMPLES, collect_samples, known_tenants
from migrator.store import open_scheduler_store
from migrator.store.queue import served_tenants
from migrator.telemetry import say


@click.command()
@click.option("--tenant", multiple=True, metavar="TENANT", help="This tenant alone; repeatable (default: all).")
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
    thresholds = [metrics.parse_threshold("max", one) for one in most]
    thresholds += [metrics.parse_threshold("min", one) for one in least]
    settings = load(config)
    with closing(open_scheduler_store(settings)) as store:
        samples = collect_samples(store, known_tenants(store, tenant) or served_tenants(store.queue))
        samples += metrics.key_samples(metrics.take_key_metrics(store))
    samples += cutover_metrics.samples(cutover_metrics.recorded(settings))
    tail = tail_metrics.stored_metrics(settings)
    beyond = list(metrics.crossed(samples, thresholds, OPTIONAL_SAMPLES | metrics.OPTIONAL_KEY_SAMPLES))
    if as_json:
        print_json({"samples": samples, "crossed": beyond, **({} if tail is None else {"tail": tail})})
    else:
        click.echo(prometheus_text([*samples, *(() if tail is None else tail_metrics.samples(tail))]), nl=False)
    for sentence in beyond:
        say(f"threshold crossed: {sentence}", level="warning")
    finish(mask(different=beyond))
