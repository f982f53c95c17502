"""A cutover of a group of collections: the others of the database are written meanwhile, by the same user."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from migrator.exit_status import UNVERIFIED
from migrator.testing.servers.mongo import MongoServer
from tests.copying import run
from tests.killed_commands import killed_at
from tests.library_scene import APPLICATION, Document, LibraryScene, add_jobs, library_scene


def add_jobs_and_orders(database: Database[Document], uri: str) -> None:
    """Let the library add its jobs beside a collection of the application's own."""
    add_jobs(database, uri)
    database["orders"].insert_one({"_id": 0})


@pytest.fixture
def group(auth_server: MongoServer, postgres_dsn: str, tmp_path: Path) -> Iterator[LibraryScene]:
    """Yield jobs that are ready for a cutover by the fence of collections."""
    with library_scene(LibraryScene, add_jobs_and_orders, auth_server, postgres_dsn, tmp_path) as made:
        text = made.config.read_text(encoding="utf-8")
        made.config.write_text(f'{text}[cutover]\nfence = "collections"\n')
        yield made


def call(scene: LibraryScene, *arguments: str, ends: int = 0) -> str:
    """Call a command, which ends with a status; return all that it said."""
    status, out, said = run(*arguments, "--config", str(scene.config), cwd=scene.folder)
    assert status == ends, out + said
    return out + said


def rights(scene: LibraryScene) -> tuple[Any, ...]:
    admin = scene.database.client.admin
    return (
        admin.command("usersInfo", {"forAllDBs": True})["users"],
        sorted(one["_id"] for one in admin.command("rolesInfo", 1)["roles"]),
    )


def writable(scene: LibraryScene) -> dict[str, bool]:
    """Return to which collections the application's user writes."""
    answers = {}
    with MongoClient[Document](scene.uri_of(APPLICATION)) as client:
        for name in ("jobs", "orders"):
            try:
                client[scene.database.name][name].update_one({"_id": "nobody"}, {"$set": {"n": 1}})
            except OperationFailure:
                answers[name] = False
            else:
                answers[name] = True
    return answers


BOTH = {"jobs": True, "orders": True}
OTHERS = {"jobs": False, "orders": True}


@pytest.mark.slow
@pytest.mark.proves("6-U10")
def test_a_group_changes_over_and_back_while_the_others_are_written(group: LibraryScene) -> None:
    before = rights(group)
    said = call(group, "cutover", "plan")
    assert f"collections (jobs); stops {APPLICATION}@admin" in said
    assert "MongoDB refuses every other user's writes to jobs, also in transactions that stay open" in said
    assert killed_at("cutover.fence.done", group, "cutover", "run", "--yes")
    assert writable(group) == OTHERS
    call(group, "cutover", "abort")
    assert rights(group) == before
    assert writable(group) == BOTH

    call(group, "cutover", "run", "--yes", ends=UNVERIFIED)
    assert writable(group) == OTHERS
    call(group, "cutover", "confirm")
    call(group, "rollback", "run", "--yes")
    assert rights(group) == before
    assert writable(group) == BOTH

    call(group, "tail", "--until-caught-up")
    call(group, "cutover", "run", "--yes", ends=UNVERIFIED)
    call(group, "cutover", "confirm")
    call(group, "cutover", "finish", "--now", "--who", "ops", "--reason", "tested")
    assert writable(group) == OTHERS
    call(group, "cutover", "release-source", "--yes")
    assert rights(group) == before


def test_a_user_whose_right_reaches_all_databases_is_named(group: LibraryScene) -> None:
    admin = group.database.client.admin
    admin.command("createUser", "operator", pwd="secret", roles=["readWriteAnyDatabase"])
    try:
        said = call(group, "cutover", "plan", ends=UNVERIFIED)
    finally:
        admin.command("dropUser", "operator")
    assert "fence: collections does not stop operator@admin" in said
    assert writable(group) == BOTH
