"""``migrator metrics``."""

import click

from migrator.cli.options import common, finish, print_json, settings_of
from migrator.exit_status import mask


@click.command()
@click.option("--tenant", multiple=True, metavar="TENANT", help="This tenant alone; repeatable (default: all).")
@click.option("--max", "most", multiple=True, metavar="NAME=N", help="Exit 1 where the figure is above; repeatable.")
@click.option("--min", "least", multiple=True, metavar="NAME=N", help="Exit 1 where the figure is below; repeatable.")
@common
def command(
    config: str | None, tenant: tuple[str, ...], most: tuple[str, ...], least: tuple[str, ...], *, as_json: bool
) -> None:
    """Print the scheduler's figures, and the tail's, as Prometheus text; exit 1 where one is beyond a threshold.

    The key figures (overall_*, database_connections) are of all tenants; those of before and at the switch, where one
    is on record, have the same names behind switch_.
    """
    from migrator.cutover import figures as moved  # noqa: PLC0415 - imported when called, so that --help stays quick
    from migrator.pipeline.tail import figures  # noqa: PLC0415 - as above
    from migrator.scheduler import exposition, key_figures  # noqa: PLC0415 - as above
    from migrator.scheduler.samples import SOMETIMES, collect, known_tenants, served  # noqa: PLC0415 - as above
    from migrator.store import open_scheduler_store  # noqa: PLC0415 - as above
    from migrator.telemetry import say  # noqa: PLC0415 - as above

    thresholds = [exposition.parse("max", one) for one in most] + [exposition.parse("min", one) for one in least]
    settings = settings_of(config)
    store = open_scheduler_store(settings)
    try:
        samples = collect(store, known_tenants(store, tenant) or served(store))
        samples += key_figures.samples(key_figures.take(store))
    finally:
        store.close()
    samples += moved.samples(moved.kept(settings))
    tail = figures.stored(settings)
    beyond = list(exposition.crossed(samples, thresholds, SOMETIMES | key_figures.SOMETIMES))
    if as_json:
        print_json({"samples": samples, "crossed": beyond, **({} if tail is None else {"tail": tail})})
    else:
        click.echo(exposition.text(samples) + ("" if tail is None else figures.text(tail)), nl=False)
    for sentence in beyond:
        say(f"threshold crossed: {sentence}")
    finish(mask(different=beyond))
