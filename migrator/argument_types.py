"""Arguments of what an application calls: each has the type that its annotation states, or is a ``UsageError``.

Without it a wrong type ends somewhere below, as the ``TypeError`` of whatever looked at it first, and not on both
backends. Only what an annotation states plainly is looked at: functions, protocols and results are not.
"""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, ParamSpec, TypeVar
from uuid import UUID

import msgspec

from migrator.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")

_REQUESTS: Final = ("ScheduleRequest", "ScheduleQuery")
"""The structs that an application makes, and that check nothing themselves."""

_NAMES: Final[Mapping[type, str]] = {
    UUID: "a UUID",
    datetime: "a datetime",
    timedelta: "a timedelta",
    bool: "a bool",
    int: "a whole number",
    float: "a number",
    str: "a text",
}
"""How a message says what is expected."""


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function that raises ``UsageError`` for an argument of another type than its annotation states."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        known = _annotations(function)
        for name, value in signature.bind(*arguments, **named).arguments.items():
            if name not in known:
                continue
            if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                (listed,) = typing.get_args(known[name])
                for inner, expected in _annotations(listed).items():
                    if inner in value:
                        check_type(inner, value[inner], expected)
            else:
                check_type(name, value, known[name])
        return function(*arguments, **named)

    return call


def check_type(name: str, value: object, expected: Any) -> None:  # noqa: ANN401 - an annotation
    """Raise ``UsageError`` unless a value has the type that an annotation states; the fields of a struct too."""
    if not _fits(value, expected):
        if value is None:
            raise UsageError(f"{name} is missing")
        found = "one text" if isinstance(value, str) and _is_sequence(expected) else type(value).__name__
        raise UsageError(f"{name} must be {_described(expected)}, not {found}")
    if isinstance(value, msgspec.Struct) and type(value).__name__ in _REQUESTS:
        for field, inner in _annotations(type(value)).items():
            check_type(field, getattr(value, field), inner)


@functools.lru_cache(maxsize=256)
def _annotations(of: Any) -> Mapping[str, Any]:  # noqa: ANN401 - a function, or a class
    return typing.get_type_hints(of)


def _fits(value: object, expected: Any) -> bool:  # noqa: ANN401 - an annotation
    origin = typing.get_origin(expected)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, inner) for inner in typing.get_args(expected))
    if _is_sequence(expected):
        inner = typing.get_args(expected)[0]
        if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
            return False
        return all(_fits(one, inner) for one in value)
    if isinstance(expected, type) and (getattr(expected, "_is_protocol", False) or typing.is_typeddict(expected)):
        return True  # as a function, or a type variable: what it must be is not stated plainly
    return isinstance(value, _plain(expected)) and not (isinstance(value, bool) and expected in (int, float))


def _plain(expected: Any) -> type | tuple[type, ...]:  # noqa: ANN401 - an annotation
    """Return the types that a plain annotation admits."""
    origin = typing.get_origin(expected)
    if origin is Literal:
        return tuple({type(word) for word in typing.get_args(expected)})
    if origin in (dict, Mapping):
        return Mapping
    if expected is None:
        return type(None)
    if expected is float:
        return (int, float)
    return expected if isinstance(expected, type) and expected is not Any else object


def _is_sequence(expected: Any) -> bool:  # noqa: ANN401 - an annotation
    return typing.get_origin(expected) in (Sequence, tuple, list)


def _described(expected: Any) -> str:  # noqa: ANN401 - an annotation
    origin = typing.get_origin(expected)
    if origin in (typing.Union, types.UnionType):
        named = [inner for inner in typing.get_args(expected) if inner is not type(None)]
        return " or ".join(dict.fromkeys(map(_described, named)))
    if origin is Literal:
        return " or ".join(dict.fromkeys(_described(type(word)) for word in typing.get_args(expected)))
    if _is_sequence(expected):
        return "a sequence of texts" if str in typing.get_args(expected) else "a sequence"
    if origin in (dict, Mapping):
        return "a mapping"
    return _NAMES.get(expected, getattr(expected, "__name__", str(expected)))
