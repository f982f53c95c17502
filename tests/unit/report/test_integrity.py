"""``report check``: a report belongs to its evidence, or it does not."""

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from migrator.cli import cli
from migrator.errors import UsageError
from migrator.report import integrity, renderer
from migrator.result import build, encode
from tests.fabricated_results import troubled


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    renderer.write(troubled(), tmp_path)
    return tmp_path


def status(folder: Path, *reports: Path) -> int:
    return integrity.check_report(folder / "result.json", reports).exit_status()


def test_a_report_as_written_belongs(folder: Path) -> None:
    answer = integrity.check_report(folder / "result.json")
    assert [Path(one.file).name for one in answer.renderings] == list(renderer.RENDERINGS)
    assert answer.exit_status() == 0
    assert answer.lines()[0].startswith("the evidence is whole: sha256:")


@pytest.mark.parametrize("file", renderer.RENDERINGS)
def test_a_report_changed_in_one_byte_does_not_belong(folder: Path, file: str) -> None:
    text = (folder / file).read_bytes()
    (folder / file).write_bytes(text.replace(b"118", b"117", 1))
    assert status(folder) == 1
    assert "DOES NOT BELONG" in "\n".join(integrity.check_report(folder / "result.json").lines())


def test_evidence_changed_under_its_digest_is_seen(folder: Path) -> None:
    result = folder / "result.json"
    result.write_bytes(result.read_bytes().replace(b'"failed"', b'"passed"'))
    renderer.write_renderings(integrity.read_result(result), folder)
    assert status(folder) == 1
    assert not integrity.check_report(result).evidence_is_whole


def test_changed_evidence_is_not_rendered(folder: Path, tmp_path: Path) -> None:
    result = folder / "result.json"
    result.write_bytes(result.read_bytes().replace(b'"failed"', b'"passed"'))
    arguments = ["report", "render", str(result), "--report-dir", str(tmp_path / "new")]
    done = CliRunner().invoke(cli, arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"migrator: {result}: the evidence does not match its digest; nothing is rendered\n"
    told = CliRunner().invoke(cli, [*arguments, "--json"])
    assert (told.exit_code, json.loads(told.stdout)["written"]) == (1, [])
    assert not (tmp_path / "new").exists()


def test_evidence_changed_together_with_its_digest_no_longer_fits_the_report(folder: Path) -> None:
    evidence = msgspec.structs.replace(troubled().evidence, quarantine=())
    (folder / "result.json").write_bytes(encode(build(evidence, troubled().run)))
    assert status(folder) == 1


def test_without_a_report_nothing_was_compared(folder: Path) -> None:
    for name in renderer.RENDERINGS:
        (folder / name).unlink()
    assert status(folder) == 4


def test_a_report_of_another_version_is_told_from_a_changed_one(folder: Path) -> None:
    basis = {**troubled().evidence.basis, "tool": "migrator 0.0.9"}
    result = build(msgspec.structs.replace(troubled().evidence, basis=basis), troubled().run)
    renderer.write(result, folder)
    page = folder / "report.html"
    page.write_bytes(page.read_bytes().replace(b"<main", b"<main class='old'"))
    assert status(folder, page) == 4
    page.write_bytes(page.read_bytes().replace(result.digest.encode(), b"sha256:0"))
    assert status(folder, page) == 1


def test_files_that_are_no_reports_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="is no rendering"):
        integrity.check_report(folder / "result.json", [folder / "result.json"])
    with pytest.raises(UsageError, match="cannot read"):
        integrity.check_report(folder / "none.json")
    with pytest.raises(UsageError, match="cannot read"):
        integrity.check_report(folder / "result.json", [folder / "none.html"])


def test_the_command_renders_again_and_checks(folder: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    again = tmp_path / "again"
    answer = runner.invoke(cli, ["report", "render", str(folder / "result.json"), "--report-dir", str(again)])
    assert answer.exit_code == 0
    assert (again / "report.html").read_bytes() == (folder / "report.html").read_bytes()
    answer = runner.invoke(cli, ["report", "check", str(folder / "result.json"), str(again / "report.md"), "--json"])
    assert answer.exit_code == 0
    assert msgspec.json.decode(answer.stdout)["renderings"][0]["state"] == "belongs"
    (again / "report.md").write_text("nothing of the kind")
    assert runner.invoke(cli, ["report", "check", str(folder / "result.json"), str(again / "report.md")]).exit_code == 1
