"""What a field of JSON must be, as plain tuples: what the native codec is given of a shape.

A description is ``("any",)``, ``("null",)``, ``("bool",)``, ``("double",)``, ``("text",)``, ``("moment",)``,
``("int", least, most)``, ``("words", texts)``, ``("other words", texts)`` for a text that is none of them,
``("list", item)``, ``("map", value)``, ``("members", ((name, description, required), ...))`` in the order in which the
source writes them, or ``("union", descriptions)``. It takes no more than ``shapes.read`` does.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from migrator.sources.shapes import Instant, Shape, parts

Description: TypeAlias = tuple[Any, ...]

_SIMPLE: Final[Mapping[Any, Description]] = {
    Any: ("any",),
    type(None): ("null",),
    bool: ("bool",),
    float: ("double",),
    str: ("text",),
    Instant: ("moment",),
    int: ("int", -(2**63), 2**63 - 1),
}


class IndescribableError(ValueError):
    """A type that a description cannot say."""


def describe(annotation: Any, respelled: Mapping[str, Mapping[str, str]] | None = None) -> Description:  # noqa: ANN401 - a type
    """Return the description of the type of a field; raises ``IndescribableError`` for a type that has none.

    ``respelled``: member to the words that are replaced in it, as ``Field.respelled``; a document with one is not
    described.
    """
    described = tuple(_part(part, respelled or {}) for part in parts(annotation))
    return described[0] if len(described) == 1 else ("union", described)


def _part(part: Any, respelled: Mapping[str, Mapping[str, str]]) -> Description:  # noqa: ANN401 - a type
    if part in _SIMPLE:
        return _SIMPLE[part]
    origin, given = get_origin(part), get_args(part)
    if origin is Literal and all(type(word) is str for word in given):
        return ("words", given)
    if origin is Annotated and given[0] is int:
        return _bounded(given[1:])
    if origin is list:
        return ("list", describe(given[0], respelled))
    if origin is dict and given[0] is str and not respelled:
        return ("map", describe(given[1]))
    if isinstance(part, type) and issubclass(part, Shape):
        return _members(part, respelled)
    raise IndescribableError(f"no description of {part}")


def _bounded(constraints: tuple[Any, ...]) -> Description:
    least, most = -(2**63), 2**63 - 1
    for constraint in constraints:
        if not isinstance(constraint, msgspec.Meta) or constraint != msgspec.Meta(ge=constraint.ge, le=constraint.le):
            raise IndescribableError(f"no description of an int with {constraint}")
        least, most = (
            (least if constraint.ge is None else int(constraint.ge)),
            (most if constraint.le is None else int(constraint.le)),
        )
    return ("int", least, most)


def _members(shape: type[Shape], respelled: Mapping[str, Mapping[str, str]]) -> Description:
    """Return the members without the aliases: a document with one of those is not described."""
    hints = get_type_hints(shape, include_extras=True)
    members = []
    for field in msgspec.structs.fields(shape):
        name = field.encode_name
        if name in shape.aliases:
            continue
        described = describe(hints[field.name])
        if name in respelled:
            described = _without(described, frozenset(respelled[name]))
        members.append((name, described, field.required))
    return ("members", tuple(members))


def _without(described: Description, spellings: frozenset[str]) -> Description:
    match described:
        case ("union", inner):
            return ("union", tuple(_without(part, spellings) for part in inner))
        case ("words", texts):
            return ("words", tuple(text for text in texts if text not in spellings))
        case ("text",):
            return ("other words", tuple(sorted(spellings)))
        case ("null",) | ("int", _, _) | ("bool",) | ("double",):
            return described
    raise IndescribableError("a member with other words that is no text")
