"""Hooks: real commands, what they read, and what a failure does."""

import ast
import json
import os
import select
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from migrator.config import CutoverSettings, HookSettings, MongoSettings, PostgresSettings, Settings
from migrator.errors import ConfigurationError, RefusedError
from migrator.pipeline import hooks

SH = "/bin/sh"
POINTS = tuple(hooks.commands(HookSettings()))
STATE: dict[str, Any] = {"documents": 3, "error": "no server at mongodb://me:secret@db"}


def configured(timeout: timedelta = timedelta(minutes=1), **commands: Any) -> Settings:  # noqa: ANN401 - lists of words
    return Settings(
        mongo=MongoSettings(uri_env="THE_URI"),
        postgres=PostgresSettings(dsn="postgresql://me:secret@db/app"),
        cutover=CutoverSettings(environment="production"),
        hooks=msgspec.structs.replace(HookSettings(timeout=timeout), **commands),
    )


def test_a_hook_reads_the_state_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THE_URI", "mongodb://me:secret@db")
    monkeypatch.setenv("MIGRATOR_POSTGRES__DSN", "postgresql://me:secret@db/app")
    monkeypatch.setenv("KEPT", "yes")
    script = 'cat > "$0"/document; env > "$0"/environment; echo said'
    settings = configured(backfill_ended=[SH, "-c", script, str(tmp_path)])
    assert hooks.call(settings, hooks.BACKFILL_ENDED, STATE, identity="plan 1") == ""
    told = json.loads((tmp_path / "document").read_text())
    assert told.pop("instant").endswith("+00:00")
    assert told == {
        "point": "backfill_ended",
        "environment": "production",
        "id": "plan 1",
        "state": {"documents": 3, "error": "no server at mongodb://***@db"},
    }
    environment = (tmp_path / "environment").read_text()
    assert "KEPT=yes" in environment
    assert ":secret@" not in environment
    assert capsys.readouterr() == ("", "")  # standard output is the command's


LOGINS = {
    "PGPASSWORD": "secret",
    "PGPASSFILE": "/home/me/.pgpass",
    "PGSERVICEFILE": "/home/me/.pg_service.conf",
    "PGSSLKEY": "/home/me/client.key",
    "MIGRATOR_MONGO__URI": "mongodb://db",
    "MIGRATOR_SOURCE__URI": "postgresql://db",
    "MIGRATOR_POSTGRES__DSN": "service=target",
    "MIGRATOR_COPY__DASK_SCHEDULER": "tls://me:secret@db:8786",
    "THE_URI": "mongodb://db",
    "DATABASE_URL": "postgresql://me:secret@db/app",
    "CONNECTION": "host=db password=secret",
}


@pytest.mark.parametrize("asked_for", [None, "PGPASSWORD", "DATABASE_URL"])
def test_a_hook_gets_what_logs_in_only_where_it_is_asked_for(
    asked_for: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**LOGINS, "MIGRATOR_MONGO__DATABASE": "app", "HOME_PAGE": "https://example.org"}.items():
        monkeypatch.setenv(name, value)
    chosen: Any = {"environment": [] if asked_for is None else [asked_for]}
    settings = configured(backfill_ended=[SH, "-c", 'env > "$0"/environment', str(tmp_path)], **chosen)
    assert hooks.call(settings, hooks.BACKFILL_ENDED, STATE) == ""
    got = {line.partition("=")[0] for line in (tmp_path / "environment").read_text().splitlines()}
    assert got & set(LOGINS) == ({asked_for} - {None})
    assert {"MIGRATOR_MONGO__DATABASE", "HOME_PAGE", "PATH"} <= got


@pytest.mark.parametrize("point", POINTS)
def test_a_failure_prevents_what_has_not_begun_and_is_a_warning_elsewhere(
    point: str, capsys: pytest.CaptureFixture[str]
) -> None:
    failing: Any = {point: [SH, "-c", "echo first; echo password=hidden full >&2; exit 3"]}
    settings = configured(**failing)
    why = "ended with status 3 (password=***)"
    if point in hooks.PERMITTING:
        with pytest.raises(RefusedError) as refused:
            hooks.call(settings, point, {})
        assert str(refused.value) == f"the hook {point} {why}: nothing was begun"
        return
    assert hooks.call(settings, point, {}) == why
    assert capsys.readouterr().err == f"the hook {point} {why}; the command continues\n"


