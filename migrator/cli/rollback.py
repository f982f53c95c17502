"""``migrator rollback plan|run``."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from migrator.cli.options import common, finish, print_json, print_lines, settings_of
from migrator.config import DEFAULT_PATH
from migrator.exit_status import mask

if TYPE_CHECKING:
    from migrator.cutover.rollback import Level


@click.group("rollback")
def command() -> None:
    """Switch back to MongoDB: with everything written since (1), without the schema (2), or from the backup (3)."""


_level = click.option(
    "--level", type=click.IntRange(1, 3), default=1, show_default=True, help="1 switch back, 2 schema too, 3 backup."
)


@command.command(short_help="Show every step and what must hold; changes nothing.")
@_level
@common
def plan(config: str | None, level: int, *, as_json: bool) -> None:
    """Show every step, and what must hold."""
    from migrator.cutover import rollback  # noqa: PLC0415 - imported when called, so that --help stays quick
    from migrator.cutover.gates import lines, unmet  # noqa: PLC0415 - as above

    found = rollback.plan(settings_of(config), Path(config or DEFAULT_PATH), cast("Level", level))
    if as_json:
        print_json({"steps": rollback.STEPS[level], "gates": found})
    else:
        print_lines([f"{number}. {step}" for number, step in enumerate(rollback.STEPS[level], 1)])
        print_lines(lines(found))
    finish(mask(unverified=unmet(found)))


@command.command(short_help="Go back, or finish an interrupted way back.")
@_level
@common
def run(config: str | None, level: int, *, as_json: bool) -> None:
    """Go back; a call that was interrupted is gone on with."""
    from migrator.cutover import rollback  # noqa: PLC0415 - imported when called, as above
    from migrator.cutover.gaps import lines as gap_lines  # noqa: PLC0415 - as above

    done = rollback.run(settings_of(config), Path(config or DEFAULT_PATH), cast("Level", level))
    if as_json:
        print_json(done)
        return
    click.echo(f"rolled back, level {done.level}: {done.documents:,} documents written to MongoDB by this call")
    word = "left behind" if done.level == 1 else "exported"
    for place, count in done.lost.items():
        click.echo(f"{word}: {place}: {count:,}")
    print_lines(gap_lines(done.unstated))
    if done.folder:
        click.echo(f"exported to {done.folder}")
    click.echo("still there:")
    print_lines(f"  {one}" for one in done.left)
