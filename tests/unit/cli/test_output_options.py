"""Options that every command has: what is said on standard error, which file is read, and completion in a shell."""

import json
import os
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path

import click
import pytest

from migrator import telemetry
from migrator.cli import COMMANDS, cli
from migrator.cli.options import print_progress
from migrator.pipeline import executors


def call(*arguments: str, **environment: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "migrator", *arguments]
    given = {name: value for name, value in os.environ.items() if not name.startswith("MIGRATOR_")} | environment
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=given)
    return done.returncode, done.stdout, done.stderr


def commands(group: click.Group, context: click.Context) -> list[click.Command]:
    found = []
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        assert one is not None
        found += commands(one, context) if isinstance(one, click.Group) else [one]
    return found


def test_every_command_has_them() -> None:
    every = commands(cli, click.Context(cli))
    assert len(every) > len(COMMANDS)
    for one in every:
        options = {option for parameter in one.params for option in parameter.opts}
        if one.name == "draft":  # prints a mapping file, and nothing else
            continue
        assert {"--verbose", "--quiet", "--log-format", "--no-progress", "--json"} <= options, one.name


def test_an_error_is_a_json_document_on_both_streams_where_that_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "absent.toml"
    status, out, err = call("status", "--json", "--log-format", "json", MIGRATOR_CONFIG=str(file))
    assert status == 2
    said = json.loads(err)
    assert (said["level"], said["event"]) == ("error", f"migrator: {json.loads(out)['error']['message']}")
    assert f"no configuration file {file}" in said["event"]  # MIGRATOR_CONFIG names it


def test_the_option_has_precedence_over_the_environment(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text("[odd]\n")
    _, _, err = call("status", "--config", str(tmp_path / "odd.toml"), MIGRATOR_CONFIG=str(tmp_path / "absent.toml"))
    assert "unknown section [odd]" in err


@pytest.mark.parametrize(("words", "current", "found"), [("cuto", "1", "cutover"), ("cutover ru", "2", "run")])
def test_a_shell_completes_commands(words: str, current: str, found: str) -> None:
    asked = {"COMP_WORDS": f"migrator {words}", "COMP_CWORD": current, "_MIGRATOR_COMPLETE": "bash_complete"}
    script = [sys.executable, "-c", "import sys; sys.argv = ['migrator']; from migrator.__main__ import main; main()"]
    done = subprocess.run(script, capture_output=True, text=True, check=False, env=os.environ | asked)
    assert (done.stdout, done.stderr) == (f"plain,{found}\n", "")


class Shown:
    """What stands on a terminal."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def print(self, line: str) -> None:
        raise AssertionError(line)

    def waiting(self, reason: str) -> None:
        self.reasons.append(reason)


def test_the_reasons_of_workers_reach_the_bars_of_their_parent() -> None:
    receiving, sending = Pipe(duplex=False)
    channel, shown = executors._Channel(sending), Shown()
    channel.waiting("the target went away")
    channel.waiting("x" * 100_000)  # cut: a long one would be written in parts
    sending.close()
    telemetry.set_display(shown)
    try:
        executors._relay(receiving)  # until the last worker has ended
    finally:
        telemetry.set_display(None)
    assert shown.reasons == ["the target went away", "x" * executors.REASON_BYTES]
    channel.waiting("nobody listens")  # and nobody is disturbed


@pytest.mark.parametrize("silent", [{"progress": False}, {"verbosity": -1}])
def test_no_progress_is_printed_where_none_is_wanted(
    silent: dict[str, int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_output", telemetry.OutputSettings())
    print_progress("verify: 1/7 schema.revision: passed")
    assert capsys.readouterr().err == "verify: 1/7 schema.revision: passed\n"
    telemetry.set_output(**silent)
    print_progress("verify: 1/7 schema.revision: passed")
    assert capsys.readouterr().err == ""
