"""The profile as a whole: its collections, what the census knows, and the workers of the closing pass."""

from pathlib import Path

from migrator.records import WorkerRecord
from migrator.sources import load_profile
from migrator.sources.agenda import PROFILE
from migrator.sources.agenda.workers import derive_workers
from migrator.values import jsonb
from migrator.values.copy_format import codec
from tests.agenda_documents import REAL, real, travel


def test_it_is_found_by_name() -> None:
    assert load_profile("agenda") is PROFILE


def test_jobs_are_loaded_before_their_logs() -> None:
    assert [one.name for one in PROFILE.collections] == ["agendaJobs", "pulseJobs", "agenda_logs"]
    assert PROFILE.by_name()["agenda_logs"].after == ("agendaJobs",)


def test_the_census_knows_every_field_of_the_real_documents() -> None:
    for folder, collection in REAL:
        known = PROFILE.by_name()[collection].known
        for raw in real(folder, collection):
            assert set(travel(raw, collection).document) <= known


def test_an_instance_becomes_one_worker_however_often_it_is_named() -> None:
    rows = derive_workers(["worker-2", "worker-1", None, 7, "worker-2", ""])
    assert [row.hostname for row in rows] == ["worker-1", "worker-2"]
    assert rows == derive_workers(["worker-1", "worker-2"]), "a second pass writes nothing"
    assert len({row.id for row in rows}) == 2
    for row in rows:
        assert (row.tenant_id, row.kind, row.status) == ("*", "worker", "stopped")
        assert jsonb.decode(row.metadata or b"") == {"derived": True}
        codec(WorkerRecord).serialize(row)


def test_the_closing_pass_asks_every_collection_for_names() -> None:
    (closing,) = PROFILE.closing
    assert closing.record is WorkerRecord
    assert [(name, pipeline[-1]) for name, pipeline in closing.pipelines] == [
        ("agendaJobs", {"$group": {"_id": "$lastModifiedBy"}}),
        ("pulseJobs", {"$group": {"_id": "$lastModifiedBy"}}),
        ("agenda_logs", {"$group": {"_id": "$agendaName"}}),
    ]
    assert closing.make(["w"]) == derive_workers(["w"])


def test_the_page_tells_where_every_field_goes() -> None:
    page = (Path(__file__).parents[4] / "docs" / "sources-agenda.md").read_text(encoding="utf-8")
    for collection in PROFILE.collections:
        assert f"`{collection.name}`" in page
        for path in collection.known:
            if "[" not in path and "*" not in path:
                assert f"`{path}`" in page, path
