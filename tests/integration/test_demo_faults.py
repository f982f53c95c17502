"""Every planted document through the copy and the comparison, on real servers."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow
from pymongo.database import Database

from migrator.config import CopySettings, MongoSettings, PostgresSettings, Settings
from migrator.parity.check import check_parity
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.sources.stellaops import PROFILE
from migrator.testing.demo import FaultyDocument, faulty_documents, insert
from migrator.testing.servers.mongo import MongoServer
from migrator.values import identity

SEED = 5
# Their document is the payload: there is no column for the remainder, and none for the source id.
IN_PAYLOAD = {"graph_jobs", "graph_job_events"}
# Counted when the tables are looked at as a whole, not while a document is copied.
LATER = {"duplicate-name"}

Target = psycopg.Connection[TupleRow]


@pytest.fixture
def trouble() -> tuple[FaultyDocument, ...]:
    return faulty_documents(SEED)


@pytest.fixture(params=[20_000, 7], ids=["one chunk", "chunks that begin and end at ids of every type"])
def settings(
    request: pytest.FixtureRequest,
    trouble: tuple[FaultyDocument, ...],
    mongo_database: Database[Any],
    mongo_server: MongoServer,
    scheduler_dsn: str,
) -> Settings:
    for name in {item.collection for item in trouble}:
        insert(mongo_database[name], (item.raw for item in trouble if item.collection == name))
    return Settings(
        mongo=MongoSettings(uri=mongo_server.uri, database=mongo_database.name),
        postgres=PostgresSettings(dsn=scheduler_dsn),
        copy=CopySettings(chunk_documents=request.param),
    )


@pytest.fixture
def target(settings: Settings) -> Iterator[Target]:
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        yield connection


def key(item: FaultyDocument) -> tuple[str, str]:
    return item.collection, identity.source_id(item.id)


def test_each_planted_document_ends_where_it_was_said_to(
    trouble: tuple[FaultyDocument, ...], settings: Settings, target: Target
) -> None:
    done = backfill(settings, Scope())
    assert done.documents == len(trouble)
    assert done.quarantined == sum(item.outcome == "quarantined" for item in trouble)
    rows = target.execute("SELECT collection, source_id, reason FROM migration.quarantine WHERE state = 'open'")
    assert {row[:2]: row[2] for row in rows} == {key(i): i.reason for i in trouble if i.outcome == "quarantined"}
    for item in trouble:
        if item.outcome == "loaded" and item.collection not in IN_PAYLOAD:
            assert (remainder_of(target, item) != {}) is item.remainder, (item.kind, item.id)
    outcome = check_parity(settings, Scope())
    assert sum(one.differing + one.missing + one.extra for one in outcome.collections) == 0
    assert sum(one.differing_total for one in outcome.aggregates) == 0
    assert sum(one.documents for one in outcome.collections) == len(trouble)


def remainder_of(target: Target, item: FaultyDocument) -> object:
    table = PROFILE.by_name()[item.collection].tables[0].table
    statement = f"SELECT extra FROM scheduler.{table} WHERE source = %s AND source_id = %s"
    found = target.execute(statement.encode(), [f"stellaops/{item.collection}", key(item)[1]]).fetchall()
    assert len(found) == 1, (item.kind, item.id)
    return found[0][0]


def test_each_finding_that_was_announced_is_counted(
    trouble: tuple[FaultyDocument, ...], settings: Settings, target: Target
) -> None:
    backfill(settings, Scope())
    rows = target.execute(
        "SELECT collection, kind, sum(documents) FROM migration.notes WHERE class = 'finding' GROUP BY 1, 2"
    )
    counted = {row[:2]: int(row[2]) for row in rows}
    announced = Counter((i.collection, i.reason) for i in trouble if i.outcome == "loaded" and i.reason)
    assert {place: counted.get(place) for place in announced if place[1] not in LATER} == {
        place: count for place, count in announced.items() if place[1] not in LATER
    }
