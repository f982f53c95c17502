"""Rights of a user of MongoDB without those to change some collections."""

from typing import Any

import pytest

from migrator.cutover.narrowed_rights import can_narrow, narrowed, reaches


def right(*actions: str, db: str = "app", collection: str = "") -> dict[str, Any]:
    return {"resource": {"db": db, "collection": collection}, "actions": list(actions)}


CLUSTER: dict[str, Any] = {"resource": {"cluster": True}, "actions": ["serverStatus"]}
ANYTHING: dict[str, Any] = {"resource": {"anyResource": True}, "actions": ["insert"]}


def test_a_right_to_the_database_is_written_out_for_the_other_collections() -> None:
    found = narrowed([right("find", "insert", "dropCollection")], "app", {"jobs"}, ["orders", "users"])
    assert found == [
        right("find"),
        right("find", "insert", "dropCollection", collection="orders"),
        right("find", "insert", "dropCollection", collection="users"),
    ]


@pytest.mark.parametrize(
    "kept",
    [
        right("find", "listCollections"),
        right("find", "insert", collection="orders"),
        right("insert", "remove", db="elsewhere"),
        right("insert", db="elsewhere", collection="jobs"),
        CLUSTER,
    ],
)
def test_other_rights_stay(kept: dict[str, Any]) -> None:
    assert narrowed([kept], "app", {"jobs"}, ["orders"]) == [kept]


def test_a_right_to_a_held_collection_is_to_read_it() -> None:
    rights = [right("find", "update", collection="jobs"), right("remove", collection="jobs")]
    assert narrowed(rights, "app", {"jobs"}, ["orders"]) == [right("find", collection="jobs")]


@pytest.mark.parametrize(
    ("rights", "can"),
    [
        ([right("insert")], True),
        ([right("insert", collection="jobs"), CLUSTER], True),
        ([right("find", db="")], True),
        ([right("insert", db="")], False),
        ([right("insert", db="", collection="jobs")], False),
        ([right("insert", db="", collection="orders")], True),
        ([ANYTHING], False),
    ],
)
def test_only_a_right_to_this_database_can_be_narrowed(rights: list[dict[str, Any]], *, can: bool) -> None:
    assert can_narrow(rights, "app", {"jobs"}) is can


def test_a_right_reaches_a_collection_of_the_database_or_all_of_them() -> None:
    assert reaches(right("insert", collection="jobs"), "app", {"jobs"})
    assert not reaches(right("insert", collection="orders"), "app", {"jobs"})
    assert reaches(right("insert", collection="orders"), "app", ())
    assert not reaches(right("insert", db="elsewhere"), "app", ())
    assert reaches(right("insert", db=""), "app", {"jobs"})
    assert reaches(ANYTHING, "app", {"jobs"})
