"""What holds documents is its owner's alone."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.cutover import backup
from migrator.files import make_folder, open_private, readable_by_all, write_private
from migrator.report import renderer
from migrator.report.run_folder import make as make_report_folder
from tests.fabricated_results import clean


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _generous() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_file_and_the_folders_made_for_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_folder(tmp_path / "a" / "b")
    write_private(tmp_path / "a" / "b" / "file", b"x")
    assert [mode(tmp_path / part) for part in (".", "a", "a/b", "a/b/file")] == [0o755, 0o700, 0o700, 0o600]
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b", exist_ok=True)


def test_a_file_that_was_open_to_others_is_not_any_more(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"longer than what follows")
    file.chmod(0o644)
    assert readable_by_all(file)
    with open_private(file) as stream:
        stream.write(b"short")
    assert (file.read_bytes(), mode(file), readable_by_all(file)) == (b"short", 0o600, False)


def test_a_new_file_replaces_nothing_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            write_private(tmp_path / name, b"x", exclusive=True)
    assert (tmp_path / "file").read_bytes() == b"kept"
    assert not (tmp_path / "elsewhere").exists()


def test_a_report_is_for_its_owner(tmp_path: Path) -> None:
    folder = make_report_folder(tmp_path / "reports", "run")
    written = renderer.write(clean(), folder)
    assert {mode(one) for one in written} == {0o600}
    assert (mode(folder), mode(folder.parent)) == (0o700, 0o700)


def test_a_backup_of_a_collection_stays_in_its_folder(tmp_path: Path) -> None:
    assert backup._collection_file(tmp_path, "../a/b").parent == tmp_path
    assert backup._collection_file(tmp_path, "agendaJobs").name == "agendaJobs.bson"
