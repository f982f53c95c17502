"""``migrator run``."""

import click

from migrator.cli.options import common, finish, print_json, settings_of


@click.command()
@click.option("--handlers", metavar="MODULE:NAME", help="A registry, or a mapping of names to functions.")
@click.option("--once", "until", flag_value="once", help="Poll once, finish what that claimed, and stop.")
@click.option(
    "--until-idle", "until", flag_value="idle", help="Stop when nothing of its schedules is due, queued or running."
)
@common
def command(config: str | None, handlers: str | None, until: str | None, *, as_json: bool) -> None:
    """Run a scheduler process on the configured backend, until SIGTERM or Ctrl-C.

    It works only for schedules whose handlers are registered (and whose queue is one of [scheduler] queues, where that
    names any), and leaves all else as it is. It says so on standard error before it begins.

    Told to stop, it claims nothing more, lets its runs end or gives them back, and exits with status 0. Told twice, it
    gives them back at once.
    """
    from typing import cast  # noqa: PLC0415 - imported when called, so that --help stays quick

    from migrator.scheduler.process import Until  # noqa: PLC0415 - as above
    from migrator.scheduler.running import run  # noqa: PLC0415 - as above

    done = run(
        settings_of(config),
        handlers=handlers,
        until=cast("Until", until or "stopped"),
        reload=lambda: settings_of(config),
    )
    if as_json:
        print_json(done)
    else:
        ended = f"{done.completed:,} completed, {done.failed:,} failed, {done.timed_out:,} timed out"
        click.echo(f"fired {done.fired:,}, claimed {done.claimed:,}: {ended}, {done.given_back:,} given back")
    finish(0)
