"""A collection whose ``_id``s are of every type that MongoDB takes: MongoDB itself compares within one type only."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bson.binary import Binary
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.timestamp import Timestamp
from pymongo.database import Database

from migrator.config import CopySettings, MongoSettings, PostgresSettings, Settings, SourceSettings
from migrator.parity.check import check_parity
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.testing.servers.mongo import MongoServer

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
IDS: tuple[Any, ...] = (
    MinKey(),
    None,
    float("nan"),
    1,
    2.5,
    Int64(2**40),
    Decimal128("1.5"),
    "1",
    {"a": 1},
    Binary(b"1", 0),
    Binary(bytes(16), 4),
    ObjectId("6b005affa4375445fe12232e"),
    False,
    True,
    NOON,
    Timestamp(1, 2),
    MaxKey(),
)
MAPPING = """\
[source]
name = "mixed"

[collections.parents]
tables = ["schedules"]

[collections.parents.fields]
name = { to = "schedules.name" }

[collections.parents.constants]
schedules.status = "scheduled"

[collections.children]
tables = ["runs"]

[collections.children.fields]
parent = { to = "runs.schedule_id", collection = "parents" }
at = { to = "runs.created_at" }

[collections.children.constants]
runs.state = "completed"
"""


def test_every_id_of_a_mapped_source_is_copied_and_found_again(
    mongo_database: Database[dict[str, Any]], mongo_server: MongoServer, scheduler_dsn: str, tmp_path: Path
) -> None:
    mongo_database["parents"].insert_many([{"_id": one, "name": repr(one)} for one in IDS])
    mongo_database["children"].insert_many([{"_id": one, "parent": one, "at": NOON} for one in IDS])
    mapping = tmp_path / "mixed.toml"
    mapping.write_text(MAPPING)
    settings = Settings(
        source=SourceSettings(mapping=str(mapping), default_tenant="house"),
        mongo=MongoSettings(uri=mongo_server.uri, database=mongo_database.name),
        postgres=PostgresSettings(dsn=scheduler_dsn),
        copy=CopySettings(chunk_documents=5),
    )
    done = backfill(settings, Scope())
    assert (done.complete, done.documents, done.quarantined) == (True, 2 * len(IDS), 0)
    outcome = check_parity(settings, Scope())
    equal = {one.collection: (one.documents, one.matched, one.extra) for one in outcome.collections}
    assert equal == {"parents": (17, 17, 0), "children": (17, 17, 0)}
