"""The fence of MongoDB, on a server that asks for passwords, against clients of other programs."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError

from migrator.cutover import fence
from migrator.cutover.fence import FenceKind
from migrator.errors import RefusedError
from migrator.testing.servers.mongo import MongoServer

LIMIT = timedelta(minutes=4)
SOON = timedelta(milliseconds=300)
WRITES: dict[str, Callable[[Database[Any]], object]] = {
    "insert": lambda database: database.runs.insert_one({"new": 1}),
    "update": lambda database: database.runs.update_one({"_id": "r1"}, {"$inc": {"n": 1}}),
    "delete": lambda database: database.runs.delete_one({"_id": "r1"}),
    "drop": lambda database: database.drop_collection("runs"),
}


@pytest.fixture
def source(auth_server: MongoServer) -> Iterator[Database[Any]]:
    with MongoClient[dict[str, Any]](auth_server.uri) as client:
        database = client["scheduler"]
        database.runs.insert_one({"_id": "r1", "n": 0})
        for name, roles in (
            ("application", [{"role": "readWrite", "db": "scheduler"}]),
            ("operator", [{"role": "readWriteAnyDatabase", "db": "admin"}]),
            ("reader", [{"role": "read", "db": "scheduler"}]),
            ("restorer", [{"role": "restore", "db": "admin"}]),
        ):
            client.admin.command("createUser", name, pwd="secret", roles=roles)
        yield database
        fence.lift_source(database, "write-block", ())
        for name in ("application", "operator", "reader", "restorer"):
            client.admin.command("dropUser", name)
        client.drop_database("scheduler")


@pytest.fixture
def foreign(auth_server: MongoServer, source: Database[Any]) -> Iterator[Callable[[str], Database[Any]]]:
    clients = []

    def connect(user: str) -> Database[Any]:
        uri = f"mongodb://{user}:secret@127.0.0.1:{auth_server.port}/?authSource=admin&replicaSet={auth_server.replica_set}"
        clients.append(MongoClient[dict[str, Any]](uri))
        return clients[-1][source.name]

    yield connect
    for client in clients:
        client.close()


def outcomes(database: Database[Any]) -> dict[str, bool]:
    """Try every way of writing; tell which went through."""
    answers = {}
    for name, write in WRITES.items():
        try:
            write(database)
        except OperationFailure:
            answers[name] = False
        else:
            answers[name] = True
    return answers


def test_the_survey_names_who_is_stopped_and_who_is_not(source: Database[Any]) -> None:
    block, roles = fence.survey_source(source), fence.survey_source(source, prefer="roles")
    assert (block.kind, block.stopped, block.unstopped) == (
        "write-block",
        ("application@admin", "operator@admin"),
        ("restorer@admin",),
    )
    assert (roles.kind, roles.stopped, roles.unstopped) == (
        "roles",
        ("application@admin", "operator@admin"),
        ("restorer@admin",),
    )


@pytest.mark.proves("0-T2.12.1")
@pytest.mark.parametrize("kind", ["write-block", "roles"])
@pytest.mark.parametrize("user", ["application", "operator"])
def test_nobody_of_any_language_writes_behind_the_fence_and_all_do_when_it_is_lifted(
    kind: FenceKind, user: str, source: Database[Any], foreign: Callable[[str], Database[Any]]
) -> None:
    client = foreign(user)
    taken = fence.revocable_roles(source) if kind == "roles" else []
    assert not fence.is_source_fenced(source, kind, taken)
    fence.engage_source(source, kind, taken, LIMIT)
    fence.engage_source(source, kind, taken, LIMIT)
    assert fence.is_source_fenced(source, kind, taken)
    assert outcomes(client) == dict.fromkeys(WRITES, False)
    assert client.runs.find_one() == {"_id": "r1", "n": 0}
    source.runs.update_one({"_id": "r1"}, {"$set": {"n": 5}})  # the tool's own user passes: the way back must write
    fence.lift_source(source, kind, taken)
    fence.lift_source(source, kind, taken)
    assert not fence.is_source_fenced(source, kind, taken)
    assert outcomes(client) == dict.fromkeys(WRITES, True)


@pytest.mark.parametrize("kind", ["write-block", "roles"])
def test_an_older_transaction_is_waited_for(
    kind: FenceKind, source: Database[Any], foreign: Callable[[str], Database[Any]]
) -> None:
    client = foreign("application")
    taken = fence.revocable_roles(source) if kind == "roles" else []
    with client.client.start_session() as session, ThreadPoolExecutor() as pool:
        session.start_transaction()
        client.runs.insert_one({"_id": "inside"}, session=session)
        closing = pool.submit(fence.engage_source, source, kind, taken, LIMIT)
        session.commit_transaction()
        closing.result()
    assert source.runs.find_one({"_id": "inside"})
    assert outcomes(client) == dict.fromkeys(WRITES, False)
    fence.lift_source(source, kind, taken)


@pytest.mark.parametrize("kind", ["write-block", "roles"])
def test_a_transaction_that_stays_open_is_ended_and_its_owner_is_told(
    kind: FenceKind, source: Database[Any], foreign: Callable[[str], Database[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "TRANSACTION_PATIENCE", SOON)
    assert fence.survey_source(source, prefer=kind).ends
    client = foreign("application")
    taken = fence.revocable_roles(source) if kind == "roles" else []
    with client.client.start_session() as session:
        session.start_transaction()
        client.runs.insert_one({"_id": "inside"}, session=session)
        fence.engage_source(source, kind, taken, LIMIT)
        with pytest.raises(OperationFailure):
            session.commit_transaction()
    assert source.runs.find_one({"_id": "inside"}) is None
    assert outcomes(client) == dict.fromkeys(WRITES, False)
    fence.lift_source(source, kind, taken)


def test_who_may_not_end_transactions_waits_and_is_told_what_is_missing(
    source: Database[Any], foreign: Callable[[str], Database[Any]]
) -> None:
    client, tool = foreign("application"), foreign("restorer")
    assert not fence.survey_source(tool).ends
    with client.client.start_session() as session:
        session.start_transaction()
        client.runs.insert_one({"_id": "inside"}, session=session)
        with pytest.raises(RefusedError, match=r"within 0\.3 s: a transaction stays open.*, and .* inprog and killAny"):
            fence.engage_source(tool, "write-block", (), SOON)
        fence.lift_source(tool, "write-block", ())
        session.commit_transaction()
    assert source.runs.find_one({"_id": "inside"})


def test_the_roles_come_back_as_they_were(source: Database[Any]) -> None:
    before = source.client.admin.command("usersInfo", {"forAllDBs": True})["users"]
    taken = fence.revocable_roles(source)
    fence.engage_source(source, "roles", taken, LIMIT)
    assert source.client.admin.command("usersInfo", {"forAllDBs": True})["users"] != before
    fence.lift_source(source, "roles", taken)
    assert source.client.admin.command("usersInfo", {"forAllDBs": True})["users"] == before


def test_a_user_without_the_rights_is_told_what_is_missing(foreign: Callable[[str], Database[Any]]) -> None:
    assert "may not see the users" in fence.survey_source(foreign("application")).why_not


def test_a_server_that_asks_nobody_cannot_be_fenced(mongo_database: Database[Any]) -> None:
    found = fence.survey_source(mongo_database)
    assert found.kind is None
    assert "requires no authentication" in found.why_not


def test_without_the_fence_the_foreign_client_writes(foreign: Callable[[str], Database[Any]]) -> None:
    assert outcomes(foreign("application")) == dict.fromkeys(WRITES, True)
    with pytest.raises(PyMongoError):
        foreign("reader").runs.insert_one({})


GROUP = ("runs", "not made yet")


def everything(source: Database[Any]) -> tuple[Any, ...]:
    """Return all users with their roles, and the names of all roles that somebody made."""
    admin = source.client.admin
    users = admin.command("usersInfo", {"forAllDBs": True})["users"]
    return users, sorted(one["_id"] for one in admin.command("rolesInfo", 1)["roles"])


def test_the_survey_of_a_group_names_whose_rights_cannot_be_narrowed(source: Database[Any]) -> None:
    survey = fence.survey_source(source, collections=GROUP)
    assert (survey.kind, survey.stopped, survey.unstopped, survey.ends) == (
        "collections",
        ("application@admin",),
        ("operator@admin", "restorer@admin"),
        True,
    )
    assert fence.writing_users(source, (), GROUP) == {"application@admin", "operator@admin", "restorer@admin"}


@pytest.mark.proves("6-U10")
def test_a_group_of_collections_is_held_and_the_others_are_written(
    source: Database[Any], foreign: Callable[[str], Database[Any]]
) -> None:
    before = everything(source)
    source.orders.insert_one({"_id": "o1", "n": 0})
    client = foreign("application")
    taken = fence.revocable_roles(source, GROUP)
    assert [one["user"] for one in taken] == ["application"]
    assert not fence.is_source_fenced(source, "collections", taken)
    for _ in range(2):
        fence.engage_source(source, "collections", taken, LIMIT)
    assert fence.is_source_fenced(source, "collections", taken)
    assert outcomes(client) == dict.fromkeys(WRITES, False)
    assert client.runs.find_one() == {"_id": "r1", "n": 0}
    client.orders.insert_one({"_id": "o2"})
    client.orders.update_one({"_id": "o1"}, {"$set": {"n": 1}})
    client.orders.delete_one({"_id": "o2"})
    client.orders.create_index("n")
    with pytest.raises(OperationFailure):  # the server knows no right to all collections but some
        client.later.insert_one({})
    for _ in range(2):
        fence.lift_source(source, "collections", taken)
    assert not fence.is_source_fenced(source, "collections", taken)
    assert everything(source) == before
    assert outcomes(client) == dict.fromkeys(WRITES, True)


def test_two_groups_have_a_user_each_and_neither_stops_the_other(
    source: Database[Any], foreign: Callable[[str], Database[Any]]
) -> None:
    rights = {"resource": {"db": source.name, "collection": "runs"}, "actions": ["find", "insert", "remove"]}
    source.command("createRole", "runner", privileges=[rights], roles=[])
    source.client.admin.command("updateUser", "application", roles=[{"role": "runner", "db": source.name}])
    try:
        assert fence.writing_users(source, (), ("orders",)).isdisjoint({"application@admin"})
        taken = fence.revocable_roles(source, ("orders",))
        fence.engage_source(source, "collections", taken, LIMIT)
        foreign("application").runs.insert_one({"_id": "goes on"})
        assert taken == []
    finally:
        source.command("dropRole", "runner")


def test_a_transaction_of_another_group_is_not_waited_for(
    source: Database[Any], foreign: Callable[[str], Database[Any]]
) -> None:
    source.orders.insert_one({"_id": "o1"})
    client = foreign("operator")  # is not stopped by this fence
    with client.client.start_session() as session:
        session.start_transaction()
        client.orders.insert_one({"_id": "inside"}, session=session)
        taken = fence.revocable_roles(source, GROUP)
        fence.engage_source(source, "collections", taken, LIMIT)
        session.commit_transaction()
    fence.lift_source(source, "collections", taken)
    assert source.orders.find_one({"_id": "inside"})


def test_a_transaction_of_the_group_that_stays_open_is_ended(
    source: Database[Any], foreign: Callable[[str], Database[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "TRANSACTION_PATIENCE", SOON)
    client = foreign("application")
    taken = fence.revocable_roles(source, GROUP)
    with client.client.start_session() as session:
        session.start_transaction()
        client.runs.insert_one({"_id": "inside"}, session=session)
        fence.engage_source(source, "collections", taken, LIMIT)
        with pytest.raises(OperationFailure):
            session.commit_transaction()
    fence.lift_source(source, "collections", taken)
    assert source.runs.find_one({"_id": "inside"}) is None


def limited(source: Database[Any], *privileges: dict[str, Any]) -> None:
    """Let the user ``reader`` be a tool that may see all users and transactions, with these rights besides."""
    cluster = {"resource": {"cluster": True}, "actions": ["viewUser", "inprog"]}
    viewing = {"resource": {"db": "", "collection": ""}, "actions": ["viewUser"]}
    source.client.admin.command("createRole", "limited", privileges=[cluster, viewing, *privileges], roles=[])
    source.client.admin.command("updateUser", "reader", roles=["limited"])


@pytest.mark.parametrize(
    ("actions", "why_not"),
    [
        ([], "the fence collections needs the privileges createRole, dropRole, grantRole, revokeRole"),
        (
            ["createRole", "dropRole", "grantRole", "revokeRole"],
            "the fence collections needs the privilege grantRole in admin",
        ),
    ],
)
def test_a_tool_without_the_rights_for_the_fence_of_a_group_is_told(
    actions: list[str], why_not: str, source: Database[Any], foreign: Callable[[str], Database[Any]]
) -> None:
    resource = {"db": source.name, "collection": ""}
    limited(source, *([{"resource": resource, "actions": actions}] if actions else []))
    try:
        survey = fence.survey_source(foreign("reader"), collections=GROUP)
    finally:
        source.client.admin.command("dropRole", "limited")
    assert (survey.kind, survey.why_not) == (None, why_not)
