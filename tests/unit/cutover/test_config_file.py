"""The configuration file is switched in place: comments stay, a backup is kept, what cannot be switched is refused."""

import errno
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.cutover import config_file
from migrator.errors import ConfigurationError, RefusedError
from migrator.testing.servers.directory import unprivileged
from tests.ordinary_user import ordinary_folder, ordinary_user

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
    config_file.set_backend(file, "postgres", backup)
    assert file.read_text() == TEXT.replace('"mongo"', '"postgres"')
    assert backup.read_text() == TEXT
    assert config_file.named_backend(file) == "postgres"


def test_a_second_call_changes_nothing(file: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    config_file.set_backend(file, "postgres", backup)
    before = file.stat()
    config_file.set_backend(file, "postgres", backup)
    assert (file.stat().st_ino, backup.read_text()) == (before.st_ino, TEXT)


def test_the_first_backup_stays(file: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    backup.write_text("the true one")
    config_file.set_backend(file, "postgres", backup)
    assert backup.read_text() == "the true one"


def test_mode_and_link_stay(file: Path, tmp_path: Path) -> None:
    file.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    config_file.set_backend(link, "postgres", tmp_path / "backup")
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert config_file.named_backend(file) == "postgres"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["backup", "config.toml", "link.toml"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        '[mongo]\ntimeout = "5s"\n',
        '[persistence]\nshadow = "off"\n',
        'persistence = { scheduler = "mongo" }\n',
        'persistence.scheduler = "mongo"\n[mongo]\ntimeout = "1s"\n',
        "[persistence]\nscheduler = 'mongo'\n[mongo]\n",
    ],
)
def test_any_way_to_write_it_is_switched(text: str) -> None:
    changed = config_file.with_backend(text, "postgres", "c.toml")
    expected = tomllib.loads(text)
    expected.setdefault("persistence", {})["scheduler"] = "postgres"
    assert tomllib.loads(changed) == expected
    assert all(line in changed for line in text.splitlines() if line.startswith("#"))


@pytest.mark.parametrize("text", ["persistence = 3\n", "[[persistence]]\nscheduler = 'mongo'\n", "not toml"])
def test_what_cannot_be_switched_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match=r"c\.toml: persistence\.scheduler cannot be changed in place"):
        config_file.with_backend(text, "postgres", "c.toml")


def test_an_environment_variable_that_would_override_it_is_refused(file: Path) -> None:
    config_file.require_changeable(file, {})
    with pytest.raises(RefusedError, match="MIGRATOR_PERSISTENCE__SCHEDULER is set"):
        config_file.require_changeable(file, {"MIGRATOR_PERSISTENCE__SCHEDULER": "mongo"})


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no configuration file"):
        config_file.require_changeable(tmp_path / "no.toml", {})


@pytest.fixture
def owned() -> Iterator[Path]:
    """A file in a folder of the ordinary user."""
    with ordinary_folder() as folder, ordinary_user():
        path = folder / "config.toml"
        path.write_text(TEXT)
        yield path


@pytest.mark.parametrize(
    ("target", "mode", "words"),
    [("file", 0o400, r"config\.toml cannot be written"), ("folder", 0o500, "the folder of .* cannot be written")],
)
def test_a_file_or_folder_that_cannot_be_written_is_refused(target: str, mode: int, words: str, owned: Path) -> None:
    config_file.require_changeable(owned, {})
    place = owned if target == "file" else owned.parent
    place.chmod(mode)
    with pytest.raises(RefusedError, match=words):
        config_file.require_changeable(owned, {})
    place.chmod(0o700)
    assert [one.name for one in owned.parent.iterdir()] == ["config.toml"]


def test_a_folder_that_takes_no_new_file_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        RefusedError, match=r"no file can be written next to .*: No space left on device; correct that first"
    ):
        config_file.require_changeable(file, {})
    assert [one.name for one in file.parent.iterdir()] == ["config.toml"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that belongs to somebody else")
def test_a_file_that_would_change_its_owner_is_refused(owned: Path) -> None:
    os.setresuid(0, 0, 0)
    os.chown(owned, 0, -1)
    owned.chmod(0o666)
    account = unprivileged()
    assert account is not None
    os.setresuid(account.uid, account.uid, 0)
    with pytest.raises(RefusedError, match="belongs to another user, and its owner would change"):
        config_file.require_changeable(owned, {})


def test_a_file_that_is_mounted_by_itself_is_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As containers do it; renaming over it would fail (tried with a bind mount)."""
    spaced = tmp_path / "a b"
    spaced.mkdir()
    moved = file.rename(spaced / file.name)
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(config_file, "MOUNTS", mounts)
    mounts.write_text(f"28 1 8:1 / {tmp_path} rw - ext4 /dev/sda1 rw\n")
    config_file.require_changeable(moved, {})
    escaped = str(moved).replace(" ", r"\040")
    mounts.write_text(f"28 1 8:1 / / rw - ext4 /dev/sda1 rw\n29 28 8:1 /x {escaped} rw - ext4 /dev/sda1 rw\n")
    with pytest.raises(RefusedError, match="is a mount point"):
        config_file.require_changeable(moved, {})


def test_what_stands_in_the_place_of_the_backup_is_refused(file: Path) -> None:
    backup = config_file.kept_path(file, "cutover", 7)
    assert backup.name == "config.toml.before-cutover-7"
    config_file.require_changeable(file, {}, backup)
    backup.write_text(TEXT)
    config_file.require_changeable(file, {}, backup)
    backup.write_text("of another installation")
    with pytest.raises(RefusedError, match="before-cutover-7 exists and is not a copy"):
        config_file.require_changeable(file, {}, backup)
    backup.unlink()
    backup.mkdir()
    with pytest.raises(RefusedError, match="before-cutover-7 exists and is not a copy"):
        config_file.require_changeable(file, {}, backup)
    with pytest.raises(config_file.ConfigFileError, match=r"cannot be replaced to name postgres: .*irectory"):
        config_file.set_backend(file, "postgres", backup)
    assert file.read_text() == TEXT


def test_a_folder_that_became_read_only_leaves_the_old_file(owned: Path) -> None:
    owned.parent.chmod(0o500)
    with pytest.raises(config_file.ConfigFileError, match="to name postgres: Permission denied; correct that"):
        config_file.set_backend(owned, "postgres", owned.with_name("backup"))
    assert owned.read_text() == TEXT
    owned.parent.chmod(0o700)
    config_file.set_backend(owned, "postgres", owned.with_name("backup"))
    assert config_file.named_backend(owned) == "postgres"


def test_a_kill_before_the_renaming_leaves_the_old_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        config_file.set_backend(file, "postgres", tmp_path / "backup")
    assert file.read_text() == TEXT
    assert [one.name for one in tmp_path.iterdir()] == ["config.toml"]
