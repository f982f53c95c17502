"""``migrator tail``."""

import click

from migrator.cli.options import common, finish, print_json, print_lines, settings_of
from migrator.exit_status import mask


@click.command()
@click.option("--until-caught-up", is_flag=True, help="End when everything the source has committed by now is seen.")
@click.option(
    "--metrics-file", type=click.Path(), metavar="F", help="Write figures as Prometheus text, again and again."
)
@common
def command(config: str | None, metrics_file: str | None, *, until_caught_up: bool, as_json: bool) -> None:
    """Follow the source after the copy: bring rows up to date as documents change; Ctrl-C ends it at a commit.

    After a cutover it turns round: documents are brought up to date as rows change. It ends with 0 when the cutover is
    finished.
    """
    from pathlib import Path  # noqa: PLC0415 - imported when called, so that --help stays quick

    from migrator.cli.render import tail_lines  # noqa: PLC0415 - as above
    from migrator.cli.tailing import follow  # noqa: PLC0415 - as above
    from migrator.pipeline.tail.figures import require_writable  # noqa: PLC0415 - as above
    from migrator.pipeline.tail.follow import Followed  # noqa: PLC0415 - as above

    settings = settings_of(config)
    if metrics_file is not None:
        require_writable(Path(metrics_file))
    done = follow(
        settings,
        until="caught-up" if until_caught_up else None,
        metrics_file=None if metrics_file is None else Path(metrics_file),
    )
    if done is None:
        if as_json:
            print_json({"finished": True})
        else:
            click.echo("the cutover was finished: nothing is followed or carried any more; this process is not needed")
        finish(mask())
    if not isinstance(done, Followed):
        if as_json:
            print_json({"documents": done.documents, "removed": done.removed, "notes": done.notes})
        else:
            click.echo(f"carried {done.documents:,} documents to MongoDB, removed {done.removed:,}")
        finish(mask())
    if as_json:
        print_json(done)
    else:
        print_lines(tail_lines(done))
    finish(mask(unverified=not done.applied or (until_caught_up and not done.reached), quarantine=done.quarantined))
