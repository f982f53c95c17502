"""What the profile says of its tables, against the tables."""

import pytest

from migrator.records import Run
from migrator.sources.profile import Collection
from migrator.sources.stellaops import PROFILE
from tests.schema_dump import Table, read_tables


def table(collection: Collection) -> Table:
    return read_tables("scheduler")[collection.tables[0].table]


@pytest.fixture(params=PROFILE.collections, ids=lambda collection: collection.name)
def collection(request: pytest.FixtureRequest) -> Collection:
    found: Collection = request.param
    return found


def test_every_foreign_key_is_a_reference_that_the_loader_resolves(collection: Collection) -> None:
    stored = table(collection)
    keys = {  # the other half of each key is the tenant
        (column, target.removeprefix("scheduler."), not stored.columns[column].nullable)
        for (_, column), target, _ in stored.foreign_keys().values()
    }
    said = {(one.column, one.target.table, one.required) for one in collection.references}
    assert keys <= said
    assert all(one.record is collection.tables[0] for one in collection.references)
    # A summary has no foreign key, and yet none of a schedule that is not there.
    assert said - keys <= {("schedule_id", "schedules", False)}


def test_what_the_target_keeps_unique_is_said(collection: Collection) -> None:
    found = {frozenset(columns) for columns, _ in table(collection).unique().values()}
    # The names of schedules are unique among rows created here only.
    names = {frozenset({"tenant_id", "name"})} if collection.name == "schedules" else set()
    assert {frozenset(key) for key in collection.unique} == found - names


def test_a_collection_comes_after_those_it_refers_to(collection: Collection) -> None:
    order = [one.name for one in PROFILE.collections]
    owners = {one.tables[0]: one.name for one in reversed(PROFILE.collections)}
    parents = {owners[one.target] for one in collection.references} - {collection.name}
    assert parents <= set(collection.after)
    assert all(order.index(name) < order.index(collection.name) for name in collection.after)


def test_a_text_that_a_reference_keeps_is_at_a_path_that_is_known(collection: Collection) -> None:
    camel = {"schedule_id": "scheduleId", "run_id": "runId", "retry_of": "retryOf", "trigger_id": "triggerId"}
    uuids = {name for name in collection.tables[0].__struct_fields__ if name in camel}
    if collection.name.startswith(("policy", "graph")):  # their ids are text, or inside the payload
        assert collection.reference_paths == frozenset()
    else:
        assert collection.reference_paths == {camel[name] for name in uuids}
        assert collection.reference_paths <= collection.known


def test_runs_name_every_row_they_may_refer_to() -> None:
    runs = PROFILE.by_name()["runs"]
    assert {one.column for one in runs.references} == {"schedule_id", "trigger_id", "retry_of"}
    assert {one.target for one in runs.references if one.column == "retry_of"} == {Run}
