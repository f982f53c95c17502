"""The sources that are mapping files alone: every document of each is equal, quarantined, or skipped, for a reason."""

from typing import Any

import psycopg
import pytest
from pymongo.database import Database

from migrator.config import MongoSettings, PostgresSettings, Settings, SourceSettings
from migrator.parity.check import check_parity
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.testing.servers.mongo import MongoServer
from tests.modelled_documents import MODELLED

QUARANTINED = {
    "shedlock": set(),
    "quartz": {
        ("quartz_triggers", "unknown-value", "cronExpression"),
        ("quartz_triggers", "unknown-value", ""),
        ("quartz_triggers", "orphan", "jobId"),
    },
    "hangfire": set(),
    "hangfire-jobs": {("hangfire.jobGraph", "unknown-value", "StateName")},
    "jobrunr": {("jobs", "unknown-value", "state")},
}
SKIPPED = {"shedlock": 1, "quartz": 0, "hangfire": 6, "hangfire-jobs": 7, "jobrunr": 0}


@pytest.mark.parametrize("source", sorted(MODELLED))
def test_every_document_of_a_modelled_source_is_equal_or_there_is_a_reason(
    source: str, mongo_database: Database[dict[str, Any]], mongo_server: MongoServer, scheduler_dsn: str
) -> None:
    for name, documents in MODELLED[source].items():
        mongo_database[name].insert_many([dict(one) for one in documents])
    settings = Settings(
        source=SourceSettings(profile=source, default_tenant="house"),
        mongo=MongoSettings(uri=mongo_server.uri, database=mongo_database.name),
        postgres=PostgresSettings(dsn=scheduler_dsn),
    )
    done = backfill(settings, Scope())
    assert (done.complete, done.skipped) == (True, SKIPPED[source])
    with psycopg.connect(scheduler_dsn) as connection:
        kept = connection.execute("SELECT collection, reason, path FROM migration.quarantine").fetchall()
        assert set(kept) == QUARANTINED[source]
    outcome = check_parity(settings, Scope())
    for one in outcome.collections:
        found = (one.collection, one.differing, one.missing, one.extra, one.unverified)
        assert found == (one.collection, 0, 0, 0, "")
    for figure in outcome.aggregates:
        assert (figure.measure, figure.differing_total, figure.unverified) == (figure.measure, 0, "")
