"""Graph jobs, policy jobs and impact snapshots of the documented shapes: copied, equal, and read by the store."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import bson
import psycopg
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from migrator.parity.check import check_parity
from migrator.parity.model import ParityOutcome
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.values import jsonb
from tests.conftest import Clusters
from tests.copying import settings_for
from tests.stellaops_documents import CANONICAL
from tests.store_postgres import opened

COLLECTIONS = ("graph_jobs", "graph_job_events", "policy_runs", "policy_jobs", "impact_snapshots")
TENANT = "tenant-a"


@pytest.fixture(scope="module")
def source(mongo_client: MongoClient[Any]) -> Iterator[Database[Any]]:
    database = mongo_client["jobs_copied"]
    for name in COLLECTIONS:
        database[name].insert_many([bson.decode(raw) for raw in CANONICAL[name]])
    yield database
    mongo_client.drop_database(database)


@pytest.fixture(scope="module")
def copied(source: Database[Any], clusters: Clusters) -> Iterator[str]:
    cluster = clusters.get(18)
    dsn = cluster.scheduler()
    done = backfill(settings_for(source, dsn), Scope())
    assert done.complete
    assert done.quarantined == 0
    yield dsn
    cluster.drop(dsn)


def compared(source: Database[Any], dsn: str) -> ParityOutcome:
    return check_parity(settings_for(source, dsn), Scope())


def differences(outcome: ParityOutcome) -> list[tuple[str, str, str, str]]:
    return [(one.table, one.path, one.key, one.cause) for each in outcome.collections for one in each.findings]


def identifier(text: str) -> UUID:
    return UUID(text.partition("_")[2])


@pytest.mark.proves("1-G1", "1-G2", "0-T2.5.1", "0-T2.6.1", "0-T2.7.1")
def test_every_document_equals_its_row(source: Database[Any], copied: str) -> None:
    outcome = compared(source, copied)
    assert differences(outcome) == []
    assert {one.collection: one.matched for one in outcome.collections if one.collection in COLLECTIONS} == {
        name: len(CANONICAL[name]) for name in COLLECTIONS
    }


@pytest.mark.proves("1-G1")
def test_build_and_overlay_jobs_are_read_by_their_right_type_with_their_whole_document(
    source: Database[Any], copied: str
) -> None:
    documents = {one["_id"]: one for one in source["graph_jobs"].find({"payload": {"$exists": False}})}
    assert {name[:4] for name in documents} == {"gbj_", "goj_"}
    with opened(copied, copied=True) as store, store.session(TENANT) as session:
        for name, document in documents.items():
            right, wrong = ("build", "overlay") if name.startswith("gbj_") else ("overlay", "build")
            found = session.graph_jobs.get(right, identifier(name))  # type: ignore[arg-type] # one of the two
            assert found is not None
            assert session.graph_jobs.get(wrong, identifier(name)) is None  # type: ignore[arg-type] # as above
            payload = jsonb.decode(found.payload)
            assert all(payload[key] == value for key, value in document.items() if isinstance(value, str | int))


@pytest.mark.proves("1-G2")
@pytest.mark.parametrize("collection", ["policy_runs", "policy_jobs"])
def test_policy_documents_of_either_shape_are_policy_jobs(collection: str, source: Database[Any], copied: str) -> None:
    with psycopg.connect(copied) as target:
        for document in source[collection].find():
            row = target.execute(
                "SELECT policy_id, policy_version, mode, status, inputs FROM scheduler.policy_jobs"
                " WHERE source = %s AND source_id = %s",
                (f"stellaops/{collection}", document["_id"]),
            ).fetchone()
            assert row is not None
            policy = document.get("policyId", document.get("policy_id"))
            version = document.get("policyVersion", document.get("policy_version"))
            assert row[:4] == (policy, version, document["mode"], document["status"])
            assert len(row[4]) == len(document["inputs"])


def digest(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return the SHA-256 of a value's JSON, its keys sorted."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@pytest.mark.proves("0-T2.7.1")
def test_the_payload_of_a_snapshot_has_the_same_digest_before_and_after(source: Database[Any], copied: str) -> None:
    documents = list(source["impact_snapshots"].find())
    assert documents
    with opened(copied, copied=True) as store, store.session(TENANT) as session:
        for document in documents:
            found = session.impact_snapshots.get(identifier(document["_id"]))
            assert found is not None
            assert found.images is not None
            assert digest(jsonb.decode(found.images)) == digest(document["images"])


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        pytest.param(
            "UPDATE scheduler.impact_snapshots SET images = jsonb_set(images, '{0,imageDigest}', '\"sha256:ab\"')",
            ("impact_snapshots", "images", "text"),
            id="the digest of an image",
            marks=pytest.mark.proves("0-T2.7.1"),
        ),
        pytest.param(
            "UPDATE scheduler.graph_jobs SET payload = jsonb_set(payload, '{overlayKey}', '\"other\"') WHERE type = 1",
            ("graph_jobs", "payload", "text"),
            id="an overlay's key",
            marks=pytest.mark.proves("1-G1"),
        ),
        pytest.param(
            "UPDATE scheduler.graph_jobs SET type = 0 WHERE type = 1",
            ("graph_jobs", "type", "number"),
            id="an overlay that became a build",
            marks=pytest.mark.proves("1-G1"),
        ),
        pytest.param(
            "UPDATE scheduler.policy_jobs SET policy_version = policy_version + 1"
            " WHERE source = 'stellaops/policy_jobs'",
            ("policy_jobs", "policy_version", "number"),
            id="a policy's version",
            marks=pytest.mark.proves("1-G2"),
        ),
        pytest.param(
            "UPDATE scheduler.policy_jobs SET status = 'failed' WHERE source = 'stellaops/policy_runs'"
            " AND status <> 'failed'",
            ("policy_jobs", "status", "text"),
            id="a policy run's status",
            marks=pytest.mark.proves("1-G2"),
        ),
    ],
)
def test_a_changed_row_is_told(
    statement: str, found: tuple[str, str, str], source: Database[Any], copied: str, clusters: Clusters
) -> None:
    cluster = clusters.get(18)
    clone = cluster.server.create_database("jobs_clone", template=copied.rpartition("/")[2])
    try:
        with psycopg.connect(clone, autocommit=True) as target:
            assert target.execute(statement.encode()).rowcount > 0
        assert found in {(table, path, cause) for table, path, _, cause in differences(compared(source, clone))}
    finally:
        cluster.drop(clone)
