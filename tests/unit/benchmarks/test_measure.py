"""The harness of the benchmarks: what it counts, and what its table says."""

import json
import os
import sys
from pathlib import Path

import pytest

from benchmarks.harness.measure import Measurement, descendants, measure
from benchmarks.harness.result import LEAST, Line, Part, Result, judged, missed, render, write
from benchmarks.harness.source import DATASETS
from migrator.exit_status import QUARANTINE

MEGA = 1_000_000
# A process that starts another one; both hold memory until the inner one has ended.
NESTED = """
import subprocess, sys
inner = "held = bytearray(60_000_000); sum(range(20_000_000))"
held = bytearray(30_000_000)
raise SystemExit(subprocess.call([sys.executable, "-c", inner]))
"""


def test_memory_and_time_of_processes_below_count_too(tmp_path: Path) -> None:
    taken = measure([sys.executable, "-c", NESTED], environment={}, servers={}, log=tmp_path / "log")
    assert taken.status == 0
    assert taken.peak_tree > 90 * MEGA
    assert 60 * MEGA < taken.peak_process < taken.peak_tree
    assert taken.client_cpu > 0


def test_a_failure_and_its_last_words_are_kept(tmp_path: Path) -> None:
    program = "import os; print('the reason', os.environ['OF_OURS']); raise SystemExit(3)"
    taken = measure([sys.executable, "-c", program], environment={"OF_OURS": "here"}, servers={}, log=tmp_path / "log")
    assert taken.status == 3
    assert taken.output == "the reason here\n"


def test_a_server_is_charged_with_what_it_used_meanwhile(tmp_path: Path) -> None:
    me = os.getpid()
    taken = measure([sys.executable, "-c", "pass"], environment={}, servers={"me": me}, log=tmp_path / "log")
    assert taken.server_cpu["me"] >= 0
    assert me in descendants(os.getppid())


def line(name: str, wall: float, trouble: str | None = None) -> Line:
    run = Measurement(
        status=0,
        wall=wall,
        client_cpu=1.0,
        server_cpu={"postgres": 2.0, "mongod": 0.5},
        peak_tree=200 * MEGA,
        peak_process=90 * MEGA,
        output="/a/path/of/this/machine",
    )
    faster, slower = (
        Measurement(**{field: getattr(run, field) for field in run.__struct_fields__} | {"wall": wall * factor})
        for factor in (0.5, 3)
    )
    return Line(name=name, title=f"the {name}", runs=[slower, run, faster], trouble=trouble, target_bytes=5 * MEGA)


@pytest.fixture
def result() -> Result:
    lines = [line("backfill", 2.0), line("sling", 6.0), line("dlt", 1.0, "exit status 1: no")]
    return measured(part("runs", LEAST, *lines))


def part(collection: str, documents: int, *lines: Line) -> Part:
    return Part(collection=collection, documents=documents, mean_bytes=1100, lines=list(lines))


def measured(*parts: Part) -> Result:
    missing = {"floor": "cannot be installed here"}
    return Result(rounds=3, versions={"CPython": "3.11"}, parts=list(parts), missing=missing)


def test_the_table_has_medians_and_ratios(result: Result) -> None:
    text = render(result)
    assert "| the backfill | 5,000 | 2.00 | 1.00 | 100.0 | 200.0 | 50.0 | 200 | 90 | 5 |" in text
    assert "| the sling | 1,667 | 6.00 | 3.00 |" in text
    assert "| backfill ÷ Sling full refresh | 10,000 documents of `runs` | 3.00 | 3 | 3.5 |  |" in text
    assert missed(result) == []


def test_a_ratio_below_what_it_must_reach_is_missed() -> None:
    result = measured(part("runs", LEAST, line("backfill", 2.0), line("sling", 5.9)))
    assert [(one.title, one.measured) for one in missed(result)] == [("backfill ÷ Sling full refresh", 2.95)]
    assert "| 2.95 | 3 | 3.5 | missed |" in render(result)


def test_with_few_documents_nothing_is_missed() -> None:
    result = measured(part("runs", LEAST - 1, line("backfill", 2.0), line("sling", 1.0)))
    assert missed(result) == []
    assert "| 0.50 | 3 | 3.5 | too few documents |" in render(result)


def test_each_collection_has_its_own_limits() -> None:
    lines = (line("backfill", 2.0), line("floor", 1.4))
    result = measured(part("runs", LEAST, *lines), part("agendaJobs", LEAST, *lines))
    assert [(one.where, one.must) for one in missed(result)] == [("10,000 documents of `runs`", 0.8)]
    assert [one.must for one in judged(result)] == [0.8, 0.6]


def test_memory_and_time_of_more_documents_have_limits() -> None:
    sizes = {500_000: 10.0, 2_000_000: 44.1}
    result = measured(*(part("runs", documents, line("backfill", wall)) for documents, wall in sizes.items()))
    found = {one.title: (one.measured, one.is_met) for one in judged(result)}
    assert found == {
        "backfill: peak MB of the largest process, at most": (90.0, True),
        "backfill: the same memory, at most": (1.0, True),
        "backfill: times as long, at most": (4.41, False),
    }


def test_the_growth_of_each_collection_is_judged_by_itself() -> None:
    sizes = (("runs", LEAST), ("runs-large", LEAST), ("runs-large", 2 * LEAST))
    result = measured(*(part(collection, documents, line("parity", 1.0)) for collection, documents in sizes))
    assert [one.where for one in judged(result)] == [
        "10,000 documents of `runs-large`",
        "20,000 documents of `runs-large`",
        "from 10,000 to 20,000 of `runs-large`",
    ]


def test_documents_of_which_some_are_invalid_make_fewer_rows_and_another_status() -> None:
    invalid, large = DATASETS["runs-invalid"], DATASETS["runs-large"]
    assert (invalid.rows(100), invalid.rows(101), large.rows(100)) == (95, 95, 100)
    assert (invalid.status, large.status) == (QUARANTINE, 0)


def test_a_tool_that_failed_or_is_missing_is_named_and_has_no_figures(result: Result) -> None:
    text = render(result)
    assert "| the dlt |" not in text
    assert "dlt default" not in text
    assert "- 10,000 documents of `runs`: the dlt: exit status 1: no" in text
    assert "- floor cannot be installed here" in text


def test_the_stored_result_names_nothing_of_this_machine(result: Result, tmp_path: Path) -> None:
    write(result, tmp_path)
    stored = (tmp_path / f"runs-{LEAST}.json").read_text()
    assert "/a/path" not in stored
    assert json.loads(stored)["parts"][0]["lines"][0]["runs"][0]["wall"] == 6.0
