"""The independent aggregates of the profile, on real servers: equal on a sound copy, unequal where a row was touched.

The documents are the canonical ones and variants of them: every spelling of a time, every alias, several tenants.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import bson
import psycopg
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.database import Database

from migrator.config import CopySettings, MongoSettings, PostgresSettings, Settings, SourceSettings
from migrator.parity.aggregates import compare_aggregates
from migrator.parity.model import AggregateResult
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.schema.revisions import upgrade
from migrator.sources.profile import Document
from migrator.sources.stellaops import PROFILE
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer
from tests.stellaops_documents import CANONICAL, fresh

DATABASE = "measured"
TIMES = (
    "2019-11-01T10:00:00+00:00",
    "2019-11-01T10:00:00.5Z",
    "2019-11-01T10:00:00.1234567+00:00",
    "2019-11-01T12:34:56.9999999+05:30",
    "1969-12-31T23:59:59.9999999Z",
    "0001-01-01T00:00:00+00:00",
    "9999-12-31T23:59:59.999999+00:00",
    datetime(2031, 1, 1, 0, 0, 0, 7000),  # noqa: DTZ001 - as BSON gives it
)


def _variants() -> Iterator[tuple[str, Document]]:
    for name, raws in CANONICAL.items():
        yield from ((name, bson.decode(raw)) for raw in raws)
    for number, time in enumerate(TIMES):
        tenant = f"tenant-{number % 3}"
        yield "runs", fresh("runs", _id=f"t{number}", tenantId=tenant, createdAt=time, startedAt=..., scheduleId=...)
        yield "audit", fresh("audit", _id=f"t{number}", tenantId=tenant, occurredAt=time, action="a\0b")
        yield "graph_jobs", fresh("graph_jobs", _id=f"gbj_t{number}", tenantId=tenant, completedAt=time)
        yield "policy_runs", fresh("policy_runs", _id=f"t{number}", tenantId=tenant, runId=..., queuedAt=time)
        yield "execution_logs", fresh("execution_logs", _id=f"t{number}", tenantId=tenant, loggedAt=time)
    for number, word in enumerate(("feedser", "excititor", "contentrefresh", "cron", "moonphase", None)):
        yield "runs", fresh("runs", _id=f"w{number}", trigger=word, state="canceled", stats=..., error=None)
    yield "runs", fresh("runs", _id="no tenant", tenantId=..., stats__queued=bson.Int64(1 << 40), stats__deltas=None)
    yield "policy_jobs", fresh("policy_jobs", _id="a", runId=..., status="cancelled", priority=...)
    yield "policy_runs", fresh("policy_runs", 1, _id="snake", tenant=...) | {"tenant_id": "tenant-z"}
    yield "policy_runs", fresh("policy_runs", 1, _id="camel", tenant=...) | {"tenantId": "tenant-z"}
    yield "impact_snapshots", fresh("impact_snapshots", _id="selector", tenantId=..., usageOnly=..., images=[])
    yield "impact_snapshots", fresh("impact_snapshots", _id="blank", tenantId=" \t", images=None, total=...)
    yield "schedules", fresh("schedules", _id="s1", enabled=..., mode="analysisonly", deletedAt=TIMES[2])
    yield "schedules", fresh("schedules", _id="s2", enabled=False, mode=..., selection=..., tenantId=None)
    yield "graph_jobs", fresh("graph_jobs", 1, _id="goj_x", status="cancelled", overlayKind=..., completedAt=None)
    yield "graph_jobs", fresh("graph_jobs", _id="gbj_x", status="queued", schemaVersion=..., overlayKey=None)
    yield "graph_job_events", fresh("graph_job_events", _id="e", tenant=..., ts=TIMES[1]) | {"tenantId": "tenant-a"}
    yield "run_summaries", fresh("run_summaries", _id="r", scheduleId=..., recent=[], counters=...)


@pytest.fixture(scope="module")
def source(mongo_server: MongoServer) -> Iterator[Database[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](mongo_server.uri) as client:
        for name, made in _variants():
            client[DATABASE][name].insert_one(RawBSONDocument(bson.encode(made)))
        yield client[DATABASE]
        client.drop_database(DATABASE)


@pytest.fixture(scope="module")
def connection(
    source: Database[dict[str, Any]], mongo_server: MongoServer, postgres_server: PostgresServer
) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a finished copy, as the owner; what a test changes must be rolled back."""
    dsn = postgres_server.create_database(DATABASE)
    upgrade(dsn)
    settings = Settings(
        source=SourceSettings(default_tenant="fallback"),
        mongo=MongoSettings(uri=mongo_server.uri, database=source.name),
        postgres=PostgresSettings(dsn=dsn),
        copy=CopySettings(workers=1),
    )
    assert backfill(settings, Scope()).complete
    with psycopg.connect(dsn) as made:
        assert made.execute("SELECT count(*) FROM migration.quarantine").fetchone() == (0,)
        made.rollback()
        yield made
    postgres_server.drop_database(DATABASE)


