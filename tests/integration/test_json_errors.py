"""Errors under ``--json``: of every command, for each class of error, one JSON document with the exit status."""

import json
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from migrator.exit_status import TOOL_FAILED, USAGE
from migrator.testing.servers.mongo import MongoServer
from tests.bad_input.calling import Answer, call
from tests.command_tree import commands
from tests.conftest import NEWEST, Clusters, fresh_name
from tests.schema_rows import connect, insert

COMMANDS = {
    name: command
    for name, command in commands().items()
    if "--json" in {one for option in command.params for one in option.opts}
}
WITHOUT_JSON = {"source draft"}
"""What it prints is a mapping file; its errors are JSON all the same."""

RESULT = Path(__file__).resolve().parents[2] / "reports" / "sample" / "result.json"


def handler(**_: object) -> None:
    """Take anything."""


HANDLERS = {"nobody": handler}
GIVEN = {
    "assess": "mongodb://127.0.0.1:9/none?serverSelectionTimeoutMS=100",
    "control set": "max_rate=500",
    "cutover parallel": "--who me --reason test",
    "cutover clean-copy": "--who me --reason x --yes",
    "cutover rehearse": "--yes",
    "cutover release-source": "--yes",
    "cutover run": "--yes",
    "jobs create": "--tenant x --handler x --once --dry-run",
    "quarantine drop": "runs x --who me --reason test --yes",
    "quarantine show": "runs x",
    "report check": str(RESULT),
    "report render": str(RESULT),
    "report sign": f"{RESULT} --key absent.pem",
    "rollback run": "--yes",
    "scheduler run": f"--once --handlers {__name__}:HANDLERS",
    "schema downgrade": "--yes",
    "source show": "stellaops",
}
"""What a command must be given besides what it requires by itself."""

OWN_SERVERS = {"demo", "servers start", "servers status", "servers stop"}
"""Commands that ask no server of the configuration."""
ASK_NOBODY = OWN_SERVERS | {
    "config check", "config show", "report check", "report render", "report sign", "source list", "source show",
    "target list", "target show",
}  # fmt: skip
OF_THE_ERRORS_OWN = {"doctor", "verify"}
"""Commands whose result says that a server cannot be reached."""

UNREACHABLE = {
    "MIGRATOR_MONGO__URI": "mongodb://127.0.0.1:9/none",
    "MIGRATOR_MONGO__TIMEOUT": "100ms",
    "MIGRATOR_POSTGRES__DSN": "postgresql://127.0.0.1:9/none",
    "MIGRATOR_COPY__PATIENCE": "1ms",
}
ON_APSCHEDULER = {"MIGRATOR_TARGET__NAME": "apscheduler", "MIGRATOR_SOURCE__PROFILE": "apscheduler"}
NATIVE = {"cutover confirm": ON_APSCHEDULER, "target prepare": ON_APSCHEDULER}
"""Settings of commands that are about a native target."""


def arguments(name: str) -> list[str]:
    """Return a call of the command that is complete."""
    words = [*name.split(), "--json", *shlex.split(GIVEN.get(name, ""))]
    if name in GIVEN:
        return words
    for option in COMMANDS[name].params:
        if option.required and isinstance(option, click.Argument):
            words.append("x")
        elif option.required:
            words += [option.opts[0], "x"]
    return words


def document(answer: Answer) -> dict[str, Any]:
    """Return the one JSON document of standard output; whatever else is said is no traceback."""
    found: dict[str, Any] = json.loads(answer.out)
    assert "Traceback" not in answer.text
    assert "unforeseen" not in answer.text
    return found


def error(answer: Answer) -> dict[str, Any]:
    """Return the error, which is all that is written on standard output, with the status of the process."""
    found = document(answer)
    assert [*found] == ["error"]
    assert sorted(found["error"]) == ["exit_status", "kind", "message"]
    assert found["error"]["exit_status"] == answer.status
    assert answer.err
    told: dict[str, Any] = found["error"]
    return told


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_command_but_one_has_the_option() -> None:
    assert commands().keys() - COMMANDS.keys() == WITHOUT_JSON


