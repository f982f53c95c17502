"""Which collections of a source are read, and which are said to be left out."""

from typing import Any

from pymongo.database import Database

from migrator.config import Settings
from migrator.cutover import reverse
from migrator.pipeline.plan import survey
from migrator.sources import load_profile


def test_what_no_profile_knows_is_named_but_for_what_is_not_data(mongo_database: Database[Any]) -> None:
    for name in ("schedules", "elsewhere", "migrator_notes", reverse.MARKERS):
        mongo_database[name].insert_one({})
    found, unknown = survey(mongo_database, load_profile("stellaops"), Settings())
    assert [one.name for one in found] == ["schedules"]
    assert unknown == ("elsewhere", "migrator_notes")
