"""References lead to the row of the document that they name, in its tenant, and to no other row with the same id."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest
from pymongo.database import Database

from migrator.config import Settings
from migrator.parity.check import check_parity
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.values.identity import row_id
from tests.copying import TENANT, quarantine, run_of
from tests.stellaops_documents import fresh
from tests.tailing import assert_as_a_fresh_copy, caught_up, compared, copied

Source = Database[Any]
NewDsn = Callable[[], str]

SHARED, THEIRS, GLOBAL, BEGUN = ("1" * 32, "2" * 32, "3" * 32, "4" * 32)
NAMED = row_id("schedules", "*", "schedules", "nightly")
EXPECTED: dict[str, UUID | None] = {
    "of the document that is stored": UUID(SHARED),
    "of the document in quarantine": None,
    "of no schedule": None,
    "of another tenant": None,
    "of all tenants": UUID(GLOBAL),
    "of all tenants, by a name": NAMED,
    "of a document that is not there": None,
}
"""Run → its schedule."""


def schedule(key: str, tenant: str = TENANT) -> dict[str, Any]:
    return fresh("schedules", _id=key, id=key, tenantId=tenant)


def run(key: str, tenant: str = TENANT, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any BSON value
    return run_of(_id=key, id=key, tenantId=tenant, **changes)


@pytest.fixture
def source(mongo_database: Source) -> Source:
    """``job_`` comes before ``sch_``: it keeps the id that both have."""
    mongo_database["schedules"].insert_many(
        [
            schedule(f"job_{SHARED}"),
            schedule(f"sch_{SHARED}"),
            schedule(f"sch_{THEIRS}", "other"),
            schedule(f"sch_{GLOBAL}", "*"),
            schedule("nightly", "*"),
        ]
    )
    names = [f"job_{SHARED}", f"sch_{SHARED}", f"run_{SHARED}", f"sch_{THEIRS}", f"sch_{GLOBAL}", "nightly", "sch_0"]
    mongo_database["runs"].insert_many(
        [run(key, scheduleId=name) for key, name in zip(EXPECTED, names, strict=True)]
        + [
            run(f"run_{BEGUN}"),
            run("retry", retryOf=f"run_{BEGUN}"),
            run("retry of another prefix", retryOf=f"job_{BEGUN}"),
            run("retry of another tenant's", "other", retryOf=f"run_{BEGUN}"),
        ]
    )
    mongo_database["execution_logs"].insert_many(
        [
            fresh("execution_logs", _id="line", tenantId=TENANT, runId=f"run_{BEGUN}"),
            fresh("execution_logs", _id="line of another tenant", tenantId="other", runId=f"run_{BEGUN}"),
        ]
    )
    return mongo_database


def linked(dsn: str, column: str = "schedule_id") -> dict[str, UUID | None]:
    with psycopg.connect(dsn) as connection:
        return dict(connection.execute(f"SELECT source_id, {column} FROM scheduler.runs").fetchall())


def dangling(settings: Settings) -> dict[str, int]:
    """Return the findings of the parity check about references, by column."""
    outcome = check_parity(settings, Scope())
    found: dict[str, int] = {}
    for one in outcome.collections:
        for note in one.notes:
            if note.cause == "orphan":
                found[f"{one.collection}.{note.path}"] = note.count
    return found


@pytest.mark.proves("0-X2")
def test_a_copy_links_only_the_document_that_is_named(source: Source, scheduler_dsn: str) -> None:
    settings = copied(source, scheduler_dsn)
    assert {key: linked(scheduler_dsn)[key] for key in EXPECTED} == EXPECTED
    retries = linked(scheduler_dsn, "retry_of")
    assert {key: retries[key] for key in retries if key.startswith("retry")} == {
        "retry": UUID(BEGUN),
        "retry of another prefix": None,
        "retry of another tenant's": None,
    }
    with psycopg.connect(scheduler_dsn) as connection:
        found = connection.execute("SELECT source_id, run_id FROM scheduler.execution_logs").fetchall()
    lines: dict[str, UUID | None] = dict(found)
    assert lines == {"line": UUID(BEGUN), "line of another tenant": None}
    assert [entry[1] for entry in quarantine(scheduler_dsn)] == [f"sch_{SHARED}"]
    assert compared(settings) == []
    assert dangling(settings)["runs.schedule_id"] == sum(led is None for led in EXPECTED.values())
    assert source["runs"].count_documents({}) == len(linked(scheduler_dsn))


@pytest.mark.proves("0-O6")
def test_a_second_copy_over_the_first_writes_nothing(source: Source, scheduler_dsn: str) -> None:
    settings = copied(source, scheduler_dsn)
    assert backfill(settings, Scope()).written == 0


@pytest.mark.proves("0-X1")
@pytest.mark.parametrize(
    ("key", "led"),
    [("of the document in quarantine", SHARED), ("of no schedule", SHARED), ("retry of another prefix", BEGUN)],
)
def test_the_parity_check_sees_a_reference_that_an_older_copy_resolved_by_its_id_alone(
    key: str, led: str, source: Source, scheduler_dsn: str
) -> None:
    settings = copied(source, scheduler_dsn)
    column = "retry_of" if key.startswith("retry") else "schedule_id"
    with psycopg.connect(scheduler_dsn) as connection:
        statement = f"UPDATE scheduler.runs SET {column} = %s, extra = '{{}}' WHERE source_id = %s"
        assert connection.execute(statement, (led, key)).rowcount == 1
    assert {("runs", key, "row", column), ("runs", key, "row", "extra")} == set(compared(settings))


@pytest.mark.parametrize("way", ["copy", "tail"])
def test_who_referred_to_a_document_that_loses_its_id_refers_to_nothing(
    way: str, source: Source, scheduler_dsn: str, new_scheduler_dsn: NewDsn
) -> None:
    """``sch_`` was copied alone; ``job_`` comes, and is the first of the two."""
    source["schedules"].delete_one({"_id": f"job_{SHARED}"})
    settings = copied(source, scheduler_dsn)
    before = linked(scheduler_dsn)
    assert before["of the document in quarantine"] == UUID(SHARED)
    assert before["of the document that is stored"] is None
    source["schedules"].insert_one(schedule(f"job_{SHARED}"))
    if way == "copy":
        backfill(settings, Scope())
    else:
        caught_up(settings)
    assert {key: linked(scheduler_dsn)[key] for key in EXPECTED} == EXPECTED
    assert compared(settings) == []
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


def test_the_tail_follows_what_a_reference_leads_to(
    source: Source, scheduler_dsn: str, new_scheduler_dsn: NewDsn
) -> None:
    """The document that is referred to appears, changes its tenant, and goes."""
    settings = copied(source, scheduler_dsn)
    schedules = source["schedules"]

    def followed() -> dict[str, UUID | None]:
        caught_up(settings)
        assert compared(settings) == []
        return {key: linked(scheduler_dsn)[key] for key in EXPECTED}

    schedules.delete_one({"_id": f"job_{SHARED}"})  # the other one of the two comes out of quarantine
    schedules.insert_one(schedule("sch_0"))
    expected = EXPECTED | {
        "of the document that is stored": None,
        "of the document in quarantine": UUID(SHARED),
        "of a document that is not there": row_id("schedules", TENANT, "schedules", "sch_0"),
    }
    assert followed() == expected
    for theirs, everybodys in ((TENANT, TENANT), ("other", "*")):
        schedules.update_one({"_id": f"sch_{THEIRS}"}, {"$set": {"tenantId": theirs}})
        schedules.update_one({"_id": f"sch_{GLOBAL}"}, {"$set": {"tenantId": everybodys}})
        schedules.update_one({"_id": "nightly"}, {"$set": {"tenantId": everybodys}})
        own = row_id("schedules", TENANT, "schedules", "nightly")
        expected |= {
            "of another tenant": UUID(THEIRS) if theirs == TENANT else None,
            "of all tenants, by a name": own if everybodys == TENANT else NAMED,
        }
        assert followed() == expected
    schedules.delete_many({"_id": {"$in": [f"sch_{GLOBAL}", "nightly"]}})
    assert followed() == expected | {"of all tenants": None, "of all tenants, by a name": None}
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


@pytest.mark.proves("0-X2")
def test_documents_of_two_tenants_may_have_the_same_id(
    source: Source, scheduler_dsn: str, new_scheduler_dsn: NewDsn
) -> None:
    """An id is unique within its tenant: nobody's document is put in quarantine for the sake of another tenant's."""
    source["schedules"].insert_one(schedule(f"abc_{SHARED}", "other"))
    source["runs"].insert_one(run("of their own", "other", scheduleId=f"abc_{SHARED}"))
    settings = copied(source, scheduler_dsn)
    assert compared(settings) == []
    assert linked(scheduler_dsn) | EXPECTED | {"of their own": UUID(SHARED)} == linked(scheduler_dsn)
    source["schedules"].update_one({"_id": f"job_{SHARED}"}, {"$set": {"name": "renamed"}})
    source["schedules"].delete_one({"_id": f"abc_{SHARED}"})
    caught_up(settings)
    assert linked(scheduler_dsn) | EXPECTED | {"of their own": None} == linked(scheduler_dsn)
    assert compared(settings) == []
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)
