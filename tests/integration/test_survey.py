"""Which collections of a source are read, and which are said to be left out."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.database import Database

from migrator.config import MongoSettings, Settings, SourceSettings
from migrator.cutover import reverse_sync
from migrator.errors import RefusedError
from migrator.pipeline.census import census
from migrator.pipeline.extract import MongoReader, SourceCollection
from migrator.pipeline.plan import Scope, cut
from migrator.sources import load_profile
from tests.copying import run_of, uri_of


def test_what_no_profile_knows_is_named_but_for_what_is_not_data(mongo_database: Database[Any]) -> None:
    for name in ("schedules", "elsewhere", "migrator_notes", reverse_sync.FENCE_COLLECTION):
        mongo_database[name].insert_one({})
    found, unknown = survey(mongo_database, Settings())
    assert [one.name for one in found] == ["schedules"]
    assert unknown == ("elsewhere", "migrator_notes")


def survey(database: Database[Any], settings: Settings) -> tuple[list[SourceCollection], tuple[str, ...]]:
    return MongoReader(database, settings.source.collections).survey(load_profile("stellaops"))


def renamed(**names: str) -> Settings:
    return Settings(source=SourceSettings(collections=names))


def test_a_view_is_refused_and_the_collection_behind_it_is_read(mongo_database: Database[Any]) -> None:
    mongo_database["all"].insert_one({"_id": 1})
    mongo_database.command("create", "runs", viewOn="all", pipeline=[])
    with pytest.raises(RefusedError) as refused:
        survey(mongo_database, Settings())
    assert "runs of the source is a view of all, and a copy reads collections only" in str(refused.value)
    assert 'set runs = "all" in [source] collections' in str(refused.value)
    found, _ = survey(mongo_database, renamed(runs="all"))
    assert [(one.name, one.documents) for one in found] == [("all", 1)]
    mongo_database["runs"].aggregate([{"$out": "shown"}])  # the other remedy
    found, _ = survey(mongo_database, renamed(runs="shown"))
    assert [(one.name, one.documents) for one in found] == [("shown", 1)]


def test_a_time_series_is_refused_and_what_was_written_out_of_it_is_read(mongo_database: Database[Any]) -> None:
    mongo_database.create_collection("runs", timeseries={"timeField": "at"})
    mongo_database["runs"].insert_one({"_id": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)})
    with pytest.raises(RefusedError) as refused:
        survey(mongo_database, Settings())
    assert "runs of the source is a timeseries collection, which has no index of _id" in str(refused.value)
    mongo_database["runs"].aggregate([{"$out": "ordinary"}])
    found, _ = survey(mongo_database, renamed(runs="ordinary"))
    assert [(one.name, one.documents) for one in found] == [("ordinary", 1)]
    assert list(cut(MongoReader(mongo_database, {"runs": "ordinary"}), found[0], renamed(runs="ordinary"), "merge"))


def test_the_census_counts_each_element_of_an_array_at_a_path_of_its_own(mongo_database: Database[Any]) -> None:
    mongo_database["runs"].insert_one(run_of(_id="r1", more=[{"a": 1}, {"a": "x"}, [2.5]]))
    uri = uri_of(mongo_database)
    (runs,) = census(Settings(mongo=MongoSettings(uri=uri, database=mongo_database.name)), Scope()).collections
    assert {field.path: field.types for field in runs.fields if field.path.startswith("more")} == {
        "more": {"array": 1},
        "more[]": {"object": 2, "array": 1},
        "more[].a": {"int": 1, "string": 1},
        "more[][]": {"double": 1},
    }
