"""A scheduler process on a database with another scheduler's history: it changes nothing that was not asked for."""

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.store.epoch import Epoch
from migrator.store.postgres import epoch
from migrator.testing.servers.mongo import MongoServer
from tests import foreign_history
from tests.conftest import fresh_name
from tests.copying import settings_for
from tests.scheduler_processes import PATIENCE, Site, until

SWEEPS = 5

Rows = dict[str, Counter[str]]
"""Table or collection to its rows."""


class Place:
    """A source, its copy, and a site on one of the two."""

    def __init__(self, backend: str, database: Database[Any], dsn: str, site: Site) -> None:
        self.backend, self.database, self.dsn, self.site = backend, database, dsn, site

    @property
    def side(self) -> str:
        """Return how tables of the side are called that the process runs on."""
        return "source: " if self.backend == "mongo" else "target: scheduler."

    def rows(self) -> Rows:
        """Return every row of the side that the process runs on, and of the other side."""
        found = {f"target: {name}": rows for name, rows in target_rows(self.dsn).items()}
        for name, documents in foreign_history.contents(self.database).items():
            found[f"source: {name}"] = Counter({raw.hex(): 1 for raw in documents.values()})
        return found


def target_rows(dsn: str) -> Rows:
    """Return every row of every table of both schemas."""
    found: Rows = {}
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
        ).fetchall()
        for (name,) in tables:
            rows = connection.execute(f"SELECT t::text FROM {name} AS t").fetchall()
            found[name] = Counter(row for (row,) in rows)
    return found


def changes(before: Rows, after: Rows) -> dict[str, tuple[int, int]]:
    """Return, of each table that changed, how many rows are gone, and how many are new."""
    found = {}
    for name in before.keys() | after.keys():
        gone, new = before.get(name, Counter()) - after.get(name, Counter()), Counter(after.get(name, ()))
        new -= before.get(name, Counter())
        if gone or new:
            found[name] = (gone.total(), new.total())
    return found


MOVED = "postgres after a cutover"
PLACES = ["postgres", "mongo", MOVED]


@contextmanager
def placed(kind: str, server: MongoServer, dsn: str, folder: Path, *, own: bool = False) -> Iterator[Place]:
    name = fresh_name()
    with MongoClient[dict[str, Any]](server.uri) as client:
        foreign_history.plant(client[name])
        if own:
            foreign_history.plant_own(client[name])
        assert backfill(settings_for(client[name], dsn), Scope()).complete
        if kind == MOVED:
            with psycopg.connect(dsn) as connection:
                epoch.write(connection, Epoch(1, "postgres"))
        backend = "mongo" if kind == "mongo" else "postgres"
        copied = 'copy = "may be changed"\n' if kind == "postgres" else ""  # else no process works there
        site = Site(
            folder, backend, f'{copied}[mongo]\nuri = "{server.uri}"\ndatabase = "{name}"\n[postgres]\ndsn = "{dsn}"\n'
        )
        yield Place(backend, client[name], dsn, site)
        site.close()
        client.drop_database(name)


@pytest.fixture(params=PLACES)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, mongo_server: MongoServer, scheduler_dsn: str
) -> Iterator[Place]:
    with placed(request.param, mongo_server, scheduler_dsn, tmp_path) as made:
        yield made


def work_for_a_while(site: Site, **settings: Any) -> str:  # noqa: ANN401 - settings have all types
    """Run a process until it has led through several sweeps; return what it said."""
    process = site.start(**settings)
    heard: set[datetime | None] = set()

    def swept() -> bool:
        assert process.poll() is None, site.log(process)
        heard.update(one.last_heartbeat_at for one in site.store.workers.list() if one.pid == process.pid)
        return site.led_by(process) and len(heard) > SWEEPS

    until(swept)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0, site.log(process)
    return site.log(process)


