"""What ``scheduler metrics`` prints: metrics of the scheduler, the tail and the cutover. It needs both drivers."""

from collections.abc import Sequence
from contextlib import closing

import click

from migrator.cli.options import finish, print_json
from migrator.config import Settings
from migrator.cutover import metrics as cutover_metrics
from migrator.exit_status import mask
from migrator.pipeline.tail import metrics as tail_metrics
from migrator.prometheus import prometheus_text
from migrator.scheduler import metrics
from migrator.scheduler.metrics import OPTIONAL_SAMPLES, collect_samples, known_tenants
from migrator.store import open_readable_store
from migrator.store.queue import served_tenants
from migrator.telemetry import say


def print_metrics(
    settings: Settings, tenant: Sequence[str], *, most: Sequence[str], least: Sequence[str], as_json: bool
) -> None:
    """Print the metrics and end the command; the thresholds are ``NAME=N``."""
    thresholds = [metrics.parse_threshold("max", one) for one in most]
    thresholds += [metrics.parse_threshold("min", one) for one in least]
    with closing(open_readable_store(settings)) as store:
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
