"""Options and endings that every command shares."""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from migrator.config import Settings, load_with_exposed_files
from migrator.exit_status import Allowance
from migrator.telemetry import say, visible

Command = TypeVar("Command", bound=Callable[..., Any])


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")

workers_option = click.option(
    "--workers", type=click.IntRange(1, 256), metavar="N", help="Worker processes (default: one per processor)."
)


class _Allowance(click.ParamType[Allowance]):
    """A number of documents, or ``all``."""

    name = "N|all"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Allowance:
        """Return the number, or ``all``."""
        if value == "all":
            return "all"
        try:
            count = int(str(value))
        except ValueError:
            count = -1
        if count < 0:
            self.fail(f"{value} is neither a number of documents nor all", param, ctx)
        return count


allow_quarantined_option = click.option(
    "--allow-quarantined",
    type=_Allowance(),
    default=0,
    metavar="N|all",
    help="Allow at most N documents in quarantine; more set bit 8 of the exit status.",
)


def common_options(command: Command) -> Command:
    """Add ``--config`` and ``--json``; the command receives ``config`` and ``as_json``."""
    return click.option("--config", type=click.Path(), help="Configuration file (default: config.toml).")(
        json_option(command)
    )


def load(config: str | None, **copy: object) -> Settings:
    """Load the settings named on the command line; ``copy`` overrides keys of ``[copy]`` where given."""
    settings, exposed = load_with_exposed_files(config)
    for file in exposed:
        say(f"warning: {file} holds a password and every user of this machine may read it: chmod 600 {file}")
    given = {name: value for name, value in copy.items() if value is not None}
    if not given:
        return settings
    return msgspec.structs.replace(settings, copy=msgspec.structs.replace(settings.copy, **given))


def finish(status: int) -> NoReturn:
    """End the command with ``status``, a bit mask (design, command line)."""
    raise click.exceptions.Exit(status)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines for people; a line that quotes a name with a line end, or with what a terminal obeys, stays one."""
    for line in lines:
        click.echo(visible(line))


def show(value: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print what a command returns: as one JSON document, or as lines for people."""
    if as_json:
        print_json(value)
    else:
        print_lines(lines)


def print_json(value: object) -> None:
    """Print one JSON document, its keys sorted; bytes as base64."""
    click.echo(msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2).decode())
