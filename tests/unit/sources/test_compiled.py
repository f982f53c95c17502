"""Functions compiled for the fields of a mapping."""

from typing import Any

import msgspec

from migrator.sources.mapping import compiled


class Found(msgspec.Struct):
    a: Any = None
    b: Any = None
    c: Any = None


class Reading(msgspec.Struct):
    columns: dict[str, dict[str, Any]]


def test_fields_fill_the_columns_of_their_tables() -> None:
    fill = compiled.filling([("runs", "x", None), None, ("triggers", "y", lambda value, _reading: value or None)])
    for found, expected in (
        (Found(1, 2, 3), {"runs": {"x": 1}, "triggers": {"y": 3}}),
        (Found(None, 2, 0), {"runs": {}, "triggers": {}}),
    ):
        reading = Reading({"runs": {}, "triggers": {}})
        fill(found, reading)
        assert reading.columns == expected


def test_columns_are_written_in_their_order_and_none_is_not_written() -> None:
    write = compiled.writing(
        [
            (("z",), None, False),
            (("o", "i"), str, False),
            (("n",), lambda _value: compiled.NULL, False),
            (("o", "j"), lambda _value: None, False),
            (("m",), str, True),
        ]
    )
    document: dict[str, Any] = {}
    write((1, 2, 3, 4, 5), document)
    assert list(document.items()) == [("z", 1), ("o", {"i": "2"}), ("n", None), ("m", "5")]
    write((None, None, None, None, None), document := {})
    assert document == {"m": None}


def test_a_mapping_of_no_fields_reads_and_writes_nothing() -> None:
    reading = Reading({"runs": {}})
    compiled.filling([])(msgspec.defstruct("Nothing", [])(), reading)
    document: dict[str, Any] = {}
    compiled.writing([])((), document)
    assert (reading.columns, document) == ({"runs": {}}, {})
