"""Celery's results there and back twice, and there for good: workers of Celery store results on either side.

After each move Celery reads all that was ever stored and not forgotten, each result and each group once.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from pymongo.database import Database

from migrator.cutover import completion, library_cutover, library_rollback, reverse_sync, server_gates
from migrator.errors import RefusedError
from migrator.parity.check import check_parity
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import close_cached
from migrator.schema.decisions import Approval
from migrator.targets.library import Line, MongoStore, PostgresStore
from migrator.testing.servers.mongo import MongoServer
from tests.copying import write_config
from tests.library_scene import LibraryScene, library_scene
from tests.native_tables import BY_NAME, ask, python
from tests.real_libraries import LOCKS

Document = dict[str, Any]
MADE = BY_NAME["celery-results-5.7"]
TURNS = 2
SECONDS = 300
"""For a worker, which needs two."""
_MICROSECONDS = re.compile(r"(\.\d{3})\d{3}")


class Worked(msgspec.Struct, frozen=True):
    """What a worker has stored."""

    tasks: dict[str, str]
    """What a task was for → its id."""
    group: str
    """The id of the group that was saved."""


class Stored(msgspec.Struct):
    """What Celery must find, whichever side it works on."""

    tasks: dict[str, tuple[str, Any, list[str]]] = {}
    """Id → state, result (as ``probes/stand_ins.py`` shows it), ids of the children."""
    groups: dict[str, list[str]] = {}
    """Id → ids of the members."""

    def add(self, worked: Worked) -> None:
        """Add what the tasks of ``work-celery.py`` give."""
        key = worked.tasks
        children = [key["child 0"], key["child 1"]]
        error = {"exception": "ValueError", "arguments": {"tuple": ["no route", {"dict": [["to", "K\u00f6ln"]]}]}}
        self.tasks |= {
            key["add"]: ("SUCCESS", 3, []),
            key["fail"]: ("FAILURE", error, []),
            key["parent"]: ("SUCCESS", {"list": children}, children),
            key["child 0"]: ("SUCCESS", 1, []),
            key["child 1"]: ("SUCCESS", 2, []),
            key["member 0"]: ("SUCCESS", 7, []),
            key["member 1"]: ("SUCCESS", "ab", []),
            key["begun"]: ("PROGRESS", {"dict": [["percent", 50]]}, []),
        }
        self.tasks |= {one: ("SUCCESS", 11, []) for name, one in key.items() if name.startswith("end ")}
        self.groups[worked.group] = [key["member 0"], key["member 1"]]


def work(settings: Document, end: Sequence[str] = (), forget: Sequence[str] = ()) -> Worked:
    """Let a worker of Celery execute tasks; ``end``, ``forget``: ids of tasks that end, and whose results go."""
    done = subprocess.run(
        [python(MADE), LOCKS / "work-celery.py"],
        input=json.dumps({"settings": settings, "end": end, "forget": forget}),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return msgspec.json.decode(done.stdout, type=Worked)


@contextmanager
def worker(settings: Document) -> Iterator[None]:
    """Keep a worker of Celery, which has executed tasks, and waits for others."""
    command = [python(MADE), LOCKS / "work-celery.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"settings": settings, "end": (), "forget": ()}) + "\n")
            process.stdin.flush()
            assert process.stdout.readline().startswith("{")
            yield
        finally:
            process.stdin.close()


def of_mongo(uri: str, database: str) -> Document:
    """Return the settings of an application with results in MongoDB."""
    return {"result_backend": uri, "mongodb_backend_settings": {"database": database}}


def written_with(serializer: str) -> Document:
    """Return the settings of an application with a serializer of its own."""
    return {"result_serializer": serializer, "accept_content": ["json", serializer]}


class CeleryScene(LibraryScene):
    """Results of Celery in MongoDB, and the tables of its database backend."""

    made = MADE

    def __init__(
        self, server: MongoServer, database: Database[Document], dsn: str, folder: Path, *, serializer: str
    ) -> None:
        super().__init__(server, database, dsn, folder)
        self.serializer = serializer
        target = msgspec.structs.replace(self.settings.target, interpreter=str(python(MADE)))
        self.settings = msgspec.structs.replace(self.settings, target=target)
        self.config = write_config(folder, self.settings)

    @property
    def in_mongo(self) -> Document:
        """The application before the cutover; the fence stops its user."""
        return of_mongo(self.mongo.uri, self.database.name) | written_with(self.serializer)

    @property
    def in_postgres(self) -> Document:
        """The application after it: the two lines of docs/targets-celery.md."""
        return {
            "result_backend": self.dsn.replace("postgresql://", "db+postgresql+psycopg://"),
            "database_engine_options": {"connect_args": {"options": "-c timezone=UTC"}},
        } | written_with(self.serializer)

    def read(self, store: PostgresStore | MongoStore) -> dict[str, Line]:
        """Return the reading by Celery of each result and of each group, by id, with the milliseconds of times."""
        answer = ask(MADE, store, "entries", options={"serializer": self.serializer})
        lines = [msgspec.json.decode(_MICROSECONDS.sub(r"\1", json.dumps(line))) for line in answer]
        assert lines.pop()["kind"] == "done"
        entries = {line["id"]: line for line in lines}
        assert len(entries) == len(lines), "each once"
        return entries


def assert_found(entries: dict[str, Line], stored: Stored) -> None:
    """Assert that Celery finds all that was stored and not forgotten, and nothing else."""
    groups = {key: entry["group"] for key, entry in entries.items() if "group" in entry}
    tasks = {key: entry["fields"] for key, entry in entries.items() if key not in groups}
    assert groups == stored.groups
    assert {key: (one["state"], one["result"], one["children"]) for key, one in tasks.items()} == stored.tasks


def differs(scene: CeleryScene) -> bool:
    close_cached()
    return check_parity(scene.settings, Scope()).differs


@pytest.fixture
def first() -> list[Worked]:
    """What was stored before the copy."""
    return []


@pytest.fixture
def serializer() -> str:
    return "json"


@pytest.fixture
def celery(
    auth_server: MongoServer, postgres_dsn: str, tmp_path: Path, first: list[Worked], serializer: str
) -> Iterator[CeleryScene]:
    def add(database: Database[Document], uri: str) -> None:
        first.append(work(of_mongo(uri, database.name) | written_with(serializer)))

    scene = partial(CeleryScene, serializer=serializer)
    with library_scene(scene, add, auth_server, postgres_dsn, tmp_path) as made:
        yield made


@pytest.mark.slow
@pytest.mark.proves("6-T3", "6-T10")
@pytest.mark.parametrize(("serializer", "turns"), [("json", TURNS), ("pickle", 1), ("yaml", 1), ("msgpack", 1)])
def test_results_and_groups_are_read_there_and_back(celery: CeleryScene, first: list[Worked], turns: int) -> None:
    [old], stored = first, Stored()
    stored.add(old)
    for _ in range(turns):
        library_cutover.run(celery.settings, celery.conditions)
        assert_found(celery.read(celery.postgres), stored)
        # the task that was begun on MongoDB ends on PostgreSQL
        new = work(celery.in_postgres, end=[old.tasks["begun"]], forget=[old.tasks["add"]])
        del stored.tasks[old.tasks["add"]]
        stored.add(new)
        confirmed = library_cutover.confirm(celery.settings).library
        assert (confirmed.entries, confirmed.failed) == (len(stored.tasks) + len(stored.groups), ())
        reverse_sync.run(celery.settings, noted_by_now=True)
        assert not differs(celery)
        entries = celery.read(celery.postgres)
        assert_found(entries, stored)
        done = library_rollback.run(celery.settings)
        assert done.removed == 1, "what was forgotten"
        tables = ("celery_taskmeta", "celery_tasksetmeta")
        assert done.lost.keys() <= {f"{MADE.target}/{table}.date_done" for table in tables}, "microseconds"
        assert celery.read(celery.mongo) == entries
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="table celery_taskmeta is closed"):
            celery.execute("DELETE FROM celery_taskmeta")
        celery.follow()
        # and the one that was begun on PostgreSQL ends on MongoDB
        old = work(celery.in_mongo, end=[new.tasks["begun"]], forget=[new.tasks["fail"]])
        del stored.tasks[new.tasks["fail"]]
        stored.add(old)
        assert_found(celery.read(celery.mongo), stored)
        celery.follow()
    library_cutover.run(celery.settings, celery.conditions)
    assert_found(celery.read(celery.postgres), stored)
    library_cutover.confirm(celery.settings)
    completion.finish(celery.settings, early=Approval("ops", "tested"))
    stored.add(work(celery.in_postgres))
    assert_found(celery.read(celery.postgres), stored)


@pytest.mark.slow
def test_a_worker_that_is_connected_is_named_and_must_end(celery: CeleryScene) -> None:
    with worker(celery.in_mongo):
        celery.follow()
        gates = {one.name: one for one in library_cutover.plan(celery.settings, celery.conditions).gates}
        assert gates["application"].passed is False
        assert gates["application"].words.startswith("connected now: application@admin (from 127.0.0.1")
        assert "a fence refuses the writing alone" in gates["application"].words
        with pytest.raises(RefusedError, match=r"application@admin .*cutover run is refused while its application"):
            library_cutover.run(celery.settings, celery.conditions)
        work(celery.in_mongo)  # it was refused before MongoDB was closed
    library_cutover.run(celery.settings, celery.conditions)
    with psycopg.connect(celery.dsn, application_name="shop"):  # as a worker with the pool prefork keeps one
        gates = {one.name: one for one in library_rollback.plan_gates(celery.settings)}
        assert gates["application"].passed is None
        assert gates["application"].words.startswith("connected now: postgres (shop, 1); ")
        assert gates["application"].words.endswith(": stop the application first")
    gates = {one.name: one for one in library_rollback.plan_gates(celery.settings)}
    assert (gates["application"].passed, gates["application"].words) == (True, server_gates.NOBODY_CONNECTED)
    assert library_rollback.run(celery.settings).removed == 0