def _compare(source: Database[dict[str, Any]], connection: psycopg.Connection[Any]) -> list[AggregateResult]:
    return compare_aggregates(source, connection, PROFILE, {}, default_tenant="fallback")


def test_every_measure_is_computed_and_equal(
    source: Database[dict[str, Any]], connection: psycopg.Connection[Any]
) -> None:
    results = _compare(source, connection)
    assert [(one.collection, one.measure, one.unverified) for one in results if one.unverified] == []
    assert [(one.collection, one.measure, one.differing) for one in results if one.differing_total] == []
    expected = {(one.name, "documents") for one in PROFILE.collections}
    expected |= {(one.name, measure.name) for one in PROFILE.collections for measure in one.measures}
    assert {(one.collection, one.measure) for one in results} == expected


TOUCHED = [
    ("runs", "state", "UPDATE scheduler.runs SET state = 'skipped' WHERE source_id = 't1'"),
    ("runs", "cause", "UPDATE scheduler.runs SET cause = 'excitor' WHERE source_id = 'w0'"),
    ("runs", "stats.newLow", "UPDATE scheduler.runs SET stats = '{\"newLow\": 1}' WHERE source_id = 't1'"),
    ("runs", "createdAt", "UPDATE scheduler.runs SET created_at = created_at - interval '1 ms' WHERE source_id = 't4'"),
    ("audit", "action", "UPDATE scheduler.audit SET action = 'x' WHERE source_id = 't1'"),
    ("schedules", "enabled", "UPDATE scheduler.schedules SET enabled = false WHERE source_id = 's1'"),
    ("schedules", "deletedAt", "UPDATE scheduler.schedules SET deleted_at = null WHERE source_id = 's1'"),
    ("graph_jobs", "status", "UPDATE scheduler.graph_jobs SET status = 1 WHERE status = 0"),
    ("graph_jobs", "type", "UPDATE scheduler.graph_jobs SET type = 0 WHERE type = 1"),
    ("graph_jobs", "updatedAt", "UPDATE scheduler.graph_jobs SET updated_at = created_at"),
    ("graph_job_events", "ts", "UPDATE scheduler.graph_job_events SET created_at = now()"),
    ("policy_runs", "stats.rulesFired", "UPDATE scheduler.policy_jobs SET stats = null WHERE source_id = 'snake'"),
    ("policy_runs", "documents", "UPDATE scheduler.policy_jobs SET tenant_id = 'x' WHERE source_id = 'snake'"),
    ("policy_jobs", "status", "UPDATE scheduler.policy_jobs SET status = 'failed' WHERE source_id = 'a'"),
    ("impact_snapshots", "images.length", "UPDATE scheduler.impact_snapshots SET images = '[]'"),
    ("run_summaries", "counters.total", "UPDATE scheduler.run_summaries SET counters = '{}'"),
    ("triggers", "fireCount", "UPDATE scheduler.triggers SET fire_count = 4"),
    ("workers", "capacity", "UPDATE scheduler.workers SET capacity = null"),
    ("execution_logs", "level", "UPDATE scheduler.execution_logs SET level = 'warn' WHERE source_id = 't1'"),
]


@pytest.mark.parametrize(("collection", "measure", "fault"), TOUCHED, ids=[f"{one[0]}-{one[1]}" for one in TOUCHED])
def test_a_touched_row_is_seen(
    source: Database[dict[str, Any]],
    connection: psycopg.Connection[Any],
    collection: str,
    measure: str,
    fault: bytes,
) -> None:
    try:
        assert connection.execute(fault).rowcount > 0
        seen = {(one.collection, one.measure) for one in _compare(source, connection) if one.differing_total}
    finally:
        connection.rollback()
    assert (collection, measure) in seen
    assert {found for found, _ in seen} == {collection}
