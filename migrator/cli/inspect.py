"""``migrator inspect``."""

import click

from migrator.cli.options import common, finish, print_json, print_lines, settings_of
from migrator.exit_status import mask


@click.command()
@click.option("--only", multiple=True, metavar="COLLECTION", help="Read this collection alone; repeatable.")
@click.option("--fields", is_flag=True, help="List every field path with its types, not only the unknown ones.")
@common
def command(config: str | None, only: tuple[str, ...], *, fields: bool, as_json: bool) -> None:
    """Take a census of the source: counts, field paths, types, what no column carries, what would be set aside.

    Reads every document; needs no target and writes nothing.
    """
    from migrator.cli.render import census_lines, field_lines  # noqa: PLC0415 - imported when called
    from migrator.pipeline.census import census  # noqa: PLC0415 - as above
    from migrator.pipeline.plan import Scope  # noqa: PLC0415 - as above

    found = census(settings_of(config), Scope(only=tuple(sorted(set(only)))))
    if as_json:
        print_json(found)
    else:
        print_lines(census_lines(found))
        if fields:
            print_lines(field_lines(found))
    finish(mask(quarantine=any(one.quarantine for one in found.collections)))
