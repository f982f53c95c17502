"""The hand-written pages against the code: no check, reason or failure is missing, and none is made up."""

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.report.areas import AREAS
from migrator.sources.mapping.converters import CONVERTERS
from migrator.testing.mutations import MUTATIONS
from migrator.verify.registry import EVERY_CHECK
from tests.golden.docs import checks_page, scale_page
from tests.golden.docs.checks_page import LATER
from tests.integration.test_verify import PARITY_FAULTS, SCHEMA_FAULTS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FAULTS = {
    "interval unit doubled",
    "complex cron turned into 60 min",
    "job silently not scheduled (missing interval keys / WHERE false)",
    "next fire pushed by unrelated update",
    "one-off retry lost",
    "retry never re-dispatched",
    "max_executions+1",
    "one_time marked completed before running",
    "resume fires immediately / resets phase unasked",
    "cancel overwritten by late failure",
    "release of another owner's lock",
    "lock cleared under a live worker",
    "two leaders",
    "reaped leader continues",
    "disabled job keeps firing",
    "job starved by re-scheduling",
    "duplicate execution_number",
    "duplicate (trigger, slot) run",
    "duration truncated",
    "success rate by two definitions",
    "weekday shifted by one",
    "dom/dow AND vs OR",
    "naive local time read as UTC",
    "counters not backed by rows",
    "down migration that fails on real rows",
    "row moved after cutover lost by rollback",
    "default priority overwritten",
    "second seeder with other names",
}
"""The planted faults that the verifier must turn red on, as the list of capabilities words them."""


def section(page: str, title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section {title}"
    return found[1]


def table(text: str) -> Iterator[list[str]]:
    """Yield the rows of the first table, the head first."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    for number, line in enumerate(lines):
        if number != 1:
            yield [cell.strip() for cell in line.strip("|").split("|")]


def test_a_duration_is_in_proportion_to_documents_and_cores() -> None:
    measured = scale_page.Measured(documents=1_000_000, cores=2, wall=50.0)
    assert measured.wall_of(1_000_000, 2) == pytest.approx(50.0)
    assert measured.wall_of(10_000_000, 8) == pytest.approx(125.0)


@pytest.mark.parametrize(
    ("page", "part"),
    [
        ("verifiers.md", checks_page.mutations_by_check(EVERY_CHECK)),
        ("report.md", checks_page.fails_if(EVERY_CHECK)),
        ("scale.md", scale_page.page_part()),
    ],
)
def test_a_part_of_a_page_that_is_made_is_current(page: str, part: str) -> None:
    path, begin = DOCS / page, part.partition("\n")[0]
    text = path.read_text()
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text.replace(checks_page.between_marks(text, begin), part))
        text = path.read_text()
    assert checks_page.between_marks(text, begin) == part


def test_every_class_is_well_formed() -> None:
    names = [one.name for one in MUTATIONS]
    assert len(names) == len(set(names)) >= 40
    checks = {spec.id for spec in EVERY_CHECK}
    for one in MUTATIONS:
        assert {*one.caught_by, *one.sometimes_by} <= checks, one.name
        assert one.caught_by or one.note, f"{one.name}: nothing sees it, and no note says why"
        assert not {*one.caught_by} & {*one.sometimes_by}, one.name
        assert all(map(one.runs_check, one.caught_by)), one.name


def test_every_failure_that_the_tests_of_the_checks_plant_is_a_class() -> None:
    assert {*PARITY_FAULTS, *SCHEMA_FAULTS} <= {one.name for one in MUTATIONS}


def test_every_planted_fault_of_the_list_is_a_class_or_waits_for_behaviour() -> None:
    ours = [fault for one in MUTATIONS for fault in one.faults]
    assert {*ours, *LATER} == FAULTS
    assert not {*ours} & {*LATER}


def test_every_check_is_in_both_pages() -> None:
    report, verifiers = (DOCS / "report.md").read_text(), (DOCS / "verifiers.md").read_text()
    for spec in EVERY_CHECK:
        assert f"`{spec.id}`" in verifiers or f"`{spec.id.partition('.')[2]}`" in verifiers, spec.id
    named = set(re.findall(rf"`((?:{'|'.join(AREAS)})\.[a-z-]+)`", report + verifiers))
    assert named == {spec.id for spec in EVERY_CHECK}


def test_the_numbers_of_mutations_are_those_of_the_list() -> None:
    page = " ".join((DOCS / "verifiers.md").read_text().split())
    of_data = [one for one in MUTATIONS if one.kind != "behaviour"]
    seen = sum(bool(one.caught_by) for one in of_data)
    assert f"{seen} of {len(of_data)} mutations of data and schema are detected" in page
    assert f"All {len(MUTATIONS) - len(of_data)} mutations of behaviour are detected" in page


def test_every_converter_of_a_mapping_file_is_on_its_page() -> None:
    page = (DOCS / "mapping.md").read_text()
    converters = [converter for converter in CONVERTERS.values() if converter.in_files]
    assert len(converters) > 10
    assert [one.name for one in converters if f"`{one.name}`" not in page and f'"{one.name}"' not in page] == []
    options = {option for one in converters for option in one.options}
    assert [option for option in sorted(options) if f"`{option}" not in page and f"{option} = " not in page] == []


def reasons() -> set[str]:
    """Return every reason for which the copy sets a document aside, read from the source."""
    sources = ROOT / "migrator" / "sources"
    files = [*sources.rglob("*.py"), *(ROOT / "migrator" / "pipeline").glob("*.py")]
    found = set()
    for path in files:
        tree = ast.parse(path.read_text())
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Rejected", "super().__init__"):
                if not node.args:
                    continue
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    found.add(str(first.value))
                elif isinstance(first, ast.Name) and first.id in constants:
                    found.add(str(constants[first.id]))
    return found


def test_every_reason_of_quarantine_is_explained() -> None:
    listed = {reason for row in table(section("quarantine.md", "Reasons")) for reason in re.findall(r"`(.*?)`", row[0])}
    assert {"bad-date", "not-round-trip", "undecodable", "duplicate-id", "duplicate-key", "orphan"} <= reasons()
    assert listed == reasons()


def importers() -> dict[str, set[str]]:
    """Return each package that the product imports, with the files that import it."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "migrator").rglob("*.py"):
        for name in re.findall(r"^\s*(?:import|from) ([a-z_]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            found.setdefault(name, set()).add(path.relative_to(ROOT).as_posix())
    return found


@pytest.mark.proves("6-U12")
def test_each_library_that_one_file_imports_is_listed_with_the_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    libraries = [re.split(r"[\[<>=]", dependency)[0] for dependency in project["dependencies"]]
    found = importers()
    of_all = {library: found.get(library.replace("-", "_"), set()) for library in libraries}
    of_one_file = {library: files for library, files in of_all.items() if len(files) == 1}
    assert "stamina" in of_one_file
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("## Libraries")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\S+) \| `(\S+\.py)` \| \S.+ \|$", section, re.MULTILINE)
    assert {library: {file} for library, file in rows} == of_one_file