def created_in(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the lines in which a process names the indexes that it created; nothing else may differ."""
    lines = []
    for name, (kind, options, indexes) in after.items():
        was = before.get(name, ("collection", {}, {}))
        assert (kind, options) == was[:2]
        assert was[2].items() <= indexes.items()
        if new := sorted(indexes.keys() - was[2].keys() - {"_id_"}):
            lines.append(f"run: created in {name}: {', '.join(new)}")
            unique = {index for index in new if indexes[index].get("unique")}
            assert unique <= {"uq_runs_number", "uq_runs_slot", "uq_runs_dedupe", "uq_handlers_name"}
    assert before.keys() <= after.keys()
    return lines


@pytest.mark.proves("5-D1")
def test_a_process_with_default_settings_changes_no_row_but_its_own(place: Place) -> None:
    before, shape = place.rows(), foreign_history.shape(place.database)
    said = work_for_a_while(place.site)
    after = place.rows()
    side = place.side
    # Its own row of workers, and the lock of who leads.
    assert changes(before, after) == {f"{side}workers": (0, 1), f"{side}locks": (0, 1)}
    created = created_in(shape, foreign_history.shape(place.database))
    assert [line for line in said.splitlines() if line.startswith("run: created in ")] == created
    assert bool(created) is (place.backend == "mongo")
    assert "retention is off" in said
    assert "the 11 workers of another scheduler" in said


@pytest.mark.proves("5-D1")
def test_a_process_works_only_for_the_schedules_of_its_handlers(place: Place) -> None:
    """Beside the foreign history, and beside another process with other handlers."""
    site = place.site
    now = site.store.now()
    once = site.put("note", {"kind": "one_time", "run_at": now})
    bare = site.put("note", {"kind": "one_time", "run_at": now, "next_fire_at": None})
    elsewhere = site.put("elsewhere", {"kind": "one_time", "run_at": now})
    queued = site.put("elsewhere")
    before = place.rows()
    said = work_for_a_while(site)
    assert "fires and claims for schedules with handlers fail-once, hold, hold-once, note" in said
    assert (site.states(once), site.states(bare)) == (["completed"], ["completed"])
    assert (site.states(elsewhere), site.states(queued)) == ([], ["queued"])
    side = place.side
    found = changes(before, place.rows())
    wrote = {"workers": (0, 1), "locks": (0, 1), "schedules": (2, 2), "triggers": (2, 2), "runs": (0, 2)}
    wrote |= {"execution_logs": (0, 4), "run_summaries": (0, 2), "audit": (0, 4)}
    assert {name.removeprefix(side): count for name, count in found.items()} == wrote


@pytest.mark.proves("5-D1", "3-R2")
def test_retention_removes_old_runs_only_from_the_day_on_that_the_configuration_names(
    tmp_path: Path, mongo_server: MongoServer, scheduler_dsn: str
) -> None:
    with placed(MOVED, mongo_server, scheduler_dsn, tmp_path) as place:
        side = place.side
        own = {f"{side}workers": (0, 1), f"{side}locks": (0, 1)}
        before = place.rows()
        said = work_for_a_while(place.site, retention_every="1d")
        assert changes(before, place.rows()) == own
        assert "retention would remove 34 runs that are older than 30d and beyond the newest 100" in said
        assert "it removed nothing, since retention_from in [scheduler] is not set" in said
        today, later = place.site.store.now().date(), place.site.store.now().date() + timedelta(days=2)
        before = place.rows()
        said = work_for_a_while(place.site, retention_every="1d", retention_from=later.isoformat())
        assert "retention would remove 34 runs" in said
        assert f"retention_from in [scheduler] is {later.isoformat()}" in said
        found = changes(before, place.rows())
        assert found == {f"{side}workers": (0, 1), f"{side}locks": (1, 1)}  # the lock of the leader before
        before = place.rows()
        said = work_for_a_while(place.site, retention_every="1d", retention_from=today.isoformat())
        assert "retention removed 34 runs" in said
        assert changes(before, place.rows())[f"{side}runs"] == (34, 0)


@pytest.mark.proves("5-D1", "3-R2")
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("postgres", "no cutover has made it the active backend"),
        ("mongo", "of the runs belong to jobs of another application in MongoDB"),
    ],
)
def test_retention_never_removes_the_history_of_another_scheduler_that_is_active(
    kind: str, why: str, tmp_path: Path, mongo_server: MongoServer, scheduler_dsn: str
) -> None:
    with placed(kind, mongo_server, scheduler_dsn, tmp_path) as place:
        before, today = place.rows(), place.site.store.now().date()
        said = work_for_a_while(place.site, retention_every="1d", retention_from=today.isoformat())
        assert why in said
        assert "retention removed no run" in said
        assert changes(before, place.rows()) == {f"{place.side}workers": (0, 1), f"{place.side}locks": (0, 1)}


@pytest.mark.proves("5-D1", "3-B12")
@pytest.mark.parametrize("kind", PLACES)
def test_a_silent_process_of_this_scheduler_is_declared_dead_where_it_worked(
    kind: str, tmp_path: Path, mongo_server: MongoServer, scheduler_dsn: str
) -> None:
    """A copy made before the cutover is not where it worked: there its row says nothing about it."""
    with placed(kind, mongo_server, scheduler_dsn, tmp_path, own=True) as place:
        before = place.rows()
        work_for_a_while(place.site)
        found = changes(before, place.rows())
        wrote = {"workers": (0, 1), "locks": (0, 1)}
        if kind != "postgres":
            wrote |= {"workers": (1, 2), "runs": (1, 1), "execution_logs": (0, 1), "audit": (0, 1)}
        assert {name.removeprefix(place.side): count for name, count in found.items()} == wrote
        status = {one.id: one.status for one in place.site.store.workers.list()}
        assert status[foreign_history.OWN] == ("active" if kind == "postgres" else "dead")
