"""The sample in the repository: of today's format, areas and templates, and nobody's machine."""

import re
from pathlib import Path

import pytest

from migrator.report import integrity, renderer
from migrator.report.areas import AREAS

SAMPLE = Path(__file__).resolve().parents[3] / "reports" / "sample"
AGAIN = "is not current: migrator report render reports/sample/result.json; after a change of the result, make sample"


@pytest.mark.parametrize("file", renderer.RENDERINGS)
def test_the_sample_is_what_its_result_renders_to(file: str) -> None:
    result = integrity.read_result(SAMPLE / "result.json")
    assert renderer.RENDERINGS[file](result) == (SAMPLE / file).read_bytes(), f"{file} {AGAIN}"


def test_the_sample_is_of_todays_areas() -> None:
    result = integrity.read_result(SAMPLE / "result.json")
    titles = {name: one.title for name, one in AREAS.items()}
    assert {area.name: area.title for area in result.evidence.areas} == titles, f"the result {AGAIN}"
    assert result.exit_status() in (0, 8)
    assert integrity.check_report(SAMPLE / "result.json").exit_status() == 0


def test_the_sample_names_no_machine() -> None:
    assert "host" not in integrity.read_result(SAMPLE / "result.json").run.environment


@pytest.mark.parametrize("name", ["report.md", "report.html"])
def test_numbers_are_spelled_one_way(name: str) -> None:
    """``20,272``: neither spaces of any kind nor nothing stand between the thousands of a count."""
    text = (SAMPLE / name).read_text(encoding="utf-8")
    assert re.search(r"\d,\d{3} documents", text)
    assert not re.search(r"\d[\u202f\u00a0\u2009' ]\d{3} (documents|rows|findings|runs)", text)
    assert not re.search(r"\b\d{4,} (documents|rows|findings|runs)", text)
