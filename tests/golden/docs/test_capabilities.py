"""docs/capabilities.md: which test shows which capability to work; ``UPDATE_GOLDEN=1`` writes it anew.

``capabilities.tsv`` holds the rows that were asked for: id, capability, owner (I: the toolkit does it; V: shown through
the facade, an adapter or a fake; R: recorded in the report). A row may list several members (``4-Z1..7``). Each id in
``pytest.mark.proves`` names one member, never a range, and a row is shown when each of its members has a test. What
has none stands in ``to_come.tsv`` with what is missing. The marks are those of the collected tests: a mark on one case
of a parametrised test counts for that case, and a test that is always skipped shows nothing.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from benchmarks.harness.commits import MEASURED, passed
from tests.conftest import DESELECTED

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1]
LIST = TESTS.parent / "migrator" / "verify" / "capabilities.tsv"
PAGE = TESTS.parent / "docs" / "capabilities.md"
RESULTS = TESTS.parent / "benchmarks" / "results"
SHOWN = 4
"""Tests named per row; the others are counted."""

HEAD = """\
<!-- Made from the tests: UPDATE_GOLDEN=1 pytest tests/golden/docs writes this page. -->
# Capabilities, and the tests that show them

Every requirement, by the system that it comes from. The number before the hyphen of an id is that of the system.
**I**: the tool does it. **V**: shown through the scheduler's client, an adapter or a fake, because servers, pages and
brokers belong to the applications. **R**: recorded in the report. A row with several members, such as `4-Z1..7`, counts
as shown when each member has a test of its own. `make test ARGS="-k name"` runs a test by its name.
"""


Marks: TypeAlias = tuple[tuple[str, str], ...]
"""Ids in ``proves`` marks, each with a test that carries it."""


class Row(NamedTuple):
    """A capability that was asked for."""

    id: str
    capability: str
    own: str


def expand(text: str) -> frozenset[str]:
    """Return the single ids that an id stands for: ``1-S1..S8``, ``3-B5/6``, ``0-O1/T2.1.1``, ``0-T2.12.2/4``."""
    system, _, rest = text.partition("-")
    ids: set[str] = set()
    before = ""
    for part in rest.split("/"):
        if part.isdigit():  # the number alone: the last one of what stands before it
            part = re.sub(r"\d+$", part, before)  # noqa: PLW2901 - spelled out
        before = part
        if found := re.fullmatch(r"(.*?)(\d+)\.\.\D*(\d+)", part):
            stem, first, last = found[1], int(found[2]), int(found[3])
            ids |= {f"{system}-{stem}{number}" for number in range(first, last + 1)}
        else:
            ids.add(f"{system}-{part}")
    return frozenset(ids)


@cache
def sections() -> dict[str, list[Row]]:
    """Return the rows by source document."""
    found: dict[str, list[Row]] = {}
    for line in (HERE / "capabilities.tsv").read_text(encoding="utf-8").splitlines():
        first, *others = line.split("\t")
        if first == "#":
            rows = found.setdefault(others[0], [])
        else:
            rows.append(Row(first, others[0], others[1]))
    return found


@cache
def to_come() -> dict[str, str]:
    """Return the words for the missing part of each row, by the row's id."""
    lines = (HERE / "to_come.tsv").read_text(encoding="utf-8").splitlines()
    return {row: missing for row, _, missing in (line.partition("\t") for line in lines)}


COLLECTOR = """
import json, pathlib, sys, pytest

class Marks:
    def pytest_collection_finish(self, session):
        from tests.golden.docs.test_capabilities import marks_of  # it imports hypothesis, whose plugin pytest rewrites

        pathlib.Path(sys.argv[1]).write_text(json.dumps(marks_of(session.items)))

options = ["--collect-only", "-qq", "-p", "no:xdist", "-p", "no:cacheprovider"]
sys.exit(pytest.main([*options, sys.argv[2]], plugins=[Marks()]))
"""


_of_this_session: list[Marks] = []
"""The marks of all tests, where this session has collected them all: once more takes as long again."""


@pytest.fixture(autouse=True, scope="module")
def of_this_session(request: pytest.FixtureRequest) -> None:
    session = request.session
    if not session.config.stash.get(DESELECTED, False) and {item.path for item in session.items} >= set(
        TESTS.rglob("test_*.py")
    ):
        _of_this_session.append(marks_of(session.items))


def marks_of(items: Iterable[pytest.Item]) -> Marks:
    """Return every id in a ``proves`` mark of these tests with the test that carries it."""
    run = [item for item in items if item.get_closest_marker("skip") is None]
    marked = [(text, item) for item in run for mark in item.iter_markers("proves") for text in mark.args]
    return tuple(sorted({(text, item.nodeid.partition("[")[0]) for text, item in marked}))


@cache
def marks() -> Marks:
    """Return the marks of all tests; nothing is run."""
    if _of_this_session:
        return _of_this_session[0]
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "marks.json"
        command = [sys.executable, "-c", COLLECTOR, str(written), str(TESTS)]
        done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return tuple((text, place) for text, place in json.loads(written.read_text(encoding="utf-8")))


