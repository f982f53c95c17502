"""A converter is one class: one that lacks a part is none, and no operation of the native codec ignores an option."""

from typing import Any

import msgspec
import pytest

from migrator.sources.mapping.codec import profile_of_mapping
from migrator.sources.mapping.converters import CONVERTERS
from migrator.sources.mapping.converters.base import Converter, Reader, Target, Uncounted, Unplannable, Writer
from migrator.sources.mapping.language import Field, Mapped, SourceMapping
from migrator.sources.mapping.measures import measures_of
from migrator.sources.mapping.native_plan import plan_of
from migrator.sources.profile import Collection
from tests.stellaops_documents import CONTEXT


class Half(Uncounted):
    """Has neither options nor an operation."""

    name = "half"
    column_types = frozenset({"text"})

    def shape(self, _field: Field, /) -> Any:  # noqa: ANN401 - an annotation
        return Any

    def reader(self, _target: Target, /) -> Reader | None:
        return None

    def writer(self, _field: Field, /) -> Writer | None:
        return None


def test_a_converter_without_one_of_its_parts_is_none() -> None:
    with pytest.raises(TypeError, match=r"abstract .*operation.*options|abstract .*options.*operation"):
        Half()  # type: ignore[abstract]


def test_every_class_is_registered_once_under_its_name() -> None:
    def concrete(kind: Any) -> set[type[Converter]]:  # noqa: ANN401 - an abstract class
        below = {found for one in kind.__subclasses__() for found in concrete(one)}
        return below if getattr(kind, "__abstractmethods__", None) else {kind, *below}

    shipped = {kind for kind in concrete(Converter) if kind.__module__.startswith("migrator.")}
    assert {type(one) for one in CONVERTERS.values()} == shipped
    assert all(name == one.name for name, one in CONVERTERS.items())


VALUES: dict[str, Any] = {
    **dict.fromkeys(
        (
            "allow_unknown",
            "clamp",
            "trim",
            "exact",
            "write_default",
            "write_null",
            "local",
            "spaced",
            "loose",
            "shared",
            "required",
        ),
        True,
    ),
    **dict.fromkeys(("dialect", "number", "unit_from", "expected", "collection", "prefix", "finding", "begins"), "x"),
    "also": ("y",),
    "below": ("count", "limit"),
    "zone": "Europe/Vienna",
    "part": "hour",
    "taken": False,
    "words": {"a": "b"},
    "write_as": {"a": "b"},
    "encoding": "seconds",
    "unit": "hours",
    "type": "long",
    "factor": 2,
    "add": 1,
    "default": "d",
    "null_value": 0,
    "members": ("m",),
    "fixed": {"a": "b"},
    "holds": "list",
    "time": "at",
    "by": "name",
    "time_format": "HH:MM:SS",
    "first": "mon",
    "id_type": "text",
    "shape": int,
    "respelled": {"a": {"b": "c"}},
    "write": lambda _rows: None,
}
"""Member of ``Field`` to a value that is not its default."""
HEEDED = {"also", "required", "finding", "default", "write_default", "write_null", "trim", "exact", "type"}
"""What the operation of a text declares, or the planner says of every field."""
OF_EVERY_DOCUMENT = {"null_value", "write"}
"""Those of the others that say something of documents without the field."""


class Shouting(Field, frozen=True, kw_only=True):
    """As if the language had got an option that nobody told the planner of."""

    shouted: bool = False


NOTE = Field(path="note", columns=("schedules.description",), converter="text")


def collection_with(*fields: Field) -> Collection:
    """Return a collection of schedules with these fields besides the name."""
    name = Field(path="name", columns=("schedules.name",), converter="text", required=True)
    constants = {"schedules.status": "scheduled"}
    mapped = Mapped(name="notes", tables=("schedules",), fields=(name, *fields), constants=constants)
    [found] = profile_of_mapping(SourceMapping(name="x", collections=(mapped,)), 1).collections
    return found


def keys_of(*fields: Field) -> set[bytes]:
    """Return the fields that the native codec reads; raises ``Unplannable`` for a collection without a plan."""
    codec: Any = collection_with(*fields).decode.__self__  # type: ignore[attr-defined]
    return {step.key for step in plan_of(codec, CONTEXT).steps}


def test_a_value_is_known_for_every_option() -> None:
    assert {member.name for member in msgspec.structs.fields(Field)} == {*VALUES, "path", "columns", "converter"}


@pytest.mark.parametrize("option", sorted(VALUES))
def test_an_option_that_the_operation_does_not_declare_is_for_the_python_codec(option: str) -> None:
    """The field has no step then; a document without it may be plain, unless the option says something of that."""
    field = msgspec.structs.replace(NOTE, **{option: VALUES[option]})
    if option in OF_EVERY_DOCUMENT:
        with pytest.raises(Unplannable, match=option):
            keys_of(field)
    else:
        assert (b"note" in keys_of(field)) == (option in HEEDED)


def test_an_option_that_nobody_told_the_planner_of_is_never_ignored() -> None:
    assert keys_of(Shouting(path="note", columns=NOTE.columns, converter="text")) == {b"name", b"note"}
    with pytest.raises(Unplannable, match="shouted of the field note"):
        keys_of(Shouting(path="note", columns=NOTE.columns, converter="text", shouted=True))


def test_a_flag_with_a_default_is_counted_alike_in_a_source_of_postgresql() -> None:
    """The row has the default where the source has null."""
    [measure] = measures_of(
        Mapped(
            name="jobs",
            tables=("schedules",),
            fields=(Field(path="on", columns=("schedules.enabled",), converter="flag", default=True),),
        )
    )
    assert measure.source_sql == '(coalesce((this."on")::bool, True))::text'
