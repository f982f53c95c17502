"""The list of all runs, and what changed since the last one."""

from pathlib import Path

import msgspec

from migrator.report import renderer, run_folder
from migrator.result import FAILED, Result, build, encode
from tests.fabricated_cutovers import good
from tests.fabricated_results import clean
from tests.unit.report.test_html import Page


def at(result: Result, started: str) -> Result:
    return build(result.evidence, msgspec.structs.replace(result.run, started_at=started))


def failed(result: Result) -> Result:
    first, *others = result.evidence.checks
    checks = (msgspec.structs.replace(first, outcome=FAILED), *others)
    return build(msgspec.structs.replace(result.evidence, checks=checks), result.run)


def test_every_run_is_listed_with_what_changed(tmp_path: Path) -> None:
    renderer.write(at(clean(), "2026-11-20T10:00:00+00:00"), tmp_path / "a")
    renderer.write(at(failed(clean()), "2026-11-20T11:00:00+00:00"), tmp_path / "b")
    renderer.write(at(clean(), "2026-11-20T12:00:00+00:00"), tmp_path / "c")
    renderer.write(at(clean(), "2026-11-20T13:00:00+00:00"), tmp_path / "d")
    renderer.write(good(), tmp_path / "moved")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "result.json").write_text('{"format": 1}')
    rows = {one.folder: one for one in run_folder.listed(tmp_path)}
    assert list(rows) == ["moved", "d", "c", "b", "a"]
    assert rows["a"].changed == ("the first of its kind",)
    assert rows["b"].changed == ("now failed: schema.revision", "verdict before: Equal")
    assert rows["c"].changed == ("passed again: schema.revision", "verdict before: Not equal")
    assert rows["d"].changed == ()
    assert (rows["moved"].kind, rows["moved"].changed) == ("cutover", ("the first of its kind",))

    path = run_folder.write_index(tmp_path)
    text = path.read_text()
    read = Page(text)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one for one in read.values("href") if not one.startswith("#")] == [f"{name}/report.html" for name in rows]
    assert "now failed: schema.revision" in read.text
    assert "<script" not in text


def test_a_result_that_was_changed_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    text = encode(clean()).decode().replace('"matched": 12000', '"matched": 11999')
    (tmp_path / "a" / "result.json").write_text(text)
    run_folder.write_index(tmp_path)
    assert "the evidence does not match its digest" in (tmp_path / "index.html").read_text()
