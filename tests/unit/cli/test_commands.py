"""The frame of the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from migrator.cli import cli


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("backfil", "no command backfil; did you mean backfill?"),
        ("xyzzy", "no command xyzzy; known: assess, backfill, config, control, cutover, demo, doctor, "),
        ("--nope", "No such option"),
    ],
)
def test_a_command_that_does_not_exist_is_answered_with_the_nearest(word: str, said: str) -> None:
    done = subprocess.run([sys.executable, "-m", "migrator", word], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("options", [[], ["--load"]])
def test_the_plan_of_a_verification_has_the_load_where_it_is_asked_for(options: list[str], tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[mongo]\nuri = "mongodb://127.0.0.1:9/x"\n')
    config.chmod(0o600)
    found = CliRunner().invoke(cli, ["verify", "--dry-run", "--json", "--config", str(config), *options])
    assert ("performance.load" in json.loads(found.stdout)["would_check"]) == bool(options)
