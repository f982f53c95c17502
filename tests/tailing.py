"""What tests of the tail share: a copy, a tail up to now, and the oracle, which is a fresh copy."""

from collections.abc import Callable
from typing import Any

from pymongo.database import Database

from migrator.config import Settings
from migrator.parity.check import check_parity
from migrator.parity.model import ParityOutcome
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.tail.loop import Tail, TailResult
from tests.copying import contents, quarantine, settings_for


def copied(database: Database[Any], dsn: str, *, profile: str = "stellaops", workers: int = 1) -> Settings:
    """Copy a database and return the settings of the copy."""
    settings = settings_for(database, dsn, profile=profile, workers=workers)
    backfill(settings, Scope())
    return settings


def caught_up(settings: Settings) -> TailResult:
    """Follow up to now."""
    with Tail(settings) as tail:
        return tail.run("caught-up")


def differences(outcome: ParityOutcome) -> list[tuple[str, str, str, str]]:
    """Return the faults that a comparison found, and the questions that it left open."""
    found: list[tuple[str, str, str, str]] = [
        (one.collection, one.key, one.side, one.path)
        for collection in outcome.collections
        for one in collection.findings
    ]
    found += [(one.collection, "", "unverified", one.unverified) for one in outcome.collections if one.unverified]
    return found + [(one.collection, one.measure, "aggregate", "") for one in outcome.aggregates if one.differing_total]


def compared(settings: Settings) -> list[tuple[str, str, str, str]]:
    """Compare everything; return what is wrong."""
    return differences(check_parity(settings, Scope()))


def assert_as_a_fresh_copy(
    settings: Settings, database: Database[Any], new_dsn: Callable[[], str], *, workers: int = 1
) -> None:
    """Compare the tables and the quarantine with those of a copy made now."""
    dsn = new_dsn()
    copied(database, dsn, profile=settings.source.profile, workers=workers)
    assert settings.postgres.dsn is not None
    assert contents(settings.postgres.dsn) == contents(dsn)
    assert quarantine(settings.postgres.dsn) == quarantine(dsn)
