"""The switch behind the fence ``roles``: a tool that may grant and revoke, and may not block writes."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

from migrator import fault_points
from migrator.cutover import cutover, fence, procedure, rollback
from migrator.errors import RefusedError, UnreachableError
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.copying import run_of
from tests.cutting_over import Scene, scene
from tests.faults.test_cutover_writers import switched_while_writing
from tests.killed_commands import killed_at

TOOL = "migrator_tool"
EVERY_DATABASE = {"db": "", "collection": ""}


@pytest.fixture
def ready(auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path) -> Iterator[Scene]:
    """A scene with users of several kinds, seen by a tool that has the rights for the fence ``roles`` alone."""
    with scene(auth_server, fresh_name(), scheduler_dsn, tmp_path) as made:
        admin, name = made.database.client.admin, made.database.name
        admin.command(
            "createRole",
            "granting",
            privileges=[
                {"resource": {"cluster": True}, "actions": ["viewUser"]},
                {"resource": EVERY_DATABASE, "actions": ["viewUser", "grantRole", "revokeRole"]},
            ],
            roles=["clusterMonitor", {"role": "readWrite", "db": name}, {"role": "read", "db": "local"}],
        )
        admin.command("createUser", TOOL, pwd="secret", roles=["granting"])
        runs = {"resource": {"db": name, "collection": "runs"}, "actions": ["find", "insert", "update", "remove"]}
        made.database.command("createRole", "runner", privileges=[runs], roles=[])
        made.database.command(
            "createUser",
            "local",
            pwd="secret",
            roles=["runner", {"role": "readWrite", "db": "elsewhere"}, {"role": "clusterMonitor", "db": "admin"}],
            customData={"owner": "team 7"},
        )
        admin.command("createUser", "operator", pwd="secret", roles=["readWriteAnyDatabase"])
        admin.command("createUser", "leaver", pwd="secret", roles=[{"role": "readWrite", "db": name}])
        admin.command("createUser", "reader", pwd="secret", roles=[{"role": "read", "db": name}])
        as_it_is(made)
        yield made
        for user in ("operator", "leaver", "reader", TOOL):
            try:
                admin.command("dropUser", user)
            except OperationFailure:
                assert user == "leaver"
        made.database.command("dropUser", "local")
        made.database.command("dropRole", "runner")
        admin.command("dropRole", "granting")


def as_it_is(made: Scene) -> None:
    """Let the tool be that user; the server's own administrator may still write, and is known not to."""
    mongo = msgspec.structs.replace(made.settings.mongo, uri=made.uri_of(TOOL))
    cutover = msgspec.structs.replace(made.settings.cutover, tolerated_writers=["admin@admin"])
    made.settings = msgspec.structs.replace(made.settings, mongo=mongo, cutover=cutover)
    text = made.config.read_text().replace(made.server.uri, mongo.uri or "")
    made.config.write_text(f'{text}\n[cutover]\ntolerated_writers = ["admin@admin"]\n')


def users(scene: Scene) -> dict[str, Any]:
    """Return all that the server knows of its users; it keeps roles as a set, in an order of its own."""
    found = scene.database.client.admin.command("usersInfo", {"forAllDBs": True}, showCredentials=True)["users"]
    return {one["_id"]: {**one, "roles": sorted(one["roles"], key=str)} for one in found}


def writes(database: Database[Any]) -> bool:
    try:
        database.runs.insert_one(run_of(_id=f"probe {fresh_name()}"))
    except OperationFailure:
        return False
    return True


@pytest.mark.slow
@pytest.mark.proves("0-T2.12.1", "4-X5", "4-X6")
def test_there_and_back_behind_revoked_roles(ready: Scene) -> None:
    before = users(ready)
    ready.ready()
    assert killed_at(f"{fault_points.CUTOVER_PREFIX}drain.begun", ready, "cutover", "run")
    with ready.foreign() as shut, ready.foreign("operator") as other:
        assert not writes(shut)
        assert not writes(other)
    assert users(ready).keys() == before.keys()
    assert users(ready) != before
    assert users(ready)["admin.admin"] == before["admin.admin"]  # who may grant keeps what it has
    procedure.abort(cutover.SchedulerCutover, ready.settings)
    assert users(ready) == before

    with ready.foreign() as one, ready.foreign("operator") as other:
        done, writers = switched_while_writing(ready, one, other)
        assert done.cutover.fence["kind"] == "roles"
        assert all(writer.refused.is_set() for writer in writers)
        assert not writes(one)
        assert not writes(other)
    with psycopg.connect(ready.dsn) as connection:
        rows = connection.execute("SELECT source_id, error FROM scheduler.runs WHERE source_id LIKE 'run_foreign_%'")
        assert dict(rows.fetchall()) == {key: text for writer in writers for key, text in writer.holds.items()}

    ready.database.client.admin.command("dropUser", "leaver")
    assert rollback.run(ready.settings, ready.config, 1).level == 1
    assert users(ready) == {name: one for name, one in before.items() if name != "admin.leaver"}
    with ready.foreign() as one:
        assert writes(one)


def test_one_user_that_cannot_have_its_roles_back_does_not_hold_up_the_others(
    ready: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody has removed a role meanwhile: it is said whose, and made again the same call gives it back."""
    before = users(ready)
    taken = fence.revocable_roles(ready.database)
    fence.engage_source(ready.database, "roles", taken, timedelta(seconds=20))
    changed = {name for name, one in users(ready).items() if one != before[name]}
    assert changed == {"admin.application", "admin.operator", "admin.leaver", f"{ready.database.name}.local"}
    runner = ready.database.command("rolesInfo", "runner", showPrivileges=True)["roles"][0]
    ready.database.command("dropRole", "runner")
    with pytest.raises(UnreachableError, match="runner"):
        fence.lift_source(ready.database, "roles", taken)
    assert "cutover: local@" in capsys.readouterr().err
    assert {name for name, one in users(ready).items() if one != before[name]} == {f"{ready.database.name}.local"}
    ready.database.command("createRole", "runner", privileges=runner["privileges"], roles=[])
    fence.lift_source(ready.database, "roles", taken)
    assert users(ready) == before


def test_roles_that_could_not_be_given_back_are_not_taken(ready: Scene) -> None:
    """The tool may grant in the source's database only; an operator's role is of another one."""
    admin = ready.database.client.admin
    admin.command(
        "updateRole",
        "granting",
        privileges=[
            {"resource": {"cluster": True}, "actions": ["viewUser"]},
            {"resource": EVERY_DATABASE, "actions": ["viewUser", "revokeRole"]},
            {"resource": {"db": ready.database.name, "collection": ""}, "actions": ["grantRole"]},
        ],
    )
    before = users(ready)
    ready.ready()
    with pytest.raises(RefusedError, match="fence: the tool's user could not give roles of admin, elsewhere back"):
        ready.switch()
    assert users(ready) == before
