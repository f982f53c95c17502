"""New rows of a user's own tables become documents with an ``_id`` like those of the source, or no cutover is made."""

from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from bson import ObjectId
from pymongo.database import Database

from migrator.config import Settings
from migrator.connections.postgres import open_target
from migrator.cutover import reverse_sync
from migrator.cutover.gates import GateOptions
from migrator.cutover.library_tables import library_tables
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.schema import native_target, revisions
from migrator.sources import profile_of
from migrator.targets import load_target
from tests.copying import mapped_settings, write_config
from tests.cutting_over import gate
from tests.tailing import caught_up, compared

DDL = "CREATE TABLE jobs (id uuid PRIMARY KEY, title text NOT NULL)"
MAPPING = """
[source]
name = "own"

[target]
name = "own"

[target.tables.jobs]
key = ["id"]
made = "row"

[target.tables.jobs.columns]
id = "uuid not null"
title = "text not null"

[collections.jobs]
tables = ["jobs"]
object_ids = {object_ids}

[collections.jobs.fields]
title = {{ to = "jobs.title" }}
"""
NEW = UUID("5e0c3b1a-7d0f-4c55-9d43-2a4f8f0f6a11")


def copied(database: Database[Any], dsn: str, folder: Path, *, object_ids: bool) -> Settings:
    """Copy into a table whose keys the tool makes; return the settings."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(DDL)
    settings = mapped_settings(database, dsn, folder, MAPPING.format(object_ids=str(object_ids).lower()), "own")
    revisions.upgrade(dsn, branches=(revisions.TOOL,))
    profile_of(settings.source, settings.target)  # it says what the target is
    with psycopg.connect(dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target("own"), settings.target)
    assert backfill(settings, Scope()).complete
    caught_up(settings)
    return settings


@pytest.mark.parametrize("object_ids", [False, True])
def test_a_new_row_becomes_a_document_with_an_id_like_the_others(
    mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path, *, object_ids: bool
) -> None:
    old: Any = ObjectId() if object_ids else "first"
    mongo_database["jobs"].insert_one({"_id": old, "title": "old"})
    settings = copied(mongo_database, postgres_dsn, tmp_path, object_ids=object_ids)
    assert gate(settings, GateOptions(config=write_config(tmp_path, settings)), "reverse sync")[0]
    tables = library_tables(settings)
    assert tables is not None
    with open_target(settings, autocommit=True) as target:
        tables.open_outbox(target)
        target.execute("INSERT INTO public.jobs VALUES (%s, 'new')", (NEW,))
        assert reverse_sync.run(settings, noted_by_now=True).documents == 1
        tables.close_outbox(target)
    [made] = mongo_database["jobs"].find({"title": "new"})
    if object_ids:
        assert isinstance(made["_id"], ObjectId)
    else:
        assert made == {"_id": str(NEW), "title": "new"}
        assert compared(settings) == [], "the document gives the row the same key"


def test_a_cutover_is_refused_where_documents_have_object_ids_and_new_ones_would_not(
    mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    mongo_database["jobs"].insert_one({"title": "old"})
    settings = copied(mongo_database, postgres_dsn, tmp_path, object_ids=False)
    passed, words = gate(settings, GateOptions(config=write_config(tmp_path, settings)), "reverse sync")
    assert passed is False
    assert words.endswith(
        "documents of jobs have ObjectIds, and those of new rows would have texts: set object_ids = true in the mapping"
    )
