"""The documents of the page: clean, whole, and held to the shapes that read them."""

from typing import Any

import bson
import pytest

from migrator.sources.profile import Rejected
from migrator.sources.stellaops import PROFILE
from migrator.values import document
from tests.stellaops_documents import CANONICAL, COLLECTIONS, CONTEXT, Trip, attempt, travel

CASES = [
    pytest.param(name, raw, id=f"{name}-{number}")
    for name, raws in CANONICAL.items()
    for number, raw in enumerate(raws)
]


def test_the_page_shows_every_collection_in_no_other_name() -> None:
    assert CANONICAL.keys() == {collection.name for collection in PROFILE.collections}


@pytest.mark.parametrize(("name", "raw"), CASES)
def test_a_canonical_document_comes_back_byte_for_byte(name: str, raw: bytes) -> None:
    decoded = COLLECTIONS[name].decode(document.decode(raw), CONTEXT)
    assert decoded.notes == ()
    assert bson.encode(COLLECTIONS[name].encode(decoded.rows)) == raw


@pytest.mark.parametrize(("name", "raw"), CASES)
def test_every_path_in_it_is_known(name: str, raw: bytes) -> None:
    free = ("environment", "env", "context", "metadata", "sourceSpec")
    assert _paths(document.decode(raw), "", free) <= COLLECTIONS[name].known


@pytest.mark.parametrize(("name", "raw"), CASES)
def test_another_order_of_keys_is_no_remainder(name: str, raw: bytes) -> None:
    assert travel(name, _reversed(document.decode(raw))).remainder == b"{}"


@pytest.mark.parametrize(("name", "raw"), CASES)
def test_a_field_that_is_absent_is_refused_or_leaves_no_trace_but_its_default(name: str, raw: bytes) -> None:
    for field in document.decode(raw):
        made = document.decode(raw)
        del made[field]
        match attempt(name, made):
            case Rejected() as refused:
                assert (refused.reason, refused.path) in {("missing-field", field), ("wrong-kind", "kind")}
            case Trip() as trip:
                # Absent means: true, the configured tenant, the _id, or the zone of a trigger that is no longer made.
                assert trip.fields <= {field, "timezone"}
                if field not in {"id", "tenantId", "tenant", "enabled", "isActive", "resource", "cronExpression"}:
                    assert trip.remainder == b"{}"


@pytest.mark.parametrize(("name", "raw"), CASES)
def test_a_null_is_refused_or_lies_in_the_remainder(name: str, raw: bytes) -> None:
    for field in document.decode(raw):
        if field != "_id":
            match attempt(name, {**document.decode(raw), field: None}):
                case Rejected() as refused:
                    assert refused.reason in {"missing-field", "wrong-type", "wrong-kind"}
                    assert field.startswith(refused.path) or refused.path == "kind"
                case Trip() as trip:
                    assert field in trip.fields or name.startswith("graph")


@pytest.mark.parametrize(("name", "raw"), CASES)
@pytest.mark.parametrize("wrong", [b"bytes", 1.5, True, 7, "text", [1], {"a": 1}, bson.ObjectId(), bson.Code("x")])
def test_a_wrong_type_is_refused_at_its_path(name: str, raw: bytes, wrong: object) -> None:
    """Or it is a right one, or an id, which may be anything; ``travel`` sees to it that nothing is converted unseen."""
    for field in document.decode(raw):
        if field != "_id":
            match attempt(name, {**document.decode(raw), field: wrong}):
                case Rejected() as refused:
                    assert refused.path.split(".")[0] in {field, f"{field}[]", "", "kind"}
                case Trip() as trip:
                    assert field in trip.fields | {"id"} or _kind(wrong) in _kinds(name, raw, field)


def _kind(value: object) -> type:
    return str if isinstance(value, bson.Code) else type(value)


def _kinds(name: str, raw: bytes, field: str) -> set[type]:
    kinds = {_kind(document.decode(raw)[field])}
    if (
        field in {"context", "sourceSpec"}
        or (name == "workers" and field == "metadata")
        or (name == "graph_job_events" and field in {"eventId", "kind"})
    ):
        kinds |= {bytes, float, bool, int, str, list, dict, bson.ObjectId}
    return kinds


def _paths(value: dict[str, Any], prefix: str, free: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    for key, member in value.items():
        path = f"{prefix}{key}"
        found.add(path)
        if path in free or key in free or key in {"attributes", "labels"}:
            continue
        for item in member if isinstance(member, list) else [member]:
            if isinstance(item, dict):
                found |= _paths(item, f"{path}[]." if isinstance(member, list) else f"{path}.", free)
    return found


def _reversed(value: Any) -> Any:  # noqa: ANN401 - any part of a document
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return [_reversed(item) for item in value] if isinstance(value, list) else value
