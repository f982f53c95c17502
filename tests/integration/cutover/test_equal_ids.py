"""Rows of another tenant with the ids and the sources of a tenant's rows change none of its documents."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from migrator.config import Settings
from migrator.cutover import outbox, reverse_sync
from migrator.records import Schedule
from tests.copying import TENANT, settings_for
from tests.cutting_over import DOCUMENTS, opened_outbox
from tests.demo_data import seed_quarter
from tests.equal_ids import OTHER, plant
from tests.integration.cutover.test_reverse_sync import raw
from tests.store_postgres import NOW, opened, schedule, trigger


@pytest.fixture(params=["stellaops", "agenda"])
def switched(request: pytest.FixtureRequest, mongo_database: Database[Any], scheduler_dsn: str) -> Iterator[Settings]:
    """A copy that is complete, with the outbox open."""
    if request.param == "stellaops":
        seed_quarter(mongo_database)
    else:
        DOCUMENTS["agenda"](mongo_database)
    with opened_outbox(settings_for(mongo_database, scheduler_dsn, profile=request.param)) as settings:
        yield settings


def test_rows_of_another_tenant_change_no_document(
    switched: Settings, mongo_database: Database[Any], scheduler_dsn: str
) -> None:
    with opened(scheduler_dsn) as store, store.session(TENANT, now=NOW) as session:
        made = session.schedules.upsert(schedule(TENANT, name="made on PostgreSQL", handler_name="nightly"))
        session.triggers.upsert(trigger(made))
    reverse_sync.run(switched, noted_by_now=True)
    before = raw(mongo_database)
    with psycopg.connect(scheduler_dsn) as connection:
        planted = plant(connection, outbox.TRACKED_RECORDS)
        connection.execute("UPDATE scheduler.schedules SET name = 'taken over' WHERE tenant_id = %s", (OTHER,))
    assert planted["schedules"]
    assert planted["triggers"]
    done = reverse_sync.run(switched, noted_by_now=True)
    assert raw(mongo_database) == before
    assert done.lost[("schedules", "*")] >= planted["schedules"]  # told; once for each batch that notes the document
    with psycopg.connect(scheduler_dsn) as connection:
        connection.execute("UPDATE scheduler.runs SET retry_of = NULL WHERE tenant_id = %s", (OTHER,))
        for record in reversed(outbox.TRACKED_RECORDS):
            connection.execute(f"DELETE FROM scheduler.{record.table} WHERE tenant_id = %s", (OTHER,))
    reverse_sync.run(switched, noted_by_now=True)
    assert raw(mongo_database) == before  # nothing of the other tenant is deleted with them


@pytest.mark.parametrize("switched", ["stellaops"], indirect=True)
def test_of_two_tenants_with_one_id_made_here_the_first_has_the_document(
    switched: Settings, mongo_database: Database[Any], scheduler_dsn: str
) -> None:
    with opened(scheduler_dsn) as store, store.session(TENANT, now=NOW) as session:
        made = session.schedules.upsert(schedule(TENANT, name="the tenant's", handler_name="nightly"))
    with psycopg.connect(scheduler_dsn) as connection:
        plant(connection, (Schedule,))
        connection.execute("UPDATE scheduler.schedules SET name = name || '!' WHERE id = %s", (made.id,))
    done = reverse_sync.run(switched, noted_by_now=True)
    written = mongo_database.schedules.find_one({"_id": f"sch_{made.id.hex}"}) or {}
    assert (written["tenantId"], written["name"]) == (TENANT, "the tenant's!")
    assert done.lost