@cache
def proofs() -> dict[str, tuple[str, ...]]:
    """Return the tests of every member of a row, and check that every mark names exactly one member."""
    known = {single for rows in sections().values() for row in rows for single in expand(row.id)}
    found: dict[str, set[str]] = {}
    unknown = []
    for text, place in marks():
        if text in known:
            found.setdefault(text, set()).add(place)
        else:
            unknown.append(f"{place} proves {text}")
    assert not unknown, "no member of a row: " + "; ".join(unknown)
    return {single: tuple(sorted(places)) for single, places in found.items()}


def without(row: Row) -> list[str]:
    """Return the members of a row that no test shows."""
    return sorted(expand(row.id) - set(proofs()), key=_numbers)


def _numbers(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]


def page() -> str:
    """Return docs/capabilities.md."""
    every = [row for rows in sections().values() for row in rows]
    asked = [row for row in every if row.own != "R"]
    shown = [row for row in asked if not without(row)]
    waiting = [row for row in every if row.id in to_come()]
    lines = [HEAD]
    lines.append(
        f"{len(every)} rows. Of the {len(asked)} marked I or V, {len(shown)} have a test for each of their members."
    )
    if waiting:
        lines += ["", "## Not shown", "", "| id | capability | members without a test | what is missing |"]
        lines += ["|---|---|---|---|"]
        lines += [
            f"| {row.id} | {row.capability} | {', '.join(without(row))} | {to_come()[row.id]} |" for row in waiting
        ]
    lines += measured()
    for title, rows in sections().items():
        lines += ["", f"## {title}", "", "| id | capability | own | shown by |", "|---|---|---|---|"]
        lines += [f"| {row.id} | {row.capability} | {row.own} | {_shown_by(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def measured() -> list[str]:
    """Return the section of rows that recorded figures show, and how far the measured code has moved since."""
    lines = ["", "## Shown by recorded figures", ""]
    lines += ["A figure holds for the code that was measured. The last column counts the later commits that changed"]
    lines += ["that code, when this page was made. A clone that lacks the commit says unknown.", ""]
    lines += ["| rows | figures | measured at | code measured | commits since |", "|---|---|---|---|---|"]
    for result, rows in (("scheduler", "2-X15, 3-P1, 3-P2, 3-P4"), ("tables", "3-A23")):
        file = RESULTS / f"{result}.json"
        since = json.loads(file.read_text(encoding="utf-8"))["commit"]
        folders = ", ".join(f"`{folder}`" for folder in MEASURED[result])
        lines.append(f"| {rows} | `benchmarks/results/{file.name}` | `{since}` | {folders} | {passed(since, result)} |")
    return lines


def without_counts(text: str) -> str:
    """Return the page without the counts of commits, which every commit changes."""
    return re.sub(r"\| (\d+|unknown) \|$", "| |", text, flags=re.MULTILINE)


def _shown_by(row: Row) -> str:
    places = sorted({place for single in expand(row.id) for place in proofs().get(single, ())})
    named = ", ".join(f"`{place.removeprefix('tests/')}`" for place in places[:SHOWN])
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    missing = without(row)
    if not missing:
        return named + more
    if not places:
        return "**not shown**"
    return f"{named}{more}; **not shown: {', '.join(missing)}**"


def test_every_capability_has_a_test_or_is_listed_with_what_is_missing() -> None:
    missing = [
        f"{row.id} {row.capability}: {', '.join(without(row))}"
        for rows in sections().values()
        for row in rows
        if without(row) and row.id not in to_come()
    ]
    assert not missing, "neither shown by a test nor in to_come.tsv:\n" + "\n".join(missing)


def test_nothing_that_is_shown_is_listed_as_missing() -> None:
    known = {row.id: row for rows in sections().values() for row in rows}
    assert set(to_come()) <= set(known)
    assert [row for row in to_come() if not without(known[row])] == []


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("1-S1..S8", {f"1-S{number}" for number in range(1, 9)}),
        ("3-A1..12", {f"3-A{number}" for number in range(1, 13)}),
        ("1-R5/6", {"1-R5", "1-R6"}),
        ("0-O1/T2.1.1", {"0-O1", "0-T2.1.1"}),
        ("0-T2.12.2/4", {"0-T2.12.2", "0-T2.12.4"}),
        ("2-F3b", {"2-F3b"}),
    ],
)
def test_an_id_stands_for(text: str, ids: set[str]) -> None:
    assert expand(text) == ids


def listed() -> str:
    """Return the list that the report quotes: id, words, members, and tests of rows that are shown."""
    lines = []
    for row in (row for rows in sections().values() for row in rows):
        members = sorted(expand(row.id), key=_numbers)
        places = sorted({place for single in members for place in proofs().get(single, ())})
        named = " ".join(place.removeprefix("tests/") for place in places[:2]) if not without(row) else ""
        lines.append(f"{row.id}\t{row.capability}\t{' '.join(members)}\t{named}\n")
    return "".join(lines)


def test_the_list_that_the_report_quotes_is_what_the_tests_say() -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        LIST.write_text(listed(), encoding="utf-8")
    assert LIST.read_text(encoding="utf-8") == listed(), f"{LIST.name} is not current; UPDATE_GOLDEN=1 writes it"


def test_the_page_is_what_the_tests_say() -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(page(), encoding="utf-8")
    stored = PAGE.read_text(encoding="utf-8")
    current = without_counts(stored) == without_counts(page())
    assert current, "docs/capabilities.md is not current; UPDATE_GOLDEN=1 writes it"
