"""``migrator doctor``."""

import click

from migrator.cli.options import common, finish, print_json, print_lines, settings_of
from migrator.exit_status import mask


@click.command()
@common
def command(config: str | None, *, as_json: bool) -> None:
    """Reach both servers and say what stands in the way of a move: versions, rights, history, schema, clocks.

    Exit status: 1 something stands in the way, 4 something cannot be told, 16 a server could not be reached.
    """
    from migrator.cutover.doctor import examine  # noqa: PLC0415 - imported when called, so that --help stays quick
    from migrator.cutover.gates import lines  # noqa: PLC0415 - as above

    found = examine(settings_of(config))
    if as_json:
        print_json(found)
    else:
        print_lines(lines(found.findings))
    finish(
        mask(
            different=any(one.passed is False for one in found.findings),
            unverified=any(one.passed is None for one in found.findings),
            tool_failed=found.unreachable,
        )
    )
