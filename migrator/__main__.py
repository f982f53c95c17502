"""Entry point: run the command line, and turn every error of the tool into one line and its exit status."""

import os
import signal
import sys
from types import FrameType

import click

from migrator.cli import cli
from migrator.errors import MigratorError
from migrator.exit_status import UNVERIFIED, USAGE
from migrator.telemetry import shield_streams


def main() -> None:
    """Run ``migrator`` and exit with its status; ``MIGRATOR_TRACEBACK=1`` shows where an error came from.

    SIGTERM stops as Ctrl-C does: a copy ends at a chunk.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    shield_streams()
    try:
        status = cli.main(prog_name="migrator", standalone_mode=False)
    except click.exceptions.Exit as end:
        status = end.exit_code
    except click.ClickException as error:
        error.show()
        status = USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("migrator: interrupted", err=True)
        status = UNVERIFIED  # an interrupted run left something so
    except MigratorError as error:
        if os.environ.get("MIGRATOR_TRACEBACK"):
            raise
        click.echo(f"migrator: {error}", err=True)
        status = error.exit_status
    sys.exit(status or 0)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
