"""A summary that the source counted over tenants: the target's runs are its own tenant's, and none was lost."""

from typing import Any

import pytest
from pymongo.database import Database

from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import close_cached
from migrator.verify.check import CheckContext
from migrator.verify.registry import EVERY_CHECK
from tests.copying import settings_for
from tests.schema_rows import connect
from tests.stellaops_documents import fresh


@pytest.mark.parametrize(("foreign", "status"), [("another tenant", "passed"), ("tenant-default", "failed")])
def test_a_run_that_names_another_tenants_schedule_is_not_counted_for_it(
    foreign: str, status: str, mongo_database: Database[Any], scheduler_dsn: str
) -> None:
    """``failed``: the run is the tenant's own, and is lost in the target."""
    schedule, summary = fresh("schedules", tenantId="tenant-default"), fresh("run_summaries", tenantId="tenant-default")
    mongo_database.schedules.insert_one(schedule)
    tenants = ("tenant-default", "tenant-default", foreign)
    for number, tenant in enumerate(tenants):
        run = {**fresh("runs"), "_id": f"run_{number:032x}", "tenantId": tenant, "scheduleId": schedule["_id"]}
        run |= {"id": run["_id"], "state": "completed"}
        mongo_database.runs.insert_one({name: value for name, value in run.items() if name != "retryOf"})
    counters = {"total": 3, "completed": 3}
    mongo_database.run_summaries.insert_one(summary | {"scheduleId": schedule["_id"], "counters": counters})
    settings = settings_for(mongo_database, scheduler_dsn)
    try:
        assert backfill(settings, Scope()).complete
        if status == "failed":
            with connect(scheduler_dsn) as connection:
                connection.execute(
                    "DELETE FROM scheduler.runs WHERE id = (SELECT max(id::text)::uuid FROM scheduler.runs)"
                )
        (spec,) = [one for one in EVERY_CHECK if one.id == "semantics.summaries"]
        found = spec.run(CheckContext(settings))
    finally:
        close_cached()
    assert found.outcome.status == status, found
