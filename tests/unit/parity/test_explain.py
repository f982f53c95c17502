"""Words for a few differences: paths and types, no values unless asked for."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from bson import Code, DatetimeMS, Int64

from migrator.parity.causes import ABSENT, describe_difference

SECRET = "hunter2"


def test_paths_and_types_are_named_and_values_are_not() -> None:
    said = describe_difference(
        {"a": 1, "b": {"c": [1, {"d": SECRET}]}, "x": None, "y": [1]},
        {"a": 1.0, "b": {"c": [1, {"d": "other"}], "e.f": SECRET}, "y": [1, 2]},
    )
    assert said == (
        "a is int in the source and double in the target",
        "b.c[1].d differs (string)",
        "b.e.f is only in the target",
        "x is only in the source",
        "y[1] is only in the target",
    )
    assert SECRET not in " ".join(said)


def test_values_are_quoted_when_asked_for() -> None:
    assert describe_difference({"a": 1}, {"a": 2}, values=True) == ("a differs (int): 1 and 2",)
    now = datetime(2061, 3, 7, 8, tzinfo=UTC)
    found = describe_difference(
        {"a": now, "b": [1], "c": 1, "d": "x" * 200},
        {"a": now + timedelta(hours=1), "b": [], "c": None, "d": "x"},
        sides=("mongo", "postgres"),
        values=True,
    )
    assert found == (
        "a differs (date): 2061-03-07T08:00:00+00:00 and 2061-03-07T09:00:00+00:00",
        "b[0] is only in mongo: 1",
        "c is int in mongo and null in postgres: 1 and None",
        f"d differs (string): '{'x' * 158}… and 'x'",
    )


def test_many_lines_are_cut_and_counted() -> None:
    said = describe_difference({str(n): n for n in range(20)}, {str(n): n + 1 for n in range(20)}, lines=3)
    assert len(said) == 4
    assert said[-1] == "and 17 more"


def test_values_that_are_not_documents() -> None:
    assert describe_difference(1, "1") == ("the value is int in the source and string in the target",)


def test_types_of_numbers_are_told_apart_and_the_unseen_is_admitted() -> None:
    assert describe_difference({"a": 1}, {"a": Int64(1)}) == ("a is int in the source and long in the target",)
    assert describe_difference({"a": 0.0}, {"a": -0.0})[0].startswith("they look the same")
    assert describe_difference({"a": float("nan")}, {"a": float("nan")})[0].startswith("they look the same")


def test_what_is_absent_is_called_so() -> None:
    assert describe_difference(ABSENT, "x") == ("the value is absent in the source and string in the target",)
    assert describe_difference({"a": None}, {"a": 1}) == ("a is null in the source and int in the target",)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("x", "string"),
        (1, "int"),
        (Int64(1), "long"),
        (1.5, "double"),
        ({}, "object"),
        ([], "array"),
        (True, "bool"),
        (None, "null"),
        (datetime(2026, 1, 2, tzinfo=UTC), "date"),
        (DatetimeMS(2**60), "date"),
        (b"x", "binData"),
        (Code("1", {}), "javascript"),
        (UUID(int=1), "uuid"),
        (("a",), "array"),
        (Decimal(1), "numeric"),
    ],
)
def test_types_are_called_as_the_databases_call_them(value: object, name: str) -> None:
    assert describe_difference(ABSENT, value) == (f"the value is absent in the source and {name} in the target",)
