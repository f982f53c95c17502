"""The quarantine is read once for all chunks of a process, and by the documents that are in doubt: not once a chunk."""

from collections.abc import Collection
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from pymongo.database import Database

from migrator.parity.compare import compare_chunk
from migrator.pipeline import ledger
from migrator.pipeline import plan as plans
from migrator.pipeline.backfill import backfill
from migrator.pipeline.chunk import copy_chunk
from migrator.pipeline.executors import ChunkJob
from migrator.pipeline.ledger import QuarantineEntry
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import close_cached, open_sessions
from tests.copying import settings_for
from tests.stellaops_documents import fresh

Source = Database[dict[str, Any]]
DOCUMENTS, EVERY = 60, 10


def test_the_quarantine_is_read_once_for_all_chunks(
    mongo_database: Source, scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = {"createdAt": "no time"}
    mongo_database["runs"].insert_many(
        [
            fresh("runs", _id=f"run {n:03}", id=f"run {n:03}", **(bad if n % EVERY == 0 else {}))
            for n in range(DOCUMENTS)
        ]
    )
    settings = settings_for(mongo_database, scheduler_dsn, chunk=EVERY)
    assert backfill(settings, Scope()).quarantined == DOCUMENTS // EVERY
    read: list[str] = []
    asked: list[int] = []
    ids, entries = ledger.quarantined_ids, ledger.quarantine_entries

    def noted_ids(connection: Any, profile: str, collection: str) -> set[str]:  # noqa: ANN401 - a connection
        read.append(collection)
        return ids(connection, profile, collection)

    def noted_entries(
        connection: Any,  # noqa: ANN401 - a connection
        profile: str,
        collection: str,
        source_ids: Collection[str],
    ) -> dict[str, QuarantineEntry]:
        asked.append(len(source_ids))
        return entries(connection, profile, collection, source_ids)

    monkeypatch.setattr(ledger, "quarantined_ids", noted_ids)
    monkeypatch.setattr(ledger, "quarantine_entries", noted_entries)
    with open_sessions(settings) as sessions:
        found, _ = sessions.survey()
        (runs,) = (one for one in found if one.collection.name == "runs")
        plan = plans.new_plan(sessions.reader, sessions.profile, settings, Scope(), found, position=False)
        chunks = list(plans.cut(sessions.reader, runs, settings, "merge"))
    assert len(chunks) > DOCUMENTS // EVERY // 2
    try:
        for begun in (uuid4().hex, uuid4().hex):
            jobs = [
                ChunkJob(settings=settings, plan=plan, context=plans.plan_context(plan), chunk=one, begun=begun)
                for one in chunks
            ]
            compared = [compare_chunk(job) for job in jobs]
            assert sum(one.quarantined for one in compared) == DOCUMENTS // EVERY
            assert sum(one.documents for one in compared) == DOCUMENTS
            assert sum(one.differing for one in compared) == 0
        assert read == ["runs", "runs"]
        assert sum(asked) == 2 * DOCUMENTS // EVERY
        read.clear()
        for one in jobs:
            copy_chunk(msgspec.structs.replace(one, dry_run=True))
        assert read == []
    finally:
        close_cached()
