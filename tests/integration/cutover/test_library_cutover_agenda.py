"""Agenda's jobs there and back three times, with the real library at work on PostgreSQL and then on MongoDB."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson.objectid import ObjectId
from pymongo.database import Database

from migrator.cutover import library_cutover, library_rollback, reverse_sync
from migrator.parity.check import check_parity
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import close_cached
from migrator.testing.servers.mongo import MongoServer
from tests.agenda_tables import uuid_of
from tests.library_scene import LibraryScene, library_scene
from tests.native_tables import BY_NAME

Document = dict[str, Any]
NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
_UNSET: Document = dict.fromkeys(("lastModifiedBy", "lockedAt", "lastRunAt", "lastFinishedAt"))


class AgendaScene(LibraryScene):
    """Agenda's jobs in MongoDB, and its tables in PostgreSQL."""

    made = BY_NAME["agenda-3.0"]

    def executed(self, store: Any, now: datetime) -> list[str]:  # noqa: ANN401 - of either side
        """Let the library execute what is due; return the handlers that were called."""
        return sorted(line["handler"] for line in self.work(store, now) if line["kind"] == "execution")

    def differs(self) -> bool:
        close_cached()
        return check_parity(self.settings, Scope()).differs


def add_jobs(database: Database[Document], _: str) -> None:
    """Insert jobs as Agenda 6 writes them: due ones, a locked, a disabled and a late one, and one for a later time."""
    hourly = {"repeatInterval": "0 * * * *", "repeatTimezone": "UTC"}
    jobs: dict[str, Document] = {
        "hourly": hourly | {"nextRunAt": NOW},
        "overdue": hourly | {"nextRunAt": NOW - 3 * HOUR},
        "once past": {"nextRunAt": NOW - 24 * HOUR},
        "locked": {"nextRunAt": NOW - HOUR, "lockedAt": NOW - timedelta(minutes=2)},
        "disabled": hourly | {"nextRunAt": NOW, "disabled": True},
        "future": {"nextRunAt": NOW + timedelta(days=400)},
    }
    database["agendaJobs"].insert_many(
        [
            {"_id": ObjectId(), "name": name, "data": {"of": name}, "priority": 0, "type": "normal"} | _UNSET | members
            for name, members in jobs.items()
        ]
    )


@pytest.fixture
def agenda(auth_server: MongoServer, postgres_dsn: str, tmp_path: Path) -> Iterator[AgendaScene]:
    with library_scene(AgendaScene, add_jobs, auth_server, postgres_dsn, tmp_path) as made:
        yield made


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
