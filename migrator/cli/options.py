"""Options and endings that every command shares."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from migrator.config import DEFAULT_PATH, Settings, load_with_exposed_files
from migrator.durations import LEAST, MOST, parse_duration
from migrator.errors import UsageError
from migrator.exit_status import Allowance
from migrator.redaction import redact_json, redact_line
from migrator.telemetry import say, set_output, shows_progress, visible, write_line

Command = TypeVar("Command", bound=Callable[..., Any])


_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")


def _set(**wanted: object) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return the callback of an option that changes how lines are written; the command does not see the option."""

    def change(_context: click.Context, _option: click.Parameter, given: Any) -> None:  # noqa: ANN401 - click's signature
        if given:
            set_output(**{name: given if value is ... else value for name, value in wanted.items()})

    return change


_OUTPUT = (
    click.option(
        "-v", "--verbose", is_flag=True, expose_value=False, callback=_set(verbosity=1), help="Print more: each chunk."
    ),
    click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=_set(verbosity=-1),
        help="Print only warnings and errors on standard error.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        expose_value=False,
        callback=_set(log_format=...),
        help="Format of standard error (default: text; the log is JSON where there is no terminal).",
    ),
    click.option(
        "--no-progress", is_flag=True, expose_value=False, callback=_set(progress=False), help="Show no progress."
    ),
)


def json_option(command: Command) -> Command:
    """Add ``--json``, which the command receives as ``as_json``, and the options of what is said on standard error."""
    for option in reversed(_OUTPUT):
        command = option(command)
    return _json(command)


config_option = click.option(
    "--config",
    type=click.Path(),
    envvar="MIGRATOR_CONFIG",
    help="Configuration file (default: MIGRATOR_CONFIG, else config.toml).",
)

dry_run_option = click.option("--dry-run", is_flag=True, help="Print what would be written, and write nothing.")

overwrite_option = click.option(
    "--overwrite-changed-rows",
    is_flag=True,
    help="A library's tables: overwrite the rows that another program has changed, and insert those that it has deleted"
    " again; recorded.",
)

workers_option = click.option(
    "--workers", type=click.IntRange(1, 256), metavar="N", help="Worker processes (default: one per processor)."
)


class AllowanceType(click.ParamType[Allowance]):
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


class DurationType(click.ParamType[timedelta]):
    """A duration with its unit, as in the configuration."""

    name = "duration"

    def __init__(self, *, least: timedelta = LEAST, most: timedelta = MOST) -> None:
        self._least, self._most = least, most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return the duration."""
        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(str(value), least=self._least, most=self._most)
        except ValueError as error:
            self.fail(str(error), param, ctx)


allow_quarantined_option = click.option(
    "--allow-quarantined",
    type=AllowanceType(),
    default=0,
    metavar="N|all",
    help="Allow at most N documents in quarantine; more set bit 8 of the exit status.",
)


def common_options(command: Command) -> Command:
    """Add ``--config`` and ``--json``; the command receives ``config`` and ``as_json``."""
    return config_option(json_option(command))


def load_scheduler(config: str | None) -> Settings:
    """Load the settings for a command about the tool's own scheduler; raises ``UsageError`` for a native target."""
    settings = load(config)
    if settings.target.is_native:
        raise UsageError(
            f"the target {settings.target.name} is tables of a library, and this command is about the schema scheduler:"
            " docs/targets.md says how an application changes over to a library's tables"
        )
    return settings


def load(config: str | None, **copy: object) -> Settings:
    """Load the settings named on the command line; ``copy`` overrides keys of ``[copy]`` where given."""
    settings, exposed = load_with_exposed_files(config)
    for file in exposed:
        say(
            f"warning: {file} holds a password and every user of this machine may read it: chmod 600 {file}",
            level="warning",
        )
    say(f"configuration: {config or DEFAULT_PATH}", level="debug")
    given = {name: value for name, value in copy.items() if value is not None}
    if not given:
        return settings
    return msgspec.structs.replace(settings, copy=msgspec.structs.replace(settings.copy, **given))


def finish(status: int) -> NoReturn:
    """End the command with ``status``, a bit mask (``migrator.exit_status``)."""
    raise click.exceptions.Exit(status)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines for people, redacted; a line that quotes a line end, or what a terminal obeys, stays one."""
    for line in lines:
        click.echo(redact_line(visible(line)))


def print_progress(line: str) -> None:
    """Write a line about a check that has ended on standard error, unless no progress is wanted."""
    if shows_progress():
        write_line(line)


def show(value: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print what a command returns: as one JSON document, or as lines for people."""
    if as_json:
        print_json(value)
    else:
        print_lines(lines)


def print_json(value: object) -> None:
    """Print one JSON document, redacted, its keys sorted; bytes as base64."""
    click.echo(redact_json(msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2).decode()))
