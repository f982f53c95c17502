"""Every check of behaviour is green on both backends, leaves nothing, and says the same twice."""

from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from migrator import records
from migrator.config import Settings
from migrator.verify.check import CheckContext, CheckResult
from migrator.verify.request import Request
from migrator.verify.runner import verify
from tests.integration.verify_behaviour.conftest import BEHAVIOUR_AREAS, BOTH, SHOWS, SPECS

PLAYED = [name for name in SPECS if name != "crud.lockstep"]


def left(settings: Settings, database: Database[Any]) -> dict[str, int]:
    """Return how many rows and documents there are, by table and collection."""
    with psycopg.connect(str(settings.postgres.dsn)) as target:
        found = {}
        for record in records.ALL:
            row = target.execute(f"SELECT count(*) FROM scheduler.{record.table}".encode()).fetchone()
            assert row is not None
            found[record.table] = row[0]
    found |= {name: database[name].count_documents({}) for name in database.list_collection_names()}
    return {name: count for name, count in found.items() if count}


def machines_exercised(found: CheckResult) -> None:
    wanted = {"schedule": (7, 49), "run": (8, 64), "graph build job": (6, 36), "policy job": (10, 100)}
    shown = {
        one.name.removesuffix(" on postgres"): (len(one.states), len(one.transitions)) for one in found.state_machines
    }
    assert {name: size for name, size in wanted.items() if name in shown}.items() <= shown.items()
    assert shown
    assert all(edge.exercised == 1 for one in found.state_machines for edge in one.transitions)


def contention_shown(found: CheckResult) -> None:
    assert [(one.kind, len(one.rows)) for one in found.varying] == [("spans", 24)] * 2
    assert {one.name.split(" for ")[0] for one in found.measurements} == {"longest wait", "mean wait"}
    tables = [one for one in found.panels if one.title.startswith("Contention")]
    assert len(tables) == 2
    for table in tables:
        assert {row[0]: row[2] for row in table.rows if row[1] == row[2]} == {
            "processes that contend": 3, "turns with the lock": 24, "turns that overlap": 0,
            "fencing tokens given": 24, "fencing tokens given twice": 0,
        }  # fmt: skip


def seven_results(found: CheckResult) -> None:
    (table,) = [one for one in found.panels if one.title == "The seven observations after a cutover, on postgres"]
    assert [str(row[0])[:2] for row in table.rows] == [f"{number}." for number in range(1, 8)]
    assert {row[1] for row in table.rows} == {"as it must"}


SHOWN = {
    "transitions.schedule": machines_exercised,
    "transitions.run": machines_exercised,
    "transitions.jobs": machines_exercised,
    "locking.processes": contention_shown,
    "execution.after-cutover": seven_results,
}
"""What a check shows besides."""


SEVEN = tuple(f"4-V{number}" for number in range(1, 8))
"""What the check of the seven things to look at after a cutover shows: ``seven_results`` reads each."""


def proven(name: str) -> list[pytest.MarkDecorator]:
    ids = SHOWS.get(name.partition(".")[0], ()) + (SEVEN if name == "execution.after-cutover" else ())
    return [pytest.mark.proves(*ids)] if ids else []


@pytest.mark.parametrize("name", [pytest.param(name, marks=proven(name)) for name in PLAYED])
def test_a_check_is_green_on_both_backends_and_leaves_nothing(
    name: str, settings: Settings, mongo_database: Database[Any]
) -> None:
    found = SPECS[name].run(CheckContext(settings, BOTH))
    assert found.findings == ()
    assert found.outcome.status == "passed"
    assert found.counts["expectations"] > 10
    assert found.cells
    (named,) = [one for one in found.panels if one.title == "Expectations by name"]
    assert named.columns == ("script", "expectation", "postgres", "mongo")
    assert all("holds" in row[2:] and set(row[2:]) <= {"holds", "not tried"} for row in named.rows)
    SHOWN.get(name, lambda _found: None)(found)
    assert left(settings, mongo_database) == {}


def test_two_runs_find_the_same(context: CheckContext) -> None:
    def evidence(found: CheckResult) -> Any:  # noqa: ANN401 - the part under the digest
        return found.outcome, found.counts, found.cells, found.panels, found.state_machines, found.findings

    for name in ("crud.schedules", "workers.heartbeats"):
        assert evidence(SPECS[name].run(context)) == evidence(SPECS[name].run(context))


def test_no_behaviour_drives_nothing_and_says_so(settings: Settings) -> None:
    result = verify(settings, Request(run_name="r", no_behaviour=True, skip=("parity", "semantics", "schema")))
    areas = {area.name: area for area in result.evidence.areas}
    assert {areas[name].status for name in BEHAVIOUR_AREAS} == {"skipped"}
    assert {areas[name].reason for name in BEHAVIOUR_AREAS} == {"left out by --no-behaviour"}
    assert not [one for one in result.evidence.checks if one.area in BEHAVIOUR_AREAS]
    assert result.exit_status() & 4


def test_mongo_is_written_into_only_when_asked_for(settings: Settings, mongo_database: Database[Any]) -> None:
    result = verify(settings, Request(run_name="r", only=("workers",)))
    assert {one.outcome.status for one in result.evidence.checks} == {"passed"}
    assert mongo_database.list_collection_names() == []
    verify(settings, Request(run_name="r", only=("workers",), backend="mongo", scratch_on_source=True))
    assert mongo_database.list_collection_names() != []
