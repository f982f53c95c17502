"""Entry point: run the command line, and turn every error into one line and its exit status."""

import io
import json
import os
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import click

from migrator import interruption, output
from migrator.cli import cli
from migrator.errors import MigratorError, UnexpectedError, UsageError
from migrator.exit_status import TOOL_FAILED, UNVERIFIED, USAGE
from migrator.redaction import redact
from migrator.telemetry import is_utf8, shield_streams, visible, write_line, writes_json

TRACEBACK = "MIGRATOR_TRACEBACK"
"""Environment variable: set to anything, an error prints its traceback before its line."""

COMPLETION = "_MIGRATOR_COMPLETE"
"""Environment variable by which a shell asks for completions; click answers."""


def main() -> None:
    """Run ``migrator`` and exit with its status; ``MIGRATOR_TRACEBACK=1`` shows where an error came from.

    Ctrl-C and SIGTERM stop a command in order, a copy at a chunk; the second one ends it at once.
    """
    interruption.install_handlers()
    threading.excepthook = _thread_died
    sys.unraisablehook = _unraisable
    try:
        output.prepare()
        if COMPLETION not in os.environ:  # click writes bytes for the shell
            shield_streams()
        _check_arguments(sys.argv[1:])
        try:
            status = cli.main(prog_name="migrator", standalone_mode=False)
        finally:
            interruption.join_threads()
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.exceptions.Exit as end:
        status = end.exit_code
    except click.ClickException as error:
        message = _one_line(error.format_message())
        if writes_json():
            write_line(f"migrator: {message}", level="error")
        else:
            shown = io.StringIO()
            error.show(shown)
            _print_error(shown.getvalue().removesuffix("\n").replace(error.format_message(), message))
        status = _as_json(type(error).__name__, message, USAGE)
    except (click.Abort, KeyboardInterrupt):
        status = _failed("Interrupted", "interrupted", UNVERIFIED)  # an interrupted run left something so
    except UnexpectedError as error:
        status = _unexpected(error.__cause__ or error)
    except MigratorError as error:
        _trace(error)
        status = _failed(type(error).__name__, str(error), error.exit_status)
    except Exception as error:  # noqa: BLE001 - the last place that can turn one into a line
        status = _unexpected(error)
    sys.exit(status or 0)


def _check_arguments(arguments: list[str]) -> None:
    """Refuse what neither server, nor a report, could take as text; raises ``UsageError``."""
    for number, argument in enumerate(arguments, 1):
        if not is_utf8(argument):
            raise UsageError(f"argument {number} is not UTF-8: {argument}")


def _unexpected(error: BaseException) -> int:
    """Say that the tool itself is at fault, and how more is learnt; return the exit status."""
    _trace(error)
    return _failed(type(error).__name__, _describe(error, error.__traceback__), TOOL_FAILED)


def _failed(kind: str, words: str, status: int) -> int:
    """Say why the command failed; return the exit status."""
    _print_error(f"migrator: {words}")
    return _as_json(kind, words, status)


def _one_line(words: str) -> str:
    """Return a message of click as one line: it lists choices below each other, and quotes arguments as they are."""
    return visible(words.replace("\n\t", " "))


def _print_error(text: str) -> None:
    """Write an error's line on standard error, as a JSON document if lines are."""
    if writes_json():
        write_line(text, level="error")
        return
    # Redacted and spelled out here already: click takes the colours of a terminal out of what goes elsewhere.
    click.echo("\n".join(redact(visible(line)) for line in text.split("\n")), err=True)


def _as_json(kind: str, words: str, status: int) -> int:
    """Say it on standard output too, as the one JSON document, where that was asked for; return the exit status."""
    if "--json" in sys.argv[1:]:
        error = {"kind": kind, "message": redact(words), "exit_status": status}
        with suppress(OSError, ValueError):  # it may be standard output that failed
            click.echo(json.dumps({"error": error}, indent=2, sort_keys=True))
    return status


def _trace(error: BaseException) -> None:
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)


def _describe(error: BaseException, trace: TracebackType | None) -> str:
    """Name the error and its place; its own text may hold a document's values, or a password."""
    package = Path(__file__).parent
    ours = [
        f"{Path(frame.filename).relative_to(package.parent)}:{frame.lineno}"
        for frame in traceback.extract_tb(trace)
        if Path(frame.filename).is_relative_to(package)
    ]
    place = f" at {ours[-1]}" if ours else ""
    hint = "" if os.environ.get(TRACEBACK) else f"; {TRACEBACK}=1 in the environment prints the traceback"
    return f"unforeseen {type(error).__name__}{place}: the tool failed{hint}"


def _thread_died(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        _trace(args.exc_value)
        _print_error(f"migrator: {_describe(args.exc_value, args.exc_value.__traceback__)}")


def _unraisable(args: "sys.UnraisableHookArgs") -> None:
    """Report an error where none can be raised, in a destructor say: told to who asks for tracebacks."""
    if args.exc_value is not None:
        _trace(args.exc_value)


if __name__ == "__main__":
    main()
