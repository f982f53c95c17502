"""Hooks: commands of the operator, called at named points with the state as JSON on standard input (``[hooks]``)."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from migrator.config import PREFIX, HookSettings, Settings
from migrator.connections.identity import environment_name
from migrator.errors import ConfigurationError, RefusedError
from migrator.redaction import redact, redact_all
from migrator.telemetry import say

BACKFILL_STARTED: Final = "backfill_started"
BACKFILL_ENDED: Final = "backfill_ended"
PARITY_ENDED: Final = "parity_ended"
CUTOVER_BEFORE_FENCE: Final = "cutover_before_fence"
CUTOVER_FENCED: Final = "cutover_fenced"
CUTOVER_OPENED: Final = "cutover_opened"
CUTOVER_ENDED: Final = "cutover_ended"
CUTOVER_FAILED: Final = "cutover_failed"
ROLLBACK_ENDED: Final = "rollback_ended"
PERMITTING: Final = frozenset({BACKFILL_STARTED, CUTOVER_BEFORE_FENCE})
"""Points before something begins: a hook that fails there prevents it."""

_DATABASE = re.compile(r"(?i)(?:mongodb(?:\+srv)?|postgres(?:ql)?)://|\bpassword\s*=")
LOGINS: Final = frozenset({"PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE", "PGSSLKEY"})
"""Variables with which libpq logs in."""
LAUNCHER: Final = Path(__file__).with_name("hook_launcher.py")
LAST_BYTES: Final = 2_000
"""How much of what a hook wrote is read for its last line."""


def commands(hooks: HookSettings) -> dict[str, list[str]]:
    """Return point → the command that is called there; empty: none is."""
    return {
        BACKFILL_STARTED: hooks.backfill_started,
        BACKFILL_ENDED: hooks.backfill_ended,
        PARITY_ENDED: hooks.parity_ended,
        CUTOVER_BEFORE_FENCE: hooks.cutover_before_fence,
        CUTOVER_FENCED: hooks.cutover_fenced,
        CUTOVER_OPENED: hooks.cutover_opened,
        CUTOVER_ENDED: hooks.cutover_ended,
        CUTOVER_FAILED: hooks.cutover_failed,
        ROLLBACK_ENDED: hooks.rollback_ended,
    }


def require_programs(settings: Settings) -> None:
    """Raise ``ConfigurationError`` for a hook whose program does not exist or cannot be executed."""
    for point, command in commands(settings.hooks).items():
        if command and shutil.which(command[0]) is None:
            raise ConfigurationError(f"hooks.{point}: there is no program {command[0]} that can be executed")


def call(
    settings: Settings, point: str, state: Mapping[str, Any], *, identity: object = None, at_most_s: float | None = None
) -> str:
    """Call the hook of a point, if there is one; return why it failed, empty if it did not.

    ``identity``: the id of the plan or of the cutover. ``at_most_s``: a limit below ``hooks.timeout``. A failure at a
    point of ``PERMITTING`` is raised as ``RefusedError``; any other is a warning, and the command continues.
    """
    command = commands(settings.hooks)[point]
    if not command:
        return ""
    limit = settings.hooks.timeout.total_seconds()
    limit = limit if at_most_s is None else max(0.0, min(limit, at_most_s))
    told = {
        "point": point,
        "environment": environment_name(settings),
        "id": None if identity is None else str(identity),
        "instant": datetime.now(UTC).isoformat(),
        "state": dict(state),
    }
    why = _run(command, json.dumps(redact_all(told), default=str), limit, _environment(settings))
    if not why:
        say(f"hook {point}: done", level="debug")
        return ""
    if point in PERMITTING:
        raise RefusedError(f"the hook {point} {why}: nothing was begun")
    say(f"the hook {point} {why}; the command continues", level="warning")
    return why


def _run(command: list[str], document: str, limit: float, environment: Mapping[str, str]) -> str:
    """Run a command to its end; return why it failed. It ends with this process, however this one ends (Linux)."""
    with tempfile.TemporaryFile() as output:
        reading, writing = os.pipe()
        locale = "=" if "LC_CTYPE" in environment else "-"
        try:
            child = subprocess.Popen(  # noqa: S603 - the operator's own command, without a shell
                [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), str(writing), locale, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=[writing],
                start_new_session=True,
            )
        except OSError as error:
            os.close(reading)
            return f"cannot be started ({error.strerror or type(error).__name__})"
        finally:
            os.close(writing)
        try:
            with open(reading, "rb") as report:  # noqa: PTH123 - a pipe; its end is the start of the command
                failure = report.read()
            if failure:
                _kill(child)
                return f"cannot be started ({os.strerror(int(failure))})"
            child.communicate(document.encode(), timeout=limit)
        except subprocess.TimeoutExpired:
            _kill(child)
            return f"took longer than {limit:.3g} s and was ended"
        except BaseException:
            _kill(child)
            raise
        if child.returncode == 0:
            return ""
        ended = f"signal {-child.returncode}" if child.returncode < 0 else f"status {child.returncode}"
        return f"ended with {ended}{_last_line(output)}"


def _kill(child: "subprocess.Popen[bytes]") -> None:
    """End a hook, and what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdin is not None:
        with suppress(OSError):
            child.stdin.close()


def _last_line(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - LAST_BYTES))
    lines = output.read().decode("utf-8", "replace").split("\n")
    said = [one for line in lines if (one := line.strip())]
    return f" ({redact(said[-1])})" if said else ""


def _environment(settings: Settings) -> dict[str, str]:
    """Return this process's environment without what logs in on a server, but for what ``hooks.environment`` names."""
    asked_for = frozenset(settings.hooks.environment)
    logins = {settings.mongo.uri_env, settings.source.uri_env, settings.postgres.dsn_env, *LOGINS}
    return {
        name: value
        for name, value in os.environ.items()
        if name in asked_for or not (name in logins or _holds_login(name, value))
    }


def _holds_login(name: str, value: str) -> bool:
    """Whether a variable is a setting with an address, or holds the address of a database with a login."""
    if name.startswith(PREFIX) and (name.endswith(("__URI", "__DSN")) or redact(value) != value):
        return True
    return _DATABASE.search(value) is not None and redact(value) != value
