"""The question before a command that destroys or moves something: what will happen, where; who wants it, and why."""

import getpass
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

import click

from migrator.config import Settings
from migrator.connections.identity import UNNAMED, environment_name
from migrator.connections.mongo import open_source
from migrator.connections.postgres import open_login
from migrator.errors import RefusedError, UsageError
from migrator.schema.decisions import Approval
from migrator.telemetry import say

Command = TypeVar("Command", bound=Callable[..., Any])

yes_option = click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation; required where there is no terminal, in a script."
)


def approval_options(command: Command) -> Command:
    """Add ``--who`` and ``--reason``; ``approval`` makes one value of them."""
    who = click.option("--who", metavar="WHO", help="Who decided it; recorded (default: the user of this session).")
    return who(click.option("--reason", metavar="WHY", help="Why it was decided; recorded.")(command))


def named_approval_options(command: Command) -> Command:
    """Add ``--who`` and ``--reason`` where a person must be named; ``named_approval`` makes one value of them."""
    who = click.option("--who", metavar="WHO", help="Who decided it; recorded and reported.")
    return who(click.option("--reason", metavar="WHY", help="Why it was decided; recorded and reported.")(command))


def approval(who: str | None, reason: str | None) -> Approval:
    """Return who wants it and why; nobody named: the user of this session, without a reason.

    Raises ``UsageError`` for a name that is given and empty: a variable of a script may be.
    """
    if who is not None and not _words(who):
        raise UsageError("--who is empty: name who decided it, or leave the option out for the user of this session")
    return Approval(_words(who) or _user(), _words(reason))


def named_approval(who: str | None, reason: str | None, what: str) -> Approval:
    """Return who decided and why; raises ``UsageError`` if one of the two is missing."""
    by = Approval(_words(who), _words(reason))
    missing = [option for option, words in (("--who", by.who), ("--reason", by.reason)) if not words]
    if missing:
        raise UsageError(f"{what} is a person's decision: say who and why ({' and '.join(missing)} missing)")
    return by


def confirm(
    settings: Settings,
    what: str,
    summary: Callable[[], Iterable[str]],
    *,
    yes: bool,
    backend: Literal["mongo", "postgres"] = "postgres",
) -> None:
    """Show what will happen, and go on only if the environment's name is typed; ``yes`` asks nothing.

    ``summary`` is asked for on a terminal alone. ``backend`` is the database that will be changed. Raises
    ``RefusedError`` without a terminal, and for another name.
    """
    if yes:
        return
    if not _on_a_terminal():
        raise RefusedError(f"{what} asks before it begins, and there is no terminal to answer on: add --yes")
    place, name = _place(settings) if backend == "postgres" else _place_on_mongo(settings)
    say(f"{what}, {place}", level="warning")
    for line in summary():
        say(f"  {line}", level="warning")
    answer = click.prompt(f"type {name} to go on", default="", show_default=False, err=True)
    if answer.strip() != name:
        raise RefusedError(f"the answer is not {name}: nothing was done")


def _on_a_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


def _place(settings: Settings) -> tuple[str, str]:
    """Return where it happens, and the name to be typed: that of the environment, else of the target's database."""
    called = environment_name(settings)
    with open_login(settings) as target:
        info = target.info
        host = info.host if info.host.startswith("/") else f"{info.host}:{info.port}"
        name = info.dbname if called == UNNAMED else called
        return f"environment {name}, target {host}, database {info.dbname}", name


def _place_on_mongo(settings: Settings) -> tuple[str, str]:
    """Return the same for a change in MongoDB; an environment without a name is called by MongoDB's database."""
    database = open_source(settings)
    with database.client as client:
        name = settings.cutover.environment or database.name
        hosts = ", ".join(sorted(f"{host}:{port}" for host, port in client.nodes))
        return f"environment {name}, MongoDB {hosts}, database {database.name}", name


def _words(given: str | None) -> str:
    return " ".join((given or "").replace("\0", " ").split())


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        return f"user {os.getuid()}"
