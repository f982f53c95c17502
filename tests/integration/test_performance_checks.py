"""The area performance: every operation is timed on a real target, nothing is left behind, ceilings warn."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from msgspec.structs import replace

from migrator.config import PostgresSettings, Settings
from migrator.records import ALL
from migrator.result import Measurement, Result
from migrator.store.postgres.connections import SessionPool
from migrator.verify import timing
from migrator.verify.check import CheckContext
from migrator.verify.checks import performance
from migrator.verify.request import Request
from migrator.verify.runner import verify
from migrator.verify.timing import RowCounts, durations_ms, percentile
from tests import schema_rows
from tests.conftest import NEWEST, Clusters

CEILINGS = {
    "poll": 100,
    "claim": 100,
    "dispatch": 100,
    "overhead": 50,
    "lock": 10,
    "stale cleanup": 1000,
    "get": 20,
    "list": 20,
    "history": 20,
}


@pytest.fixture(scope="module")
def context(clusters: Clusters) -> Iterator[CheckContext]:
    cluster = clusters.get(NEWEST)
    dsn = cluster.scheduler()
    yield CheckContext(Settings(postgres=PostgresSettings(dsn=dsn)))
    cluster.drop(dsn)


def ran(context: CheckContext, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setattr(performance, "ROW_COUNTS", RowCounts(schedules=60, due=60, waiting=80, stale=28))
    request = Request(run_name="r", only=("performance",))
    return verify(context.settings, request, checks=performance.CHECKS)


@pytest.mark.proves("4-V8", "4-V11")
def test_every_operation_has_its_figure_and_its_ceiling(
    any_scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ran(CheckContext(Settings(postgres=PostgresSettings(dsn=any_scheduler_dsn))), monkeypatch)
    assert {one.id: one.outcome.status for one in result.evidence.checks} == {
        "performance.queue": "passed",
        "performance.facade": "passed",
        "performance.connections": "passed",
    }
    figures = {one.name: one for one in result.run.measurements}
    for name, ceiling in CEILINGS.items():
        (figure,) = (one for full, one in figures.items() if full.startswith((f"{name},", f"{name}:", f"{name} (")))
        assert figure.ceiling == ceiling
        assert figure.value > 0
    assert figures["connections used"].ceiling == performance.POOL
    assert figures["waiting runs"].ceiling is None
    assert figures["peak memory of the verification"].value > 1
    assert {title.title for title in result.run.panels["performance.queue"]} == {
        "Milliseconds, among 60 schedules and 80 waiting runs"
    }


@pytest.mark.proves("4-V10")
def test_the_runs_that_wait_in_the_target_are_counted(context: CheckContext) -> None:
    with psycopg.connect(context.dsn) as connection:
        for state in ("queued", "queued", "planning", "running", "completed"):
            schema_rows.insert(connection, "runs", state=state)
    (waiting,) = (one for one in performance.connections_bounded(context).measurements if one.name == "waiting runs")
    assert waiting.value == 2
    with psycopg.connect(context.dsn) as connection:
        connection.execute("DELETE FROM scheduler.runs")


def test_nothing_is_left_behind_and_the_evidence_holds_no_times(
    context: CheckContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = ran(context, monkeypatch), ran(context, monkeypatch)
    assert first.digest == second.digest
    with psycopg.connect(context.dsn) as connection:
        for record in ALL:
            assert connection.execute(f"SELECT count(*) FROM scheduler.{record.table}".encode()).fetchone() == (0,)


def test_a_figure_above_its_ceiling_is_a_warning_and_fails_where_that_is_asked_for(
    context: CheckContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(performance, "durations_ms", lambda times, work: [float(work() is None) + 5000.0] * times)
    lenient = ran(context, monkeypatch)
    assert lenient.exit_status() & 1 == 0
    assert any(one.is_over for one in lenient.run.measurements)
    monkeypatch.setattr(performance, "ROW_COUNTS", RowCounts(schedules=60, due=60, waiting=80, stale=28))
    strict = verify(
        context.settings,
        Request(run_name="r", only=("performance",), fail_on=("performance",)),
        checks=performance.CHECKS[:1],
    )
    assert strict.exit_status() & 1


@pytest.mark.proves("4-V9")
def test_a_pool_that_keeps_to_no_bound_is_seen(context: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = SessionPool.__init__

    def unbounded(pool: SessionPool, settings: Settings) -> None:
        postgres = replace(settings.postgres, pool_size=settings.postgres.pool_size + 10)
        bounded(pool, replace(settings, postgres=postgres))

    monkeypatch.setattr(SessionPool, "__init__", unbounded)
    found = performance.connections_bounded(context)
    assert found.outcome.status == "failed"
    assert found.counts["differences"] == 1


def test_each_operation_does_what_it_is_timed_for(context: CheckContext) -> None:
    amount = RowCounts(schedules=40, due=40, waiting=40, stale=28, history=7)
    with performance._tenant_with_rows(context, amount) as place:
        tenant = place.tenants[0]
        timed = {one.name.partition(",")[0]: one for one in timing.queue_operations(place.store, tenant, stale=28)}
        answers: dict[str, Callable[[], object]] = {name: one.work for name, one in timed.items()}
        assert len(answers["poll"]()) == timing.BATCH  # type: ignore[arg-type] # runs
        assert len(answers["claim"]()) == timing.BATCH  # type: ignore[arg-type] # claims
        assert answers["lock"]() is True
        assert len(answers["stale cleanup"]()) == 2  # type: ignore[arg-type] # ids
        assert len(answers["overhead: claim and finish one"]()) == 1  # type: ignore[arg-type] # ids


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([*map(float, range(1, 101))], 0.95) == 95.0
    assert percentile([2.0, 1.0], 0.5) == 1.0
    calls: list[int] = []
    assert len(durations_ms(3, lambda: calls.append(1))) == 3
    assert len(calls) == 5
    assert not Measurement(check="a.b", name="x", unit="ms", value=5.0, ceiling=5.0).is_over
