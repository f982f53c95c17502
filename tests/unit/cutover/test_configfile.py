"""The configuration file is switched in place: comments stay, a backup is kept, what cannot be switched is refused."""

import os
import tomllib
from pathlib import Path

import pytest

from migrator.cutover import configfile
from migrator.errors import ConfigurationError, RefusedError

TEXT = """\
# whose it is
[source]
default_tenant = "acme" # the only one

[persistence]
# the switch
scheduler = "mongo" # until the day
shadow = "read"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(TEXT)
    return path


@pytest.mark.proves("0-T2.12.1")
def test_only_the_key_changes_and_the_old_text_is_kept(file: Path, tmp_path: Path) -> None:
    backup = tmp_path / "config.toml.before"
    configfile.switch(file, "postgres", backup)
    assert file.read_text() == TEXT.replace('"mongo"', '"postgres"')
    assert backup.read_text() == TEXT
    assert configfile.backend_in(file) == "postgres"


def test_a_second_call_changes_nothing(file: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    configfile.switch(file, "postgres", backup)
    before = file.stat()
    configfile.switch(file, "postgres", backup)
    assert (file.stat().st_ino, backup.read_text()) == (before.st_ino, TEXT)


def test_the_first_backup_stays(file: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    backup.write_text("the true one")
    configfile.switch(file, "postgres", backup)
    assert backup.read_text() == "the true one"


def test_mode_and_link_stay(file: Path, tmp_path: Path) -> None:
    file.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    configfile.switch(link, "postgres", tmp_path / "backup")
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert configfile.backend_in(file) == "postgres"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["backup", "config.toml", "link.toml"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "[mongo]\ntimeout_ms = 5\n",
        '[persistence]\nshadow = "off"\n',
        'persistence = { scheduler = "mongo" }\n',
        'persistence.scheduler = "mongo"\n[mongo]\ntimeout_ms = 1\n',
        "[persistence]\nscheduler = 'mongo'\n[mongo]\n",
    ],
)
def test_any_way_to_write_it_is_switched(text: str) -> None:
    changed = configfile.switched(text, "postgres", "c.toml")
    expected = tomllib.loads(text)
    expected.setdefault("persistence", {})["scheduler"] = "postgres"
    assert tomllib.loads(changed) == expected
    assert all(line in changed for line in text.splitlines() if line.startswith("#"))


@pytest.mark.parametrize("text", ["persistence = 3\n", "[[persistence]]\nscheduler = 'mongo'\n", "not toml"])
def test_what_cannot_be_switched_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match=r"c\.toml: persistence\.scheduler cannot be changed in place"):
        configfile.switched(text, "postgres", "c.toml")


def test_an_environment_variable_that_would_override_it_is_refused(file: Path) -> None:
    configfile.require_switchable(file, {})
    with pytest.raises(RefusedError, match="MIGRATOR_PERSISTENCE__SCHEDULER is set"):
        configfile.require_switchable(file, {"MIGRATOR_PERSISTENCE__SCHEDULER": "mongo"})


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no configuration file"):
        configfile.require_switchable(tmp_path / "no.toml", {})


@pytest.mark.parametrize(("target", "words"), [("file", "cannot be written"), ("folder", "the folder of")])
def test_a_file_or_folder_that_cannot_be_written_is_refused(
    target: str, words: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = file if target == "file" else file.parent
    allowed = os.access

    def access(path: Path, mode: int) -> bool:
        # root may write anywhere, so the answer is planted
        return False if path == place and mode & os.W_OK else allowed(path, mode)

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(RefusedError, match=words):
        configfile.require_switchable(file, {})


def test_a_kill_before_the_renaming_leaves_the_old_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        configfile.switch(file, "postgres", tmp_path / "backup")
    assert file.read_text() == TEXT
    assert [one.name for one in tmp_path.iterdir()] == ["config.toml"]