@pytest.mark.parametrize("name", sorted({*COMMANDS, *WITHOUT_JSON}))
def test_the_command_line_itself_is_wrong(name: str) -> None:
    for wrong, kind in (
        (["--nonsense"], "NoSuchOption"),
        (["--log-format", "nonsense"], "BadParameter"),
        (["--config"], "BadOptionUsage" if "--config" in options(name) else "NoSuchOption"),
    ):
        told = error(call([*name.split(), "--json", *wrong], {}))
        assert (told["kind"], told["exit_status"]) == (kind if name in COMMANDS else "NoSuchOption", USAGE)
    if any(one.required for one in commands()[name].params):
        assert error(call([*name.split(), "--json"], {}))["kind"] in ("MissingParameter", "NoSuchOption")


def options(name: str) -> set[str]:
    return {one for option in commands()[name].params for one in option.opts}


@pytest.mark.parametrize("group", ["", *sorted({name.split()[0] for name in COMMANDS if " " in name})])
def test_there_is_no_such_command(group: str) -> None:
    told = error(call([*group.split(), "--json", "nonsense"], {}))
    assert told["exit_status"] == USAGE
    told = error(call([*group.split(), "nonsense", "--json"], {}))
    assert told["exit_status"] == USAGE


@pytest.mark.parametrize("name", sorted(name for name in COMMANDS if "--config" in options(name)))
def test_the_configuration_is_wrong(name: str, tmp_path: Path) -> None:
    told = error(call([*arguments(name), "--config", "absent.toml"], {}))
    assert (told["kind"], told["exit_status"]) == ("ConfigurationError", USAGE)
    assert "absent.toml" in told["message"]
    file = tmp_path / "config.toml"
    file.write_text("[copy]\nworkers = -1\n")
    told = error(call([*arguments(name), "--config", str(file)], {}))
    assert (told["kind"], "copy.workers" in told["message"]) == ("ConfigurationError", True)


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - ASK_NOBODY))
def test_no_server_can_be_reached(name: str) -> None:
    answer = call(arguments(name), UNREACHABLE | NATIVE.get(name, {}))
    if name in OF_THE_ERRORS_OWN:
        assert answer.status & TOOL_FAILED
        assert "error" not in document(answer)
    else:
        told = error(answer)
        assert (told["kind"], told["exit_status"]) == ("UnreachableError", TOOL_FAILED)


@pytest.fixture(scope="module")
def empty(mongo_server: MongoServer, clusters: Clusters) -> Iterator[dict[str, str]]:
    """A source without documents, and a target without the schema."""
    cluster = clusters.get(NEWEST)
    dsn = cluster.empty()
    yield {
        "MIGRATOR_MONGO__URI": mongo_server.uri,
        "MIGRATOR_MONGO__DATABASE": fresh_name(),
        "MIGRATOR_POSTGRES__DSN": dsn,
    }
    cluster.drop(dsn)


DONE_THERE = {"demo seed", "schema upgrade"}
"""Commands that would fill the empty databases."""
LOOKING = {"config check", "config show", "doctor", "schema check", "schema current", "source list", "source show"}
"""Commands that an empty pair is no reason to refuse."""
OF_ANOTHER_ADDRESS = {"assess"}
"""Commands that are given the address on the command line, here one where nobody answers."""


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - OWN_SERVERS - DONE_THERE - OF_ANOTHER_ADDRESS))
def test_what_an_empty_pair_of_databases_refuses(name: str, empty: dict[str, str]) -> None:
    answer = call(arguments(name), empty)
    found = document(answer)
    assert (name in LOOKING) <= ("error" not in found)
    if "error" in found:
        assert error(answer)["exit_status"] == USAGE
    else:
        assert not answer.status & USAGE


@pytest.mark.parametrize("name", ["cutover run", "rollback run", "schema downgrade", "parity --repair apply"])
def test_what_asks_first_is_refused_without_a_terminal(name: str) -> None:
    told = error(call([*name.split(), "--json"], {"MIGRATOR_POSTGRES__DSN": "postgresql://127.0.0.1:9/none"}))
    assert (told["kind"], told["exit_status"]) == ("RefusedError", USAGE)


def test_a_removal_that_is_not_allowed_is_one_error(scheduler_dsn: str) -> None:
    old = datetime.now(UTC) - timedelta(days=100)
    with connect(scheduler_dsn) as connection:
        insert(connection, "runs", state="completed", created_at=old, finished_at=old)
    places = {"MIGRATOR_POSTGRES__DSN": scheduler_dsn, "MIGRATOR_PERSISTENCE__SCHEDULER": "postgres"}
    told = error(call(["scheduler", "retention", "--json", "--keep", "0", "--age", "1d"], places))
    assert told["message"] == "nothing was removed: add --yes to the command to remove these runs"
