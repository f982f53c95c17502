"""What a check of the area ``library`` says of entries that it could not hold against anything else."""

from migrator.config import MongoSettings, Settings, SourceSettings, TargetSettings
from migrator.result import PASSED
from migrator.verify.check import CheckContext
from migrator.verify.checks import library
from migrator.verify.library_examination import PartResult

CONTEXT = CheckContext(
    Settings(
        source=SourceSettings(profile="agenda"),
        target=TargetSettings(name="agenda"),
        mongo=MongoSettings(uri="mongodb://x"),
    )
)


def test_entries_whose_fires_the_library_alone_computes_are_named() -> None:
    keys = [f"job {number}" for number in range(7)]
    result = library._result(
        CONTEXT, PartResult(counts={"entries": 9}, explained={"library-alone": keys, "library-fails": []})
    )
    assert result.outcome == PASSED
    assert result.findings_total == 0
    [tally] = result.tallies
    assert (tally.severity, tally.cause, tally.count) == ("explained", "library-alone", 7)
    assert tally.keys == tuple(keys[:5])


def test_where_there_are_none_nothing_is_said() -> None:
    result = library._result(CONTEXT, PartResult(counts={"entries": 9}))
    assert result.tallies == ()
