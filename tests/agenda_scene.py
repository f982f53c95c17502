"""Agenda's jobs in MongoDB and its tables in PostgreSQL, ready for a cutover; the library works on either."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson.objectid import ObjectId
from pymongo.database import Database

from migrator.parity.check import check_parity
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import close_cached
from migrator.testing.servers.mongo import MongoServer
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
