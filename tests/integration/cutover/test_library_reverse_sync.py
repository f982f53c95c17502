"""What a library writes into its own tables after a cutover goes to MongoDB, in documents that it reads there."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from migrator.connections.postgres import open_target
from migrator.cutover import outbox, reverse_sync
from migrator.cutover.library_tables import LibraryTables, library_tables
from migrator.cutover.reverse_sync import ReverseSyncResult
from migrator.pipeline.ledger import latest_plan
from migrator.pipeline.plan import plan_context
from migrator.pipeline.sessions import open_sessions
from tests.library_scene import NOW, LibraryScene, library, on_postgres

__all__ = ["library"]


@pytest.fixture
def noted(library: LibraryScene) -> LibraryScene:
    """A scene whose tables note what is written."""
    with open_target(library.settings, autocommit=True) as target:
        tables_of(library).open_outbox(target)
    return library


def tables_of(scene: LibraryScene) -> LibraryTables:
    found = library_tables(scene.settings)
    assert found is not None
    return found


def carry(scene: LibraryScene) -> ReverseSyncResult:
    return reverse_sync.run(scene.settings, noted_by_now=True)


def notes(scene: LibraryScene) -> list[Any]:
    return scene.execute("SELECT table_name, row_id FROM migration.outbox ORDER BY id")


def test_what_the_library_does_on_postgresql_reads_the_same_in_mongodb(noted: LibraryScene) -> None:
    noted.database["jobs"].update_one({"_id": "paused"}, {"$set": {"ours": "kept"}})
    before = noted.documents()
    lines = noted.work(noted.postgres, NOW + timedelta(seconds=5))
    assert sorted({line["id"] for line in lines if line["kind"] == "execution"}) == [
        *("hourly", "interval", "once-past", "overdue"),
    ]
    with on_postgres(noted) as scheduler:
        scheduler.add_job("json:dumps", "interval", hours=1, args=["new"], id="new")
        scheduler.modify_job("future", name="renamed")
        scheduler.pause_job("interval")
        scheduler.add_job("json:dumps", "interval", hours=1, args=["gone"], id="gone")
        scheduler.remove_job("gone")
    done = carry(noted)
    assert done.removed == 0
    rows, pairs = noted.rows(), noted.pairs()
    assert {key: pairs[key] for key in rows} == rows
    assert sorted(pairs.keys() - rows.keys()) == ["once-late", "once-past"]  # a rollback removes them
    assert before.keys() - pairs.keys() == set()
    assert noted.documents()["paused"]["ours"] == "kept"
    assert {key for key, document in noted.documents().items() if document == before.get(key)} == {
        *("broken", "once-late", "once-past", "paused")
    }
    assert notes(noted) == []
    assert carry(noted).notes == 0


def test_a_row_that_was_made_and_deleted_before_it_was_carried_makes_no_document(noted: LibraryScene) -> None:
    noted.execute("INSERT INTO apscheduler_jobs VALUES ('brief', 1, 'x')")
    noted.execute("DELETE FROM apscheduler_jobs WHERE id = 'brief'")
    assert notes(noted) == [("apscheduler/apscheduler_jobs", "brief")] * 2
    assert carry(noted).documents == 0
    assert "brief" not in noted.documents()


def test_a_row_that_gets_another_key_is_a_deleted_one_and_a_new_one(noted: LibraryScene) -> None:
    noted.execute("UPDATE apscheduler_jobs SET id = 'other' WHERE id = 'future'")
    assert [key for _, key in notes(noted)] == ["future", "other"]
    assert carry(noted).documents == 1
    assert noted.pairs()["other"] == noted.rows()["other"]
    assert "future" in noted.documents()


def test_a_document_that_was_never_copied_is_not_overwritten(noted: LibraryScene) -> None:
    odd = {"_id": "odd", "next_run_time": "soon", "job_state": b"x"}
    noted.database["jobs"].insert_one(odd)
    noted.execute("INSERT INTO apscheduler_jobs VALUES ('odd', 1, 'y')")
    done = carry(noted)
    assert (done.documents, done.lost) == (0, {("apscheduler/apscheduler_jobs", "*"): 1})
    assert noted.documents()["odd"] == odd


def test_another_user_who_has_rights_on_the_librarys_table_alone_is_noted(noted: LibraryScene) -> None:
    noted.execute("CREATE ROLE library_application LOGIN PASSWORD 'x'")
    noted.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON apscheduler_jobs TO library_application")
    try:
        dsn = psycopg.conninfo.make_conninfo(noted.dsn, user="library_application", password="x")
        with psycopg.connect(dsn) as connection:
            connection.execute("UPDATE apscheduler_jobs SET next_run_time = 7 WHERE id = 'future'")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT * FROM migration.outbox")
    finally:
        noted.execute("DROP OWNED BY library_application")
        noted.execute("DROP ROLE library_application")
    assert notes(noted) == []
    noted.execute("UPDATE apscheduler_jobs SET next_run_time = 7 WHERE id = 'future'")
    assert [key for _, key in notes(noted)] == ["future"]


def test_documents_follow_from_the_rows_and_a_second_encoding_writes_the_same(noted: LibraryScene) -> None:
    with on_postgres(noted) as scheduler:
        scheduler.add_job("json:dumps", "interval", hours=1, args=["new"], id="new")
        scheduler.modify_job("future", name="renamed")
    carry(noted)
    with open_sessions(noted.settings) as sessions:
        plan = latest_plan(sessions.target)
        assert plan is not None
        rows = [row for part in tables_of(noted).changed(sessions.target) for row in part]
        assert sorted(row.row_id for row in rows) == ["future", "new"]
        context = plan_context(plan)
        assert reverse_sync.unwritten(sessions, reverse_sync.encoded(sessions, context, rows)) == []
        noted.execute("UPDATE apscheduler_jobs SET next_run_time = 7 WHERE id = 'future'")
        stale = reverse_sync.unwritten(sessions, reverse_sync.encoded(sessions, context, rows))
        assert [write.key for write in stale] == ["future"]
        assert outbox.backlog(sessions.target)[0] == 1
