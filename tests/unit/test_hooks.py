"""Hooks: real commands, what they read, and what a failure does."""

import json
import os
import signal
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


@pytest.mark.parametrize("point", hooks.POINTS)
def test_a_failure_prevents_what_has_not_begun_and_is_a_warning_elsewhere(
    point: str, capsys: pytest.CaptureFixture[str]
) -> None:
    failing: Any = {point: [SH, "-c", "echo first; echo password=hidden full >&2; exit 3"]}
    settings = configured(**failing)
    why = "ended with status 3 (password=*** full)"
    if point in hooks.PERMITTING:
        with pytest.raises(RefusedError) as refused:
            hooks.call(settings, point, {})
        assert str(refused.value) == f"the hook {point} {why}: nothing was begun"
        return
    assert hooks.call(settings, point, {}) == why
    assert capsys.readouterr().err == f"the hook {point} {why}; the command continues\n"


def test_where_no_hook_is_configured_nothing_is_called() -> None:
    assert [hooks.call(configured(), point, {}) for point in hooks.POINTS] == [""] * len(hooks.POINTS)


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
