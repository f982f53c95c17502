"""``migrator plan``."""

import click

from migrator.cli.options import common, print_json, print_lines, settings_of


@click.command()
@click.option("--only", multiple=True, metavar="COLLECTION", help="Plan this collection alone; repeatable.")
@common
def command(config: str | None, only: tuple[str, ...], *, as_json: bool) -> None:
    """Show the chunks a backfill would copy, in order, with estimates and risks; writes nothing."""
    from migrator.cli.render import plan_lines  # noqa: PLC0415 - imported when called, so that --help stays quick
    from migrator.pipeline.outlook import outlook  # noqa: PLC0415 - as above
    from migrator.pipeline.plan import Scope  # noqa: PLC0415 - as above

    found = outlook(settings_of(config), Scope(only=tuple(sorted(set(only)))))
    if as_json:
        print_json(found)
    else:
        print_lines(plan_lines(found))
