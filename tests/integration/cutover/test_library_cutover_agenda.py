"""Agenda's jobs there and back three times, with the real library at work on PostgreSQL and then on MongoDB."""

import pytest

from migrator.cutover import library_cutover, library_rollback, reverse_sync
from tests.agenda_scene import HOUR, NOW, SECOND, AgendaScene, Document, agenda
from tests.agenda_tables import uuid_of

__all__ = ["agenda"]


def by_name(scene: AgendaScene) -> dict[str, Document]:
    return {document["name"]: document for document in scene.database["agendaJobs"].find()}


@pytest.mark.slow
@pytest.mark.proves("6-T10")
def test_three_times_there_and_back(agenda: AgendaScene) -> None:
    now, seen = NOW, list[str]()
    for turn in range(3):
        library_cutover.run(agenda.settings, agenda.conditions)
        seen += agenda.executed(agenda.postgres, now + SECOND)
        agenda.execute(
            "INSERT INTO agenda_jobs (name, data, type, next_run_at) VALUES (%s, '{\"of\": 1}', 'normal', %s)",
            f"new {turn}",
            now + 2 * HOUR,
        )
        if turn == 0:
            assert "locked" not in seen  # a live lock is respected
            agenda.execute("DELETE FROM agenda_jobs WHERE name = 'once past'")  # as with removeOnComplete
        assert library_cutover.confirm(agenda.settings).written > 2
        reverse_sync.run(agenda.settings, noted_by_now=True)
        assert not agenda.differs()
        seen += agenda.executed(agenda.postgres, now + HOUR + SECOND)
        done = library_rollback.run(agenda.settings)
        assert (done.lost, done.removed) == ({}, int(turn == 0))
        agenda.follow()
        assert not agenda.differs()
        stored = {name: uuid_of(document["_id"]) for name, document in by_name(agenda).items()}
        rows = dict(agenda.execute("SELECT name, id FROM agenda_jobs"))
        assert {name: str(key) for name, key in rows.items()} == {name: str(key) for name, key in stored.items()}
        seen += agenda.executed(agenda.mongo, now + 2 * HOUR + SECOND)
        agenda.follow()
        now += 3 * HOUR
    assert [seen.count(name) for name in ("hourly", "overdue", "once past", "locked", "disabled", "future")] == [
        *(9, 9, 1, 1, 0, 0)
    ]
    assert [seen.count(f"new {turn}") for turn in range(3)] == [1, 1, 1]
