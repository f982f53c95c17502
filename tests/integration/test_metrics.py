"""The metrics are the same on both backends, over all tenants, at a time that the test says."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from migrator.scheduler import metrics
from migrator.scheduler.metrics import KEY_METRICS_WINDOW
from migrator.scratch import new_scratch_tenant
from migrator.store.protocols import Store
from tests import store_mongo, store_postgres
from tests.contract.rows import NOW, run, schedule

SECOND = timedelta(seconds=1)


@pytest.fixture(params=["postgres", "mongo"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "mongo":
        with store_mongo.opened(request.getfixturevalue("mongo_database")) as opened:
            yield opened
    else:
        with store_postgres.opened(request.getfixturevalue("scheduler_dsn")) as opened:
            yield opened


def fill(store: Store, tenant: str, lasted: list[int], states: list[str], queued: int) -> None:
    """Make completed runs that lasted so many seconds, runs in other states, and runs that wait; and some too old."""
    began = NOW - KEY_METRICS_WINDOW / 2
    with store.session(tenant, now=NOW) as session:
        of = session.schedules.upsert(schedule(tenant)).id
        for seconds in lasted:
            for created in (began, NOW - KEY_METRICS_WINDOW - SECOND):
                session.runs.create(
                    run(
                        tenant,
                        schedule_id=of,
                        state="completed",
                        created_at=created,
                        started_at=began,
                        finished_at=began + seconds * SECOND,
                    )
                )
        for state in states:
            session.runs.create(run(tenant, schedule_id=of, state=state, created_at=began, finished_at=began))
        for _ in range(queued):
            session.runs.create(run(tenant, schedule_id=of, state="queued", created_at=NOW - 2 * KEY_METRICS_WINDOW))


@pytest.mark.proves("4-P4")
def test_the_metrics_are_of_all_tenants_and_of_the_last_hour(store: Store) -> None:
    nothing = metrics.take_key_metrics(store, now=NOW)
    assert (nothing.runs, nothing.duration_ms, nothing.failure_percent, nothing.ready) == (0, None, None, 0)
    fill(store, "a", [1, 2], ["error"], 1)
    fill(store, "b", [6], ["timeout", "cancelled"], 2)
    fill(store, f"{new_scratch_tenant()}.a", [100], ["error"], 7)  # a verification's
    found = metrics.take_key_metrics(store, now=NOW)
    assert (found.taken_at, found.runs, found.ready) == (NOW, 6, 3)
    assert (found.duration_ms, found.failure_percent) == (3000.0, 40.0)
    assert found.connections is not None
    assert found.connections >= 1