def test_where_no_hook_is_configured_nothing_is_called() -> None:
    assert [hooks.call(configured(), point, {}) for point in POINTS] == [""] * len(POINTS)


def test_a_hook_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script = f"{sys.executable} -c 'import signal; signal.pause()' > '{pipe}' & wait"
    settings = configured(timedelta(milliseconds=500), parity_ended=[SH, "-c", script])
    ended: list[bytes] = []
    reader = threading.Thread(target=lambda: ended.append(pipe.read_bytes()))  # to the end of the last writer
    reader.start()
    assert hooks.call(settings, hooks.PARITY_ENDED, {}) == "took longer than 0.5 s and was ended"
    reader.join()
    assert ended == [b""]
    assert hooks.call(settings, hooks.PARITY_ENDED, {}, at_most_s=-1) == "took longer than 0 s and was ended"


def test_an_interrupted_command_ends_its_hook(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    settings = configured(cutover_ended=[SH, "-c", f"echo $$ > '{pipe}'; exec sleep 600"])
    pids: list[int] = []

    def interrupt() -> None:
        pids.append(int(pipe.read_text()))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        hooks.call(settings, hooks.CUTOVER_ENDED, {})
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_program_that_does_not_exist_is_told_before_anything_begins() -> None:
    with pytest.raises(
        ConfigurationError, match=r"^hooks\.cutover_fenced: there is no program /nowhere that can be executed$"
    ):
        hooks.require_programs(configured(cutover_fenced=["/nowhere", "x"]))
    hooks.require_programs(configured(cutover_fenced=[SH]))


def test_no_code_of_the_tool_runs_between_fork_and_exec() -> None:
    """Beside threads it could wait for ever for a lock that one of them held at the fork."""
    package = Path(hooks.__file__).parents[1]
    using = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.keyword) and node.arg == "preexec_fn"
    }
    assert using == {"testing/servers/guardian.py"}, "a process of its own, which has one thread"


def test_a_hook_is_started_as_from_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With signals that are not ignored, and without what the interpreter of the launcher adds to the environment."""
    monkeypatch.delenv("LC_CTYPE", raising=False)
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("KEPT", "a=b")
    script = 'env > "$0"/environment; grep SigIgn /proc/$$/status > "$0"/ignored'
    assert hooks.call(configured(backfill_ended=[SH, "-c", script, str(tmp_path)]), hooks.BACKFILL_ENDED, STATE) == ""
    environment = (tmp_path / "environment").read_text().splitlines()
    assert "KEPT=a=b" in environment
    assert not [line for line in environment if line.startswith("LC_CTYPE=")]
    ignored = int((tmp_path / "ignored").read_text().split()[1], 16)
    assert not any(ignored >> (number - 1) & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))


def test_a_command_that_cannot_be_executed_is_not_taken_for_its_own_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF no program")
    program.chmod(0o700)
    failed = hooks.call(configured(backfill_ended=[str(program)]), hooks.BACKFILL_ENDED, STATE)
    assert failed == "cannot be started (Exec format error)"
    assert "cannot be started" in capsys.readouterr().err
    assert hooks.call(configured(backfill_ended=[SH, "-c", "exit 127"]), hooks.BACKFILL_ENDED, STATE) == (
        "ended with status 127"
    )


def test_a_hook_ends_with_the_tool_however_that_ends(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = [SH, "-c", f"echo $$ > '{pipe}'; exec sleep 600"]
    code = (
        "from migrator.config import HookSettings, Settings\nfrom migrator.pipeline import hooks\n"
        f"hooks.call(Settings(hooks=HookSettings(cutover_ended={words!r})), hooks.CUTOVER_ENDED, {{}})"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as tool:
        hook = os.pidfd_open(int(pipe.read_text()))
        tool.kill()
    try:
        assert select.select([hook], [], [], 60)[0] == [hook]
    finally:
        os.close(hook)
