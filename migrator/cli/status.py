"""``migrator status``."""

import click

from migrator.cli.options import common, finish, print_json, settings_of
from migrator.exit_status import mask


@click.command()
@common
def command(config: str | None, *, as_json: bool) -> None:
    """Show where the copy stands: chunks, documents, what was set aside, what is still owed."""
    from migrator.cli.render import status_lines  # noqa: PLC0415 - imported when called, so that --help stays quick
    from migrator.pipeline.progress import standing  # noqa: PLC0415 - as above

    found = standing(settings_of(config))
    if as_json:
        print_json(found)
    else:
        click.echo("\n".join(status_lines(found)))
    unfinished = found.plan is not None and (found.plan.state == "open" or found.owed)
    finish(mask(unverified=unfinished, quarantine=found.quarantined))
