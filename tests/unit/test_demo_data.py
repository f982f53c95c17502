"""The demo's data: the same bytes each time, of the promised size, and telling one story."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import bson
import msgspec
import pytest

from migrator.testing.demo import COLLECTIONS, Plan, Size, faulty_documents, plan_of
from migrator.testing.demo.faults import FaultyDocument
from migrator.testing.demo.plan import COUNTS, TENANTS, Counts

TINY = Counts(40, 900, 40, 60, 60, 60, 60, 30, 12, 6, 40, 20)
SEED = 5


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(seed=SEED, counts=TINY, triggers=True)


@pytest.fixture(scope="module")
def trouble() -> tuple[FaultyDocument, ...]:
    return faulty_documents(SEED)


def documents(plan: Plan, name: str) -> Iterator[dict[str, Any]]:
    return (bson.decode(raw) for raw in COLLECTIONS[name](plan))


@pytest.mark.parametrize("name", COLLECTIONS)
def test_a_seed_always_gives_the_same_bytes(name: str, plan: Plan) -> None:
    again = Plan(seed=SEED, counts=TINY, triggers=True)
    assert list(COLLECTIONS[name](plan)) == list(COLLECTIONS[name](again))


@pytest.mark.parametrize("name", COLLECTIONS)
def test_another_seed_gives_other_bytes(name: str, plan: Plan) -> None:
    other = Plan(seed=SEED + 1, counts=TINY, triggers=True)
    assert list(COLLECTIONS[name](plan)) != list(COLLECTIONS[name](other))


def test_a_change_to_one_collection_leaves_the_others_as_they_were(plan: Plan) -> None:
    more = Plan(seed=SEED, counts=msgspec.structs.replace(TINY, audit=200, locks=40), triggers=True)
    for name in COLLECTIONS.keys() - {"audit", "locks"}:
        assert list(COLLECTIONS[name](plan)) == list(COLLECTIONS[name](more)), name


@pytest.mark.parametrize(("size", "about"), [("small", 20_000), ("medium", 300_000), ("large", 2_000_000)])
def test_the_sizes_are_as_promised(size: str, about: int) -> None:
    counts = msgspec.structs.asdict(COUNTS[Size(size)])
    without_triggers = sum(counts.values()) - counts["triggers"]
    with_summaries = without_triggers + counts["schedules"]
    assert with_summaries == pytest.approx(about, rel=0.05)
    assert counts["runs"] == pytest.approx(about / 2, rel=0.05)


def test_the_small_size_has_every_collection_but_triggers() -> None:
    plan = plan_of(Size.SMALL, SEED)
    assert [name for name in COLLECTIONS if next(COLLECTIONS[name](plan), None) is None] == ["triggers"]


def test_runs_have_about_the_size_of_real_ones() -> None:
    sizes = [len(raw) for raw in COLLECTIONS["runs"](plan_of(Size.SMALL, SEED))]
    assert sum(sizes) / len(sizes) == pytest.approx(1100, rel=0.1)


def test_one_snapshot_in_ten_is_about_22_kilobytes() -> None:
    sizes = [len(raw) for raw in COLLECTIONS["impact_snapshots"](plan_of(Size.SMALL, SEED))]
    large = [size for size in sizes if size > 15_000]
    assert len(large) == pytest.approx(len(sizes) / 10, rel=0.1)
    assert sum(large) / len(large) == pytest.approx(22_000, rel=0.1)


@pytest.mark.parametrize("name", COLLECTIONS)
def test_no_id_is_used_twice(name: str, plan: Plan, trouble: tuple[FaultyDocument, ...]) -> None:
    ids = [repr(document["_id"]) for document in documents(plan, name)]
    ids += [repr(item.id) for item in trouble if item.collection == name]
    assert [key for key, times in Counter(ids).items() if times > 1] == []


def test_there_are_several_tenants(plan: Plan) -> None:
    assert {document["tenantId"] for document in documents(plan, "runs")} == set(TENANTS)


def test_summaries_add_up_to_the_runs(plan: Plan) -> None:
    of_schedule: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in documents(plan, "runs"):
        if "scheduleId" in run:
            of_schedule.setdefault((run["tenantId"], run["scheduleId"]), []).append(run)
    summaries = {(summary["tenantId"], summary["scheduleId"]): summary for summary in documents(plan, "run_summaries")}
    assert summaries.keys() == of_schedule.keys()
    for key, runs in of_schedule.items():
        counters = summaries[key]["counters"]
        states = Counter(run["state"] for run in runs)
        assert counters["total"] == len(runs)
        assert {state: counters[state] for state in states} == states
        assert counters["totalDeltas"] == sum(run["stats"]["deltas"] for run in runs)
        assert counters["totalNewHigh"] == sum(run["stats"]["newHigh"] for run in runs)
        newest = sorted(runs, key=lambda run: run["createdAt"], reverse=True)
        assert [entry["runId"] for entry in summaries[key]["recent"]] == [run["_id"] for run in newest[:20]]
        assert summaries[key]["lastRun"] == summaries[key]["recent"][0]


def test_statistics_of_a_run_add_up_to_its_deltas(plan: Plan) -> None:
    for run in documents(plan, "runs"):
        deltas = run.get("deltas", [])
        assert run["stats"]["deltas"] == len(deltas)
        assert run["stats"]["newCriticals"] == sum(delta["newCriticals"] for delta in deltas)


def test_every_reference_of_the_clean_data_is_there(plan: Plan) -> None:
    runs = {run["_id"] for run in documents(plan, "runs")}
    schedules = {schedule["_id"] for schedule in documents(plan, "schedules")}
    jobs = {job["_id"] for job in documents(plan, "graph_jobs")}
    for name in ("runs", "run_summaries", "execution_logs", "triggers"):
        assert {document.get("scheduleId", None) for document in documents(plan, name)} - {None} <= schedules
    assert {run["retryOf"] for run in documents(plan, "runs") if "retryOf" in run} <= runs
    for name in ("impact_snapshots", "execution_logs"):
        assert {document["runId"] for document in documents(plan, name) if "runId" in document} <= runs
    assert {job["buildJobId"] for job in documents(plan, "graph_jobs") if "buildJobId" in job} <= {
        job for job in jobs if job.startswith("gbj_")
    }
    assert {event["payload"]["job"]["id"] for event in documents(plan, "graph_job_events")} <= jobs


def test_the_planted_documents_are_the_same_for_every_size_and_for_one_seed(
    trouble: tuple[FaultyDocument, ...],
) -> None:
    again = faulty_documents.__wrapped__(SEED)  # made anew
    assert [(item.collection, item.raw) for item in trouble] == [(item.collection, item.raw) for item in again]


def test_a_planted_document_is_whole(trouble: tuple[FaultyDocument, ...]) -> None:
    for item in trouble:
        assert len(item.raw) == int.from_bytes(item.raw[:4], "little"), item.kind
        assert item.raw[-1] == 0, item.kind


def test_the_huge_document_is_close_to_the_limit_and_only_there_when_asked_for(
    trouble: tuple[FaultyDocument, ...],
) -> None:
    assert max(len(item.raw) for item in trouble) < 100_000
    (huge,) = [item for item in faulty_documents(SEED, huge=True) if item.kind == "huge"]
    assert 15_500_000 < len(huge.raw) <= 16 * 1024 * 1024
